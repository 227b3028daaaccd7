"""How does what the host knows of a batch reach the device? Array by array; or all at once, to places that do not move.

Work that was recorded for one batch reads the same memory when it is replayed for the next.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# So that every array begins where any kernel may read it.
ALIGNED = 256
# While one batch's arrays are on their way, the next one's are written.
BUFFERS = 3


class Feed:
    """A copy of each array.

    >>> Feed(torch.device("cpu"))(np.array([1, 2])).tolist()
    [1, 2]
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self, part: "NDArray[Any] | Tensor") -> Tensor:
        part = part if isinstance(part, Tensor) else torch.from_numpy(part)
        return part.to(self.device, non_blocking=True)


class FixedFeed(Feed):
    """Arrays of the same shapes, in the same order, come to the same places. They are there after `send`."""

    def __init__(self, device: torch.device, size: int) -> None:
        super().__init__(device)
        self._there = torch.empty(size, dtype=torch.uint8, device=device)
        pinned = device.type == "cuda"
        self._here = [torch.empty(size, dtype=torch.uint8, pin_memory=pinned) for _ in range(BUFFERS)]
        self._bytes = [here.numpy() for here in self._here]
        self._sent: list[torch.cuda.Event | None] = [None] * BUFFERS
        self._turn = self._used = 0
        self.shapes: list[tuple[tuple[int, ...], torch.dtype]] = []
        self.complete = True
        """Did every array find room?"""

    def begin(self) -> None:
        """Start a batch."""
        self._turn, self._used, self.shapes, self.complete = (self._turn + 1) % BUFFERS, 0, [], True
        sent = self._sent[self._turn]
        if sent is not None:
            # Of three batches ago: nothing is waited for unless the host is that far ahead.
            sent.synchronize()

    def __call__(self, part: "NDArray[Any] | Tensor") -> Tensor:
        array = part.numpy() if isinstance(part, Tensor) else part
        stop = self._used + array.nbytes
        if stop > len(self._there):
            self.complete = False
            return super().__call__(part)
        place = slice(self._used, stop)
        self._bytes[self._turn][place].view(array.dtype).reshape(array.shape)[...] = array
        there = self._there[place].view(torch.from_numpy(np.empty(0, array.dtype)).dtype).view(array.shape)
        self.shapes.append((tuple(array.shape), there.dtype))
        self._used = -(-stop // ALIGNED) * ALIGNED
        return there

    def send(self) -> None:
        used = min(self._used, len(self._there))
        self._there[:used].copy_(self._here[self._turn][:used], non_blocking=True)
        if self.device.type == "cuda":
            event = self._sent[self._turn] or torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._sent[self._turn] = event
