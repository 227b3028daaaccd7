"""What does one norm site show of one batch?

Everything per token that the probes of the sphere ask for, computed once and shared: the point z on the sphere, the
lengths before and after, and what kind of token it is. Rows of padding are carried along (taking them out would cost
a copy) and weigh nothing: `real` marks the others.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from armillary.anatomy import Norm
from armillary.flow.tokens import Batch

ORDINARY, FIRST, OUTLIER = 0, 1, 2
KINDS = ("ordinary", "first", "massive")

# Sun et al. (2024, arXiv:2402.17762) call an activation massive that exceeds the median magnitude of the hidden states
# a thousandfold. The median is the site's, not the token's own: a token with a huge coordinate has all the others
# inflated too (SmolLM2's first token reaches 24 000, which is 6 800 times its site's median but 500 times its own).
MASSIVE = 1000.0
PILOT_ROWS = 32


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a batch, flattened as the sites' rows are: the same for every site."""

    real: Tensor
    group: Tensor
    document: Tensor
    position: Tensor
    token: Tensor
    following: Tensor
    fold: int
    first: Tensor
    """FIRST at first positions, else ORDINARY."""
    whole: bool
    """Is no row padding?"""
    later: Tensor
    """Rows that are neither padding nor first positions."""
    offered: Tensor
    """Rows that a sample may draw from: the later ones, or fewer where more is known beforehand."""
    rank: Tensor | None = None
    """Of the offered rows, by which a sample chooses, where that is known beforehand."""

    @cached_property
    def places(self) -> Tensor:
        """Document, position, token and following token of the offered rows."""
        columns = (self.document, self.position, self.token, self.following)
        return torch.stack(columns, 1)[self.offered]

    @cached_property
    def spread(self) -> Tensor:
        """A few rows spread over the batch, to look at closely."""
        some = torch.linspace(0, len(self.real) - 1, min(8, len(self.real)), device=self.real.device).long()
        return some[self.real[some]]

    @classmethod
    def of(cls, batch: Batch, groups: int, device: torch.device) -> "Tokens":
        rows, width = batch.ids.shape
        document = batch.documents[:, None].expand(rows, width).reshape(-1)
        position = torch.arange(width).expand(rows, width).reshape(-1)
        mask, ids, following = (part.reshape(-1).to(device) for part in (batch.mask, batch.ids, batch.following))
        document, position = document.to(device), position.to(device)
        first = torch.where(position == 0, FIRST, ORDINARY)
        whole = bool(batch.mask.all())
        later = (mask & (position > 0)).nonzero()[:, 0]
        return cls(mask, document % groups, document, position, ids, following, batch.fold, first, whole, later, later)


class Workspace:
    """One buffer for z, used by every site in turn: fresh pages for each would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None

    def like(self, x: Tensor) -> Tensor:
        kept = self._buffer
        if kept is None or kept.numel() < x.numel() or kept.dtype != x.dtype or kept.device != x.device:
            kept = self._buffer = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
        return kept[: x.numel()].view(x.shape)


class Glimpse:
    """One norm site's rows [n, d] for one batch. z lies in the workspace: it is good until the next glimpse."""

    def __init__(self, norm: Norm, x: Tensor, y: Tensor, tokens: Tokens, space: Workspace | None = None) -> None:
        self.norm, self.tokens = norm, tokens
        self.typical = torch.inf
        """The site's median magnitude, against which an activation is massive; set by whoever knows the site."""
        d = norm.d
        self.raw, self.output = x.reshape(-1, d), y.reshape(-1, d)
        self.x = self.raw.to(torch.promote_types(x.dtype, torch.float32))
        self.length = torch.linalg.vector_norm(self.x, dim=-1).double()
        self.z = (space or Workspace()).like(self.x)
        self.mean = self.x.sum(-1).double() / d
        if norm.kind == "layernorm":
            self._centre()
        else:
            self.power = self.length.square() / d
            torch.mul(self.x, torch.rsqrt(self.power + norm.eps).to(self.x.dtype)[:, None], out=self.z)

    def _centre(self) -> None:
        """z and the variance under LayerNorm, by two quick passes; where those would cancel, by torch's own kernel."""
        d, eps = self.norm.d, self.norm.eps
        self.power = self.length.square() / d - self.mean.square()
        if bool(((self.power > eps) & (self.power > 0.1 * self.mean.square())).all()):
            rstd = torch.rsqrt(self.power + eps)
            torch.mul(self.x, rstd.to(self.x.dtype)[:, None], out=self.z)
            self.z.sub_((self.mean * rstd).to(self.x.dtype)[:, None])
            return
        mean, rstd = self.x.new_empty(len(self.x), 1), self.x.new_empty(len(self.x), 1)
        torch.ops.aten.native_layer_norm.out(self.x, [d], None, None, eps, out0=self.z, out1=mean, out2=rstd)
        self.mean = mean.reshape(-1).double()
        # 1/rstd² − ε cancels where ε bites; those few rows are done over in float64.
        self.power = rstd.reshape(-1).double().pow(-2) - eps
        bitten = (self.power <= eps).nonzero()[:, 0]
        if len(bitten):
            self.power[bitten] = self.x[bitten].double().var(-1, correction=0)

    @cached_property
    def radius(self) -> Tensor:
        """‖z‖/√d."""
        return torch.linalg.vector_norm(self.z, dim=-1).double() / self.norm.d**0.5

    @cached_property
    def theory(self) -> Tensor:
        """The radius that ε leaves: sqrt(v / (v + ε))."""
        return (self.power / (self.power + self.norm.eps)).sqrt()

    @cached_property
    def mean_z(self) -> Tensor:
        return self.z.sum(-1).double() / self.norm.d

    @cached_property
    def kind(self) -> Tensor:
        """0 ordinary, 1 first position, 2 massive activation (not first)."""
        first = self.tokens.first
        return torch.where(self.massive & (first == ORDINARY), OUTLIER, first)

    @cached_property
    def massive(self) -> Tensor:
        # No coordinate is larger than the length, so only tokens as long as the bound need a look at theirs.
        # (A site where most coordinates are zero has no scale to be massive by.)
        found = (self.length >= MASSIVE * (self.typical or torch.inf)) & self.tokens.real
        rows = found.nonzero()[:, 0]
        if len(rows):
            found[rows] = self.x[rows].abs().amax(-1).double() >= MASSIVE * self.typical
        return found

    def pilot(self) -> tuple[float, float]:
        """Median length and median magnitude of a coordinate, over tokens that are neither padding nor first."""
        rows = self.tokens.later
        if not len(rows):
            rows = self.tokens.real.nonzero()[:, 0]
        some, few = rows[:: max(1, len(rows) // 256)], rows[:: max(1, len(rows) // PILOT_ROWS)]
        return float(self.length[some].median()), float(self.x[few, ::4].abs().median())

    def deviation(self) -> float:
        """How far the module's own output is from gain ⊙ z + shift, on a few rows spread over the batch."""
        chosen = self.tokens.spread
        if not len(chosen):
            return 0.0
        ours, theirs = self.norm(self.raw[chosen]).double(), self.output[chosen].double()
        return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))
