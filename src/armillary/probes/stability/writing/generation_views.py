"""Tables, figures and passages of long generations."""

from collections.abc import Sequence

import numpy as np

from armillary.anatomy import Anatomy
from armillary.probes.machinery import Evidence, Floats, T, cells, interval_cells, line, table
from armillary.probes.stability.nudges.growth import LIVE
from armillary.probes.stability.writing.departures import Departures
from armillary.probes.stability.writing.generating import Generations
from armillary.probes.stability.writing.written_text import ENTROPY, LENGTH, NEIGHBOURS, PAIRS, STATES, TEXT, unit_of
from armillary.results import Quantity, Table

SHOWN = 28
"""Tokens of a passage."""


def passages(anatomy: Anatomy, written: Generations, window: int) -> tuple[tuple[str, int, str], ...]:
    """What the first generation reads like in its first, its middle and its last window, in every arm."""
    if anatomy.tokenizer is None:
        return ()
    rows = []
    for arm, tokens in written.arms.items():
        windows = tokens.ids.shape[1] // window
        for number in sorted({0, windows // 2, windows - 1}):
            ids = tokens.ids[0, number * window : number * window + SHOWN].tolist()
            rows.append((arm, number + 1, str(anatomy.tokenizer.decode(ids))))
    return tuple(rows)


def text_table(rows: Sequence[tuple[str, int, str]]) -> Table:
    return table(
        cells("arm", "how norms act", [arm for arm, _, _ in rows]),
        cells("window", "which window of the first generation", [number for _, number, _ in rows]),
        cells("passage", "how some windows of the first generation begin", [text for *_, text in rows]),
    )


def opening(departures: Departures, evicted: bool) -> str:
    prompts = len(departures.measured.arms[LIVE])
    how = (
        "the oldest keys were dropped from the model's own cache, and the others stayed as they were"
        if evicted
        else "its second half was read again from the first position, because keys can stay only with rotary positions "
        "and without layers that have a window of their own"
    )
    return (
        f"The model continued {prompts} prompts by {departures.windows} windows of {departures.window} tokens each "
        f"({departures.windows * departures.window} tokens). The window slid {2 * departures.windows - 1} times: "
        f"{how}. The first window, which begins with the prompt in view, is not compared."
    )


def notes(departures: Departures) -> tuple[str, ...]:
    lost = {arm: float(np.isnan(values).any(2).mean()) for arm, values in departures.measured.arms.items()}
    lines = [
        f"temperature 1, all tokens of the vocabulary; the band comes from {len(departures.measured.real)} overlapping "
        f"stretches of the survey's text"
    ]
    return (*lines, *(f"{arm}: {share:.0%} of windows overflow" for arm, share in lost.items() if share > 0))


def table_of(evidence: Evidence, departures: Departures) -> Table:
    """One row per quantity, with norms live."""
    names = departures.measured.names
    live = departures.measured.arms[LIVE]
    first, last = (values.mean(0) for values in departures.ends(live))
    sides = departures.sides(evidence, LIVE)
    return table(
        cells("quantity", "what is measured in every window", names),
        cells("unit", "of real, first and last", [unit_of(name) for name in names]),
        cells("real", "mean of real text", departures.measured.real.mean(0)),
        cells("first", "first third of the windows compared, norms live", first),
        cells("last", "last third of them, norms live", last),
        cells("spread", "standard deviation of real text's trend over as many windows", departures.spread),
        interval_cells(
            "trend", "last minus first, in units of spread", departures.intervals(evidence, departures.trends(LIVE))
        ),
        cells("beyond", "the whole interval lies beyond the band", [side == "outside" for side in sides]),
    )


def arm_table(evidence: Evidence, departures: Departures) -> Table:
    """The trend of every quantity in every arm, from the first third with norms live."""
    columns = []
    for arm in departures.measured.arms:
        ends = departures.intervals(evidence, departures.trends(arm))
        columns.append(interval_cells(arm, f"trend in units of spread, {arm}; empty: overflow", ends))
    return table(cells("quantity", "what is measured in every window", departures.measured.names), *columns)


def lines(evidence: Evidence, departures: Departures) -> tuple[Quantity, ...]:
    """Window by window: distance to real text and length at the last norm, entropy, and distinct pairs."""
    site = departures.measured.names[departures.measured.states - 1].partition(" at ")[2]
    chosen = [f"{NEIGHBOURS} at {site}", f"{LENGTH} at {site}", ENTROPY, PAIRS]
    return tuple(_line(evidence, departures, name) for name in chosen)


def _line(evidence: Evidence, departures: Departures, name: str) -> Quantity:
    place, meaning = departures.measured.names.index(name), {**STATES, **TEXT}[name.partition(" at ")[0]][0]
    live = departures.measured.arms[LIVE][:, :, place]
    real, band = departures.measured.real[:, place].mean(), T.generation_band * departures.level_spread[place]
    upper, lower = real + band, real - band
    if unit_of(name) == "share":
        upper, lower = min(1.0, upper), max(0.0, lower)
    means = {arm: _mean(values[:, :, place]) for arm, values in departures.measured.arms.items() if arm != LIVE}
    arms = {arm: values for arm, values in means.items() if np.isfinite(values).any()}
    lost = "".join(f"; {arm}: overflows" for arm in means if arm not in arms)
    ones = np.ones(departures.windows)
    return line(
        name,
        f"{meaning}; dotted: real text ± two standard deviations of a third's mean{lost}",
        unit_of(name),
        "window",
        list(range(1, departures.windows + 1)),
        departures.intervals(evidence, live),
        arms,
        {"real text, upper": upper * ones, "real text, lower": lower * ones},
        label=LIVE,
    )


def _mean(values: Floats) -> Floats:
    """Over the prompts that have not overflowed; NaN where most have."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        means = np.where(known, values, 0.0).sum(0) / known.sum(0)
    return np.asarray(np.where(known.mean(0) > 0.5, means, np.nan))
