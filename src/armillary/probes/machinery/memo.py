"""A decorator for what several probes need: computed by the first that asks, kept for the others of the survey."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Memo:
    """Results by the function and the arguments that they belong to."""

    _results: dict[tuple[Hashable, ...], object] = field(default_factory=dict)

    def result(self, function: Callable[..., R], arguments: tuple[Hashable, ...], compute: Callable[[], R]) -> R:
        """The result of `function` for these arguments: what `compute` gives, computed by the first that asks."""
        key = (function, *arguments)
        if key not in self._results:
            self._results[key] = compute()
        return cast(R, self._results[key])  # the key holds the function, whose results are of type R

    def latest(
        self,
        function: Callable[..., R],
        arguments: tuple[Hashable, ...],
        compute: Callable[[], R],
        size: Callable[[R], int],
    ) -> R:
        """The same; but of the large results of a function only the latest is held."""
        key, place = (function, *arguments), (Memo.latest, function)
        newest: dict[tuple[Hashable, ...], R] = cast(Any, self._results.setdefault(place, {}))
        if key in self._results:
            return cast(R, self._results[key])
        if key not in newest:
            # Free the one before first, so that both are never held.
            newest.clear()
            result = compute()
            if size(result) <= LARGE:
                self._results[key] = result
                return result
            newest[key] = result
        return newest[key]


class Remembers(Protocol):
    """Evidence or a bench: what a survey has one of."""

    @property
    def memo(self) -> Memo: ...


H = TypeVar("H", bound=Remembers)
# What takes more memory than this is large: a survey keeps the latest of its kind, and computes the others again.
LARGE = 1 << 28


def once(function: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """`function(evidence, …)` or `function(bench, …)`, computed once for each set of arguments."""
    return _remembered(function, Memo.result)


def once_if_small(
    size: Callable[[R], int],
) -> Callable[[Callable[Concatenate[H, P], R]], Callable[Concatenate[H, P], R]]:
    """As `once`; but of results that `size` (in bytes) calls large only the latest is kept."""

    def decorate(function: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
        return _remembered(function, partial(Memo.latest, size=size))

    return decorate


def _remembered(function: Callable[Concatenate[H, P], R], recall: Callable[..., R]) -> Callable[Concatenate[H, P], R]:
    parameters = signature(function)

    @wraps(function)
    def remembered(holder: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = parameters.bind(holder, *args, **kwargs)
        bound.apply_defaults()
        arguments = tuple(bound.arguments.values())[1:]
        return recall(holder.memo, function, arguments, lambda: function(holder, *args, **kwargs))

    return remembered
