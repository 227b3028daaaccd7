"""How does a rule end? One `undecided` and one `failed` for every probe, and how names are listed in a sentence."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.intervals import NAN3, Floats, Interval, reached_by, surely_reached
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Finding, Part, RuleChange, Statistic, Table, Verdict, Why

Flags = NDArray[np.bool_]
Answers = Sequence[bool | None]
"""One per place; None where an interval spans its limit or is missing."""
FIVE_TWINS = RuleChange(
    "2026-11-18",
    "Five untrained models, where three had been. Five is what the rules mean by 'more than untrained'; the interval "
    "of three is five standard deviations wide on either side, that of five is three.",
)

FIVE_SHOWN = RuleChange(
    "2026-11-18",
    "Five untrained models of a small model are shown beside it, where one to three had been. They decide nothing "
    "here.",
)


def undecided(claim: Claim, why: Why, reading: str, table: Table | None = None, n: int = 0) -> Finding:
    """No verdict: `reading` says what is missing and what would decide; `table` holds what was measured anyway."""
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", *NAN3),
        n=n,
        controls=(),
        reading=reading,
        headline=f"Nothing can be concluded: {why.value}",
        table=Table((Column("site", "norm site"),), ()) if table is None else table,
        why=why,
    )


def failed(claim: Claim, error: BaseException) -> Finding:
    """The row of a claim whose probe raised."""
    name, message = type(error).__name__, " ".join(str(error).split())
    finding = undecided(claim, Why.FAILED, f"The probe raised {name}: {message or 'no message'}")
    return replace(finding, verdict="failed", headline=f"Nothing can be concluded: the probe raised {name}")


def overflown(claim: Claim, what: str) -> Finding:
    """The row of a claim whose measured values are not all numbers."""
    reading = f"On this text values overflow ({what}). A wider --dtype or another checkpoint of the model would decide."
    return undecided(claim, Why.UNDEFINED, reading)


def above(interval: Interval, limit: float) -> bool | None:
    """Does a whole interval lie above a limit? None where it spans the limit, or where either is missing.

    >>> above((2.0, 1.0, 3.0), 0.5), above((2.0, 1.0, 3.0), 4.0), above((2.0, 1.0, 3.0), 1.5)
    (True, False, None)
    """
    _, low, high = interval
    if low > limit:
        return True
    return False if high < limit else None


def beats(interval: Interval, control: Interval, twins: int, margin: float = 0.0) -> bool | None:
    """Does a whole interval lie above what untrained models show, by a margin? None where nothing is decided.

    True above the upper end of `control`, an interval over `twins`; False below what they reach (`reached_by`), which
    is lower where twins are few.

    >>> beats((0.75, 0.7, 0.8), (0.52, 0.21, 0.83), 5), beats((0.75, 0.7, 0.8), (0.52, 0.21, 0.83), 2)
    (False, None)
    """
    if above(interval, control[2] + margin):
        return True
    return False if above(interval, float(reached_by(control, twins)) + margin) is False else None


def surely_beats(interval: Interval, control: Interval, twins: int) -> bool | None:
    """The same, but False only below what untrained models surely reach (`surely_reached`).

    For statistics in which untrained models differ much: where their upper end lies depends on which five they are.

    >>> surely_beats((0.75, 0.7, 0.8), (0.52, 0.21, 0.83), 5), surely_beats((0.55, 0.5, 0.6), (0.52, 0.21, 0.83), 5)
    (None, False)
    """
    if above(interval, control[2]):
        return True
    return False if above(interval, float(surely_reached(control, twins))) is False else None


def all_of(*sides: bool | None) -> bool | None:
    """False if any is, True if all are, None otherwise."""
    return False if False in sides else True if all(sides) else None


def by_side(side: bool | None) -> Verdict:
    """The verdict of a rule with one limit."""
    return "undecided" if side is None else "supported" if side else "refuted"


def by_sides(sides: Collection[bool | None]) -> Verdict:
    """Supported where all sides agree, refuted where all disagree, qualified where some do either.

    >>> by_sides([True, True]), by_sides([False, False]), by_sides([True, False, None]), by_sides([True, None])
    ('supported', 'refuted', 'qualified', 'undecided')
    """
    if all(sides):
        return "supported"
    if all(side is False for side in sides):
        return "refuted"
    return "qualified" if True in sides and False in sides else "undecided"


def between(interval: Interval, refuted: float, supported: float) -> Verdict:
    """The verdict of a rule with two limits, either of which may be the upper one; qualified between them.

    >>> between((3.0, 2.5, 3.5), refuted=1.0, supported=2.0), between((3.0, 2.5, 3.5), refuted=2.0, supported=1.0)
    ('supported', 'refuted')
    >>> between((3.0, 2.5, 3.5), refuted=2.0, supported=4.0), between((3.0, 2.5, 3.5), refuted=2.0, supported=3.0)
    ('qualified', 'undecided')
    """
    over_low, over_high = above(interval, min(refuted, supported)), above(interval, max(refuted, supported))
    if over_high:
        return "supported" if supported > refuted else "refuted"
    if over_low is False:
        return "refuted" if supported > refuted else "supported"
    return "qualified" if over_low and over_high is False else "undecided"


def learned_between(value: Interval, low: float, high: float, untrained: Interval, twins: int) -> Verdict:
    """Supported above `high` and untrained models, refuted below `low` or below them, qualified between."""
    learned = beats(value, untrained, twins) if twins else None
    if above(value, low) is False or learned is False:
        return "refuted"
    if not learned or above(value, low) is None or above(value, high) is None:
        return "undecided"
    return "supported" if above(value, high) else "qualified"


def weakest(parts: Sequence[Part]) -> tuple[Verdict, Why | None]:
    """The verdict of a claim in several parts: that of the weakest part that the source asserts."""
    order: tuple[Verdict, ...] = ("failed", "refuted", "undecided", "qualified", "supported")
    part = min((part for part in parts if part.asserted), key=lambda part: order.index(part.verdict))
    return part.verdict, part.why


class Weighed(TypedDict):
    """What a finding takes from its parts."""

    verdict: Verdict
    why: Why | None
    parts: tuple[Part, ...]
    reading: str


def weighed(parts: Sequence[Part], reading: str | None = None, *, more: bool = False) -> Weighed:
    """`Finding(claim=claim, **weighed(parts), …)`: the verdict of the weakest part, and the parts' readings in turn.

    `reading` stands in place of the parts'; `more` ends it with what would decide.
    """
    verdict, why = weakest(parts)
    text = " ".join(part.reading for part in parts) if reading is None else reading
    return Weighed(verdict=verdict, why=why, parts=tuple(parts), reading=text + (more_text(why) if more else ""))


def by_share(holds: Flags, possible: Flags | None = None, most: float = T.sites_most) -> Verdict:
    """Supported where at least 90 % (`most`) of the places agree, refuted where at most 10 % do.

    `possible` marks the places that could agree by a weaker rule: then only these are counted to refute.
    """
    if np.mean(holds) >= most:
        return "supported"
    return "refuted" if np.mean(holds if possible is None else possible) <= T.sites_few else "qualified"


def by_layers(holds: Answers, overall: bool | None, weaker: Answers | None = None) -> tuple[Verdict, Why | None]:
    """One verdict from the answers of layers and of their mean (`overall`).

    Supported if the mean holds and at most 10 % of layers fail. Refuted if the mean fails and at most 10 % of layers
    hold. Qualified if more than 10 % hold and more than 10 % fail. Otherwise layers whose interval spans the limit
    could turn the verdict, and nothing is decided. With `weaker`, a condition that is easier to meet, layers hold for
    the last two rules where they meet it.

    >>> layers = [True, True], [False, False], [True, False, None], [None, None]
    >>> [by_layers(holds, overall)[0] for holds, overall in zip(layers, (True, False, True, None), strict=True)]
    ['supported', 'refuted', 'qualified', 'undecided']
    """
    some = np.mean([flag is True for flag in (holds if weaker is None else weaker)])
    failing = np.mean([flag is False for flag in holds])
    if overall is True and failing <= T.sites_few:
        return "supported", None
    if overall is False and some <= T.sites_few:
        return "refuted", None
    if some > T.sites_few and failing > T.sites_few:
        return "qualified", None
    return "undecided", Why.SPANS_LIMIT


def missing_interval(*ends: float) -> Why:
    """Why a rule that looked at these interval ends decided nothing: one is missing, or they span the limit."""
    return Why.NO_INTERVAL if np.isnan(ends).any() else Why.SPANS_LIMIT


def more_text(why: Why | None) -> str:
    """What would decide, as the last sentence of a reading."""
    return " More text would decide." if why in (Why.SPANS_LIMIT, Why.NO_INTERVAL) else ""


def no_middle(blocks: int) -> str:
    """The reading of a claim about the middle of the depth, where there is none."""
    return (
        f"This model has {blocks} {'block' if blocks == 1 else 'blocks'}; the middle of a depth needs "
        f"{T.middle_blocks}. A deeper model would decide."
    )


def name_sites(sites: Sequence[str], most: int = 4) -> str:
    """A few names for a sentence.

    >>> name_sites(["L0.ln1", "L1.ln1"])
    'L0.ln1 and L1.ln1'
    """
    if len(sites) > most:
        return ", ".join(sites[: most - 1]) + f" and {len(sites) - most + 1} more"
    return " and ".join([", ".join(sites[:-1]), sites[-1]]) if len(sites) > 1 else "".join(sites)


def name_heads(flags: Flags, most: int = 4) -> str:
    """The first few heads by name.

    >>> name_heads(np.array([[True, False], [False, True]]))
    'L0H0 and L1H1'
    """
    return name_sites([f"L{layer}H{head}" for layer, head in np.argwhere(flags)], most)


def largest_head(values: Floats) -> str:
    """The name of the head with the largest value.

    >>> largest_head(np.array([[0.1, 0.2], [0.4, 0.3]]))
    'L1H0'
    """
    layer, head = np.unravel_index(int(np.argmax(values)), values.shape)
    return f"L{layer}H{head}"
