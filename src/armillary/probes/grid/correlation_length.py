"""Over how many tokens do states of the stream agree, and in how many directions do they spread?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.geometry.spectrum import eigenvalues, entropy_rank, participation_ratio
from armillary.probes.machinery.evidence import Floats, Ints

BATCH = 512
DISTANCE = 32


@dataclass(frozen=True, eq=False)
class Reach:
    """Products of states by distance [group, state, distance], each document's mean over its tokens; and their spread."""

    products: Floats
    participation: Floats
    entropy: Floats


def correlation(products: Floats) -> Floats:
    """[..., state, distance] over the product at distance 0; 0 of states that do not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(products / products[..., :1]))


def shared(products: Floats) -> Floats:
    """[..., state]: the mean correlation over the farthest quarter of distances, which all of a document shares."""
    curve = correlation(products)
    return np.asarray(curve[..., _far(curve.shape[-1] - 1) :].mean(-1))


def length(products: Floats) -> Floats:
    """The integrated correlation length [..., state] in tokens: ½ + Σ C(Δ) over the nearer distances, C less what all of a
    document shares and over what is left of the variance; ξ of e^(−Δ/ξ) where ξ is large.

    Without that a length would say what documents are about: the sum of C over all pairs of a document is the same
    however its tokens are shuffled.

    >>> decay = 0.9 ** np.arange(200.0)
    >>> round(float(length(decay[None])[0]), 1), round(float(-1 / np.log(0.9)), 1)
    (9.5, 9.5)
    >>> round(float(length(0.5 + 0.5 * decay[None])[0]), 1)
    9.5
    """
    curve, common = correlation(products), shared(products)[..., None]
    near = curve[..., 1 : _far(curve.shape[-1] - 1)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(0.5 + np.nan_to_num((near - common) / (1 - common)).sum(-1))


def _far(distances: int) -> int:
    """From which distance on the farthest quarter lies."""
    return 1 + distances - max(1, distances // 4)


def states(
    anatomy: Anatomy, ids: Ints, sites: Sequence[str], first: int, tick: Callable[[int], None] = lambda tokens: None
) -> Mapping[str, Tensor]:
    """Directions [text, t, d] at these sites from position `first` on, less the mean of all texts at the same position: what
    only depends on the position is no correlation."""
    norm = anatomy.blocks[0].ln1
    found: dict[str, list[Tensor]] = {site: [] for site in sites}
    step = max(1, BATCH // ids.shape[1])
    for start in range(0, len(ids), step):
        rows = ids[start : start + step]
        watchers = {site: _keep(norm, first, found[site]) for site in sites}
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, torch.as_tensor(rows))
        tick(rows.size)
    joined = {site: torch.cat(parts) for site, parts in found.items()}
    return {site: z - z.mean(0) for site, z in joined.items()}


def _keep(norm: Norm, first: int, found: list[Tensor]) -> Watcher:
    def watch(given: Tensor | None, value: Tensor) -> None:
        found.append(norm.direction(value)[:, first:].float().cpu())

    return watch


def reach(found: Mapping[str, Tensor], documents: Ints, groups: int) -> Reach:
    """Sums by document group of every state's products, and the spread of each state."""
    count, tokens = next(iter(found.values())).shape[:2]
    furthest = min(DISTANCE, tokens // 2)
    products = np.zeros((groups, len(found), 1 + furthest))
    spread = []
    for at, z in enumerate(found.values()):
        mine = np.zeros((count, 1 + furthest))
        for apart in range(1 + furthest):
            pairs = (z[:, : tokens - apart] * z[:, apart:]).sum(-1, dtype=torch.float64)
            mine[:, apart] = pairs.mean(1).numpy()
        np.add.at(products[:, at], documents % groups, mine)
        rows = z.reshape(-1, z.shape[-1]).double()
        values = eigenvalues(rows.mT @ rows / len(rows)).values
        flat = float(values.sum()) == 0.0
        spread.append((1.0, 1.0) if flat else (participation_ratio(values), entropy_rank(values)))
    return Reach(products, np.array(spread)[:, 0], np.array(spread)[:, 1])
