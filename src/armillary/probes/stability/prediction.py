"""How well does a score foretell which tokens are hard, beside what is known of them without looking at their states?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.probes.machinery.evidence import Flags, Floats, Ints
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.stability.said import Interval

DRAWS = 300


@dataclass(frozen=True, eq=False)
class Strayed:
    """One number a token [n]; scores are ranks within a half, fitted on the other."""

    sites: tuple[str, ...]
    scores: Mapping[tuple[str, str], Floats]
    loss: Floats
    entropy: Floats
    rare: Floats
    """−log of how frequent the model takes the token itself to be, by its mean prediction over the other half."""
    rare_next: Floats
    """The same of the token that follows."""
    place: Floats
    group: Ints
    fold: Ints

    @cached_property
    def hard(self) -> Flags:
        """The quarter of the tokens with the largest loss."""
        return np.asarray(self.loss > np.quantile(self.loss, 0.75))

    @cached_property
    def known(self) -> Floats:
        """[n, feature]: what is known of a token without looking at its state."""
        return np.stack([self.rare, self.rare_next, self.rare**2, self.rare_next**2, self.place], 1)

    @property
    def enough(self) -> bool:
        """Do both halves hold enough tokens, of either kind?"""
        halves = [self.hard[self.fold == half] for half in (0, 1)]
        return all(len(h) >= T.tokens_least and 0 < h.sum() < len(h) for h in halves)


class Trial:
    """One model's tokens, their documents drawn again and again, and the baseline's AUC on every draw."""

    def __init__(self, tokens: Strayed, seed: int) -> None:
        self.tokens = tokens
        groups = np.unique(tokens.group)
        drawn = np.random.default_rng(seed).multinomial(len(groups), np.full(len(groups), 1 / len(groups)), DRAWS)
        # The text itself first, then its draws.
        counts = np.concatenate([np.ones((1, len(groups))), drawn])
        self.weights = counts[:, np.searchsorted(groups, tokens.group)]
        self.few = len(groups) < T.documents_least
        self.known = self.auc(crossed(tokens.known, tokens))

    def auc(self, score: Floats) -> Floats:
        """AUC on the text and on each draw."""
        from armillary.geometry.resample import weighted_auc

        return np.asarray(weighted_auc(score, self.tokens.hard, self.weights))

    def said(self, values: Floats) -> Interval:
        low, high = (np.nan, np.nan) if self.few else np.nanquantile(values[1:], [0.025, 0.975])
        return float(values[0]), float(low), float(high)

    def adds(self, score: Floats) -> Interval:
        """What the score adds to the AUC of what is known; one that speaks against errors adds nothing."""
        together = np.concatenate([self.tokens.known, score[:, None]], 1)
        return self.said(self.auc(crossed(together, self.tokens, rising=True)) - self.known)


def crossed(features: Floats, tokens: Strayed, rising: bool = False) -> Floats:
    """Log odds of `hard` by a logistic fit on features [n, f], each half foretold by the other's, ranked within the half.

    `rising`: the last feature counts only with a positive weight.
    """
    made = np.zeros(len(features))
    for half in (0, 1):
        mine = tokens.fold == half
        x, y = _standardised(features, ~mine), tokens.hard[~mine]
        weights = logistic(x[~mine], y)
        if rising and weights[-1] <= 0:
            x = x[:, :-1]
            weights = logistic(x[~mine], y)
        made[mine] = ranked(x[mine] @ weights[1:])
    return made


def _standardised(features: Floats, fit: Flags) -> Floats:
    return np.asarray((features - features[fit].mean(0)) / np.maximum(features[fit].std(0), 1e-12))


def logistic(x: Floats, y: Flags) -> Floats:
    """Intercept and weights of a logistic fit of y [n] on x [n, f], with a prior worth one token a feature.

    >>> x = np.random.default_rng(0).standard_normal((4000, 1))
    >>> y = np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-1 - 2 * x[:, 0]))
    >>> np.round(logistic(x, y), 1)
    array([1., 2.])
    """
    design = np.column_stack([np.ones(len(x)), x])
    ridge = np.diag([1e-6, *np.ones(x.shape[1])])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        likely = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (y - likely) - ridge @ weights
        weights = weights + np.linalg.solve((design.T * (likely * (1 - likely))) @ design + ridge, slope)
    return weights


def ranked(values: Floats) -> Floats:
    """Ranks from 0 to 1, those that tie alike."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values) / len(values))


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; 0 where one of them does not vary."""
    ranks = [ranked(v) - ranked(v).mean() for v in (a, b)]
    scale = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else 0.0
