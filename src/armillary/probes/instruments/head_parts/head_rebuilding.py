"""Scores and results rebuilt in float64 from the folded matrices, compared with those of the running model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy.folded import Folded
from armillary.anatomy.positions.rotary import Rotation
from armillary.flow.attention import biases, capped, placed, softmax, visible
from armillary.probes.instruments.heads import KEYS_LEAST

# A wrong fold is wrong at every query: a few queries and keys show it, and cost little beside the pass.
QUERIES, KEYS = 8, 128


@dataclass(frozen=True, eq=False)
class Rebuilding:
    """One window in one layer, as computed by the model's own modules."""

    z: Tensor
    """[t, d] in float64."""
    q: Tensor
    """[t, h, k] from the model's projections; k with one key per group."""
    k: Tensor
    result: Tensor
    """[t, h, k] before W_O."""
    rotation: Rotation | None
    causal: bool

    def errors(self, folded: Folded) -> Tensor:
        """Of scores, of results and of scores without the norm's gain and shift, as `heads.ERRORS` defines them."""
        attention = folded.attention
        t = min(len(self.z), KEYS) if self.causal else len(self.z)
        at = torch.linspace(KEYS_LEAST, t - 1, QUERIES, device=self.z.device).long()
        sees = visible(attention, t, self.causal, self.z.device)[at]
        z = self.z[:t]
        rotation = None if self.rotation is None else self.rotation.first(t)
        added = biases(attention, t, self.z.device)

        def products(q: Tensor, k: Tensor) -> Tensor:
            """Scores [h, queries, keys] of q and k [t, h, k]."""
            q, k = placed(attention, q[None], k[None], rotation)
            scores = capped(attention, torch.einsum("ihk,jhk->hij", q[0, at].double(), k[0].double()))
            return scores if added is None else scores + added[:, at]

        def scores(A_Q: Tensor, a_Q: Tensor | float, A_K: Tensor, a_K: Tensor | float) -> Tensor:
            # Only the chosen queries are needed; the others stay 0.
            q = torch.zeros_like(self.q[:t], dtype=z.dtype)
            q[at] = (z[at] @ A_Q + a_Q).transpose(0, 1)
            return products(q, (z @ A_K + a_K).transpose(0, 1))

        theirs = products(self.q[:t], self.k[:t])
        group = slice(None, None, attention.group)
        ours = scores(folded.A_Q, folded.a_Q[:, None], folded.A_K[group], folded.a_K[group, None])
        bare = scores(attention.W_Q.double(), 0.0, attention.W_K.double(), 0.0)
        values = (z @ folded.A_V[group] + folded.a_V[group, None]).repeat_interleave(attention.group, 0)
        results = (softmax(attention, ours.masked_fill(~sees, -torch.inf)) @ values).transpose(0, 1)
        # The model rounds a score to a share of its size, and softmax changes attention by that share.
        size = torch.where(sees, theirs, 0).abs().max().clamp_min(1.0)
        errors = [_error(torch.where(sees, mine, 0), torch.where(sees, theirs, 0)) for mine in (ours, bare)]
        return torch.stack((errors[0], _error(results, self.result[at]) / size, errors[1]))


def _error(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-30)
