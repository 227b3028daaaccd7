"""A layer's heads, and its feed-forward, as maps of points on the sphere.

The norm before attention is folded into the heads: centring (LayerNorm), gain and shift, so that W_QK and W_VO act on
directions z. Nothing is lost: biases stay as the terms that are linear or constant in z, q/k-norms, soft cap, window
and rotation are applied where the model applies them. The law 'two views' compares the result with the model's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy.anatomy import Anatomy, Attention, FeedForward
from armillary.anatomy.norm import Norm
from armillary.anatomy.positions.rotary import Rotary
from armillary.anatomy.space import RAW, Space, Vectors
from armillary.errors import ArmillaryError
from armillary.geometry.factored import Factored


@dataclass(frozen=True, eq=False)
class Folded:
    """One layer's heads on z: q = z A_Q + a_Q and likewise k and v; A_Q, A_K, A_V [h, d, k], W_O [h, k, d].

    Keys and values of grouped heads are repeated, so that every list has one entry per head.
    """

    layer: int
    attention: Attention
    norm: Norm | None
    """The norm that was folded in."""
    reads: Space
    """Directions at the norm that attention reads; the stream itself where no norm stands before it."""
    writes: Space
    A_Q: Tensor
    A_K: Tensor
    A_V: Tensor
    a_Q: Tensor
    a_K: Tensor
    a_V: Tensor
    W_O: Tensor
    b_O: Tensor | None
    rotary: Tensor | None
    """[Δ, k, k] for Δ = 0, 1 … and the matrices of negative Δ are their transposes; None without rotation."""

    def turn(self, offset: int) -> Tensor:
        """R(Δ): q_i R(i − j) · k_j is the product of both sides rotated to their places."""
        if self.rotary is None:
            return torch.eye(self.A_Q.shape[-1], dtype=self.A_Q.dtype, device=self.A_Q.device)
        if abs(offset) >= len(self.rotary):
            raise ArmillaryError(f"offset {offset} is outside the range of {len(self.rotary)} requested offsets")
        turned = self.rotary[abs(offset)]
        return turned if offset >= 0 else turned.mT

    def qk(self, offset: int = 0) -> Factored:
        """W_QK(Δ), query side left, with 1/√k; both sides take directions at `reads`. Gains of q/k-norms are folded in;
        the lengths they divide by are the token's own and stand outside."""
        left, right = self.with_gain("q", self.A_Q), self.with_gain("k", self.A_K)
        return Factored(left @ self.turn(offset) * self.attention.scale, right)

    def with_gain(self, side: str, x: Tensor) -> Tensor:
        """[h, n, k] times the gain of its q- or k-norm, where there is one."""
        gain = self.attention.gain(side)
        return x if gain is None else x * gain.to(x)

    def vo(self) -> Factored:
        """W_VO: from directions at `reads` to what the head writes."""
        return Factored(self.A_V, self.W_O.mT)

    def queries(self, z: Vectors, head: int | None = None, biased: bool = True) -> Tensor:
        """[h, n, k], or of one head [n, k], before any rotation, q-norm applied."""
        return self._side("q", z.of(self.reads, "a query"), self.A_Q, self.a_Q if biased else None, head)

    def keys(self, z: Vectors, head: int | None = None, biased: bool = True) -> Tensor:
        """[h, n, k], or of one head [n, k], before any rotation, k-norm applied."""
        return self._side("k", z.of(self.reads, "a key"), self.A_K, self.a_K if biased else None, head)

    def _side(self, side: str, z: Tensor, matrices: Tensor, constants: Tensor | None, head: int | None) -> Tensor:
        # One head alone where possible: keys of all heads take gigabytes for a large vocabulary.
        alone = head if self.attention.qk_span == "head" else None
        rows = slice(None) if alone is None else slice(alone, alone + 1)
        x = z @ matrices[rows].to(z)
        x = x if constants is None else x + constants[rows, None].to(z)
        x = self.attention.normed(side, x.transpose(0, 1), alone).transpose(0, 1)
        return x if head is None else x[0 if alone is not None else head]

    def scores(self, query: Vectors, key: Vectors, offset: int = 0) -> Tensor:
        """What softmax receives [h, a, b] for queries that stand `offset` places after the keys."""
        raw = self.queries(query) @ self.turn(offset) @ self.keys(key).mT * self.attention.scale
        cap, bias = self.attention.softcap, self.attention.bias
        raw = raw if cap is None else cap * torch.tanh(raw / cap)
        return raw if bias is None else raw + bias(torch.tensor(offset, device=raw.device)).to(raw)[:, None, None]

    def updates(self, z: Vectors) -> Vectors:
        """What each head writes [h, n, d] where it attends to this token alone, its value bias included."""
        values = z.of(self.reads, "a value") @ self.A_V + self.a_V[:, None]
        return Vectors(values @ self.W_O, self.writes)


@dataclass(frozen=True, eq=False)
class FoldedForward:
    """One layer's feed-forward on z: the activation receives z A + a, and with a gate its output is multiplied by
    z A_up + a_up. Columns of A are keys [d, m], rows of W_out the values [m, d] that the hidden coordinates weigh."""

    feed_forward: FeedForward
    norm: Norm | None
    reads: Space
    A: Tensor
    a: Tensor
    A_up: Tensor | None
    a_up: Tensor | None
    W_out: Tensor
    b_out: Tensor | None

    def scores(self, z: Vectors) -> Tensor:
        """The hidden coordinates [n, m]: how much of each value is written."""
        return self.activated(z.of(self.reads, "a key") @ self.keys)

    @property
    def keys(self) -> Tensor:
        """[d, m]; with a gate [d, 2m], the gate's first."""
        return self.A if self.A_up is None else torch.cat([self.A, self.A_up], 1)

    def activated(self, matches: Tensor) -> Tensor:
        """Hidden coordinates [..., m] from products with the keys [..., m or 2m], in their precision."""
        if self.A_up is None or self.a_up is None:
            pre = matches + self.a.to(matches)
            return self.feed_forward.activate(pre, pre)
        pre, up = matches.chunk(2, -1)
        return self.feed_forward.activate(pre + self.a.to(pre), up + self.a_up.to(up))


def reading_norm(anatomy: Anatomy, layer: int) -> tuple[str, Norm | None]:
    """Site and norm whose output a layer's mixer reads; ('', None) where it reads the stream itself."""
    if anatomy.order == "pre" and anatomy.blocks[layer].ln1 is not None:
        return f"L{layer}.ln1", anatomy.blocks[layer].ln1
    if layer and anatomy.order == "post":
        return f"L{layer - 1}.ln2", anatomy.blocks[layer - 1].ln2
    return ("", None) if layer or anatomy.ln_embed is None else ("ln_embed", anatomy.ln_embed)


def mlp_norm(anatomy: Anatomy, layer: int) -> tuple[str, Norm | None]:
    """Site and norm whose output a layer's feed-forward reads; where it reads the stream, that place and None."""
    block = anatomy.blocks[layer]
    if block.ln2 is None:
        return f"L{layer}.resid_mid", None
    if anatomy.order == "pre" and block.ln2 is not block.ln1:
        return f"L{layer}.ln2", block.ln2
    if block.cross is not None:
        return f"L{layer}.ln_cross", block.ln_cross
    return f"L{layer}.ln1", block.ln1


def fold(anatomy: Anatomy, layer: int, offsets: int = 1, dtype: torch.dtype = torch.float64) -> Folded:
    """A layer's heads with the norm before them multiplied in; rotations for the offsets 0 … `offsets` − 1."""
    block = anatomy.blocks[layer]
    attention = block.attention
    site, norm = reading_norm(anatomy, layer)
    sides = []
    for weight, bias in (
        (attention.W_Q, attention.b_Q),
        (attention.W_K, attention.b_K),
        (attention.W_V, attention.b_V),
    ):
        matrix, constant = _through(norm, weight.to(dtype), None if bias is None else bias.to(dtype))
        times = attention.W_Q.shape[0] // weight.shape[0]
        sides.append((matrix.repeat_interleave(times, 0), constant.repeat_interleave(times, 0)))
    (A_Q, a_Q), (A_K, a_K), (A_V, a_V) = sides
    return Folded(
        layer=layer,
        attention=attention,
        norm=norm,
        reads=Space("direction", site) if norm is not None else RAW,
        writes=RAW if block.ln1_post is None else Space("raw", f"L{layer}.ln1_post"),
        A_Q=A_Q,
        A_K=A_K,
        A_V=A_V,
        a_Q=a_Q,
        a_K=a_K,
        a_V=a_V,
        W_O=attention.W_O.to(dtype),
        b_O=None if attention.b_O is None else attention.b_O.to(dtype),
        rotary=None if attention.rotary is None else _rotations(attention.rotary, offsets, A_Q),
    )


def fold_forward(
    anatomy: Anatomy, layer: int, dtype: torch.dtype = torch.float64, part: FeedForward | None = None
) -> FoldedForward:
    """A layer's feed-forward, or one expert (`part`) of it, with the norm before it multiplied in."""
    site, norm = mlp_norm(anatomy, layer)
    ffn = anatomy.blocks[layer].feed_forward if part is None else part

    def side(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        matrix, constant = _through(norm, weight.to(dtype)[None], None if bias is None else bias.to(dtype)[None])
        return matrix[0], constant[0]

    up = side(ffn.W_in, ffn.b_in)
    gate = None if ffn.W_gate is None else side(ffn.W_gate, ffn.b_gate)
    return FoldedForward(
        feed_forward=ffn,
        norm=norm,
        reads=RAW if norm is None else Space("direction", site),
        A=(gate or up)[0],
        a=(gate or up)[1],
        A_up=None if gate is None else up[0],
        a_up=None if gate is None else up[1],
        W_out=ffn.W_out.to(dtype),
        b_out=None if ffn.b_out is None else ffn.b_out.to(dtype),
    )


def _through(norm: Norm | None, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """A projection [h, d, k] of y as one of z, with its constant [h, k]."""
    constant = weight.new_zeros(weight.shape[0], weight.shape[2]) if bias is None else bias
    if norm is None:
        return weight, constant
    if norm.shift is not None:
        constant = constant + norm.shift.to(weight) @ weight
    matrix = norm.gain.to(weight)[:, None] * weight
    if norm.kind == "layernorm":
        # No z has a mean; without this the matrix would keep singular vectors that nothing can reach.
        matrix = matrix - matrix.mean(1, keepdim=True)
    return matrix, constant


def _rotations(rotary: Rotary, offsets: int, like: Tensor) -> Tensor:
    """R(Δ) [offsets, k, k] from the model's own rotary module, its scale of the angles and of the lengths included."""
    return rotary.matrices(torch.arange(offsets, device=like.device), like.shape[-1], like.dtype)
