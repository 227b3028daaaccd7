"""Read vectors as words: rank the vocabulary against a vector.

A reader holds a model's words as vectors in the spaces where vectors are read: directions at a layer's norm, and the
rows of the unembedding. Scans of the vocabulary use float32, which is enough for ranks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import reading_norm
from armillary.anatomy.space import RAW, Space, Vectors
from armillary.anatomy.vocabulary import Vocabulary
from armillary.errors import WordError
from armillary.geometry.readout import top_tokens
from armillary.readouts.settings import Ranking
from armillary.results import Column
from armillary.results.table import Cell


@dataclass(frozen=True, eq=False)
class Lists:
    """The best words of each of many vectors [..., top], best first."""

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]

    def __getitem__(self, index: int | tuple[int, ...]) -> "Lists":
        return Lists(np.asarray(self.ids[index]), np.asarray(self.scores[index]))

    def shaped(self, *shape: int) -> "Lists":
        return Lists(self.ids.reshape(*shape, -1), self.scores.reshape(*shape, -1))


@dataclass(frozen=True, eq=False)
class Reader:
    """A model's words, and how many of them to list."""

    anatomy: Anatomy
    vocabulary: Vocabulary
    top: int = 5
    ranking: Ranking = "dot"
    _directions: dict[object, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, anatomy: Anatomy, top: int = 5, ranking: Ranking = "dot") -> "Reader":
        reader = cls(anatomy, Vocabulary.of(anatomy), top, ranking)
        if not reader.vocabulary.shown.any():
            raise WordError(
                f"no token of {anatomy.name} can be shown (all are special, blank or broken bytes), so nothing can be "
                "read in words; singular values and the atlas do not need words."
            )
        return reader

    @cached_property
    def allowed(self) -> Tensor:
        return torch.from_numpy(self.vocabulary.shown).to(self.anatomy.device)

    def directions(self, layer: int) -> Vectors:
        """Every word as a layer's heads see it when it stands alone, in float32."""
        site, norm = reading_norm(self.anatomy, layer)
        # Directions depend only on the kind of norm and its ε, so layers share them.
        key = None if norm is None else (norm.kind, norm.eps)
        if key not in self._directions:
            self._directions[key] = self.vocabulary.directions(layer, dtype=torch.float32).values
        return Vectors(self._directions[key], RAW if norm is None else Space("direction", site))

    @cached_property
    def outputs(self) -> Vectors:
        """The vectors that the stream is compared with, final norm folded in, in float32."""
        return self.vocabulary.outputs(dtype=torch.float32)

    @cached_property
    def unembedding(self) -> tuple[Tensor, Tensor | None]:
        """Rows that a final state is compared with, and their bias; without an unembedding, the embedding."""
        a = self.anatomy
        if a.W_U is None:
            return a.W_E.float(), None
        return a.W_U.T.float(), None if a.b_U is None else a.b_U.float()

    def read(self, vectors: Vectors, words: Vectors) -> Lists:
        """The best words of each vector [n, d]."""
        return self.best(vectors.values, words.of(vectors.space, "a read-out"))

    def best(self, vectors: Tensor, words: Tensor, bias: Tensor | None = None) -> Lists:
        """The same for plain tensors in one common space; a bias counts in products, not in cosines."""
        cosine = self.ranking == "cosine"
        if bias is not None and not cosine:
            vectors = torch.cat((vectors, torch.ones_like(vectors[:, :1])), 1)
            words = torch.cat((words, bias[:, None].to(words)), 1)
        tokens = top_tokens(vectors, words, self.top, allowed=self.allowed, cosine=cosine)
        return Lists(tokens.ids.cpu().numpy(), tokens.scores.double().cpu().numpy())

    def ranked(self, start: Mapping[str, Cell], **sides: Lists) -> Iterator[dict[str, Cell]]:
        """One row per rank: `start`, and every side's word at that rank."""
        for rank in range(next(iter(sides.values())).ids.shape[-1]):
            row: dict[str, Cell] = {**start, "rank": rank + 1}
            for side, lists in sides.items():
                number = int(lists.ids[rank])
                row |= {f"{side}_word": self.vocabulary.texts[number], f"{side}_id": number}
                row[f"{side}_score"] = float(lists.scores[rank])
            yield row


RANK = Column("rank", "rank in the list, 1 is best")


def side_columns(side: str, meaning: str, score: str) -> tuple[Column, ...]:
    """The three columns of one list of words."""
    return (
        Column(f"{side}_word", meaning),
        Column(f"{side}_id", "its number in the vocabulary"),
        Column(f"{side}_score", score),
    )
