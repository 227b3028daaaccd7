"""How are the bits and ranks of inputs and writes listed and drawn?"""

from collections.abc import Mapping

import numpy as np

from armillary.probes.filter.writes.layer_writes import ATTENTION, INPUT, KEPT, THROUGH, WRITE
from armillary.probes.filter.writes.write_bits import STEP, WriteBits
from armillary.probes.filter.writes.write_parts import WriteSavings
from armillary.probes.machinery import RANDOM, Floats, T
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.results import Quantity, Table

BITS = "bits/coordinate"
MEANINGS = {
    INPUT: "bits of the input y",
    WRITE: "bits of what the feed-forward writes",
    ATTENTION: "bits of what attention writes",
    KEPT: "bits of what units above zero write alone",
    THROUGH: "bits of the write with the values below zero let through",
}


def write_table(measured: WriteBits, saved: WriteSavings) -> Table:
    chosen = measured.writing
    ranks = measured.ranks[0, chosen].T
    return table(
        cells("layer", "layer", [f"L{layer}" for layer in saved.layers]),
        *(cells(name, meaning, measured.bits(name)[chosen], BITS) for name, meaning in MEANINGS.items()),
        interval_cells("saved", "share of the input's bits that the write does not need", saved.bits[INPUT].each),
        interval_cells(
            "saved_untrained", "the same at random initialisation, in the nearest layer measured", saved.untrained.each
        ),
        interval_cells("saved_attention", "share of the bits of attention's write", saved.bits[ATTENTION].each),
        interval_cells("saved_through", "share of the bits with the discarded let through", saved.bits[THROUGH].each),
        cells("rank_input", "participation ratio of the input", ranks[0]),
        cells("rank_write", "participation ratio of the feed-forward's write", ranks[1]),
        cells("rank_attention", "participation ratio of attention's write", ranks[2]),
        interval_cells("rank_saved", "share of the input's rank that the write does not need", saved.rank.each),
    )


def write_lines(measured: WriteBits, saved: WriteSavings) -> tuple[Quantity, ...]:
    names, chosen = [f"L{layer}" for layer in saved.layers], measured.writing
    zeros, ranks = np.zeros(len(names)), measured.ranks[0, chosen].T
    others = {"its input": INPUT, "attention's write": ATTENTION}
    variants = {"units above zero alone": KEPT, "discarded values let through": THROUGH}

    def bits(name: str, labels: Mapping[str, str]) -> Quantity:
        return line(
            name,
            f"in principal axes, at a step of {STEP:g} of the stream's own root mean square",
            "bits",
            "layer",
            names,
            measured.bits(WRITE)[chosen],
            _known({label: measured.bits(stream)[chosen] for label, stream in labels.items()}),
            label="feed-forward's write",
        )

    return (
        line(
            "bits saved by the update",
            "share of the bits of the feed-forward's input that its write does not need",
            "share",
            "layer",
            names,
            saved.bits[INPUT].each,
            _known({"attention's write": saved.attention.each[:, 0], RANDOM: saved.untrained.each[:, 0]}),
            {"nothing saved: 0": zeros, f"threshold: {T.write_saved:g}": zeros + T.write_saved},
            label="feed-forward's write",
        ),
        bits("bits per coordinate", others),
        bits("bits with and without discarded units", variants),
        line(
            "effective rank",
            "participation ratio of the covariance over tokens",
            "directions",
            "layer",
            names,
            ranks[1],
            _known({"its input": ranks[0], "attention's write": ranks[2]}),
            label="feed-forward's write",
        ),
    )


def _known(lines: Mapping[str, Floats]) -> dict[str, Floats]:
    """Without what could not be measured in any layer."""
    return {name: values for name, values in lines.items() if np.isfinite(values).any()}
