"""How sure is a number? One mean, one spread and one bootstrap over documents, for every probe."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""From sums [draw, …] to values [draw, …]."""
Interval = tuple[float, float, float]
"""Value, low and high end."""
NAN3 = (float("nan"), float("nan"), float("nan"))
ENOUGH_TWINS = 5


def mean(stats: Floats) -> Floats:
    """The mean from (count, sum, …) along the last axis; NaN of nothing.

    >>> mean(np.array([[4.0, 2.0, 1.0]]))
    array([0.5])
    """
    return ratio(stats, 1, 0)


def counted(values: Floats) -> Floats:
    """[…, (count, sum)] of one value each."""
    return np.stack([np.ones_like(values), values], -1)


def triple(values: Floats) -> Interval:
    """An interval from an array of its three numbers."""
    value, low, high = values.tolist()
    return value, low, high


def ratio(stats: Floats, above: int, below: int) -> Floats:
    """One sum over another along the last axis; NaN where the second is not positive."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(stats[..., below] > 0, stats[..., above] / stats[..., below], np.nan))


def spread(stats: Floats) -> Floats:
    """The coefficient of variation from (count, sum, sum of squares); NaN of fewer than two."""
    average = mean(stats)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(stats[..., 2] / stats[..., 0] - average**2, 0)
        return np.where(stats[..., 0] > 1, np.sqrt(variance) / np.maximum(np.abs(average), 1e-300), np.nan)


def median_defined(values: Iterable[float]) -> float:
    """The median of the numbers that are defined; NaN if none is.

    >>> median_defined([1.0, float("nan"), 3.0]), median_defined([])
    (2.0, nan)
    """
    defined = [value for value in values if not np.isnan(value)]
    return float(np.median(defined)) if defined else float("nan")


def intervals(
    stats: Floats,
    statistic: Statistic = mean,
    seed: int = 0,
    draws: int = 400,
    level: float = 0.95,
    every: bool = False,
) -> Floats:
    """[…, (value, low, high)] of a statistic of sums [document group, …], documents drawn alike for every entry.

    A group in which nothing was counted took no part and is not drawn, unless `every` says that all took part. With
    fewer than `documents_least` groups both ends are NaN: a rule must then say `undecided`.
    """
    from armillary.geometry.resample import bootstrap

    value = np.asarray(statistic(stats.sum(0)[None])[0], dtype=np.float64)
    used = stats[(stats != 0).any(tuple(range(1, stats.ndim)))]
    defined = np.isfinite(value)
    if len(used) < T.documents_least or not defined.any():
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)], -1)
    # An entry that nothing was measured for must not cost the others their draws.
    drawn = bootstrap(
        stats if every else used, lambda sums: np.where(defined, statistic(sums), 0.0), draws, seed, level
    )
    return np.stack([value, np.where(defined, drawn.low, np.nan), np.where(defined, drawn.high, np.nan)], -1)


def interval(
    stats: Floats,
    statistic: Statistic = mean,
    seed: int = 0,
    draws: int = 400,
    level: float = 0.95,
    every: bool = False,
) -> Interval:
    """Value, low and high end of a statistic that is one number.

    >>> value, low, high = interval(np.stack([np.ones(50), np.arange(50.0)], 1))
    >>> value, low < value < high
    (24.5, True)
    """
    value, low, high = intervals(stats, statistic, seed, draws, level, every).tolist()
    return value, low, high


def redrawn(count: int, draws: int, seed: int | Sequence[int]) -> Floats:
    """[1 + draw, unit]: every document (window, head) once, then how often each is drawn."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)
    return np.vstack([np.ones(count), drawn])


def interval_of_draws(values: Floats, count: int, around: bool = False) -> Interval:
    """Value and interval from a statistic [1 + draw] under `redrawn` weights of `count` documents.

    For a statistic that is no function of documents' sums. Both ends are NaN with fewer than `documents_least`
    documents, or where most draws are undefined. With `around`, the interval is widened to contain the value.

    >>> interval_of_draws(np.arange(401.0), 100)[0], interval_of_draws(np.arange(401.0), 3)[1]
    (0.0, nan)
    """
    from armillary.geometry.resample import tails

    value, defined = float(values[0]), values[1:][np.isfinite(values[1:])]
    if count < T.documents_least or 2 * len(defined) < len(values) - 1 or not np.isfinite(value):
        return value, float("nan"), float("nan")
    low, high = map(float, np.quantile(defined, tails(count)))
    return (value, min(low, value), max(high, value)) if around else (value, low, high)


def null_interval(drawn: Floats | Sequence[Floats]) -> Interval:
    """The mean of what chance gives, and where 95 % of the draws lie; undefined draws are left out.

    >>> null_interval(np.arange(41.0))
    (20.0, 1.0, 39.0)
    """
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return float(np.nanmean(drawn)), float(low), float(high)


def over_twins(values: Sequence[Interval] | Floats, level: float = 0.95) -> Floats:
    """[…, (value, low, high)] for an untrained model, from [twin, …, (value, low, high)] of several initialisations.

    The value is their mean. The interval is where the statistic of one more initialisation is expected: Student's
    prediction interval over twins, with the twins' own mean interval over documents added in squares. A model that
    was never trained lies above its upper end in 2.5 % of cases. With one twin only the documents count. More than
    five twins do not narrow it: they make its ends steadier, and fewer untrained models pass them.

    >>> over_twins([(1.0, 1.0, 1.0), (3.0, 3.0, 3.0)]).round(2)
    array([  2.  , -20.01,  24.01])
    """
    each = np.asarray(values, dtype=np.float64)
    if not len(each):
        return np.full(3, np.nan)
    value, low, high = np.moveaxis(each.mean(0), -1, 0)
    between = np.zeros_like(value)
    if len(each) > 1:
        between = prediction_factor(min(len(each), ENOUGH_TWINS), level) * each[..., 0].std(0, ddof=1)
    # Ends that no document gave are missing: then only initialisations are known.
    below, above = (np.hypot(between, np.nan_to_num(end)) for end in (value - low, high - value))
    missing = np.isnan(low) & (len(each) == 1)
    return np.stack([value, np.where(missing, np.nan, value - below), np.where(missing, np.nan, value + above)], -1)


@lru_cache(maxsize=64)
def prediction_factor(number: int, level: float = 0.95) -> float:
    """Half the width of Student's prediction interval for one more value, in standard deviations of `number` values.

    >>> [round(prediction_factor(number), 1) for number in (2, 3, 5)]
    [15.6, 5.0, 3.0]
    """
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, number - 1) * np.sqrt(1 + 1 / number))


def reached_by(control: Floats | Interval, twins: int) -> Floats:
    """[…]: what untrained models reach, from [… (value, low, high)] of `over_twins`: below it a model shows no more.

    That is the upper end, as five twins give it. Two or three twins make the interval wide because they are few, not
    because models differ, so they support with their upper end but refute only below this one.

    >>> float(reached_by((1.0, 0.0, 2.0), 5)), round(float(reached_by((1.0, 0.0, 2.0), 2)), 2)
    (2.0, 1.2)
    """
    value, _, high = np.moveaxis(np.asarray(control, dtype=np.float64), -1, 0)
    few = 2 <= twins < ENOUGH_TWINS
    return np.asarray(
        value + (high - value) * (prediction_factor(ENOUGH_TWINS) / prediction_factor(twins) if few else 1)
    )


def surely_reached(control: Floats | Interval, twins: int) -> Floats:
    """[…]: what untrained models reach at the least, from [… (value, low, high)] of `over_twins`.

    Where their upper end lies is itself known from a few twins only. This is the lower end of its interval (97.5 %):
    another choice of twins hardly puts the upper end below it. A rule that supports above `reached_by` and refutes
    below it turns from one to the other with the twins; between both ends it should not decide.

    >>> round(float(surely_reached((1.0, 0.0, 2.0), 5)), 2), float(surely_reached((1.0, 0.0, 2.0), 1))
    (1.3, 2.0)
    """
    value, _, high = np.moveaxis(np.asarray(control, dtype=np.float64), -1, 0)
    factor = _least_factor(twins) / prediction_factor(min(twins, ENOUGH_TWINS)) if twins > 1 else 1.0
    return np.asarray(value + (high - value) * factor)


@lru_cache(maxsize=64)
def _least_factor(number: int, level: float = 0.95) -> float:
    """How many standard deviations of `number` values above their mean the upper end lies at the least: the lower
    confidence bound of a quantile of the normal law."""
    from scipy.stats import nct, norm

    high = (1 + level) / 2
    return float(nct.ppf(1 - high, number - 1, norm.ppf(high) * np.sqrt(number)) / np.sqrt(number))


def p_values(observed: Floats, null: Floats) -> Floats:
    """Share of draws [draw, …] that reach what was observed […], the observation counted among them.

    >>> p_values(np.array([3.0]), np.array([[1.0], [2.0], [4.0]]))
    array([0.5])
    """
    return np.asarray((1 + (null >= observed - 1e-12).sum(0)) / (1 + len(null)))


def discoveries(p: Floats) -> NDArray[np.bool_]:
    """Which heads [layer, head] are significant after correcting for their number (Benjamini–Hochberg)."""
    from armillary.geometry.resample import benjamini_hochberg

    return benjamini_hochberg(p.reshape(-1), T.false_discovery).reshape(p.shape)
