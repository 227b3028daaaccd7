"""How are values spread over fixed bins, with nothing outside them lost?"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


class Histogram:
    """Counts per bin [edge, next edge), the last bin closed; below, above and NaN counted apart."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges: Float[Tensor, " e"] = torch.tensor(list(edges), dtype=torch.float64)
        if len(self.edges) < 2 or not bool((self.edges.diff() > 0).all()):
            raise ValueError(f"edges must be two or more and increasing, got {list(edges)}")
        self.counts: Int[Tensor, " bins"] = torch.zeros(len(self.edges) - 1, dtype=torch.int64)
        self.below = 0
        self.above = 0
        self.nan = 0

    @classmethod
    def empty(cls, edges: Sequence[float]) -> "Histogram":
        return cls(edges)

    @classmethod
    def of(cls, values: Shaped[Tensor, "..."], edges: Sequence[float]) -> "Histogram":
        """The measure of one batch.

        >>> h = Histogram.of(torch.tensor([-1.0, 0.2, 0.7, 1.0, torch.nan]), edges=(0.0, 0.5, 1.0))
        >>> h.counts.tolist(), h.below, h.above, h.nan
        ([1, 2], 1, 0, 1)
        """
        histogram = cls(edges)
        histogram.include(values)
        return histogram

    def include(self, values: Shaped[Tensor, "..."]) -> None:
        """Add values of any shape."""
        flat = values.detach().reshape(-1).to(torch.float64)
        real = flat[~flat.isnan()]
        edges = self.edges.to(real.device)
        place = torch.bucketize(real, edges, right=True)
        # A value on the last edge belongs to the last bin, as in NumPy, not above it.
        place = place - (real == edges[-1]).to(place.dtype)
        counts = torch.bincount(place, minlength=len(edges) + 1).cpu()
        self.below += int(counts[0])
        self.above += int(counts[-1])
        self.counts += counts[1:-1]
        self.nan += len(flat) - len(real)

    def __add__(self, other: "Histogram") -> "Histogram":
        if not torch.equal(self.edges, other.edges):
            raise ValueError("cannot add histograms with different edges")
        both = Histogram(self.edges.tolist())
        both.counts = self.counts + other.counts
        both.below = self.below + other.below
        both.above = self.above + other.above
        both.nan = self.nan + other.nan
        return both

    @property
    def count(self) -> int:
        """All values but NaN."""
        return self.below + int(self.counts.sum()) + self.above

    def quantile(self, q: float) -> float:
        """Linear within its bin; ∓∞ where the quantile lies outside the edges.

        >>> Histogram.of(torch.arange(100) / 100, edges=(0.0, 0.5, 1.0)).quantile(0.25)
        0.25
        """
        if not 0 <= q <= 1 or self.count == 0:
            raise ValueError(f"a quantile needs q in [0, 1] and values; got q = {q} and {self.count} values")
        wanted = q * self.count - self.below
        if wanted < 0 or (wanted == 0 and self.below):
            return -math.inf
        reached = self.counts.cumsum(0)
        if wanted > int(reached[-1]):
            return math.inf
        # The first bin with something in it that reaches the wanted count.
        place = int(((reached >= wanted) & (self.counts > 0)).to(torch.int8).argmax())
        share = (wanted - int(reached[place] - self.counts[place])) / max(1, int(self.counts[place]))
        low, high = self.edges[place : place + 2].tolist()
        return float(low + share * (high - low))
