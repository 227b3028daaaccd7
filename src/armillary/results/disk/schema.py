"""Does a record have the form that this program writes? Every field is checked by name; what is wrong is said.

A check is a function of a value and of where it stands; it raises a `ValueError`.
"""

import math
import types
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, fields
from typing import Any, Union, get_args, get_origin

Check = Callable[[Any, str], None]


def wrong(at: str, value: Any, wanted: str) -> ValueError:
    shown = repr(value)
    return ValueError(f"{at} is {shown[:57] + '…' if len(shown) > 60 else shown}, not {wanted}")


def number(least: float = -math.inf, most: float = math.inf, null: bool = False) -> Check:
    """A finite number; with `null`, also nothing, which is how NaN and infinities are stored."""

    def check(value: Any, at: str) -> None:
        if value is None and null:
            return
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or abs(value) > 1.8e308 or not math.isfinite(value):
            raise wrong(at, value, "a finite number")
        if not least <= value <= most:
            raise wrong(at, value, f"between {least:g} and {most:g}")

    return check


def whole(least: float = -math.inf) -> Check:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
            raise wrong(at, value, f"a whole number{f' of at least {least:g}' if least > -math.inf else ''}")

    return check


def numbers(value: Any, at: str) -> None:
    """Nested lists of finite numbers, or of nothing where a number is NaN or infinite."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            # Most entries are plain numbers, and there are many.
            if type(entry) is not float or not math.isfinite(entry):
                numbers(entry, f"{at}[{index}]")
    else:
        _ANY_NUMBER(value, at)


_ANY_NUMBER = number(null=True)


def text(value: Any, at: str) -> None:
    if not isinstance(value, str):
        raise wrong(at, value, "text")


def flag(value: Any, at: str) -> None:
    if not isinstance(value, bool):
        raise wrong(at, value, "true or false")


def anything(value: Any, at: str) -> None:
    pass


def one_of(known: Container[Any], named: str) -> Check:
    def check(value: Any, at: str) -> None:
        # True would be found among whole numbers, as 1.
        if not isinstance(value, str | int) or isinstance(value, bool) or value not in known:
            raise wrong(at, value, named)

    return check


def optional(inner: Check) -> Check:
    return lambda value, at: None if value is None else inner(value, at)


def listed(inner: Check) -> Check:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, list):
            raise wrong(at, value, "a list")
        for index, entry in enumerate(value):
            inner(entry, f"{at}[{index}]")

    return check


def mapped(inner: Check) -> Check:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, Mapping):
            raise wrong(at, value, "an object")
        for key, entry in value.items():
            inner(entry, f"{at}.{key[:40]}")

    return check


def record(required: Mapping[str, Check], more: Mapping[str, Check] | None = None, closed: bool = True) -> Check:
    """An object with these fields, those in `more` if it likes, and, where it is closed, no others."""
    known = {**required, **(more or {})}

    def check(value: Any, at: str) -> None:
        if not isinstance(value, Mapping):
            raise wrong(at, value, "an object")
        place = f"{at}." if at else ""
        if lacking := [name for name in required if name not in value]:
            raise ValueError(f"{place}{lacking[0]} is missing")
        if closed and (strange := [name for name in value if name not in known]):
            raise ValueError(f"{place}{strange[0][:60]} is unknown here")
        for name, inner in known.items():
            if name in value:
                inner(value[name], f"{place}{name}")

    return check


def facts(kind: type, closed: bool = True, **special: Check) -> Check:
    """The record of a dataclass: every field by its type, whole numbers not negative."""
    checks = {entry.name: special.get(entry.name) or _of_type(entry.type) for entry in fields(kind)}
    default = {e.name for e in fields(kind) if e.default is not MISSING or e.default_factory is not MISSING}
    return record({n: c for n, c in checks.items() if n not in default},
                  {n: c for n, c in checks.items() if n in default}, closed)  # fmt: skip


def _of_type(kind: Any) -> Check:
    plain: dict[Any, Check] = {int: whole(0), float: number(null=True), str: text, bool: flag, Any: anything}
    if kind in plain:
        return plain[kind]
    inner = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType) and type(None) in inner:
        return optional(_of_type(next(entry for entry in inner if entry is not type(None))))
    if get_origin(kind) is tuple:
        return listed(_of_type(inner[0]))
    if len(inner) == 2:
        return mapped(_of_type(inner[1]))
    raise TypeError(f"no check is known for {kind}")
