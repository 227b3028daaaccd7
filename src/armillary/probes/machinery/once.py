"""A decorator for what several probes need: computed by the first that asks, kept for the others of the survey."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

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


class Remembers(Protocol):
    """Evidence or a bench: what a survey has one of."""

    @property
    def memo(self) -> Memo: ...


H = TypeVar("H", bound=Remembers)


def once(function: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """`function(evidence, …)` or `function(bench, …)`, computed once for each set of arguments."""
    parameters = signature(function)

    @wraps(function)
    def remembered(holder: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = parameters.bind(holder, *args, **kwargs)
        bound.apply_defaults()
        arguments = tuple(bound.arguments.values())[1:]
        return holder.memo.result(function, arguments, lambda: function(holder, *args, **kwargs))

    return remembered
