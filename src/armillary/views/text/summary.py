"""One-line summaries of a survey: its model, its text, its plan, its laws, its notes, its verdicts."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from armillary.results.claim import CHAPTERS, KINDS, SOURCES, VERDICTS, Claim, Finding
from armillary.results.numbers import count, interval_of, number
from armillary.results.survey import Survey
from armillary.views.figures.marks import MARKS
from armillary.views.text.quoting import show_text
from armillary.views.text.strip_scale import compared, comparison


def chapter_title(chapter: str) -> str:
    """
    >>> chapter_title("A"), chapter_title("my own")
    ('A. The sphere', 'my own')
    """
    return f"{chapter}. {CHAPTERS[chapter]}" if chapter in CHAPTERS else show_text(chapter)


def model_line(survey: Survey) -> str:
    """'smollm2-135m · 30 layers · 9 heads · width 576 · rmsnorm · float32'."""
    model = survey.model
    parts = [
        show_text(model.name, 60),
        counted(model.layers, "layer"),
        counted(model.heads, "head"),
        f"width {model.d}" if model.d else "",
        show_text(model.norm),
        show_text(survey.provenance.dtype),
    ]
    return " · ".join(part for part in parts if part)


def model_notes(survey: Survey) -> list[str]:
    """What a reader must know about the model before any verdict; nothing about most."""
    model = survey.model
    lists = (
        ("Keys of config.json that the model's class ignores", model.config_ignored),
        ("Weights in the files that the config does not call for", model.weights_ignored),
    )
    notes = [f"Read in part: {show_text(part)}." for part in model.not_understood]
    return notes + [f"{what}: {_some(names)}." for what, names in lists if names]


def _some(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(show_text(name, 60) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def text_line(survey: Survey) -> str:
    """'wikitext2_valid.txt · 64 documents · 16,384 tokens'."""
    text = survey.text
    if not text.tokens:
        return "no text was read: weights only"
    return f"{show_text(text.source, 60)} · {counted(text.documents, 'document')} · {counted(text.tokens, 'token')}"


def plan_line(survey: Survey) -> str:
    """What is going to be done and how long it should take; empty where no plan was made."""
    plan = survey.times.plan
    if plan is None:
        return ""
    parts = [counted(plan.claims, "claim")]
    if plan.tokens:
        parts.append(f"{plan.arms} passes over {count(plan.tokens)} tokens")
    if plan.experiments:
        parts.append(f"at most {count(round(plan.passes))} over {count(plan.evaluation)} for experiments")
    in_processes = f" in {plan.jobs} processes" if plan.jobs > 1 else ""
    time = " ".join(rough_duration(plan.seconds))
    return " · ".join([*parts, f"about {time}{in_processes}"])


def counted(n: int, noun: str) -> str:
    """
    >>> counted(1, "layer"), counted(2500, "token"), counted(0, "head")
    ('1 layer', '2,500 tokens', '')
    """
    return f"{count(n)} {noun}{'s' if n != 1 else ''}" if n else ""


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


def rough_duration(seconds: float) -> tuple[str, str]:
    """A number and its unit: tens of seconds, minutes, steps of five minutes, halves of an hour.

    >>> rough_duration(41.2), rough_duration(95.0), rough_duration(2124), rough_duration(6000)
    (('40', 's'), ('2', 'min'), ('35', 'min'), ('1.5', 'h'))
    """
    if seconds < 55:
        return str(10 * max(1, round(seconds / 10))), "s"
    minutes = max(1, round(seconds / 60))
    if minutes < 58:
        return str(minutes if minutes < 10 else 5 * round(minutes / 5)), "min"
    return f"{round(seconds / 1800) / 2:g}", "h"


def law_line(survey: Survey) -> str:
    """How near its tolerance the worst law came, and where; empty if no law was checked."""
    if not survey.laws:
        return ""
    worst = max(survey.laws, key=lambda law: law.error / law.tolerance)
    place = "" if worst.where == "not applicable" else f" at {show_text(worst.where)}"
    error = f"error {number(worst.error)} (rounding explains {number(worst.tolerance)})"
    return f"{len(survey.laws)} laws checked; worst: {show_text(worst.name)}{place}, {error}"


def note_lines(survey: Survey) -> list[str]:
    """The notes on the text, then every claim's note once, with the claims that have it."""
    about = [f"text: {show_text(note)}" for note in survey.text.notes]
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
    """'● 3  ◐ 2  ✕ 2  ○ 1', without verdicts that did not occur."""
    seen = Counter(finding.verdict for finding in findings)
    return "  ".join(f"{MARKS[verdict]} {seen[verdict]}" for verdict in VERDICTS if seen[verdict])


def kind_counts(findings: Iterable[Finding]) -> list[str]:
    """Verdicts by kind of claim: what holds by definition does not count as a finding."""
    grouped = {kind: [finding for finding in findings if finding.claim.kind == kind] for kind in KINDS}
    names = {"definition": "by definition (no findings)"}
    return [f"{names.get(kind, kind)} {verdict_counts(group)}" for kind, group in grouped.items() if group]


def part_lines(finding: Finding) -> list[str]:
    """Each part of a claim: '● supported · name: reading'."""
    lines = []
    for part in finding.parts:
        value = f" [{part.statistic.name}: {interval_of(part.statistic)}]" if part.statistic else ""
        origin = "" if part.asserted else ", added by Armillary"
        why = f" ({part.why.value})" if part.why else ""
        lines.append(f"{MARKS[part.verdict]} {part.verdict}{why} · {part.name}{origin}: {part.reading}{value}")
    return lines


def reason(finding: Finding) -> str:
    """Why nothing was decided, in a few words; empty for a verdict, and where the verdict's own name says it."""
    return finding.why.value if finding.why and finding.why.value != finding.verdict else ""


def verdict_text(finding: Finding) -> str:
    """'supported', 'undecided: too little text'."""
    return f"{finding.verdict}: {reason(finding)}" if reason(finding) else finding.verdict


def measured(finding: Finding) -> str:
    """'|cos(z, 1)|: 0.083 [0.079, 0.087], n = 64'."""
    statistic = finding.statistic
    unit = f" {statistic.unit}" if statistic.unit else ""
    return f"{statistic.name}: {interval_of(statistic)}{unit}, n = {count(finding.n)}"


def controls(finding: Finding) -> list[str]:
    return [f"{control.name}: {interval_of(control)}" for control in finding.controls] or ["none"]


def limit_lines(finding: Finding) -> list[str]:
    """The comparisons beside the one that decided, and what theory predicts."""
    lines = [f"{limit.part}: {compared(finding, limit)}".removeprefix(": ") for limit in finding.limits[1:]]
    if finding.prediction is not None:
        lines.append(f"prediction: {number(finding.prediction.value)}, {finding.prediction.meaning}")
    return lines


def fields(finding: Finding) -> list[tuple[str, Sequence[str]]]:
    """Everything that is said of a finding, as names and lines; names without lines are left out."""
    claim = finding.claim
    listed: list[tuple[str, Sequence[str]]] = [
        ("why", [reason(finding)] if reason(finding) else []),
        ("decided" if finding.why is None else "compared", [comparison(finding)] if finding.limits else []),
        ("question", [claim.question] if claim.question else []),
        ("reading", [finding.reading]),
        ("parts", part_lines(finding)),
        ("statistic", [measured(finding)]),
        ("control" if len(finding.controls) == 1 else "controls", controls(finding)),
        ("limits", limit_lines(finding)),
        ("rule", claim.rule.split("\n")),
        ("changed", changed_rules(claim)),
        ("claim", [claim.statement]),
        ("kind", [kind_text(claim)]),
        ("source", [claim.source]),
        ("note" if len(finding.notes) == 1 else "notes", finding.notes),
    ]
    return [(name, lines) for name, lines in listed if lines]


def kind_text(claim: Claim) -> str:
    """'learned: training made it so: …'."""
    return f"{claim.kind}: {KINDS[claim.kind]}"


def sources(claim: Claim) -> list[str]:
    """The claim's sources with their titles; what is no code of ours, as it is."""
    known = [f"{code}: {SOURCES[code]}" for code in re.findall(r"S\d", claim.source) if code in SOURCES]
    return known or [claim.source]


def changed_rules(claim: Claim) -> list[str]:
    """Changes of the rule after results had been seen, a line each."""
    return [f"{change.date}: {change.reason}" for change in claim.changes]
