"""Is what a layer discards irrelevant? Read it, let it through, choose it without context, zero it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.filter.by_layer import where
from armillary.probes.machinery import (
    NAN3,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    all_of,
    beats,
    by_side,
    mean,
    missing_interval,
    over_twins,
)
from armillary.probes.machinery.verdicts import by_layers
from armillary.results import Part, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.probes.filter.selection.ablation import AblationCosts
    from armillary.probes.filter.selection.decoding import Decoded


@dataclass(frozen=True, eq=False)
class Skills:
    """Shares of a token's embedding that are decoded: [layer, (kept, discarded), (value, low, high)]."""

    names: list[str]
    skill: Floats
    ratio: Floats
    """[layer, (value, low, high)]: discarded over kept."""
    difference: Floats
    """Kept minus discarded."""
    mean_difference: Interval
    mean_ratio: Interval
    untrained: Interval
    """Mean difference over untrained twins; NaN without twins."""
    twins: int

    @classmethod
    def of(cls, evidence: Evidence, decoded: "Decoded", target: str) -> "Skills":
        sums = decoded.sums[target]
        twins = [evidence.interval(twin[target], lambda s: _difference(s).mean(-1)) for twin in decoded.twins]
        value, low, high = over_twins(twins).tolist() if twins else NAN3
        return cls(
            [f"L{layer}" for layer in decoded.layers],
            evidence.intervals(sums),
            evidence.intervals(sums, lambda s: _ratio(mean(s))),
            evidence.intervals(sums, _difference),
            evidence.interval(sums, lambda s: _difference(s).mean(-1)),
            evidence.interval(sums, lambda s: _ratio(mean(s).mean(-2))),
            (value, low, high),
            len(twins),
        )

    @property
    def defined(self) -> list[bool]:
        """[layer]: can the token be decoded from the kept values at all?"""
        return [low > 0 for low in self.skill[:, 0, 1].tolist()]


def _difference(sums: Floats) -> Floats:
    skill = mean(sums)
    return np.asarray(skill[..., 0] - skill[..., 1])


def _ratio(skill: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(skill[..., 0] > 0, skill[..., 1] / skill[..., 0], np.nan))


def read_part(skills: Skills, own: Skills) -> Part:
    """Do the discarded values say much less of the next token than the kept ones?"""
    name = "discarded values say little of the next token"
    if not any(skills.defined):
        text = "The next token cannot be decoded from the kept values, so there is nothing to compare."
        missing = np.isnan(skills.skill[..., 1:]).any()
        return Part(name, "undecided", text, why=Why.NO_INTERVAL if missing else Why.UNDEFINED)
    chosen = np.flatnonzero(skills.defined)
    names = [skills.names[i] for i in chosen]
    holds = [_much_less(skills.ratio[i], skills.difference[i], skills.untrained, skills.twins) for i in chosen]
    overall = _much_less(np.array(skills.mean_ratio), np.array(skills.mean_difference), skills.untrained, skills.twins)
    verdict, why = by_layers(holds, overall)
    if why is not None:
        ends = missing_interval(*skills.ratio[chosen].ravel())
        why = Why.NO_CONTROL if np.isnan(skills.untrained[2]) and ends is not Why.NO_INTERVAL else ends
    from_kept, from_discarded = (say(value, ".1%") for value in skills.skill[chosen, :, 0].mean(0))
    text = (
        f"The kept values decode {from_kept} of the next token's embedding, as many discarded values decode "
        f"{from_discarded} (mean of {len(chosen)} layers): less than half {where(names, holds)}."
    )
    if np.isfinite(own.mean_ratio[0]) and any(own.defined):
        from_kept, from_discarded = (say(value, ".0%") for value in own.skill[:, :, 0].mean(0))
        text += f" Of the token's own embedding they decode {from_kept} and {from_discarded}."
    statistic = Statistic("decoded of the next token: discarded over kept, mean over layers", *skills.mean_ratio)
    return Part(name, verdict, text, statistic, why=why)


def _much_less(ratio: Floats, difference: Floats, untrained: Interval, twins: int) -> bool | None:
    """Less than half, and by more than in untrained models."""
    (value, low, high), gap = ratio.tolist(), difference.tolist()
    less, learned = _less((value, low, high)), beats((gap[0], gap[1], gap[2]), untrained, twins)
    return all_of(less, learned)


def _less(ratio: Interval) -> bool | None:
    """Less than half, with the whole interval?"""
    value, low, high = ratio
    return above((-value, -high, -low), -T.select_half)


def through_part(result: "AblationCosts") -> Part:
    """Does letting the discarded through cost less than the same change elsewhere?"""
    from armillary.probes.filter.selection.ablation import ALL, ELSEWHERE, THROUGH

    name = "letting them through matters little"
    costs = {place: [result.cost(place, how) for how in (THROUGH, ELSEWHERE)] for place in result.places}
    defined = [place for place in result.single if costs[place][1][1] > T.select_cost]
    whole = f"{say(costs[ALL][0][0], '.2g')} nats per token, the same elsewhere {say(costs[ALL][1][0], '.2g')}"
    if not defined:
        text = f"In no single layer does the loss depend on such changes (all layers: {whole})."
        missing = np.isnan(costs[ALL][1][1])
        return Part(name, "undecided", text, why=Why.NO_INTERVAL if missing else Why.UNDEFINED)
    ratios = {place: result.ratio(place, THROUGH, ELSEWHERE) for place in defined}
    holds = [_less(ratio) for ratio in ratios.values()]
    average = result.mean_ratio(defined, THROUGH, ELSEWHERE)
    verdict, why = by_layers(holds, _less(average))
    listed = ", ".join(f"{say(ratio[0], '.0%')} in {place}" for place, ratio in ratios.items())
    text = (
        f"Letting the discarded values through costs {listed} of what the same changes of random units cost: less "
        f"than half {where(defined, holds)}. In all layers at once it costs {whole}."
    )
    statistic = Statistic("cost of letting through over that of as much elsewhere, mean over layers", *average)
    return Part(name, verdict, text, statistic, why=why)


def context_part(result: "AblationCosts") -> Part:
    """Does the choice depend on the token?"""
    from armillary.probes.filter.selection.ablation import ALL, trial_name

    name = "the choice depends on context"
    random, zero, fixed = (result.cost(ALL, how) for how in ("random", "zero", "fixed"))
    more = result.trials.beside(*(trial_name(ALL, how) for how in ("fixed", "zero")))
    statistic = Statistic("cost of zeroing fixed units less that of the discarded ones", *more, "nats/token")
    if random[2] <= T.select_cost:
        text = "The loss hardly changes whichever coordinates are zeroed, so a choice cannot show."
        return Part(name, "undecided", text, statistic, why=Why.UNDEFINED)
    depends = above(more, T.select_cost)
    verdict = by_side(depends)
    text = (
        f"Zeroing the same units for every token costs {say(fixed[0], '.2g')} nats per token, zeroing the discarded "
        f"ones {say(zero[0], '.2g')}: "
        + ("units are chosen in context." if depends else "no clear sign of a choice in context.")
    )
    return Part(name, verdict, text, statistic, why=missing_interval(*more) if depends is None else None)


def leak_part(result: "AblationCosts") -> Part:
    """What is left of the discarded after the activation: our own part."""
    from armillary.probes.filter.selection.ablation import ALL

    zero, random, constant = (result.cost(ALL, how) for how in ("zero", "random", "mean"))
    share = say(result.shares[ALL], ".0%")
    verdict, why = _leak(result, zero, random)
    text = (
        f"Zeroing the {share} of coordinates below zero after the activation costs {say(zero[0], '.2g')} nats per token"
    )
    if result.exact:
        text += " (exactly 0 by construction: the activation has zeroed them already)"
    text += f"; as many at random cost {say(random[0], '.2g')}"
    if zero[1] > T.select_cost and constant[0] < zero[0]:
        text += f"; a constant per unit explains {say(1 - max(constant[0], 0) / zero[0], '.0%')} of it"
    statistic = Statistic("loss when all coordinates below zero are zeroed, all layers", *zero, "nats/token")
    return Part("what the activation leaves of them is nothing", verdict, f"{text}.", statistic, False, why)


def _leak(result: "AblationCosts", zero: Interval, random: Interval) -> tuple[Verdict, Why | None]:
    from armillary.probes.filter.selection.ablation import ALL

    if random[2] <= T.select_cost:
        return "undecided", Why.UNDEFINED
    costs = above(zero, T.select_cost)
    if costs is False:
        return "supported", None
    half = above(result.ratio(ALL, "zero", "random"), T.select_half)
    if costs and half is not None:
        return ("refuted" if half else "qualified"), None
    return "undecided", missing_interval(*zero)
