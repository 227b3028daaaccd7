"""Which words lie farthest along a direction?

One matrix product against the vocabulary, some directions at a time: the scores of all directions with all words are
never held at once. The best are found without sorting: words are split into groups, the largest score of each group
shows which groups can contain a winner, and only those are searched.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from armillary.geometry.multiply import times

# Scores held at a time: 64 MB of float32. Enough directions for the product to run at full speed, at 250 000 words too.
SCORES = 1 << 24
# Words in a group. Looking at the largest of each costs one pass over the scores; 16 leave few groups to rank and few
# words to look into.
_GROUP = 16


@dataclass(frozen=True, eq=False)
class Readout:
    """The best words of every direction, best first; equal scores in the order of their ids."""

    ids: Int[Tensor, "n top"]
    scores: Float[Tensor, "n top"]


def top_tokens(
    directions: Float[Tensor, "n d"],
    words: Float[Tensor, "v d"],
    top: int,
    *,
    allowed: Bool[Tensor, " v"] | None = None,
    cosine: bool = False,
) -> Readout:
    """The `top` words with the largest product with each direction, or the largest cosine; products in float32.

    Where fewer than `top` words are allowed, the answer has as many columns as there are. A word or direction of
    length zero has the cosine 0 with everything.

    >>> words = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    >>> top_tokens(torch.tensor([[1.0, 0.0]]), words, 2).ids
    tensor([[2, 0]])
    >>> top_tokens(torch.tensor([[1.0, 0.0]]), words, 2, cosine=True).ids
    tensor([[0, 2]])
    """
    return _read(directions, words, top, allowed, cosine, (1,))[0]


def both_ends(
    directions: Float[Tensor, "n d"],
    words: Float[Tensor, "v d"],
    top: int,
    *,
    allowed: Bool[Tensor, " v"] | None = None,
    cosine: bool = False,
) -> tuple[Readout, Readout]:
    """The words farthest along each direction and those farthest against it (lowest score first), from one product.

    >>> along, against = both_ends(torch.tensor([[1.0]]), torch.tensor([[2.0], [-3.0], [1.0]]), 1)
    >>> along.ids, against.ids, against.scores
    (tensor([[0]]), tensor([[1]]), tensor([[-3.]]))
    """
    along, against = _read(directions, words, top, allowed, cosine, (1, -1))
    return along, against


def farther_end(directions: Float[Tensor, "n d"], words: Float[Tensor, "v d"], top: int) -> Readout:
    """The words at that end of each direction at which they reach farther from their mean: the end of positive
    Σ (score − mean score)³. Scores are along that end.

    >>> farther_end(torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0], [0.0], [-9.0]]), 1).ids.tolist()
    [[2], [2]]
    """
    queries, keys = _prepared(directions, "a direction", False), _prepared(words, "a word", False)
    top, step = min(top, len(words)), max(1, SCORES // len(keys))
    batches = []
    for rows in torch.split(queries, step):
        scores = times(rows, keys)
        third = (scores - scores.mean(1, keepdim=True)).pow_(3).sum(1)
        scores *= torch.where(third < 0, -1.0, 1.0)[:, None]
        batches.append(_best(scores, top, 1))
    ids, best = (torch.cat(column) for column in zip(*batches, strict=True))
    return Readout(ids, best)


def _read(
    directions: Tensor, words: Tensor, top: int, allowed: Tensor | None, cosine: bool, ends: tuple[int, ...]
) -> list[Readout]:
    count = len(words) if allowed is None else int(allowed.sum())
    if top < 1 or count < 1:
        raise ValueError(f"asked for the top {top} of {count} allowed words; ask for at least 1 and allow at least 1")
    numbers = forbidden = None
    if allowed is not None and count < len(words):
        # Leaving words out copies the others; where few are left out it is cheaper to bar them from winning.
        if count < len(words) // 2:
            numbers, words = allowed.nonzero()[:, 0], words[allowed]
        else:
            forbidden = (~allowed).nonzero()[:, 0]
    queries, keys = _prepared(directions, "a direction", cosine), _prepared(words, "a word", cosine)
    top, step = min(top, count), max(1, SCORES // len(keys))
    parts_by_end: list[list[tuple[Tensor, Tensor]]] = [[] for _ in ends]
    for rows in torch.split(queries, step):
        scores = times(rows, keys)
        for end, parts in zip(ends, parts_by_end, strict=True):
            if forbidden is not None:
                scores.index_fill_(1, forbidden, -end * torch.inf)
            parts.append(_best(scores, top, end))
    readouts = []
    for parts in parts_by_end:
        ids, best = (torch.cat(column) for column in zip(*parts, strict=True))
        readouts.append(Readout(ids if numbers is None else numbers[ids], best))
    return readouts


def _prepared(vectors: Tensor, what: str, cosine: bool) -> Tensor:
    vectors = vectors.detach().float()
    # A sum meets every entry and is the cheapest pass there is; it may also overflow, hence the second look.
    if not vectors.sum().isfinite() and not (finite := vectors.isfinite().all(1)).all():
        raise ValueError(f"{what} contains NaN or infinity (row {int((~finite).nonzero()[0, 0])}): it has no rank")
    if not cosine:
        return vectors
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.where(lengths > 0, 1.0)


def _best(scores: Tensor, top: int, end: int) -> tuple[Tensor, Tensor]:
    """Columns and scores of the best of every row: the largest (end = 1) or the smallest (end = −1)."""
    groups = scores.shape[1] // _GROUP
    grouped = scores[:, : groups * _GROUP].view(len(scores), _GROUP, groups)  # word w is in group w % groups
    if groups <= top:
        columns = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        candidates, beyond = end * scores, None
    else:
        champions = grouped.amax(1) if end == 1 else -grouped.amin(1)
        leading = champions.topk(top + 1, dim=1)
        # The best `top` words lie in the `top` groups with the best champions, or in the rest, which is in no group.
        members = torch.arange(0, groups * _GROUP, groups, device=scores.device)
        columns = (leading.indices[:, :top, None] + members).flatten(1)
        rest = torch.arange(groups * _GROUP, scores.shape[1], device=scores.device).expand(len(scores), -1)
        columns = torch.cat((columns, rest), 1)
        candidates, beyond = end * scores.gather(1, columns), leading.values[:, top]
    if candidates.shape[1] > top:
        chosen = candidates.topk(top + 1, dim=1)
        last, runner_up = chosen.values[:, top - 1], chosen.values[:, top]
        columns = columns.gather(1, chosen.indices[:, :top])
        # topk takes any of those that tie for the last place; the lowest id has to be looked for.
        tied = last == (runner_up if beyond is None else torch.maximum(runner_up, beyond))
        if tied.any():
            columns[tied] = (end * scores[tied]).sort(dim=1, descending=True, stable=True).indices[:, :top]
    columns = columns.sort(dim=1).values
    order = (end * scores.gather(1, columns)).sort(dim=1, descending=True, stable=True).indices
    columns = columns.gather(1, order)
    return columns, scores.gather(1, columns)
