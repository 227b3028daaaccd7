"""What are the products of a token's states with each other and with words? One read of each row per state.

The kernel's form of `probes.instruments.word_parts.word_products`: the same numbers, without buffers in float32.
"""

import torch
from torch import Tensor

from armillary.geometry.fused.row_statistics import warps

PRODUCTS = ("own", "next", "other", "tilted", "stepped", "bend", "power")
"""As `word_products.PRODUCTS`."""


class Paths:
    """Takes the rows [n, d] of a batch at each of its `states`."""

    def __init__(self, words: Tensor, gain: Tensor, tilt: Tensor, states: int) -> None:
        """`words` [v, d] in any float dtype; `gain` γ and `tilt` γ⊙β [d] in float32."""
        self._words = words if words.stride(1) == 1 else words.contiguous()
        self._gain, self._tilt, self._states = gain.contiguous(), tilt.contiguous(), states
        self._copies = words.new_empty(0)

    def begin(self, rows: int, dtype: torch.dtype, own: Tensor, following: Tensor, other: Tensor) -> None:
        """Start a batch of rows; the tokens' own, next and random words by number."""
        d, device = len(self._gain), self._gain.device
        if self._copies.numel() < 4 * rows * d or self._copies.dtype != dtype:
            self._copies = torch.empty(4 * rows * d, dtype=dtype, device=device)
        self._kept = self._copies[: 4 * rows * d].view(4, rows, d)
        self._stats = torch.empty(4, 2, rows, device=device)
        self._out = torch.empty(self._states, len(PRODUCTS), rows, device=device)
        self.ends = torch.empty(rows, device=device)
        self._ids, self._taken = (own, following, other), 0

    def take(self, x: Tensor, rows: Tensor, centred: bool, eps: float) -> None:
        """Take the next state: its rows and their `rows.row_statistics`."""
        from triton import next_power_of_2

        from armillary.geometry.fused.kernels import path_kernel

        number, (n, d) = self._taken, x.shape
        # The copy of the first state stays; later ones take turns.
        places = [3 if state == 0 else state % 3 for state in (number, number - 1, number - 2)]
        here, last, before = (max(0, place) for place in places)
        path_kernel[(n,)](
            x if x.stride(1) == 1 else x.contiguous(),
            rows,
            self._kept[last],
            self._kept[before],
            self._kept[here],
            self._kept[3],
            self._stats,
            self._words,
            *self._ids,
            self._gain,
            self._tilt,
            self._out[number],
            self.ends,
            n,
            d,
            x.stride(0) if x.stride(1) == 1 else d,
            self._words.stride(0),
            eps,
            here,
            last,
            before,
            CENTRED=centred,
            PAST=min(number, 2),
            END=number == self._states - 1,
            B=next_power_of_2(d),
            num_warps=2 * warps(d),
        )
        self._taken += 1

    def total(self) -> Tensor:
        """[state, product, n]."""
        return self._out
