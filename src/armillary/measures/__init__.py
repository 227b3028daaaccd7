"""How is a stream summed up in one pass? Each measure is a commutative monoid.

`M.of(a) + M.of(b)` is `M.of(a followed by b)`, `empty` is its zero, and `m.include(a)` is `m = m + M.of(a)`
in place. That is the whole contract, and batching, sharding and resuming follow from it. To add a measure:
one file, one entry below, one row in tests/laws/test_measures.py.
"""

from armillary.measures.histogram import Histogram
from armillary.measures.moments import Moments
from armillary.measures.quantile import QuantileSketch
from armillary.measures.reservoir import Reservoir, Sample
from armillary.measures.scalars import GroupedScalars
from armillary.measures.topk import TopK

MEASURES = (GroupedScalars, Histogram, Moments, QuantileSketch, Reservoir, TopK)

__all__ = [
    "MEASURES",
    "GroupedScalars",
    "Histogram",
    "Moments",
    "QuantileSketch",
    "Reservoir",
    "Sample",
    "TopK",
]
