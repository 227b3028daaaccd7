"""A decorator for what several probes need: computed by the first that asks, kept for the others of the survey."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Remembers(Protocol):
    """Evidence or a bench: what a survey has one of."""

    @property
    def memo(self) -> dict[Any, Any]: ...


H = TypeVar("H", bound=Remembers)
P = ParamSpec("P")
R = TypeVar("R")
# What takes more memory than this is large: a survey keeps the latest of its kind, and computes the others again.
LARGE = 1 << 28


def once(function: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """`function(evidence, …)` or `function(bench, …)`, computed once for each set of arguments."""
    parameters = signature(function)

    @wraps(function)
    def remembered(holder: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = parameters.bind(holder, *args, **kwargs)
        bound.apply_defaults()
        key = (function, *list(bound.arguments.values())[1:])
        if key not in holder.memo:
            holder.memo[key] = function(holder, *args, **kwargs)
        result: R = holder.memo[key]
        return result

    return remembered


def once_if_small(
    size: Callable[[R], int],
) -> Callable[[Callable[Concatenate[H, P], R]], Callable[Concatenate[H, P], R]]:
    """As `once`; but of results that `size` (in bytes) calls large only the latest is kept."""

    def decorate(function: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
        parameters = signature(function)

        @wraps(function)
        def remembered(holder: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
            bound = parameters.bind(holder, *args, **kwargs)
            bound.apply_defaults()
            key = (function, *list(bound.arguments.values())[1:])
            latest: dict[Any, Any] = holder.memo.setdefault((once_if_small, function), {})
            if key not in holder.memo and key not in latest:
                # Free the one before first, so that both are never held.
                latest.clear()
                result = function(holder, *args, **kwargs)
                (holder.memo if size(result) <= LARGE else latest)[key] = result
            found: R = holder.memo[key] if key in holder.memo else latest[key]
            return found

        return remembered

    return decorate
