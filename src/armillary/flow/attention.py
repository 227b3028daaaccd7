"""Attention scores and visibility, recomputed from q and k: SDPA never writes a score out."""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.folded import Folded
from armillary.anatomy.positions.rotary import Rotary, Rotation
from armillary.anatomy.space import Vectors


def rotation(anatomy: Anatomy, layer: int, length: int) -> Rotation | None:
    """How a layer turns q and k at positions 0 … length − 1; None without rotation."""
    rotary = anatomy.blocks[layer].attention.rotary
    return None if rotary is None else rotary.rotation(torch.arange(length, device=anatomy.device))


def rotations(anatomy: Anatomy, length: int) -> list[Rotation | None]:
    """Each layer's rotation; layers that turn alike share one."""
    turns: list[Rotation | None] = []
    known: list[tuple[Rotary, Rotation]] = []
    for block in anatomy.blocks:
        rotary = block.attention.rotary
        turn = None if rotary is None else next((r for other, r in known if rotary.same(other)), None)
        if rotary is not None and turn is None:
            turn = rotary.rotation(torch.arange(length, device=anatomy.device))
            known.append((rotary, turn))
        turns.append(turn)
    return turns


def placed(attention: Attention, q: Tensor, k: Tensor, turn: Rotation | None) -> tuple[Tensor, Tensor]:
    """q and k as their products take them [b, t, h, k]: normed, rotated, each key repeated for the heads it serves."""
    q, k = turned(attention, "q", q, turn), turned(attention, "k", k, turn)
    return q, k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)


def turned(attention: Attention, side: str, x: Tensor, turn: Rotation | None) -> Tensor:
    """q or k [b, t, h, k] after its own norm and rotation, where the model has them."""
    x = attention.normed(side, x)
    return x if turn is None else turn(x)


def capped(attention: Attention, products: Tensor) -> Tensor:
    """Products of q and k scaled, and capped where the model caps: scores, but for what their distance adds."""
    scores = products * attention.scale
    return scores if attention.softcap is None else attention.softcap * torch.tanh(scores / attention.softcap)


def biases(attention: Attention, length: int, device: torch.device) -> Tensor | None:
    """What the distances of queries and keys add to the scores [h, t, t]; None where they add nothing."""
    t = torch.arange(length, device=device)
    return None if attention.bias is None else attention.bias(t[:, None] - t[None, :]).to(device)


def softmax(attention: Attention, scores: Tensor) -> Tensor:
    """The pattern of scores [..., h, t, t]; a sink takes its share and attends to nothing."""
    return scores.softmax(-1) if attention.sinks is None else log_softmax(attention, scores).exp()


def log_softmax(attention: Attention, scores: Tensor) -> Tensor:
    """The logarithm of the pattern."""
    if attention.sinks is None:
        return scores.log_softmax(-1)
    return scores - torch.logaddexp(scores.logsumexp(-1), attention.sinks.to(scores)[:, None])[..., None]


def visible(attention: Attention, length: int, causal: bool, device: torch.device) -> Tensor:
    """[t, t]: does the query (row) see the key (column)?"""
    t = torch.arange(length, device=device)
    offset = t[:, None] - t[None, :]
    seen = offset >= 0 if causal else torch.ones_like(offset, dtype=torch.bool)
    return seen if attention.window is None else seen & (offset.abs() < attention.window)


def copied(pattern: Tensor, start: int, length: int) -> Tensor:
    """Where `length` tokens from `start` on are repeated once: attention [b, h, length − 1] of a token's second
    occurrence to what followed the first. The last token is left out: what followed it is not in the first copy."""
    second = pattern[:, :, start + length : start + 2 * length - 1, start : start + length]
    return second.diagonal(offset=1, dim1=-2, dim2=-1)


def projected(y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # Back to one [d, h·k] matrix: a view of the model's own where its layout allows, so nothing is copied.
    out = (y @ weight.to(y).permute(1, 0, 2).flatten(1)).reshape(*y.shape[:2], weight.shape[0], -1)
    return out if bias is None else out + bias.to(y)


def scores_of(attention: Attention, y: Tensor, turn: Rotation | None, keys_from: Tensor | None = None) -> Tensor:
    """What softmax receives of all pairs, visible or not [b, h, t, s]; keys are of y, or of an encoder's states."""
    read = y if keys_from is None else keys_from
    q, k = projected(y, attention.W_Q, attention.b_Q), projected(read, attention.W_K, attention.b_K)
    q, k = placed(attention, q, k, turn)
    scores = capped(attention, torch.einsum("bihk,bjhk->bhij", q, k))
    added = None if keys_from is not None else biases(attention, y.shape[1], y.device)
    return scores if added is None else scores + added.to(scores)


def cross_attend(attention: Attention, y: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """The same of attention to an encoder's states [b, s, d]: patterns [b, h, t, s], all keys visible."""
    v = projected(states.to(y), attention.W_V, attention.b_V).repeat_interleave(attention.group, dim=2)
    pattern = softmax(attention, scores_of(attention, y, None, states.to(y)))
    return pattern, torch.einsum("bhij,bjhk->bihk", pattern, v)


def attend(attention: Attention, y: Tensor, turn: Rotation | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Every head's pattern [b, h, t, t] and result [b, t, h, k] from the canonical weights, in y's precision."""
    v = projected(y, attention.W_V, attention.b_V).repeat_interleave(attention.group, dim=2)
    scores = scores_of(attention, y, turn)
    hidden = ~visible(attention, y.shape[1], causal, y.device)
    pattern = softmax(attention, scores.masked_fill(hidden, -torch.inf))
    return pattern, torch.einsum("bhij,bjhk->bihk", pattern, v)


def folded_scores(folded: Folded, z: Tensor, causal: bool) -> Tensor:
    """Scores [b, h, t, t] from z [b, t, d] by the matrices W_QK(i − j) alone: only the offset counts."""
    length = z.shape[1]
    out = z.new_zeros(len(z), len(folded.A_Q), length, length)
    if folded.rotary is None and folded.attention.bias is None:
        return torch.stack([folded.scores(Vectors(row, folded.reads), Vectors(row, folded.reads)) for row in z])
    for offset in range(0 if causal else 1 - length, length):
        for row, target in zip(z, out, strict=True):
            scores = folded.scores(Vectors(row, folded.reads), Vectors(row, folded.reads), offset)
            target.diagonal(-offset, 1, 2).copy_(scores.diagonal(-offset, 1, 2))
    return out


def folded_results(folded: Folded, pattern: Tensor, z: Tensor) -> Tensor:
    """Every head's result [b, t, h, k] from z [b, t, d] and the pattern [b, h, t, t]."""
    values = torch.einsum("btd,hdk->bhtk", z, folded.A_V) + folded.a_V[:, None]
    return (pattern @ values).transpose(1, 2)
