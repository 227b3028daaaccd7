"""Which random directions are as loud as a head's, and how are they drawn?

Output tokens vary more along some axes than along others. Along a loud axis the top tokens share much of their length
and so resemble each other, whatever they mean. A head that writes along loud axes must therefore be compared with
random directions that are as loud.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Loudness:
    """The principal axes of tokens, in bands of similar variance."""

    read: "Tensor"
    """[token, d]: what directions are compared with."""
    axes: "Tensor"
    """[d, axis]."""
    bands: "Tensor"
    """[axis]: the band's number; the variances of a band lie within a factor of two."""

    @classmethod
    def of(cls, rows: "Tensor") -> "Loudness":
        import torch

        centred = rows - rows.mean(0)
        variance, axes = torch.linalg.eigh((centred.mT @ centred).double())
        # Axes along which tokens differ by rounding only are one band: nothing can be read along them.
        share = (variance / variance[-1].clamp_min(1e-300)).clamp_min(torch.finfo(rows.dtype).eps)
        return cls(rows, axes.to(rows), share.log2().neg().floor().long())

    def like(self, directions: "Tensor", weights: "Tensor", normal: "Tensor") -> "Tensor":
        """Random directions [head, draw, d] from Gaussian numbers of that shape, each as loud as a head's directions.

        The energy of a head's directions [head, direction, d], weighted [head, direction], is kept in every band; which
        axes of the band it falls on is left to chance.
        """
        energy = ((directions @ self.axes).square() * weights[..., None]).sum(1)
        count = self.bands.bincount()
        within = energy.new_zeros(len(energy), len(count)).index_add_(1, self.bands, energy)
        each = (within / count.clamp_min(1).to(within))[:, self.bands]
        return (normal * each.sqrt()[:, None]) @ self.axes.mT
