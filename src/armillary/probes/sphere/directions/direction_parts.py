"""What does 'direction carries the meaning, length does not' say, part by part?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    NAN3,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    beats,
    missing_interval,
)
from armillary.probes.machinery.verdicts import surely_beats
from armillary.probes.sphere.across_sites import drawn_interval
from armillary.probes.sphere.directions.displacements import FACTORS, Displaced
from armillary.probes.sphere.directions.next_token_pairs import COSINE, EUCLIDEAN, LENGTH, last_aucs
from armillary.results import Part, Statistic, Verdict, Why, say

MORE = 0.02
VERDICTS: dict[bool | None, Verdict] = {True: "supported", False: "refuted", None: "undecided"}


@dataclass(frozen=True)
class Separations:
    """The AUCs at the last norm and their differences, with intervals."""

    cosine: Interval
    euclidean: Interval
    length: Interval
    beyond_length: Interval
    """AUC(cosine) − AUC(|Δ length|)."""
    beyond_distance: Interval
    """AUC(cosine) − AUC(Euclidean distance)."""


def separations(evidence: Evidence, arm: str = MODEL, permuted: bool = False) -> Separations:
    drawn = last_aucs(evidence, arm, permuted)
    if drawn is None:
        return Separations(NAN3, NAN3, NAN3, NAN3, NAN3)
    differences = [drawn[:, COSINE] - drawn[:, other] for other in (LENGTH, EUCLIDEAN)]
    return Separations(*(drawn_interval(evidence, values) for values in (*drawn.T, *differences)))


def against_length(model: Separations, untrained: Interval, twins: int, last: str) -> Part:
    """The angle separates, length does not, and training made it so."""
    difference, enough = model.beyond_length, above(model.cosine, T.direction_auc)
    statistic = Statistic(f"AUC(cosine) − AUC(|Δ length|) at {last}", *difference)
    reading = f"In {say(model.cosine[0], '.0%')} of cases the angle ranks a pair with the same next token above "
    reading += f"another pair; length alone does in {say(model.length[0], '.0%')} (chance: 50%). In an untrained "
    reading += f"model the angle's lead over length is {say(100 * untrained[0], '.1f')} percentage points."
    larger = above(difference, T.direction_margin), surely_beats(difference, untrained, twins)
    verdict: Verdict = "supported"
    if False in larger:
        verdict = "refuted"
    elif None in larger or enough is None:
        verdict = "undecided"
    elif not enough:
        verdict = "qualified"
    why = _missing(model.cosine[0], difference, untrained) if verdict == "undecided" else None
    return Part("the angle separates better than length", verdict, reading, statistic, why=why)


def against_distance(model: Separations, last: str) -> Part:
    """Distance, which contains length, separates no better than the angle."""
    name = "distance separates no better than the angle"
    statistic = Statistic(f"AUC(cosine) − AUC(Euclidean distance) at {last}", *model.beyond_distance)
    reading = f"Euclidean distance, which depends on both, ranks it above in {say(model.euclidean[0], '.0%')} of cases."
    if model.beyond_distance[2] < -MORE:
        reading += " That is more than the angle, so length adds something."
    if not np.nanmax([model.cosine[0], model.euclidean[0], 0.0]) >= T.direction_auc:
        return Part(name, "undecided", reading + " Neither separates.", statistic, why=Why.UNDEFINED)
    verdict = VERDICTS[above(model.beyond_distance, -T.direction_margin)]
    why = _missing(model.cosine[0], model.beyond_distance) if verdict == "undecided" else None
    return Part(name, verdict, reading, statistic, why=why)


def turned_or_stretched(result: Displaced | None) -> Part:
    """A change of length costs the loss less than an equally large change of direction."""
    name = "a change of length costs less than an equal change of direction"
    if result is None or not result.inner:
        reading = "The cost of moving the stream is not measured: "
        reading += "this model has no next-token loss." if result is None else "no block comes after another."
        return Part(name, "undecided", reading, asserted=False, why=Why.NOT_APPLICABLE)
    costs = {factor: (result.across(factor, result.inner), result.along(factor, result.inner)) for factor in FACTORS}
    untrained = result.across_untrained()
    reading = " ".join(_costs(factor, *costs[factor]) for factor in FACTORS)
    reading += f" (Means over blocks before the last; turning by 60° after L{result.middle} costs an untrained model "
    reading += f"{say(untrained[0], '.2g')}.)"
    pooled = "cost of scaling by ½ and 2 / of equally large turns"
    enough = [above(across, T.turning_cost) for across, _ in costs.values()]
    learned = beats(result.across(FACTORS[-1], (result.middle,)), untrained, len(result.untrained))
    if not all(enough) or not learned:
        reading += " Turning costs too little for a comparison."
        return Part(name, "undecided", reading, Statistic(pooled, *NAN3), why=Why.UNDEFINED)
    shares = [result.share((factor,), result.inner) for factor in FACTORS]
    verdict = _share_verdict(shares)
    if verdict == "qualified":
        reading += " So length matters too: later blocks add to the stream, and its length sets how much they count."
    why = missing_interval(*shares[0], *shares[1]) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic(pooled, *result.share(FACTORS, result.inner)), why=why)


def _costs(factor: float, across: Interval, along: Interval) -> str:
    angle = {0.5: "29°", 2.0: "60°"}[factor]
    return (
        f"Scaling the stream by {factor:g} costs {say(along[0], '.2g')} nats per token; turning it by {angle}, which "
        f"moves it by the same distance, costs {say(across[0], '.2g')}."
    )


def _share_verdict(shares: Sequence[Interval]) -> Verdict:
    """Supported if length costs little at both sizes, refuted if as much as direction at both."""
    little = [above(share, T.length_share) for share in shares]
    equal = [above(share, T.length_equal) for share in shares]
    if all(answer is False for answer in little):
        return "supported"
    if all(answer is True for answer in equal):
        return "refuted"
    return "qualified" if True in little and False in equal else "undecided"


def advantage_by_spread(evidence: Evidence, advantages: Floats, spreads: Floats) -> Part:
    """Ours: is the angle better than distance where lengths spread more? From [1 + draw, site]."""
    value, low, high = drawn_interval(evidence, _rank_correlations(advantages, spreads)) if advantages.size else NAN3
    statistic = Statistic("rank correlation over norms: cosine's advantage and spread of lengths", value, low, high)
    side = above((value, low, high), 0.0)
    words = {True: "larger", False: "smaller", None: "neither clearly larger nor smaller"}[side]
    reading = f"Where lengths spread more, the angle's advantage over distance is {words} (rank correlation over "
    reading += f"{advantages.shape[1] if advantages.size else 0} norms: {say(value, '.2f')})."
    verdict = VERDICTS[side]
    why = missing_interval(low, high) if side is None else None
    name = "the angle's advantage over distance grows with the spread of lengths"
    return Part(name, verdict, reading, statistic, asserted=False, why=why)


def _rank_correlations(first: Floats, second: Floats) -> Floats:
    """[draw] from [draw, site]; NaN where all sites tie."""
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=1) for values in (first, second)]
    x, y = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    size = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    defined = (size > 0) & np.isfinite(first).all(1) & np.isfinite(second).all(1)
    return np.where(defined, (x * y).sum(1) / np.where(size > 0, size, 1), np.nan)


def _missing(auc: float, *intervals: Interval) -> Why:
    return Why.TOO_LITTLE_TEXT if np.isnan(auc) else missing_interval(*(end for ends in intervals for end in ends[1:]))
