"""Do the folded matrices of each head give the running model's scores and results? Rebuilt in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy.folded import Folded
from armillary.flow.attention import Rotation, capped, placed, visible
from armillary.probes.instruments.heads import KEYS_LEAST

# A wrong fold is wrong at every query: a few queries and keys show it, and stay cheap beside the pass.
QUERIES, KEYS = 8, 128


@dataclass(frozen=True, eq=False)
class Rebuilding:
    """One window in one layer: what the model's own modules gave."""

    z: Tensor
    """[t, d] in float64."""
    q: Tensor
    """[t, h, k] as the model's projections gave them, k with one key per group."""
    k: Tensor
    result: Tensor
    """[t, h, k] before W_O."""
    turn: Rotation | None
    causal: bool

    def errors(self, folded: Folded) -> Tensor:
        """Of scores, of results and of scores without the norm's gain and shift, as `heads.ERRORS` defines them."""
        attention = folded.attention
        t = min(len(self.z), KEYS) if self.causal else len(self.z)
        at = torch.linspace(KEYS_LEAST, t - 1, QUERIES, device=self.z.device).long()
        sees = visible(attention, t, self.causal, self.z.device)[at]
        z, turn = self.z[:t], None if self.turn is None else (self.turn[0][:, :t], self.turn[1][:, :t])

        def met(q: Tensor, k: Tensor) -> Tensor:
            """Scores [h, queries, keys] of q and k [t, h, k]."""
            q, k = placed(attention, q[None], k[None], turn)
            return capped(attention, torch.einsum("ihk,jhk->hij", q[0, at].double(), k[0].double()))

        def scores(A_Q: Tensor, a_Q: Tensor | float, A_K: Tensor, a_K: Tensor | float) -> Tensor:
            # Only the chosen queries are asked for: the others stay 0.
            q = torch.zeros_like(self.q[:t], dtype=z.dtype)
            q[at] = (z[at] @ A_Q + a_Q).transpose(0, 1)
            return met(q, (z @ A_K + a_K).transpose(0, 1))

        theirs = met(self.q[:t], self.k[:t])
        group = slice(None, None, attention.group)
        ours = scores(folded.A_Q, folded.a_Q[:, None], folded.A_K[group], folded.a_K[group, None])
        bare = scores(attention.W_Q.double(), 0.0, attention.W_K.double(), 0.0)
        values = (z @ folded.A_V[group] + folded.a_V[group, None]).repeat_interleave(attention.group, 0)
        results = (ours.masked_fill(~sees, -torch.inf).softmax(-1) @ values).transpose(0, 1)
        # The model rounds a score to a share of its size, and softmax turns that into the same share of an attention.
        size = torch.where(sees, theirs, 0).abs().max().clamp_min(1.0)
        apart = [_error(torch.where(sees, mine, 0), torch.where(sees, theirs, 0)) for mine in (ours, bare)]
        return torch.stack((apart[0], _error(results, self.result[at]) / size, apart[1]))


def _error(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-30)
