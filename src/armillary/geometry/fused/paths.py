"""What are the products of a token's states with each other and with words? One read of each row per state.

The kernel's form of `probes.instruments.word_parts.word_products`: the same numbers, without buffers in float32.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from armillary.geometry.fused.row_statistics import block, pointers, warps

PRODUCTS = ("own", "next", "other", "tilted", "stepped", "bend", "power")
"""As `word_products.PRODUCTS`."""


class Paths:
    """Takes the rows [n, d] of a batch at each of its `states`, several states at a time."""

    def __init__(self, words: Tensor, gain: Tensor, tilt: Tensor, states: int) -> None:
        """`words` [v, d] in any float dtype; `gain` γ and `tilt` γ⊙β [d] in float32."""
        self._words = words if words.stride(1) == 1 else words.contiguous()
        self._gain, self._tilt, self._states = gain.contiguous(), tilt.contiguous(), states

    def begin(self, rows: int, own: Tensor, following: Tensor, other: Tensor) -> None:
        """Start a batch of rows; the tokens' own, next and random words by number."""
        d, device = len(self._gain), self._gain.device
        # What the states so far leave behind: the last one, the last step, and the first state.
        self._carried = self._gain.new_empty(3, rows, d)
        self._out = torch.empty(self._states, len(PRODUCTS), rows, device=device)
        self.ends = torch.empty(rows, device=device)
        self._ids, self._taken = tuple(ids.contiguous() for ids in (own, following, other)), 0

    def take(self, sites: Sequence[Tensor], statistics: Tensor, centred: bool, eps: float) -> None:
        """Take the next states: their rows and the `row_statistics` of these."""
        from armillary.geometry.fused.kernels import path_kernel

        (n, d), taken = sites[0].shape, self._taken + len(sites)
        path_kernel[(n,)](
            *pointers(sites),
            statistics,
            self._carried,
            self._words,
            *self._ids,
            self._gain,
            self._tilt,
            self._out[self._taken :],
            self.ends,
            n,
            d,
            self._words.stride(0),
            eps,
            COUNT=len(sites),
            CENTRED=centred,
            FIRST=self._taken == 0,
            LAST=taken == self._states,
            B=block(d),
            num_warps=2 * warps(d),
        )
        self._taken = taken

    def total(self) -> Tensor:
        """[state, product, n]."""
        return self._out
