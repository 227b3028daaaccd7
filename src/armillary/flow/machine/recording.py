"""How is the device's work for a batch repeated without the host? Recorded once as a CUDA graph, then replayed.

A small model's pass is bound by the host, which launches some thousand kernels per batch. A graph launches all of them
at once. It repeats the same kernels on the same memory: what differs from batch to batch must come by a `FixedFeed`,
what is summed must be summed in place, and what a batch leaves must be copied before the next.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

# Recording takes the host about as long as two batches: for fewer it does not pay.
LEAST = 3


class Recorded(Protocol):
    """Device work that can be repeated."""

    def replay(self) -> None: ...


@dataclass(frozen=True)
class _Take:
    graph: Recorded
    left: Any


class Recorder:
    """Runs work; from the second time on by replaying it, where that pays and is possible."""

    def __init__(self, record: Callable[[Callable[[], None]], Recorded]) -> None:
        self._record, self._takes = record, dict[Hashable, _Take]()
        self._runs = Counter[Hashable]()
        self.replayed, self.seconds = 0, 0.0
        """How many times work was replayed, and how long recording took."""
        self.refused: str | None = None
        """Why nothing is recorded any more."""

    def __call__(self, key: Hashable | None, work: Callable[[], Any], to_come: int) -> Any:
        """What the work leaves. Work of one key differs only in what its memory holds; None is never repeated.
        `to_come`: how often the same key is expected, this time included; 0 if it must be run this time."""
        take = self._takes.get(key) if to_come else None
        if take is None and key is not None and self._runs[key] and to_come >= LEAST and self.refused is None:
            take = self._taken(key, work)
        if take is None:
            self._runs[key] += 1
            return work()
        take.graph.replay()
        self.replayed += 1
        return take.left

    def _taken(self, key: Hashable, work: Callable[[], Any]) -> _Take | None:
        left: list[Any] = []
        began = time.perf_counter()
        try:
            graph = self._record(lambda: left.append(work()))
        except (RuntimeError, torch.OutOfMemoryError) as error:
            # A model that waits for the device in its forward pass, or too little memory for a second set of arrays.
            self.refused = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            logging.getLogger(__name__).info("batches are run one by one: %s", self.refused, exc_info=True)
            return None
        self.seconds += time.perf_counter() - began
        self._takes[key] = _Take(graph, left[0])
        return self._takes[key]


class Graphs:
    """Records work as CUDA graphs that share their memory: they run one after another."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], None]) -> Recorded:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        # Not `torch.cuda.graph`, which gives all free memory back to the driver first.
        with torch.cuda.stream(self._stream), unpacked():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return graph


@contextmanager
def unpacked() -> Iterator[None]:
    """While this is entered Hugging Face takes every row for one text, which ours are, and does not look.

    The look waits for the device. While a graph is recorded the library does not look either, but writes out the causal
    mask that attention kernels know by themselves.
    """
    from transformers import masking_utils

    replaced = {"is_tracing": lambda tensor=None: False, "find_packed_sequence_indices": lambda position_ids: None}
    before = {name: getattr(masking_utils, name) for name in replaced if hasattr(masking_utils, name)}
    try:
        for name in before:
            setattr(masking_utils, name, replaced[name])
        yield
    finally:
        for name, function in before.items():
            setattr(masking_utils, name, function)
