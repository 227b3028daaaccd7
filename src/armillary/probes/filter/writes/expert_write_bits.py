"""Is what an expert writes simpler than what it read? Each on the tokens that it gets, as the router weighs it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.filter.expert_parts import FEWEST
from armillary.probes.filter.writes.layer_writes import INPUT, WRITE, expert_writes, layer_writes
from armillary.probes.filter.writes.write_bits import principal_bits
from armillary.probes.machinery import Evidence, Floats
from armillary.probes.machinery.tables import cells, interval_cells, table
from armillary.results import Table


@dataclass(frozen=True, eq=False)
class ExpertBits:
    """One expert: sums [group, (coordinates, bits of the input, bits of the write)]; None if it gets too few tokens."""

    layer: int
    name: str
    tokens: int
    sums: Floats | None


def expert_bits(evidence: Evidence, arm: str, layers: Sequence[int]) -> list[ExpertBits]:
    """Every expert of these layers; none of a dense layer."""
    from armillary.anatomy import Routed

    assert evidence.corpus is not None
    anatomy = evidence.model(arm)
    mixed = [layer for layer in layers if isinstance(anatomy.blocks[layer].channels, Routed)]
    if not mixed:
        return []
    streams, document = layer_writes(evidence, arm, mixed, (INPUT, WRITE))
    experts = []
    for layer, named in zip(mixed, streams, strict=True):
        block, y = anatomy.blocks[layer], named[INPUT]
        assert isinstance(block.channels, Routed) and block.ln2_post is None, "experts write to the stream itself"
        for name, rows, write in expert_writes(block.channels, y):
            documents = document[rows.cpu().numpy()]
            even = documents % 2 == 0
            sums = None
            if min(even.sum(), (~even).sum()) >= FEWEST:
                bits = [principal_bits(stream, even) for stream in (y[rows], write[WRITE])]
                sums = np.zeros((evidence.corpus.groups, 3))
                columns = np.stack([np.full(len(documents), float(y.shape[1])), *bits], 1)
                np.add.at(sums, documents % len(sums), columns)
            experts.append(ExpertBits(layer, name, len(documents), sums))
    return experts


def expert_write_table(evidence: Evidence, experts: list[ExpertBits]) -> Table:
    saved, bits = np.full((len(experts), 3), np.nan), np.full((len(experts), 2), np.nan)
    known = [row for row, expert in enumerate(experts) if expert.sums is not None]
    for row in known:
        sums = experts[row].sums
        assert sums is not None
        total = sums.sum(0)
        bits[row] = total[1:] / total[0]
        if total[1] > 0:
            saved[row] = evidence.interval(sums, lambda drawn: 1 - drawn[..., 2] / np.maximum(drawn[..., 1], 1e-300))
    return table(
        cells("layer", "layer", [f"L{expert.layer}" for expert in experts]),
        cells("expert", "the expert", [expert.name for expert in experts]),
        cells("tokens", "sampled tokens that it gets; too few are not coded", [expert.tokens for expert in experts]),
        cells("input", "bits of what it read", bits[:, 0], "bits/coordinate"),
        cells("write", "bits of what it writes, as the router weighs it", bits[:, 1], "bits/coordinate"),
        interval_cells("saved", "share of the input's bits that the write does not need", saved),
    )
