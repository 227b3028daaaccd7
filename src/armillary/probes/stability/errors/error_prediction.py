"""How well do scores of a token predict that its loss is large, compared with what is known at its place?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.probes.machinery import NAN3, Flags, Floats, Interval, Ints, T, interval_of_draws, redrawn
from armillary.probes.stability.errors.sure_weights import SureFit, left_out, sure

DRAWS = 400
KNOWN, ENTROPY = "rarity and place", "entropy of the prediction"
HEAD_SCORES = ("entropy of attention", "attention to the first token", "length of the write")


@dataclass(frozen=True, eq=False)
class ScoredTokens:
    """One number per token [n]; scores are ranks within one half of the documents, fitted on the other half."""

    sites: tuple[str, ...]
    scores: Mapping[tuple[str, str], Floats]
    """(site, name) of how far a state lies off the manifold; ('heads', name) of how unusual the heads are."""
    loss: Floats
    entropy: Floats
    rare: Floats
    """−log of the token's frequency, estimated by the model's mean prediction over the other half."""
    rare_before: Floats
    """The same for the token before it."""
    rare_next: Floats
    """The same for the next token: for a figure only, since nothing at this place knows it."""
    place: Floats
    group: Ints
    fold: Ints

    @cached_property
    def hard(self) -> Flags:
        """The quarter of the tokens with the largest loss, without those that were predicted after all."""
        return np.asarray(self.loss > max(np.quantile(self.loss, 0.75), -np.log(T.errors_predicted)))

    @cached_property
    def known(self) -> Floats:
        """[n, feature]: what is known at a token's place without its state."""
        return np.stack([self.rare, self.rare_before, self.rare**2, self.rare_before**2, self.place], 1)

    @property
    def enough(self) -> bool:
        """Do both halves hold enough tokens, hard ones and others?"""
        if len(self.loss) < 2 * T.tokens_least:
            return False
        halves = [self.hard[self.fold == half] for half in (0, 1)]
        return all(len(h) >= T.tokens_least and 0 < h.sum() < len(h) for h in halves)

    def matrix(self, heads: bool | None = None) -> Floats:
        """[n, score]: all scores, or only those of heads, or only those of states."""
        return np.stack([v for (site, _), v in self.scores.items() if heads in (None, site == "heads")], 1)


@dataclass(frozen=True)
class ScoreRow:
    """How well one score predicts errors: its AUC, AUC beyond that of the entropy, what it adds to what is known, and
    its rank correlation with rarity."""

    name: str
    auc: Interval
    beside: Interval
    adds: Interval
    rarity: float


class ErrorPrediction:
    """AUCs of scores for the hard tokens, on the text and on bootstrap draws of its documents."""

    def __init__(self, tokens: ScoredTokens, seed: int) -> None:
        self.tokens = tokens
        groups = np.unique(tokens.group)
        self.weights = redrawn(len(groups), DRAWS, seed)[:, np.searchsorted(groups, tokens.group)]
        self.groups = len(groups)
        self.known = self.auc(crossed(tokens.known, tokens).order)
        self.uncertain = self.auc(tokens.entropy)

    def auc(self, score: Floats) -> Floats:
        """[1 + draws]: the AUC on the text and on each draw."""
        from armillary.geometry.resample import weighted_auc

        return np.asarray(weighted_auc(score, self.tokens.hard, self.weights))

    def interval(self, values: Floats) -> Interval:
        """Value and expanded percentile interval over documents; NaN ends with too few of them."""
        return interval_of_draws(values, self.groups)

    def loss(self) -> Interval:
        """Nats per token."""
        return self.interval(self.weights @ self.tokens.loss / np.maximum(self.weights.sum(1), 1e-300))

    def adds(self, scores: Floats) -> Interval:
        """By how much scores [n] or [n, score] raise the AUC of what is known. Those that the fit is not sure of add
        nothing; the interval reaches up to what they may add."""
        scores = scores.reshape(len(scores), -1)
        together = np.concatenate([self.tokens.known, scores], 1)
        fit = crossed(together, self.tokens, rising=scores.shape[1])
        value, low, high = self.interval(self.auc(fit.order) - self.known)
        # Draws of documents know nothing of scores that were left out: without this the interval could be [0, 0].
        return value, low, value + float(np.hypot(high - value, fit.may_add))

    def beside_entropy(self, scores: Floats) -> Interval:
        """AUC of scores [n, score] in one fit, minus the AUC of the entropy."""
        return self.interval(self.auc(crossed(scores, self.tokens, rising=scores.shape[1]).order) - self.uncertain)

    def rows(self) -> list[ScoreRow]:
        """Every score, then the entropy, then what is known."""
        tokens = self.tokens
        scores = {f"{score} at {site}" if site != "heads" else f"{score}, heads": v for (site, score), v in self._all()}
        rows = []
        for name, values in {**scores, f"{ENTROPY} at the output": tokens.entropy}.items():
            auc = self.auc(values)
            beside = self.interval(auc - self.uncertain) if name in scores else NAN3
            rows.append(ScoreRow(name, self.interval(auc), beside, self.adds(values), spearman(values, tokens.rare)))
        fit = crossed(tokens.known, tokens).order
        beside = self.interval(self.known - self.uncertain)
        return [*rows, ScoreRow(KNOWN, self.interval(self.known), beside, NAN3, spearman(fit, tokens.rare))]

    def _all(self) -> Sequence[tuple[tuple[str, str], Floats]]:
        return list(self.tokens.scores.items())


@dataclass(frozen=True, eq=False)
class Crossed:
    """Tokens in the order of their log odds of being hard, each half by the other half's fit."""

    order: Floats
    """[n]: ranks within the half."""
    may_add: float
    """AUC that one of the scores left out may add at most."""


def crossed(features: Floats, tokens: ScoredTokens, rising: int = 0) -> Crossed:
    """A logistic fit of `hard` on features [n, f], in which only those that it is sure of are used (`sure`), the last
    `rising` of them only with positive weights.

    Others rank tokens by chance: in the half that they were not fitted on, the AUC of two such orders differs by more
    than the margin.
    """
    order, fits = np.zeros(len(features)), []
    for half in (0, 1):
        held_out = tokens.fold == half
        x = _standardised(features, ~held_out)
        fitted = x[~held_out], tokens.hard[~held_out], tokens.group[~held_out]
        used, weights = sure(*fitted, rising)
        order[held_out] = ranked(x[held_out][:, used] @ weights)
        fits.append(SureFit(*fitted, used))
    return Crossed(order, left_out(fits, rising))


def _standardised(features: Floats, fit: Flags) -> Floats:
    return np.asarray((features - features[fit].mean(0)) / np.maximum(features[fit].std(0), 1e-12))


def ranked(values: Floats) -> Floats:
    """Ranks from 0 to 1; ties share their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values) / len(values))


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; 0 if one of them is constant."""
    ranks = [ranked(v) - ranked(v).mean() for v in (a, b)]
    scale = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else 0.0
