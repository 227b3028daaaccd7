"""How is a computation that several probes need done once?"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Memo:
    """Calls a function once for the same arguments, and keeps what it returned.

    >>> calls = []
    >>> memo = Memo()
    >>> memo(calls.append, 1), memo(calls.append, 1), calls
    (None, None, [1])
    """

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}

    def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, args, tuple(sorted(kwargs.items())))
        if key not in self._results:
            self._results[key] = function(*args, **kwargs)
        result: R = self._results[key]
        return result
