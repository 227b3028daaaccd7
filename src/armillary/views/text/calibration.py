"""A calibration as text for a terminal, and what it says of one claim."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from armillary.results.calibration import Calibration, Counts, commonest, in_words
from armillary.results.calibration.aims import Aim, agreement, aims, main_counts, settings, silent, turned
from armillary.results.calibration.rate_tables import planted_table, seeds_table, untrained_table
from armillary.results.claim import Claim, Why
from armillary.results.numbers import count
from armillary.results.table import Table
from armillary.views.text.quoting import show_text
from armillary.views.text.summary import counted
from armillary.views.text.survey import as_text, paragraphs, print_lines, table_lines

TITLES = {
    "untrained": "Untrained models: how often each verdict came out",
    "planted": "Planted models: how often they were found, by the size of the effect",
    "seeds": "Seeds, texts and budgets: is the verdict the same?",
}


def tables(calibration: Calibration) -> dict[str, Table]:
    """Part → its table, of the parts that were run."""
    every = {
        "untrained": untrained_table(calibration),
        "planted": planted_table(calibration),
        "seeds": seeds_table(calibration),
    }
    return {part: table for part, table in every.items() if table.rows}


def calibration_text(calibration: Calibration, width: int | None = None) -> str:
    return as_text(lambda console: print_calibration(calibration, console), width)


def print_calibration(calibration: Calibration, console: Console, folder: Path | None = None) -> None:
    width = min(console.width, 120)
    lines = [Text("Armillary · calibration", "bold"), *paragraphs([about(calibration)], width)]
    for part, table in tables(calibration).items():
        lines += [Text(), Text(TITLES[part], "bold"), *table_lines(table, width, len(table.rows))]
    foot = [*agreement_lines(calibration), *map(aim_line, aims(calibration))]
    foot += map(show_text, [*older_lines(calibration), *error_lines(calibration)])
    foot += [f"Files: {show_text(str(folder))}"] if folder else []
    print_lines([*lines, Text(), *paragraphs(foot, width)], console)


def about(calibration: Calibration) -> str:
    """'226 runs · 120 untrained models (gpt of 4 layers and width 96, …) · … · rules 2 · 2026-11-16'."""
    study = calibration.study

    def shape(name: str) -> str:
        known = calibration.shapes.get(name)
        return f"{name} of {counted(known['layers'], 'layer')} and width {known['width']}" if known else name

    parts = [f"{count(calibration.runs)} runs"]
    if study.untrained:
        parts.append(f"{study.untrained} untrained models ({', '.join(map(shape, study.architectures))})")
    if study.seeds:
        parts.append(f"{', '.join(study.models)} over {study.seeds} seeds")
        parts.append(f"texts: {', '.join(study.texts)}")
    parts.append(f"tokens: {', '.join(map(count, study.tokens))}{', quick' if study.quick else ''}")
    if study.planted and calibration.cases:
        parts.append(f"{len(calibration.cases)} planted models, {study.planted} draws at each strength")
    parts += [f"rules {calibration.rules_version}", calibration.date]
    return show_text(" · ".join(part for part in parts if part))


def aim_line(aim: Aim) -> str:
    if not aim.checked:
        return f"Aim not checked: {aim.aim}"
    if aim.met:
        return f"Aim met: {aim.aim} ({aim.checked} checked)"
    return f"Aim missed: {aim.aim}: {len(aim.missed)} of {aim.checked}: {show_text(', '.join(aim.missed))}"


def agreement_lines(calibration: Calibration) -> Iterator[str]:
    for model, text, tokens in settings(calibration):
        equal, n = agreement(calibration, model, text, tokens)
        apart = silent(calibration, model, text, tokens)
        if n or apart:
            share = f"{equal} of {n} verdicts ({equal / n:.1%})" if n else "no verdicts"
            more = f"; {sum(apart.values())} more could not be given ({_reasons(apart)})" if apart else ""
            yield show_text(
                f"{model} on {text}, {count(tokens)} tokens: {share} are their claim's commonest over seeds{more}"
            )


def _reasons(apart: Mapping[str, int]) -> str:
    return ", ".join(f"{Why[name].value} {n}" for name, n in apart.items())


def older_lines(calibration: Calibration) -> Iterator[str]:
    """What a calibration of an earlier version cannot say."""
    read = [counts for counts in calibration.counts if counts.part != "planted"]
    if any(counts.silent is None for counts in read):
        yield (
            "Part of this was counted before reasons were stored: there, a run that could not have given a verdict "
            "(too few documents, too little text, does not apply, no checkpoints) counts as undecided, and as "
            "agreement over seeds."
        )
    if unknown := [text for text in calibration.study.texts if read and text not in calibration.texts]:
        names = ", ".join(unknown)
        yield f"What these texts held was not stored for all runs, so that two texts of one name may be mixed: {names}."


def error_lines(calibration: Calibration) -> list[str]:
    return [f"Run without a result: {error}" for error in calibration.errors]


def claim_lines(calibration: Calibration, claim: str, today: Claim | None = None) -> list[str]:
    """What a calibration says of one claim, a line each; none if it was not measured. `today` is the claim as it is
    now."""
    lines = [*_untrained_line(calibration, claim), *_planted_lines(calibration, claim)]
    lines += _seed_lines(calibration, claim)
    if lines and today is not None and not calibration.current(today):
        lines.append(f"measured on {calibration.date} by an earlier rule: these numbers are not those of today's rule")
    return lines


def _untrained_line(calibration: Calibration, claim: str) -> Iterator[str]:
    counts = calibration.untrained(claim)
    if counts is not None:
        # Support and qualification are what an untrained model should not show of a learned claim: always said.
        counted = {verdict: counts.of(verdict) for verdict in ("supported", "qualified")} | dict(counts.verdicts)
        verdicts = ", ".join(f"{verdict} {n}" for verdict, n in counted.items())
        yield f"on {counts.n} untrained models: {verdicts}{_apart(counts)}"


def _planted_lines(calibration: Calibration, claim: str) -> Iterator[str]:
    verdicts = dict.fromkeys(case.verdict for case in calibration.cases if case.claim == claim)
    for verdict in verdicts:
        cases = [case for case in calibration.cases if (case.claim, case.verdict) == (claim, verdict)]
        by_strength: dict[float, tuple[int, int]] = {}
        for strength, counts in (pair for case in cases for pair in calibration.planted(case.name).items()):
            hits, n = by_strength.get(strength, (0, 0))
            by_strength[strength] = hits + counts.of(verdict), n + counts.n
        if by_strength:
            shares = [f"{hits} of {n} at strength {s:g}" for s, (hits, n) in sorted(by_strength.items(), reverse=True)]
            yield f"planted as {verdict}: found in {', '.join(shares)}"


def _seed_lines(calibration: Calibration, claim: str) -> Iterator[str]:
    for model in calibration.study.models:
        main = main_counts(calibration, claim, model)
        if main is not None:
            verdicts, hits = commonest(main)
            sentence = f"{in_words(main)} with {hits} of {main.n} seeds"
            yield f"{model}: {sentence if len(verdicts) == 1 else in_words(main)}{_apart(main)}"
        if texts := turned(calibration, claim, model):
            yield f"{model}: turns with the text: {', '.join(f'{text} {verdict}' for text, verdict in texts.items())}"


def _apart(counts: Counts) -> str:
    return f"; {counts.apart} more could give no verdict ({_reasons(counts.silent or {})})" if counts.apart else ""
