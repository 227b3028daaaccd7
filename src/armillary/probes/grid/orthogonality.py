"""Are heads pockets in which vectors are not orthogonal?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.token_pairs import Pairs
    from armillary.probes.machinery.bench import Bench

LAYERS, DRAWS = 8, 1000
SIDES = ("q", "k", "v")
COLUMNS = (
    Column("head", "attention head"),
    Column("cos_q", "mean |cos| of queries of two tokens: different words of different documents"),
    Column("cos_k", "the same of keys"),
    Column("cos_v", "the same of values"),
    Column("cos_match", "mean |cos| of one token's query and the other's key"),
    Column("ratio", "mean of the first three over what random directions of k axes have"),
    Column("low", "its 95 % interval over documents, low end"),
    Column("high", "its 95 % interval over documents, high end"),
    Column("centred", "the same ratio when the mean vector is taken off"),
    Column("pocket", f"the ratio exceeds {T.pocket_ratio}, with Benjamini–Hochberg over heads"),
)
FULL = (
    Column("layer", "layer"),
    Column("cos", "mean |cos| of what the heads read, all d axes"),
    Column("ratio", "over what random directions of d axes have"),
    Column("centred", "the same when the mean vector is taken off"),
    Column("slices", "ratio of k axes in a row, no projection, over what random directions of k axes have"),
    Column("random", "ratio of random projections to k axes of the same vectors"),
)


@dataclass(frozen=True, eq=False)
class Angles:
    """arm → layer → space → pairs, as they are and with the mean vector taken off; how many tokens."""

    raw: Mapping[str, Mapping[int, Mapping[str, "Pairs"]]]
    centred: Mapping[int, Mapping[str, "Pairs"]]
    tokens: int
    documents: int


@dataclass(frozen=True)
class Orthogonality:
    """|cos| of token pairs in the full space and in each head's, against random directions of as many axes."""

    claim: ClassVar[Claim] = Claim(
        id="heads.orthogonality",
        chapter="F",
        statement="Heads are pockets where vectors are not orthogonal.",
        source="S3",
        definition=(
            "Mean |cos| between vectors of different words from different documents, first tokens left out: of what the heads read "
            "(d axes), and of q, k and v of every head (k axes; after projection, before any rotation or q/k-norm). Random "
            "directions of n axes have Γ(n/2)/(√π Γ((n+1)/2)) ≈ √(2/πn), so that fewer axes alone make |cos| larger, by √(d/k); a "
            "head's ratio is to the law of k axes, the mean of q, k and v, and says what is beyond that. The statistic is the ratio of "
            "the median head. Beside it the ratio with the mean vector taken off: a direction that all tokens share is not a "
            "relation between them."
        ),
        control="the full space, over the law of d axes; random projections to k axes of the same vectors; random initialisation; "
        "shuffled text",
        rule=(
            f"A head is a pocket when its ratio exceeds {T.pocket_ratio} (Benjamini–Hochberg over heads). Supported: ≥ "
            f"{T.sites_most:.0%} of heads are pockets, and are above it with the mean taken off too, while the full space is near to "
            f"orthogonal (ratio below {T.orthogonal_ratio} in the median layer, with the whole interval). Refuted: ≤ "
            f"{T.sites_few:.0%} of heads are pockets: what non-orthogonality there is comes from fewer axes alone. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3.0

    def experiment(self, bench: "Bench") -> Angles | None:
        from armillary.probes.grid.token_pairs import sample, spaces

        layers, groups = chosen(bench.anatomy), bench.corpus.groups
        arms = {arm: sample(bench.arm(arm), layers) for arm in (MODEL, RANDOM, SHUFFLED)}
        mine = arms[MODEL]
        if len(set(mine.documents.tolist())) < 2 or len(set(mine.words.tolist())) < 2:
            return None
        raw = {
            arm: {layer: spaces(found, layer, groups, False) for layer in layers}
            for arm, found in arms.items()
            if len(set(found.words.tolist())) > 1
        }
        centred = {layer: spaces(mine, layer, groups, True) for layer in layers}
        return Angles(raw, centred, len(mine.words), len(set(mine.documents.tolist())))

    def conclude(self, evidence: Evidence) -> Finding:
        angles: Angles | None = evidence.found.get(self.claim.id)
        if angles is None:
            return unanswered(
                self.claim, "There are no two words from two documents to compare; give more text.", COLUMNS
            )
        view = _View(evidence, angles)
        heads, full = view.heads(MODEL), view.full(MODEL)
        centred = view.ratios(angles.centred, view.once)[0]
        pocket = _pockets(heads)
        statistic = _interval(np.median(heads, axis=1), angles.documents)
        whole = _interval(np.median(full, axis=1), angles.documents)
        verdict = _verdict(pocket, centred, statistic, whole)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("|cos| in the median head, over random directions of k axes", *statistic),
            n=angles.tokens,
            controls=view.controls(whole),
            reading=_reading(view, pocket, centred, statistic[0], whole[0]),
            headline=f"|cos| in the median head is {statistic[0]:.2g} times that of random directions, in the full space "
            f"{whole[0]:.2g} times",
            table=view.table(heads, centred, pocket),
            quantities=view.quantities(heads, full),
            more_tables={"full space": view.full_table()},
        )


def chosen(anatomy: "Anatomy") -> tuple[int, ...]:
    return tuple(range(anatomy.layers)) if anatomy.layers <= LAYERS else layers_of(anatomy, LAYERS)


class _View:
    """Ratios of every draw of documents; the first row is the text itself."""

    def __init__(self, evidence: Evidence, angles: Angles) -> None:
        from armillary.probes.grid.token_pairs import law

        self.anatomy, self.angles, self.layers = evidence.anatomy, angles, list(angles.centred)
        self.law_k, self.law_d = law(self.anatomy.k), law(self.anatomy.d)
        count = next(iter(angles.centred.values()))["full"].count
        # Groups without a sampled token are no documents.
        there = (count.sum(0) > 0).astype(float)
        groups = int(there.sum())
        drawn = np.random.default_rng(evidence.seed).multinomial(groups, np.full(groups, 1 / groups), size=DRAWS)
        self.once = there[None]
        self.weights = np.zeros((1 + DRAWS, len(there)))
        self.weights[0] = there
        self.weights[1:, there > 0] = drawn

    def ratios(self, found: Mapping[int, Mapping[str, "Pairs"]], weights: Floats) -> Floats:
        """[draw, layer · head]."""
        layers = [np.mean([found[layer][side].means(weights) for side in SIDES], axis=0) for layer in self.layers]
        return np.concatenate(layers, axis=1) / self.law_k

    def heads(self, arm: str) -> Floats:
        return self.ratios(self.angles.raw[arm], self.weights)

    def full(self, arm: str) -> Floats:
        """[draw, layer]."""
        found = self.angles.raw[arm]
        return np.stack([found[layer]["full"].means(self.weights)[:, 0] for layer in self.layers], 1) / self.law_d

    def of(self, space: str) -> Floats:
        """[draw, layer]: ratio of a space of k axes, mean over its copies."""
        found = self.angles.raw[MODEL]
        return np.stack([found[layer][space].means(self.weights).mean(1) for layer in self.layers], 1) / self.law_k

    def controls(self, whole: tuple[float, float, float]) -> tuple[Control, ...]:
        random = _interval(np.median(self.of("random"), axis=1), self.angles.documents)
        made = [
            Control("full space, over random directions of d axes", *whole),
            Control("random heads on the same vectors", *random),
        ]
        for arm in (RANDOM, SHUFFLED):
            if arm in self.angles.raw:
                made.append(Control(arm, *_interval(np.median(self.heads(arm), axis=1), self.angles.documents)))
        return tuple(made)

    def names(self) -> list[str]:
        return [f"L{layer}H{head}" for layer in self.layers for head in range(self.anatomy.n_heads)]

    def table(self, heads: Floats, centred: Floats, pocket: Flags) -> Table:
        cos = {
            side: np.concatenate([self.angles.raw[MODEL][layer][side].means(self.once)[0] for layer in self.layers])
            for side in (*SIDES, "match")
        }
        ends = [_interval(column, self.angles.documents) for column in heads.T]
        rows: list[dict[str, Any]] = [
            {
                "head": name,
                **{f"cos_{side}": float(values[i]) for side, values in cos.items()},
                "ratio": ends[i][0],
                "low": None if np.isnan(ends[i][1]) else ends[i][1],
                "high": None if np.isnan(ends[i][2]) else ends[i][2],
                "centred": float(centred[i]),
                "pocket": bool(pocket[i]),
            }
            for i, name in enumerate(self.names())
        ]
        return Table.of(COLUMNS, rows)

    def full_table(self) -> Table:
        full, slices, random = self.full(MODEL)[0], self.of("slices")[0], self.of("random")[0]
        rows: list[dict[str, Any]] = [
            {
                "layer": f"L{layer}",
                "cos": float(full[i] * self.law_d),
                "ratio": float(full[i]),
                "centred": float(self.angles.centred[layer]["full"].means(self.once)[0, 0] / self.law_d),
                "slices": float(slices[i]),
                "random": float(random[i]),
            }
            for i, layer in enumerate(self.layers)
        ]
        return Table.of(FULL, rows)

    def quantities(self, heads: Floats, full: Floats) -> tuple[Quantity, ...]:
        layers = [f"L{layer}" for layer in self.layers]
        grid = heads[0].reshape(len(layers), -1)
        middle = np.median(heads.reshape(len(heads), len(layers), -1), axis=2)
        ends = np.array([_interval(column, self.angles.documents) for column in middle.T])
        return (
            Quantity(
                "|cos| over random directions of as many axes",
                "the median head of each layer, mean of q, k and v",
                "ratio to the law",
                ("layer",),
                {"layer": layers},
                ends[:, 0],
                ends[:, 1],
                ends[:, 2],
                controls={"full space": full[0], "random heads on the same vectors": self.of("random")[0]},
                theory={"random directions: 1": np.ones(len(layers))},
                logs=("value",),
            ),
            Quantity(
                "|cos| over random directions of k axes",
                "mean of q, k and v of every head",
                "ratio to the law",
                ("layer", "head"),
                {"layer": layers, "head": [f"H{head}" for head in range(grid.shape[1])]},
                grid,
            ),
        )


def _interval(draws: Floats, documents: int) -> tuple[float, float, float]:
    """Value (the first) and interval of draws over documents."""
    from armillary.geometry.resample import tails

    if documents < T.documents_least:
        return float(draws[0]), float("nan"), float("nan")
    low, high = np.quantile(draws[1:], tails(documents))
    return float(draws[0]), float(min(low, draws[0])), float(max(high, draws[0]))


def _pockets(heads: Floats) -> Flags:
    """Which heads' ratios exceed the threshold, by a normal law of their logarithm over documents."""
    from scipy.special import ndtr

    from armillary.geometry.resample import benjamini_hochberg

    logs = np.log(np.maximum(heads, 1e-300))
    away = (logs[0] - np.log(T.pocket_ratio)) / np.maximum(logs[1:].std(0, ddof=1), 1e-12)
    return np.asarray(benjamini_hochberg(ndtr(-away), T.false_discovery))


def _verdict(
    pocket: Flags, centred: Floats, statistic: tuple[float, float, float], whole: tuple[float, float, float]
) -> Verdict:
    if np.isnan([*statistic, *whole]).any():
        return "undecided"
    if pocket.mean() <= T.sites_few:
        return "refuted"
    also = (pocket & (centred > T.pocket_ratio)).mean() >= T.sites_most
    return "supported" if also and whole[2] < T.orthogonal_ratio else "qualified"


def _reading(view: _View, pocket: Flags, centred: Floats, ratio: float, whole: float) -> str:
    a = view.anatomy
    grid = pocket.reshape(len(view.layers), -1)
    flags = np.zeros((a.layers, a.n_heads), dtype=bool)
    flags[view.layers] = grid
    which = f" ({name_heads(flags)})" if 0 < pocket.mean() < T.sites_most else ""
    random = float(np.median(view.of("random")[0]))
    told = (
        f"Two words' vectors have {ratio:.2g} times the |cos| of random directions in the median head and {whole:.2g} times in the "
        f"full space (fewer axes alone raise |cos| from {view.law_d:.2g} to {view.law_k:.2g}); {pocket.sum()} of {pocket.size} heads"
        f"{which} are pockets, {int((pocket & (centred > T.pocket_ratio)).sum())} of them also with the mean vector taken off; random "
        f"heads on the same vectors have {random:.2g} times"
    )
    if whole > T.orthogonal_ratio:
        told += ". The full space is not near to orthogonal itself, so a head need not make what it inherits"
    return told + "."
