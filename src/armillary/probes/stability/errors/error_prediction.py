"""How well do scores of a token predict that its loss is large, compared with what is known at its place?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.probes.machinery import NAN3, Flags, Floats, Interval, Ints, T

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
        drawn = np.random.default_rng(seed).multinomial(len(groups), np.full(len(groups), 1 / len(groups)), DRAWS)
        # The first row is the text itself.
        counts = np.concatenate([np.ones((1, len(groups))), drawn])
        self.weights = counts[:, np.searchsorted(groups, tokens.group)]
        self.groups = len(groups)
        self.known = self.auc(crossed(tokens.known, tokens))
        self.uncertain = self.auc(tokens.entropy)

    def auc(self, score: Floats) -> Floats:
        """[1 + draws]: the AUC on the text and on each draw."""
        from armillary.geometry.resample import weighted_auc

        return np.asarray(weighted_auc(score, self.tokens.hard, self.weights))

    def interval(self, values: Floats) -> Interval:
        """Value and expanded percentile interval over documents; NaN ends with too few of them."""
        from armillary.geometry.resample import tails

        if self.groups < T.documents_least:
            return float(values[0]), np.nan, np.nan
        low, high = np.nanquantile(values[1:], tails(self.groups))
        return float(values[0]), float(low), float(high)

    def adds(self, scores: Floats) -> Interval:
        """By how much scores [n] or [n, score] raise the AUC of what is known; those that the fit is not sure of
        add nothing."""
        scores = scores.reshape(len(scores), -1)
        together = np.concatenate([self.tokens.known, scores], 1)
        return self.interval(self.auc(crossed(together, self.tokens, rising=scores.shape[1])) - self.known)

    def beside_entropy(self, scores: Floats) -> Interval:
        """AUC of scores [n, score] in one fit, minus the AUC of the entropy."""
        return self.interval(self.auc(crossed(scores, self.tokens, rising=scores.shape[1])) - self.uncertain)

    def rows(self) -> list[ScoreRow]:
        """Every score, then the entropy, then what is known."""
        tokens = self.tokens
        scores = {f"{score} at {site}" if site != "heads" else f"{score}, heads": v for (site, score), v in self._all()}
        rows = []
        for name, values in {**scores, f"{ENTROPY} at the output": tokens.entropy}.items():
            auc = self.auc(values)
            beside = self.interval(auc - self.uncertain) if name in scores else NAN3
            rows.append(ScoreRow(name, self.interval(auc), beside, self.adds(values), spearman(values, tokens.rare)))
        fit = crossed(tokens.known, tokens)
        beside = self.interval(self.known - self.uncertain)
        return [*rows, ScoreRow(KNOWN, self.interval(self.known), beside, NAN3, spearman(fit, tokens.rare))]

    def _all(self) -> Sequence[tuple[tuple[str, str], Floats]]:
        return list(self.tokens.scores.items())


def crossed(features: Floats, tokens: ScoredTokens, rising: int = 0) -> Floats:
    """Log odds of `hard` by a logistic fit on features [n, f]: each half predicted by the other half's fit, as ranks.

    Only features that the fit is sure of are used (`sure`), the last `rising` of them only with positive weights.
    Others rank tokens by chance: in the half that they were not fitted on, the AUC of two such orders differs by more
    than the margin.
    """
    scores = np.zeros(len(features))
    for half in (0, 1):
        mine = tokens.fold == half
        x = _standardised(features, ~mine)
        used, weights = sure(x[~mine], tokens.hard[~mine], tokens.group[~mine], rising)
        scores[mine] = ranked(x[mine][:, used] @ weights)
    return scores


def sure(x: Floats, y: Flags, group: Ints, rising: int) -> tuple[Ints, Floats]:
    """Which features [n, f] a logistic fit is sure of, and their weights: the least sure is left out, again and again.

    Sure means: the 95 % interval of the weight over documents lies beside 0. Of the last `rising` features it must lie
    above 0, at a level that corrects for their number, because any of them may be sure by chance.
    """
    from scipy.stats import t as student

    used, level = (
        np.arange(x.shape[1]),
        0.025 / np.where(np.arange(x.shape[1]) < x.shape[1] - rising, 1, max(1, rising)),
    )
    while True:
        weights = logistic(x[:, used], y)
        reach, documents = _errors_away(x[:, used], y, weights, group)
        scored = used >= x.shape[1] - rising
        spare = np.where(scored, reach, np.abs(reach)) - student.ppf(1 - level[used], documents - 1)
        # Scores first: what is known at a place is left out only if it says nothing beside the scores that stay.
        candidates = (
            np.flatnonzero(scored & (spare <= 0)) if (scored & (spare <= 0)).any() else np.flatnonzero(spare <= 0)
        )
        if not len(candidates):
            return used, weights[1:]
        used = np.delete(used, candidates[spare[candidates].argmin()])


def _errors_away(x: Floats, y: Flags, weights: Floats, group: Ints) -> tuple[Floats, int]:
    """How many standard errors over documents each weight lies above 0, and the number of documents."""
    design = np.column_stack([np.ones(len(x)), x])
    likely = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
    _, document = np.unique(group, return_inverse=True)
    count = int(document.max()) + 1
    # Tokens of one document are not independent: its slopes are added before they are squared.
    slopes = np.zeros((count, design.shape[1]))
    np.add.at(slopes, document, design * (y - likely)[:, None])
    inverse = np.linalg.inv((design.T * (likely * (1 - likely))) @ design + _prior(x.shape[1]))
    variance = np.square(slopes @ inverse).sum(0) * count / max(1, count - 1)
    return weights[1:] / np.sqrt(np.maximum(variance[1:], 1e-300)), count


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
    ridge = _prior(x.shape[1])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        likely = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (y - likely) - ridge @ weights
        weights = weights + np.linalg.solve((design.T * (likely * (1 - likely))) @ design + ridge, slope)
    return weights


def _prior(features: int) -> Floats:
    return np.diag([1e-6, *np.ones(features)])


def ranked(values: Floats) -> Floats:
    """Ranks from 0 to 1; ties share their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values) / len(values))


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; 0 if one of them is constant."""
    ranks = [ranked(v) - ranked(v).mean() for v in (a, b)]
    scale = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else 0.0
