"""How is a stream summed up in one pass? Each measure is a commutative monoid.

`M.of(a) + M.of(b)` is `M.of(a followed by b)`, `empty` is its zero, and `m.include(a)` is `m = m + M.of(a)` in place.
That is the whole contract; batching, sharding and resuming follow from it. To add a measure: one file, one entry below,
one row in tests/laws/test_measures.py. Measures are imported when first asked for, because they import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from armillary.measures.state import Measure, Named, State

if TYPE_CHECKING:
    MEASURES: tuple[type, ...]
    from armillary.measures.largest import Largest
    from armillary.measures.moments import Moments
    from armillary.measures.reservoir import Reservoir, Sample
    from armillary.measures.rows import Rows
    from armillary.measures.scalars import GroupedScalars
    from armillary.measures.topk import TopK
    from armillary.measures.totals import Totals

_HOMES = {
    "GroupedScalars": "scalars",
    "Largest": "largest",
    "Moments": "moments",
    "Reservoir": "reservoir",
    "Rows": "rows",
    "Sample": "reservoir",
    "TopK": "topk",
    "Totals": "totals",
}
_MEASURES = ("GroupedScalars", "Largest", "Moments", "Reservoir", "Rows", "TopK", "Totals")


def __getattr__(name: str) -> Any:
    if name == "MEASURES":
        return tuple(map(__getattr__, _MEASURES))
    if name not in _HOMES:
        raise AttributeError(f"module 'armillary.measures' has no attribute {name!r}")
    return getattr(import_module(f"armillary.measures.{_HOMES[name]}"), name)


__all__ = [
    "MEASURES",
    "GroupedScalars",
    "Largest",
    "Measure",
    "Moments",
    "Named",
    "Reservoir",
    "Rows",
    "Sample",
    "State",
    "TopK",
    "Totals",
]
