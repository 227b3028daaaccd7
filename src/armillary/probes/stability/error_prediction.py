"""How well does a score predict which tokens have a large loss, compared with frequency and position?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.probes.machinery import NAN3, Flags, Floats, Interval, Ints, T

DRAWS = 300
FREQUENCY, ENTROPY = "frequency and place", "entropy of the prediction"


@dataclass(frozen=True, eq=False)
class ScoredTokens:
    """One number per token [n]; scores are ranks within one half of the documents, fitted on the other half."""

    sites: tuple[str, ...]
    scores: Mapping[tuple[str, str], Floats]
    loss: Floats
    entropy: Floats
    rare: Floats
    """−log of the token's frequency, estimated by the model's mean prediction over the other half."""
    rare_next: Floats
    """The same for the next token."""
    place: Floats
    group: Ints
    fold: Ints

    @cached_property
    def hard(self) -> Flags:
        """The quarter of the tokens with the largest loss."""
        return np.asarray(self.loss > np.quantile(self.loss, 0.75))

    @cached_property
    def known(self) -> Floats:
        """[n, feature]: what is known of a token without its state."""
        return np.stack([self.rare, self.rare_next, self.rare**2, self.rare_next**2, self.place], 1)

    @property
    def enough(self) -> bool:
        """Do both halves hold enough tokens, hard ones and others?"""
        halves = [self.hard[self.fold == half] for half in (0, 1)]
        return all(len(h) >= T.tokens_least and 0 < h.sum() < len(h) for h in halves)


@dataclass(frozen=True)
class ScoreRow:
    """How well one score predicts errors: AUC, AUC beyond frequency's, what it adds to frequency, and its rarity."""

    name: str
    auc: Interval
    beats: Interval
    adds: Interval
    rarity: float


class ErrorPrediction:
    """AUCs of scores for the hard tokens, on the text and on bootstrap draws of its documents."""

    def __init__(self, tokens: ScoredTokens, seed: int) -> None:
        self.tokens = tokens
        groups = np.unique(tokens.group)
        drawn = np.random.default_rng(seed).multinomial(len(groups), np.full(len(groups), 1 / len(groups)), DRAWS)
        # The first row is the text itself.
        counts = np.concatenate([np.ones((1, len(groups))), drawn])
        self.weights = counts[:, np.searchsorted(groups, tokens.group)]
        self.few = len(groups) < T.documents_least
        self.known = self.auc(crossed(tokens.known, tokens))

    def auc(self, score: Floats) -> Floats:
        """[1 + draws]: the AUC on the text and on each draw."""
        from armillary.geometry.resample import weighted_auc

        return np.asarray(weighted_auc(score, self.tokens.hard, self.weights))

    def interval(self, values: Floats) -> Interval:
        low, high = (np.nan, np.nan) if self.few else np.nanquantile(values[1:], [0.025, 0.975])
        return float(values[0]), float(low), float(high)

    def adds(self, score: Floats) -> Interval:
        """By how much the score raises the AUC of what is known; a score with a negative weight adds nothing."""
        together = np.concatenate([self.tokens.known, score[:, None]], 1)
        return self.interval(self.auc(crossed(together, self.tokens, rising=True)) - self.known)

    def rows(self) -> list[ScoreRow]:
        """Every score at every site, then the entropy, then frequency and place."""
        tokens = self.tokens
        scores = {f"{score} at {site}": values for (site, score), values in tokens.scores.items()}
        rows = []
        for name, values in {**scores, f"{ENTROPY} at the output": tokens.entropy}.items():
            auc = self.auc(values)
            intervals = self.interval(auc), self.interval(auc - self.known), self.adds(values)
            rows.append(ScoreRow(name, *intervals, spearman(values, tokens.rare)))
        rarity = spearman(crossed(tokens.known, tokens), tokens.rare)
        return [*rows, ScoreRow(FREQUENCY, self.interval(self.known), NAN3, NAN3, rarity)]


def crossed(features: Floats, tokens: ScoredTokens, rising: bool = False) -> Floats:
    """Log odds of `hard` by a logistic fit on features [n, f]: each half predicted by the other half's fit, as ranks.

    `rising`: the last feature is used only with a positive weight.
    """
    scores = np.zeros(len(features))
    for half in (0, 1):
        mine = tokens.fold == half
        x, y = _standardised(features, ~mine), tokens.hard[~mine]
        weights = logistic(x[~mine], y)
        if rising and weights[-1] <= 0:
            x = x[:, :-1]
            weights = logistic(x[~mine], y)
        scores[mine] = ranked(x[mine] @ weights[1:])
    return scores


def _standardised(features: Floats, fit: Flags) -> Floats:
    return np.asarray((features - features[fit].mean(0)) / np.maximum(features[fit].std(0), 1e-12))


def logistic(x: Floats, y: Flags) -> Floats:
    """Intercept and weights of a logistic fit of y [n] on x [n, f], with a prior worth one token per feature.

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
    """Ranks from 0 to 1; ties share their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values) / len(values))


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; 0 if one of them is constant."""
    ranks = [ranked(v) - ranked(v).mean() for v in (a, b)]
    scale = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else 0.0
