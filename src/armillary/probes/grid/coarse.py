"""Is depth a flow of scale: do states agree over longer and longer stretches of text?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.correlation_length import Reach
    from armillary.probes.machinery.bench import Bench

LAYERS, LENGTH, LENGTH_LEAST = 8, 128, 16
COLUMNS = (
    Column("state", "state of the stream"),
    Column("length", "integrated correlation length beyond what all of a document shares", "tokens"),
    Column("low", "its 95 % interval over documents, low end", "tokens"),
    Column("high", "its 95 % interval over documents, high end", "tokens"),
    Column("neighbour", "C(1): correlation with the next token's state"),
    Column("shared", "mean C over the farthest quarter of distances: what all of a document shares"),
    Column("random_shared", "the same at random initialisation"),
    Column("random_length", "the length at random initialisation", "tokens"),
    Column("shuffled_length", "the length on shuffled text", "tokens"),
    Column("participation", "(Σλ)²/Σλ² of the states' covariance", "directions"),
    Column("entropy_rank", "exp of the entropy of its eigenvalues' shares", "directions"),
)


@dataclass(frozen=True, eq=False)
class Flow:
    """arm → what was found there, for the states named."""

    sites: tuple[str, ...]
    arms: Mapping[str, "Reach"]
    texts: int
    tokens: int


@dataclass(frozen=True)
class Coarse:
    """Correlation of states by token distance, state by state down the stream."""

    claim: ClassVar[Claim] = Claim(
        id="flow.coarse",
        chapter="F",
        statement="Depth is a renormalisation flow: states are correlated over longer distances, layer by layer.",
        source="S3",
        definition=(
            "C(Δ): correlation of directions of the stream Δ tokens apart in a document, less the mean of all documents at the same "
            "position, first tokens left out, for Δ up to half a window and 32 at most. Its mean P over the farthest quarter of "
            "distances is what all of a document shares, its subject say, and no length; the integrated length is ½ + Σ (C(Δ) − P)/(1 − P) "
            "over the nearer ones. The statistic is the length after the last block over that before the first. That depth is "
            "isomorphic to a renormalisation group is no statement that a measurement decides: the verdict is about the growth of "
            "the length."
        ),
        control="random initialisation; shuffled text, whose words have no order to begin with: what grows there is the model's own averaging",
        rule=(
            f"Supported: the ratio's interval lies above {T.flow_growth} and above the ratio at random initialisation, and the "
            f"length's rank correlation with depth is {T.flow_order} or more. Refuted: the interval lies below {T.flow_growth}. "
            "Qualified: the length grows so much, but not in order or no more than at random initialisation. Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 5.0

    def experiment(self, bench: "Bench") -> Flow | None:
        from armillary.probes.grid.correlation_length import reach, states
        from armillary.probes.instruments.patterns import texts

        sites = sites_of(bench.anatomy)
        first = max(1, bench.corpus.windows[0].prefix)
        arms, count, tokens = {}, 0, 0
        for arm in (MODEL, RANDOM, SHUFFLED):
            side = bench.arm(arm)
            ids, documents = texts(side.corpus.windows, T.documents_least, LENGTH)
            if len(ids) < 2 or ids.shape[1] < LENGTH_LEAST:
                return None
            found = states(side.anatomy, ids, sites, first, bench.tick)
            arms[arm] = reach(found, documents, bench.corpus.groups)
            count, tokens = ids.shape
        return Flow(sites, arms, count, tokens)

    def conclude(self, evidence: Evidence) -> Finding:
        flow: Flow | None = evidence.found.get(self.claim.id)
        if flow is None:
            reading = f"There are no two documents of {LENGTH_LEAST} tokens; give more text, or longer documents."
            return unanswered(self.claim, reading, COLUMNS)
        growth = {arm: _growth(evidence, found) for arm, found in flow.arms.items()}
        rows = _rows(evidence, flow)
        order = _order(np.array([row["length"] for row in rows]))
        verdict = _verdict(growth, order)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("correlation length after the last block, over that before the first", *growth[MODEL]),
            n=flow.texts * flow.tokens,
            controls=tuple(Control(arm, *growth[arm]) for arm in (RANDOM, SHUFFLED)),
            reading=_reading(verdict, rows, growth, order),
            headline=f"States agree over {rows[0]['length']:.2g} tokens before the first block and {rows[-1]['length']:.2g} after the "
            "last",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(flow, rows),
            notes=(f"{flow.texts} documents of {flow.tokens} tokens",),
        )


def sites_of(anatomy: "Anatomy") -> tuple[str, ...]:
    """The stream before the first block, and after blocks spread over the depth."""
    layers = tuple(range(anatomy.layers)) if anatomy.layers <= LAYERS else layers_of(anatomy, LAYERS)
    return ("L0.resid_pre", *(f"L{layer}.resid_post" for layer in layers))


def _growth(evidence: Evidence, found: "Reach") -> tuple[float, float, float]:
    from armillary.probes.grid.correlation_length import length

    def ratio(drawn: Floats) -> Floats:
        lengths = length(drawn)
        # A sum of correlations may be negative by chance; a length below a quarter of a token is none at all.
        return np.asarray(np.maximum(lengths[:, -1], 0.25) / np.maximum(lengths[:, 0], 0.25))

    return evidence.interval(found.products, ratio)


def _rows(evidence: Evidence, flow: Flow) -> list[dict[str, Any]]:
    from armillary.probes.grid.correlation_length import correlation, length, shared

    mine = flow.arms[MODEL]
    curves = correlation(mine.products.sum(0))
    others = {arm: length(flow.arms[arm].products.sum(0)) for arm in (RANDOM, SHUFFLED)}
    common = {arm: shared(flow.arms[arm].products.sum(0)) for arm in (MODEL, RANDOM)}
    rows = []
    for at, site in enumerate(flow.sites):
        value, low, high = evidence.interval(mine.products[:, at : at + 1], lambda drawn: length(drawn)[:, 0])
        rows.append(
            {
                "state": site,
                "length": value,
                "low": None if np.isnan(low) else low,
                "high": None if np.isnan(high) else high,
                "neighbour": float(curves[at, 1]),
                "shared": float(common[MODEL][at]),
                "random_shared": float(common[RANDOM][at]),
                "random_length": float(others[RANDOM][at]),
                "shuffled_length": float(others[SHUFFLED][at]),
                "participation": float(mine.participation[at]),
                "entropy_rank": float(mine.entropy[at]),
            }
        )
    return rows


def _order(lengths: Floats) -> float:
    """Rank correlation of length and depth; 0 where all are alike."""
    from scipy.stats import rankdata

    if np.ptp(lengths) <= 1e-9:
        return 0.0
    return float(np.corrcoef(rankdata(lengths), np.arange(len(lengths)))[0, 1])


def _verdict(growth: Mapping[str, tuple[float, float, float]], order: float) -> Verdict:
    _, low, high = growth[MODEL]
    if np.isnan([low, high]).any():
        return "undecided"
    if high < T.flow_growth:
        return "refuted"
    if low <= T.flow_growth:
        return "undecided"
    return "supported" if order >= T.flow_order and low > growth[RANDOM][0] else "qualified"


def _reading(
    verdict: Verdict, rows: list[dict[str, Any]], growth: Mapping[str, tuple[float, float, float]], order: float
) -> str:
    longest = max(rows, key=lambda row: row["length"])
    told = (
        f"The correlation length goes from {rows[0]['length']:.2g} to {rows[-1]['length']:.2g} tokens, {growth[MODEL][0]:.2g} times (at random "
        f"initialisation {growth[RANDOM][0]:.2g}, on shuffled text {growth[SHUFFLED][0]:.2g}); it is longest at {longest['state']} with "
        f"{longest['length']:.2g}, and its rank correlation with depth is {order:.2f}".replace("-", "−")
    )
    grows = growth[MODEL][1] > T.flow_growth
    if grows and growth[RANDOM][0] >= growth[MODEL][1]:
        told += (
            ". Random heads average over what they see and lengthen it as much, so growth alone is no sign of learning"
        )
    elif grows and growth[SHUFFLED][2] >= growth[MODEL][0]:
        told += ". Words without order are drawn together as much: it is the model that averages, whatever the text's own scales"
    told += (
        f". What all of a document shares goes from {rows[0]['shared']:.2g} to {rows[-1]['shared']:.2g} of the variance (at random "
        f"initialisation to {rows[-1]['random_shared']:.2g})".replace("-", "−")
    )
    told += (
        ". That this is 'isomorphic to a renormalisation group' no measurement can decide; that lengths grow, it can"
    )
    return told + ("; more text would decide it." if verdict == "undecided" else ".")


def _quantities(flow: Flow, rows: list[dict[str, Any]]) -> tuple[Quantity, ...]:
    from armillary.probes.grid.correlation_length import correlation

    def column(name: str) -> Floats:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)

    # Names of sites are too long for the rows of a map.
    coords = {"state": ["input", *(site.split(".")[0] for site in flow.sites[1:])]}
    curves = correlation(flow.arms[MODEL].products.sum(0))[:, 1:]
    return (
        Quantity(
            "correlation length",
            "of directions of the stream, beyond what their position and their document as a whole account for",
            "tokens",
            ("state",),
            coords,
            column("length"),
            column("low"),
            column("high"),
            controls={RANDOM: column("random_length"), SHUFFLED: column("shuffled_length")},
        ),
        Quantity(
            "correlation by distance",
            "C(Δ) of two states of a document, Δ tokens apart",
            "correlation",
            ("state", "distance"),
            {**coords, "distance": [str(apart) for apart in range(1, curves.shape[1] + 1)]},
            curves,
        ),
        Quantity(
            "directions over which states spread",
            "participation ratio of the covariance, position means taken off",
            "directions",
            ("state",),
            coords,
            column("participation"),
            controls={RANDOM: flow.arms[RANDOM].participation, SHUFFLED: flow.arms[SHUFFLED].participation},
        ),
    )
