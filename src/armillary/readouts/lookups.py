"""A word's preferred keys, the queries that prefer it, and what each head writes for it.

Words stand alone: their embeddings without position or context, as a layer's heads see them. Scores are the model's
own, with biases, q/k-norms, rotation and cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import Folded, reading_norm
from armillary.anatomy.space import RAW, Vectors
from armillary.readouts.head_spectra import folded_at
from armillary.readouts.reader import Lists, Reader
from armillary.readouts.singular_vectors import into_stream


@dataclass(frozen=True, eq=False)
class Lookup:
    """One layer, heads × words: the keys that each word prefers, and the queries that prefer it as a key."""

    keys: Lists
    queries: Lists | None
    self_rank: NDArray[np.int64]
    """[h, n]: the rank of the word among its own keys, over all words that can be shown."""


def look_up(
    reader: Reader, layer: int, ids: Tensor, heads: Sequence[int], offset: int = 0, both: bool = True
) -> Lookup:
    """The keys that words prefer; with `both`, also the queries that prefer each word."""
    folded = folded_at(reader.anatomy, layer, offset, torch.float32)
    plain = reader.ranking == "dot" and folded.attention.q_norm is None
    # Few words are compared faster in the model's width, all heads at once; many words in the width of one head.
    if plain and 2 * len(ids) < reader.anatomy.k:
        return _by_direction(reader, folded, ids, heads)
    return _by_head(reader, folded, ids, heads, both)


def _by_direction(reader: Reader, folded: Folded, ids: Tensor, heads: Sequence[int]) -> Lookup:
    words, chosen = reader.directions(folded.layer), list(heads)
    turn = folded.turn(0) * folded.attention.scale
    q, k = folded.queries(words[ids])[chosen] @ turn, folded.keys(words[ids])[chosen]
    A_Q, a_Q, A_K, a_K = (getattr(folded, name)[chosen] for name in ("A_Q", "a_Q", "A_K", "a_K"))
    for_keys, shift = q @ A_K.mT, (q @ a_K[..., None])[..., 0]
    mean = words.values[reader.allowed].mean(0)
    # Softmax compares the keys of one query: a score that a query adds to all keys equally is no preference.
    target = (k - (mean @ A_K + a_K)[:, None]) @ turn.mT
    for_queries, more = target @ A_Q.mT, (target @ a_Q[..., None])[..., 0]
    shape = (2, len(chosen), len(ids))
    pooled = reader.read(Vectors(torch.cat((for_keys, for_queries)).flatten(0, 1), words.space), words).shaped(*shape)
    shifted = pooled.scores + torch.stack((shift, more)).double().cpu().numpy()[..., None]
    scores = for_keys.flatten(0, 1) @ words.values.mT
    own = scores.gather(1, ids.repeat(len(chosen))[:, None])
    ranks = ((scores > own) & reader.allowed).sum(1).reshape(len(chosen), len(ids)).cpu().numpy() + 1
    keys = _capped(reader, folded, Lists(pooled.ids[0], shifted[0]))
    return Lookup(keys, Lists(pooled.ids[1], shifted[1]), np.asarray(ranks))


def _by_head(reader: Reader, folded: Folded, ids: Tensor, heads: Sequence[int], both: bool) -> Lookup:
    words = reader.directions(folded.layer)
    turn = folded.turn(0) * folded.attention.scale
    keys, queries, ranks = [], [], []
    group, k = -1, words.values
    for head in heads:
        if head // folded.attention.group != group:
            group, k = head // folded.attention.group, folded.keys(words, head)
        q = folded.queries(words[ids], head) @ turn
        keys.append(_capped(reader, folded, reader.best(q, k)))
        ranks.append(_self_ranks(reader, q, k, ids))
        if both:
            target = k[ids] if reader.ranking == "cosine" else k[ids] - k[reader.allowed].mean(0)
            queries.append(reader.best(target, folded.queries(words, head) @ turn))
    return Lookup(_stacked(keys), _stacked(queries) if both else None, np.stack(ranks))


def _capped(reader: Reader, folded: Folded, lists: Lists) -> Lists:
    cap = folded.attention.softcap
    if cap is None or reader.ranking == "cosine":
        return lists
    return Lists(lists.ids, cap * np.tanh(lists.scores / cap))


def _self_ranks(reader: Reader, q: Tensor, k: Tensor, ids: Tensor) -> NDArray[np.int64]:
    if reader.ranking == "cosine":
        q, k = torch.nn.functional.normalize(q), torch.nn.functional.normalize(k)
    scores = q @ k.mT
    own = scores.gather(1, ids[:, None])
    return np.asarray(((scores > own) & reader.allowed).sum(1).cpu().numpy() + 1)


def _stacked(lists: list[Lists]) -> Lists:
    return Lists(np.stack([part.ids for part in lists]), np.stack([part.scores for part in lists]))


@dataclass(frozen=True, eq=False)
class Values:
    """One layer, heads (last: their sum) × words: what is written, and which words it reads as."""

    promoted: Lists
    """The write alone, read through the final norm's gain and the unembedding."""
    result: Lists
    """Word and write together, through the norm itself."""
    length: NDArray[np.float64]
    """[h + 1, n]: length of the write as it reaches the stream."""
    stream: NDArray[np.float64]
    """[n]: length of the stream that it is added to."""


def values(reader: Reader, layer: int, ids: Tensor) -> Values:
    anatomy = reader.anatomy
    folded = folded_at(anatomy, layer, 0)
    stream = stream_before(reader, layer, ids)
    writes = head_writes(anatomy, folded, reader.vocabulary.directions(layer, ids))
    h, n, d = writes.shape
    # In post-norm order the layer's own norm lies between a write and its readers.
    through = into_stream(anatomy, layer, Vectors(writes, RAW)).values if anatomy.order == "post" else writes
    promoted = Vectors(through.reshape(h * n, d).float(), RAW)
    rows, bias = reader.unembedding
    states = final(anatomy, layer, stream + writes).reshape(h * n, d).float()
    return Values(
        promoted=reader.read(promoted, reader.outputs).shaped(h, n),
        result=reader.best(states, rows, bias).shaped(h, n),
        length=np.asarray(writes.norm(dim=-1).cpu().numpy()),
        stream=np.asarray(stream.norm(dim=-1).cpu().numpy()),
    )


def stream_before(reader: Reader, layer: int, ids: Tensor) -> Tensor:
    """What a layer's write is added to [n, d]: the embedding, normalised first in post-norm order."""
    x = reader.vocabulary.embedded(ids).values
    if reader.anatomy.order == "pre":
        return x
    _, norm = reading_norm(reader.anatomy, layer)
    return x if norm is None else norm(x)


def head_writes(anatomy: Anatomy, folded: Folded, z: Vectors) -> Tensor:
    """What every head, and last their sum with b_O, adds to the stream [h + 1, n, d] if all attend to this word alone.

    b_O belongs to the layer, so it counts only in the sum. A norm between the writes and the stream divides all heads
    by the length of their sum.
    """
    writes = folded.updates(z).values
    total = writes.sum(0) if folded.b_O is None else writes.sum(0) + folded.b_O
    writes = torch.cat((writes, total[None]))
    norm = anatomy.blocks[folded.layer].ln1_post
    if norm is None:
        return writes
    assert norm.kind == "rmsnorm" and norm.shift is None, "a norm after attention other than Gemma's"
    return writes * norm.gain.to(writes) * torch.rsqrt(norm.power(total) + norm.eps)


def final(anatomy: Anatomy, layer: int, x: Tensor) -> Tensor:
    """A state as it is compared with words: after the final norm, or after the layer's own in post-norm order."""
    norm = anatomy.blocks[layer].ln1 if anatomy.order == "post" else anatomy.ln_final
    return x if norm is None else norm(x)
