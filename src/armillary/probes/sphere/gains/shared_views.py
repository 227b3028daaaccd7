"""How is it shown what two layers share? Tables of exchanges and of likeness, and both as lines."""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import NAN3, T
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.sphere.gains.shared_axes import AxisOverlap, GainLikeness
from armillary.probes.sphere.gains.shared_parts import UNIT, size_ratio, state_of
from armillary.results import Quantity, Table, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.sphere.gains.gain_swaps import Swaps


def headline(swaps: "Swaps | None", gains: GainLikeness) -> str:
    if swaps is None:
        gain = say(float(gains.gain[0]), ".2f") if len(gains.gain) else "–"
        return f"Neighbouring layers' γ correlate with {gain} over axes; an exchange has no cost here"
    swap, permuted = swaps.median("swap")[0], swaps.median("permute")[0]
    return (
        f"Exchanging γ and β of neighbouring layers costs {say(swap, '.2g')} nats per token (median pair); permuting "
        f"their axes costs {say(permuted, '.2g')}"
    )


def swap_table(swaps: "Swaps", anatomy: "Anatomy") -> Table:
    pairs = [*swaps.neighbours, *swaps.far]
    near = len(swaps.neighbours)
    permuted = [swaps.permuted(pair) if i < near else NAN3 for i, pair in enumerate(pairs)]
    states = [state_of(swaps, pair) for pair in swaps.neighbours] + [""] * len(swaps.far)
    level = swaps.strict.level
    return table(
        cells("layers", "two layers that exchange γ and β of all their norms", [pair.name for pair in pairs]),
        cells("distance", "how far apart they are", [pair.distance for pair in pairs], "layers"),
        interval_cells("cost", "change of the loss", np.array([swaps.cost(pair) for pair in pairs]), UNIT, level=level),
        interval_cells("permuted", "with their own γ and β, axes permuted", np.array(permuted), UNIT, level=level),
        cells("state", "what follows for neighbours", states),
        cells("size_ratio", "size of the second layer's γ over the first's", [size_ratio(anatomy, p) for p in pairs]),
    )


def likeness_table(gains: GainLikeness, overlap: AxisOverlap | None) -> Table:
    count = len(gains.gain)
    nothing = np.full((count, 3), np.nan)
    return table(
        cells("distance", "layers between the two", range(1, count + 1), "layers"),
        cells("gain", "correlation over axes of two layers' γ, mean", gains.gain),
        cells("shift", "of their β", gains.shift),
        cells("overlap", "of the strongest axes of z", (nothing if overlap is None else overlap.by_distance[1:])[:, 0]),
    )


def shared_lines(swaps: "Swaps | None", gains: GainLikeness, overlap: AxisOverlap | None) -> tuple[Quantity, ...]:
    quantities = []
    if swaps is not None:
        pairs = [*swaps.neighbours, *swaps.far]
        permuted = [swaps.permuted(pair)[0] for pair in swaps.neighbours] + [np.nan] * len(swaps.far)
        limit = {f"the limit: {T.shared_cost}": np.full(len(pairs), T.shared_cost)}
        quantities.append(
            line(
                "cost of exchanging γ and β",
                "neighbours first, then pairs further apart; the limit is for neighbours",
                UNIT,
                "layers that change places",
                [f"{pair.first} ↔ {pair.second}" for pair in pairs],
                np.array([swaps.cost(pair) for pair in pairs]),
                {"axes permuted instead": np.array(permuted)},
                limit,
                ("value",),
            )
        )
    if len(gains.gain):
        distance = [float(n) for n in range(1, len(gains.gain) + 1)]
        name = "likeness of two layers, by distance"
        chance = {"permuted axes: 0": np.zeros(len(distance))}
        others = {"β": gains.shift} if np.isfinite(gains.shift).any() else {}
        if overlap is not None:
            others["overlap of strongest axes of z"] = overlap.by_distance[1:, 0]
        quantities.append(
            line(
                name,
                "correlation over axes of γ and of β, and overlap of the strongest axes of z",
                "likeness",
                "distance in layers",
                distance,
                gains.gain,
                others,
                chance,
                label="γ",
            )
        )
    return tuple(quantities)
