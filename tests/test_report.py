"""Does the report hold the whole survey, need nothing else, and let no word of a model become a part of the page?"""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import refused, works

from armillary.results import (
    Claim,
    Column,
    Control,
    Finding,
    LawCheck,
    ModelFacts,
    Provenance,
    Quantity,
    Statistic,
    Survey,
    Table,
    TextFacts,
    Times,
)
from armillary.results.store import table_csv, write_survey
from armillary.views.figures.figure import figure
from armillary.views.page import finding_csv
from armillary.views.report import report
from armillary.views.report.payload import CELLS, POINTS, bare, blocks_html, fair_share, finding_part, thinned
from armillary.views.report.report import assembled, report_html

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))
NASTY = "<script>window.pwned=1</script></td></script><!-- &amp;\u202e\u2066\n\t\x1b[31m' \" onclick=x`"


class Page(HTMLParser):
    """What a browser would build: elements in order, what is shown, what scripts would read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.blocks: dict[str, str] = {}
        self._inside: str | None = None
        self._joined = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._joined = tag == "abbr"
        self._inside = None
        if tag == "script":
            self._inside = dict(attrs).get("id") or ""
            self.blocks.setdefault(self._inside, "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None
        self._joined = tag == "abbr"

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.blocks[self._inside] += data
        elif self._joined and self.shown:
            # A word that explains itself is part of its sentence.
            self.shown[-1] += data
            self._joined = False
        else:
            self.shown.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.shown).split())

    def part(self, index: int) -> dict[str, Any]:
        return json.loads(self.blocks[f"part-{index}"])


@pytest.fixture(scope="module")
def survey() -> Survey:
    return SYNTHETIC["synthetic_survey"]()


@pytest.fixture(scope="module")
def page(survey: Survey) -> Page:
    return Page(report_html(survey))


# ---- what it says ---------------------------------------------------------------------------------------


def test_every_claim_has_a_row_and_a_place_of_its_own(survey: Survey, page: Page) -> None:
    rows = [attrs["data-id"] for tag, attrs in page.tags if tag == "tr" and "data-id" in attrs]
    places = [attrs["id"] for tag, attrs in page.tags if tag == "article"]
    assert rows == places == [finding.id for finding in survey]
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and (attrs["href"] or "").count(".")]
    assert set(links) == {f"#{finding.id}" for finding in survey}
    known = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert all((attrs["href"] or "")[1:] in known for tag, attrs in page.tags if tag == "a")


def test_a_claim_is_told_in_full(survey: Survey, page: Page) -> None:
    for finding in survey:
        claim = finding.claim
        for words in (finding.headline, finding.reading, finding.caption, claim.statement, claim.question):
            assert words in page.words
        for text in (claim.definition, claim.control, claim.rule):
            assert all(line in page.words for line in text.split("\n"))
        assert f"{finding.controls[0].name}: " in page.words
    assert "S2: Why Transformer Representations Tend to Live on Hyperspheres" in page.words, "sources are spelled out"
    assert "ε is 1e-5 at every site" in page.words, "caveats"
    assert "n = 64" in page.words


def test_verdicts_have_a_mark_and_a_word(survey: Survey, page: Page) -> None:
    kinds = [attrs["data-kind"] for tag, attrs in page.tags if tag == "tr" and "data-kind" in attrs]
    assert kinds == [finding.verdict for finding in survey]
    for mark, verdict in (("●", "supported"), ("◐", "qualified"), ("✕", "refuted"), ("○", "undecided")):
        assert f"{mark} {verdict}" in page.words
    chips = [attrs["value"] for tag, attrs in page.tags if tag == "button" and attrs.get("class") == "chip"]
    assert chips == ["supported", "qualified", "refuted", "undecided"]


def test_failed_claims_have_a_filter_a_mark_and_a_traceback(survey: Survey) -> None:
    failed = SYNTHETIC["failed"](survey)
    page = Page(report_html(failed))
    chips = [attrs["value"] for tag, attrs in page.tags if tag == "button" and attrs.get("class") == "chip"]
    assert chips == ["supported", "qualified", "refuted", "undecided", "failed"]
    assert "! 1 failed" in page.words
    assert next(attrs for _, attrs in page.tags if attrs.get("data-id") == "sphere.plane")["data-kind"] == "failed"
    assert "The probe raised ValueError: no such thing" in page.words
    assert "Traceback (most recent call last)" in page.words
    assert Page(report_html(survey)).words.count("the interval spans the limit") == 2, "in its row and its place"


def test_the_ledger_sorts_by_numbers_that_were_measured(survey: Survey, page: Page) -> None:
    rows = [attrs for tag, attrs in page.tags if tag == "tr" and "data-id" in attrs]
    for finding, row in zip(survey, rows, strict=True):
        assert float(row["data-k2"] or "") == finding.statistic.value
        assert float(row["data-k3"] or "") == finding.controls[0].value
    absent = replace(survey.findings[0], statistic=replace(survey.findings[0].statistic, value=float("nan")))
    shown = Page(report_html(replace(survey, findings=(absent,))))
    assert next(attrs for tag, attrs in shown.tags if "data-k2" in attrs)["data-k2"] == ""


def test_laws_settings_and_versions(survey: Survey) -> None:
    provenance = Provenance(7, versions={"torch": "2.13.0"})
    full = replace(survey, provenance=provenance, text=replace(survey.text, notes=("cut at 128",), budget=16384))
    page = Page(report_html(full))
    for words in ("heads", "Σ heads", "1.20e-6", "7.60e-6", "15.8%", "L3", "seed", "2.13.0", "cut at 128", "16,384"):
        assert words in page.words
    assert "radius share 0.99" in page.words, "thresholds, as they were set"
    assert "worst: heads at L3" in page.words


def test_an_empty_survey_and_a_bare_finding_still_make_a_page(survey: Survey) -> None:
    assert "No law was checked" in Page(report_html(replace(survey, findings=(), laws=()))).words
    bare = replace(
        survey.findings[0], table=Table((), ()), quantities=(), controls=(), notes=(), more_tables={}, caption=""
    )
    page = Page(report_html(replace(survey, findings=(bare,))))
    assert "no control" in page.words
    assert page.part(0)["tables"] == []
    assert page.part(0)["figure"]["data"], "its number on a line"


# ---- nothing else is needed, nothing gets in ------------------------------------------------------------


def test_the_page_needs_nothing(page: Page) -> None:
    wanted = ("src", "data", "action", "poster", "srcset", "xlink:href")
    assert not [attrs for _, attrs in page.tags if set(attrs) & set(wanted)]
    assert all((attrs.get("href") or "#").startswith("#") for _, attrs in page.tags)
    assert any("default-src 'none'" in (attrs.get("content") or "") for _, attrs in page.tags)
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert not re.search(r"@import|url\(", " ".join(page.shown))


def renamed(survey: Survey, text: str) -> Survey:
    """The survey with this text wherever a word can stand."""

    def table(clean: Table) -> Table:
        columns = tuple(Column(f"{text}{i}", text, text) for i in range(len(clean.columns)))
        rows = [tuple(text if isinstance(cell, str) else cell for cell in row) for row in clean.rows]
        return Table(columns, tuple(rows))

    def quantity(clean: Quantity) -> Quantity:
        axes = tuple(f"{axis} {text} token" for axis in clean.axes)
        coords = {
            new: [text if isinstance(c, str) else c for c in clean.coords[old]]
            for old, new in zip(clean.axes, axes, strict=True)
        }
        controls, theory = ({f"{text}{i}": v for i, v in enumerate(d.values())} for d in (clean.controls, clean.theory))
        more = {"controls": controls, "theory": theory, "label": text, "logs": ()}
        return replace(clean, name=text, meaning=text, unit=text, axes=axes, coords=coords, **more)

    findings = []
    for f in survey:
        fields = dict.fromkeys(("statement", "source", "question", "chapter"), text)
        # A line break in these begins a line in every view; everything else in them is a word.
        fields |= dict.fromkeys(("definition", "control", "rule"), text.replace("\n", "\r"))
        words = {"reading": text, "headline": text, "caption": text, "notes": (text,)}
        numbers = {
            "statistic": replace(f.statistic, name=text, unit=text),
            "controls": tuple(replace(c, name=text) for c in f.controls),
        }
        tables = {
            "table": table(f.table),
            "more_tables": {f"{text}{i}": table(t) for i, t in enumerate(f.more_tables.values())},
        }
        drawn = {"quantities": tuple(map(quantity, f.quantities))}
        findings.append(replace(f, claim=replace(f.claim, **fields), **words, **numbers, **tables, **drawn))
    about = {
        "model": ModelFacts(**dict.fromkeys(("name", "family", "source", "norm"), text), config_ignored=(text, text)),
        "text": TextFacts(text, tokens=100, notes=(text,)),
        "provenance": Provenance(device=text, dtype=text, arms=(text, text), versions={text: text}),
        "thresholds": {text: 0.5},
        "times": Times(text, claims={text: 1.0}),
        "notes": (text,),
    }
    return replace(survey, findings=tuple(findings), laws=(LawCheck(text, text, 1e-7, 1e-6, text),), **about)


def test_words_of_a_model_change_nothing_on_the_page(survey: Survey) -> None:
    clean, nasty = (Page(report_html(renamed(survey, text))) for text in ("plain words", NASTY))
    shape = [[(tag, sorted(attrs)) for tag, attrs in page.tags] for page in (clean, nasty)]
    assert shape[0] == shape[1], "the same elements with the same attributes, in the same order"
    assert sorted(clean.blocks) == sorted(nasty.blocks)
    assert "window.pwned=1" in nasty.words, "the words are there, only harmless"
    assert not set("\u202e\u2066\x1b\t") & set("".join(nasty.shown))
    for name, text in nasty.blocks.items():
        if name:
            assert "<" not in text
            json.loads(text)


def test_plotly_gets_no_markup_from_words(survey: Survey) -> None:
    page = Page(report_html(renamed(survey, NASTY)))
    ours = re.compile(r"</?(b|br|sup)>|<span style=\"color:#[0-9A-F]{6}\">|</span>|<extra></extra>")
    for i in range(len(survey)):
        text = json.dumps(page.part(i)["figure"], ensure_ascii=False).replace('\\"', '"')
        assert "window.pwned" in text
        assert "<" not in ours.sub("", text)


# ---- figures and tables ---------------------------------------------------------------------------------


def test_figures_and_tables_travel_with_the_page(survey: Survey, page: Page) -> None:
    for i, finding in enumerate(survey):
        part = page.part(i)
        assert part["csv"] == finding_csv(finding)
        assert "template" not in part["figure"]["layout"], "templates are on the page once"
        table = part["tables"][0]
        assert table["csv"].encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass") == table_csv(
            finding.table
        )
        assert (len(table["rows"]), table["of"]) == (61, 61)
        assert table["file"] == f"{finding.id}.csv"
    assert set(json.loads(page.blocks["common"])["templates"]) == {"light", "dark"}
    token = page.part(0)["tables"][0]["rows"][0][3]
    assert token == "␣the"


def long(n: int, **more: Any) -> Quantity:
    values = np.sin(np.arange(n) / 7.0)
    values[n // 3] = 9.0
    values[n // 2] = np.nan
    return Quantity("q", "a meaning", "u", ("i",), {"i": list(range(1, n + 1))}, values, values - 1, values + 1, **more)


@pytest.mark.parametrize("logs", [(), ("i",)])
def test_long_lines_are_thinned_for_drawing_and_keep_their_ends_and_extremes(logs: tuple[str, ...]) -> None:
    whole = long(20_000, controls={"c": np.zeros(20_000)}, logs=logs)
    drawn = thinned(whole)
    assert len(drawn.values) <= POINTS
    steps = list(drawn.coords["i"])
    assert (steps[0], steps[-1]) == (1, 20_000)
    assert np.nanmax(drawn.values) == 9.0
    assert np.nanmin(drawn.values) == np.nanmin(whole.values)
    assert np.array_equal(drawn.values, whole.values[np.array(steps) - 1], equal_nan=True)
    assert drawn.low is not None and len(drawn.low) == len(drawn.controls["c"]) == len(steps)
    assert "of 20,000 points" in drawn.meaning
    assert len(whole.values) == 20_000
    if logs:
        assert steps[:5] == [1, 2, 3, 4, 5], "on a log axis the first points have the most room"


def test_what_a_screen_can_show_is_not_thinned() -> None:
    short = long(POINTS)
    assert thinned(short) is short
    grid = Quantity(
        "g", "m", "", ("a", "b"), {"a": list(range(900)), "b": [0, 1]}, np.random.default_rng(0).random((900, 2))
    )
    assert thinned(grid).values.shape == (CELLS, 2)


def test_thinning_is_for_drawing_alone(survey: Survey) -> None:
    finding = replace(survey.findings[0], quantities=(long(5000),))
    part = finding_part(finding)
    assert part.csv.count("\n") == 5001
    assert max(len(trace.get("hovertext") or ()) for trace in part.figure["data"]) <= POINTS  # type: ignore[index]


def test_tables_too_large_for_the_page_are_cut_alike_and_say_so() -> None:
    assert fair_share([10, 10], 100) == float("inf")
    assert fair_share([10, 200, 300], 110) == 50.0
    columns = (Column("head", ""), Column("value", ""))
    small, large = (Table(columns, tuple((f"L{i}", 0.5) for i in range(n))) for n in (20, 5000))
    finding = SYNTHETIC["synthetic_survey"]().findings[0]
    part = finding_part(replace(finding, table=large, more_tables={"small": small}))
    page = Page(f"<html>{blocks_html([part], {}, limit=0, least=30_000)}")
    cut, whole = page.part(0)["tables"]
    assert 500 < len(cut["rows"]) < 1500
    assert cut["of"] == 5000
    assert cut["csv"].count("\n") == len(cut["rows"]) + 1
    assert (len(whole["rows"]), whole["of"]) == (20, 20)


def heavy(more: bool) -> Finding:
    """A claim about every head of a 135M model, with word lists beside it or without."""
    rng = np.random.default_rng(0)
    names = [f"L{layer}H{head}" for layer in range(30) for head in range(9)]
    columns = tuple(Column(name, "what it means, in a sentence of the usual length") for name in ("head", *"abcdefgh"))
    words = tuple(Column(name, "m") for name in ("noun", "head", "rank", "key_word", "key_score"))
    axes = {"layer": [f"L{i}" for i in range(30)], "head": [f"H{i}" for i in range(9)]}
    listed = Table(words, tuple(("time", name, rank, " moment", rng.normal()) for rank in range(20) for name in names))
    maps = []
    for name in ("one", "two"):
        grid, null = rng.normal(size=(2, 30, 9))
        maps.append(
            Quantity(name, "m", "u", ("layer", "head"), axes, grid, controls={"null": null, "shuffled": null + 1})
        )
    table = Table(columns, tuple((name, *rng.normal(size=8).tolist()) for name in names))
    number, control = Statistic("s", 1.0, 0.9, 1.1), (Control("c", 0.0, -0.1, 0.1),)
    claim = Claim("chapter.claim", "A", "s", "S0", "d", "c", "r")
    tables = {"top keys": listed} if more else {}
    return Finding(claim, "supported", number, 9, control, "r", "h", table, tuple(maps), more_tables=tables)


def test_a_report_of_a_model_with_many_heads_stays_small() -> None:
    parts = [finding_part(heavy(True))] * 7 + [finding_part(heavy(False))] * 35
    text = assembled("heavy", "", [], "", "", parts)
    assert len(text.encode()) < 14_500_000
    page = Page(text)
    assert page.part(41)["tables"][0]["of"] == len(page.part(41)["tables"][0]["rows"]) == 270, "only long lists are cut"
    assert 300 < len(page.part(0)["tables"][1]["rows"]) < page.part(0)["tables"][1]["of"] == 5400


def test_what_hovering_says_in_a_map_is_folded_and_can_be_unfolded(survey: Survey) -> None:
    drawn = figure(survey["sphere.direction"])
    for whole, trace in zip(json.loads(drawn.to_json())["data"], bare(drawn)["data"], strict=True):
        if trace["type"] != "heatmap":
            assert trace == whole
            continue
        folded = trace["hovertext"]
        rows = [
            [r + c + "<br>" + s for c, s in zip(folded["columns"], line, strict=True)]
            for r, line in zip(folded["rows"], folded["cells"], strict=True)
        ]
        assert rows == whole["hovertext"]
        assert len(json.dumps(folded)) < len(json.dumps(rows)) / 2


# ---- files and commands ---------------------------------------------------------------------------------


def test_a_survey_is_saved_with_its_report(survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(survey, findings=survey.findings[:1])
    real = report.save_report

    def last(*args: Any) -> Path:
        assert (tmp_path / "survey.json").exists(), "a full disk keeps the numbers"
        return real(*args)

    monkeypatch.setattr(report, "save_report", last)
    small.save(tmp_path)
    assert (tmp_path / "report.html").read_text() == report_html(small)


@pytest.fixture(scope="module")
def stored(survey: Survey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    write_survey(survey, folder)
    return folder


def test_the_command_makes_the_report_again_without_torch(stored: Path) -> None:
    code = (
        f"import sys; sys.argv = ['armillary', 'report', {str(stored)!r}]\n"
        "from armillary.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: print(done.code)\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "contains 8 claims" in done.stdout
    assert done.stdout.endswith("0\n[]\n")
    assert len(Page((stored / "report.html").read_text("utf-8")).blocks) == 10


def test_another_place_and_what_cannot_be_reported(stored: Path, tmp_path: Path) -> None:
    works("report", stored / "survey.json", "--out", tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").exists()
    refused("does not end in .html", "report", stored, "--out", tmp_path / "page.pdf")
    refused("no survey.json", "report", tmp_path)
    refused("there is no folder", "report", tmp_path / "nowhere")
    (tmp_path / "survey.json").write_text("[1]")
    refused("not a survey", "report", tmp_path)
