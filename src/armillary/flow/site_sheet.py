"""How are the norm sites of a batch looked at on a GPU? Each is read once, and all are evaluated together at the end.

A sheet holds a few numbers per row and site. What follows from them (kinds of token, sums) takes a handful of kernels
for all sites instead of dozens for each, and waits for nothing.
"""

from functools import cached_property

import torch
from torch import Tensor

from armillary.anatomy import Norm
from armillary.flow.glimpse import ORDINARY, OUTLIER, PILOT_ROWS, Glimpse, Tokens, Typical, Workspace
from armillary.geometry.fused.row_statistics import FIELDS, row_statistics


class SiteSheet:
    """The statistics [site, FIELDS, n] of a batch's rows, in the order in which sites passed."""

    def __init__(self, tokens: Tokens, sites: int, dtype: torch.dtype) -> None:
        wide = torch.promote_types(dtype, torch.float32)
        count = tokens.batch.mask.numel()
        self.tokens, self.sites = tokens, list[str]()
        self._all = torch.empty(sites, len(FIELDS), count, dtype=wide, device=tokens.device)
        self._typical: list[Typical] = []

    def add(self, site: str, rows: Tensor, norm: Norm) -> Tensor:
        """Read a site's rows."""
        self.sites.append(site)
        return row_statistics(rows, norm.kind == "layernorm", norm.eps, self._all[len(self.sites) - 1])

    def settle(self, typical: Typical) -> None:
        self._typical.append(typical)

    def __getitem__(self, name: str) -> Tensor:
        """[site, n] of one field."""
        return self._all[: len(self.sites), FIELDS.index(name)]

    def rows(self, site: str) -> Tensor:
        return self._all[self.sites.index(site)]

    @cached_property
    def typical_lengths(self) -> Tensor:
        """[site, 1], float64."""
        return torch.stack([typical.length for typical in self._typical]).double()[:, None]

    @cached_property
    def typical_magnitudes(self) -> Tensor:
        return torch.stack([typical.magnitude for typical in self._typical]).double()[:, None]

    @cached_property
    def massive(self) -> Tensor:
        """[site, n]: which tokens have a massive coordinate."""
        bounds = torch.stack([typical.bound for typical in self._typical])[:, None]
        return (self["peak"] >= bounds) & self.tokens.real

    @cached_property
    def kind(self) -> Tensor:
        """[site, n]: 0 ordinary, 1 first position, 2 massive activation (not first)."""
        first = self.tokens.first
        return torch.where(self.massive & (first == ORDINARY), OUTLIER, first)


class SheetGlimpse(Glimpse):
    """One norm site's rows for one batch, read once into a sheet. What needs more than that is computed on request."""

    def __init__(
        self, site: str, norm: Norm, x: Tensor, y: Tensor, sheet: SiteSheet, space: Workspace, typical: Typical | None
    ) -> None:
        self.norm, self.tokens, self.sheet, self._space = norm, sheet.tokens, sheet, space
        self.raw, self.output = x.reshape(-1, norm.d), y.reshape(-1, norm.d)
        self.rows = sheet.add(site, self.raw, norm)
        self.typical = typical or self._typical()
        sheet.settle(self.typical)

    def _field(self, name: str) -> Tensor:
        return self.rows[FIELDS.index(name)].double()

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        return self.raw.to(torch.promote_types(self.raw.dtype, torch.float32))

    @cached_property
    def z(self) -> Tensor:  # type: ignore[override]
        z = self._space.like(self.x)
        scale = torch.rsqrt(self.power + self.norm.eps).to(z.dtype)[:, None]
        if self.norm.kind == "layernorm":
            return torch.sub(self.x, self.mean.to(z.dtype)[:, None], out=z).mul_(scale)
        return torch.mul(self.x, scale, out=z)

    @cached_property
    def length(self) -> Tensor:
        return self._field("length2").sqrt()

    @cached_property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self._field("mean")

    @cached_property
    def power(self) -> Tensor:
        return self._field("power")

    @cached_property
    def radius(self) -> Tensor:
        return (self._field("radius2") / self.norm.d).sqrt()

    @cached_property
    def mean_z(self) -> Tensor:
        return self._field("total") / self.norm.d

    @cached_property
    def massive(self) -> Tensor:
        return (self.rows[FIELDS.index("peak")] >= self.typical.bound) & self.tokens.real

    def _typical(self) -> Typical:
        rows = self.tokens.later if len(self.tokens.later) else self.tokens.rows
        some, few = rows[:: max(1, len(rows) // 256)], rows[:: max(1, len(rows) // PILOT_ROWS)]
        magnitude = self.raw[few, ::4].to(torch.promote_types(self.raw.dtype, torch.float32)).abs()
        length2 = self.rows[FIELDS.index("length2")].index_select(0, some)
        return Typical(_middle(length2).double().sqrt(), _middle(magnitude.flatten()).double())

    def spread(self) -> tuple[Tensor, Tensor]:
        """What the module received and returned at a few rows."""
        chosen = self.tokens.spread
        return self.raw.index_select(0, chosen), self.output.index_select(0, chosen)


def _middle(values: Tensor) -> Tensor:
    """The median, by selection: on a GPU `median` sorts, by dozens of kernels."""
    return values.kthvalue((len(values) + 1) // 2).values
