"""What is a room? A name, its controls, and parts that are computed and shown one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from armillary.serve.blocks import Block
from armillary.serve.fields import Field, clean

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.serve.library import Library

Ask = Mapping[str, Any]
Progress = Callable[[str, int, int], None]


@dataclass(eq=False)
class Opened:
    """A loaded model, where its parts run; `shared` holds what several parts share."""

    anatomy: "Anatomy"
    progress: Progress
    shared: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]


@dataclass(frozen=True)
class RoomPart:
    """One thing that a room shows.

    `show` computes it: from an opened model (`by` is 'model'), from stored results ('library'), or from what the part
    `raw` of two models gives ('pair').
    """

    name: str
    title: str
    fields: tuple[str, ...]
    show: Callable[..., Sequence[Block]]
    by: Literal["model", "library", "pair"] = "model"
    given: Mapping[str, str] = field(default_factory=dict)
    """Fields that stand in for others: {'sentence': 'other'}."""
    model: str = "model"
    """The field that names the model."""
    needs: tuple[str, ...] = ()
    """Fields without which there is nothing to show."""
    raw: Callable[["Opened", Ask], Any] | None = None
    beside: str = ""
    """The part that it stands next to."""
    quick: bool = False
    """Is it asked for before the room's other parts?"""


@dataclass(frozen=True)
class Room:
    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    parts: tuple[RoomPart, ...]
    offered: Callable[["Library"], bool] = lambda library: True

    def part(self, name: str) -> RoomPart | None:
        return next((part for part in self.parts if part.name == name), None)

    def asked(self, part: RoomPart, given: Ask) -> dict[str, Any]:
        """The values that a part depends on, checked and under the names that it knows."""
        values = clean([*self.fields, NARROW, *MODELS], given)
        own_fields = {name: values[name] for name in (*part.fields, NARROW.name)}
        return {**own_fields, **{name: values[source] for name, source in part.given.items()}}

    def record(self) -> dict[str, Any]:
        parts = [
            {
                "name": p.name, "title": p.title, "model": p.model, "needs": p.needs, "beside": p.beside,
                "quick": p.quick,
                "fields": sorted({*p.fields, *p.given.values()} - set(p.given)),
            }
            for p in self.parts
        ]  # fmt: skip
        fields = [field.record() for field in self.fields]
        return {"name": self.name, "title": self.title, "about": self.about, "fields": fields, "parts": parts}


NARROW = Field("narrow", "flag", "narrow screen", False)
MODELS = (Field("model", "word", "model"), Field("second", "word", "second model"))
SENTENCE = Field("sentence", "sentence", "Sentence", "To kill two birds with one stone")
