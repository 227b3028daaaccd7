"""One attention for all kinds of heads: which axes a head reads and writes is a matrix.

score of head h = Σ_i M_hi q_i k_i / √(Σ_i M_hi²), result o_i = Σ_h N_hi (A_h v)_i, where A_h is the softmax of the
score and N = M unless given. If q and k have unit variance, so does the score, whatever M is. Ordinary heads, talking
heads, collaborative heads and soft heads are constraints on M and N.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from armillary.errors import ArmillaryError
from armillary.lab.parts.attention.membership import Membership


class MembershipAttention(nn.Module):
    """Attention of q, k, v [b, t, d] with memberships for scores and, if they differ, for results.

    A head costs as much as it has axes with a membership other than 0: fixed memberships are cut to their support, so
    the cost grows with the overlap, not with the number of heads.
    """

    axes: Tensor
    real: Tensor

    def __init__(self, scores: Membership, results: Membership | None = None, causal: bool = True) -> None:
        super().__init__()
        if results is not None and (results.heads, results.width) != (scores.heads, scores.width):
            raise ArmillaryError(
                f"scores have {scores.heads} heads of {scores.width} axes and results {results.heads} of "
                f"{results.width}; both must agree."
            )
        self.scores, self.results, self.causal = scores, results, causal
        axes, real = _support(scores, results)
        self.register_buffer("axes", axes, persistent=False)
        self.register_buffer("real", real, persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        if not q.shape == k.shape == v.shape or q.shape[-1] != self.scores.width:
            raise ValueError(
                f"q, k and v must have one shape [batch, tokens, {self.scores.width}]; they have {tuple(q.shape)}, "
                f"{tuple(k.shape)} and {tuple(v.shape)}"
            )
        scores = self.scores()
        results = scores if self.results is None else self.results()
        length = scores.square().sum(1, keepdim=True)
        # A head without any axis attends to all keys alike; 0/0 would be NaN.
        scaled = self._of_heads(scores * torch.rsqrt(length.clamp_min(torch.finfo(length.dtype).tiny)))
        query = q[..., self.axes].transpose(1, 2) * scaled[:, None].to(q.dtype)
        key, value = (part[..., self.axes].transpose(1, 2) for part in (k, v))
        mixed = scaled_dot_product_attention(
            query, key, value, mask, dropout if self.training else 0.0, self.causal and mask is None, scale=1.0
        )
        mixed = mixed * self._of_heads(results)[:, None].to(mixed.dtype)
        # Heads meet again on their axes.
        flat = mixed.transpose(1, 2).flatten(-2)
        return torch.zeros_like(q).index_add(-1, self.axes.flatten(), flat)

    def _of_heads(self, matrix: Tensor) -> Tensor:
        """[head, axis of that head]; axes that only fill up a head's list have weight 0."""
        own = matrix.gather(1, self.axes)
        return torch.where(self.real, own, torch.zeros_like(own))


def _support(*memberships: Membership | None) -> tuple[Tensor, Tensor]:
    """The axes [head, n] on which a head can have a membership, and which of them are not there to fill up the list."""
    used = torch.zeros(0)
    for part in memberships:
        if part is not None:
            matrix = torch.ones(part.heads, part.width) if part.learns else part().detach().abs()
            used = matrix if not len(used) else used + matrix
    most = max(1, int((used > 0).sum(1).max()))
    order = torch.argsort((used == 0).int(), dim=1, stable=True)[:, :most]
    return order, used.gather(1, order) > 0
