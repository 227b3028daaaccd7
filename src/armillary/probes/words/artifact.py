"""Is a three-dimensional picture of tokens an artefact of its projection?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Ints, T, cells, line, table
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.geometry.projection import Fidelity

POINTS = 900
UNROLLED = "pca, unrolled"
PROJECTIONS = ("pca", UNROLLED, "pacmap", "umap")
SCORES = ("correlation", "trustworthiness", "continuity", "stability")
BLOCKS = 8
NOISE = "directions at random"


@dataclass(frozen=True)
class Artifact:
    """Scores of the projections that `armillary travel` draws, on the states of sampled tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.artifact",
        chapter="C",
        statement="A three-dimensional picture of tokens shows where they are: it is not an artefact of projection.",
        source="R (S1)",
        definition=(
            "The directions of all states of a few sampled tokens are drawn on a globe, as `armillary travel` draws "
            "them: by pca (seen from the sphere's centre along the three principal axes), and by pacmap and umap where "
            "installed. For comparison, pca unrolled: the tangent space at the mean. The statistic is the rank "
            "correlation of distances on pca's globe with the true angles, over all pairs; its interval is a jackknife "
            "over groups of documents. Also measured: trustworthiness, continuity, and stability over seeds."
        ),
        control=(
            "as many random directions in as many dimensions, which no drawing in three dimensions can preserve; "
            "random initialisation"
        ),
        rule=(
            f"Supported if pca's correlation lies above {T.picture_faithful} with its whole interval. Refuted if it "
            f"lies below {T.picture_misleading} with its whole interval. Qualified otherwise. Undecided if there is no "
            "interval."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule scores the globe that is drawn (0.74), not the tangent plane (0.32), which had refuted it.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        from armillary.geometry.projection import fidelity, globe, installed

        u, document = _directions(evidence, MODEL)
        noise = np.random.default_rng(evidence.seed).standard_normal(u.shape)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        names = list(filter(installed, PROJECTIONS))
        scores, by_chance = ([_score(name, points, evidence.seed) for name in names] for points in (u, noise))
        value, error = scores[0].correlation, _error(u, globe("pca", u, evidence.seed), document)
        low, high, chance = value - error, value + error, by_chance[0].correlation
        controls = [Control(NOISE, chance, chance, chance)]
        if RANDOM in evidence[WORDS]:
            twin, _ = _directions(evidence, RANDOM)
            untrained = fidelity(twin, globe("pca", twin, evidence.seed)).correlation
            controls.append(Control(RANDOM, untrained, untrained, untrained))
        verdict = _verdict(low, high)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=Why.NO_INTERVAL if verdict == "undecided" else None,
            statistic=Statistic("rank correlation of drawn distance and true angle, pca", value, low, high),
            n=len(u),
            controls=tuple(controls),
            reading=_reading(names, scores, chance, verdict),
            headline=f"Distances on the picture have a rank correlation of {say(value, '.2f')} with the true angles",
            table=_table(names, scores, by_chance),
            quantities=tuple(
                line(
                    f"scores of {name}",
                    "1 preserves everything",
                    "score",
                    "score",
                    SCORES,
                    _array(score),
                    {NOISE: _array(blank)},
                )
                for name, score, blank in zip(names, scores, by_chance, strict=True)
            ),
            notes=tuple(f"{name} is not installed and was not scored." for name in PROJECTIONS if name not in names),
        )


def _directions(evidence: Evidence, arm: str) -> tuple[Floats, Ints]:
    """Unit directions of the first sampled tokens' states, stacked, and the document of each."""
    states, places = evidence[WORDS][arm].sampled()
    tokens = max(2, POINTS // states.shape[1])
    x = states[:tokens].double().numpy()
    if next(iter(evidence.anatomy.norms.values())).kind == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    u = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300)
    return u.reshape(-1, u.shape[-1]), places[:tokens, 0].repeat(states.shape[1])


def _score(name: str, u: Floats, seed: int) -> "Fidelity":
    """A drawing's scores; its stability is that against a drawing from another seed."""
    from armillary.geometry.projection import fidelity, globe, project

    first, second = (
        project("pca", u, 3, each) if name == UNROLLED else globe(name, u, each) for each in (seed, seed + 1)
    )
    return fidelity(u, first, second)


def _array(score: "Fidelity") -> Floats:
    return np.array([getattr(score, name) for name in SCORES])


def _error(u: Floats, points: Floats, document: Ints) -> float:
    """1.96 standard errors of the correlation, by a jackknife over groups of documents."""
    from armillary.geometry.projection import fidelity
    from armillary.geometry.resample import jackknife_se

    groups = document % BLOCKS
    rest = [groups != group for group in np.unique(groups)]
    if len(rest) < 2:
        return float("nan")
    return 1.96 * float(jackknife_se(np.array([fidelity(u[rows], points[rows]).correlation for rows in rest])))


def _verdict(low: float, high: float) -> Verdict:
    if np.isnan(low):
        return "undecided"
    if low > T.picture_faithful:
        return "supported"
    return "refuted" if high < T.picture_misleading else "qualified"


def _reading(names: list[str], scores: list["Fidelity"], chance: float, verdict: Verdict) -> str:
    advice = {
        "supported": "Distances can be read off the picture.",
        "refuted": "Distances cannot be read off the picture.",
        "qualified": "The picture shows what is near and what is far, but not how far.",
        "undecided": "More text would decide.",
    }
    others = "; ".join(
        f"{name}: {say(score.correlation, '.2f')}, and {say(score.stability, '.2f')} between two seeds"
        for name, score in zip(names[1:], scores[1:], strict=True)
    )
    return (
        f"Distances on pca's globe have a rank correlation of {say(scores[0].correlation, '.2f')} with the true angles "
        f"(random directions: {say(chance, '.2f')}). Trustworthiness is {say(scores[0].trustworthiness, '.2f')} (1: "
        f"all neighbours in the picture are true neighbours). {advice[verdict]} Other projections: {others}."
    )


def _table(names: list[str], scores: list["Fidelity"], by_chance: list["Fidelity"]) -> Table:
    correlation, trustworthiness, continuity, stability = np.array([_array(score) for score in scores]).T
    return table(
        cells("projection", "projection to three dimensions", names),
        cells("correlation", "rank correlation of drawn distances with true angles, all pairs of states", correlation),
        cells("trustworthiness", "are neighbours on the drawing true neighbours? (10 neighbours)", trustworthiness),
        cells("continuity", "are true neighbours also neighbours on the drawing? (10 neighbours)", continuity),
        cells("stability", "rank correlation of distances with those of a drawing from another seed", stability),
        cells("control", "the same correlation for random directions", [blank.correlation for blank in by_chance]),
    )
