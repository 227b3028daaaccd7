"""A study of the laboratory as text."""

import math
import textwrap

from armillary.lab.study.conclusions.outcome import StudyOutcome
from armillary.lab.study.conclusions.paired_runs import LEAST, PairedComparison
from armillary.results.claim import Verdict
from armillary.results.numbers import interval, say
from armillary.results.table import Cell, Column, Table
from armillary.views.figures.marks import MARKS
from armillary.views.text.quoting import show_text
from armillary.views.text.survey import as_text, print_lines, table_lines

COLUMNS = (
    Column("arm", "what was changed"),
    Column("parameters", "of the whole model"),
    Column("rate", "learning rate of the paired runs"),
    Column("usable", "largest learning rate within 0.1 nats of the best, over the smallest"),
    Column("sensitivity", "mean over learning rates of the loss beyond the best one's", "nats/token"),
    Column("loss", "held-out loss at the end, mean of the seeds", "nats/token"),
    Column("best", "lowest held-out loss during training, mean of the seeds", "nats/token"),
    Column("seeds", "paired runs"),
    Column("difference", "loss less the reference's, same order of the text", "nats/token"),
    Column("p", "paired t test, before correction"),
    Column("diverged", "paired runs whose loss became NaN or infinite"),
    Column("outcome", "after Holm's correction"),
    Column("needed", "seeds that would decide"),
    Column("seconds", "of one run"),
)


OUTCOME_MARKS = {"better": "▲", "equivalent": "≡", "undecided": "○", "worse": "▼", "diverged": "✕"}
COST_COLUMNS = (
    Column("arm", "what was changed"),
    Column("parameters", "of the whole model, over the reference's"),
    Column("FLOPs", "of training, matrix products only, over the reference's"),
    Column("time", "of a training step, over the reference's"),
    Column("equal steps", "difference in loss at equal steps", "nats/token"),
    Column("equal FLOPs", "difference at equal FLOPs; the dearer arm is read from its curve", "nats/token"),
    Column("equal time", "difference at equal time, likewise", "nats/token"),
    Column("best checkpoint", "difference of the best checkpoints", "nats/token"),
)


def cost_table(study: StudyOutcome) -> Table:
    """Every arm at equal steps, FLOPs and time, and by its best checkpoint."""
    by_arm = {c.arm: c for c in study.comparisons}
    by = [by_arm, study.at_equal("flops"), study.at_equal("step_seconds"), study.by_best()]
    reference, rows = study.reference, []
    for arm in study.arms:
        ratios = (arm.parameters / reference.parameters, arm.flops / reference.flops,
                  arm.step_seconds / reference.step_seconds)  # fmt: skip
        shares = [None if math.isnan(ratio) else say(ratio, ".3f") for ratio in ratios]
        rows.append((arm.name, *shares, *(_difference(each.get(arm.name)) for each in by)))
    return Table(COST_COLUMNS, tuple(rows))


def geometry_table(study: StudyOutcome) -> Table | None:
    """What each arm's end state looks like at its norms, and its verdicts; None where none was surveyed."""
    states = study.geometry
    if not states:
        return None
    numbers = list(dict.fromkeys(name for state in states.values() for name in state.numbers))
    claims = list(dict.fromkeys(name for state in states.values() for name in state.claims))
    columns = [Column("arm", "what was changed")]
    columns += [Column(name, MEANINGS.get(name, "")) for name in numbers] + [Column(name, "verdict") for name in claims]
    rows = [
        (arm, *(state.numbers.get(name) for name in numbers), *(_verdict(state.claims.get(name)) for name in claims))
        for arm, state in states.items()
    ]
    return Table(tuple(columns), tuple(rows))


def _verdict(decision: tuple[Verdict, str] | None) -> str | None:
    return None if decision is None else f"{MARKS[decision[0]]} {decision[1]}"


MEANINGS = {
    "length": "of the vectors that enter a norm, mean over norms",
    "last length": "of those that enter the last norm",
    "spread of lengths": "standard deviation over mean, before the norm",
    "spread after the norm": "the same after it: 0 on a sphere",
    "mean cosine": "of two tokens' directions before the norm; 0 is isotropic",
    "effective rank": "participation ratio of the directions before the norm",
    "effective rank after": "the same after the norm",
    "top axis": "share of the variance after the norm that one axis has",
}


def _difference(compared: PairedComparison | None) -> str | None:
    if compared is None or compared.seeds < LEAST:
        return None
    return f"{OUTCOME_MARKS[compared.outcome]} {interval(compared.difference, compared.low, compared.high)}"


def study_table(study: StudyOutcome) -> Table:
    """One row per arm."""
    return Table(COLUMNS, tuple(_row(study, index) for index in range(len(study.arms))))


def _row(study: StudyOutcome, index: int) -> tuple[Cell, ...]:
    arm = study.arms[index]
    usable = None if math.isnan(arm.breadth) else f"{arm.breadth:g}×"
    head: tuple[Cell, ...] = (
        arm.name, arm.parameters, None if arm.rate is None else say(arm.rate, "g"), usable, _known(arm.sensitivity),
        _known(arm.loss), _known(arm.best), len(arm.losses),
    )  # fmt: skip
    c = study.compared(arm.name)
    if c is None:
        outcome = "reference" if index == 0 else "diverged" if arm.rates and not arm.usable else ""
        return (*head, None, None, None, outcome, None, arm.seconds)
    difference = interval(c.difference, c.low, c.high) if c.seeds >= 3 else None
    p = say(c.p, ".2g") if c.seeds >= 3 else None
    return (*head, difference, p, c.diverged, c.outcome, c.seeds_needed or None, arm.seconds)


def study_text(study: StudyOutcome, width: int | None = None) -> str:
    """The table of arms, what each was predicted to do, and what pairing gained."""
    size = study.manifest.get("size", {})
    shape = f"{size.get('layers', '?')} layers of width {size.get('width', '?')}"
    name = f"{show_text(study.name)}, size {show_text(size.get('name', '?'))}"
    lines = [
        f"{name}: {shape}, {size.get('tokens', 0):,} tokens a run; {study.reference.name} is the reference",
        "",
    ]
    table = as_text(lambda console: print_lines(table_lines(study_table(study), console.width), console), width).rstrip(
        "\n"
    )
    lines += [table, ""]
    if study.comparisons:
        marks = " ".join(f"{mark} {outcome}" for outcome, mark in OUTCOME_MARKS.items())
        lines += [f"Equal steps, FLOPs and time; ratios are over the reference's ({marks}):"]
        shown = cost_table(study)
        costs = as_text(lambda console: print_lines(table_lines(shown, console.width), console), width)
        lines += [costs.rstrip("\n"), ""]
    states = geometry_table(study)
    if states is not None:
        drawn = as_text(lambda console: print_lines(table_lines(states, console.width), console), width)
        lines += ["End states, first seed:", drawn.rstrip("\n"), ""]
    lines += ["Predicted beforehand:"]
    lines += [line for arm in study.arms for line in textwrap.wrap(f"{arm.name}: {arm.prediction}", 100)]
    gains = [gain for arm in study.arms[1:] if not math.isnan(gain := study.pairing(arm.name))]
    if gains:
        lines += ["", f"The shared order of the text takes away {max(gains):.0%} of a difference's variance at best."]
    lines += verdict_paragraphs(study)
    lines += ["", *study.notes] if study.notes else []
    return "\n".join(lines) + "\n"


def verdict_paragraphs(study: StudyOutcome) -> list[str]:
    """The claims that the study decides, with their verdicts."""
    lines: list[str] = []
    for claim, decision in study.verdicts().items():
        sentence = f"{MARKS[decision.verdict]} {claim} is {decision.verdict}. {decision.reading}"
        lines += ["", *textwrap.wrap(sentence, 100)]
    return lines


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
