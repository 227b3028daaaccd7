"""Do states drift when the window slides, and do norms hold the drift back?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Floats, T, undecided, weakest
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import FIVE_SHOWN
from armillary.probes.stability.nudges.growth import APART, FROZEN, OWN
from armillary.probes.stability.sliding.drift_parts import drifts, held_back
from armillary.probes.stability.sliding.window_angles import KEPT, WindowAngles, curve_table, exponents, slide_table
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

STATISTIC = "angle moved by the last state, half of the longest window slid out"


@dataclass(frozen=True)
class Drift:
    """The same token in windows that start later and later, with norms live and with norms frozen."""

    claim: ClassVar[Claim] = Claim(
        id="stability.drift",
        chapter="D",
        statement="With a sliding window, representations of the same token drift, and norms hold the drift back.",
        source="S3",
        question=(
            "When the beginning of a text drops out of the model's window, by how many degrees does a token's "
            "vector turn? And would it turn more without norms?"
        ),
        kind="behaviour",
        definition=(
            "How far a token's state turns when the beginning of the text drops out of the window. The same tokens "
            "are read in one window and in windows that start later: by one token, by half of the window, and by a "
            "number in between. Positions restart at 0, as in a sliding window. The angle between a token's two "
            "states is measured after each block, in degrees.\n"
            "The statistic is the last state's mean angle when half of the longest window has slid out.\n"
            "Windows are as long as the context, at most 512 tokens (128 with --quick). A document shorter than the "
            "window stands at its end, and the text before the document fills the rest. Only the document's own "
            "tokens are compared, and only those at least an eighth of the window after the start of the last slid "
            "window. Shorter windows are measured as well: the longer the window, the less its lost beginning "
            "matters.\n"
            "For part 2, norms are frozen in both windows, so that no norm brings a state back to its sphere. They "
            "are frozen in three ways: to one scale for all tokens; to one scale, but first tokens at their own; and "
            "to the scale that each token had in the whole window, with first tokens apart."
        ),
        control=(
            "the shortest windows slid by 0 (exactly 0); positions kept, so that only the context differs (with "
            "rotary positions the result is the same up to rounding); random initialisation (five untrained models "
            "of a small one), where states drift by tens of degrees"
        ),
        rule=(
            "Two parts; the weaker decides. An angle or a ratio lies above or below a limit only if its whole "
            "interval does.\n"
            "Part 1, states drift. A state has drifted if its mean angle in the longest windows lies above "
            f"{T.drift_degrees:g}°.\n"
            "Supported if the last state has drifted after one token, after half of the window, and after half of "
            "the window with positions kept.\n"
            f"Qualified if it has drifted after half of the window, but its angle lies below {T.drift_degrees:g}° "
            "after one token or with positions kept.\n"
            f"Refuted if its angle after half of the window lies below {T.drift_degrees:g}°.\n"
            "Undecided otherwise: an interval spans its limit or is missing.\n"
            "Part 2, norms hold the drift back. The angle with norms frozen is divided by the angle with norms live; "
            "if most tokens overflow with norms frozen, the ratio counts as above the limit of "
            f"{T.reprojection_factor:g}.\n"
            f"Supported if the ratio lies above {T.reprojection_factor:g} for all three ways of freezing norms.\n"
            "Qualified if it lies above for some ways and below for others.\n"
            "Refuted if it lies below for all three.\n"
            "Undecided otherwise: an interval spans its limit or is missing, or live norms leave no angle to compare "
            "with."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The verdict depended on the length of the window: the longer it is, the smaller the angle. It is now "
                "taken at the longest window that context and cost allow. The source also says that norms tame the "
                "drift; that is a second part, decided by the ratio of angles with norms frozen and live.",
            ),
            FIVE_SHOWN,
        ),
        rewordings=(
            Rewording("2026-11-18", "84e3dad25b9d", 2),
            Rewording("2026-11-18", "4f6fadb8c910", 2),
            Rewording("2026-11-19", "7ee2c8ca17ac", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Ten windows of at most 512 tokens are 3.3 times the evaluation text: three slides of it, kept and frozen ones,
        # one and a half of each of five twins; and the shorter windows.
        return 60.0

    def experiment(self, bench: "Bench") -> WindowAngles | None:
        from armillary.probes.stability.sliding.sliding_windows import slide

        return slide(bench)

    def conclude(self, evidence: Evidence, result: WindowAngles | None) -> Finding:
        if result is None:
            reading = "No document is long enough for a window to slide over. Give more text, in longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, table(cells("state", "state of the stream", ())))
        angles = np.rad2deg(evidence.intervals(result.stacked()))
        in_place = {by: np.rad2deg(evidence.intervals(sums)) for by, sums in result.sums[KEPT].items()}
        curve = np.stack([np.rad2deg(evidence.intervals(sums)) for sums in result.curve.values()])
        growth, untrained = exponents(evidence, result), result.untrained(evidence)
        last, (value, low, high) = result.slides[-1], angles[-1, -1].tolist()
        learned = evidence.anatomy.positions.kind == "learned"
        parts = (
            drifts(result, angles, in_place[last][-1], untrained[-1], growth[:, -1], learned),
            held_back(evidence, result),
        )
        verdict, why = weakest(parts)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            parts=parts,
            statistic=Statistic(STATISTIC, value, low, high, "degrees"),
            n=result.tokens,
            controls=_controls(evidence, result, in_place[last][-1], untrained[-1]),
            reading=" ".join(part.reading for part in parts)
            + (" More text, in longer documents, would decide." if why in (Why.SPANS_LIMIT, Why.NO_INTERVAL) else ""),
            headline=f"In windows of {result.window} tokens, a token's last state moves by {angles[0, -1, 0]:.2g}° "
            f"when one token slides out, by {value:.2g}° when {last} do",
            table=_table(result, angles, in_place[last], growth[0], untrained),
            quantities=_quantities(result, angles, in_place[last], curve, untrained),
            notes=_notes(result),
            more_tables={"slides": slide_table(result, angles, in_place), "windows": curve_table(result, curve)},
        )


def _controls(evidence: Evidence, result: WindowAngles, in_place: Floats, untrained: Floats) -> tuple[Control, ...]:
    controls = {KEPT: in_place}
    if result.none.any():
        controls = {"slid by 0": np.rad2deg(evidence.intervals(result.none)), **controls}
    for name in (FROZEN, APART, OWN):
        if not result.diverges(name):
            controls[name] = np.rad2deg(evidence.intervals(result.sums[name][result.slides[-1]]))[-1]
    if result.twins:
        controls[RANDOM] = untrained
    return tuple(Control(name, *angle.tolist()) for name, angle in controls.items())


def _notes(result: WindowAngles) -> tuple[str, ...]:
    notes = [
        f"windows of {result.window} tokens from {result.documents} documents; tokens from position {result.far} "
        "on are compared"
    ]
    if result.own < result.window:
        notes.append(f"{result.window - result.own} tokens of each window come from the text before its document")
    if result.window < result.context:
        notes.append(f"the context of {result.context} tokens is longer than the longest window")
    return (*notes, f"random initialisation: {len(result.twins)} untrained models")


def _table(result: WindowAngles, angles: Floats, in_place: Floats, growth: Floats, untrained: Floats) -> Table:
    last = result.slides[-1]
    frozen = [np.rad2deg(_defined(result.sums[name][last])) for name in (FROZEN, APART, OWN)]
    return table(
        cells("state", "state of the stream", result.states),
        cells("angle_one", "mean angle moved when the window slides by one token", angles[0, :, 0], "degrees"),
        interval_cells("angle_half", "the same when half of the window has slid out", angles[-1], "degrees"),
        cells("kept_half", "angle_half with positions kept", in_place[:, 0], "degrees"),
        cells("frozen_half", "angle_half with norms frozen to one scale (empty: diverged)", frozen[0], "degrees"),
        cells("apart_half", "the same, but first tokens have their own scale (empty: diverged)", frozen[1], "degrees"),
        cells("own_half", "angle_half at each token's scale before the slide (empty: diverged)", frozen[2], "degrees"),
        interval_cells("exponent", "slope of log angle on log slide (empty where a slide moves nothing)", growth),
        cells("random_half", "angle_half at random initialisation, mean over twins", untrained[:, 0], "degrees"),
    )


def _defined(sums: Floats) -> Floats:
    """[state]: the mean angle of [group, state, (count, sum)]; NaN where nothing is finite."""
    count, total = sums.sum(0).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, total / count, np.nan))


def _quantities(
    result: WindowAngles, angles: Floats, in_place: Floats, curve: Floats, untrained: Floats
) -> tuple[Quantity, ...]:
    slides, states = np.array(result.slides, dtype=float), list(result.states)
    others = {"one token slid out": angles[0, :, 0], KEPT: in_place[:, 0]}
    limit = f"drift: {T.drift_degrees:g}°"
    return (
        line(
            "angle moved by the last state, by length of the window",
            "half of the window slid out, mean over tokens",
            "degrees",
            "window",
            [float(n) for n in result.curve],
            curve[:, 1],
            {"one token slid out": curve[:, 0, 0]},
            {limit: np.full(len(curve), T.drift_degrees)},
            logs=("window", "value"),
        ),
        line(
            "angle moved by the last state, by slide",
            f"mean over the same tokens, in windows of {result.window} tokens",
            "degrees",
            "slide",
            slides.tolist(),
            angles[:, -1],
            theory={"like √slide": angles[0, -1, 0] * np.sqrt(slides), limit: np.full(len(slides), T.drift_degrees)},
            logs=("slide", "value"),
        ),
        line(
            "angle moved by each state",
            "half of the window slid out, mean over tokens",
            "degrees",
            "state",
            states,
            angles[-1],
            others | ({RANDOM: untrained[:, 0]} if result.twins else {}),
        ),
    )
