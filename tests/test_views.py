"""Is what a reader sees what was measured: whole, aligned, escaped, on one screen?"""

import csv
import io
import math
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import armillary
from armillary.errors import OutputError
from armillary.probes.machinery.verdicts import undecided
from armillary.results import VERDICTS, Part, Quantity, RuleChange, Statistic, Survey, Table, Why
from armillary.results.numbers import interval, interval_parts, number, say
from armillary.results.store import SCHEMA
from armillary.results.table import Column
from armillary.views import save as saving
from armillary.views.figures.figure import drawn, figure
from armillary.views.figures.marks import COLOURS, MARKS
from armillary.views.figures.scales import label_axis
from armillary.views.report.notebook import finding_html, ledger_html
from armillary.views.report.report import report_html
from armillary.views.save import save_finding, save_ledger, save_survey
from armillary.views.text.ledger import Form, GrowingLedger, ledger_text, print_ledger
from armillary.views.text.papers.exports import ledger_export, table_export
from armillary.views.text.papers.methods import methods_text
from armillary.views.text.quoting import show_text, show_token
from armillary.views.text.survey import claim_text, claims_list_text, finding_text, table_lines

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))
EVIL = SYNTHETIC["EVIL"]


@pytest.fixture(scope="module")
def survey() -> Survey:
    return SYNTHETIC["synthetic_survey"]()


@pytest.fixture(scope="module")
def hostile() -> Survey:
    return SYNTHETIC["hostile_survey"]()


def test_kinds_are_marked_and_counted_apart(survey: Survey) -> None:
    kinds = ("definition", "learned")
    findings = [replace(f, claim=replace(f.claim, kind=k)) for f, k in zip(survey.findings, kinds, strict=False)]
    two = replace(survey, findings=tuple(findings))
    marks = [MARKS[finding.verdict] for finding in findings]
    text = ledger_text(two, 80)
    assert f"Verdicts: learned {marks[1]} 1   by definition (no findings) {marks[0]} 1" in " ".join(text.split("\n"))
    for finding in findings:
        assert re.search(rf"{re.escape(finding.id)} +{finding.verdict} +{finding.claim.kind} ", text)
        assert finding.claim.kind in claim_text(finding.claim)
    page = ledger_html(two)
    assert "by definition (no findings)" in page
    assert "learned" in page


def test_every_part_is_shown_with_its_verdict(survey: Survey) -> None:
    parts = (
        Part("early", "supported", "It <b>holds</b>.", Statistic("share", 0.9, 0.8, 1.0)),
        Part("late", "undecided", "Too close.", asserted=False, why=Why.SPANS_LIMIT),
    )
    finding = replace(survey.findings[0], parts=parts)
    text = " ".join(finding_text(finding, 120).split())
    assert "● supported · early: It <b>holds</b>. [share: 0.90 [0.80, 1.00]]" in text
    assert "○ undecided (the interval spans the limit) · late, added by Armillary: Too close." in text
    assert "It <b>holds" not in finding_html(finding)
    assert "It &lt;b&gt;holds" in finding_html(finding)


# ---- numbers and words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.82345, "0.823"), (9999, "9,999"), (12345.0, "1.23e4"), (0.001, "0.00100"), (0.0009, "9.00e-4"),
     (-0.5, "−0.500"), (float("inf"), "∞"), (1e-320, "1.00e-320")],
)  # fmt: skip
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "spec", "shown"),
    [(-0.9612, ".2f", "−0.96"), (-1.2e-7, ".2g", "−1.2e-7"), (3e10, ".1e", "3.0e10"), (-0.0, ".3g", "0"),
     (-0.004, ".2f", "0.00"), (-0.05, ".0%", "−5%"), (1234.5, ",.0f", "1,234"), (-3, "d", "−3"),
     (0.5, "+.1f", "+0.5"), (-0.5, "+.1f", "−0.5"), (float("nan"), ".2g", "–"), (float("-inf"), ".2g", "−∞")],
)  # fmt: skip
def test_numbers_in_sentences(value: float, spec: str, shown: str) -> None:
    assert say(value, spec) == shown


def test_an_interval_is_never_shown_empty_when_it_is_not() -> None:
    assert interval(0.99997, 0.99995, 0.99998) == "0.99997 [0.99995, 0.99998]"
    assert interval(0.82, 0.79, 0.85) == "0.820 [0.790, 0.850]"
    assert interval(3.0, 3.0, 3.0) == "3"
    assert interval(3e-7, 1e-7, 5e-7) == "3.00e-7 [1.00e-7, 5.00e-7]"


def test_tokens_are_one_visible_inert_line() -> None:
    assert show_token("a\x1b[31m\u202eb") == "a⟨1B⟩[31m⟨202E⟩b"
    assert show_token("<0xE2>") == "⟨E2⟩"
    assert show_token("עברית") == "\u2068עברית\u2069"
    assert show_token("\u0301") == "\u2068◌\u0301\u2069"
    assert show_token(" ") == "␣"
    assert show_text("two words\n") == "two words⏎"
    assert len(show_token("x" * 99)) == 24


# ---- terminal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "lines"), [(110, 42), (100, 46), (80, 52)])
def test_a_chapter_fits_one_screen(survey: Survey, width: int, lines: int) -> None:
    shown = ledger_text(survey, width, folder="runs/here").splitlines()
    assert len(shown) <= lines
    assert max(map(cell_len, shown)) <= width
    for finding in survey:
        row = next(line for line in shown if f" {finding.id} " in line)
        assert f"{MARKS[finding.verdict]} {finding.id}" in row
        assert finding.verdict in row
    whole = " ".join(" ".join(shown).split())
    assert "41.7" in whole
    assert "87 [61, 132]" in " ".join(whole.split())
    assert "; random directions: 0.0332)" in whole
    assert "worst: heads at L3, error 1.20e-6" in whole
    assert "runs/here" in whole
    assert "16,384 tokens" in whole


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_sentence_of_the_ledger_is_cut(survey: Survey, width: int) -> None:
    long = replace(survey, findings=tuple(replace(f, headline="word " * 60 + "END") for f in survey))
    for form in ("standard", "full"):
        shown = " ".join(ledger_text(long, width, form=form).split())
        assert "…" not in shown
        assert shown.count("word END") == len(survey)
        for finding in survey:
            assert " ".join(finding.claim.statement.split()) in shown


@pytest.mark.parametrize("width", [48, 60, 70, 80, 120])
@pytest.mark.parametrize("form", ["brief", "standard", "full"])
def test_no_line_is_wider_than_the_screen(survey: Survey, form: Form, width: int) -> None:
    long = "distance to real text at ln_final, mean over ranges of tokens"
    table = Table((Column("quantity", "", ""), Column("arm", "", "")), ((long, long), (long, None)))
    wide = replace(survey, findings=tuple(replace(f, more_tables={"more": table}) for f in survey))
    shown = ledger_text(wide, width, form=form)
    assert max(map(cell_len, shown.splitlines())) <= width
    for finding in survey:
        low, high = finding.statistic.low, finding.statistic.high
        assert interval_parts(finding.statistic.value, low, high)[1] in " ".join(shown.split()), (
            "numbers move, not vanish"
        )


def test_labels_of_a_table_are_whole_where_they_fit() -> None:
    label = "distance to real text at ln_final"
    table = Table((Column("quantity", "", ""), Column("value", "", "share of attention")), ((label, 0.5),))
    assert label in "\n".join(line.plain for line in table_lines(table, 80))


def test_the_ledger_has_three_forms(survey: Survey) -> None:
    brief, standard, full = (ledger_text(survey, 110, form=form) for form in ("brief", "standard", "full"))
    assert len(brief.splitlines()) < len(standard.splitlines()) < len(full.splitlines())
    for finding in survey:
        rows = [line for line in brief.splitlines() if f" {finding.id} " in line]
        assert len(rows) == 1 and finding.verdict in rows[0]
        assert finding.claim.statement not in brief
        assert show_text(finding.headline).split(" (")[0][:40] in " ".join(standard.split())
        assert " ".join(finding.claim.rule.split()) in " ".join(full.split())


def test_maps_of_many_cells_have_no_gaps() -> None:
    """Cells of two pixels with gaps of one are all the colour of the ground."""
    for many, gap in ((8, 1), (300, 0)):
        names = [f"w{i}" for i in range(many)]
        coords = {"query": names, "key": names}
        shares = Quantity("attention", "share", "share", ("query", "key"), coords, np.eye(many))
        (trace,) = drawn([shares], "a head", "").data
        assert (trace.xgap, trace.ygap) == (gap, gap)


def test_marks_differ_and_are_one_column_wide() -> None:
    assert set(MARKS) == set(COLOURS) == set(VERDICTS)
    assert len(set(MARKS.values())) == len(set(COLOURS.values())) == 5
    assert {cell_len(mark) for mark in MARKS.values()} == {1}


def test_a_failed_claim_is_a_row_in_every_view(survey: Survey) -> None:
    failed = SYNTHETIC["failed"](survey)
    assert re.search(r"! sphere\.plane +failed +behaviour +–", ledger_text(failed, 110))
    assert "! 1" in ledger_text(failed, 110)
    assert "The probe raised ValueError: no such thing" in finding_text(failed["sphere.plane"], 110)
    assert re.match(r"! sphere\.plane +failed\n", finding_text(failed["sphere.plane"], 110))
    for page in (ledger_html(failed), finding_html(failed["sphere.plane"])):
        assert f"style='color:{COLOURS['failed']}'>!</span>" in page
    assert "1 failed" in failed.ledger().plot().layout.title.text
    assert figure(failed["sphere.plane"]).layout.title.subtitle.text.count("failed") == 1
    assert failed.ledger().to_frame().verdict.tolist().count("failed") == 1


def test_an_undecided_claim_says_why(survey: Survey) -> None:
    why = "the interval spans the limit"
    assert " ".join(ledger_text(survey, 110).split()).count(why) == 1
    assert why in finding_text(survey["spectrum.dimension"], 110)
    assert why in ledger_html(survey)
    assert why in finding_html(survey["spectrum.dimension"])
    assert why in figure(survey["spectrum.dimension"]).layout.title.subtitle.text


def test_a_claim_without_a_number_says_what_is_missing(survey: Survey) -> None:
    """'Too little text' alone does not say how much more."""
    reading = "A verdict needs 1,920 tokens; the text has 300."
    empty = undecided(survey.findings[0].claim, Why.TOO_LITTLE_TEXT, reading)
    measured = replace(empty, statistic=Statistic("share", 0.5, 0.4, 0.6), headline="Half of the tokens")
    for finding, shown, hidden in ((empty, reading, "Nothing can be"), (measured, "Half of the tokens", reading)):
        text = " ".join(ledger_text(replace(survey, findings=(finding,)), 110).split())
        assert f"too little text: {shown}" in text and hidden not in text


def test_changed_rules_are_listed(survey: Survey) -> None:
    claim = replace(survey.findings[0].claim, changes=(RuleChange("2025-11-02", "the old limit was below rounding"),))
    for shown in (claim_text(claim, 110), finding_text(replace(survey.findings[0], claim=claim), 110)):
        assert re.search(" changed +2025-11-02: the old limit was below rounding", shown)


def test_the_ledger_grows_row_by_row(survey: Survey) -> None:
    out = io.StringIO()
    ledger = GrowingLedger(Console(file=out, width=110), max(len(finding.id) for finding in survey))
    lengths = []
    for n in range(len(survey) + 1):
        ledger.grow(replace(survey, findings=survey.findings[:n]))
        lengths.append(len(out.getvalue()))
        assert [finding.id in out.getvalue() for finding in survey] == [i < n for i in range(len(survey))]
    assert lengths == sorted(set(lengths)), "each claim is printed as it comes, and once"
    ledger.end(survey, "runs/here")
    assert out.getvalue().rstrip("\n") == ledger_text(survey, 110, folder="runs/here")


def test_colour_only_when_asked(survey: Survey) -> None:
    assert "\x1b" not in ledger_text(survey, 110)
    assert "\x1b[38;2;27;127;121m●" in ledger_text(survey, 110, colour=True)
    piped = Console(file=io.StringIO(), width=110)
    print_ledger(survey, piped)
    assert "\x1b" not in piped.file.getvalue()  # type: ignore[attr-defined]


LINES = ("Two numbers are compared.", "Supported if they agree.", "Refuted if they differ by 2 or more.")


def test_every_view_shows_a_rule_line_by_line(survey: Survey, tmp_path: Path) -> None:
    first = survey.findings[0]
    claim = replace(first.claim, rule="\n".join(LINES), definition="A.\nB.", control="C.\nD.", question="Is it so?")
    finding = replace(first, claim=claim)
    shown = [line.strip() for line in claim_text(claim, 100).splitlines()]
    assert shown[shown.index(f"rule        {LINES[0]}") :][:3] == [f"rule        {LINES[0]}", *LINES[1:]]
    for name, line, after in (("definition", "A.", "B."), ("control", "C.", "D.")):
        assert shown[shown.index(f"{name:<11} {line}") + 1] == after
    assert "question    Is it so?" in shown
    assert LINES[1] in [line.strip() for line in finding_text(finding, 100).splitlines()]
    assert "<br>".join(LINES) in finding_html(finding)
    page = report_html(replace(survey, findings=(finding,)))
    assert "<br>".join(LINES) in page and "A.<br>B." in page and "C.<br>D." in page and "Is it so?" in page


def test_a_finding_is_told_in_full(survey: Survey) -> None:
    shown = finding_text(survey["sphere.concentration"], 100)
    finding = survey["sphere.concentration"]
    flat = " ".join(shown.split())
    for words in (
        finding.claim.statement,
        *finding.claim.rule.split("\n"),
        finding.reading,
        finding.headline,
        "S0, S2, S3",
    ):
        assert words in flat
    assert re.search(r"10,000 +0\.00693 +0\.00707 +0\.0143 +0\.0141", shown)
    points = {line.index(".") for line in shown.splitlines() if re.match(r" +[\d,]+ +0\.\d+ +0\.\d+ ", line)}
    assert len(points) == 1, "the first decimal points stand in one column"


def test_wide_tables_wrap_under_their_first_column(survey: Survey) -> None:
    table = survey["sphere.concentration"].more_tables["monte-carlo"]
    shown = finding_text(replace(survey.findings[0], more_tables={"t": table}), 60)
    assert max(map(cell_len, shown.splitlines())) <= 60
    assert shown.count("10,000") == 2


def test_long_tables_are_folded(survey: Survey) -> None:
    """A further table stands open on a page, unless it would take more than a screen."""
    table = survey["sphere.concentration"].more_tables["monte-carlo"]
    for times, folded in ((1, False), (41, True)):
        long = replace(table, rows=table.rows * times)
        page = finding_html(replace(survey.findings[0], more_tables={"lengths": long}))
        assert ("<h2>lengths</h2>" in page) != folded
        assert (f"<details><summary>lengths, {len(long.rows):,} rows</summary>" in page) == folded


def test_claims(survey: Survey) -> None:
    claims = [finding.claim for finding in survey]
    shown = claim_text(claims[0], 80)
    for word in ("definition", "control", "rule", "source", claims[0].statement, "by half"):
        assert word in shown
    listed = claims_list_text(claims, 80)
    assert listed.startswith("A. The sphere\n  sphere.radius         Normalised features have length √d.")
    assert all(claim.id in listed for claim in claims)


def test_hostile_words_do_nothing_in_the_terminal(hostile: Survey) -> None:
    for shown in (ledger_text(hostile, 110), *(finding_text(f, 100) for f in hostile)):
        assert "\x1b" not in shown
        assert "[red]" in shown, "square brackets are words, not rich's markup"


# ---- saving ---------------------------------------------------------------------------------------------


def test_a_survey_is_saved_before_its_figures(survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(survey, findings=survey.findings[:2])

    def broken(*_: object) -> Path:
        assert (tmp_path / "survey.json").exists() and not (tmp_path / "figures").exists()
        raise OutputError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(saving, "draw", broken)
        with pytest.raises(OutputError, match="stop"):
            save_survey(small, tmp_path)
    assert len(armillary.read(tmp_path)) == 2, "a full disk costs pictures alone"
    assert small.save(tmp_path) == tmp_path / "survey.json"
    names = ["plotly.min.js", "sphere.plane.html", "sphere.radius.html"]
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == names


def test_endings(survey: Survey, tmp_path: Path) -> None:
    finding = survey["sphere.plane"]
    assert (
        finding.save(tmp_path / "f.csv").read_text("utf-8", "surrogatepass").startswith("site,value,n,top token,flat\n")
    )
    assert '"id": "sphere.plane"' in finding.save(tmp_path / "f.json").read_text()
    assert finding.headline in finding.save(tmp_path / "new" / "f.html").read_text()
    assert "sphere.plane,refuted" in save_ledger(survey, tmp_path / "l.csv").read_text()
    assert "<table" in save_ledger(survey, tmp_path / "l.html").read_text()
    assert f'"schema": {SCHEMA}' in save_ledger(survey, tmp_path / "l.json").read_text()
    assert finding.save(tmp_path / "f.tex").read_text("utf-8").count("\\begin{") >= 1
    assert "| site |" in finding.save(tmp_path / "f.md").read_text("utf-8")
    with pytest.raises(OutputError, match=r"ends in '\.gif'; choose one of \.html \.svg \.pdf \.png \.csv"):
        save_finding(finding, tmp_path / "f.gif")
    with pytest.raises(OutputError, match="has no ending"):
        save_ledger(survey, tmp_path / "ledger")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        save_finding(finding, tmp_path / "file" / "f.csv")


def test_pictures_without_matplotlib_say_what_to_do(
    survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OutputError, match=r"pip install 'armillary\[paper\]', or save as \.svg"):
        save_finding(survey["sphere.plane"], tmp_path / "f.png")
    assert not (tmp_path / "f.png").exists()
    assert save_finding(survey["sphere.plane"], tmp_path / "f.svg").exists()


def test_text_views_start_without_heavy_imports() -> None:
    code = (
        "import sys, armillary.views.text.survey, armillary.views.report.notebook, armillary.results.store;"
        "print([m for m in ('torch', 'plotly', 'pandas', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_empty_tables_and_surveys(survey: Survey) -> None:
    bare = replace(survey.findings[0], table=Table((), ()), quantities=(), controls=(), notes=())
    empty = replace(survey, findings=())
    assert "no control" in figure(bare).to_json()
    assert "controls    none" in finding_text(bare, 80)
    assert "Armillary" in ledger_text(empty, 80)
    assert "<div" in ledger_html(empty)
    assert "<div" in finding_html(bare)


def test_the_last_state_of_a_way_is_its_end():
    """L6.resid_post whole would run into the legend, and L6 is named already; ln_final is no place of a layer."""
    states = [f"L{i}.{place}" for i in range(7) for place in ("resid_pre", "resid_mid")]
    assert label_axis([*states, "L6.resid_post"], "state").ticktext == (*(f"L{i}" for i in range(7)), "end")
    assert label_axis([*states, "ln_final"], "state").ticktext[-1] == "ln_final"


# ---- for papers -----------------------------------------------------------------------------------------


def test_the_ledger_for_a_spreadsheet_has_every_number(survey: Survey) -> None:
    rows = list(csv.DictReader(io.StringIO(ledger_export(survey, "csv"))))
    assert [row["claim"] for row in rows] == [finding.id for finding in survey]
    for row, finding in zip(rows, survey, strict=True):
        assert float(row["value"]) == finding.statistic.value or math.isnan(finding.statistic.value)
        assert [row[f"control_{i}"] for i, _ in enumerate(finding.controls, 1)] == [c.name for c in finding.controls]
        assert row["statement"] == finding.claim.statement


def test_foreign_text_stays_inside_its_cell(hostile: Survey) -> None:
    markdown = ledger_export(hostile, "markdown")
    assert "script" in markdown and not re.search(r"(?<!\\)<", markdown)
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("|")}
    assert widths == {7}, "six columns in every row"
    table = table_export(hostile.findings[0], "markdown")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines() if line.startswith("|")}) == 1
    assert "\\begin{tabular}" in ledger_export(hostile, "latex")


def test_the_methods_name_what_a_repetition_needs(survey: Survey) -> None:
    text = methods_text(survey)
    for needed in (survey.model.name, f"{len(survey)} claims", "16,384 tokens", survey.provenance.dtype):
        assert needed in text
    assert f"seed {survey.provenance.seed}" in text
    assert "Only weights" in methods_text(replace(survey, text=replace(survey.text, tokens=0)))
