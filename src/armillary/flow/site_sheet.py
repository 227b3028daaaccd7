"""How are the norm sites of a batch looked at on a GPU? Several are read at once, and all are evaluated at the end.

A sheet holds a few numbers per row and site. What follows from them (kinds of token, sums) takes a handful of kernels
for all sites instead of dozens for each, and waits for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from armillary.anatomy import Norm
from armillary.errors import ModelError
from armillary.flow.glimpse import MASSIVE, ORDINARY, OUTLIER, PILOT_ROWS, Glimpse, Tokens, Typical
from armillary.geometry.fused.row_statistics import AT_ONCE, FIELDS, dense, gathered, row_statistics


@dataclass(frozen=True, eq=False)
class Group:
    """A few norm sites of one kind, read together: their rows [n, d] and those of the modules' outputs."""

    sheet: "SiteSheet"
    first: int
    """The place of its first site in the sheet."""
    norm: Norm
    """Of the first site; the others have the same kind, ε and width."""
    sites: Sequence[str]
    raw: Sequence[Tensor]
    outputs: Sequence[Tensor]
    statistics: Tensor
    """[site, FIELDS, n]."""

    @property
    def centred(self) -> bool:
        return self.norm.kind == "layernorm"

    @property
    def bounds(self) -> Tensor:
        """[site]: from what on a coordinate is massive."""
        return self.sheet.scales.bounds[self.first : self.first + len(self.sites)]

    def runs(self, order: Mapping[str, int]) -> Iterator[tuple[slice, slice]]:
        """Which of these sites lie side by side in another order: their places here, and there."""
        start = 0
        while start < len(self.sites):
            place, stop = order.get(self.sites[start]), start + 1
            if place is not None:
                while stop < len(self.sites) and order.get(self.sites[stop]) == place + stop - start:
                    stop += 1
                yield slice(start, stop), slice(place, place + stop - start)
            start = stop


class GroupReader(Protocol):
    """Who is shown groups of sites instead of one site after another."""

    def see_group(self, group: Group) -> None: ...


class Scales:
    """What is typical of every norm site, in the order in which they pass: a setting, fixed by the first batch."""

    def __init__(self, sites: int, device: torch.device) -> None:
        self.lengths, self.magnitudes = torch.zeros(2, sites, dtype=torch.float64, device=device)
        self.bounds = torch.zeros(sites, device=device)
        self.centres: dict[str, Tensor] = {}
        """Site → the mean direction [d] of a few tokens, in float32."""
        self.orders: dict[tuple[str, ...], Tensor | None] = {}
        self.ready = False

    def settle(self, group: Group) -> None:
        """Medians over a few tokens that are neither padding nor first."""
        tokens, here = group.sheet.tokens, slice(group.first, group.first + len(group.sites))
        rows = tokens.later if len(tokens.later) else tokens.rows
        some, few = rows[:: max(1, len(rows) // 256)], rows[:: max(1, len(rows) // PILOT_ROWS)]
        raw = group.raw[0]
        pilot = gathered(group.raw, few, raw.new_empty(len(group.sites), len(few), raw.shape[1]))
        sizes = pilot[..., ::4].abs().flatten(1).to(group.statistics.dtype)
        length2 = group.statistics[:, FIELDS.index("length2")].index_select(1, some)
        self.lengths[here] = _middle(length2).double().sqrt()
        self.magnitudes[here] = _middle(sizes)
        self.centres |= zip(group.sites, group.norm.direction(pilot).mean(1).float(), strict=True)
        # Where most coordinates are zero, there is no scale for a massive one.
        scale = torch.where(self.magnitudes[here] > 0, self.magnitudes[here], torch.inf)
        self.bounds[here] = MASSIVE * scale

    def __getitem__(self, place: int) -> Typical:
        return Typical(self.lengths[place], self.magnitudes[place])


class SiteSheet:
    """The statistics [site, FIELDS, n] of a batch's rows, in the order in which sites passed."""

    def __init__(
        self, tokens: Tokens, sites: int, dtype: torch.dtype, scales: Scales, readers: Sequence[GroupReader]
    ) -> None:
        wide = torch.promote_types(dtype, torch.float32)
        self.tokens, self.scales, self._readers = tokens, scales, readers
        self.sites: list[str] = []
        self._all = torch.empty(sites, len(FIELDS), tokens.batch.mask.numel(), dtype=wide, device=tokens.device)
        self._waiting: list[tuple[str, Norm, Tensor, Tensor, int]] = []

    def put(self, site: str, norm: Norm, given: Tensor, value: Tensor) -> int:
        """A site's rows, to be read soon; its place."""
        if self._waiting and not _alike(self._waiting[0][1], norm):
            self.flush()
        self._waiting.append((site, norm, given, value, given._version))
        if len(self._waiting) == AT_ONCE:
            self.flush()
        return len(self.sites) + len(self._waiting) - 1 if self._waiting else len(self.sites) - 1

    def flush(self) -> None:
        """Read the sites that wait."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        sites, norms, given, values, versions = zip(*waiting, strict=True)
        if any(x._version != version for x, version in zip(given, versions, strict=True)):
            raise ModelError(f"the model changes in place what {', '.join(sites)} received: read it on the CPU.")
        raw = [dense(x, norms[0].d) for x in given]
        outputs = [dense(x, norms[0].d) for x in values]
        place = slice(len(self.sites), len(self.sites) + len(sites))
        self.sites += sites
        group = Group(self, place.start, norms[0], sites, raw, outputs, self._all[place])
        row_statistics(raw, group.centred, norms[0].eps, group.statistics)
        if not self.scales.ready:
            self.scales.settle(group)
            self.scales.ready = len(self.sites) == len(self._all)
        for reader in self._readers:
            reader.see_group(group)

    def __getitem__(self, name: str) -> Tensor:
        """[site, n] of one field."""
        return self._all[: len(self.sites), FIELDS.index(name)]

    def rows(self, place: int) -> Tensor:
        if place >= len(self.sites):
            self.flush()
        return self._all[place]

    def order(self, sites: Sequence[str]) -> Tensor | None:
        """The places of these sites; None where they are all sites in their order."""
        known, asked = self.scales.orders, tuple(sites)
        if asked not in known:
            # Sites pass in the same order in every batch.
            places = torch.tensor([self.sites.index(site) for site in sites])
            known[asked] = None if list(sites) == self.sites else places.to(self.tokens.device, non_blocking=True)
        return known[asked]

    @property
    def typical_lengths(self) -> Tensor:
        """[site, 1], float64."""
        return self.scales.lengths[: len(self.sites), None]

    @property
    def typical_magnitudes(self) -> Tensor:
        return self.scales.magnitudes[: len(self.sites), None]

    @cached_property
    def massive(self) -> Tensor:
        """[site, n]: which tokens have a massive coordinate."""
        return (self["peak"] >= self.scales.bounds[: len(self.sites), None]) & self.tokens.real

    @cached_property
    def kind(self) -> Tensor:
        """[site, n]: 0 ordinary, 1 first position, 2 massive activation (not first)."""
        first = self.tokens.first
        return torch.where(self.massive & (first == ORDINARY), OUTLIER, first)


class SheetGlimpse(Glimpse):
    """One norm site's rows for one batch, as a sheet has read them. What needs more is computed on request."""

    def __init__(self, place: int, norm: Norm, x: Tensor, y: Tensor, sheet: SiteSheet) -> None:
        self.norm, self.tokens, self.sheet = norm, sheet.tokens, sheet
        self.raw, self.output = x.reshape(-1, norm.d), y.reshape(-1, norm.d)
        self.rows = sheet.rows(place)
        self.typical = sheet.scales[place]

    def _field(self, name: str) -> Tensor:
        return self.rows[FIELDS.index(name)].double()

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        return self.raw.to(torch.promote_types(self.raw.dtype, torch.float32))

    @cached_property
    def z(self) -> Tensor:  # type: ignore[override]
        z = torch.empty_like(self.x)
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


def _alike(norm: Norm, other: Norm) -> bool:
    return (norm.kind, norm.eps, norm.d) == (other.kind, other.eps, other.d)


def _middle(values: Tensor) -> Tensor:
    """The median of each row, by selection: on a GPU `median` sorts, by dozens of kernels."""
    return values.kthvalue((values.shape[1] + 1) // 2, -1).values
