"""Is the picture of travelling words an artefact of its projection?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.geometry.projection import Fidelity

POINTS = 900
UNROLLED = "pca, unrolled"
DRAWN = ("pca", UNROLLED, "pacmap", "umap")
BLOCKS = 8
COLUMNS = (
    Column("projection", "how many dimensions were brought to three"),
    Column("correlation", "rank correlation of distances on the drawing with true angles, all pairs of states"),
    Column("trustworthiness", "are points near on the drawing near in truth? (10 neighbours)"),
    Column("continuity", "are points near in truth near on the drawing? (10 neighbours)"),
    Column("stability", "rank correlation of distances with those of a drawing from another seed"),
    Column("control", "the same correlation for directions at random, as many and as wide"),
)


@dataclass(frozen=True)
class Artifact:
    """Scores of the projections that `armillary travel` draws, on states of sampled tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.artifact",
        chapter="C",
        statement="A picture of words in three dimensions shows where they are: it is no artefact of the projection.",
        source="R (S1)",
        definition=(
            "All states of a few sampled tokens, as directions, drawn on a globe as `armillary travel` draws them: pca always "
            "(from the sphere's centre along its three principal axes), pacmap and umap where installed; beside them pca "
            "unrolled, in the tangent space at the mean. The statistic is the rank correlation of distances on pca's globe "
            "with the true angles over all pairs; beside it trustworthiness, continuity and stability over seeds. Its "
            "interval is a jackknife over groups of documents."
        ),
        control="as many directions at random in as many dimensions, which no drawing can keep; random initialisation",
        rule=(
            f"Supported: the correlation of pca lies above {T.picture_faithful} with its whole interval. Refuted: below "
            f"{T.picture_misleading}. Qualified otherwise: the drawing tells far from near, and not much more."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("travel",)

    def conclude(self, evidence: Evidence) -> Finding:
        from armillary.geometry.projection import fidelity, globe, installed

        u, document = _directions(evidence, MODEL)
        noise = _noise(u, evidence.seed)
        rows: list[dict[str, Any]] = []
        chance: list[Fidelity] = []
        for name in filter(installed, DRAWN):
            score, blank = (fidelity(each, *_drawn(name, each, evidence.seed)) for each in (u, noise))
            rows.append({"projection": name, **vars(score), "control": blank.correlation})
            chance.append(blank)
        drawn = globe("pca", u, evidence.seed)
        value, error = rows[0]["correlation"], _error(u, drawn, document)
        verdict = _verdict(value - error, value + error)
        controls = [Control("directions at random", rows[0]["control"], rows[0]["control"], rows[0]["control"])]
        if RANDOM in evidence.travel:
            twin, _ = _directions(evidence, RANDOM)
            seen = fidelity(twin, globe("pca", twin, evidence.seed)).correlation
            controls.append(Control(RANDOM, seen, seen, seen))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(
                "rank correlation of drawn distance and true angle, pca", value, value - error, value + error
            ),
            n=len(u),
            controls=tuple(controls),
            reading=_reading(rows, verdict),
            headline=f"Distances on the picture rank as true angles do by {value:.2f}",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(rows, chance),
            notes=tuple(f"{name} is not installed, and was not scored" for name in DRAWN if not installed(name)),
        )


def _drawn(name: str, u: Floats, seed: int) -> tuple[Floats, Floats]:
    """The drawing, and the same from another seed."""
    from armillary.geometry.projection import globe, project

    first, second = (
        project("pca", u, 3, each) if name == UNROLLED else globe(name, u, each) for each in (seed, seed + 1)
    )
    return first, second


def _directions(evidence: Evidence, arm: str) -> tuple[Floats, Any]:
    """Unit directions of the first sampled tokens' states, stacked, and each one's document."""
    states, places = evidence.travel[arm].sampled()
    tokens = max(2, POINTS // states.shape[1])
    x = states[:tokens].double().numpy()
    if next(iter(evidence.anatomy.norms.values())).kind == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    u = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300)
    return u.reshape(-1, u.shape[-1]), places[:tokens, 0].repeat(states.shape[1])


def _noise(u: Floats, seed: int) -> Floats:
    drawn = np.random.default_rng(seed).standard_normal(u.shape)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _error(u: Floats, points: Floats, document: Any) -> float:
    """1.96 standard errors of the correlation, leaving out groups of documents in turn."""
    from armillary.geometry.projection import fidelity
    from armillary.geometry.resample import jackknife_se

    groups = document % BLOCKS
    kept = [groups != group for group in np.unique(groups)]
    if len(kept) < 2:
        return float("nan")
    found = [fidelity(u[rows], points[rows]).correlation for rows in kept]
    return 1.96 * float(jackknife_se(np.array(found)))


def _verdict(low: float, high: float) -> Verdict:
    if np.isnan(low):
        return "undecided"
    if low > T.picture_faithful:
        return "supported"
    return "refuted" if high < T.picture_misleading else "qualified"


def _reading(rows: list[dict[str, Any]], verdict: Verdict) -> str:
    first = rows[0]
    told = (
        f"On pca's globe distances rank as true angles do by {first['correlation']:.2f} (random directions: "
        f"{first['control']:.2f}), and {first['trustworthiness']:.0%} of nearness can be trusted"
    )
    for row in rows[1:]:
        told += f"; {row['projection']}: {row['correlation']:.2f}, {row['stability']:.2f} over seeds"
    end = {
        "supported": "it can be read",
        "refuted": "do not read distances off it",
        "qualified": "read far and near, not how far",
    }
    return f"{told}: {end.get(verdict, 'more text would decide')}."


def _quantities(rows: list[dict[str, Any]], chance: list["Fidelity"]) -> tuple[Quantity, ...]:
    scores = ("correlation", "trustworthiness", "continuity", "stability")
    return tuple(
        Quantity(
            f"scores of {row['projection']}",
            "1 keeps everything",
            "score",
            ("score",),
            {"score": list(scores)},
            np.array([row[name] for name in scores]),
            controls={"directions at random": np.array([getattr(blank, name) for name in scores])},
        )
        for row, blank in zip(rows, chance, strict=True)
    )
