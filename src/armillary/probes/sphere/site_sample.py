"""Which tokens stand for a site where all pairs are compared?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.probes.instruments.norm_record import NormRecord


@dataclass(frozen=True, eq=False)
class Sampled:
    """Ordinary tokens of one site: x before the norm, z on the sphere (float64), and where each came from."""

    x: "Tensor"
    z: "Tensor"
    document: NDArray[np.int64]
    token: NDArray[np.int64]
    following: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.document)

    def distinct(self) -> "Sampled":
        """One token of each word form: the same word in two places is nearly one point, and says nothing of shape."""
        _, first = np.unique(self.token, return_index=True)
        kept = np.sort(first)
        return Sampled(self.x[kept], self.z[kept], self.document[kept], self.token[kept], self.following[kept])


def sampled(record: "NormRecord") -> Sampled:
    assert record.sample is not None
    kept = record.sample.sample()
    document, _, token, following, kind = kept.payload.numpy().T
    ordinary = kind == 0
    x = kept.rows[ordinary].double()
    return Sampled(x, record.norm.direction(x), document[ordinary], token[ordinary], following[ordinary])
