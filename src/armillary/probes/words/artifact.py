"""Is a three-dimensional picture of tokens an artefact of its projection?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Interval, Ints, T, above
from armillary.probes.machinery.tables import cells, line, table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.geometry.projection import Fidelity

POINTS = 900
UNROLLED = "pca, unrolled"
PROJECTIONS = ("pca", UNROLLED, "pacmap", "umap")
SCORES = ("correlation", "trustworthiness", "continuity", "stability")
NOISE = "directions at random"


@dataclass(frozen=True)
class Artifact:
    """Scores of the projections that `armillary travel` draws, on the states of sampled tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.artifact",
        chapter="C",
        statement="A three-dimensional picture of tokens shows where they are: it is not an artefact of projection.",
        source="R (S1)",
        question=(
            "A picture shows a space of hundreds of dimensions in three. Are tokens that look near in the picture "
            "really near?"
        ),
        definition=(
            "Are tokens that lie near in a picture really near? The directions of all states of a few sampled "
            "tokens are drawn on a globe, as `armillary travel` draws them: by pca (seen from the sphere's centre "
            "along the three principal axes), and by pacmap and umap where installed. For comparison, pca unrolled: "
            "the tangent space at the mean.\n"
            "The statistic is the rank correlation of distances on pca's globe with the true angles, over all "
            "pairs: 1 if both have the same order, 0 by chance. Its interval is a bootstrap over documents.\n"
            "Also measured: trustworthiness, continuity, and stability over seeds."
        ),
        control=(
            "as many random directions in as many dimensions, which no drawing in three dimensions can preserve; "
            "random initialisation"
        ),
        rule=(
            "The correlation of pca's picture is compared with two limits and with random directions. 'Above' and "
            "'below' refer to its whole interval.\n"
            f"Supported if it is above {T.picture_faithful}, and above that of random directions.\n"
            f"Qualified if it is between {T.picture_misleading} and {T.picture_faithful}, and above that of random "
            "directions: the picture shows what is near and what is far, but not how far.\n"
            f"Refuted if it is below {T.picture_misleading}, or does not exceed that of random directions.\n"
            "Undecided if the interval spans a limit or is missing.\n"
            "Untrained states can be drawn as well: the claim is about the picture, not about training."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule scores the globe that is drawn (0.74), not the tangent plane (0.32), which had refuted it.",
            ),
            RuleChange(
                "2026-11-16",
                "The interval is the bootstrap over documents that all claims use, with its guard for few documents; "
                "an interval across a limit decides nothing; random directions are in the rule.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "61dd9c8c4b1a", 2),
            Rewording("2026-11-18", "e54aaa4e8665", 2),
            Rewording("2026-11-19", "f68084d92ad7", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        from armillary.geometry.projection import installed

        u, document = _directions(evidence, MODEL)
        noise = np.random.default_rng(evidence.seed).standard_normal(u.shape)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        names = list(filter(installed, PROJECTIONS))
        scores, by_chance = ([_score(name, points, evidence.seed) for name in names] for points in (u, noise))
        correlation = _interval(evidence, u, document)
        chance = _interval(evidence, noise, document)
        value = correlation[0]
        twins = evidence.over_twins(lambda arm: _interval(evidence, *_directions(evidence, arm)))
        verdict, why = _verdict(correlation, chance)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("rank correlation of drawn distance and true angle, pca", *correlation),
            n=len(u),
            controls=(Control(NOISE, *chance), Control(RANDOM, *twins)),
            reading=_reading(names, scores, chance[0], verdict),
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


def _interval(evidence: Evidence, u: Floats, document: Ints) -> Interval:
    """The rank correlation of distances on pca's globe with true angles, over all pairs of rows.

    Ranks are those of all pairs. A resample of documents weighs a pair of two documents by the product of their
    weights, and a pair within one by its weight.
    """
    from scipy.stats import rankdata

    from armillary.geometry.projection import angles, distances, globe

    first, second = np.triu_indices(len(u), 1)
    measured = (angles(u)[first, second], distances(globe("pca", u, evidence.seed))[first, second])
    x, y = (rankdata(values) / len(first) - 0.5 for values in measured)
    names, place = np.unique(document, return_inverse=True)
    beside = place[first] * len(names) + place[second]
    powers = (np.ones_like(x), x, y, x * x, y * y, x * y)
    moments = np.stack([np.bincount(beside, power, len(names) ** 2) for power in powers], -1)
    moments = moments.reshape(len(names), len(names), 6)

    def correlation(weights: Floats) -> Floats:
        pairs = weights[:, :, None] * weights[:, None]
        pairs[:, np.arange(len(names)), np.arange(len(names))] = weights
        n, sx, sy, sxx, syy, sxy = np.moveaxis(np.einsum("nab,abm->nm", pairs, moments, optimize=True), -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = (sxy / n - sx * sy / n**2) / np.sqrt((sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2))
        return np.asarray(rho)

    return evidence.interval(np.eye(len(names)), correlation)


def _verdict(correlation: Interval, chance: Interval) -> tuple[Verdict, Why | None]:
    if np.isnan(correlation[0]):
        return "undecided", Why.UNDEFINED
    beyond, near, far = (above(correlation, limit) for limit in (chance[2], T.picture_misleading, T.picture_faithful))
    if beyond is False or near is False:
        return "refuted", None
    if None in (beyond, near, far):
        return "undecided", missing_interval(*correlation, *chance)
    return "supported" if far else "qualified", None


def _reading(names: list[str], scores: list["Fidelity"], chance: float, verdict: Verdict) -> str:
    advice = {
        "supported": "Distances can be read off the picture.",
        "refuted": "Distances cannot be read off the picture.",
        "qualified": "The picture shows what is near and what is far, but not how far.",
        "undecided": "More text would decide.",
    }
    others = "; ".join(
        f"{name}: {say(score.correlation, '.2f')} ({say(score.stability, '.2f')} between two seeds)"
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
