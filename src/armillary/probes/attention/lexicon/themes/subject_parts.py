"""When does a head have a subject, and when have many of them? What the claims on W_VO and on W_QK share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.machinery import Flags, Floats, Interval, T, name_heads, over_twins
from armillary.probes.machinery.verdicts import above, beats, missing_interval
from armillary.results import Limit, Part, Statistic, Verdict, Why, say

CROWDS = (
    f"Hardly trained tokens are left out before anything is read: those with at least {T.crowd_others} other tokens of "
    f"any kind at a cosine above {T.crowd_cosine} in the centred output embedding. No topic of words is that tight."
)


@dataclass(frozen=True)
class Compared:
    """A statistic of the model and of untrained ones."""

    model: Interval
    untrained: Interval
    twins: int

    @classmethod
    def of(cls, model: Interval, twins: Sequence[Interval]) -> "Compared":
        value, low, high = over_twins(twins).tolist()
        return cls(model, (value, low, high), len(twins))

    @property
    def learned(self) -> bool | None:
        return beats(self.model, self.untrained, self.twins)


def reach(excess: Floats, discovered: Flags, limit: float) -> float:
    """The share of heads [layer, head] whose excess is significant and large enough; by any relation, if there are."""
    enough = discovered & (excess >= limit)
    return float(enough.reshape(*enough.shape[:2], -1).any(-1).mean())


def share_verdict(mean: Compared, share: Interval) -> tuple[Verdict, Why | None]:
    """From the mean excess of some heads and the share of them with a subject. The share has an interval, so that no
    count near a limit turns the verdict."""
    learned, many, some = mean.learned, reaches(share, T.heads_many), above(share, T.sites_few)
    if share[2] <= T.sites_few or learned is False:
        return "refuted", None
    if np.isnan(mean.untrained[2]):
        return "undecided", Why.NO_CONTROL
    if learned is None or not some or many is None:
        return "undecided", missing_interval(*mean.model, *share)
    return ("supported" if many else "qualified"), None


def reaches(share: Interval, limit: float) -> bool | None:
    """Does a whole interval lie at a limit or above it? A share of heads may be exactly one half. None where it spans.

    >>> reaches((0.6, 0.5, 0.7), 0.5), reaches((0.4, 0.3, 0.5), 0.5), reaches((0.4, 0.3, 0.45), 0.5)
    (True, None, False)
    """
    return True if share[1] >= limit else False if share[2] < limit else None


def with_value(share: Interval) -> Interval:
    """An interval of a share that contains the share. Heads just above the limit are below it in most draws, so that
    the share itself can lie beside what was drawn.

    >>> with_value((0.4, 0.2, 0.35))
    (0.4, 0.2, 0.4)
    """
    value, low, high = share
    return value, min(low, value), max(high, value)


def open_share(mean: Compared, share: Interval) -> str:
    """What an undecided share means, as a sentence; '' where something else is open."""
    if mean.learned and above(share, T.sites_few) and reaches(share, T.heads_many) is None:
        return (
            f" Whether half of the heads have one is open: the interval spans {T.heads_many:.0%}. It covers the choice "
            "of directions; no text is read, so more text would not decide."
        )
    return ""


def share_limits(part: Part, mean: Compared, share: Interval) -> tuple[Limit, ...]:
    """What decides such a part: the share of heads with a subject, and the mean excess of untrained models."""
    measured = Statistic("share of heads with a subject", *share)
    return (
        Limit(T.heads_many, "above", "many heads", part=part.name, measured=measured),
        Limit(T.sites_few, "below", "hardly any head", "refuted", part.name, measured),
        *untrained_limit(part, mean),
    )


def untrained_limit(part: Part, mean: Compared) -> tuple[Limit, ...]:
    end = mean.untrained[2]
    limit = Limit(end, "above", "above untrained models", part=part.name, measured=part.statistic)
    return (limit,) if np.isfinite(end) else ()


def cosine(interval: Interval) -> str:
    value, low, high = (say(end, "+.3f") for end in interval)
    return f"{value} ({low} to {high})"


def percent(share: Interval) -> str:
    value, low, high = (say(end, ".0%") for end in share)
    return f"{value} ({low} to {high})"


def among(have: Flags, layers: range) -> str:
    """How many heads of these layers have a subject, and which."""
    these = have & np.isin(np.arange(len(have)), layers)[:, None]
    total = len(layers) * have.shape[1]
    names = f" ({name_heads(these)})" if 0 < these.sum() < total else ""
    return f"{these.sum()} of {total}{names}"
