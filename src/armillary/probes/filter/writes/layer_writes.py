"""What does a layer read and write for sampled tokens? Its input, the feed-forward's write and attention's.

The streams before two norms differ by what was written between them, so that no pass of its own is needed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from armillary.probes.instruments.samples import SAMPLES, SharedTokens
from armillary.probes.machinery import Evidence, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy, FeedForward, Routed

INPUT, WRITE, KEPT, THROUGH, ATTENTION = "input", "write", "kept", "through", "attention"
STREAMS = (INPUT, WRITE, KEPT, THROUGH, ATTENTION)
"""The norm's output y; what the feed-forward adds to the stream; the same of units above zero alone; the same with the
values below zero let through; what attention adds."""


def layer_writes(
    evidence: Evidence, arm: str, layers: Sequence[int], names: Sequence[str] = STREAMS
) -> "tuple[list[dict[str, Tensor]], Ints]":
    """For each layer the streams [token, d] that can be told, float32, and the document of each token."""
    anatomy = evidence.model(arm)
    sites = [site for layer in layers for site in _sites(anatomy, layer)]
    tokens = evidence[SAMPLES][arm].shared(sites)
    writes = [_streams(anatomy, layer, tokens, names) for layer in layers]
    return writes, tokens.document


def _sites(anatomy: "Anatomy", layer: int) -> list[str]:
    """The norms before attention, before the feed-forward and after the layer."""
    from armillary.anatomy.folded import mlp_norm, reading_norm

    following = f"L{layer + 1}.ln1" if layer + 1 < anatomy.layers else "ln_final"
    places = (reading_norm(anatomy, layer)[0], mlp_norm(anatomy, layer)[0], following if anatomy.parallel else "")
    return [site for site in places if site in anatomy.norms]


def _streams(anatomy: "Anatomy", layer: int, tokens: SharedTokens, names: Sequence[str]) -> "dict[str, Tensor]":
    from armillary.anatomy.folded import mlp_norm

    block = anatomy.blocks[layer]
    site, norm = mlp_norm(anatomy, layer)
    assert norm is not None, "claims about writes do not apply where a layer reads the stream itself"
    y = norm(tokens.x[site].to(anatomy.device))
    wanted = (WRITE, *(each for each in names if each in (KEPT, THROUGH)))
    streams = {INPUT: y}
    for name, write in _writes(block.channels, y, wanted).items():
        streams[name] = write if block.ln2_post is None else block.ln2_post(write)
    attention = _attention(anatomy, layer, tokens, streams[WRITE]) if ATTENTION in names else None
    return streams if attention is None else streams | {ATTENTION: attention}


def _writes(channels: object, y: "Tensor", names: Sequence[str]) -> "dict[str, Tensor]":
    """The write and its variants for rows y; of a mixture the routed sum."""
    import torch

    from armillary.anatomy import FeedForward, Routed

    if isinstance(channels, FeedForward):
        return {name: channels.write(hidden) for name, hidden in _hidden(channels, y, names).items()}
    assert isinstance(channels, Routed)
    sums = {name: torch.zeros_like(y) for name in names}
    for _, rows, streams in expert_writes(channels, y, names):
        for name in names:
            sums[name].index_add_(0, rows, streams[name])
    return sums


def expert_writes(
    mixture: "Routed", y: "Tensor", names: Sequence[str] = (WRITE,)
) -> "Iterator[tuple[str, Tensor, dict[str, Tensor]]]":
    """Every expert: its name, the rows of y that get it, and what it writes for them, as the router weighs it."""
    for (name, part), weight in zip(mixture.parts.items(), mixture.weights(y).T, strict=True):
        rows = weight.nonzero()[:, 0]
        hidden = _hidden(part, y[rows], names)
        yield name, rows, {each: part.write(values) * weight[rows, None] for each, values in hidden.items()}


def _hidden(ffn: "FeedForward", y: "Tensor", names: Sequence[str]) -> "dict[str, Tensor]":
    """What W_out receives: as it is, of units above zero alone, and with the values below zero let through."""
    up, pre = ffn.up(y), ffn.pre(y)
    post = ffn.activate(pre, up)
    hidden = {WRITE: post, KEPT: post * (pre >= 0), THROUGH: ffn.joined(pre, up)}
    return {name: hidden[name] for name in names}


def _attention(anatomy: "Anatomy", layer: int, tokens: SharedTokens, write: "Tensor") -> "Tensor | None":
    """What attention adds to the stream; None where the stream was not sampled on both sides of it."""
    from armillary.anatomy.folded import mlp_norm, reading_norm

    site, norm = reading_norm(anatomy, layer)
    if norm is None:
        return None
    x = {name: rows.to(anatomy.device) for name, rows in tokens.x.items()}
    if anatomy.parallel:
        following = f"L{layer + 1}.ln1" if layer + 1 < anatomy.layers else "ln_final"
        return x[following] - x[site] - write if following in x else None
    # After a layer of a post-norm model the stream is the norm's output.
    before = x[site] if anatomy.order == "pre" else norm(x[site])
    return x[mlp_norm(anatomy, layer)[0]] - before
