"""How are the bits of coded layers listed and drawn?"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import RANDOM, Cells, Evidence, Floats, cells, interval_cells, line, table
from armillary.results import Quantity, Table

if TYPE_CHECKING:
    from armillary.probes.filter.compression.bits import CodedLayer

CONTROLS = {"turned": "random orientation, matched moments", "unshifted": "random orientation, no shift"}
"""Source of bits → the name of the control."""
BITS = "bits/coordinate"
Coded = dict[int, "CodedLayer"]
"""Layer → its bits."""


def layer_names(coded: Coded) -> list[str]:
    return [f"L{layer}" for layer in coded]


def bit_table(coded: Coded, saved: Floats, more: Floats, untrained: Floats) -> Table:
    layers = coded.values()

    def bits(name: str, meaning: str, source: str, side: str) -> Cells:
        return cells(name, meaning, [layer.mean_bits(source, side) for layer in layers], BITS)

    def gain(source: str, meaning: str) -> Cells:
        return cells(f"saved_{source}", meaning, [layer.saved(source) for layer in layers], BITS)

    def shape(name: str, side: str, meaning: str) -> Cells:
        return cells(f"{name}_{side}", meaning, [layer.shape(name, side) for layer in layers])

    return table(
        cells("layer", "layer", layer_names(coded)),
        bits("before", "bits before the activation (of the gate), step: ¼ of its root mean square", "model", "before"),
        bits("after", "bits after it, step: ¼ of its own root mean square", "model", "own"),
        bits("after_same", "bits after it, at the same absolute step as before", "model", "same"),
        interval_cells("saved", "before − after: what the activation saves", saved, BITS),
        gain("turned", "the same with random directions W_1, each unit at its own mean and variance"),
        interval_cells("more", "saved − saved_turned", more, BITS),
        gain("unshifted", "saved with random directions W_1, each unit centred at zero"),
        interval_cells(
            "saved_untrained", "saved at random initialisation, in the nearest layer that was coded", untrained, BITS
        ),
        bits("product", "bits of W_out's input, step: ¼ of its own size; empty without a gate", "product", "own"),
        shape("rank", "before", "participation ratio of the covariance before the activation"),
        shape("rank", "after", "participation ratio after it"),
        shape("rank", "product", "participation ratio of the product; empty without a gate"),
        shape("entropy_rank", "before", "entropy rank before, of the sampled tokens (at most their number)"),
        shape("entropy_rank", "after", "entropy rank after it"),
        shape("hoyer", "before", "Hoyer sparsity before the activation, mean over tokens"),
        shape("hoyer", "after", "Hoyer sparsity after it"),
        shape("hoyer", "product", "Hoyer sparsity of the product; empty without a gate"),
    )


def _bit_cells(rows: list[tuple["CodedLayer", str]]) -> dict[str, Cells]:
    """The three columns of bits, for pairs of a layer and a source."""
    columns = {
        "before": ("before", "bits before the activation, at that step"),
        "after": ("own", "bits after it, at the same share of its own size"),
        "after_same": ("same", "bits after it, at the same absolute step as before"),
    }
    return {
        name: cells(name, meaning, [layer.mean_bits(source, side) for layer, source in rows], BITS)
        for name, (side, meaning) in columns.items()
    }


def orientation_table(coded: Coded) -> Table:
    names = {"model": "the model's", **CONTROLS}
    sources = ["model", *CONTROLS]
    rows = [(f"L{i}", layer, source) for i, layer in coded.items() for source in sources]
    bits = _bit_cells([(layer, source) for _, layer, source in rows])
    return table(
        cells("layer", "layer", [name for name, _, _ in rows]),
        cells("w_1", "whose directions and shifts: the model's, or a control's", [names[row[2]] for row in rows]),
        *bits.values(),
    )


def step_table(coded: Coded) -> Table:
    from armillary.probes.filter.compression.bits import STEPS

    rows = [(f"L{i}", layer, step) for i, layer in coded.items() for step in STEPS]
    bits = _bit_cells([(layer, f"model {step:g}") for _, layer, step in rows])
    return table(
        cells("layer", "layer", [name for name, _, _ in rows]),
        cells("step", "step before the activation, as a share of the root mean square", [row[2] for row in rows]),
        bits["before"],
        bits["after_same"],
        bits["after"],
    )


def bit_lines(coded: Coded, saved: Floats, untrained: Floats) -> tuple[Quantity, ...]:
    names, layers = layer_names(coded), coded.values()

    def after(name: str, meaning: str, unit: str, values: list[float], beside: dict[str, list[float]]) -> Quantity:
        others = {label: np.array(column) for label, column in beside.items()}
        return line(name, meaning, unit, "layer", names, np.array(values), others, label="after it")

    others = {CONTROLS[source]: np.array([layer.saved(source) for layer in layers]) for source in CONTROLS}
    if np.isfinite(untrained[:, 0]).all():
        others[RANDOM] = untrained[:, 0]
    savings = line(
        "bits saved by the activation",
        "bits per coordinate before minus after, each at a quarter of its own size",
        "bits",
        "layer",
        names,
        saved,
        others,
        {"nothing saved: 0": np.zeros(len(names))},
    )
    sides = {"before it": "before", "after, at the step of before": "same"}
    bits = after(
        "bits per coordinate after the activation",
        "in a decodable bitstream",
        "bits",
        [layer.mean_bits("model", "own") for layer in layers],
        {label: [layer.mean_bits("model", side) for layer in layers] for label, side in sides.items()},
    )
    shapes = []
    for name, title, meaning in (
        ("rank", "effective rank after the activation", "participation ratio of the covariance"),
        ("hoyer", "Hoyer sparsity after the activation", "0 if all entries have one size, 1 if only one is not zero"),
    ):
        first, second = ([layer.shape(name, side) for layer in layers] for side in ("before", "after"))
        if not np.isnan([*first, *second]).any():
            shapes.append(after(title, meaning, "", second, {"before it": first}))
    return (savings, bits, *shapes)


def expert_bit_table(evidence: Evidence, experts: dict[tuple[int, str], "CodedLayer"]) -> Table:
    """What the activation of every expert saves on the tokens that it gets."""
    from armillary.probes.filter.compression.compress_parts import saved_beyond, saved_by

    missing = np.full((len(experts), 3), np.nan)
    saved, more = missing.copy(), missing.copy()
    known = [row for row, layer in enumerate(experts.values()) if layer.bits]
    if known:
        layers = [list(experts.values())[row] for row in known]
        saved[known], more[known] = saved_by(evidence, layers), saved_beyond(evidence, layers)
    bits = _bit_cells([(layer, "model") for layer in experts.values()])
    return table(
        cells("layer", "layer", [f"L{layer}" for layer, _ in experts]),
        cells("expert", "the expert", [name for _, name in experts]),
        cells(
            "tokens", "sampled tokens that it gets; too few are not coded", [layer.tokens for layer in experts.values()]
        ),
        bits["before"],
        bits["after"],
        interval_cells("saved", "before − after: what its activation saves", saved, BITS),
        interval_cells("more", "saved beyond random directions with matched moments", more, BITS),
    )
