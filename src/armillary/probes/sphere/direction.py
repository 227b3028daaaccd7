"""Does direction carry the meaning, and length not?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES, Sampled
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Floats, T, over_sites, spread_layers
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table, table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.probes.sphere.next_token_pairs import auc_difference, pairs_of
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy, Norm
    from armillary.probes.machinery.bench import Bench, Trials

FACTORS = (0.5, 2.0)
MORE = 0.02


@dataclass(frozen=True)
class Direction:
    """Scale invariance of the norms, the loss when the stream is scaled, and what predicts 'same next token'."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.direction",
        chapter="A",
        statement="Direction carries the meaning, length does not.",
        source="S2 S3",
        definition=(
            "(a) Pairs of tokens from different documents: how well do cosine, Euclidean distance and difference in "
            "length separate pairs with the same next token from other pairs? The statistic is AUC(cosine) − AUC(|Δ "
            "length|) at the last norm. (b) The change of the next-token loss when the stream after a block is "
            "multiplied by ½ or 2. Every norm ignores the scale of its input, but later blocks add their output to the "
            "stream, so its length can matter. (c) z(cx) compared with z(x): equal by definition, except for ε."
        ),
        control="permuted next tokens; random initialisation; shuffled text; for (b) the last block, whose scale the "
        "final norm removes",
        rule=(
            f"Supported if the interval of the difference lies above {T.direction_margin}, AUC(cosine) is at least "
            f"{T.direction_auc}, and no scaling changes the loss by more than {T.scaling_cost} nats per token, at "
            f"either end of its interval. Refuted if the interval of the difference lies below {T.direction_margin}. "
            "Qualified if it lies above, but AUC(cosine) is lower, or a scaling changes the loss by more, or the model "
            "has no next-token loss. Undecided if it spans the limit or is missing."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def passes(self, anatomy: "Anatomy") -> float:
        return 1 + len(_scalings(anatomy))

    def experiment(self, bench: "Bench") -> "Trials | None":
        """Every scaling on the evaluation text; None where the model has no next-token loss."""
        from armillary.edits import Scale

        if not bench.scored:
            return None
        return bench.compare({name: (Scale(*edit),) for name, edit in _scalings(bench.anatomy).items()})

    def conclude(self, evidence: Evidence, result: "Trials | None") -> Finding:
        by_site = list(over_sites(evidence.sites, lambda site: _measure(evidence, site)).values())
        aucs, pairs, changes = (np.array([row[i] for row in by_site]) for i in range(3))
        last = evidence.sites[-1]
        value, low, high = auc_difference(evidence, MODEL, last)
        costs = None if result is None else np.array([result.cost(name) for name in _scalings(evidence.anatomy)])
        verdict = _verdict(low, high, aucs[-1, 0], costs)
        why = missing_interval(low, high) if pairs[-1] else Why.TOO_LITTLE_TEXT
        permuted = Control("permuted labels", *auc_difference(evidence, MODEL, last, permuted=True))
        arms = [Control(arm, *auc_difference(evidence, arm, last)) for arm in evidence.controls(SAMPLES)]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(f"AUC(cosine) − AUC(|Δ length|) at {last}", value, low, high),
            n=int(pairs[-1]),
            controls=(permuted, *arms),
            reading=_reading(verdict, aucs[-1], costs, evidence.anatomy),
            headline=_headline(verdict, aucs[-1], costs),
            table=_table(evidence, aucs, pairs, changes),
            quantities=_quantities(evidence, aucs, costs),
            more_tables={} if costs is None else {"scaling": _scaling_table(evidence.anatomy, costs)},
            why=why if verdict == "undecided" else None,
        )


def _scalings(anatomy: "Anatomy") -> dict[str, tuple[int, float]]:
    """Trial → (layer, factor)."""
    return {f"L{layer} × {factor:g}": (layer, factor) for layer in spread_layers(anatomy) for factor in FACTORS}


def _measure(evidence: Evidence, site: str) -> tuple[list[float], int, float]:
    """AUC of cosine, distance and length; pairs with the same next token; largest change of z under a scaling."""
    sample = evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site)
    change = _scale_change(evidence.anatomy.norms[site], sample)
    pairs = pairs_of(sample, evidence.seed)
    if pairs is None:
        return [float("nan")] * 3, 0, change
    aucs = [float(pairs.auc(scores)[0]) for scores in (pairs.cosine, pairs.euclidean, pairs.length)]
    return aucs, int(pairs.same.sum()), change


def _scale_change(norm: "Norm", sample: Sampled) -> float:
    changes = [(norm.direction(sample.x * factor) - sample.z).norm(dim=-1) / norm.d**0.5 for factor in FACTORS]
    return max(float(change.max()) for change in changes) if len(sample) else 0.0


def _verdict(low: float, high: float, auc: float, costs: Floats | None) -> Verdict:
    if np.isnan([low, high, auc]).any():
        return "undecided"
    if high < T.direction_margin:
        return "refuted"
    if low < T.direction_margin:
        return "undecided"
    free = costs is not None and np.nanmax(np.abs(costs)) <= T.scaling_cost
    return "supported" if free and auc >= T.direction_auc else "qualified"


def _table(evidence: Evidence, aucs: Floats, pairs: Floats, changes: Floats) -> Table:
    return site_table(
        evidence.sites,
        cells("auc_cosine", "AUC of cos(z_i, z_j) for 'same next token', pairs of different documents", aucs[:, 0]),
        cells("auc_euclidean", "AUC of −‖x_i − x_j‖ for the same pairs", aucs[:, 1]),
        cells("auc_length", "AUC of −|‖x_i‖ − ‖x_j‖| for the same pairs", aucs[:, 2]),
        cells("same_pairs", "sampled pairs with the same next token", pairs, "pairs"),
        cells("scale_change", "largest ‖z(cx) − z(x)‖/√d for c = ½ and 2: the effect of ε", changes, "√d"),
    )


def _scaling_table(anatomy: "Anatomy", costs: Floats) -> Table:
    layers, factors = zip(*_scalings(anatomy).values(), strict=True)
    return table(
        cells("layer", "the stream is scaled after this block", layers),
        cells("factor", "by this factor", factors),
        interval_cells("delta_nll", "change of the next-token loss", costs, "nats/token", ends=""),
    )


def _reading(verdict: Verdict, aucs: Floats, costs: Floats | None, anatomy: "Anatomy") -> str:
    if np.isnan(aucs[0]):
        return "Too few pairs of tokens share a next token. Give more text (--tokens)."
    cosine, euclidean, length = (say(auc, ".2f") for auc in aucs)
    separates = f"The angle separates pairs with the same next token from other pairs with AUC {cosine}, "
    separates += f"Euclidean distance with {euclidean}, length alone with {length}."
    if aucs[1] > aucs[0] + MORE:
        separates += " So distance, which includes length, separates better than the angle."
    if verdict == "undecided":
        return f"{separates} The difference is not clearly above or below {T.direction_margin}. Give more text."
    if costs is None:
        return f"{separates} This model has no next-token loss, so the cost of scaling the stream is not measured."
    worst = int(costs[:, 0].argmax())
    layer, factor = list(_scalings(anatomy).values())[worst]
    cost = f"Multiplying the stream by {factor:g} after L{layer} costs {say(costs[worst, 0], '.2g')} nats per token"
    costly = costs[worst, 0] > T.scaling_cost
    reason = ": later blocks add to the stream, so its length sets their weight" if costly else ""
    return f"{separates} {cost}{reason}."


def _headline(verdict: Verdict, aucs: Floats, costs: Floats | None) -> str:
    if np.isnan(aucs[0]):
        return "Nothing can be concluded: too few pairs share a next token"
    predicts = f"AUC {say(aucs[0], '.2f')} from the angle, {say(aucs[2], '.2f')} from length"
    if verdict == "qualified" and costs is not None and costs[:, 0].max() > T.scaling_cost:
        cost = say(costs[:, 0].max(), ".2g")
        return f"Direction predicts the next token ({predicts}), but scaling the stream costs {cost} nats"
    return f"What predicts 'same next token': {predicts}"


def _quantities(evidence: Evidence, aucs: Floats, costs: Floats | None) -> tuple[Quantity, ...]:
    name, meaning = "AUC for 'same next token', from cosine", "pairs of tokens from different documents"
    controls = {"from |Δ length|": aucs[:, 2], "from Euclidean distance": aucs[:, 1]}
    chance = {"chance: 0.5": np.full(len(aucs), 0.5)}
    separation = line(name, meaning, "AUC", "site", evidence.sites, aucs[:, 0], controls, chance)
    if costs is None:
        return (separation,)
    layers = [f"L{layer}" for layer in spread_layers(evidence.anatomy)]
    meaning, zero = "change of the next-token loss, scaled after this block", {"no change: 0": np.zeros(len(layers))}
    names = [f"loss when the stream is scaled by {factor:g}" for factor in FACTORS]
    by_factor = [costs[i :: len(FACTORS)] for i in range(len(FACTORS))]
    scaled = zip(names, by_factor, strict=True)
    return (separation, *(line(n, meaning, "nats/token", "layer", layers, c, theory=zero) for n, c in scaled))
