"""What is said above and below the claims: which model, which text, how well the instrument is calibrated?

A survey's mappings are filled by whoever ran it; a key that is missing is left out, never guessed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from armillary.results.claim import CHAPTERS, VERDICTS, Control, Finding, Statistic
from armillary.results.numbers import count, number
from armillary.results.survey import Survey
from armillary.views.figures.marks import MARKS
from armillary.views.text.quoting import show_text


# The claims ledger's chapters; a claim names its chapter by letter.
def chapter_title(chapter: str) -> str:
    """
    >>> chapter_title("A"), chapter_title("my own")
    ('A. The sphere', 'my own')
    """
    return f"{chapter}. {CHAPTERS[chapter]}" if chapter in CHAPTERS else show_text(chapter)


def model_line(survey: Survey) -> str:
    """'smollm2-135m · 30 layers · width 576 · rms norm · float32'."""
    model = survey.model
    parts = [_first(model, "name", "id", "source", "path")]
    parts += [
        _counted(model, ("layers", "n_layers"), "layers"),
        _counted(model, ("heads", "n_heads"), "heads"),
    ]
    width = _first(model, "width", "d", "d_model")
    parts.append(f"width {width}" if width else "")
    norm = _first(model, "norm", "norm_kind")
    dtype = _first(model, "dtype") or _first(survey.provenance, "dtype")
    parts += [norm if not norm or "norm" in norm.lower() else f"{norm} norm", dtype]
    return " · ".join(part for part in parts if part) or "model not named"


def text_line(survey: Survey) -> str:
    """'wikitext2_valid.txt · 64 documents · 16,384 tokens'."""
    text = survey.text
    parts = [_first(text, "name", "source", "path", "text")]
    if text.get("tokens") == 0:
        return "no text was read: weights only"
    parts += [_counted(text, (key, f"n_{key}"), key) for key in ("documents", "windows", "tokens")]
    return " · ".join(part for part in parts if part) or "text not named"


def plan_line(survey: Survey) -> str:
    """What is about to be done and how long it should take; empty where no plan was made."""
    plan = survey.times.get("plan", {})
    if "seconds" not in plan:
        return ""
    parts = [_counted(plan, ("claims",), "claims")]
    if plan.get("tokens"):
        parts.append(f"3 passes over {count(plan['tokens'])} tokens")
    if plan.get("experiments"):
        parts.append(f"at most {count(round(plan['passes']))} over {count(plan['evaluation'])} for experiments")
    return " · ".join([*parts, f"about {duration(plan['seconds'])}"])


def duration(seconds: float) -> str:
    """
    >>> duration(41.2), duration(95.0), duration(3720)
    ('41 s', '1 min 35 s', '1 h 2 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def law_line(survey: Survey) -> str:
    """How near its limit the worst law came, and where; empty if no law was run."""
    laws = [law for law in survey.laws if isinstance(law.get("error"), int | float)]
    if not laws:
        return ""
    worst = max(laws, key=_strain)
    where = _first(worst, "where", "site", "layer")
    limit = worst.get("tolerance")
    allowed = f" (rounding explains {number(limit)})" if isinstance(limit, int | float) else ""
    place = f" at {where}" if where and where != "not applicable" else ""
    name = _first(worst, "name", "law") or "unnamed law"
    return f"{len(laws)} laws checked; worst: {name}{place}, error {number(worst['error'])}{allowed}"


def note_lines(survey: Survey) -> list[str]:
    """The text's notes, then every claim's note once, with the claims it belongs to."""
    about = [f"text: {show_text(str(note))}" for note in survey.text.get("notes") or ()]
    owners: dict[str, list[str]] = {}
    for finding in survey:
        for note in finding.notes:
            owners.setdefault(show_text(note), []).append(finding.id)
    for note, ids in owners.items():
        whose = ", ".join(ids) if len(ids) < len(survey) else "all claims"
        about.append(f"{whose}: {note}")
    return about


def chapters(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.claim.chapter, []).append(finding)
    return grouped


def verdict_counts(findings: Iterable[Finding]) -> str:
    """'● 3  ◐ 2  ✕ 2  ○ 1', leaving out what did not occur."""
    seen = Counter(finding.verdict for finding in findings)
    return "  ".join(f"{MARKS[verdict]} {seen[verdict]}" for verdict in VERDICTS if seen[verdict])


@dataclass(frozen=True)
class Scale:
    """Where a finding's numbers stand on a row of its own, 0 at the left end and 1 at the right.

    Claims have different units, so rows cannot share an axis: each runs from its smallest number to its
    largest (statistic, interval, controls) and a margin more, on a log scale if those span over two decades.
    """

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, finding: Finding) -> "Scale | None":
        sources: tuple[Statistic | Control, ...] = (finding.statistic, *finding.controls)
        numbers = [v for s in sources for v in (s.value, s.low, s.high) if math.isfinite(v)]
        if not numbers:
            return None
        low, high = min(numbers), max(numbers)
        log = low > 0 and high / low > 100
        ends = (math.log10(low), math.log10(high)) if log else (low, high)
        margin = 0.08 * (ends[1] - ends[0]) or 0.5 * (abs(ends[0]) or 1.0)
        return cls(ends[0] - margin, ends[1] + margin, log)

    def at(self, value: float) -> float | None:
        """The value's place, None for what is not a number."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)


def _strain(law: Mapping[str, Any]) -> float:
    limit = law.get("tolerance")
    ratio = law["error"] / limit if isinstance(limit, int | float) and limit else law["error"]
    return math.inf if math.isnan(ratio) else float(ratio)


def _first(record: Mapping[str, Any], *keys: str) -> str:
    found = next((record[key] for key in keys if record.get(key) not in (None, "")), "")
    return show_text(str(found), 60)


def _counted(record: Mapping[str, Any], keys: tuple[str, ...], noun: str) -> str:
    found = next((record[key] for key in keys if isinstance(record.get(key), int)), None)
    return "" if found is None else f"{count(found)} {noun.removesuffix('s') if found == 1 else noun}"
