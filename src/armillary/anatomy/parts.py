"""What a block is made of: a mixer (attention, or one whose inside is not understood) and a feed-forward layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from armillary.anatomy.norm import Norm
from armillary.anatomy.positions.rotary import Rotary
from armillary.anatomy.positions.score_bias import ScoreBias
from armillary.errors import ModelError


@dataclass(frozen=True, eq=False)
class Head:
    """One query head with the key/value head that serves it: W_Q, W_K, W_V [d, k], W_O [k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_K: Tensor | None
    b_V: Tensor | None


@dataclass(frozen=True, eq=False)
class Attention:
    """All heads of one layer: W_Q [h, d, k]; W_K, W_V [g, d, k] for g ≤ h key/value heads; W_O [h, k, d]."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_K: Tensor | None
    b_V: Tensor | None
    b_O: Tensor | None
    scale: float
    softcap: float | None = None
    window: int | None = None
    """How many tokens a query sees, itself included, on each side that it sees at all; None for all."""
    q_norm: Norm | None = None
    """Gain [k], or [h, k] where every head has its own."""
    k_norm: Norm | None = None
    qk_span: Literal["head", "layer"] = "head"
    """Over what q/k-norms take their length: one head, or all heads of the layer together."""
    rotary: Rotary | None = None
    bias: ScoreBias | None = None
    sinks: Tensor | None = None
    """[h]: a score that takes part in softmax and attends to nothing."""

    @property
    def group(self) -> int:
        """How many query heads one key/value head serves."""
        return self.W_Q.shape[0] // self.W_K.shape[0]

    def head(self, h: int) -> Head:
        g = h // self.group
        bias = [None if b is None else b[i] for b, i in ((self.b_Q, h), (self.b_K, g), (self.b_V, g))]
        return Head(self.W_Q[h], self.W_K[g], self.W_V[g], self.W_O[h], *bias)

    def normed(self, side: str, x: Tensor, head: int | None = None) -> Tensor:
        """q or k [..., heads, k] through its own norm, where it has one; keys may be repeated for their heads.

        With `head`, x [..., 1, k] is that head's alone; a norm over the whole layer cannot be taken so.
        """
        norm = self.q_norm if side == "q" else self.k_norm
        if norm is None:
            return x
        z = norm.direction(x) if self.qk_span == "head" else norm.direction(x.flatten(-2)).view_as(x)
        y = z * self._per_head(norm.gain, x, head).to(z)
        return y if norm.shift is None else y + self._per_head(norm.shift, x, head).to(z)

    def gain(self, side: str) -> Tensor | None:
        """The gain of the q- or k-norm [h, 1, k] or [1, 1, k]; None without one."""
        norm = self.q_norm if side == "q" else self.k_norm
        if norm is None:
            return None
        gain = norm.gain if norm.gain.ndim == 2 else norm.gain[None]
        return gain.repeat_interleave(self.W_Q.shape[0] // len(gain), 0)[:, None] if len(gain) > 1 else gain[:, None]

    def _per_head(self, values: Tensor, x: Tensor, head: int | None) -> Tensor:
        if values.ndim == 1:
            return values
        if head is not None:
            return values[head * len(values) // self.W_Q.shape[0]][None]
        return values.repeat_interleave(x.shape[-2] // len(values), 0)


@dataclass(frozen=True, eq=False)
class FeedForward:
    """x ↦ act(x W_in + b_in) W_out + b_out, or with a gate act(x W_gate + b_gate) ⊙ (x W_in + b_in)."""

    W_in: Tensor
    W_out: Tensor
    b_in: Tensor | None
    b_out: Tensor | None
    activation: Callable[[Tensor], Tensor]
    activation_name: str
    W_gate: Tensor | None = None
    b_gate: Tensor | None = None
    factor: Callable[[Tensor], Tensor] | None = None
    """What the other branch becomes before it multiplies act(gate), where it is not left as it is."""

    def __call__(self, y: Tensor) -> Tensor:
        """What the layer writes for y, in y's precision."""
        up = self.up(y)
        return self.write(self.activate(up if self.W_gate is None else self.pre(y), up))

    def pre(self, y: Tensor) -> Tensor:
        """What the activation receives."""
        return self.up(y) if self.W_gate is None else linear(y, self.W_gate, self.b_gate)

    def up(self, y: Tensor) -> Tensor:
        return linear(y, self.W_in, self.b_in)

    def activate(self, pre: Tensor, up: Tensor) -> Tensor:
        """What W_out receives; `up` counts only where there is a gate."""
        return self.joined(self.activation(pre), up)

    def joined(self, active: Tensor, up: Tensor) -> Tensor:
        """What W_out receives where the activation gives `active`."""
        if self.W_gate is None:
            return active
        return active * (up if self.factor is None else self.factor(up))

    def write(self, post: Tensor) -> Tensor:
        return linear(post, self.W_out, self.b_out)


@dataclass(frozen=True, eq=False)
class Router:
    """Which experts a token gets, and with what weight."""

    W: Tensor
    """[d, e]"""
    bias: Tensor | None
    top: int
    score: Literal["softmax", "sigmoid", "softmax of the chosen"] = "softmax"
    renormalised: bool = False
    scale: float = 1.0
    correction: Tensor | None = None
    """[e]: added when experts are chosen, and not when they are weighed."""
    groups: int = 1
    top_groups: int = 1
    group_by: Literal["largest", "two largest"] = "largest"

    def __call__(self, y: Tensor) -> Tensor:
        """Weights [n, e] for rows y [n, d]; 0 for experts that a token does not get."""
        raw = linear(y, self.W, self.bias).float()
        if self.score == "softmax of the chosen":
            best = raw.topk(self.top, -1)
            return torch.zeros_like(raw).scatter(-1, best.indices, best.values.softmax(-1)).to(y)
        scores = raw.softmax(-1) if self.score == "softmax" else raw.sigmoid()
        chosen = self._choice(scores).topk(self.top, -1).indices
        weights = scores.gather(-1, chosen)
        if self.renormalised:
            weights = weights / (weights.sum(-1, keepdim=True) + (1e-20 if self.score == "sigmoid" else 0.0))
        return torch.zeros_like(raw).scatter(-1, chosen, weights * self.scale).to(y)

    def _choice(self, scores: Tensor) -> Tensor:
        """The scores by which experts are chosen; −∞ in groups that are left out."""
        scores = scores if self.correction is None else scores + self.correction.to(scores)
        if self.groups == 1:
            return scores
        grouped = scores.reshape(*scores.shape[:-1], self.groups, -1)
        best = grouped.amax(-1) if self.group_by == "largest" else grouped.topk(2, -1).values.sum(-1)
        open_groups = torch.zeros_like(best).scatter(-1, best.topk(self.top_groups, -1).indices, 1.0)
        return grouped.masked_fill(open_groups[..., None] == 0, -torch.inf).flatten(-2)


SHARED = "shared"
"""The name of the shared experts, which every token gets."""


@dataclass(frozen=True, eq=False)
class Routed:
    """A mixture of experts: x ↦ Σ weight_e(x) expert_e(x), plus what shared experts write."""

    router: Router
    experts: tuple[FeedForward, ...]
    shared: FeedForward | None = None
    shared_gate: Tensor | None = None
    """[d, 1]: the shared experts' write is multiplied by the sigmoid of x times this."""

    @property
    def parts(self) -> dict[str, FeedForward]:
        """Every expert by its name, shared ones last."""
        experts = {f"E{number}": expert for number, expert in enumerate(self.experts)}
        return experts if self.shared is None else experts | {SHARED: self.shared}

    def weights(self, y: Tensor) -> Tensor:
        """[n, part]: what each part's write is multiplied by for rows y [n, d]; 0 where a token does not get it."""
        weights = self.router(y)
        if self.shared is None:
            return weights
        gate = torch.ones(len(y), 1).to(y) if self.shared_gate is None else (y @ self.shared_gate.to(y)).sigmoid()
        return torch.cat((weights, gate), 1)

    def __call__(self, y: Tensor) -> Tensor:
        rows = y.flatten(0, -2)
        weights, total = self.router(rows), torch.zeros_like(rows)
        for expert, share in zip(self.experts, weights.T, strict=True):
            routed = share.nonzero()[:, 0]
            if len(routed):
                total = total.index_add(0, routed, share[routed, None] * expert(rows[routed]))
        if self.shared is not None:
            more = self.shared(rows)
            gate = None if self.shared_gate is None else linear(rows, self.shared_gate, None).sigmoid()
            total = total + (more if gate is None else gate * more)
        return total.view_as(y)


@dataclass(frozen=True)
class Opaque:
    """A part that reads and writes, and whose inside is not understood; `what` it is, in a few words."""

    what: str


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.to(x) if bias is None else x @ weight.to(x) + bias.to(x)


@dataclass(frozen=True, eq=False)
class Block:
    """One layer. In `pre` order ln1 and ln2 read the stream; in `post` order they rewrite it after each write.

    Where one norm serves both sublayers, ln2 is ln1, the same object. Where a sublayer reads the stream itself, its
    norm is None.
    """

    ln1: Norm | None
    ln2: Norm | None
    mixer: Attention | Opaque
    channels: FeedForward | Routed | Opaque | None
    """The feed-forward layer; None in a block that has none."""
    ln1_post: Norm | None = None
    ln2_post: Norm | None = None
    ln_cross: Norm | None = None
    cross: Attention | None = None
    """Attention whose keys and values come from an encoder's states; it writes between mixer and feed-forward."""

    @property
    def attention(self) -> Attention:
        """The mixer, where it is attention that is understood; an error elsewhere."""
        if isinstance(self.mixer, Opaque):
            raise ModelError(f"this layer mixes tokens by {self.mixer.what}, whose heads cannot be read.")
        return self.mixer

    @property
    def feed_forward(self) -> FeedForward:
        """The feed-forward layer, where it is one dense layer; an error elsewhere."""
        if isinstance(self.channels, FeedForward):
            return self.channels
        what = "a mixture of experts" if isinstance(self.channels, Routed) else getattr(self.channels, "what", "none")
        raise ModelError(f"this block's feed-forward layer is {what}, not one dense layer.")
