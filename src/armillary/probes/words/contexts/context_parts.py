"""What does the claim that states are contextual say, part by part?"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import SHUFFLED, Interval, T, above, beats, missing_interval
from armillary.probes.machinery.verdicts import more_text
from armillary.results import Limit, Part, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.probes.words.contexts.context_measures import ContextMeasures

OWN = "own share of a word's state, later half of the depth"
SENSE = "share of comparisons in which the same sense is nearer, later half of the depth"
NEIGHBOURS = "share of the variance within words that neighbours predict, later half of the depth"
FALLS = "part of the own share's movement over depth that goes down"


def context_parts(measures: "ContextMeasures") -> tuple[Part, ...]:
    return (_differ(measures), _senses(measures), _neighbours(measures), _depth(measures))


def _differ(measures: "ContextMeasures") -> Part:
    own, off, shuffled = measures.own_share(), measures.own_share("attention off"), measures.own_share(SHUFFLED)
    twins = float(measures.own_twins()[measures.later].mean()) if measures.evidence.twins else np.nan
    lost = measures.own_lost()
    low, none, falls = above(own, T.context_own), above(own, T.context_none), above(lost, T.context_off)
    verdict: Verdict = "undecided"
    if none or falls is False:
        verdict = "refuted"
    elif falls and none is False and low is not None:
        verdict = "qualified" if low else "supported"
    why: Why | None = None
    if verdict == "undecided":
        why = Why.UNDEFINED if np.isnan([own[0], lost[0]]).any() else missing_interval(*own, *lost)
    reading = (
        f"In the later half of the depth, a word's own share of its state is {say(own[0], '.2f')} (1: the word alone; "
        f"untrained: {say(twins, '.2f')}, shuffled text: {say(shuffled[0], '.2f')}). With attention off it is "
        f"{say(off[0], '.2f')}; on the same tokens this is a change of {_signed(lost)}."
    )
    return Part("they differ by context", verdict, reading + more_text(why), Statistic(OWN, *own), why=why)


def attention_limit(measures: "ContextMeasures", part: Part) -> tuple[Limit, ...]:
    """What attention removes from a word's own share decides as well."""
    lost = measures.own_lost()
    measured = Statistic("what attention removes from a word's own share", *lost)
    limit = Limit(T.context_off, "above", "attention mixes contexts", part=part.name, measured=measured)
    return (limit,) if np.isfinite(lost[0]) else ()


def _signed(ends: Interval) -> str:
    value, low, high = (say(end, "+.2f") for end in ends)
    return f"{value} [{low}, {high}]"


def _senses(measures: "ContextMeasures") -> Part:
    name, used = "they differ by sense", len(measures.passes.senses.words)
    if used < T.context_words:
        reading = (
            f"Only {used} of the listed words with two senses are single tokens in their sentences here; a "
            f"verdict needs {T.context_words}."
        )
        return Part(name, "undecided", reading, why=Why.UNDEFINED)
    sense, twins, off = measures.sense(), measures.sense_twins(), measures.sense("attention off")
    verdict, why = _beyond(sense, T.context_sense, twins, len(measures.evidence.twins), off)
    reading = (
        f"The sentence with the same sense is nearer in {say(sense[0], '.0%')} of comparisons (chance: 50%, untrained: "
        f"{say(twins[0], '.0%')}, attention off: {say(off[0], '.0%')}, sentence shuffled: "
        f"{say(measures.sense(SHUFFLED)[0], '.0%')})."
    )
    more = " More words with two senses would decide." if why is Why.SPANS_LIMIT else ""
    return Part(name, verdict, reading + more, Statistic(SENSE, *sense), why=why)


def _neighbours(measures: "ContextMeasures") -> Part:
    share, twins, other = measures.neighbours(), measures.neighbours_twins(), measures.neighbours(trial=1)
    verdict, why = _beyond(share, T.context_neighbours, twins, len(measures.evidence.twins), other)
    reading = (
        f"Neighbouring words predict {say(share[0], '.0%')} of the variance within words (neighbours of another "
        f"occurrence: {say(other[0], '.0%')}, untrained: {say(twins[0], '.0%')}, shuffled text: "
        f"{say(measures.neighbours(SHUFFLED)[0], '.0%')})."
    )
    return Part("neighbours predict it", verdict, reading, Statistic(NEIGHBOURS, *share), asserted=False, why=why)


def _depth(measures: "ContextMeasures") -> Part:
    falls = measures.falls()
    most, half = above(falls, T.refine_most), above(falls, T.refine_half)
    verdict: Verdict = "supported" if most else "qualified" if half else "refuted"
    why: Why | None = None
    if np.isnan(falls[0]) or half is None or most is None:
        verdict, why = "undecided", Why.UNDEFINED if np.isnan(falls[0]) else missing_interval(*falls)
    reading = f"Falls make up {say(falls[0], '.0%')} of the own share's changes with depth."
    return Part("more with depth", verdict, reading, Statistic(FALLS, *falls), asserted=False, why=why)


def _beyond(value: Interval, limit: float, twins: Interval, number: int, other: Interval) -> tuple[Verdict, Why | None]:
    """Supported above the limit and both controls, refuted below one of them."""
    if np.isnan(value[0]):
        return "undecided", Why.UNDEFINED
    if np.isnan(twins[2]):
        return "undecided", Why.NO_CONTROL
    sides = [above(value, limit), beats(value, twins, number), above(value, other[2])]
    if all(sides):
        return "supported", None
    return ("refuted", None) if False in sides else ("undecided", missing_interval(*value, other[2]))
