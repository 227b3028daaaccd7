"""Are more coordinates below zero than by chance, and are they gone after the activation?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.filter.by_layer import by_layers, each_above, where
from armillary.probes.machinery import Floats, Interval, T, above, missing_interval
from armillary.results import Part, Statistic, Why, say


@dataclass(frozen=True, eq=False)
class Shares:
    """One share of coordinates: [layer, (value, low, high)] of the model and of untrained twins, and both means."""

    model: Floats
    untrained: Floats
    mean: Interval
    mean_untrained: Interval

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
    chance = np.maximum(0.5, shares.untrained[:, 2]) + T.discard_beyond
    beyond = each_above(shares.model, chance)
    sends = each_above(shares.model, np.maximum(chance, T.discard_most))
    # NumPy's maximum keeps a NaN: without untrained models nothing is decided.
    overall = float(np.maximum(np.maximum(0.5, shares.mean_untrained[2]) + T.discard_beyond, T.discard_most))
    verdict, why = by_layers(sends, above(shares.mean, overall), beyond)
    coordinates = "the gate's coordinates" if gated else "hidden coordinates"
    untrained = say(shares.mean_untrained[0], ".0%") if np.isfinite(shares.mean_untrained[0]) else "not measured"
    text = (
        f"{say(shares.mean[0], '.0%')} of {coordinates} are below zero (chance: 50%; untrained: {untrained}), more "
        f"than two thirds {where(shares.names, sends)}."
    )
    statistic = Statistic("share of coordinates below zero, mean over layers", *shares.mean)
    return Part("most are below zero", verdict, text, statistic, why=why and shares.why())


def _gone(shares: Shares) -> Part:
    gone = each_above(shares.model, np.maximum(T.discard_gone, shares.untrained[:, 2]))
    overall = float(np.maximum(T.discard_gone, shares.mean_untrained[2]))
    verdict, why = by_layers(gone, above(shares.mean, overall))
    untrained = ""
    if np.isfinite(shares.mean_untrained[0]):
        untrained = f" (untrained: {say(shares.mean_untrained[0], '.0%')})"
    text = (
        f"{say(shares.mean[0], '.0%')} are below 1% of their token's peak after the activation{untrained}, more than "
        f"half {where(shares.names, gone)}."
    )
    statistic = Statistic("share of coordinates below 1 % of the peak, mean over layers", *shares.mean)
    return Part("they are gone", verdict, text, statistic, why=why and shares.why())
