"""Which rows of a long stream shall stand for all of them?

Each token's priority is a hash of (seed, document, position), and the rows of least priority are kept: a
uniform sample without replacement that depends on which tokens were seen, and neither on their order nor on
their batches. Sites that share a seed keep the same tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """Kept rows in order of priority, so that the first m of them are themselves a uniform sample."""

    rows: Float[Tensor, "m d"]
    payload: Int[Tensor, "m w"]
    marks: Int[Tensor, " m"]
    """What the device knew of each row when it was offered; 0 where nothing was given."""


class Reservoir:
    """At most `capacity` float32 rows [d] on the device of the first ones, each with integers [document, position, …]
    on the CPU, where it is decided who is kept."""

    def __init__(self, capacity: int, d: int, width: int = 2, seed: int = 0) -> None:
        if capacity < 1 or width < 2:
            raise ValueError(
                f"a reservoir needs room for a row and a payload of document and position at least; "
                f"got capacity {capacity} and payload width {width}"
            )
        self.capacity, self.d, self.width, self.seed = capacity, d, width, seed
        self.seen = 0
        self.size = 0
        # Untouched pages of `empty` cost no memory, so a large capacity is free until it is used.
        self._rows = torch.empty(capacity, d)
        self._marks = torch.zeros(capacity, dtype=torch.int64)
        self._payload = torch.empty(capacity, width, dtype=torch.int64)
        self._priority = torch.empty(capacity, dtype=torch.int64)

    @classmethod
    def empty(cls, capacity: int, d: int, width: int = 2, seed: int = 0) -> "Reservoir":
        return cls(capacity, d, width, seed)

    @classmethod
    def of(cls, rows: Float[Tensor, "n d"], payload: Int[Tensor, "n w"], capacity: int, seed: int = 0) -> "Reservoir":
        """The measure of one batch.

        >>> rows, where = torch.eye(4), torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0]])
        >>> a, b = Reservoir.of(rows[:3], where[:3], 2), Reservoir.of(rows[3:], where[3:], 2)
        >>> torch.equal((a + b).sample().rows, Reservoir.of(rows, where, 2).sample().rows)
        True
        """
        reservoir = cls(capacity, rows.shape[1], payload.shape[1], seed)
        reservoir.include(rows, payload)
        return reservoir

    def include(
        self,
        rows: Float[Tensor, "n d"],
        payload: Int[Tensor, "m w"],
        among: Int[Tensor, " m"] | None = None,
        rank: Int[Tensor, " m"] | None = None,
        marks: Int[Tensor, " m"] | None = None,
    ) -> None:
        """Offer rows; payload's first two columns are document and position. Only rows that enter are read.

        `among` says where in `rows` the rows of this payload are, so that no copy of them need be made first; `rank` is
        their `priority`, for a caller who offers the same tokens to many reservoirs; `marks` are integers that only the
        device knows. With payload, `among` and `rank` on the CPU nothing waits for the device.
        """
        if (rows.shape[1], payload.shape[1]) != (self.d, self.width):
            raise ValueError(
                f"expected rows of {self.d} and payload of {self.width}, got {rows.shape[1]} and {payload.shape[1]}"
            )
        where = payload.detach().cpu().to(torch.int64)
        priority = _hash(self.seed, where) if rank is None else rank
        self.seen += len(where)
        bar = int(self._priority[: self.size].max()) if self.size == self.capacity else None
        entering = torch.arange(len(where)) if bar is None else (priority <= bar).nonzero()[:, 0]
        if len(entering) > self.capacity:
            worst = priority[entering].kthvalue(self.capacity).values
            entering = entering[priority[entering] <= worst]
        if len(entering):
            places = entering if among is None else among.cpu()[entering]
            marked = torch.zeros(1, dtype=torch.int64).expand(len(where)) if marks is None else marks
            self._enter(rows.detach(), places, where[entering], priority[entering], marked, entering)

    def _settle(self, device: torch.device) -> None:
        """Keep the rows where they come from; an empty reservoir has nothing to copy."""
        if self._rows.device != device:
            if self.size:
                self._rows, self._marks = (p.to(device, non_blocking=True) for p in (self._rows, self._marks))
            else:
                self._rows = torch.empty_like(self._rows, device=device)
                self._marks = torch.zeros_like(self._marks, device=device)

    def __add__(self, other: "Reservoir") -> "Reservoir":
        form = (self.capacity, self.d, self.width, self.seed)
        other_form = (other.capacity, other.d, other.width, other.seed)
        if form != other_form:
            raise ValueError(f"cannot add reservoirs (capacity, d, width, seed) {form} and {other_form}")
        merged = Reservoir(*form)
        merged.seen = self.seen + other.seen
        for part in (self, other):
            n = part.size
            places = torch.arange(n)
            merged._enter(part._rows, places, part._payload[:n], part._priority[:n], part._marks, places)
        return merged

    def sample(self) -> Sample:
        order = _order(self._priority[: self.size], self._payload[: self.size])
        return Sample(self._rows.cpu()[order], self._payload[order], self._marks.cpu()[order])

    def reset(self) -> None:
        self.seen = self.size = 0

    def arrays(self) -> dict[str, Tensor]:
        sample, n = self.sample(), self.size
        priority = self._priority[_order(self._priority[:n], self._payload[:n])]
        return {**vars(sample), "priority": priority, "seen": torch.tensor([self.seen])}

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        self.seen, self.size = int(arrays["seen"]), len(arrays["rows"])
        for name in ("rows", "payload", "marks", "priority"):
            getattr(self, f"_{name}")[: self.size] = arrays[name]

    def _enter(
        self, rows: Tensor, places: Tensor, payload: Tensor, priority: Tensor, marks: Tensor, chosen: Tensor
    ) -> None:
        """Put newcomers, rows[places] with marks[chosen], into free slots and those of the displaced."""
        old, new = self.size, len(places)
        slots: slice | Tensor = slice(old, old + new)
        if old + new > self.capacity:
            slots, entering = self._ranked(payload, priority)
            places, chosen, payload, priority = (part[entering] for part in (places, chosen, payload, priority))
        self._settle(rows.device)
        there = slots if isinstance(slots, slice) else slots.to(rows.device, non_blocking=True)
        self._rows[there] = rows.index_select(0, places.to(rows.device, non_blocking=True)).to(torch.float32)
        marked = marks.index_select(0, chosen.to(marks.device, non_blocking=True))
        self._marks[there] = marked.to(rows.device, torch.int64, non_blocking=True)
        self._payload[slots] = payload
        self._priority[slots] = priority
        self.size = min(old + new, self.capacity)

    def _ranked(self, payload: Tensor, priority: Tensor) -> tuple[Tensor, Tensor]:
        """Slots to fill, and which of the newcomers go there, where not all have room."""
        old = self.size
        ranked = _order(torch.cat([self._priority[:old], priority]), torch.cat([self._payload[:old], payload]))[
            : self.capacity
        ]
        entering = ranked[ranked >= old] - old
        staying = torch.zeros(self.capacity, dtype=torch.bool)
        staying[ranked[ranked < old]] = True
        return (~staying).nonzero()[: len(entering), 0], entering


def priority(seed: int, payload: Int[Tensor, "n w"]) -> Int[Tensor, " n"]:
    """What decides who is kept (least first), for a caller who knows the whole stream and can ask beforehand."""
    return _hash(seed, payload)


def hashed(seed: int, document: np.ndarray, position: np.ndarray) -> np.ndarray:
    """The same of two columns: splitmix64's finaliser over seed, document and position. Any order of the bits will do:
    int64's."""
    first, second = (column.astype(np.uint64) for column in (document, position))
    state: np.ndarray = _mix(_mix(_mix(np.array([seed % 2**64], dtype=np.uint64)) ^ first) ^ second)
    return state.view(np.int64)


def _order(priority: Tensor, payload: Tensor) -> Tensor:
    """By priority; the payload settles a collision of hashes, or a token that was offered twice."""
    keys = [column.numpy() for column in reversed(payload.unbind(dim=1))]
    return torch.from_numpy(np.lexsort((*keys, priority.numpy())))


def _hash(seed: int, payload: Tensor) -> Tensor:
    return torch.from_numpy(hashed(seed, payload[:, 0].numpy(), payload[:, 1].numpy()))


def _mix(x: np.ndarray) -> np.ndarray:
    """Steele, Lea and Flood 2014; arrays of uint64 wrap around silently, as is meant here."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
