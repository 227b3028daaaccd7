"""What does one norm site show of one batch?

Everything per token that the probes of the sphere ask for, computed once and shared: the point z on the sphere, the
lengths before and after, and what kind of token it is. Rows of padding are carried along (taking them out would cost
a copy) and weigh nothing: `real` marks the others.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Norm
from armillary.flow.machine.feed import Feed
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
    """The tokens of a batch, flattened as the sites' rows are: the same for every site. Which rows count is known on
    the host; the tensors are on the model's device."""

    batch: Batch
    whole: bool
    """Is no row padding?"""
    put: Feed
    """Brings what a watch knows on the host to the device."""
    real: Tensor
    group: Tensor
    document: Tensor
    position: Tensor
    token: Tensor
    first: Tensor
    """FIRST at first positions, else ORDINARY."""
    rows: Tensor
    """Rows that are not padding."""
    later: Tensor
    """Rows that are neither padding nor first positions."""
    counts: Tensor
    """1 at those rows, else 0; one byte each."""
    spread: Tensor
    """A few rows spread over the batch, to look at closely."""

    @property
    def device(self) -> torch.device:
        return self.real.device

    @property
    def ids(self) -> Tensor:
        """[b, t] on the device."""
        return self.token.view(self.batch.ids.shape)

    @cached_property
    def places(self) -> "Places":
        """On the host: where the tokens are that are neither padding nor first."""
        batch, width = self.batch, self.batch.ids.shape[1]
        mask = batch.mask.numpy().copy()
        mask[:, :1] = False
        rows = np.flatnonzero(mask)
        ids, following = (part.numpy().reshape(-1)[rows] for part in (batch.ids, batch.following))
        return Places(rows, batch.documents.numpy()[rows // width], rows % width, ids, following)

    @classmethod
    def of(cls, batch: Batch, groups: int, device: torch.device, feed: Feed | None = None) -> "Tokens":
        # By NumPy: torch wakes all threads for a few thousand numbers, which took milliseconds on sixteen cores.
        rows, width = batch.ids.shape
        mask = batch.mask.numpy().reshape(-1)
        document = np.repeat(batch.documents.numpy(), width)
        position = np.tile(np.arange(width), rows)
        inside = mask & (position > 0)
        first = np.where(position == 0, FIRST, ORDINARY)
        parts = (mask, document % groups, document, position, batch.ids.numpy().reshape(-1), first)
        some = torch.linspace(0, len(mask) - 1, min(8, len(mask))).long().numpy()
        arrays = (*parts, np.flatnonzero(mask), np.flatnonzero(inside), inside.astype(np.int8), some[mask[some]])
        put = feed or Feed(device)
        return cls(batch, bool(mask.all()), put, *(put(part) for part in arrays))


@dataclass(frozen=True, eq=False)
class Places:
    """Tokens on the host, one number each: row in the batch, document, position, token, following token (or −1)."""

    rows: NDArray[np.int64]
    document: NDArray[np.int64]
    position: NDArray[np.int64]
    token: NDArray[np.int64]
    following: NDArray[np.int64]


class Workspace:
    """One buffer for z, used by every site in turn: fresh pages for each would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None

    def like(self, x: Tensor) -> Tensor:
        buffer = self._buffer
        if buffer is None or buffer.numel() < x.numel() or buffer.dtype != x.dtype or buffer.device != x.device:
            buffer = self._buffer = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
        return buffer[: x.numel()].view(x.shape)


class Glimpse:
    """One norm site's rows [n, d] for one batch. z lies in the workspace: it is good until the next glimpse."""

    def __init__(
        self,
        norm: Norm,
        x: Tensor,
        y: Tensor,
        tokens: Tokens,
        space: Workspace | None = None,
        typical: "Typical | None" = None,
    ) -> None:
        """`typical` is what the site's first batch showed; without it this batch is the first."""
        self.norm, self.tokens = norm, tokens
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
        self.typical = typical or self._typical()

    def _centre(self) -> None:
        """z and the variance under LayerNorm. On the CPU by two quick passes, and where those would cancel by torch's
        own kernel; on a GPU, where looking for cancellation would wait for it, by torch's own variance."""
        d, eps = self.norm.d, self.norm.eps
        if self.x.device.type != "cpu":
            variance, mean = torch.var_mean(self.x, -1, correction=0)
            self.power, self.mean = variance.double(), mean.double()
            torch.mul(self.x - mean[:, None], torch.rsqrt(variance + eps)[:, None], out=self.z)
            return
        self.power = self.length.square() / d - self.mean.square()
        if bool(((self.power > eps) & (self.power > 0.1 * self.mean.square())).all()):
            rstd = torch.rsqrt(self.power + eps)
            torch.mul(self.x, rstd.to(self.x.dtype)[:, None], out=self.z)
            self.z.sub_((self.mean * rstd).to(self.x.dtype)[:, None])
            return
        mean, rstd = self.x.new_empty(len(self.x), 1), self.x.new_empty(len(self.x), 1)
        torch.ops.aten.native_layer_norm.out(self.x, [d], None, None, eps, out0=self.z, out1=mean, out2=rstd)
        self.mean = mean.reshape(-1).double()
        # 1/rstd² − ε cancels where ε dominates; those few rows are computed again in float64.
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
        """Which tokens have a massive coordinate. (A site where most coordinates are zero has no scale for one.)"""
        magnitude = self.typical.magnitude
        bound = MASSIVE * torch.where(magnitude > 0, magnitude, torch.inf)
        if self.x.device.type != "cpu":
            return (self.x.abs().amax(-1).double() >= bound) & self.tokens.real
        # No coordinate is larger than the length, so only tokens as long as the bound need a look at theirs.
        long = (self.length >= bound) & self.tokens.real
        rows = long.nonzero()[:, 0]
        if len(rows):
            long[rows] = self.x[rows].abs().amax(-1).double() >= bound
        return long

    def _typical(self) -> "Typical":
        """Medians over a few tokens that are neither padding nor first."""
        rows = self.tokens.later if len(self.tokens.later) else self.tokens.rows
        spread, few = rows[:: max(1, len(rows) // 256)], rows[:: max(1, len(rows) // PILOT_ROWS)]
        return Typical(self.length[spread].median(), self.x[few, ::4].abs().median().double())

    def deviation(self) -> Tensor:
        """How far the module's own output is from gain ⊙ z + shift, on a few rows spread over the batch."""
        chosen = self.tokens.spread
        if not len(chosen):
            return torch.zeros((), device=self.x.device)
        computed, reference = self.norm(self.raw[chosen]).double(), self.output[chosen].double()
        return (computed - reference).abs().max() / reference.abs().max().clamp_min(1e-30)


@dataclass(frozen=True, eq=False)
class Typical:
    """A site's median length and median magnitude of a coordinate, by its first batch: what 'near' and 'massive' are
    measured by. A setting, fixed once; 0-dimensional tensors on the model's device."""

    length: Tensor
    magnitude: Tensor

    @cached_property
    def bound(self) -> Tensor:
        """From what on a coordinate is massive, in float32. (Where most are zero, there is no scale for one.)"""
        return (MASSIVE * torch.where(self.magnitude > 0, self.magnitude, torch.inf)).float()
