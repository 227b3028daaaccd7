"""What does 'symmetrise and structure' say, part by part: of the cloud of tokens, and of the maps themselves?"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    NAN3,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    by_share,
    by_side,
    median_defined,
    missing_interval,
    name_sites,
    once,
    over_sites,
    reached_by,
)
from armillary.probes.machinery.verdicts import by_layers
from armillary.probes.sphere.across_sites import across_sites, decided, defined_median, flagged
from armillary.probes.sphere.symmetry.cycle import Sublayer
from armillary.results import Limit, Part, Statistic, Verdict, Why, say
from armillary.results.limit import Side

if TYPE_CHECKING:
    from armillary.probes.sphere.symmetry.rotations import RotationErrors

BARE, AFFINE = 0, 1
SHARE = "share of sublayers where the norm raises isotropy and the sublayer lowers it, both beyond untrained models"
# Tokens that a norm is tried on: what is rounding is rounding in all of them.
SOME = 128


@dataclass(frozen=True, eq=False)
class StationChange:
    """By which factor the participation ratio changes from one station to the next, at every sublayer."""

    intervals: Floats
    """[sublayer, (value, low, high)] of the model."""
    untrained: Floats
    """The same of an untrained model."""
    twins: int
    """How many untrained models."""
    rises: bool
    """Does the claim say that it grows?"""
    middle: Floats = field(default_factory=lambda: np.full((1, 3), np.nan))
    """[1, (value, low, high)] of the median sublayer of the model."""
    middle_untrained: Floats = field(default_factory=lambda: np.full((1, 3), np.nan))

    @property
    def known(self) -> Flags:
        return np.isfinite(self.intervals[:, 0])

    @property
    def follows(self) -> Flags:
        """Where the value itself changes as claimed, whatever an untrained model does."""
        value = self.intervals[:, 0]
        return np.asarray(value > 1 if self.rises else value < 1)

    @property
    def median(self) -> float:
        return median_defined(self.intervals[:, 0])

    @property
    def overall(self) -> bool | None:
        """Does the median sublayer change as claimed and beyond an untrained model? None where its interval is open."""
        median = replace(self, intervals=self.middle, untrained=self.middle_untrained)
        return _side(*(bool(flags[0]) for flags in median.sure_and_possible))

    @property
    def limit(self) -> Floats:
        """[sublayer]: 1, or what untrained models reach beyond it."""
        return np.fmax(1.0, self.untrained[:, 2]) if self.rises else np.fmin(1.0, self.untrained[:, 1])

    @property
    def sure_and_possible(self) -> tuple[Flags, Flags]:
        """Where it changes as claimed and beyond an untrained model: with the whole interval, and with any part."""
        return self.beyond(self.intervals)

    def beyond(self, intervals: Floats) -> tuple[Flags, Flags]:
        """The same of other intervals [sublayer, (value, low, high)], such as a control's."""
        _, low, high = intervals.T
        factors = np.log(self.untrained)
        if self.rises:
            return np.asarray(low > self.limit), ~(high <= np.fmax(1.0, np.exp(reached_by(factors, self.twins))))
        reached = np.exp(-reached_by(-factors[:, [0, 2, 1]], self.twins))
        return np.asarray(high < self.limit), ~(low >= np.fmin(1.0, reached))


def _side(sure: bool, possible: bool) -> bool | None:
    return True if sure else None if possible else False


def both_shares(raised: StationChange, lowered: StationChange, up: Floats, down: Floats) -> Interval:
    """The share of sublayers where both intervals lie beyond an untrained model, and where they could: (that share, it
    again, the share that could); NaN of none. `up` and `down` are the intervals of the two factors."""
    known = np.isfinite(up[:, 0]) & np.isfinite(down[:, 0])
    if not known.any():
        return NAN3
    sure, possible = (a & b for a, b in zip(raised.beyond(up), lowered.beyond(down), strict=True))
    share = float(sure[known].mean())
    return share, share, float(possible[known].mean())


def both_part(raised: StationChange, lowered: StationChange, parts: tuple[Sublayer, ...]) -> Part:
    """What the claim says of a block: one step, then the other."""
    name, known = "both at one sublayer", raised.known & lowered.known
    shares = both_shares(raised, lowered, raised.intervals, lowered.intervals)
    statistic = Statistic(SHARE, *shares)
    if not known.any():
        return Part(name, "undecided", "Both at one sublayer: nothing varies there.", statistic, why=Why.UNDEFINED)
    pairs = zip(raised.sure_and_possible, lowered.sure_and_possible, strict=True)
    sure, possible = ((up & down)[known] for up, down in pairs)
    names = [part.name for part, there in zip(parts, known, strict=True) if there]
    reading = f"Both steps happen, beyond untrained models, at {int(sure.sum())} of {len(names)} sublayers"
    reading += f" ({name_sites(flagged(names, sure))})" if 0 < sure.sum() < len(names) else ""
    open_ = int((possible & ~sure).sum())
    reading += f"; at {open_} more the intervals leave it open." if open_ else "."
    if np.isnan(raised.untrained).all():
        return Part(name, "undecided", reading, statistic, why=Why.NO_CONTROL)
    verdict = decided(by_share, (sure,), (possible,))
    ends = (*raised.intervals[known].ravel(), *lowered.intervals[known].ravel())
    return Part(name, verdict, reading, statistic, why=missing_interval(*ends) if verdict == "undecided" else None)


def change_part(name: str, change: StationChange, parts: tuple[Sublayer, ...], what: str, more: str = "") -> Part:
    """`what` names the step in a sentence: 'The norm multiplies isotropy by'."""
    known = change.known
    median = change.median
    statistic = Statistic(f"{name}: factor at the median sublayer", *change.middle[0].tolist())
    if not known.any():
        return Part(name, "undecided", f"{what} no defined factor: nothing varies there.", statistic, why=Why.UNDEFINED)
    sure, possible = (flags[known] for flags in change.sure_and_possible)
    names = [part.name for part, there in zip(parts, known, strict=True) if there]
    reading = (
        f"{what} {say(median, '.2f')} at the median sublayer (untrained: "
        f"{say(median_defined(change.untrained[:, 0]), '.2f')}). It {'rises' if change.rises else 'falls'} at "
        f"{int(change.follows.sum())} of {len(names)} sublayers, and beyond untrained models at {int(sure.sum())}"
    )
    reading += f" (not at {name_sites(flagged(names, ~sure))})." if 0 < sure.sum() < len(names) else "."
    reading += more
    if np.isnan(change.untrained).all():
        return Part(name, "undecided", reading, statistic, why=Why.NO_CONTROL)
    verdict, why = by_layers([_side(*flags) for flags in zip(sure, possible, strict=True)], change.overall)
    if why is not None:
        why = missing_interval(*change.intervals[known].ravel())
    return Part(name, verdict, reading, statistic, why=why)


def step_limit(part: Part, change: StationChange) -> Limit:
    """What the median sublayer is compared with: 1, or what untrained models reach beyond it."""
    (limit,) = replace(change, untrained=change.middle_untrained).limit
    side: Side = "above" if change.rises else "below"
    return Limit(float(limit), side, "beyond untrained models", part=part.name, measured=part.statistic)


@once
def norm_sums(evidence: Evidence) -> Floats:
    """[norm site, document group, (bare, with gain and shift), (tokens, |f|², squared error)]."""
    import torch

    from armillary.probes.sphere.symmetry.rotations import norm_errors

    assert evidence.corpus is not None
    anatomy, groups = evidence.anatomy, evidence.corpus.groups

    def of(site: str) -> Floats:
        sample = evidence[SAMPLES][MODEL].ordinary(anatomy, site)
        x, document = sample.x[:SOME], torch.from_numpy(sample.document[:SOME])
        return norm_errors(anatomy, site, x, document, groups, evidence.seed)

    return np.stack(list(over_sites(evidence.sites, of).values()))


def norm_error(evidence: Evidence, which: int) -> Interval:
    """Error under a rotation at the median norm."""
    from armillary.probes.sphere.symmetry.rotations import RotationErrors

    return across_sites(evidence, norm_sums(evidence)[:, :, which], RotationErrors.error, defined_median)


def norm_part(evidence: Evidence) -> Part:
    """By definition: what is left is float64's rounding."""
    name = "the bare norm treats all directions alike"
    bare, affine = norm_error(evidence, BARE), norm_error(evidence, AFFINE)
    rounding = T.roundings * float(np.finfo(np.float64).eps)
    verdict: Verdict = "supported" if bare[0] <= rounding else "refuted"
    exact = "rounding, as follows from the definition" if bare[0] <= rounding else "more than rounding"
    reading = f"Rotating the bare norm's input rotates its output, with an error of {say(bare[0], '.1g')}: {exact}. "
    reading += f"With gain and shift the error is {say(affine[0], '.2f')}"
    reading += ": these do not treat all axes alike." if affine[0] > 0.01 else "."
    if np.isnan(bare[0]):
        return Part(name, "undecided", reading, why=Why.UNDEFINED)
    return Part(name, verdict, reading, Statistic("error under a rotation, bare norm, median site", *bare))


def sublayer_error(evidence: Evidence, errors: "RotationErrors", kind: str = "") -> Interval:
    """Of the median sublayer, or of the median one of a kind."""
    chosen = [i for i, part in enumerate(errors.parts) if not kind or part.kind == kind]
    if not chosen:
        # A model may have no sublayers of this kind.
        return (np.nan, np.nan, np.nan)
    return evidence.interval(errors.sums[:, chosen], lambda sums: defined_median(errors.error(sums)))


def maps_part(evidence: Evidence, errors: "Mapping[str, RotationErrors]") -> Part:
    """True of any weights that are not made for it."""
    name = "sublayers do not treat all directions alike"
    model = sublayer_error(evidence, errors[MODEL])
    gaussian = evidence.over_twins(lambda arm: sublayer_error(evidence, errors[arm]))
    side = above(model, T.rotation_unlike)
    reading = f"For attention and the feed-forward the error under a rotation is {say(model[0], '.2f')} (median "
    reading += f"sublayer; √2 for an unrelated result); with Gaussian weights it is {say(gaussian[0], '.2f')}, so this "
    reading += "is not learned."
    statistic = Statistic("error under a rotation, median sublayer", *model)
    if np.isnan(model[0]):
        return Part(name, "undecided", "Attention and the feed-forward write nothing.", statistic, why=Why.UNDEFINED)
    verdict = by_side(side)
    return Part(name, verdict, reading, statistic, why=missing_interval(*model) if side is None else None)
