"""How do several measures add, and how are they saved and loaded? Field by field, as named tensors. No torch here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Measure(Protocol):
    """A commutative monoid over rows: `of(a) + of(b)` equals `of(a ⧺ b)`."""

    def __add__(self, other: Any, /) -> Any: ...

    def arrays(self) -> "dict[str, Tensor]":
        """What it holds, by name, on the CPU."""
        ...

    def load(self, arrays: "Mapping[str, Tensor]") -> None:
        """Fill an empty measure of the same settings with what `arrays` gave."""
        ...


M = TypeVar("M", bound=Measure)
S = TypeVar("S", bound="State")


class Named(dict[str, M], Generic[M]):
    """Measures by name (a site, a layer), which add name by name."""

    @classmethod
    def of(cls, names: Iterable[str], make: Callable[[], M]) -> "Named[M]":
        return cls({name: make() for name in names})

    def __add__(self, other: "Named[M]") -> "Named[M]":
        if list(self) != list(other):
            raise ValueError(f"cannot add measures of {list(self)} and of {list(other)}")
        return Named({name: measure + other[name] for name, measure in self.items()})

    def reset(self) -> None:
        for measure in cast(Iterable[Any], self.values()):
            measure.reset()

    def arrays(self) -> "dict[str, Tensor]":
        return {f"{name}/{key}": array for name, measure in self.items() for key, array in measure.arrays().items()}

    def load(self, arrays: "Mapping[str, Tensor]") -> None:
        for name, measure in self.items():
            measure.load(_below(arrays, name))


@dataclass
class State:
    """A dataclass whose measures add field by field; its other fields are settings, the same on both sides."""

    def __add__(self: S, other: S) -> S:
        if self._settings() != other._settings():
            raise ValueError(f"cannot add states of settings {self._settings()} and {other._settings()}")
        return type(self)(**self._settings(), **{n: m + getattr(other, n) for n, m in self._measures().items()})

    def reset(self) -> None:
        """Make it empty. Tensors into which sums are added stay where they are: recorded work adds to them again."""
        for measure in self._measures().values():
            measure.reset()

    def arrays(self) -> "dict[str, Tensor]":
        """Everything kept, as tensors by name."""
        parts = self._measures().items()
        return {f"{name}/{key}": array for name, measure in parts for key, array in measure.arrays().items()}

    def load(self, arrays: "Mapping[str, Tensor]") -> None:
        """Fill an empty state of the same settings."""
        for name, measure in self._measures().items():
            measure.load(_below(arrays, name))

    def _measures(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Measure)}

    def _settings(self) -> dict[str, Any]:
        measures = self._measures()
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in measures}


def _below(arrays: "Mapping[str, Tensor]", name: str) -> "dict[str, Tensor]":
    prefix = f"{name}/"
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
