"""How many bits and how many directions do a layer's input and its writes take?

A stream is turned to its principal axes, so that its bits do not depend on the axes it happens to be written in. The
axes come from the other half of the documents: no token helps to describe itself. Every coordinate is quantised at one
step, a quarter of the stream's own root mean square, and coded with a table per octave of axes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.filter.writes.layer_writes import ATTENTION, INPUT, STREAMS, WRITE, layer_writes
from armillary.probes.machinery import Evidence, Flags, Floats, Ints, over_sites
from armillary.probes.sphere.spectra.dimension_estimates import participation_draws

if TYPE_CHECKING:
    from torch import Tensor

STEP = 0.25
RANKED = (INPUT, WRITE, ATTENTION)


@dataclass(frozen=True, eq=False)
class WriteBits:
    """Some layers of one arm."""

    layers: tuple[int, ...]
    tokens: int
    sums: Floats
    """[document group, layer, (coordinates, bits of each of STREAMS)]; NaN for a stream that could not be told."""
    ranks: Floats
    """[1 + draw, layer, (input, write, attention)]: participation ratios; NaN where nothing varies."""

    @property
    def writing(self) -> Flags:
        """[layer]: does the feed-forward write anything that varies over tokens?"""
        return np.asarray(self.bits(WRITE) > 0)

    def bits(self, name: str) -> Floats:
        """[layer]: bits per coordinate."""
        total = self.sums.sum(0)
        return np.asarray(total[:, 1 + STREAMS.index(name)] / np.maximum(total[:, 0], 1e-300))


def write_bits(evidence: Evidence, arm: str, layers: Sequence[int], names: Sequence[str] = STREAMS) -> WriteBits | None:
    """None where either half of the documents has too few tokens."""
    assert evidence.corpus is not None
    writes, document = layer_writes(evidence, arm, layers, names)
    if min((document % 2 == half).sum() for half in (0, 1)) < 2:
        return None
    groups = evidence.corpus.groups
    place = {f"L{layer}": streams for layer, streams in zip(layers, writes, strict=True)}
    each = over_sites(list(place), lambda name: _sums(place[name], document, groups)).values()
    ranks = [_ranks(evidence, streams, document) for streams in writes]
    return WriteBits(tuple(layers), len(document), np.stack(list(each), 1), np.stack(ranks, 1))


def _sums(streams: "Mapping[str, Tensor]", document: Ints, groups: int) -> Floats:
    """[group, (coordinates, bits of each of STREAMS)]."""
    width = next(iter(streams.values())).shape[1]
    columns = [np.full(len(document), float(width))]
    for name in STREAMS:
        values = streams.get(name)
        columns.append(np.full(len(document), np.nan) if values is None else principal_bits(values, document % 2 == 0))
    sums = np.zeros((groups, len(columns)))
    np.add.at(sums, document % groups, np.stack(columns, 1))
    return sums


def principal_bits(values: "Tensor", even: Flags) -> Floats:
    """Bits [token] of rows [token, d], tables shared out evenly; `even` marks one half of the documents.

    >>> import torch
    >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    >>> few = torch.cat([rows[:, :2], torch.zeros(64, 6)], 1)
    >>> half = np.arange(64) % 2 == 0
    >>> bool(principal_bits(few, half).mean() < principal_bits(rows, half).mean() / 2)
    True
    """
    import torch

    from armillary.geometry.coding import code_lengths, quantise

    rows = values.detach().double().cpu()
    coded = torch.empty_like(rows)
    for half in (even, ~even):
        own_half, other_rows = torch.from_numpy(half), rows[torch.from_numpy(~half)]
        centre = other_rows.mean(0)
        axes = torch.linalg.eigh((other_rows - centre).mT @ (other_rows - centre)).eigenvectors.flip(1)
        coded[own_half] = (rows[own_half] - centre) @ axes
    size = float(coded.square().mean().sqrt())
    # The same vector for every token, but for rounding: nothing is left to describe.
    if not size > 1e-6 * float(rows.square().mean().sqrt()):
        return np.zeros(len(rows))
    symbols, bits = quantise(coded.numpy(), STEP * size), np.zeros(len(rows))
    for start, stop in octaves(rows.shape[1]):
        each, table = code_lengths(symbols[:, start:stop])
        bits += each.sum(1) + table / len(rows)
    return bits


def octaves(width: int) -> list[tuple[int, int]]:
    """Ranges of axes of similar rank.

    >>> octaves(10)
    [(0, 1), (1, 3), (3, 7), (7, 10)]
    """
    starts = [2**i - 1 for i in range(width.bit_length())]
    return [(start, min(2 * start + 1, width)) for start in starts if start < width]


def _ranks(evidence: Evidence, streams: "Mapping[str, Tensor]", document: Ints) -> Floats:
    clouds = [streams[name].double().cpu().numpy() for name in RANKED if name in streams]
    ranks = participation_draws(evidence, document, clouds)
    missing = np.full((len(ranks), len(RANKED) - len(clouds)), np.nan)
    return np.concatenate([ranks, missing], 1)
