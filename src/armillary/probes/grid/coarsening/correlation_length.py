"""Over how many tokens are states of the stream correlated, and over how many directions do they spread?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.geometry.clouds.spectrum import eigenvalues, entropy_rank, participation_ratio
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, TWINS, Floats, Ints, cells, interval_cells, line, table
from armillary.results import Quantity, Table

BATCH = 512
DISTANCE = 32
# Texts whose products are taken at once.
TEXTS = 32


@dataclass(frozen=True, eq=False)
class StateCorrelations:
    """Products of states by distance [group, state, distance], each document's mean over its tokens; and their
    spread over directions [state]."""

    products: Floats
    participation: Floats
    entropy_rank: Floats


def correlation(products: Floats) -> Floats:
    """[..., state, distance] over the product at distance 0; 0 of states that do not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(products / products[..., :1]))


def shared(products: Floats) -> Floats:
    """[..., state]: the mean correlation over the farthest quarter of distances, which the whole document shares."""
    curve = correlation(products)
    return np.asarray(curve[..., _far(curve.shape[-1] - 1) :].mean(-1))


def length(products: Floats) -> Floats:
    """The integrated correlation length [..., state] in tokens: ½ + Σ (C(Δ) − P)/(1 − P) over the nearer distances,
    where P is what the whole document shares. It equals ξ of e^(−Δ/ξ) where ξ is large.

    With P included the length would measure what documents are about: the sum of C over all pairs of a document is the
    same in any order of its tokens.

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
    """The distance at which the farthest quarter begins."""
    return 1 + distances - max(1, distances // 4)


def floored(products: Floats) -> Floats:
    """Lengths that may stand below a fraction. A sum of correlations may be negative by chance; a length below a
    quarter of a token, half of that of states without any correlation, counts as a quarter."""
    return np.maximum(length(products), 0.25)


def growth(products: Floats) -> Floats:
    """The last state's length over the first's."""
    lengths = floored(products)
    return np.asarray(lengths[..., -1] / lengths[..., 0])


def added(products: Floats) -> Floats:
    """Tokens that depth adds to the length. A sliding mean adds about as many to text as to the same words shuffled, if
    words themselves are nearly uncorrelated; its factor is larger on shuffled words, which start from ½."""
    lengths = length(products)
    return np.asarray(lengths[..., -1] - lengths[..., 0])


def centred_states(
    anatomy: Anatomy, ids: Ints, sites: Sequence[str], first: int, tick: Callable[[int], None] = lambda tokens: None
) -> Mapping[str, Tensor]:
    """Directions [text, t, d] at these sites from position `first` on, minus the mean of all texts at the same
    position: what depends on the position alone is not a correlation."""
    norm = next(iter(anatomy.norms.values()))
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    step = max(1, BATCH // ids.shape[1])
    for start in range(0, len(ids), step):
        rows = ids[start : start + step]
        watchers = {site: _watcher(norm, first, parts[site]) for site in sites}
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, torch.as_tensor(rows))
        tick(rows.size)
    joined = {site: torch.cat(rows) for site, rows in parts.items()}
    return {site: z - z.mean(0) for site, z in joined.items()}


def _watcher(norm: Norm, first: int, parts: list[Tensor]) -> Watcher:
    def watch(given: Tensor | None, value: Tensor) -> None:
        parts.append(norm.direction(value)[:, first:].float().cpu())

    return watch


def products_of(z: Tensor, documents: Ints, groups: int) -> Floats:
    """[group, distance]: the products of a state [text, t, d] with itself, each document's mean over its tokens."""
    count, tokens = z.shape[:2]
    farthest = min(DISTANCE, tokens // 2)
    rows = np.zeros((count, 1 + farthest))
    for start in range(0, count, TEXTS):
        # One matrix product has the pairs of all distances.
        some = z[start : start + TEXTS].double()
        pairs = some @ some.mT
        for distance in range(1 + farthest):
            rows[start : start + TEXTS, distance] = pairs.diagonal(distance, 1, 2).mean(-1).numpy()
    sums = np.zeros((groups, 1 + farthest))
    np.add.at(sums, documents % groups, rows)
    return sums


def state_correlations(states: Mapping[str, Tensor], documents: Ints, groups: int) -> StateCorrelations:
    """Sums of every state's products per document group, and the spread of each state."""
    products = np.stack([products_of(z, documents, groups) for z in states.values()], 1)
    spread = []
    for z in states.values():
        flat = z.reshape(-1, z.shape[-1]).double()
        values = eigenvalues(flat.mT @ flat / len(flat))
        constant = float(values.sum()) == 0.0
        spread.append((1.0, 1.0) if constant else (participation_ratio(values), entropy_rank(values)))
    return StateCorrelations(products, *np.array(spread).T)


def averaged(measured: Sequence[StateCorrelations]) -> StateCorrelations:
    """The mean over several shuffles of one text."""
    return StateCorrelations(
        np.mean([each.products for each in measured], axis=0),
        np.mean([each.participation for each in measured], axis=0),
        np.mean([each.entropy_rank for each in measured], axis=0),
    )


@dataclass(frozen=True, eq=False)
class CorrelationResult:
    """arm → correlations of the states at these sites, on so many texts of so many tokens."""

    sites: tuple[str, ...]
    arms: Mapping[str, StateCorrelations]
    texts: int
    tokens: int

    def _mean(self, arm: str, number: Callable[[StateCorrelations], Floats]) -> Floats:
        """[state] of an arm; RANDOM stands for the mean over all untrained twins."""
        arms = [twin for twin in TWINS if twin in self.arms] if arm == RANDOM else [arm]
        return np.mean([number(self.arms[each]) for each in arms], axis=0)

    def lengths(self, arm: str) -> Floats:
        """[state]."""
        return self._mean(arm, lambda states: length(states.products.sum(0)))

    def shared(self, arm: str) -> Floats:
        """[state]."""
        return self._mean(arm, lambda states: shared(states.products.sum(0)))

    def participation(self, arm: str) -> Floats:
        """[state]."""
        return self._mean(arm, lambda states: states.participation)


def correlation_table(result: CorrelationResult, lengths: Floats) -> Table:
    model = result.arms[MODEL]
    neighbours = correlation(model.products.sum(0))[:, 1]
    return table(
        cells("state", "state of the stream", result.sites),
        interval_cells(
            "length", "integrated correlation length beyond what the whole document shares", lengths, "tokens", ends=""
        ),
        cells("neighbour", "C(1): correlation with the next token's state", neighbours),
        cells("shared", "mean C over the farthest quarter of distances: shared by the document", result.shared(MODEL)),
        cells("random_shared", "the same at random initialisation, mean over twins", result.shared(RANDOM)),
        cells("random_length", "length at random initialisation, mean over twins", result.lengths(RANDOM), "tokens"),
        cells("shuffled_length", "the length on shuffled text", result.lengths(SHUFFLED), "tokens"),
        cells("participation", "(Σλ)²/Σλ² of the states' covariance", model.participation, "directions"),
        cells("entropy_rank", "exp of the entropy of its eigenvalues' shares", model.entropy_rank, "directions"),
    )


def correlation_lines(result: CorrelationResult, lengths: Floats) -> tuple[Quantity, ...]:
    # Full site names are too long for the rows of a map.
    states = ["input", *(site.split(".")[0] for site in result.sites[1:])]
    curves = correlation(result.arms[MODEL].products.sum(0))[:, 1:]
    distances = [str(distance) for distance in range(1, curves.shape[1] + 1)]
    return (
        line(
            "correlation length",
            "of directions of the stream, beyond what position and the whole document explain",
            "tokens",
            "state",
            states,
            lengths,
            {arm: result.lengths(arm) for arm in (RANDOM, SHUFFLED)},
        ),
        Quantity(
            "correlation by distance",
            "C(Δ) of two states of a document, Δ tokens apart",
            "correlation",
            ("state", "distance"),
            {"state": states, "distance": distances},
            curves,
        ),
        line(
            "directions over which states spread",
            "participation ratio of the covariance, position means removed",
            "directions",
            "state",
            states,
            result.participation(MODEL),
            {arm: result.participation(arm) for arm in (RANDOM, SHUFFLED)},
        ),
    )
