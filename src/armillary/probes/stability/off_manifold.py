"""Are a model's errors states that fell off the manifold?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.stability.prediction import Strayed, Trial, crossed, spearman
from armillary.probes.stability.said import NOTHING, Interval, cell, not_measured
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

SCORES = ("Mahalanobis distance", "angle to the mean", "distance to the tenth neighbour")
FREQUENCY, ENTROPY = "frequency and place", "entropy of the prediction"
DECILES = 10
COLUMNS = (
    Column("score", "what is asked for the token's error, and at which norm"),
    Column("auc", "AUC for the token being in the quarter with the largest loss"),
    Column("auc_low", "its 95 % interval over documents, low end"),
    Column("auc_high", "its 95 % interval over documents, high end"),
    Column("beats", "AUC less that of frequency and place (empty: that itself)"),
    Column("beats_low", "its 95 % interval over documents, low end"),
    Column("beats_high", "its 95 % interval over documents, high end"),
    Column(
        "adds", "AUC of frequency, place and this score together, less that of frequency and place (empty: that itself)"
    ),
    Column("adds_low", "its 95 % interval over documents, low end"),
    Column("adds_high", "its 95 % interval over documents, high end"),
    Column("rarity", "rank correlation with how rare the token itself is"),
)


@dataclass(frozen=True)
class Errors:
    """Off-manifold scores against token loss, beside token frequency."""

    claim: ClassVar[Claim] = Claim(
        id="manifold.errors",
        chapter="D",
        statement="Model errors are representations that fall off the learned manifold.",
        source="S3 R",
        definition=(
            "An error is a token in the quarter with the largest next-token loss. Off the manifold: Mahalanobis distance of y "
            "(covariance shrunk after Ledoit and Wolf), angle to the mean, distance to the tenth neighbour, at the last norm and at "
            "a middle one, each half of the documents scored by a fit on the other. To beat: a logistic fit, likewise crossed, on "
            "how rare the token and the next one are by the model's mean prediction over the other half, and on the place in the "
            "window; first tokens are left out. The statistic is AUC(Mahalanobis distance at the last norm) − AUC(frequency and "
            "place)."
        ),
        control="frequency and place; scores of other tokens; random initialisation; the prediction's entropy for comparison",
        rule=(
            f"Supported: the difference's interval lies above {T.errors_margin}. Qualified: it does not, but that score added to "
            f"frequency and place raises their AUC by more than {T.errors_margin} (whole interval; a score that speaks against errors adds nothing). Refuted: both intervals lie "
            f"below {T.errors_margin}. Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 4.0

    def experiment(self, bench: "Bench") -> "dict[str, Strayed] | None":
        from armillary.probes.stability.manifold import stray

        return stray(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        found: dict[str, Strayed] | None = evidence.found.get(self.claim.id)
        if found is None:
            why = "This model foretells no next token, so it makes no errors to explain; load one with a language-model head."
            return not_measured(self.claim, COLUMNS[0], (), why, "No next token is foretold: nothing can be concluded")
        tokens = found[""]
        if not tokens.enough:
            why = f"Only {len(tokens.loss)} tokens that others follow, too few or too much alike in either half; more text would decide."
            return not_measured(self.claim, COLUMNS[0], (), why, "Too little text: nothing can be concluded")
        trial = Trial(tokens, evidence.seed)
        first = (tokens.sites[0], SCORES[0])
        rows = [*(_row(trial, name, score) for name, score in tokens.scores.items()), _entropy(trial), _known(trial)]
        verdict = _verdict(rows[0])
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(f"AUC({SCORES[0]} at {first[0]}) − AUC({FREQUENCY})", *_triple(rows[0], "beats")),
            n=len(tokens.loss),
            controls=_controls(evidence, trial, found, first),
            reading=_reading(verdict, rows),
            headline=f"Distance from the manifold foretells errors with AUC {rows[0]['auc']:.2f}, word frequency with "
            f"{rows[-1]['auc']:.2f}",
            table=Table.of(
                COLUMNS, [{k: v if isinstance(v, str) else _cell(v) for k, v in row.items()} for row in rows]
            ),
            quantities=_quantities(tokens, rows, first),
        )


def _row(trial: Trial, name: tuple[str, str], score: Floats) -> dict[str, Any]:
    site, what = name
    auc = trial.auc(score)
    return _cells(f"{what} at {site}", trial, score, trial.said(auc), trial.said(auc - trial.known), trial.adds(score))


def _entropy(trial: Trial) -> dict[str, Any]:
    return _row(trial, ("the output", ENTROPY), trial.tokens.entropy)


def _known(trial: Trial) -> dict[str, Any]:
    score = crossed(trial.tokens.known, trial.tokens)
    return _cells(FREQUENCY, trial, score, trial.said(trial.known), None, None)


def _cells(name: str, trial: Trial, score: Floats, *triples: Interval | None) -> dict[str, Any]:
    made: dict[str, Any] = {"score": name, "rarity": spearman(score, trial.tokens.rare)}
    for key, triple in zip(("auc", "beats", "adds"), triples, strict=True):
        value, low, high = (None, None, None) if triple is None else triple
        made |= {key: value, f"{key}_low": low, f"{key}_high": high}
    return made


def _cell(value: float | None) -> float | None:
    return None if value is None else cell(value)


def _triple(row: dict[str, Any], key: str) -> Interval:
    return row[key], row[f"{key}_low"], row[f"{key}_high"]


def _verdict(row: dict[str, Any]) -> Verdict:
    beats, adds = _triple(row, "beats"), _triple(row, "adds")
    if np.isnan([*beats, *adds]).any():
        return "undecided"
    if beats[1] > T.errors_margin:
        return "supported"
    if adds[1] > T.errors_margin:
        return "qualified"
    return "refuted" if max(beats[2], adds[2]) < T.errors_margin else "undecided"


def _controls(
    evidence: Evidence, trial: Trial, found: dict[str, Strayed], first: tuple[str, str]
) -> tuple[Control, ...]:
    shuffled = np.random.default_rng(evidence.seed).permutation(trial.tokens.scores[first])
    made = [Control("scores of other tokens", *trial.said(trial.auc(shuffled) - trial.known))]
    twin = found.get(RANDOM)
    if twin is not None:
        other = Trial(twin, evidence.seed) if twin.enough else None
        made.append(
            Control(RANDOM, *(NOTHING if other is None else other.said(other.auc(twin.scores[first]) - other.known)))
        )
    return tuple(made)


def _reading(verdict: Verdict, rows: list[dict[str, Any]]) -> str:
    first, entropy, known = rows[0], rows[-2], rows[-1]
    best = max(rows[:-2], key=lambda row: row["auc"])
    told = (
        f"{first['score']} foretells the hardest quarter of tokens with AUC {first['auc']:.2f} (the best score, {best['score']}: "
        f"{best['auc']:.2f}); how rare a word and the next one are, and their place, with {known['auc']:.2f}; the prediction's own "
        f"entropy with {entropy['auc']:.2f}."
    )
    if first["auc_high"] < 0.5:
        told += " The distance points the other way: hard tokens lie nearer the middle of the cloud."
    tails = {
        "supported": ": states off the manifold are where the model errs, beyond what frequency explains.",
        "qualified": ": something of its own, though frequency tells more.",
        "refuted": ": nothing of its own to speak of.",
        "undecided": f"; not clearly on either side of {T.errors_margin}: more text would decide.",
    }
    adds = f"{first['adds']:.3f} [{first['adds_low']:.3f}, {first['adds_high']:.3f}]"
    return f"{told} Beside frequency it adds {adds}{tails[verdict]}"


def _quantities(tokens: Strayed, rows: list[dict[str, Any]], first: tuple[str, str]) -> tuple[Quantity, ...]:
    last, *others = (rows[start : start + len(SCORES)] for start in range(0, len(tokens.scores), len(SCORES)))
    auc, low, high = (np.array([row[key] for row in last], dtype=float) for key in ("auc", "auc_low", "auc_high"))
    middle = {
        f"at {site}": np.array([row["auc"] for row in part])
        for site, part in zip(tokens.sites[1:], others, strict=True)
    }
    flat = {name: np.full(len(SCORES), row["auc"]) for name, row in ((ENTROPY, rows[-2]), (FREQUENCY, rows[-1]))}
    return (
        Quantity(
            "AUC for the hardest quarter of tokens",
            "from each score of how far a state is off the manifold",
            "AUC",
            ("score",),
            {"score": ["Mahalanobis", "angle", "neighbour"]},
            auc,
            low,
            high,
            controls=middle | flat,
            theory={"chance: 0.5": np.full(len(SCORES), 0.5)},
            label=f"at {tokens.sites[0]}",
        ),
        Quantity(
            "next-token loss by distance from the manifold",
            f"mean over each tenth of the tokens, {SCORES[0]} at {first[0]}",
            "nats",
            ("tenth",),
            {"tenth": [float(i + 1) for i in range(DECILES)]},
            _tenths(tokens.scores[first], tokens.loss),
            controls={"tenths by how rare the next word is": _tenths(tokens.rare_next, tokens.loss)},
        ),
    )


def _tenths(score: Floats, loss: Floats) -> Floats:
    """Mean loss in each tenth of the tokens by score."""
    return np.array([part.mean() for part in np.array_split(loss[score.argsort(kind="stable")], DECILES)])
