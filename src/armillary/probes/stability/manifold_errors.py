"""Are a model's errors states that lie off the manifold, or that heads process unusually?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, T, undecided, weakest
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.stability.errors.error_parts import Gains, error_parts, loss_limit
from armillary.probes.stability.errors.error_prediction import (
    ENTROPY,
    HEAD_SCORES,
    KNOWN,
    ErrorPrediction,
    ScoredTokens,
    ScoreRow,
)
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

SCORES = ("Mahalanobis distance", "angle to the mean", "distance to the tenth neighbour")
DECILES = 10


@dataclass(frozen=True)
class ManifoldErrors:
    """Scores of states and of heads as predictors of a token's loss, beside what is known and the entropy."""

    claim: ClassVar[Claim] = Claim(
        id="manifold.errors",
        chapter="D",
        statement="Model errors are states that fall off the learned manifold, or that heads process improperly.",
        source="S3 R",
        question=(
            "Where the model predicts badly, is its state unusual, or are its heads? And do such signs tell more "
            "than how rare the word is?"
        ),
        kind="learned",
        definition=(
            "Do unusual states, or unusual heads, show where the model is wrong? An error is a token in the quarter "
            "with the largest next-token loss, unless the model gave the next token more than "
            f"{T.errors_predicted:.0%} of the probability. First tokens are left out.\n"
            "Three scores measure how far y, a norm's output, lies off the manifold, at the last norm and at a "
            "middle one: its Mahalanobis distance (covariance shrunk by Ledoit and Wolf), its angle to the mean, and "
            "its distance to the tenth neighbour.\n"
            "Three more measure how unusual the heads of four layers are: entropy of attention, attention to the "
            "first token, and length of the write, as z-scores (root mean square over heads). Each half of the "
            "documents is scored by a fit on the other half.\n"
            "The baseline is what is known at the token's place without its state: the position, and the rarity of "
            "the token and of the one before it (by the model's mean prediction over the other half), in a logistic "
            "fit to the other half of the documents.\n"
            "The statistic is the AUC that all scores together add to the baseline. The AUC is how often an error is "
            "ranked above another token: 0.5 by chance, 1 always.\n"
            "A score counts only if its weight is clearly positive in the half it was fitted on (95 %, over "
            "documents, corrected for the number of scores), because the claim says that errors lie further off. A "
            "score that is left out may still add something, so the statistic's interval reaches up to what one of "
            "them would add with its weight at the upper end of its own 95 % interval. A feature of the baseline "
            "counts if its weight is clearly not 0.\n"
            "The score to compare with is the entropy of the prediction: what the model itself knows of its errors."
        ),
        control=(
            "rarity and place; the entropy of the prediction; the scores of other tokens; random initialisation "
            "(five untrained twins of a small model, two with --quick)"
        ),
        rule=(
            "Two parts; the weaker decides. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, the model predicts.\n"
            "Supported if its loss lies below the lower end of what untrained models have.\n"
            "Refuted if its loss lies above what untrained models reach: a model that predicts nothing has no "
            "errors.\n"
            "Part 2, off the manifold, or unusual heads. The scores predict errors if they add more than "
            f"{T.errors_margin} of AUC to the baseline, and more than the upper end of what they add in untrained "
            f"models. They explain errors if their own AUC, without the baseline, is less than {T.errors_margin} "
            "below that of the entropy.\n"
            "Supported if they predict and explain errors.\n"
            f"Qualified if they predict errors, but their own AUC is more than {T.errors_margin} below that of the "
            "entropy.\n"
            f"Refuted if they add less than {T.errors_margin}, or less than they reach in untrained models.\n"
            "Each part is undecided otherwise: an interval spans its limit, or there are no untrained models. The "
            "claim is undecided with too little text, or if the model predicts no next token.\n"
            "S3 says 'or', so all scores decide together. States alone and heads alone are two parts of our own, by "
            "the same rule, and decide nothing."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The baseline knew how rare the next token is, which nothing at that place knows: not even the "
                "model's own entropy could have passed. It now holds what is known there, and the entropy is the "
                "score to compare with. Unusual heads, which the source names as well, are scored too. Untrained "
                "models are part of the rule, and intervals are expanded percentiles.",
            ),
            RuleChange(
                "2026-11-18",
                "Five untrained models, where three had been. Five is what the rules mean by 'more than untrained'; "
                "the interval of three is five standard deviations wide on either side, that of five is three.",
            ),
            RuleChange(
                "2026-11-18",
                "A planted model whose errors are explained by rare words was undecided in 3 of 32 draws. In two it "
                "erred less often than on a quarter of the tokens: the quarter with the largest loss then held all "
                "occurrences of one word that it predicted with 98 %. Such tokens are no errors now. In the third, "
                "scores with weights as small as chance reordered tokens that the baseline cannot tell apart, and the "
                "two orders differed by 0.014 of AUC in the other half. Weights that are not clear are left out now.",
            ),
            RuleChange(
                "2026-11-18",
                "Without a clear weight the interval was [0, 0], and the claim was refuted however short the text. On "
                "the built-in Llama with 2500 tokens of an encyclopaedia a score left out may add 0.033, more than the "
                "margin. What such a score may add is part of the interval now.",
            ),
            RuleChange(
                "2026-11-18",
                "The model must predict better than untrained ones. On an untrained Llama of three layers, with an "
                "encyclopaedia, the scores added 0.063 [0.038, 0.092] where five twins add 0.000, at most 0.034: most "
                "add nothing, and one that adds something is not within their interval. Which tokens are hard for such "
                "a model, and which lie far off, both follow from the drawn weights.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "360f5cec66ef", 5),
            Rewording("2026-11-18", "0d35877ca91f", 5),
            Rewording("2026-11-19", "1ac251bd0c92", 5),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # The model and five twins, on up to 4096 tokens.
        return 16.0

    def experiment(self, bench: "Bench") -> "dict[str, ScoredTokens] | None":
        from armillary.probes.stability.errors.manifold_scores import score_tokens

        return score_tokens(bench)

    def conclude(self, evidence: Evidence, result: dict[str, ScoredTokens] | None) -> Finding:
        empty = table(cells("score", "score of a token", ()))
        if result is None:
            reading = "This model predicts no next token, so it has no errors. Load one with a language-model head."
            return undecided(self.claim, Why.NOT_APPLICABLE, reading, empty)
        tokens = result[MODEL]
        if not tokens.enough:
            reading = f"Each half of the documents needs {T.tokens_least} tokens with a next token, both hard ones and "
            reading += f"others; the text has {len(tokens.loss)} in all. Give more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, empty)
        prediction = ErrorPrediction(tokens, evidence.seed)
        twins = [ErrorPrediction(t, evidence.seed) for arm, t in result.items() if arm != MODEL and t.enough]
        rows, gains = prediction.rows(), Gains(prediction, twins)
        parts = error_parts(gains)
        verdict, why = weakest(parts)
        adds = gains.adds()
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            parts=parts,
            statistic=Statistic(f"AUC that all scores add to {KNOWN}", *adds),
            n=len(tokens.loss),
            controls=_controls(evidence, gains, rows),
            reading=f"{parts[0].reading} {_aucs(rows)} {parts[1].reading}",
            headline=f"For predicting errors, distance from the manifold and unusual heads add {say(adds[0], '.2f')} "
            f"of AUC to what is known at the place; the entropy of the prediction adds {say(rows[-2].adds[0], '.2f')}",
            table=_table(rows),
            quantities=_quantities(tokens, rows),
            notes=(f"random initialisation: {len(twins)} untrained models",),
            limits=(loss_limit(parts[0], gains.untrained_loss()),) if twins else (),
        )


def _controls(evidence: Evidence, gains: Gains, rows: list[ScoreRow]) -> tuple[Control, ...]:
    scores = gains.prediction.tokens.matrix()
    shuffled = np.random.default_rng(evidence.seed).permutation(scores)
    controls = [
        Control("scores of other tokens", *gains.prediction.adds(shuffled)),
        Control(ENTROPY, *rows[-2].adds),
    ]
    return (*controls, *([Control(RANDOM, *gains.untrained())] if gains.twins else []))


def _aucs(rows: list[ScoreRow]) -> str:
    first, entropy, known = rows[0], rows[-2], rows[-1]
    best = max(rows[:-2], key=lambda row: row.auc[0])
    text = (
        f"How often a token of the hardest quarter is ranked above another (chance: 0.50): {first.auc[0]:.2f} by the "
        f"{first.name}; {best.auc[0]:.2f} by the best score, the {best.name}; {known.auc[0]:.2f} by position and "
        f"rarity of the token and the one before it; {entropy.auc[0]:.2f} by the entropy of the prediction."
    )
    if first.auc[2] < 0.5:
        text += " By the first score, hard tokens lie nearer to the mean than others, contrary to the claim."
    return text


def _table(rows: list[ScoreRow]) -> Table:
    auc, beside, adds = (np.array([getattr(row, name) for row in rows]) for name in ("auc", "beside", "adds"))
    return table(
        cells("score", "score of a token, and the norm it is measured at", [row.name for row in rows]),
        interval_cells("auc", "AUC for tokens in the quarter with the largest loss", auc),
        interval_cells("beside", "AUC minus that of the entropy of the prediction (empty for that itself)", beside),
        interval_cells("adds", f"by how much the score raises the AUC of {KNOWN} (empty for that itself)", adds),
        cells("rarity", "rank correlation with how rare the token itself is", [row.rarity for row in rows]),
    )


def _quantities(tokens: ScoredTokens, rows: list[ScoreRow]) -> tuple[Quantity, ...]:
    names = ["Mahalanobis", "angle", "neighbour"]
    labels = [f"{name}, {site}" for site in tokens.sites for name in names] + list(HEAD_SCORES)
    auc = np.array([row.auc for row in rows])
    first = next(iter(tokens.scores))
    return (
        line(
            "AUC for the hardest quarter of tokens",
            "of each score of how far a state lies off the manifold, or of how unusual heads are",
            "AUC",
            "score",
            labels,
            auc[: len(labels)],
            {name: np.full(len(labels), auc[i, 0]) for name, i in ((ENTROPY, -2), (KNOWN, -1))},
            {"chance: 0.5": np.full(len(labels), 0.5)},
        ),
        line(
            "next-token loss by distance from the manifold",
            f"mean over each tenth of the tokens, {SCORES[0]} at {first[0]}",
            "nats",
            "tenth",
            [float(i + 1) for i in range(DECILES)],
            _tenths(tokens.scores[first], tokens.loss),
            {
                "tenths by entropy of the prediction": _tenths(tokens.entropy, tokens.loss),
                "tenths by how rare the next word is": _tenths(tokens.rare_next, tokens.loss),
            },
        ),
    )


def _tenths(score: Floats, loss: Floats) -> Floats:
    """Mean loss in each tenth of the tokens by score."""
    return np.array([part.mean() for part in np.array_split(loss[score.argsort(kind="stable")], DECILES)])
