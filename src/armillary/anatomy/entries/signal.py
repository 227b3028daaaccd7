"""Images and sound as tokens: a patch or a frame is a row of a table, and its number there is its token id.

So whatever reads token ids (windows, shuffles, samples) reads images and sound as well. The first ids are the model's
own tokens (class token, registers), which stand before the patches and have no pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from armillary.anatomy.anatomy import Anatomy

Sense = Literal["images", "sound"]
# How many random rows a table has until a corpus brings its own: enough for the laws.
PLACEHOLDERS = 64


@dataclass(frozen=True, eq=False)
class Signal:
    """How a model takes images or sound, and the rows that its token ids name."""

    sense: Sense
    argument: str
    """The name under which the model takes the whole input."""
    channels: int
    grid: tuple[int, int]
    """Rows and columns of patches; (1, frames) of sound."""
    patch: tuple[int, int]
    """Height and width of one patch; (1, samples or spectral frames) of sound."""
    own: Tensor
    """[prefix, d]: the model's own tokens before the patches, as they start the stream."""
    embed: Callable[[Tensor], Tensor]
    """From rows [n, channels · height · width] to their vectors [n, d], each row alone."""
    table: Tensor
    joined: Callable[[Tensor], Tensor] | None = None
    """From a whole input to the vectors [b, t, d] that start the stream, where neighbouring rows reach into them."""

    @property
    def prefix(self) -> int:
        return len(self.own)

    @property
    def tokens(self) -> int:
        """How many tokens one image or clip has: always as many."""
        return self.prefix + self.grid[0] * self.grid[1]

    @property
    def width(self) -> int:
        """How many numbers one row has."""
        return self.channels * self.patch[0] * self.patch[1]

    def rows(self, whole: Tensor) -> Tensor:
        """Inputs [b, c, H, W] as rows [b, n, c · h · w], in reading order."""
        (gh, gw), (h, w) = self.grid, self.patch
        cut = whole.reshape(len(whole), self.channels, gh, h, gw, w)
        return cut.permute(0, 2, 4, 1, 3, 5).reshape(len(whole), gh * gw, self.width)

    def whole(self, ids: Tensor) -> Tensor:
        """The input [b, c, H, W], or [b, c, W] of sound, that ids [b, t] name."""
        if ids.shape[1] != self.tokens:
            raise ValueError(f"expected {self.tokens} tokens for one of {self.sense}, got {ids.shape[1]}.")
        (gh, gw), (h, w) = self.grid, self.patch
        rows = self.table[ids[:, self.prefix :] - self.prefix]
        cut = rows.reshape(len(ids), gh, gw, self.channels, h, w).permute(0, 3, 1, 4, 2, 5)
        whole = cut.reshape(len(ids), self.channels, gh * h, gw * w)
        return whole[:, :, 0] if self.sense == "sound" else whole

    def vectors(self) -> Tensor:
        """[prefix + n, d]: the vector of every token id, each row alone."""
        return torch.cat((self.own, self.embed(self.table)))

    def ids(self, rows: Tensor) -> Tensor:
        """Token ids of whole inputs, from numbers of table rows [b, n]."""
        own = torch.arange(self.prefix, device=rows.device).expand(len(rows), -1)
        return torch.cat((own, rows + self.prefix), 1)


def placeholders(width: int, like: Tensor) -> Tensor:
    """Random rows, the same everywhere."""
    rows = torch.randn(PLACEHOLDERS, width, generator=torch.Generator().manual_seed(0))
    return rows.to(like)


def with_table(anatomy: "Anatomy", table: Tensor) -> "Anatomy":
    """The model with the patches or frames of a corpus in place of its table."""
    if anatomy.signal is None:
        return anatomy
    signal = replace(anatomy.signal, table=table.to(anatomy.signal.table))
    vectors = signal.vectors()
    return replace(anatomy, signal=signal, W_E=vectors, vocabulary=len(vectors))


def random_ids(anatomy: "Anatomy", rows: int, length: int, seed: int) -> Tensor:
    """Random tokens [rows, length] that the model can read; whole images or clips where it reads those."""
    generator = torch.Generator().manual_seed(seed)
    if anatomy.signal is None:
        return torch.randint(3, max(anatomy.vocabulary, 4), (rows, min(length, anatomy.context)), generator=generator)
    signal = anatomy.signal
    count = signal.tokens - signal.prefix
    return signal.ids(torch.randint(len(signal.table), (rows, count), generator=generator))
