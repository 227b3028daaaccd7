"""Are more coordinates below zero than by chance, and are they gone after the activation?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.filter.by_layer import each_beats, where
from armillary.probes.machinery import Floats, Interval, T, above, all_of, beats, missing_interval
from armillary.probes.machinery.verdicts import by_layers
from armillary.results import Part, Statistic, Why, say


@dataclass(frozen=True, eq=False)
class Shares:
    """One share of coordinates: [layer, (value, low, high)] of the model and of untrained twins, and both means."""

    model: Floats
    untrained: Floats
    mean: Interval
    mean_untrained: Interval
    twins: int

    def each_beats(self, least: float, margin: float = 0.0) -> list[bool | None]:
        return each_beats(self.model, self.untrained, self.twins, least, margin)

    def mean_beats(self, least: float, margin: float = 0.0) -> bool | None:
        return all_of(above(self.mean, least), beats(self.mean, self.mean_untrained, self.twins, margin))

    @property
    def names(self) -> list[str]:
        return [f"L{layer}" for layer in range(len(self.model))]

    def why(self) -> Why:
        """Why nothing was decided."""
        if np.isfinite(self.model).all() and np.isnan(self.untrained).all():
            return Why.NO_CONTROL
        return missing_interval(*self.model.ravel(), *self.untrained.ravel())


def discard_parts(below: Shares, quiet: Shares, gated: bool) -> tuple[Part, ...]:
    return _below(below, gated), _gone(quiet)


def _below(shares: Shares, gated: bool) -> Part:
    beyond = shares.each_beats(0.5 + T.discard_beyond, T.discard_beyond)
    most = max(0.5 + T.discard_beyond, T.discard_most)
    sends, overall = shares.each_beats(most, T.discard_beyond), shares.mean_beats(most, T.discard_beyond)
    verdict, why = by_layers(sends, overall, beyond)
    coordinates = "the gate's coordinates" if gated else "hidden coordinates"
    untrained = say(shares.mean_untrained[0], ".0%") if np.isfinite(shares.mean_untrained[0]) else "not measured"
    text = (
        f"{say(shares.mean[0], '.0%')} of {coordinates} are below zero (chance: 50%; untrained: {untrained}), more "
        f"than two thirds {where(shares.names, sends)}."
    )
    statistic = Statistic("share of coordinates below zero, mean over layers", *shares.mean)
    return Part("most are below zero", verdict, text, statistic, why=why and shares.why())


def _gone(shares: Shares) -> Part:
    gone = shares.each_beats(T.discard_gone)
    verdict, why = by_layers(gone, shares.mean_beats(T.discard_gone))
    untrained = ""
    if np.isfinite(shares.mean_untrained[0]):
        untrained = f" (untrained: {say(shares.mean_untrained[0], '.0%')})"
    text = (
        f"{say(shares.mean[0], '.0%')} are below 1% of their token's peak after the activation{untrained}, more than "
        f"half {where(shares.names, gone)}."
    )
    statistic = Statistic("share of coordinates below 1 % of the peak, mean over layers", *shares.mean)
    return Part("they are gone", verdict, text, statistic, why=why and shares.why())
