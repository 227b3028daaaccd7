"""Soft heads whose memberships depend on the token: a supervisor decides how much of each axis a head gets.

M_hi(t) = softmax over heads of L_hi + (S q_t)_h, with learned L and S. The query's own token decides, so nothing of the
future is seen. Score and result are those of soft heads: Σ_i M_hi(t) q_i k_i / √(Σ_i M_hi(t)²) and
o_i(t) = Σ_h M_hi(t) (A_h v)_i.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from armillary.errors import ArmillaryError
from armillary.lab.parts.attention.membership import block
from armillary.lab.parts.norms import in_float32


class SupervisedAttention(nn.Module):
    """Attention of q, k, v [b, t, d]; before training it is that of learned memberships."""

    def __init__(self, heads: int, width: int, causal: bool = True) -> None:
        super().__init__()
        if heads < 2:
            raise ArmillaryError(f"a supervisor divides axes between at least 2 heads, got {heads}.")
        self.heads, self.width, self.causal = heads, width, causal
        self.logits = nn.Parameter(math.log(9.0 * (heads - 1)) * block(heads, width))
        self.supervisor = nn.Parameter(torch.zeros(heads, width))

    def memberships(self, q: Tensor) -> Tensor:
        """[b, head, t, axis], shares of an axis that sum to 1 over heads; in float32 at least."""
        wanted = in_float32(q) @ self.supervisor.mT.to(in_float32(q).dtype)
        return torch.softmax(self.logits[:, None] + wanted.mT[..., None], 1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if not q.shape == k.shape == v.shape or q.shape[-1] != self.width:
            raise ValueError(
                f"q, k and v must have one shape [batch, tokens, {self.width}]; they have {tuple(q.shape)}, "
                f"{tuple(k.shape)} and {tuple(v.shape)}"
            )
        with torch.autocast(q.device.type, enabled=False):
            shares = self.memberships(q)
            scaled = shares * torch.rsqrt(shares.square().sum(-1, keepdim=True))
        query = q[:, None] * scaled.to(q.dtype)
        key, value = (x[:, None].expand(-1, self.heads, -1, -1) for x in (k, v))
        mixed = scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal and mask is None, scale=1.0)
        return (mixed * shares.to(mixed.dtype)).sum(1)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, width={self.width}"
