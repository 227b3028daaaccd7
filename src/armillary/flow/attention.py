"""Attention scores and visibility, recomputed from q and k: SDPA never writes a score out."""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.folded import Folded, rotate
from armillary.anatomy.norm import Norm
from armillary.anatomy.space import Vectors

Rotation = tuple[Tensor, Tensor]


def rotation(anatomy: Anatomy, length: int) -> Rotation | None:
    """cos and sin [1, t, k] of the model's own rotary module for positions 0 … length − 1; None without rotation."""
    if not anatomy.rotary_path:
        return None
    positions = torch.arange(length, device=anatomy.device)[None]
    cos, sin = anatomy.model.get_submodule(anatomy.rotary_path)(anatomy.W_E.new_zeros(1, 1, anatomy.d), positions)
    return cos, sin


def placed(attention: Attention, q: Tensor, k: Tensor, turn: Rotation | None) -> tuple[Tensor, Tensor]:
    """q and k as their products take them [b, t, h, k]: normed, rotated, each key repeated for the heads it serves."""
    q, k = turned(attention.q_norm, q, turn), turned(attention.k_norm, k, turn)
    return q, k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)


def turned(norm: Norm | None, side: Tensor, turn: Rotation | None) -> Tensor:
    """q or k [b, t, h, k] after its own norm and rotation, where the model has them."""
    side = side if norm is None else norm(side)
    return side if turn is None else rotate(side, *turn)


def capped(attention: Attention, products: Tensor) -> Tensor:
    """Products of q and k as softmax receives them: scaled, and capped where the model caps."""
    scores = products * attention.scale
    return scores if attention.softcap is None else attention.softcap * torch.tanh(scores / attention.softcap)


def visible(attention: Attention, length: int, causal: bool, device: torch.device) -> Tensor:
    """[t, t]: does the query (row) see the key (column)?"""
    t = torch.arange(length, device=device)
    offset = t[:, None] - t[None, :]
    seen = offset >= 0 if causal else torch.ones_like(offset, dtype=torch.bool)
    return seen if attention.window is None else seen & (offset < attention.window)


def copied(pattern: Tensor, start: int, length: int) -> Tensor:
    """Where `length` tokens from `start` on are repeated once: attention [b, h, length − 1] of a token's second
    occurrence to what followed the first. The last token is left out: what followed it is not in the first copy."""
    second = pattern[:, :, start + length : start + 2 * length - 1, start : start + length]
    return second.diagonal(offset=1, dim1=-2, dim2=-1)


def attend(attention: Attention, y: Tensor, turn: Rotation | None, causal: bool) -> Tensor:
    """Every head's result [b, t, h, k] from the canonical weights, in y's precision."""

    def project(weight: Tensor, bias: Tensor | None) -> Tensor:
        # Back to one [d, h·k] matrix: a view of the model's own where its layout allows, so nothing is copied.
        out = (y @ weight.to(y).permute(1, 0, 2).flatten(1)).reshape(*y.shape[:2], weight.shape[0], -1)
        return out if bias is None else out + bias.to(y)

    q, k = project(attention.W_Q, attention.b_Q), project(attention.W_K, attention.b_K)
    v = project(attention.W_V, attention.b_V).repeat_interleave(attention.group, dim=2)
    q, k = placed(attention, q, k, turn)
    scores = capped(attention, torch.einsum("bihk,bjhk->bhij", q, k))
    hidden = ~visible(attention, y.shape[1], causal, y.device)
    return torch.einsum("bhij,bjhk->bihk", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def folded_scores(folded: Folded, z: Tensor, causal: bool) -> Tensor:
    """Scores [b, h, t, t] from z [b, t, d] by the matrices W_QK(i − j) alone: only the offset counts."""
    length = z.shape[1]
    out = z.new_zeros(len(z), len(folded.A_Q), length, length)
    if folded.rotary is None:
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
