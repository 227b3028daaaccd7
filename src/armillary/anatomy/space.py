"""Vectors that carry their space.

The stream, the directions at one norm and the output of that norm all have d coordinates, and a product of two that do
not belong together has no meaning. Vectors therefore carry their space, and mixing spaces is an error.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from armillary.errors import SpaceError

Kind = Literal["raw", "direction", "normed", "vocabulary"]
_NAMES = {
    "raw": "the residual stream",
    "direction": "directions",
    "normed": "normed vectors",
    "vocabulary": "one number per token",
}


@dataclass(frozen=True)
class Space:
    """raw: the stream · direction: z of a norm · normed: y of a norm · vocabulary: one number per token.

    `site` names the norm; for `raw` it names a place before a norm that stands between a write and the stream.

    >>> str(Space("direction", "L3.ln1"))
    'directions at L3.ln1'
    """

    kind: Kind
    site: str = ""

    def __str__(self) -> str:
        return _NAMES[self.kind] + (f" at {self.site}" if self.site else "")


RAW, VOCABULARY = Space("raw"), Space("vocabulary")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Rows [..., n] of one space.

    >>> z, x = Vectors(torch.ones(2, 3), Space("direction", "L0.ln1")), Vectors(torch.ones(2, 3), RAW)
    >>> z.dot(z).shape
    torch.Size([2, 2])
    >>> z.dot(x)
    Traceback (most recent call last):
        ...
    armillary.errors.SpaceError: a product of directions at L0.ln1 with the residual stream is undefined: ...
    """

    values: Tensor
    space: Space

    def of(self, space: Space, what: str = "this") -> Tensor:
        """The numbers, if they live in the space that is asked for."""
        if self.space != space:
            raise SpaceError(
                f"{what} takes {space}, but was given {self.space}: map the vectors there first (a norm's direction, "
                "a head's matrix), or use the matrix for that space."
            )
        return self.values

    def dot(self, other: "Vectors") -> Tensor:
        """All inner products [..., a, b]."""
        return self.values @ self._same(other, "a product").mT

    def cosine(self, other: "Vectors") -> Tensor:
        """All cosines [..., a, b]; 0 with a zero vector."""
        a, b = self.values, self._same(other, "a cosine")
        return torch.nn.functional.normalize(a, dim=-1) @ torch.nn.functional.normalize(b, dim=-1).mT

    def __add__(self, other: "Vectors") -> "Vectors":
        return replace(self, values=self.values + self._same(other, "a sum"))

    def __sub__(self, other: "Vectors") -> "Vectors":
        return replace(self, values=self.values - self._same(other, "a difference"))

    def __getitem__(self, rows: Any) -> "Vectors":
        return replace(self, values=self.values[rows])

    def __len__(self) -> int:
        return len(self.values)

    def _same(self, other: "Vectors", what: str) -> Tensor:
        if self.space != other.space:
            raise SpaceError(
                f"{what} of {self.space} with {other.space} is undefined: map one of them to the other's space first."
            )
        return other.values
