"""What are the quantiles of a stream whose range nobody knows, to a fixed relative accuracy?

Buckets whose bounds are powers of γ = (1 + a)/(1 − a), as in DDSketch (Masson, Rim, Lee 2019). Merging adds
counts, so it is exactly commutative and associative; sketches that sample or rank (GK, KLL, t-digest) are
not.
"""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor

# The normal range of float32. Smaller sizes count as zero; larger float64 ones as infinite.
_LEAST, _GREATEST = 2.0**-126, 2.0**128


class QuantileSketch:
    """Counts of values by sign and size: negative, zero, positive, both infinities, and NaN."""

    def __init__(self, accuracy: float = 0.01) -> None:
        if not 1e-4 <= accuracy < 1:
            raise ValueError(f"accuracy is a relative error in [0.0001, 1), got {accuracy}")
        self.accuracy = accuracy
        growth = math.log((1 + accuracy) / (1 - accuracy))
        buckets = math.ceil(math.log(_GREATEST / _LEAST) / growth)
        # Values are placed by comparison with these bounds: a logarithm would differ in its last bit
        # between devices and between vector lanes and leftovers, and so make the counts depend on batching.
        self._bounds = _LEAST * torch.exp(growth * torch.arange(buckets + 1, dtype=torch.float64))
        self.zero = 0
        self.nan = 0
        # Per sign: sizes by bucket, then infinity.
        self.positive = torch.zeros(buckets + 1, dtype=torch.int64)
        self.negative = torch.zeros(buckets + 1, dtype=torch.int64)

    @classmethod
    def empty(cls, accuracy: float = 0.01) -> "QuantileSketch":
        return cls(accuracy)

    @classmethod
    def of(cls, values: Shaped[Tensor, "..."], accuracy: float = 0.01) -> "QuantileSketch":
        """The measure of one batch.

        >>> sketch = QuantileSketch.of(torch.arange(-50, 1001))
        >>> abs(sketch.quantile(0.5) / 475 - 1) < 0.01
        True
        """
        sketch = cls(accuracy)
        sketch.include(values)
        return sketch

    def include(self, values: Shaped[Tensor, "..."]) -> None:
        """Add values of any shape."""
        flat = values.detach().reshape(-1).to(torch.float64)
        self.nan += int(flat.isnan().sum())
        self.positive += self._sizes(flat[flat >= _LEAST])
        self.negative += self._sizes(-flat[flat <= -_LEAST])
        self.zero += int((flat.abs() < _LEAST).sum())

    def __add__(self, other: "QuantileSketch") -> "QuantileSketch":
        if self.accuracy != other.accuracy:
            raise ValueError(f"cannot add sketches of accuracy {self.accuracy} and {other.accuracy}")
        both = QuantileSketch(self.accuracy)
        both.zero = self.zero + other.zero
        both.nan = self.nan + other.nan
        both.positive = self.positive + other.positive
        both.negative = self.negative + other.negative
        return both

    @property
    def count(self) -> int:
        """All values but NaN."""
        return self.zero + int(self.positive.sum()) + int(self.negative.sum())

    def quantile(self, q: float) -> float:
        """The value of rank ⌊q(n − 1)⌋, to the sketch's relative accuracy."""
        if not 0 <= q <= 1 or self.count == 0:
            raise ValueError(f"a quantile needs q in [0, 1] and values; got q = {q} and {self.count} values")
        counts = torch.cat([self.negative.flip(0), torch.tensor([self.zero]), self.positive])
        # The centre of a bucket in relative terms: at most `accuracy` from either of its bounds.
        centre = torch.cat([self._bounds[:-1] * (1 + self.accuracy), torch.tensor([torch.inf], dtype=torch.float64)])
        values = torch.cat([-centre.flip(0), torch.zeros(1, dtype=torch.float64), centre])
        rank = math.floor(q * (self.count - 1))
        return float(values[int(torch.searchsorted(counts.cumsum(0), rank, right=True))])

    def _sizes(self, sizes: Tensor) -> Tensor:
        place = torch.bucketize(sizes, self._bounds.to(sizes.device), right=True) - 1
        return torch.bincount(place, minlength=len(self.positive)).cpu()
