"""Does direction carry the meaning, and length not?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, Evidence, Floats
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import measure_scaling, scalings
from armillary.probes.sphere.site_sample import Sampled, sampled
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy, Norm
    from armillary.probes.machinery.bench import Bench, Trials

NEGATIVES = 8000
DRAWS = 200
SCORES = ("cosine", "euclidean", "length")
COLUMNS = (
    Column("site", "norm site"),
    Column("auc_cosine", "AUC of cos(z_i, z_j) for 'same next token', pairs of different documents"),
    Column("auc_euclidean", "AUC of −‖x_i − x_j‖ for the same"),
    Column("auc_length", "AUC of −|‖x_i‖ − ‖x_j‖| for the same"),
    Column("same_pairs", "sampled pairs with the same next token", "pairs"),
    Column("scale_change", "largest ‖z(cx) − z(x)‖/√d for c = ½ and 2: what ε leaves of exact invariance", "√d"),
)
SCALING = (
    Column("layer", "the stream is scaled after this block"),
    Column("factor", "by this factor"),
    Column("delta_nll", "change of the next-token loss", "nats/token"),
    Column("low", "its 95 % interval over documents, low end", "nats/token"),
    Column("high", "its 95 % interval over documents, high end", "nats/token"),
)


@dataclass(frozen=True)
class Direction:
    """(a) scale invariance of the norms, (b) the loss when the stream is scaled, (c) what tells 'same next token'."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.direction",
        chapter="A",
        statement="Direction carries the meaning, length does not.",
        source="S2 S3",
        definition=(
            "(a) z(cx) against z(x): exact by definition, ε apart. (b) Change of the next-token loss when the stream "
            "after a block is multiplied by ½ or 2: later writes are added to it, so its length may matter although "
            "every norm ignores it. (c) AUC for 'same next token' of token pairs from different documents, from "
            "cosine, from Euclidean distance, from |Δ length|. The statistic is AUC(cosine) − AUC(|Δ length|) at the "
            "last norm."
        ),
        control="permuted labels; random initialisation; shuffled text; for (b) the last block, where the final norm "
        "undoes any scale",
        rule=(
            f"Supported: the difference's interval lies above {T.direction_margin}, AUC(cosine) ≥ {T.direction_auc}, and "
            f"no scaling changes the loss by more than {T.scaling_cost} nats a token. Qualified: the difference holds, but "
            "AUC(cosine) is lower, or scaling the stream changes more (or cannot be measured on this model). Refuted: the difference's interval lies below "
            f"{T.direction_margin}. Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("sample",)

    def passes(self, anatomy: "Anatomy") -> float:
        return 1 + len(scalings(anatomy))

    def experiment(self, bench: "Bench") -> "Trials | None":
        return measure_scaling(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        rows = list(over_sites(evidence.sites, lambda site: _row(evidence, site)).values())
        last = evidence.sites[-1]
        value, low, high = _difference(evidence, MODEL, last)
        auc = float(rows[-1]["auc_cosine"])
        costs = _costs(evidence)
        verdict = _verdict(low, high, auc, costs)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(f"AUC(cosine) − AUC(|Δ length|) at {last}", value, low, high),
            n=rows[-1]["same_pairs"],
            controls=_controls(evidence, last),
            reading=_reading(verdict, rows, costs, evidence),
            headline=_headline(verdict, rows[-1], costs),
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(evidence, rows, costs),
            more_tables={"scaling": Table.of(SCALING, costs)} if costs else {},
        )


def _row(evidence: Evidence, site: str) -> dict[str, Any]:
    record = evidence.records[MODEL][site]
    cloud = sampled(record)
    pairs = _pairs(cloud, evidence.seed)
    aucs = [float("nan")] * 3 if pairs is None else [_auc(pairs, k, np.ones((1, len(pairs[1]))))[0] for k in range(3)]
    return {
        "site": site,
        "auc_cosine": float(aucs[0]),
        "auc_euclidean": float(aucs[1]),
        "auc_length": float(aucs[2]),
        "same_pairs": 0 if pairs is None else int(pairs[1].sum()),
        "scale_change": _scale_change(record.norm, cloud),
    }


Pairs = tuple[tuple[Floats, ...], Any, Any, Any]


def _pairs(cloud: Sampled, seed: int, permuted: bool = False) -> Pairs | None:
    """Scores per measure, label, and both documents, for all pairs with the same next token and some without."""
    rng = np.random.default_rng(seed)
    usable = np.flatnonzero(cloud.following >= 0)
    following, document = cloud.following[usable], cloud.document[usable]
    if permuted:
        following = rng.permutation(following)
    i, j = np.triu_indices(len(usable), 1)
    apart = document[i] != document[j]
    i, j = i[apart], j[apart]
    same = following[i] == following[j]
    negatives = np.flatnonzero(~same)
    if same.sum() < 30 or len(negatives) < 30:
        return None
    chosen = np.concatenate([np.flatnonzero(same), rng.choice(negatives, min(NEGATIVES, len(negatives)), False)])
    i, j, same = i[chosen], j[chosen], same[chosen]
    x, z = cloud.x.numpy()[usable], cloud.z.numpy()[usable]
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
    length = np.linalg.norm(x, axis=1)
    cosine = (unit @ unit.T)[i, j]
    squared = length[i] ** 2 + length[j] ** 2 - 2 * (x @ x.T)[i, j]
    scores = (cosine, -np.sqrt(np.maximum(squared, 0)), -np.abs(length[i] - length[j]))
    return scores, same, document[i], document[j]


def _auc(pairs: Pairs, which: int, weights: Floats) -> Floats:
    from armillary.geometry.resample import weighted_auc

    return np.asarray(weighted_auc(pairs[0][which], pairs[1], weights))


def _difference(evidence: Evidence, arm: str, site: str, permuted: bool = False) -> tuple[float, float, float]:
    """AUC(cosine) − AUC(|Δ length|) with its interval: a pair weighs as often as both its documents are drawn."""
    from armillary.geometry.resample import tails

    nothing = float("nan")
    pairs = _pairs(sampled(evidence.records[arm][site]), evidence.seed, permuted)
    if pairs is None or evidence.corpus is None:
        return nothing, nothing, nothing
    groups = evidence.corpus.groups
    ones = np.ones((1, len(pairs[1])))
    value = float((_auc(pairs, 0, ones) - _auc(pairs, 2, ones))[0])
    if evidence.corpus.documents < T.documents_least:
        return value, nothing, nothing
    drawn = np.random.default_rng(evidence.seed).multinomial(groups, np.full(groups, 1 / groups), size=DRAWS)
    weights = (drawn[:, pairs[2] % groups] * drawn[:, pairs[3] % groups]).astype(float)
    differences = _auc(pairs, 0, weights) - _auc(pairs, 2, weights)
    low, high = np.nanquantile(differences, tails(groups))
    return value, float(low), float(high)


def _scale_change(norm: "Norm", cloud: Sampled) -> float:
    largest = 0.0
    for factor in (0.5, 2.0):
        change = (norm.direction(cloud.x * factor) - cloud.z).norm(dim=-1) / norm.d**0.5
        largest = max(largest, float(change.max()) if len(change) else 0.0)
    return largest


def _costs(evidence: Evidence) -> list[dict[str, float]]:
    """Change of loss per scaled layer and factor."""
    trials: Trials | None = evidence.found.get("sphere.direction")
    if trials is None:
        return []
    rows = []
    for name, (layer, factor) in scalings(evidence.anatomy).items():
        value, low, high = trials.cost(name)
        rows.append({"layer": layer, "factor": factor, "delta_nll": value, "low": low, "high": high})
    return rows


def _verdict(low: float, high: float, auc: float, costs: list[dict[str, float]]) -> Verdict:
    if np.isnan([low, high, auc]).any():
        return "undecided"
    if high < T.direction_margin:
        return "refuted"
    if low < T.direction_margin:
        return "undecided"
    free = bool(costs) and all(_size(cost) <= T.scaling_cost for cost in costs)
    return "supported" if free and auc >= T.direction_auc else "qualified"


def _size(cost: dict[str, float]) -> float:
    """How large a change of loss may be, in either direction, by its interval."""
    ends = [abs(cost[key]) for key in ("delta_nll", "low", "high") if not np.isnan(cost[key])]
    return max(ends)


def _controls(evidence: Evidence, last: str) -> tuple[Control, ...]:
    made = [Control("permuted labels", *_difference(evidence, MODEL, last, permuted=True))]
    made += [Control(arm, *_difference(evidence, arm, last)) for arm in evidence.controls()]
    return tuple(made)


def _worst(costs: list[dict[str, float]]) -> dict[str, float]:
    return max(costs, key=lambda cost: cost["delta_nll"])


def _reading(verdict: Verdict, rows: list[dict[str, Any]], costs: list[dict[str, float]], evidence: Evidence) -> str:
    last = rows[-1]
    if np.isnan(last["auc_cosine"]):
        return "Too few pairs of tokens share a next token; give more text (--tokens)."
    told = (
        f"Cosine tells 'same next token' with AUC {last['auc_cosine']:.2f}, Euclidean distance with "
        f"{last['auc_euclidean']:.2f}, length alone with {last['auc_length']:.2f}"
    )
    if last["auc_euclidean"] > last["auc_cosine"] + 0.02:
        told += " (distance, which keeps length, tells more than the angle)"
    if verdict == "undecided":
        return f"{told}; the difference is not clearly on either side of {T.direction_margin}: more text would decide."
    if not costs:
        return f"{told}; this model gives no next-token loss, so what scaling the stream costs is not measured."
    worst = _worst(costs)
    cost = (
        f"scaling the stream after L{worst['layer']} by {worst['factor']:g} costs {worst['delta_nll']:.2g} nats a token"
    )
    why = ": later writes are added to it, so its length sets their weight" if verdict == "qualified" else ""
    return f"{told}; {cost}{why}."


def _headline(verdict: Verdict, last: dict[str, Any], costs: list[dict[str, float]]) -> str:
    if np.isnan(last["auc_cosine"]):
        return "Too few pairs share a next token: nothing can be concluded"
    aucs = f"AUC {last['auc_cosine']:.2f} from the angle, {last['auc_length']:.2f} from length"
    if verdict == "qualified" and costs:
        return f"Direction tells the next token ({aucs}), yet scaling the stream costs {_worst(costs)['delta_nll']:.2g} nats"
    return f"What tells the next token: {aucs}"


def _quantities(evidence: Evidence, rows: list[dict[str, Any]], costs: list[dict[str, float]]) -> tuple[Quantity, ...]:
    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=float)

    made = [
        Quantity(
            "AUC for 'same next token', from cosine",
            "pairs of tokens from different documents",
            "AUC",
            ("site",),
            {"site": evidence.sites},
            column("auc_cosine"),
            controls={"from |Δ length|": column("auc_length"), "from Euclidean distance": column("auc_euclidean")},
            theory={"chance: 0.5": np.full(len(rows), 0.5)},
        )
    ]
    for factor in sorted({cost["factor"] for cost in costs}):
        chosen = [cost for cost in costs if cost["factor"] == factor]
        values, low, high = (np.array([cost[key] for cost in chosen]) for key in ("delta_nll", "low", "high"))
        made.append(
            Quantity(
                f"loss when the stream is scaled by {factor:g}",
                "after the block named, next-token loss",
                "nats/token",
                ("layer",),
                {"layer": [f"L{int(cost['layer'])}" for cost in chosen]},
                values,
                low,
                high,
                theory={"no change: 0": np.zeros(len(chosen))},
            )
        )
    return tuple(made)
