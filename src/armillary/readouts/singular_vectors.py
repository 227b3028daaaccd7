"""Read a head's singular vectors and biases as words.

W_QK: the left vector is a query's direction, the right one a key's, both at the norm that attention reads. W_VO: the
left vector is the direction that a head reads; the right one is what it writes, read through any norm before the
stream, the final norm and the unembedding. The sign of a pair is arbitrary: + is the side with the heavier tail of
words along the left vector (their third moment is positive there), and both sides are listed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded
from armillary.anatomy.norm import Norm
from armillary.anatomy.space import RAW, Space, Vectors
from armillary.geometry.factored import SVD
from armillary.readouts.head_spectra import VALUES, Decomposed, folded_at, value_rows
from armillary.readouts.reader import RANK, Lists, Reader, side_columns
from armillary.results import Column, Table
from armillary.results.table import Cell

SIGNS = ("+", "−")
_PRODUCT = "product (or cosine) with it"
DIRECTIONS = (
    *VALUES,
    Column("sign", "+ is the side with the heavier tail of words along the left vector; − is the opposite side"),
    RANK,
    *side_columns("left", "W_QK: queries along the left vector; W_VO: words that are read along it", _PRODUCT),
    *side_columns("right", "W_QK: keys along the right vector; W_VO: words that its write promotes", _PRODUCT),
)
BIASES = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("key_length", "length of b_Q W_K, all constants of the query side folded in", "score per direction"),
    Column("query_length", "length of W_Q b_K; it raises all scores of a query equally, which softmax cancels"),
    RANK,
    *side_columns("key", "keys that every query prefers (b_Q W_K)", "what the bias adds to their score"),
    *side_columns("query", "queries whose scores all rise (W_Q b_K)", "what the bias adds to their scores"),
)


def into_stream(anatomy: Anatomy, layer: int, writes: Vectors) -> Vectors:
    """Writes as they reach the stream, up to length: after their own norm, or after that of a post-norm layer."""
    block = anatomy.blocks[layer]
    if block.ln1_post is not None:
        return Vectors(_linear(block.ln1_post, writes.of(Space("raw", f"L{layer}.ln1_post"), "a write")), RAW)
    values = writes.of(RAW, "a write")
    through = block.ln1 if anatomy.order == "post" else None
    return Vectors(values if through is None else _linear(through, values), RAW)


def _linear(norm: Norm, x: Tensor) -> Tensor:
    """The linear part of a norm: centring and gain, without the division by length."""
    x = x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x
    return x * norm.gain.to(x)


def directions_table(reader: Reader, part: Decomposed, heads: Sequence[int], most: int) -> Table:
    """The words at both ends of the first `most` directions of each head; one scan of the vocabulary."""
    rows: list[dict[str, Cell]] = []
    left, right = _sides(reader, part, heads, most)
    for head, i, start in value_rows(part, heads):
        # A direction along which the head does nothing has no words.
        if i >= left.ids.shape[1] or part.values[head, i] <= 1e-12 * part.values[head, 0]:
            continue
        at = heads.index(head)
        for s, sign in enumerate(SIGNS):
            rows += reader.ranked({**start, "sign": sign}, left=left[at, i, s], right=right[at, i, s])
    return Table.of(DIRECTIONS, rows)


def _sides(reader: Reader, part: Decomposed, heads: Sequence[int], most: int) -> tuple[Lists, Lists]:
    """Words of the left and right vectors [head, direction, sign, top]."""
    anatomy, words = reader.anatomy, reader.directions(part.layer)
    most = min(most, part.svd.values.shape[-1])
    shape = (len(heads), most, 2)
    parts = (part.svd.left, part.svd.values, part.svd.right)
    chosen = SVD(*(side[list(heads)][..., :most].float() for side in parts)).oriented(words.values[reader.allowed])
    left, right = both_signs(chosen.left), both_signs(chosen.right)
    if part.matrix == "qk":
        pooled = reader.read(Vectors(torch.cat((left, right)), words.space), words).shaped(2, *shape)
        return pooled[0], pooled[1]
    space = RAW if anatomy.blocks[part.layer].ln1_post is None else Space("raw", f"L{part.layer}.ln1_post")
    writes = into_stream(anatomy, part.layer, Vectors(right, space))
    read, written = reader.read(Vectors(left, words.space), words), reader.read(writes, reader.outputs)
    return read.shaped(*shape), written.shaped(*shape)


def both_signs(columns: Tensor) -> Tensor:
    """[head, d, direction] as rows, each followed by its negative."""
    rows = columns.mT
    return torch.stack((rows, -rows), 2).flatten(0, 2)


def bias_vectors(folded: Folded) -> tuple[Tensor, Tensor]:
    """b_Q W_K, compared with keys, and W_Q b_K, compared with queries [h, d], with 1/√k."""
    form = folded.qk()
    a_Q, a_K = folded.with_gain("q", folded.a_Q[:, None])[:, 0], folded.with_gain("k", folded.a_K[:, None])[:, 0]
    keys = torch.einsum("hk,hdk->hd", a_Q @ folded.turn(0) * folded.attention.scale, form.right)
    return keys, torch.einsum("hdk,hk->hd", form.left, a_K)


def bias_table(reader: Reader, layers: Sequence[int], heads: Sequence[int], offset: int = 0) -> Table:
    """The words that biases prefer; no rows for heads whose biases are all zero."""
    rows: list[dict[str, Cell]] = []
    for layer in layers:
        folded = folded_at(reader.anatomy, layer, offset)
        words = reader.directions(layer)
        keys, queries = (side[list(heads)] for side in bias_vectors(folded))
        pooled = reader.read(Vectors(torch.cat((keys, queries)).float(), words.space), words).shaped(2, len(heads))
        for at, head in enumerate(heads):
            lengths = float(keys[at].norm()), float(queries[at].norm())
            if any(lengths):
                start: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{head}"}
                start |= {"key_length": lengths[0], "query_length": lengths[1]}
                rows += reader.ranked(start, key=pooled[0, at], query=pooled[1, at])
    return Table.of(BIASES, rows)
