"""What may a visitor ask of a room? Fields with their limits; everything else is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from armillary.errors import ArmillaryError, TextError, nearest

Kind = Literal["sentence", "word", "choice", "whole", "number", "flag"]
SENTENCE, WORD = 4000, 80
"""Most characters of a sentence and of a word."""
HUGE = 1e15
"""No number of the page is as large."""


@dataclass(frozen=True)
class Field:
    """One control of a room. `of` names what the model decides: how many layers or heads, or which norms."""

    name: str
    kind: Kind
    label: str
    default: str | float | int | bool = ""
    choices: tuple[tuple[str, str], ...] = ()
    least: float = 0
    most: float = 10_000
    step: float = 1
    of: str = ""
    about: str = ""
    slides: bool = False
    """Is it a slider?"""
    optional: bool = False
    """May a choice that the model decides be none?"""

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "limit": self.limit}

    @property
    def limit(self) -> int:
        """Most characters."""
        return SENTENCE if self.kind == "sentence" else WORD

    def clean(self, value: Any) -> Any:
        """The value, checked; a missing one becomes the default."""
        if value is None:
            return self.default
        if self.kind == "flag":
            return self._flag(value)
        if self.kind in ("whole", "number"):
            return self._number(value)
        if not isinstance(value, str):
            raise ArmillaryError(f"{self.label!r} must be text; got {type(value).__name__}.")
        return self._text(value)

    def _flag(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ArmillaryError(f"{self.label!r} must be true or false; got {value!r}.")

    def _number(self, value: Any) -> float | int:
        # An integer may have thousands of digits, too many for a float.
        known = isinstance(value, int | float) and not isinstance(value, bool) and -HUGE < value < HUGE
        if not known:
            raise ArmillaryError(f"{self.label!r} must be a number; got {str(value)[:WORD]}.")
        if self.kind == "whole" and value != int(value):
            raise ArmillaryError(f"{self.label!r} must be a whole number; got {value!r}.")
        if self.of and not self.least <= value <= self.most:
            # How many there are is the model's to say.
            raise ArmillaryError(f"there is no {self.label.lower()} {value:g}; they are counted from {self.least:g}.")
        if not self.least <= value <= self.most:
            raise ArmillaryError(f"{self.label!r} must lie between {self.least:g} and {self.most:g}; got {value:g}.")
        return int(value) if self.kind == "whole" else float(value)

    def _text(self, value: str) -> str:
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise TextError(f"{self.label!r} holds half a character; type it again.")
        if self.kind == "choice" and self.choices and value not in dict(self.choices):
            raise ArmillaryError(f"there is no {self.label} {value!r}; {nearest(value, dict(self.choices))}")
        if len(value) > self.limit:
            raise TextError(
                f"{self.label!r} has {len(value):,} characters, and the page takes at most {self.limit:,}; shorten it, "
                "or use the command line, which reads whole files."
            )
        return value


def clean(fields: Sequence[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field's value, checked; unknown names are refused."""
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            raise ArmillaryError(f"this room has no field {name!r}; {nearest(name, known)}")
    return {name: field.clean(given.get(name)) for name, field in known.items()}
