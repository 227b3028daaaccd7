"""A study of the laboratory as one page: what it decides, a row per arm, figures, the table, how to run it again."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.conclusions.outcome import ArmOutcome, StudyOutcome
from armillary.lab.study.design import EFFECT, Arm
from armillary.results.numbers import count, interval, say
from armillary.results.store import table_csv
from armillary.views.figures.lab.study import (
    CURVES,
    FOREST,
    GAPS,
    PAIRS,
    RATES,
    StudyPanel,
    caption,
    figure_of,
    headline,
)
from armillary.views.figures.marks import COLOURS, LIGHT
from armillary.views.report.claims import article, terms
from armillary.views.report.ledger import Chip, LedgerRow, ledger_section, soft, sort_key
from armillary.views.report.notebook import mark_html, table_html
from armillary.views.report.payload import ClaimData, bare, changed
from armillary.views.report.report import assembled, masthead
from armillary.views.text.lab.study import OUTCOME_MARKS, cost_table, geometry_table, study_table
from armillary.views.text.quoting import html_text as e

_TINTS = {
    "better": COLOURS["supported"],
    "equivalent": LIGHT.second,
    "undecided": COLOURS["undecided"],
    "worse": COLOURS["refuted"],
    "diverged": COLOURS["refuted"],
}
SIGNS = {
    "reference": ("◆", LIGHT.soft),
    **{outcome: (mark, _TINTS[outcome]) for outcome, mark in OUTCOME_MARKS.items()},
    "rates only": ("·", COLOURS["undecided"]),
}
HEADINGS = {"outcome": True, "arm": False, "difference": True, "loss at its rate": True, "predicted": False}


def study_page(study: StudyOutcome) -> str:
    """The study as one self-contained page."""
    parts: list[ClaimData] = []
    sections = [verdicts_html(study), arms_html(study), *_figures(study, parts), _arms(study), _geometry(study)]
    sections.append(_manifest(study))
    places = [("ledger", "Arms"), *((name, title) for name, title, *_ in _articles(study))]
    places += [("table", "Table"), *([("geometry", "Geometry")] if study.geometry else []), ("manifest", "Manifest")]
    foot = f"The command armillary lab show writes this page again from manifest.json and runs.jsonl of {study.name}."
    above = masthead(f"Study {headline(study)}", [caption(study), *study.notes])
    return assembled(f"Armillary: {study.name}", above, places, "".join(sections), foot, parts)


def verdicts_html(study: StudyOutcome) -> str:
    """The claims that the study decides."""
    statements = {claim.id: claim.claim for claim in LAB_CLAIMS}
    articles = []
    for name, decision in study.verdicts().items():
        claim = statements[name]
        lines = "<br>".join(map(e, claim.rule.split("\n")))
        rule = f"<details class='how'><summary>Rule</summary><p class='prose'>{lines}</p></details>"
        articles.append(
            f"<article id='{e(name)}'><h3>{mark_html(decision.verdict)} {e(name)} is {decision.verdict}</h3>"
            f"<p class='kind'>{e(claim.statement)}</p><p class='reading prose'>{e(decision.reading)}</p>{rule}"
            "</article>"
        )
    return "".join(articles)


def _sign(outcome: str) -> str:
    mark, colour = SIGNS[outcome]
    return f"<span class='mark' style='color:{colour}'>{mark}</span>"


def arms_html(study: StudyOutcome) -> str:
    """One row per arm."""
    outcomes = [_outcome(study, arm) for arm in study.arms]
    seen = Counter(outcomes)
    chips = [Chip(kind, _sign(kind), seen[kind]) for kind in SIGNS if kind != "reference"]
    rows = [_row(study, arm, outcome) for arm, outcome in zip(study.arms, outcomes, strict=True)]
    return ledger_section(HEADINGS, rows, chips)


def _outcome(study: StudyOutcome, arm: ArmOutcome) -> str:
    if arm is study.reference:
        return "reference"
    compared = study.compared(arm.name)
    if compared is None:
        return "diverged" if arm.rates and not arm.usable else "rates only"
    return compared.outcome


def _row(study: StudyOutcome, arm: ArmOutcome, outcome: str) -> LedgerRow:
    compared = study.compared(arm.name)
    difference, detail, key = "–", "", math.nan
    if compared is not None and compared.seeds >= 3:
        difference, key = interval(compared.difference, compared.low, compared.high), compared.difference
        detail = f"{compared.seeds} pairs, p = {say(compared.p, '.2g')}"
    needed = f"{compared.seeds_needed} seeds would decide" if compared and compared.seeds_needed else ""
    loss = "–" if math.isnan(arm.loss) else say(arm.loss, ".3f")
    rate = "not chosen" if arm.rate is None else f"at {say(arm.rate, 'g')}"
    cells = (
        f"{_sign(outcome)} {outcome}{soft(needed)}",
        f"<b>{e(arm.name)}</b>{soft(f'{count(arm.parameters)} parameters')}",
        f"<b class='value'>{difference}</b>{soft(detail)}",
        f"{loss}{soft(rate)}",
        e(arm.prediction),
    )
    keys = (list(SIGNS).index(outcome), arm.name, sort_key(key), sort_key(arm.loss), arm.prediction)
    return LedgerRow(arm.name, f"Against {study.reference.name}", outcome, cells, keys)


def _articles(study: StudyOutcome) -> list[tuple[str, str, str, tuple[StudyPanel, ...]]]:
    """Anchor, name, sentence and panels of every figure that the study has runs for."""
    listed: list[tuple[str, str, str, tuple[StudyPanel, ...]]] = []
    if study.comparisons:
        listed.append(("differences", "Differences", headline(study), (FOREST, PAIRS)))
        listed.append(("curves", "Curves", _curve_line(study), (CURVES, GAPS)))
    if any(arm.rates for arm in study.arms):
        listed.append(("rates", "Learning rates", _rate_line(study), (RATES,)))
    return listed


def _figures(study: StudyOutcome, parts: list[ClaimData]) -> list[str]:
    drawn = []
    table = table_csv(study_table(study))
    for name, _, title, panels in _articles(study):
        wide, narrow = (bare(figure_of(study, panels, title, caption(study), narrow)) for narrow in (False, True))
        parts.append(ClaimData(f"{study.name}-{name}", wide, table, {}, {}, changed(wide, narrow)))
        drawn.append(article(name, title, "", len(parts) - 1, parts[-1], terms(*_facts(name)), _reading(study, name)))
    return drawn


def _curve_line(study: StudyOutcome) -> str:
    """Which arm ends lowest, if its difference counts."""
    better = [arm for arm in study.arms if (c := study.compared(arm.name)) is not None and c.outcome == "better"]
    reference = f"{study.reference.name}, which ends at {say(study.reference.loss, '.3f')} nats per token"
    if not better:
        return f"No arm is found better than {reference}"
    best = min(better, key=lambda arm: arm.loss)
    return f"{best.name} ends at {say(best.loss, '.3f')}, lower than {reference}"


def _rate_line(study: StudyOutcome) -> str:
    known = sorted((arm for arm in study.arms if not math.isnan(arm.sensitivity)), key=lambda arm: arm.sensitivity)
    if not known:
        return "Every learning rate diverged in every arm"
    ends = [f"{say(arm.sensitivity, '.2f')} nats ({arm.name})" for arm in (known[0], known[-1])]
    return f"Sensitivity to the learning rate: {' to '.join(ends) if len(known) > 1 else ends[0]}"


def _reading(study: StudyOutcome, name: str) -> str:
    if name == "differences":
        return f"Differences of less than {EFFECT:g} nats per token do not count, however certain they are."
    if name == "curves":
        return "An arm that is ahead early may have been overtaken at the end: only the end was decided on."
    return "The rate of the paired runs is the smallest whose worst tuning seed is within 0.01 nats of the best."


def _facts(name: str) -> Sequence[tuple[str, Sequence[str]]]:
    facts: dict[str, list[tuple[str, Sequence[str]]]] = {
        "differences": [
            ("interval", ["Student's t over pairs of runs that share the order of the text"]),
            ("better, worse", [f"at least {EFFECT:g} nats, and significant after Holm's correction over the arms"]),
            ("equivalent", [f"two one-sided tests against ± {EFFECT:g} nats, corrected likewise"]),
            ("triangles", ["differences beyond the axis, with their number"]),
        ],
        "curves": [("axis", ["arms far above the reference are cut off"])],
        "rates": [
            ("usable", ["rates within 0.1 nats of the arm's best"]),
            ("sensitivity", ["mean over the tried rates of the loss beyond the best; divergence is a uniform guess"]),
        ],
    }
    return facts[name]


def _arms(study: StudyOutcome) -> str:
    costs = ""
    if study.comparisons:
        explanation = (
            "Ratios are over the reference's. At equal FLOPs and equal time, the dearer of two arms is read from its "
            "curve at the step where the other's whole training is paid for. Its learning rate has not fallen to the "
            "end by then, so it would do better in a training of that length. Empty: not recorded; where arms shared a "
            f"device, the time of a step is not. {_legend()}"
        )
        costs = f"<h2 id='costs'>At equal steps, FLOPs and time</h2><p class='prose'>{explanation}</p>"
        costs += table_html(cost_table(study))
    return f"<section id='table'>{costs}<h2>All arms</h2>{table_html(study_table(study))}</section>"


def _legend() -> str:
    return ", ".join(f"{mark} {outcome}" for outcome, mark in OUTCOME_MARKS.items()) + "."


def _geometry(study: StudyOutcome) -> str:
    """What each arm's end state looks like; empty where none was surveyed."""
    table = geometry_table(study)
    if table is None:
        return ""
    intro = "The first seed's end state of each arm, read at its norms on held-out text; means over norms."
    if any(state.refused for state in study.geometry.values()):
        intro += " Where verdicts are missing, a survey refuses the arm: it has no description of such norms or heads."
    meanings = terms(*((column.name, [column.meaning]) for column in table.columns[1:] if column.meaning != "verdict"))
    return (
        f"<section id='geometry'><h2>Geometry of the end states</h2><p class='prose'>{e(intro)}</p>"
        f"{table_html(table)}<details><summary>What the columns mean</summary>{meanings}</details></section>"
    )


def _manifest(study: StudyOutcome) -> str:
    """How to run it again, and everything that was fixed before the first run."""
    size = study.manifest.get("size", {})
    seeds = max((len(arm.losses) for arm in study.arms), default=0)
    more = f"--seeds {seeds} " if seeds else ""
    command = f"armillary lab run {study.name} --size {size.get('name', '?')} {more}--text TEXT --out DIR"
    plain = [("runs", [count(len(study.rows))])]
    plain += [(key, [_value(value)]) for key, value in study.manifest.items() if key not in ("arms", "study")]
    arms = [(name, [_value(_changes(arm))]) for name, arm in study.manifest["arms"].items()]
    return (
        f"<section id='manifest'><h2>Manifest and command</h2><p class='prose'><code>{e(command)}</code></p>"
        f"{terms(*plain)}<h3>What each arm changes</h3>{terms(*arms)}</section>"
    )


def _changes(arm: dict[str, Any]) -> dict[str, Any]:
    """What an arm's description says beyond the defaults."""
    plain = {each.name: each.default for each in fields(Arm)}
    return {
        key: value
        for key, value in arm.items()
        if key not in ("name", "prediction") and value not in ("", [], {}) and plain.get(key) != value
    }


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(each)}" for key, each in value.items()) or "nothing"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return value if isinstance(value, str) else json.dumps(value)
