"""A survey while its claims are decided: in order, on disk, and shown as it grows."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from armillary.errors import OutputError
from armillary.probes import AnyProbe
from armillary.probes.machinery.conclude import Conclusion
from armillary.probes.machinery.processes.workers import Doing
from armillary.results import Finding, Plan, Survey, TextLoss, Times
from armillary.results.calibration.aims import turning
from armillary.results.calibration.calibration_file import shipped
from armillary.results.store import write_survey
from armillary.views.save import draw
from armillary.views.text.progress import Bar


@dataclasses.dataclass
class GrowingSurvey:
    """A survey while claims are decided, in whatever order they are."""

    result: Survey
    probes: Sequence[AnyProbe]
    caption: str
    started: float
    out: str | Path | None
    debug: bool
    tell: Callable[[Survey], None] | None
    bar: Bar
    decided: dict[str, Conclusion] = dataclasses.field(default_factory=dict)
    stored: frozenset[str] = frozenset()
    goes_on: bool = False
    """Was it begun earlier, and stopped?"""
    shown: int = 0
    costs: dict[str, float] = dataclasses.field(default_factory=dict)
    """Seconds that each claim should take."""
    under_way: dict[str, float] = dataclasses.field(default_factory=dict)
    """Claims that are being decided, and the share of each that is done."""

    def begin(self, plan: Plan) -> None:
        self.result = dataclasses.replace(self.result, times=Times(plan=plan))
        self._tell(self.result)

    def restore(self, result: Survey) -> None:
        """A survey that was complete already."""
        self.result = result
        self._tell(result)

    def watched(self, arms: Sequence[str], loss: TextLoss | None) -> None:
        """The arms of the pass and the loss; with what an earlier survey decided, that is all to say so far."""
        provenance = dataclasses.replace(self.result.provenance, arms=tuple(arms))
        self.result = dataclasses.replace(self.result, provenance=provenance, loss=loss)
        if self.decided:
            self.show()

    def add(self, conclusion: Conclusion) -> None:
        finding = _worded(conclusion.finding, self.caption)
        self.decided[finding.id] = dataclasses.replace(conclusion, finding=finding)
        self.show()
        self.under_way.pop(finding.id, None)
        self.bar.advance(self.costs.get(finding.id, 1.0), self._begun())
        if self.out is not None:
            # While workers work. What cannot be drawn is reported when everything else is on disk.
            with suppress(Exception):
                draw(finding)

    def doing(self, entries: Sequence[Doing]) -> None:
        """What is being decided now."""
        self.under_way = {entry.task: entry.share for entry in entries if entry.task not in self.decided}
        self.bar.say(f"concluding: {' · '.join(entry.text for entry in entries)}", self._begun())

    def _begun(self) -> float:
        """Of the claims under way, the seconds that should be behind them."""
        return sum(self.costs.get(claim, 0.0) * share for claim, share in self.under_way.items())

    def show(self) -> None:
        """Everything that is decided, on disk and in the ledger."""
        ordered = [self.decided[probe.claim.id] for probe in self.probes if probe.claim.id in self.decided]
        begun = datetime.fromtimestamp(self.started, UTC).isoformat(timespec="seconds")
        seconds = {entry.finding.id: entry.seconds for entry in ordered}
        self.result = dataclasses.replace(
            self.result,
            findings=tuple(entry.finding for entry in ordered),
            times=Times(begun, round(time.time() - self.started, 2), seconds, self.result.times.plan),
            notes=tuple(entry.traceback for entry in ordered if self.debug and entry.traceback),
        )
        # Stored first: a claim that is shown is on disk. Shown in the order of the ledger.
        self.stored = _store(self.result, self.out, self.stored, self.goes_on)
        while self.shown < len(self.probes) and self.probes[self.shown].claim.id in self.decided:
            self.shown += 1
            partial = dataclasses.replace(self.result, findings=self.result.findings[: self.shown])
            self._tell(partial)

    def _tell(self, result: Survey) -> None:
        if self.tell is not None:
            with self.bar.aside():
                self.tell(result)


def _store(result: Survey, out: str | Path | None, stored: frozenset[str], goes_on: bool) -> frozenset[str]:
    """Write the claims that are not stored yet; returns the ids of those that are.

    A full disk must not cost the claims still to come: the last save tries again, and reports it.
    """
    if out is None:
        return stored
    try:
        write_survey(result, Path(out), stored, goes_on)
    except OutputError:
        return stored
    return frozenset(finding.id for finding in result)


def _worded(finding: Finding, caption: str) -> Finding:
    """With what was read, and with what the claim's verdict was seen to depend on."""
    warning = turning(shipped(), finding.claim, finding.verdict, finding.of_text)
    reading = f"{finding.reading} {warning}" if warning else finding.reading
    return dataclasses.replace(finding, caption=caption, reading=reading)
