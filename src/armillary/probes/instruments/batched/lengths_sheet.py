"""The sums of `lengths` for all sites of a batch at once: for GPUs, where many small kernels would cost more."""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.anatomy import Norm
from armillary.flow.glimpse import KINDS
from armillary.flow.site_sheet import SiteSheet
from armillary.measures import GroupedScalars, Largest
from armillary.probes.instruments.lengths import SCALARS, TOP, LengthSums
from armillary.probes.machinery import T


def include_sheet(state: LengthSums, sheet: SiteSheet, norms: Sequence[Norm]) -> tuple[Tensor, Tensor]:
    """Add what a sheet holds of the given norms' sites, which are all of its sites; the largest massive activations
    of each [site, TOP], and where they are [site, TOP, (document, position, token, dimension)]."""
    tokens = sheet.tokens
    rows, width = tokens.batch.mask.shape
    columns = torch.where(tokens.real[:, None], _columns(sheet, norms), 0.0)
    both = torch.cat((columns, columns.square()), -1)
    kinds = torch.arange(len(KINDS), device=tokens.device)
    weights = ((sheet.kind[..., None] == kinds) & tokens.real[:, None]).to(both.dtype)
    # First within a window, whose rows belong to one document, then over the windows of each group.
    weights, both = (part.view(len(part), rows, width, -1) for part in (weights, both))
    windows = (weights.mT @ both).flatten(2)
    counts = weights.sum(2)
    group = tokens.group.view(rows, width)[:, 0]
    member = (group == torch.arange(state.groups, device=tokens.device)[:, None]).to(both.dtype)
    shape = (len(sheet.sites), state.groups, len(KINDS))
    sums = (member @ windows).reshape(*shape, -1).transpose(1, 2).flatten(1, 2)
    count = (member @ counts).reshape(shape).transpose(1, 2).flatten(1).to(torch.int64)
    inside = tokens.real[:, None]
    least = torch.where(inside, columns, torch.inf).amin(1)
    most = torch.where(inside, columns, -torch.inf).amax(1)
    measures = [state.scalars[site] for site in sheet.sites]
    n = len(SCALARS)
    GroupedScalars.add_each(measures, count, sums[..., :n], sums[..., n:], least, most)
    return _massive(sheet)


def _columns(sheet: SiteSheet, norms: Sequence[Norm]) -> Tensor:
    """[site, row, SCALARS], float64."""
    d = norms[0].d
    eps: Tensor | float = norms[0].eps
    if len({norm.eps for norm in norms}) > 1:
        # By filling: a list of numbers would be copied from the host.
        each = sheet.tokens.real.new_empty(1, dtype=torch.float64)
        eps = torch.stack([torch.full_like(each, norm.eps) for norm in norms])
    length2, mean, power = (sheet[name].double() for name in ("length2", "mean", "power"))
    radius, mean_z, length = (sheet["radius2"].double() / d).sqrt(), sheet["total"].double() / d, length2.sqrt()
    return torch.stack(
        (
            length,
            length2,
            radius,
            (radius - (power / (power + eps)).sqrt()).abs(),
            (radius < 1 - T.radius_within).double(),
            ((radius - 1).abs() <= T.radius_within).double(),
            ((length / sheet.typical_lengths.clamp_min(1e-30) - 1).abs() <= T.radius_within).double(),
            d * (mean_z / radius.clamp_min(1e-30)).square(),
            mean_z.abs(),
            d * d * mean.square() / length2.clamp_min(1e-60),
            sheet.massive.double(),
        ),
        -1,
    )


def _massive(sheet: SiteSheet) -> tuple[Tensor, Tensor]:
    """The largest massive activations of every site. Equal ones are taken in the order of the batch's rows."""
    tokens, peak = sheet.tokens, sheet["peak"]
    count = peak.shape[1]
    # Positive floats are ordered as their bits are; the row's number below them makes every key different.
    bits = peak.float().contiguous().view(torch.int32).long()
    later = torch.arange(count - 1, -1, -1, device=tokens.device)
    keys = torch.where(sheet.massive, bits << 32 | later, -1)
    top = keys.topk(min(TOP, count), -1).values
    rows = (count - 1 - (top & 0xFFFFFFFF)).clamp(0, count - 1)
    ratio = torch.where(top >= 0, peak.double().gather(1, rows) / sheet.typical_magnitudes, -torch.inf)
    dimension = sheet["place"].gather(1, rows).long()
    return ratio, torch.stack((tokens.document[rows], tokens.position[rows], tokens.token[rows], dimension), -1)


def include_deviations(
    state: LengthSums, sites: Sequence[str], norms: Sequence[Norm], given: Tensor, theirs: Tensor
) -> None:
    """How far the modules' outputs are from gain ⊙ z + shift; a few rows [site, row, d] given and returned."""
    ours = torch.empty_like(theirs, dtype=torch.promote_types(theirs.dtype, torch.float32))
    for like in {(norm.kind, norm.eps, norm.shift is None): norm for norm in norms}.values():
        which = [
            i
            for i, n in enumerate(norms)
            if (n.kind, n.eps, n.shift is None) == (like.kind, like.eps, like.shift is None)
        ]
        gain = torch.stack([norms[i].gain for i in which])[:, None]
        shifts = [shift for i in which if (shift := norms[i].shift) is not None]
        shift = torch.stack(shifts)[:, None] if shifts else None
        block = given if len(which) == len(norms) else torch.stack([given[i] for i in which])
        normed = Norm(like.kind, gain, shift, like.eps)(block)
        if len(which) == len(norms):
            ours = normed
        else:
            for place, rows in zip(which, normed, strict=True):
                ours[place] = rows
    theirs = theirs.double()
    error = (ours.double() - theirs).abs().amax((1, 2)) / theirs.abs().amax((1, 2)).clamp_min(1e-30)
    Largest.include_each([state.deviation[site] for site in sites], error[:, None])
