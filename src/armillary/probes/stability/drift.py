"""Do states drift when the window slides?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Floats, T, undecided
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.stability.window_angles import KEPT, RESTARTED, WindowAngles, exponents, slide_table
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class Drift:
    """The same token in windows that start later and later."""

    claim: ClassVar[Claim] = Claim(
        id="stability.drift",
        chapter="D",
        statement="With a sliding window, representations of the same token drift.",
        source="S3",
        definition=(
            "The same tokens are read in a window and in windows that start 1, 2, 4 … tokens later, up to half of the "
            "window. Positions restart at 0, as in a sliding window. Measured is the angle between the token's two "
            "states, after each block, in degrees. The same tokens are compared for every slide: those at least an "
            "eighth of the window behind the start of the last slid window. Growth is the slope of the log mean angle "
            "on the log slide. The statistic is the last state's mean angle when half of the window has slid out."
        ),
        control=(
            "slid by 0 (exactly 0); positions kept, so that only the context differs (with rotary positions the same "
            "up to rounding); random initialisation"
        ),
        rule=(
            f"A state has drifted if its mean angle lies above {T.drift_degrees:g}° with its whole interval. Supported "
            "if the last state has drifted after one token and after half of the window with positions restarted, and "
            "after half of the window with positions kept. Qualified if it has drifted after half of the window, but "
            "not after one token or not with positions kept. Refuted if its angle after half of the window lies below "
            f"{T.drift_degrees:g}° with its whole interval. Undecided otherwise, or if an interval is missing."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Eight slides (one of them by 0), three again with positions kept, and two passes of the twin, over a third
        # more tokens than the evaluation text has; slid windows are shorter.
        return 19.0

    def experiment(self, bench: "Bench") -> WindowAngles | None:
        from armillary.probes.stability.sliding_windows import slide

        return slide(bench)

    def conclude(self, evidence: Evidence, result: WindowAngles | None) -> Finding:
        if result is None:
            reading = "No document is long enough for a window to slide over. Give more text, in longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, table(cells("state", "state of the stream", ())))
        angles = np.rad2deg(evidence.intervals(result.stacked()))
        kept = {by: np.rad2deg(evidence.intervals(sums)) for by, sums in result.sums[KEPT].items()}
        growth = exponents(evidence, result)
        last, (value, low, high) = result.slides[-1], angles[-1, -1].tolist()
        verdict, why = _decide(angles[0, -1], angles[-1, -1], kept[last][-1])
        learned = evidence.anatomy.positions.kind == "learned"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("angle moved by the last state, half the window slid out", value, low, high, "degrees"),
            n=result.tokens,
            controls=_controls(evidence, result, kept[last][-1]),
            reading=_reading(result, angles, kept[last][-1, 0] if learned else None, growth[:, -1])
            + (" More text, in longer documents, would decide." if why else ""),
            headline=f"A token's last state moves by {angles[0, -1, 0]:.2g}° when the window slides by one token, by "
            f"{value:.2g}° when it slides by {last}",
            table=_table(result, angles, kept[last], growth[0]),
            quantities=_quantities(result, angles, kept[last]),
            notes=(
                f"windows of {result.window} tokens of {result.documents} documents; "
                f"tokens from position {result.far} on are compared",
            ),
            more_tables={"slides": slide_table(result, angles, kept)},
        )


def _decide(one: Floats, half: Floats, kept: Floats) -> tuple[Verdict, Why | None]:
    """From the last state's (value, low, high) after one token, after half the window, and with positions kept."""
    if np.isnan([*one, *half, *kept]).any():
        return "undecided", Why.NO_INTERVAL
    if half[2] < T.drift_degrees:
        return "refuted", None
    if half[1] < T.drift_degrees:
        return "undecided", Why.SPANS_LIMIT
    return "supported" if min(one[1], kept[1]) >= T.drift_degrees else "qualified", None


def _controls(evidence: Evidence, result: WindowAngles, kept: Floats) -> tuple[Control, ...]:
    controls = {"slid by 0": np.rad2deg(evidence.intervals(result.sums[RESTARTED][0]))[-1], KEPT: kept}
    random = result.sums[RANDOM].get(result.slides[-1])
    if random is not None:
        controls[RANDOM] = np.rad2deg(evidence.intervals(random))[-1]
    return tuple(Control(name, *angle.tolist()) for name, angle in controls.items())


def _reading(result: WindowAngles, angles: Floats, kept: float | None, growth: Floats) -> str:
    half, most = angles[-1, -1, 0], int(np.nanargmax(angles[-1, :, 0]))
    text = (
        f"A token's last state moves by {angles[0, -1, 0]:.2g}° when one token slides out of the window and by "
        f"{half:.2g}° when {result.slides[-1]} do; the most moved state is {result.states[most]} "
        f"({angles[-1, most, 0]:.2g}°).{_growing(*growth)}"
    )
    if kept is None:
        return text
    share = "restarting positions makes up for part of it" if kept > half else "the rest is due to the position table"
    return f"{text} With positions kept, so that only the context differs, it moves by {kept:.2g}°: {share}."


def _growing(whole: Floats, first: Floats, last: Floats) -> str:
    """How the last state's angle grows, from exponents (value, low, high) over all, the first and the last slides."""
    if np.isnan(whole).any():
        return ""
    value, low, high = (say(part, ".2f") for part in whole)
    text = f" The angle grows as the slide to the power of {value} [{low}, {high}]"
    ends = f"{say(first[0], '.2f')} over the first slides, {say(last[0], '.2f')} over the last"
    if last[2] < first[1]:
        return f"{text}, slower and slower ({ends})."
    return f"{text}, faster and faster ({ends})." if last[1] > first[2] else f"{text}."


def _table(result: WindowAngles, angles: Floats, kept: Floats, growth: Floats) -> Table:
    return table(
        cells("state", "state of the stream", result.states),
        cells("angle_one", "mean angle moved when the window slides by one token", angles[0, :, 0], "degrees"),
        interval_cells("angle_half", "the same when half of the window has slid out", angles[-1], "degrees"),
        cells("kept_half", "angle_half with positions kept", kept[:, 0], "degrees"),
        interval_cells("exponent", "slope of log angle on log slide (empty: a slide moves nothing)", growth),
        cells("random_half", "angle_half at random initialisation", result.random(), "degrees"),
    )


def _quantities(result: WindowAngles, angles: Floats, kept: Floats) -> tuple[Quantity, ...]:
    slides, states, by_state = np.array(result.slides, dtype=float), list(result.states), angles[-1]
    others = {"one token slid out": angles[0, :, 0], KEPT: kept[:, 0]}
    theory = {
        "like √slide": angles[0, -1, 0] * np.sqrt(slides),
        f"drift: {T.drift_degrees:g}°": np.full(len(slides), T.drift_degrees),
    }
    return (
        line(
            "angle moved by the last state",
            "mean over the same tokens, by how far the window has slid",
            "degrees",
            "slide",
            slides.tolist(),
            angles[:, -1],
            theory=theory,
            logs=("slide", "value"),
        ),
        line(
            "angle moved by each state",
            "half of the window slid out, mean over tokens",
            "degrees",
            "state",
            states,
            by_state,
            others | ({RANDOM: result.random()} if result.slides[-1] in result.sums[RANDOM] else {}),
        ),
        Quantity(
            "angle moved, by slide and state",
            "mean over the same tokens",
            "degrees",
            ("slide", "state"),
            {"slide": [str(by) for by in result.slides], "state": states},
            angles[:, :, 0],
        ),
    )
