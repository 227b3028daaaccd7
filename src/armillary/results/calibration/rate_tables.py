"""Rates, power and agreement as tables."""

from armillary.results.calibration.aims import by_budget, by_text, main_counts
from armillary.results.calibration.counts import Calibration, Counts, commonest, in_words
from armillary.results.claim import VERDICTS
from armillary.results.numbers import count, interval
from armillary.results.table import Cell, Column, Table

NONE = "no verdict possible"


def rates_table(calibration: Calibration) -> Table:
    """Every rate with Wilson's interval: one row per claim, setting and verdict."""
    columns = (
        Column("part", "untrained models, seeds of a survey, or planted models"),
        Column("claim", "the claim's id"),
        Column("kind", "learned, behaviour or definition"),
        Column("subject", "architecture, model or planted case"),
        Column("text", "the text that was read; empty for several"),
        Column("tokens", "the budget"),
        Column("strength", "the share of a planted effect's full size"),
        Column("verdict", "the verdict that is counted"),
        Column("count", "runs with this verdict"),
        Column("n", "all runs that could have given a verdict"),
        Column("apart", "runs that could not have given a verdict, which n leaves out"),
        Column("rate", "count / n"),
        Column("low", "lower end of Wilson's 95 % interval"),
        Column("high", "upper end of it"),
    )
    rows: list[tuple[Cell, ...]] = []
    for counts in calibration.counts:
        setting = (counts.subject, counts.text, counts.tokens, counts.strength)
        for verdict in VERDICTS:
            measured = (verdict, counts.of(verdict), counts.n, counts.apart, *counts.rate(verdict))
            rows.append((counts.part, counts.claim, calibration.kinds[counts.claim], *setting, *measured))
    return Table(columns, tuple(rows))


def untrained_table(calibration: Calibration) -> Table:
    """One row per claim: how often each verdict came out on untrained models."""
    columns = [
        Column("claim", "the claim's id"),
        Column("kind", "learned, behaviour or definition"),
        Column("n", "untrained models"),
        *(Column(verdict, f"models on which it was {verdict}") for verdict in VERDICTS),
        Column(NONE, "models that could not have given a verdict, which n leaves out"),
        Column("rate of support", "share of models with support, and Wilson's 95 % interval"),
    ]
    rows: list[tuple[Cell, ...]] = []
    for claim, kind in calibration.kinds.items():
        counts = calibration.untrained(claim)
        if counts is not None:
            each = [counts.of(verdict) for verdict in VERDICTS]
            rate = interval(*counts.rate("supported")) if counts.n else None
            rows.append((claim, kind, counts.n, *each, counts.apart, rate))
    return _without(_without(Table(tuple(columns), tuple(rows)), "failed", 0), NONE, 0)


def planted_table(calibration: Calibration) -> Table:
    """One row per planted model: in how many runs it came out as planted, by strength."""
    strengths = sorted({strength for case in calibration.cases for strength in case.strengths})
    columns = [
        Column("planted model", "its name"),
        Column("claim", "the claim's id"),
        Column("must be", "the verdict that was planted"),
        *(Column(f"at {strength:g}", "runs that came out so, of all runs at this strength") for strength in strengths),
        Column("at full strength", "the rate, and Wilson's 95 % interval"),
    ]
    rows: list[tuple[Cell, ...]] = []
    for case in calibration.cases:
        measured = calibration.planted(case.name)
        if not measured:
            continue
        each = [f"{c.of(case.verdict)} of {c.n}" if (c := measured.get(s)) else None for s in strengths]
        full = measured.get(1.0)
        rate = interval(*full.rate(case.verdict)) if full else None
        rows.append((case.name, case.claim, case.verdict, *each, rate))
    return Table(tuple(columns), tuple(rows))


def seeds_table(calibration: Calibration) -> Table:
    """One row per claim and model: the verdict, how many seeds agree, and what other texts and budgets say."""
    columns = (
        Column("claim", "the claim's id"),
        Column("model", "the model"),
        Column("verdict", "the commonest verdict on the first text at the main budget"),
        Column("seeds", "seeds that give it, of all that could give a verdict"),
        Column(NONE, "seeds that could not"),
        Column("other texts", "texts of which the commonest verdict is another one"),
        Column("other budgets", "numbers of tokens at which it is another one"),
    )
    rows: list[tuple[Cell, ...]] = []
    for claim in calibration.kinds:
        for model in calibration.study.models:
            main = main_counts(calibration, claim, model)
            if main is not None:
                rows.append((claim, model, *_agreed(main), main.apart, *_turns(calibration, claim, model)))
    table = Table(columns, tuple(rows))
    for name, nothing in ((NONE, 0), ("other texts", ""), ("other budgets", "")):
        table = _without(table, name, nothing)
    return table


def _without(table: Table, name: str, nothing: Cell) -> Table:
    """Without a column in which every cell says nothing."""
    if any(cell != nothing for cell in table.column(name)):
        return table
    at = table.names.index(name)
    rows = tuple(row[:at] + row[at + 1 :] for row in table.rows)
    return Table(table.columns[:at] + table.columns[at + 1 :], rows)


def _agreed(counts: Counts) -> tuple[str, str]:
    return in_words(counts), f"{commonest(counts)[1]} of {counts.n}"


def _turns(calibration: Calibration, claim: str, model: str) -> tuple[str, str]:
    texts = {text: in_words(counts) for text, counts in by_text(calibration, claim, model).items()}
    budgets = by_budget(calibration, claim, model)
    main = texts[calibration.study.texts[0]]
    turned = (
        [f"{text}: {verdict}" for text, verdict in texts.items() if verdict != main],
        [f"{count(tokens)}: {verdict}" for tokens, verdict in budgets.items() if verdict != main],
    )
    others = (len(texts) > 1, len(budgets) > 1)
    texts_said, budgets_said = (
        ", ".join(t) or ("same" if more else "") for t, more in zip(turned, others, strict=True)
    )
    return texts_said, budgets_said
