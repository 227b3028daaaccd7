"""Do states drift when the window slides?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.stability.said import cell, intervals, mean, not_measured, unclear
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

BANDS = ((1, 4), (4, 16), (16, 32), (32, 64), (64, 10**9))
"""Distances from the beginning of the slid window: from, and below."""
COLUMNS = (
    Column("state", "state of the stream"),
    Column(
        "angle_one",
        "angle moved when the window slides by one token, mean over tokens far from its beginning",
        "degrees",
    ),
    Column("angle_half", "the same when half of the window has slid out", "degrees"),
    Column("angle_half_low", "its 95 % interval over documents, low end", "degrees"),
    Column("angle_half_high", "its 95 % interval over documents, high end", "degrees"),
    Column("kept_half", "angle_half with every token left the position it had", "degrees"),
    Column("exponent", "slope of log angle on log slide (empty where a slide moves nothing)"),
    Column("exponent_low", "its 95 % interval over documents, low end"),
    Column("exponent_high", "its 95 % interval over documents, high end"),
    Column("random_half", "angle_half at random initialisation", "degrees"),
)
SLIDES = (
    Column("slide", "tokens that slid out of the window", "tokens"),
    Column("angle", "angle moved by the last state, mean over the same tokens for every slide", "degrees"),
    Column("angle_low", "its 95 % interval over documents, low end", "degrees"),
    Column("angle_high", "its 95 % interval over documents, high end", "degrees"),
    Column("kept", "the same with every token left the position it had (empty: not measured)", "degrees"),
    *(
        Column(
            f"from_{low}",
            f"angle of all tokens {low} to {high - 1} tokens from the slid window's beginning (empty: none)",
            "degrees",
        )
        for low, high in BANDS[:-1]
    ),
    Column(
        f"from_{BANDS[-1][0]}", f"angle of all tokens {BANDS[-1][0]} or more tokens from it (empty: none)", "degrees"
    ),
)


@dataclass(frozen=True, eq=False)
class Drifted:
    """Angles in radians: sums [group, state, (count, sum)] by slide for positions restarted, kept, and the random twin."""

    states: tuple[str, ...]
    slides: tuple[int, ...]
    sums: Mapping[str, Mapping[int, Floats]]
    bands: Mapping[int, Floats]
    """slide → [group, band, (count, sum)] of the last state."""
    window: int
    far: int
    documents: int
    tokens: int
    epsilon: float

    def stacked(self) -> Floats:
        """[group, slide, state, (count, sum)] with positions restarted."""
        return np.stack([self.sums["restart"][by] for by in self.slides], 1)


@dataclass(frozen=True)
class Drift:
    """The same token in windows that begin later and later."""

    claim: ClassVar[Claim] = Claim(
        id="stability.drift",
        chapter="D",
        statement="With a sliding window, representations of the same token drift.",
        source="S3",
        definition=(
            "The same tokens in a window and in windows that begin 1, 2, 4 … tokens later, up to half of it: the angle "
            "between both directions of the stream, at each layer, in degrees; positions counted from 0 again, as a sliding "
            "window does. Compared are the same tokens for every slide, an eighth of the window or more behind the last "
            "slid window's beginning. Growth: slope of the logarithm of the mean angle on that of the slide. The statistic is "
            "the last state's mean angle when half of the window has slid out."
        ),
        control="slid by 0 (exactly 0); positions kept (what is no longer seen is all that differs; under rotation the same to rounding); "
        "random initialisation",
        rule=(
            f"Drifted: more than {T.drift_degrees:g}° with the whole interval. Supported: the last state drifts at a slide of one "
            "token already and at half the window, with positions restarted and with positions kept. Qualified: at half the "
            "window, but not at one token, or not with positions kept. Refuted: at half the window its interval lies below "
            f"{T.drift_degrees:g}°. Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Eight slides, one of them by 0, three again with positions kept, and two passes of the twin, over a third more
        # tokens than the evaluation text has; slid windows are shorter, so that fewer are read.
        return 19.0

    def experiment(self, bench: "Bench") -> Drifted | None:
        from armillary.probes.stability.window_angles import slide

        return slide(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        found: Drifted | None = evidence.found.get(self.claim.id)
        if found is None:
            why = "No document is long enough for a window to slide over; more text, in longer documents, would decide."
            return not_measured(self.claim, COLUMNS[0], (), why, "No text to slide over: nothing can be concluded")
        angles = np.rad2deg(intervals(evidence, found.stacked()))
        kept = {by: np.rad2deg(intervals(evidence, sums)) for by, sums in found.sums["keep"].items()}
        growth = _growth(evidence, found)
        verdict = _verdict(angles[:, -1], kept[found.slides[-1]][-1])
        value, low, high = (float(v) for v in angles[-1, -1])
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("angle moved by the last state, half the window slid out", value, low, high, "degrees"),
            n=found.tokens,
            controls=_controls(evidence, found, kept),
            reading=_reading(verdict, found, angles, kept, growth, evidence),
            headline=f"A token's last state turns by {angles[0, -1, 0]:.2g}° when the window slides by one token, by "
            f"{value:.2g}° when by {found.slides[-1]}",
            table=_table(found, angles, kept, growth),
            quantities=_quantities(found, angles, kept),
            notes=(
                f"windows of {found.window} tokens of {found.documents} documents; tokens from place {found.far} on are compared",
            ),
            more_tables={"slides": _slides(found, angles, kept)},
        )


def _growth(evidence: Evidence, found: Drifted) -> Floats:
    """[(whole, early, late), state, (value, low, high)] of the exponent over all slides, the first and the last few."""
    parts = (slice(None), slice(0, 3), slice(-3, None))
    return np.stack([intervals(evidence, found.stacked(), partial(exponent, found=found, part=part)) for part in parts])


def exponent(stats: Floats, found: Drifted, part: slice) -> Floats:
    """Slope of log mean angle [draw, slide, state] on log slide; NaN where a slide moves nothing but by rounding."""
    angle = mean(stats)[:, part]
    x = np.log(np.array(found.slides[part], dtype=float))
    x = x - x.mean()
    least = min(T.roundings * found.epsilon, np.deg2rad(T.drift_degrees / 10))
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(angle > least, np.log(angle), np.nan)
    return np.asarray(np.einsum("s,dsk->dk", x, y) / (x @ x))


def _verdict(angles: Floats, kept: Floats) -> Verdict:
    """From the last state's [slide, (value, low, high)], and the last slide's with positions kept."""
    one, half = angles[0], angles[-1]
    if np.isnan([*one, *half, *kept]).any():
        return "undecided"
    if half[2] < T.drift_degrees:
        return "refuted"
    if half[1] < T.drift_degrees:
        return "undecided"
    return "supported" if min(one[1], kept[1]) >= T.drift_degrees else "qualified"


def _controls(evidence: Evidence, found: Drifted, kept: dict[int, Floats]) -> tuple[Control, ...]:
    last = found.slides[-1]
    still = np.rad2deg(intervals(evidence, found.sums["restart"][0])[-1])
    made = [Control("slid by 0", *still.tolist()), Control("positions kept", *kept[last][-1].tolist())]
    if last in found.sums[RANDOM]:
        made.append(Control(RANDOM, *np.rad2deg(intervals(evidence, found.sums[RANDOM][last])[-1]).tolist()))
    return tuple(made)


def _reading(
    verdict: Verdict, found: Drifted, angles: Floats, kept: dict[int, Floats], growth: Floats, evidence: Evidence
) -> str:
    one, half = angles[0, -1], angles[-1, -1]
    last = found.slides[-1]
    deepest = int(np.nanargmax(angles[-1, :, 0]))
    told = (
        f"The last state turns by {one[0]:.2g}° when one token is forgotten and by {half[0]:.2g}° when {last} are (most at "
        f"{found.states[deepest]}, {angles[-1, deepest, 0]:.2g}°)"
    )
    told += _growing(growth[:, -1])
    if evidence.anatomy.positions.kind == "learned":
        alone = kept[last][-1, 0]
        why = "counting places anew makes up for part of it" if alone > half[0] else "the rest is the position table's"
        told += f"; with positions kept, so that only what is seen differs, {alone:.2g}°: {why}"
    if verdict == "undecided":
        return f"{told}; {unclear(f'{T.drift_degrees:g}°', half)}"
    return f"{told}."


def _growing(growth: Floats) -> str:
    """How the last state's angle grows, from its [(whole, early, late), (value, low, high)] exponents."""
    whole, early, late = growth
    if np.isnan(whole).any():
        return ""
    told = f"; the angle goes like the slide to the power {whole[0]:.2f} [{whole[1]:.2f}, {whole[2]:.2f}]"
    if late[2] < early[1]:
        return f"{told}, ever more slowly ({early[0]:.2f} at first, {late[0]:.2f} at the end)"
    return f"{told}, ever faster ({early[0]:.2f} at first, {late[0]:.2f} at the end)" if late[1] > early[2] else told


def _table(found: Drifted, angles: Floats, kept: dict[int, Floats], growth: Floats) -> Table:
    last = found.slides[-1]
    twin = (
        np.rad2deg(mean(found.sums[RANDOM][last].sum(0)))
        if last in found.sums[RANDOM]
        else np.full(len(found.states), np.nan)
    )
    rows: list[dict[str, Any]] = [
        {
            "state": state,
            "angle_one": cell(angles[0, i, 0]),
            "angle_half": cell(angles[-1, i, 0]),
            "angle_half_low": cell(angles[-1, i, 1]),
            "angle_half_high": cell(angles[-1, i, 2]),
            "kept_half": cell(kept[last][i, 0]),
            "exponent": cell(growth[0, i, 0]),
            "exponent_low": cell(growth[0, i, 1]),
            "exponent_high": cell(growth[0, i, 2]),
            "random_half": cell(twin[i]),
        }
        for i, state in enumerate(found.states)
    ]
    return Table.of(COLUMNS, rows)


def _slides(found: Drifted, angles: Floats, kept: dict[int, Floats]) -> Table:
    rows: list[dict[str, Any]] = []
    for i, by in enumerate(found.slides):
        value, low, high = (cell(v) for v in angles[i, -1])
        row: dict[str, Any] = {"slide": by, "angle": value, "angle_low": low, "angle_high": high}
        row["kept"] = cell(kept[by][-1, 0]) if by in kept else None
        bands = np.rad2deg(mean(found.bands[by].sum(0)))
        rows.append(row | {f"from_{start}": cell(v) for (start, _), v in zip(BANDS, bands, strict=True)})
    return Table.of(SLIDES, rows)


def _quantities(found: Drifted, angles: Floats, kept: dict[int, Floats]) -> tuple[Quantity, ...]:
    slides, last = np.array(found.slides, dtype=float), found.slides[-1]
    others = {"one token slid out": angles[0, :, 0], "positions kept": kept[last][:, 0]}
    others |= {RANDOM: np.rad2deg(mean(found.sums[RANDOM][last].sum(0)))} if last in found.sums[RANDOM] else {}
    level = np.full(len(slides), T.drift_degrees)
    return (
        Quantity(
            "angle moved by the last state",
            "mean over the same tokens, by how far the window has slid",
            "degrees",
            ("slide",),
            {"slide": slides.tolist()},
            angles[:, -1, 0],
            angles[:, -1, 1],
            angles[:, -1, 2],
            theory={"like √slide": angles[0, -1, 0] * np.sqrt(slides), f"drift: {T.drift_degrees:g}°": level},
            logs=("slide", "value"),
        ),
        Quantity(
            "angle moved by each state",
            "half of the window slid out, mean over tokens",
            "degrees",
            ("state",),
            {"state": list(found.states)},
            angles[-1, :, 0],
            angles[-1, :, 1],
            angles[-1, :, 2],
            controls=others,
        ),
        Quantity(
            "angle moved, by slide and state",
            "mean over the same tokens",
            "degrees",
            ("slide", "state"),
            {"slide": [str(by) for by in found.slides], "state": list(found.states)},
            angles[:, :, 0],
        ),
    )
