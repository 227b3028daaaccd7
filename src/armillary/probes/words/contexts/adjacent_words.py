"""How much of what context changes in a word's state can be predicted from the words beside it?

Every word's states are taken about their mean, so that only what differs between its contexts is left. A ridge
regression predicts that from the embeddings of the neighbouring words; each half of the documents by a fit on the other
half. Means are taken within a half: a mean over both would let one half tell the other's deviations.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.flow.tokens import Corpus
from armillary.probes.machinery import Floats, Ints
from armillary.probes.words.contexts.self_similarity import SampledStates

# A causal model reads two words back; an encoder also one ahead.
BACK, AHEAD = 2, 1
# Shares of the mean squared length of a row of features.
PENALTIES = (0.3, 3.0, 30.0)


@dataclass(frozen=True, eq=False)
class Predicted:
    """Squares of deviations from the word's mean state, and what neighbours predict of them."""

    sums: Floats
    """[group, site, (neighbours, neighbours of another token of this word), (all, predicted)]."""
    tokens: int


def predicted(anatomy: Anatomy, states: SampledStates, text: Corpus, seed: int, others: bool = False) -> Predicted:
    """Of the sampled tokens whose word occurs at least twice in their half of the documents; with `others` also from
    the neighbours of another occurrence."""
    sums = np.zeros((text.groups, states.z.shape[1], 2, 2))
    places = [tuple(place) for place in states.places.tolist()]
    beside = _neighbours(text, anatomy.causal, places)
    rows = np.array([i for i, place in enumerate(places) if place in beside], dtype=np.int64)
    document, position, token = states.places[rows].T[:3] if len(rows) else np.zeros((3, 0), dtype=np.int64)
    _, cell, counts = np.unique(2 * token + document % 2, return_inverse=True, return_counts=True)
    repeated = counts[cell] > 1
    if len(set((document[repeated] % 2).tolist())) < 2:
        return Predicted(sums, 0)
    rows, cell, fold, group = rows[repeated], cell[repeated], document[repeated] % 2, document[repeated] % text.groups
    words = torch.tensor([beside[places[row]] for row in rows])
    embedding = torch.nn.functional.normalize(
        anatomy.W_E.detach()[words.clamp_min(0).to(anatomy.device)].float(), dim=-1
    )
    features = (embedding.cpu() * (words >= 0)[..., None]).flatten(1).double().numpy()
    z = states.z[torch.as_tensor(rows)].flatten(1).double().numpy()
    place = _within(np.log(position[repeated] + 1.0)[:, None], cell)
    deviation, context = (_without(_within(values, cell), place, fold) for values in (z, features))
    targets = deviation.reshape(len(rows), states.z.shape[1], -1)
    trials = [context, context[_others(cell, np.random.default_rng([seed, 73]))]]
    for trial, values in enumerate(trials if others else trials[:1]):
        np.add.at(sums[:, :, trial], group, explained(values, targets, cell, fold))
    return Predicted(sums, len(rows))


def explained(features: Floats, rows: Floats, cell: Ints, fold: Ints) -> Floats:
    """[row, site, (all, predicted)]: squares of rows [row, site, d], and of them what features predict by a fit on the
    other half."""
    whole = np.square(rows).sum(-1)
    sums = np.stack([whole, np.zeros_like(whole)], -1)
    kernel = features @ features.T
    for half in (0, 1):
        mine = fold == half
        weights = _ridge(kernel[np.ix_(~mine, ~mine)], rows[~mine], cell[~mine])
        missed = rows[mine] - np.tensordot(kernel[np.ix_(mine, ~mine)], weights, 1)
        sums[mine, :, 1] = whole[mine] - np.square(missed).sum(-1)
    return sums


def _ridge(kernel: Floats, rows: Floats, cell: Ints) -> Floats:
    """Weights [row, site, d] of the fitted rows, at each site with the penalty that predicts each cell best from the
    others. (Rows of one cell add up to zero: a single row that is left out would be told by the rest of its cell.)"""
    scale = max(float(np.trace(kernel)) / len(kernel), 1e-300)
    members, flat = _by_size(cell), rows.reshape(len(rows), -1)
    fits, missed = [], []
    for penalty in PENALTIES:
        inverse = np.linalg.inv(kernel + penalty * scale * np.eye(len(kernel)))
        weights = inverse @ flat
        left_out = [np.linalg.solve(inverse[m[:, :, None], m[:, None]], weights[m]) for m in members]
        squares = sum(np.square(errors).sum((0, 1)) for errors in left_out)
        fits.append(weights.reshape(rows.shape))
        missed.append(squares.reshape(rows.shape[1:]).sum(1))
    best = np.argmin(missed, axis=0)
    return np.stack([fits[penalty][:, site] for site, penalty in enumerate(best)], 1)


def _by_size(cell: Ints) -> list[Ints]:
    """The rows of every cell, cells of one size together: [cell, row]."""
    members = [np.flatnonzero(cell == number) for number in np.unique(cell)]
    sizes = sorted({len(rows) for rows in members})
    return [np.stack([rows for rows in members if len(rows) == size]) for size in sizes]


def _neighbours(text: Corpus, causal: bool, places: list[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """Document, position, token and following token of sampled places → the words beside each; −1 where there is none.

    A document in several windows repeats its positions: places that cannot be told apart are left out.
    """
    steps = [*range(-BACK, 0), *([] if causal else range(1, AHEAD + 1))]
    wanted = defaultdict[int, set[tuple[int, ...]]](set)
    for place in places:
        wanted[place[0]].add(place)
    beside = dict[tuple[int, ...], list[int]]()
    twice = set[tuple[int, ...]]()
    for window in text.windows:
        ids = (*window.ids, -1)
        for place in wanted.get(window.document, ()):
            t = place[1]
            if t < len(window.ids) and (ids[t], ids[t + 1]) == place[2:]:
                if place in beside:
                    twice.add(place)
                beside[place] = [window.ids[t + step] if 0 <= t + step < len(window.ids) else -1 for step in steps]
    return {place: words for place, words in beside.items() if place not in twice}


def _within(values: Floats, cell: Ints) -> Floats:
    """Rows about the mean of their cell."""
    sums, counts = np.zeros((cell.max() + 1, values.shape[1])), np.bincount(cell)
    np.add.at(sums, cell, values)
    return np.asarray(values - (sums / np.maximum(counts, 1)[:, None])[cell])


def _without(values: Floats, place: Floats, fold: Ints) -> Floats:
    """Rows without what is linear in `place`, half by half."""
    rest = values.copy()
    for half in (0, 1):
        mine = fold == half
        power = float(np.square(place[mine]).sum())
        if power > 0:
            rest[mine] -= place[mine] * (place[mine].T @ values[mine]) / power
    return rest


def _others(cell: Ints, rng: np.random.Generator) -> Ints:
    """For every row another row of its cell."""
    order = np.arange(len(cell))
    for number in np.unique(cell):
        mixed = rng.permutation(np.flatnonzero(cell == number))
        order[mixed] = np.roll(mixed, 1)
    return order
