"""How does a head compare a query with a key? By the dot product, or by a distance of its own.

dot q·k/√k; cosine τ·cos(q, k), which is attention with normalised queries and keys; angle −τ·∠(q, k); distance
−τ·‖q − k‖²/2√k; own angle −τ·∠(Wz, Wz′), the angle of two tokens in one metric WᵀW per head, because queries serve as
keys too. τ is learned per head.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from armillary.errors import ArmillaryError, nearest
from armillary.lab.parts.norms import in_float32

Score = Literal["dot", "cosine", "angle", "distance", "own angle"]
SCORES: tuple[Score, ...] = get_args(Score)
# arccos has an infinite slope at ±1.
EDGE = 1 - 1e-6


class ScoredAttention(nn.Module):
    """Causal attention of q, k, v [b, t, H·k] by one of the scores."""

    def __init__(self, score: Score, heads: int, width: int) -> None:
        super().__init__()
        if score not in SCORES:
            raise ArmillaryError(f"there is no score {score!r}; {nearest(score, SCORES)}")
        if heads < 1 or width < 1 or width % heads:
            raise ArmillaryError(f"{heads} heads do not divide a width of {width}; choose another number of heads.")
        self.score, self.heads, self.width = score, heads, width
        k = width // heads
        # Queries and keys of unit variance have a dot product of √k·cos after the usual scale.
        start = {"dot": 0.0, "distance": 0.0}.get(score, 0.5 * math.log(k))
        self.log_temperature = nn.Parameter(torch.full((heads,), start)) if score != "dot" else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if not q.shape == k.shape == v.shape or q.shape[-1] != self.width:
            raise ValueError(
                f"q, k and v must have one shape [batch, tokens, {self.width}]; they have {tuple(q.shape)}, "
                f"{tuple(k.shape)} and {tuple(v.shape)}"
            )
        keys = q if self.score == "own angle" else k
        query, key, value = (self._of_heads(part) for part in (q, keys, v))
        if self.score in ("dot", "cosine"):
            both = self._as_dot(query, key)
            mixed = scaled_dot_product_attention(*both, value, mask, is_causal=mask is None, scale=1.0)
        else:
            mixed = self._by_distance(query, key, value, mask)
        return mixed.transpose(1, 2).flatten(-2)

    def _of_heads(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def _as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys whose dot product is the score."""
        if self.score == "dot":
            return query / math.sqrt(query.shape[-1]), key
        return _unit(query).to(query.dtype) * self._temperature(query), _unit(key).to(key.dtype)

    def _by_distance(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scores written out, in float32 at least: in half precision small angles and small distances are lost."""
        with torch.autocast(query.device.type, enabled=False):
            if self.score == "distance":
                query, key = in_float32(query), in_float32(key)
                # −‖q − k‖²/2 = q·k − ‖k‖²/2 − ‖q‖²/2, and the softmax over keys ignores the query's length.
                near = (query @ key.mT - 0.5 * key.square().sum(-1)[..., None, :]) / math.sqrt(query.shape[-1])
            else:
                near = -torch.arccos((_unit(query) @ _unit(key).mT).clamp(-EDGE, EDGE))
            pattern = _masked_softmax(near * self._temperature(near), mask)
        return pattern.to(value.dtype) @ value

    def _temperature(self, like: Tensor) -> Tensor:
        assert self.log_temperature is not None
        return self.log_temperature.exp().to(like.dtype)[:, None, None]

    def extra_repr(self) -> str:
        return f"{self.score}, heads={self.heads}, width={self.width}"


def _masked_softmax(score: Tensor, mask: Tensor | None) -> Tensor:
    """The pattern over visible keys: those of `mask`, or the past. A query that sees none, as in padding, gets zeros,
    as in SDPA."""
    if mask is None:
        mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    if mask.dtype != torch.bool:
        return (score + mask).softmax(-1)
    return score.masked_fill(~mask, torch.finfo(score.dtype).min).softmax(-1).masked_fill(~mask, 0.0)


def _unit(x: Tensor) -> Tensor:
    """Directions, in float32 at least."""
    return normalize(in_float32(x), dim=-1, eps=1e-6)
