"""Is something wrong with a model? One line per question: ok, look or bad, the value, what is usual, what to do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from armillary.results.quantity import Quantity
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Column, Table

Status = Literal["ok", "look", "bad"]
STATUSES: tuple[Status, ...] = ("ok", "look", "bad")


@dataclass(frozen=True)
class HealthLine:
    """One question and its answer. `value` is NaN where the question does not apply to the model."""

    id: str
    name: str
    status: Status
    value: float
    shown: str
    """The value as it is printed."""
    usual: str
    """The range over the models that it was measured on."""
    where: str = ""
    """Which layers, heads, units, tokens or dimensions."""
    advice: str = ""
    """What one can do; empty where nothing need be done."""
    base: str = ""
    """The same value of the model that this one is compared with."""

    @property
    def applies(self) -> bool:
        return self.value == self.value


@dataclass(frozen=True)
class Health:
    """All lines of one model on one text."""

    model: str
    text: str
    lines: tuple[HealthLine, ...]
    quantities: tuple[Quantity, ...] = ()
    usual_of: str = ""
    """Which models the usual ranges were measured on."""
    base: str = ""
    """The model that this one is compared with."""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst of all lines."""
        return max((line.status for line in self.lines), key=STATUSES.index, default="ok")

    def __getitem__(self, id: str) -> HealthLine:
        for line in self.lines:
            if line.id == id:
                return line
        from armillary.errors import nearest

        raise KeyError(f"no line {id!r} here; {nearest(id, [line.id for line in self.lines])}")

    @property
    def title(self) -> str:
        counts = {status: sum(line.applies and line.status == status for line in self.lines) for status in STATUSES}
        bad, look = counts["bad"], counts["look"]
        if not bad and not look:
            return f"{self.model}: nothing to look at in {counts['ok']} checks"
        phrases = [f"{bad} bad"] * bool(bad) + [f"{look} to look at"] * bool(look) + [f"{counts['ok']} ok"]
        return f"{self.model}: {', '.join(phrases)}"

    def scalars(self) -> dict[str, float]:
        """id → value, for a training log."""
        return {f"health/{line.id}": line.value for line in self.lines}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None for what does not apply."""
        lines = [
            {
                **vars(line),
                "value": line.value if math.isfinite(line.value) else None,
                "applies": line.applies,
            }
            for line in self.lines
        ]
        return {
            "model": self.model,
            "status": self.status,
            "text": self.text,
            "base": self.base or None,
            "usual_of": self.usual_of,
            "lines": lines,
            **self.about,
        }

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), everything (.json) or the table (.csv), by the path's ending."""
        from armillary.views.save import save_health

        return save_health(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.text.health import health_text

        return health_text(self)

    def sheet(self) -> Sheet:
        """The same as a sheet, which has a page."""
        names = {"status": "ok, look or bad", "check": "what is asked", "value": "the answer"}
        names |= {"base": f"the same of {self.base}"} if self.base else {}
        names |= {"usual": f"range over {self.usual_of}", "where": "places", "do": "what one can do"}
        rows = []
        for line in self.lines:
            row = {"status": line.status, "check": line.name, "value": line.shown, "base": line.base}
            row |= {"usual": line.usual, "where": line.where, "do": line.advice}
            rows.append(tuple(row[name] for name in names))
        table = Table(tuple(Column(name, meaning) for name, meaning in names.items()), tuple(rows))
        return Sheet("health", self.title, self.text, {"checks": table}, self.quantities, about=self.to_dict())
