"""Are a model's errors states that lie off the manifold?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import MODEL, NAN3, RANDOM, AnyInstrument, Evidence, Floats, Interval, T, undecided
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.stability.error_prediction import ENTROPY, FREQUENCY, ErrorPrediction, ScoredTokens, ScoreRow
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

SCORES = ("Mahalanobis distance", "angle to the mean", "distance to the tenth neighbour")
DECILES = 10


@dataclass(frozen=True)
class ManifoldErrors:
    """Off-manifold scores as predictors of a token's loss, compared with token frequency."""

    claim: ClassVar[Claim] = Claim(
        id="manifold.errors",
        chapter="D",
        statement="Model errors are representations that fall off the learned manifold.",
        source="S3 R",
        definition=(
            "An error is a token in the quarter with the largest next-token loss. Three scores measure how far y, the "
            "norm's output, lies off the manifold, at the last norm and at a middle one: its Mahalanobis distance "
            "(covariance shrunk by Ledoit and Wolf), its angle to the mean, and its distance to the tenth neighbour. "
            "Each half of the documents is scored by a fit on the other half. The baseline is a logistic fit, crossed "
            "in the same way, on the rarity of the token and of the next token (by the model's mean prediction over "
            "the other half) and on the position in the window. First tokens are left out. The statistic is "
            "AUC(Mahalanobis distance at the last norm) − AUC(frequency and place)."
        ),
        control=(
            "frequency and place; the scores of other tokens; random initialisation; for comparison the entropy of the "
            "prediction"
        ),
        rule=(
            f"Supported if the difference lies above {T.errors_margin} with its whole interval. Qualified if it does "
            f"not, but adding the score to frequency and place raises their AUC by more than {T.errors_margin} with "
            "the whole interval (a score with a negative weight adds nothing). Refuted if both intervals lie below "
            f"{T.errors_margin}. Undecided otherwise, with too little text, or if the model predicts no next token."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 4.0

    def experiment(self, bench: "Bench") -> "dict[str, ScoredTokens] | None":
        from armillary.probes.stability.manifold_scores import score_tokens

        return score_tokens(bench)

    def conclude(self, evidence: Evidence, result: dict[str, ScoredTokens] | None) -> Finding:
        empty = table(cells("score", "score of a token", ()))
        if result is None:
            reading = "This model predicts no next token, so it has no errors. Load one with a language-model head."
            return undecided(self.claim, Why.NOT_APPLICABLE, reading, empty)
        tokens = result[MODEL]
        if not tokens.enough:
            reading = (
                f"Each half of the documents needs {T.tokens_least} tokens that others follow, hard ones and others; "
            )
            reading += f"the text has {len(tokens.loss)} in all. Give more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, empty)
        prediction = ErrorPrediction(tokens, evidence.seed)
        rows = prediction.rows()
        first = rows[0]
        verdict, why = _decide(first.beats, first.adds)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic(f"AUC({SCORES[0]} at {tokens.sites[0]}) − AUC({FREQUENCY})", *first.beats),
            n=len(tokens.loss),
            controls=_controls(evidence, prediction, result.get(RANDOM)),
            reading=_reading(verdict, rows),
            headline=f"Distance from the manifold predicts errors with AUC {first.auc[0]:.2f}, word frequency with "
            f"{rows[-1].auc[0]:.2f}",
            table=_table(rows),
            quantities=_quantities(tokens, rows),
        )


def _decide(beats: Interval, adds: Interval) -> tuple[Verdict, Why | None]:
    if np.isnan([*beats, *adds]).any():
        return "undecided", Why.NO_INTERVAL
    if beats[1] > T.errors_margin:
        return "supported", None
    if adds[1] > T.errors_margin:
        return "qualified", None
    refuted = max(beats[2], adds[2]) < T.errors_margin
    return ("refuted", None) if refuted else ("undecided", Why.SPANS_LIMIT)


def _controls(evidence: Evidence, prediction: ErrorPrediction, twin: ScoredTokens | None) -> tuple[Control, ...]:
    first = next(iter(prediction.tokens.scores))
    shuffled = np.random.default_rng(evidence.seed).permutation(prediction.tokens.scores[first])
    controls = [Control("scores of other tokens", *prediction.interval(prediction.auc(shuffled) - prediction.known))]
    if twin is not None and twin.enough:
        other = ErrorPrediction(twin, evidence.seed)
        controls.append(Control(RANDOM, *other.interval(other.auc(twin.scores[first]) - other.known)))
    elif twin is not None:
        controls.append(Control(RANDOM, *NAN3))
    return tuple(controls)


def _reading(verdict: Verdict, rows: list[ScoreRow]) -> str:
    first, entropy, known = rows[0], rows[-2], rows[-1]
    best = max(rows[:-2], key=lambda row: row.auc[0])
    text = (
        f"AUC for the hardest quarter of tokens: {first.auc[0]:.2f} from the {first.name}; {best.auc[0]:.2f} from the "
        f"best score, the {best.name}; {known.auc[0]:.2f} from the position and the rarity of the token and the next "
        f"one; {entropy.auc[0]:.2f} from the entropy of the prediction."
    )
    if first.auc[2] < 0.5:
        text += " The sign is opposite to the claim: hard tokens lie nearer to the mean than others."
    added, low, high = (say(value, ".3f") for value in first.adds)
    end = {
        "supported": "Distance from the manifold explains errors beyond frequency.",
        "qualified": "It adds something, but frequency predicts more.",
        "refuted": "It adds nothing to frequency.",
        "undecided": "More text would decide.",
    }
    return f"{text} Added to frequency, the first score raises the AUC by {added} [{low}, {high}]. {end[verdict]}"


def _table(rows: list[ScoreRow]) -> Table:
    auc, beats, adds = (np.array([getattr(row, name) for row in rows]) for name in ("auc", "beats", "adds"))
    return table(
        cells("score", "score of a token, and the norm it is measured at", [row.name for row in rows]),
        interval_cells("auc", "AUC for tokens in the quarter with the largest loss", auc),
        interval_cells("beats", "AUC minus that of frequency and place (empty: that itself)", beats),
        interval_cells(
            "adds", "by how much the score raises the AUC of frequency and place (empty: that itself)", adds
        ),
        cells("rarity", "rank correlation with how rare the token itself is", [row.rarity for row in rows]),
    )


def _quantities(tokens: ScoredTokens, rows: list[ScoreRow]) -> tuple[Quantity, ...]:
    auc = np.array([row.auc for row in rows])
    parts = [auc[start : start + len(SCORES)] for start in range(0, len(tokens.scores), len(SCORES))]
    others = {f"at {site}": part[:, 0] for site, part in zip(tokens.sites[1:], parts[1:], strict=True)}
    others |= {name: np.full(len(SCORES), auc[i, 0]) for name, i in ((ENTROPY, -2), (FREQUENCY, -1))}
    first = next(iter(tokens.scores))
    return (
        line(
            "AUC for the hardest quarter of tokens",
            "of each score of how far a state lies off the manifold",
            "AUC",
            "score",
            ["Mahalanobis", "angle", "neighbour"],
            parts[0],
            others,
            {"chance: 0.5": np.full(len(SCORES), 0.5)},
            label=f"at {tokens.sites[0]}",
        ),
        line(
            "next-token loss by distance from the manifold",
            f"mean over each tenth of the tokens, {SCORES[0]} at {first[0]}",
            "nats",
            "tenth",
            [float(i + 1) for i in range(DECILES)],
            _tenths(tokens.scores[first], tokens.loss),
            {"tenths by how rare the next word is": _tenths(tokens.rare_next, tokens.loss)},
        ),
    )


def _tenths(score: Floats, loss: Floats) -> Floats:
    """Mean loss in each tenth of the tokens by score."""
    return np.array([part.mean() for part in np.array_split(loss[score.argsort(kind="stable")], DECILES)])
