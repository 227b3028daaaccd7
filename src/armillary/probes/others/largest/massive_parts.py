"""What is said of massive activations, part by part: their size, their place, the attention they draw, their use."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from armillary.probes.grid.head_kinds import KindScores
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    between,
    mean,
    missing_interval,
)
from armillary.probes.machinery.bench import Trials
from armillary.probes.machinery.tables import cells, line, table
from armillary.probes.machinery.verdicts import learned_between
from armillary.probes.others.largest.massive_places import MEAN, OTHERS, ZERO, Extremes
from armillary.probes.sphere.across_sites import document_weights, drawn_interval
from armillary.results import Part, Quantity, Statistic, Table, Verdict, Why, say

DRAWS = 400


@dataclass(frozen=True, eq=False)
class MassiveResult:
    """What the experiment found, by arm."""

    extremes: Mapping[str, Extremes]
    heads: KindScores | None
    """None where texts are too short to measure attention."""
    edits: tuple[str, Trials] | None
    """The state where outliers first appear, and what changing them costs."""
    scored: bool

    def peak(self, arm: str) -> int:
        """The state where the median document's largest coordinate is largest beside the median."""
        return int(np.argmax(np.median(self.extremes[arm].ratios, axis=0)))

    def common(self, arm: str) -> tuple[int, Flags]:
        """The most common dimension of the largest coordinate at the peak, and the documents where it is that."""
        dimensions = self.extremes[arm].dimension[:, self.peak(arm)]
        first = Counter(dimensions.tolist()).most_common(1)[0][0]
        return first, np.asarray(dimensions == first)

    def over_documents(self, evidence: Evidence, arm: str, statistic: Callable[[Floats], float]) -> Interval:
        """A statistic of documents' rows, given by their numbers, with its interval."""
        extremes = self.extremes[arm]
        weights = document_weights(evidence, DRAWS)[:, extremes.document % document_weights(evidence, 1).shape[1]]
        rows = np.arange(len(extremes.document))
        values = [statistic(np.repeat(rows, counts.astype(int))) if counts.any() else np.nan for counts in weights]
        return drawn_interval(evidence, np.array(values))

    def ratio(self, evidence: Evidence, arm: str) -> Interval:
        """Of the median document, at the state where it is largest."""
        ratios = self.extremes[arm].ratios
        return self.over_documents(evidence, arm, lambda rows: float(np.median(ratios[rows], axis=0).max()))

    def sinks(self, arm: str) -> Flags:
        """[layer, head]: is its attention parked on the first token?"""
        assert self.heads is not None
        return np.asarray(np.nan_to_num(self.heads.score(arm, "first")) > T.sink_attention)

    def sink_share(self, evidence: Evidence, arm: str) -> Interval:
        assert self.heads is not None

        def share(sums: Floats) -> Floats:
            return np.asarray((np.nan_to_num(mean(sums)) > T.sink_attention).mean((-1, -2)), dtype=float)

        return evidence.interval(self.heads.sums(arm, "first"), share)


def massive_parts(evidence: Evidence, result: MassiveResult) -> tuple[Part, ...]:
    return (
        _values(evidence, result),
        _fixed(evidence, result),
        _few(evidence, result),
        _parked(evidence, result),
        _needed(result),
    )


def _between(value: Interval, low: float, high: float, untrained: Interval, twins: int) -> tuple[Verdict, Why | None]:
    verdict = learned_between(value, low, high, untrained, twins)
    if verdict != "undecided":
        return verdict, None
    return verdict, missing_interval(*value, *untrained) if twins else Why.NO_CONTROL


def _values(evidence: Evidence, result: MassiveResult) -> Part:
    value = result.ratio(evidence, MODEL)
    untrained = evidence.over_twins(lambda arm: result.ratio(evidence, arm))
    verdict, why = _between(value, T.massive_outlier, T.massive_ratio, untrained, len(evidence.twins))
    extremes, peak = result.extremes[MODEL], result.peak(MODEL)
    largest = float(np.median(np.abs(extremes.value[:, peak])))
    return Part(
        "massive values",
        verdict,
        f"In the median document the largest coordinate is {say(value[0], '.2g')} times the median magnitude, at "
        f"{extremes.states[peak]} ({say(largest, '.2g')} against {say(float(extremes.typical[peak]), '.2g')}); in an "
        f"untrained model {say(untrained[0], '.2g')} times.",
        Statistic("largest coordinate over the median magnitude", *value),
        why=why,
    )


def _fixed(evidence: Evidence, result: MassiveResult) -> Part:
    name, extremes, peak = "fixed and constant", result.extremes[MODEL], result.peak(MODEL)
    if above(result.ratio(evidence, MODEL), T.massive_outlier) is False:
        return Part(name, "undecided", "There are no outliers whose place could be fixed.", why=Why.UNDEFINED)
    dimension, here = result.common(MODEL)
    values, positions = extremes.value[:, peak], extremes.position[:, peak]
    agree = result.over_documents(evidence, MODEL, lambda rows: float(here[rows].mean()))

    def spread(rows: Floats) -> float:
        own = values[rows][here[rows]]
        return float(own.std() / max(abs(own.mean()), 1e-300)) if len(own) > 1 else np.nan

    varies = result.over_documents(evidence, MODEL, spread)
    low_enough = above(varies, T.massive_constant)
    verdict: Verdict = "undecided"
    if above(agree, 0.5) is False or above(varies, T.massive_varies):
        verdict = "refuted"
    elif agree[1] >= T.sites_most and low_enough is False:
        verdict = "supported"
    elif above(agree, 0.5) and above(varies, T.massive_varies) is False and low_enough is not None:
        verdict = "qualified"
    first = float((positions == 0).mean())
    return Part(
        name,
        verdict,
        f"In {say(agree[0], '.0%')} of documents it is in dimension {dimension}, in {say(first, '.0%')} at the first "
        f"token; between documents its value varies by {say(varies[0], '.0%')}.",
        Statistic("spread of the value over documents", *varies),
        why=missing_interval(*agree, *varies) if verdict == "undecided" else None,
    )


def _few(evidence: Evidence, result: MassiveResult) -> Part:
    """A coordinate that is large at every token is a rogue dimension, not a massive activation."""
    name = "at a few tokens"
    if above(result.ratio(evidence, MODEL), T.massive_outlier) is False:
        return Part(name, "undecided", "There are no outliers whose tokens could be counted.", why=Why.UNDEFINED)
    shares = result.extremes[MODEL].elsewhere[:, result.peak(MODEL)]
    share = result.over_documents(evidence, MODEL, lambda rows: float(shares[rows].mean()))
    verdict = between(share, refuted=0.5, supported=T.sites_few)
    return Part(
        name,
        verdict,
        f"{say(share[0], '.0%')} of a document's other tokens reach half of that value there.",
        Statistic("share of other tokens that reach half of the value", *share),
        why=missing_interval(*share) if verdict == "undecided" else None,
    )


def _parked(evidence: Evidence, result: MassiveResult) -> Part:
    name = "heads park attention on the first token"
    if result.heads is None:
        return Part(name, "undecided", "The texts are too short to measure attention.", why=Why.TOO_LITTLE_TEXT)
    share = result.sink_share(evidence, MODEL)
    untrained = evidence.over_twins(lambda arm: result.sink_share(evidence, arm))
    shuffled = result.sink_share(evidence, SHUFFLED)
    verdict, why = _between(share, T.sites_few, T.heads_many, untrained, len(evidence.twins))
    return Part(
        name,
        verdict,
        f"{say(share[0], '.0%')} of heads give the first token more than {T.sink_attention:g} of their attention, in "
        f"an untrained model {say(untrained[0], '.0%')}, on shuffled text {say(shuffled[0], '.0%')}.",
        Statistic("share of heads that park their attention", *share),
        why=why,
    )


def _needed(result: MassiveResult) -> Part:
    name = "needed as a bias"
    if not result.scored:
        return Part(
            name, "undecided", "This model predicts no next token, so an edit has no cost.", why=Why.NOT_APPLICABLE
        )
    if result.edits is None:
        return Part(name, "undecided", "There are no outliers to remove.", why=Why.UNDEFINED)
    state, trials = result.edits
    zero, average, more = trials.cost(ZERO), trials.cost(MEAN), trials.beside(ZERO, OTHERS)
    hurts, costs = above(more, T.massive_cost), above(average, T.massive_cost)
    verdict: Verdict = "undecided"
    if hurts is False:
        verdict = "refuted"
    elif hurts and costs is not None:
        verdict = "qualified" if costs else "supported"
    return Part(
        name,
        verdict,
        f"Set to zero at {state}, the outliers cost {say(zero[0], '.2f')} nats per token, {say(more[0], '.2f')} more "
        f"than other coordinates of the same tokens; set to their mean, {say(average[0], '.2f')}.",
        Statistic("cost of zero beside other coordinates, nats per token", *more),
        why=missing_interval(*more, *average) if verdict == "undecided" else None,
    )


def massive_table(result: MassiveResult) -> Table:
    extremes = result.extremes[MODEL]
    places = [
        Counter(zip(d.tolist(), t.tolist(), strict=True)).most_common(1)[0]
        for d, t in zip(extremes.dimension.T, extremes.position.T, strict=True)
    ]
    size = np.abs(extremes.value)
    return table(
        cells("stream", "state of the stream", extremes.states),
        cells("ratio", "largest magnitude over the median one, median document", np.median(extremes.ratios, axis=0)),
        cells("largest", "largest magnitude, median document", np.median(size, axis=0)),
        cells("median", "median magnitude", extremes.typical),
        cells("dimension", "most common dimension of the largest coordinate", [d for (d, _), _ in places]),
        cells("position", "its most common position, 0 being the first", [t for (_, t), _ in places]),
        cells("agree", "share of documents with that dimension and position", [n / len(size) for _, n in places]),
        cells("random_ratio", "ratio at random initialisation, mean over twins", _untrained(result)),
        cells("shuffled_ratio", "ratio on shuffled text", np.median(result.extremes[SHUFFLED].ratios, axis=0)),
    )


def _untrained(result: MassiveResult) -> Floats:
    twins = [
        np.median(extremes.ratios, axis=0) for arm, extremes in result.extremes.items() if arm not in (MODEL, SHUFFLED)
    ]
    return np.mean(twins, axis=0) if twins else np.full(len(result.extremes[MODEL].states), np.nan)


def massive_lines(evidence: Evidence, result: MassiveResult) -> tuple[Quantity, ...]:
    extremes = result.extremes[MODEL]
    limits = {"massive": T.massive_ratio, "outlier": T.massive_outlier}
    controls = {RANDOM: _untrained(result)} if evidence.twins else {}
    ratio = line(
        "largest coordinate over the median magnitude",
        "of the median document",
        "times the median",
        "stream",
        extremes.states,
        np.median(extremes.ratios, axis=0),
        {**controls, SHUFFLED: np.median(result.extremes[SHUFFLED].ratios, axis=0)},
        {name: np.full(len(extremes.states), limit) for name, limit in limits.items()},
        ("value",),
    )
    if result.heads is None:
        return (ratio,)
    layers = [f"L{layer}" for layer in range(evidence.anatomy.layers)]
    twins = [result.sinks(arm).mean(1) for arm in evidence.twins]
    sinks = line(
        "heads that park their attention",
        f"share of a layer's heads that give the first token more than {T.sink_attention:g}",
        "share of heads",
        "layer",
        layers,
        result.sinks(MODEL).mean(1),
        {**({RANDOM: np.mean(twins, axis=0)} if twins else {}), SHUFFLED: result.sinks(SHUFFLED).mean(1)},
    )
    return ratio, sinks
