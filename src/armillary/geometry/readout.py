"""Which words lie farthest along a direction?

One matrix product against the vocabulary, in chunks: the scores of all directions with all words are never held at
once, only the best so far.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROWS, WORDS = 1024, 4096  # 16 MB of scores at a time


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
    """The `top` words with the largest product with each direction, or the largest cosine.

    Where fewer than `top` words are allowed the answer is as wide as there are. A word (or direction) of length zero
    has the cosine 0 with everything.

    >>> words = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    >>> top_tokens(torch.tensor([[1.0, 0.0]]), words, 2).ids
    tensor([[2, 0]])
    >>> top_tokens(torch.tensor([[1.0, 0.0]]), words, 2, cosine=True).ids
    tensor([[0, 2]])
    """
    numbers = torch.arange(len(words), device=words.device) if allowed is None else allowed.nonzero()[:, 0]
    if top < 1 or not len(numbers):
        raise ValueError(f"asked for the top {top} of {len(numbers)} allowed words; both must be at least 1")
    queries, keys = directions.float(), words[numbers].float()
    if cosine:
        queries, keys = torch.nn.functional.normalize(queries), torch.nn.functional.normalize(keys)
    top = min(top, len(numbers))
    ids, scores = [], []
    for rows in torch.split(queries, ROWS):
        best = rows.new_empty(len(rows), 0)
        held = numbers.new_empty(len(rows), 0)
        for start in range(0, len(keys), WORDS):
            block = rows @ keys[start : start + WORDS].mT
            names = numbers[start : start + WORDS].expand(len(rows), -1)
            best, held = _keep(torch.cat((best, block), 1), torch.cat((held, names), 1), top)
        ids.append(held)
        scores.append(best)
    empty = queries.new_empty(0, top)
    return Readout(torch.cat([*ids, numbers.new_empty(0, top)]), torch.cat([*scores, empty]))


def _keep(scores: Tensor, names: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The best `top` columns of every row, ties by id; names rise from left to right where scores tie."""
    if scores.shape[1] > top:
        taken = scores.topk(top + 1, dim=1)
        columns = taken.indices[:, :top]
        # topk takes any of the equal ones; only where the next value is equal too can that be the wrong one.
        tied = taken.values[:, top - 1] == taken.values[:, top]
        if tied.any():
            columns[tied] = scores[tied].sort(dim=1, descending=True, stable=True).indices[:, :top]
        columns = columns.sort(dim=1).values
        scores, names = scores.gather(1, columns), names.gather(1, columns)
    order = scores.sort(dim=1, descending=True, stable=True).indices
    return scores.gather(1, order), names.gather(1, order)
