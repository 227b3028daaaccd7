"""Which weights of a logistic fit are clear, and how much could those add that are not?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.probes.machinery import Flags, Floats, Ints

# The share that an interval of 95 % leaves on one side.
_TAIL = 0.025


def sure(x: Floats, y: Flags, group: Ints, rising: int) -> tuple[Ints, Floats]:
    """Which features [n, f] a logistic fit is sure of, and their weights: the least sure is left out, again and again.

    Sure means: the 95 % interval of the weight over documents lies beside 0. Of the last `rising` features it must lie
    above 0, at a level that corrects for their number, because any of them may be sure by chance.
    """
    from scipy.special import stdtrit

    used = np.arange(x.shape[1])
    level = np.where(used < x.shape[1] - rising, _TAIL, _TAIL / max(1, rising))
    while True:
        weights = logistic(x[:, used], y)
        errors, documents = _standard_errors(x[:, used], y, weights, group)
        scored, reach = used >= x.shape[1] - rising, weights[1:] / errors
        spare = np.where(scored, reach, np.abs(reach)) - stdtrit(documents - 1, 1 - level[used])
        # Scores first: what is known at a place is left out only if it says nothing beside the scores that stay.
        unclear = spare <= 0
        candidates = np.flatnonzero(scored & unclear if (scored & unclear).any() else unclear)
        if not len(candidates):
            return used, weights[1:]
        used = np.delete(used, candidates[spare[candidates].argmin()])


def _standard_errors(x: Floats, y: Flags, weights: Floats, group: Ints) -> tuple[Floats, int]:
    """Of the weights of features [n, f], over documents; and the number of documents."""
    design = np.column_stack([np.ones(len(x)), x])
    likely = _likely(design @ weights)
    _, document = np.unique(group, return_inverse=True)
    count = int(document.max()) + 1
    # Tokens of one document are not independent: its slopes are added before they are squared.
    slopes = (document == np.arange(count)[:, None]).astype(np.float64) @ (design * (y - likely)[:, None])
    inverse = np.linalg.inv((design.T * (likely * (1 - likely))) @ design + _prior(x.shape[1]))
    variance = np.square(slopes @ inverse).sum(0) * count / max(1, count - 1)
    return np.sqrt(np.maximum(variance[1:], 1e-300)), count


@dataclass(frozen=True, eq=False)
class SureFit:
    """A logistic fit of y [n] on those features [n, f] that it is sure of."""

    x: Floats
    y: Flags
    group: Ints
    used: Ints

    def weight(self, score: int) -> tuple[float, float, int]:
        """Weight and standard error of a feature beside those that are used, and the number of documents."""
        columns = np.append(self.used, score)
        weights = logistic(self.x[:, columns], self.y)
        errors, documents = _standard_errors(self.x[:, columns], self.y, weights, self.group)
        return float(weights[-1]), float(errors[-1]), documents

    def gain(self, score: int, weight: float) -> float:
        """AUC that a feature adds if this is its weight, for tokens that are hard as often as the fit then says."""
        together = self._log_odds + weight * _beside(self.x[:, self.used], self.x[:, score], self._log_odds)
        return _expected_auc(together, together) - _expected_auc(self._log_odds, together)

    @cached_property
    def _log_odds(self) -> Floats:
        x = self.x[:, self.used]
        return np.asarray(np.column_stack([np.ones(len(x)), x]) @ logistic(x, self.y))


def left_out(fits: Sequence[SureFit], rising: int) -> float:
    """AUC that one of the last `rising` features may add where it is not used: the most of any, each at the upper end
    of the 95 % interval of its weight, mean of the fits. (The best of them lies below its own end in 97.5 % of cases,
    so that their number needs no correction.)"""
    from scipy.special import stdtrit

    features, most = fits[0].x.shape[1], 0.0
    for score in range(features - rising, features):
        without = [fit for fit in fits if score not in fit.used]
        if not without:
            continue
        weights, errors, documents = map(np.array, zip(*(fit.weight(score) for fit in without), strict=True))
        freedom = documents.sum() - len(without)
        upper = weights.mean() + stdtrit(freedom, 1 - _TAIL) * np.linalg.norm(errors) / len(without)
        if upper > 0:
            most = max(most, sum(fit.gain(score, upper) for fit in without) / len(fits))
    return most


def _beside(x: Floats, score: Floats, log_odds: Floats) -> Floats:
    """What features [n, f] do not say of a score [n], each token weighted as in the fit with these log odds."""
    design = np.column_stack([np.ones(len(x)), x])
    likely = _likely(log_odds)
    root = np.sqrt(likely * (1 - likely))
    weights = np.linalg.lstsq(design * root[:, None], score * root, rcond=None)[0]
    return np.asarray(score - design @ weights)


def _expected_auc(score: Floats, log_odds: Floats) -> float:
    """The AUC of a score for tokens that are hard with these log odds."""
    from armillary.geometry.resample import weighted_auc

    likely = _likely(log_odds)
    labels = np.repeat([True, False], len(score))
    return float(weighted_auc(np.tile(score, 2), labels, np.concatenate([likely, 1 - likely])))


def _likely(log_odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -30, 30))))


def logistic(x: Floats, y: Flags) -> Floats:
    """Intercept and weights of a logistic fit of y [n] on x [n, f], with a prior worth one token per feature.

    >>> x = np.random.default_rng(0).standard_normal((4000, 1))
    >>> y = np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-1 - 2 * x[:, 0]))
    >>> np.round(logistic(x, y), 1)
    array([1., 2.])
    """
    design = np.column_stack([np.ones(len(x)), x])
    ridge = _prior(x.shape[1])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        likely = _likely(design @ weights)
        slope = design.T @ (y - likely) - ridge @ weights
        step = np.linalg.solve((design.T * (likely * (1 - likely))) @ design + ridge, slope)
        weights = weights + step
        # Newton's method squares the error at every step: the next one would be below rounding.
        if np.abs(step).max() <= 1e-9:
            break
    return weights


def _prior(features: int) -> Floats:
    return np.diag([1e-6, *np.ones(features)])
