"""Is a difference called one exactly where the intervals say so, and is everything that has no counterpart named?"""

import json
import math
import runpy
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
from command import refused, run, works
from test_report import NASTY, Page, renamed

from armillary import load
from armillary.errors import OutputError
from armillary.results import (
    Claim,
    Column,
    Control,
    Finding,
    ModelFacts,
    Provenance,
    Quantity,
    Rewording,
    Statistic,
    Survey,
    Table,
    TextFacts,
    Why,
)
from armillary.results.compare import Change, Comparison, Number, compare, read_loosely
from armillary.results.disk.folder_swap import add_files
from armillary.results.store import survey_json, write_survey
from armillary.views.compare.comparison import comparison_html, comparison_json, comparison_text, reading
from armillary.views.compare.comparison_page import comparison_page, pair_quantities

HEADS = [f"L{layer}H{head}" for layer in range(3) for head in range(2)]
COLUMNS = tuple(Column(name, f"what {name} means") for name in ("head", "r2", "r2_low", "r2_high", "spread", "leans"))


def survey(shift: float = 0.0, name: str = "base", heads: list[str] = HEADS, **changes: Any) -> Survey:
    """One claim over heads; `shift` moves its number, and the first head by ten times as much."""
    rows = []
    for i, head in enumerate(heads):
        value = 0.5 + 0.01 * i + shift * (10 if i == 0 else 1)
        rows.append((head, value, value - 0.02, value + 0.02, 1.0 + shift, i % 2 == 0))
    table = Table(COLUMNS, tuple(rows))
    grid = np.array([row[1] for row in rows]).reshape(-1, 2)
    axes = {"layer": [f"L{i}" for i in range(len(grid))], "head": ["H0", "H1"]}
    quantity = Quantity("R²", "by head", "R²", ("layer", "head"), axes, grid)
    line = Quantity("depth", "by layer", "", ("layer",), {"layer": axes["layer"]}, grid[:, 0])
    claim = Claim("attention.cosine", "B", "The score is mostly cosine.", "S3", "defined", "a control", "a rule")
    number = Statistic("R², median head", 0.5 + shift, 0.48 + shift, 0.52 + shift)
    control = (Control("random", 0.9, 0.89, 0.91),)
    finding = Finding(claim, "supported", number, 64, control, "read", "headline", table, (quantity, line))
    fields: dict[str, Any] = {
        "model": ModelFacts(name, layers=len(grid), heads=2, fingerprint=sha256(name.encode()).hexdigest()[:16]),
        "text": TextFacts("sample", tokens=2500, budget=2500),
        "provenance": Provenance(dtype="float32", versions={"torch": "2.13"}),
        "thresholds": {"cosine_share": 0.5},
    }
    return Survey((replace(finding, **changes),), laws=(), **fields)


def only(comparison: Comparison) -> Any:
    assert len(comparison) == 1
    return comparison.pairs[0]


# ---- when two numbers differ ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        ((1, 0.9, 1.1), (2, 1.9, 2.1), "differs"),
        ((1, 0.9, 1.1), (1.15, 1.05, 1.25), "not distinguished"),
        ((1, 0.9, 1.1), (1.2, 1.1, 1.3), "not distinguished"),  # touching is not apart
        ((1, 1, 1), (2, 1.5, 2.5), "differs"),  # a point against an interval
        ((1, 1, 1), (1, 1, 1), "the same"),
        ((1, 0.9, 1.1), (1, 0.8, 1.2), "the same"),
        ((1, 1, 1), (1 + 1e-9, 1 + 1e-9, 1 + 1e-9), "the same"),
        ((1, 1, 1), (2, 2, 2), "unequal"),
        ((1, math.nan, math.nan), (2, 1.9, 2.1), "unequal"),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), "the same"),
        ((math.nan, 0, 1), (2, 1.9, 2.1), "missing"),
    ],
)
def test_outcomes(a: tuple[float, ...], b: tuple[float, ...], outcome: str) -> None:
    for change in (Change(Number(*a), Number(*b)), Change(Number(*b), Number(*a))):
        assert change.outcome == outcome
    gap = Change(Number(*a), Number(*b)).difference
    if outcome in ("differs", "not distinguished"):
        assert (gap.low, gap.high) == (b[1] - a[2], b[2] - a[1])
        assert (gap.low <= 0 <= gap.high) == (outcome == "not distinguished")
    elif outcome != "the same":
        assert not gap.is_interval, "no interval is made up"


@pytest.mark.parametrize(("sd", "dependence", "most"), [((1, 1), 0, 0.0056), ((1, 0.02), 0, 0.05), ((1, 1), -1, 0.10)])
def test_equal_numbers_are_called_different_as_rarely_as_promised(sd: Any, dependence: float, most: float) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 20_000))
    noise[1] = noise[1] if dependence == 0 else dependence * noise[0]
    called = chance = 0.0
    for x, y in noise.T:
        a, b = (Number(v * s, v * s - 1.96 * s, v * s + 1.96 * s) for v, s in ((x, sd[0]), (y, sd[1])))
        change = Change(a, b)
        called += change.outcome == "differs"
        chance += change.chance
    assert called / 20_000 <= most + 0.003
    if dependence == 0:
        assert abs(called - chance) < 5 * math.sqrt(chance), "and as often as is said beside it"


# ---- rows -----------------------------------------------------------------------------------------------


def test_a_planted_difference_is_found_and_nothing_else() -> None:
    pair = only(compare(survey(), survey(0.01, "tuned")))
    assert pair.outcome == "not distinguished"
    tally = pair.tallies[0]
    assert (tally.column, tally.rows, tally.with_interval, tally.differ, tally.rose) == ("r2", 6, 6, 1, 1)
    assert tally.by_chance == pytest.approx(6 * 0.0056, abs=0.001)
    assert tally.by_chance_at_most == pytest.approx(0.6)
    frame = pair.to_frame()
    assert list(frame[frame.outcome == "differs"]["where"]) == ["L0H0"]
    assert frame[frame.column == "spread"].outcome.unique().tolist() == ["unequal"]
    down = only(compare(survey(), survey(-0.1, "tuned")))
    assert (down.outcome, down.tallies[0].differ, down.tallies[0].rose) == ("differs", 6, 0)


def test_a_survey_does_not_differ_from_itself() -> None:
    comparison = compare(survey(), survey())
    pair = only(comparison)
    assert {row[-1] for row in pair.table.rows} == {"the same"}
    assert pair.tallies[0].with_interval == 6
    assert pair.changed.rows == ()
    assert comparison.notes == ()
    assert comparison.names == ("base (A)", "base (B)")


def test_rows_are_matched_by_name_not_by_order() -> None:
    turned = survey()
    table = turned.findings[0].table
    turned = replace(turned, findings=(replace(turned.findings[0], table=Table(table.columns, table.rows[::-1])),))
    assert only(compare(survey(), turned)).tallies[0].differ == 0
    assert {abs(row[9]) for row in only(compare(survey(), turned)).table.rows} == {0.0}


def test_what_has_no_counterpart_is_named() -> None:
    comparison = compare(survey(), survey(heads=[*HEADS[:-1], "L2H9"]))
    assert only(comparison).tallies[0].rows == 5
    assert "only A has the head L2H1" in only(comparison).notes
    assert "only B has the head L2H9" in only(comparison).notes
    other = replace(only(comparison).b, claim=replace(only(comparison).claim, id="qk.axes"))
    comparison = compare(survey(), replace(survey(), findings=(other,)))
    assert len(comparison) == 0
    assert "only A measured attention.cosine" in comparison.notes
    assert "only B measured qk.axes" in comparison.notes
    assert "No claim is in both" in str(comparison)
    with pytest.raises(KeyError, match="no claim 'x' in both surveys"):
        comparison["x"]


def test_models_of_other_shapes_are_compared_as_wholes() -> None:
    comparison = compare(survey(), survey(0.1, "deep", [*HEADS, "L3H0", "L3H1"]))
    assert only(comparison).outcome == "differs"
    assert only(comparison).tallies == ()
    assert any("A has 3 layers, B 4" in note for note in comparison.notes)
    assert "the table was not compared: A has 3 layers, B 4" in only(comparison).notes


def test_what_is_not_about_layers_or_heads_has_counterparts_in_any_model() -> None:
    columns, plain = ("noun", "head", "key 1"), ("relation", "x", "x_se")
    words = Table(tuple(Column(name, "") for name in columns), ((" time", "L0H0", " day"),))
    states = Table((Column("state", ""), Column("x", "")), (("L0.resid_pre", 0.5),))
    listed = Table((Column("noun", ""), Column("x", "")), ((" time", 0.5),))
    kinds = Table(tuple(Column(name, "") for name in plain), (("synonym", 0.5, 0.1),))
    more = {"keys": words, "states": states, "top keys L3": listed, "relations": kinds}
    deep, wide = (survey(more_tables=more) for _ in range(2))
    deep = replace(deep, model=replace(deep.model, layers=9))
    wide = replace(wide, model=replace(wide.model, heads=9))
    assert {t.table for t in only(compare(survey(more_tables=more), deep)).tallies} == {"states", "relations"}
    assert {t.table for t in only(compare(survey(more_tables=more), wide)).tallies} == {
        "states",
        "top keys L3",
        "relations",
    }


def test_heads_of_the_same_place_are_not_called_the_same_head() -> None:
    assert any("not the same head" in note for note in compare(survey(), survey(name="other")).notes)


def with_table(*columns: str, rows: list[tuple[Any, ...]]) -> Survey:
    table = Table(tuple(Column(name, "") for name in columns), tuple(rows))
    return survey(table=table, quantities=())


def test_standard_errors_make_intervals() -> None:
    a, b = (with_table("site", "x", "x_se", rows=[("ln1", v, 0.1), ("ln2", 1.0, 0.1)]) for v in (1.0, 2.0))
    pair = only(compare(a, b))
    assert [t.column for t in pair.tallies] == ["x"]
    assert (pair.tallies[0].differ, pair.tallies[0].with_interval) == (1, 2)
    assert pair.table.rows[0][10:12] == pytest.approx((1 - 0.392, 1 + 0.392))


def test_several_columns_may_name_a_row() -> None:
    names = ("layer", "factor", "cost", "low", "high")
    rows = [(f"L{i}", factor, 0.1 * i, 0.1 * i - 0.01, 0.1 * i + 0.01) for i in range(3) for factor in (0.5, 2.0)]
    moved = [(*row[:2], *(cell + 1 for cell in row[2:])) for row in rows]
    pair = only(compare(with_table(*names, rows=rows), with_table(*names, rows=moved)))
    assert [(t.column, t.with_interval, t.differ) for t in pair.tallies] == [("cost", 6, 6)]
    assert pair.table.rows[0][1] == "L0 · 0.5"
    twice = [(*row[:1], 0.3, *row[2:]) for row in rows]
    pair = only(compare(with_table(*names, rows=twice), with_table(*names, rows=twice)))
    assert "no columns name its rows uniquely" in pair.notes[0]


def test_words_and_marks_that_changed_are_listed() -> None:
    names = ("head", "leans", "token", "p")
    a = with_table(*names, rows=[("L0H0", True, " the", 0.1), ("L0H1", False, "a", None)])
    b = with_table(*names, rows=[("L0H0", False, " the", 0.1), ("L0H1", False, "b", 0.2)])
    pair = only(compare(a, b))
    assert pair.changed.rows == (("", "L0H0", "leans", True, False), ("", "L0H1", "token", "a", "b"))
    assert pair.tallies[0].rows == 1, "an absent number is not compared"


def test_other_statistics_rules_and_units_are_not_compared_as_if_they_were_the_same() -> None:
    base = survey().findings[0]
    renamed_number = survey(statistic=replace(base.statistic, name="another"))
    pair = only(compare(survey(), renamed_number))
    assert (pair.change, pair.outcome) == (None, "missing")
    assert "A measured 'R², median head', B 'another'" in pair.notes[0]
    assert "different things" in comparison_page(compare(survey(), renamed_number))
    assert only(compare(survey(), survey(statistic=replace(base.statistic, unit="nats")))).change is None
    ruled = survey(claim=replace(base.claim, rule="another", definition="other"))
    # The same rule in other words is the same rule, whichever of the two is the newer.
    words = (Rewording("2026-11-18", base.claim.rule_digest, 0),)
    reworded = survey(claim=replace(base.claim, rule="another", definition="other", rewordings=words))
    assert not only(compare(survey(), reworded)).notes and not only(compare(reworded, survey())).notes
    assert [note.split(",")[0] for note in only(compare(survey(), ruled)).notes] == [
        "the rules differ",
        "the definitions differ",
    ]


# ---- surveys --------------------------------------------------------------------------------------------


def test_budgets_texts_thresholds_seeds_and_versions_are_compared_with_a_note() -> None:
    b = survey(name="other")
    b = replace(
        b,
        text=TextFacts("mine", tokens=8000),
        thresholds={"cosine_share": 0.6, "new_one": 1},
        provenance=Provenance(1, dtype="bfloat16", versions={"torch": "2.14"}, rules_version="2"),
    )
    notes = " ".join(compare(survey(), b).notes)
    for words in (
        "A read 2,500 tokens, B 8,000",
        "may differ for that reason alone",
        "A read 'sample', B 'mine'",
        "other thresholds: cosine_share",
        "the seeds differ: 0 and 1",
        "the rules differ: not recorded and 2",
        "float32 and bfloat16",
        "torch 2.13 and 2.14",
    ):
        assert words in notes
    assert "new_one" not in notes, "a threshold that one version did not have moved nothing"


def test_surveys_are_named_by_what_tells_them_apart() -> None:
    assert compare(survey(), survey(name="tuned")).names == ("base", "tuned")
    more = replace(survey(), text=replace(survey().text, tokens=9000))
    assert compare(survey(), more).names == ("base (2,500 tokens)", "base (9,000 tokens)")


def test_another_schema_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write_survey(survey(), tmp_path / "a")
    record = json.loads((tmp_path / "a" / "survey.json").read_text())
    extra = {**record["claims"][0], "id": "qk.new", "columns": "another layout"}
    broken = {"id": "qk.gone", "verdict": "perhaps"}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tables").symlink_to(tmp_path / "a" / "tables")
    changed = {**record, "schema": 4, "claims": [*record["claims"], extra, broken], "laws": None}
    (tmp_path / "b" / "survey.json").write_text(json.dumps(changed))
    read, notes = read_loosely(tmp_path / "b" / "survey.json")
    assert [finding.id for finding in read] == ["attention.cosine", "qk.new"]
    assert read["attention.cosine"].table == survey().findings[0].table
    assert read["qk.new"].table.rows == ()
    text = " ".join(notes)
    assert "has schema 4, this version writes 3" in text
    assert "only verdict and number could be read for qk.new" in text
    assert "could not be read: qk.gone" in text
    same, lost = read_loosely(tmp_path / "a")
    assert (survey_json(same), lost) == (survey_json(survey()), ())
    (tmp_path / "b" / "survey.json").write_text(json.dumps({"schema": 5, "claims": "none"}))
    with pytest.raises(OutputError, match="has schema '5', this version reads 1, 2 and 3"):
        read_loosely(tmp_path / "b")
    with pytest.raises(OutputError, match=r"no survey\.json"):
        read_loosely(tmp_path)


@pytest.mark.parametrize("version", [3.5, 4.0, 0, -1, True, "4", None, [4]])
def test_a_schema_that_no_version_has_is_refused(tmp_path: Path, version: object) -> None:
    write_survey(survey(), tmp_path)
    _restated(tmp_path, schema=version)
    with pytest.raises(OutputError, match=r"has schema .*, this version reads 1, 2 and 3"):
        read_loosely(tmp_path)


def test_a_later_survey_must_be_whole(tmp_path: Path) -> None:
    """Its hash fits, no claim is there twice, and a number that is none is not compared."""
    write_survey(survey(), tmp_path)
    content = (tmp_path / "survey.json").read_text("utf-8")
    claims = json.loads(content)["claims"]
    (tmp_path / "survey.json").write_text(content.replace('"schema": 3', '"schema": 4'), "utf-8")
    with pytest.raises(OutputError, match="has schema '4'"):
        read_loosely(tmp_path)
    _restated(tmp_path, schema=4, claims=[*claims, *claims])
    with pytest.raises(OutputError, match="has schema '4'"):
        read_loosely(tmp_path)
    backwards = {**claims[0], "id": "qk.new", "statistic": {"value": 0.5, "low": 0.9, "high": 0.1}}
    _restated(tmp_path, schema=4, claims=[*claims, backwards], notes=["x"],
              model={"name": "m", "layers": "three"})  # fmt: skip
    read, notes = read_loosely(tmp_path)
    assert [finding.id for finding in read] == [claim["id"] for claim in claims]
    assert read.model.name == "unknown model"
    assert f"of {tmp_path} these claims could not be read: qk.new" in notes
    assert f"of {tmp_path} these were not read: notes, model" in notes


def _restated(folder: Path, **changes: object) -> None:
    """Another survey.json, with a manifest that fits it."""
    record = json.loads((folder / "survey.json").read_text("utf-8"))
    content = json.dumps({**record, **changes})
    (folder / "survey.json").write_text(content, "utf-8")
    add_files(folder, {"survey.json": content})


# ---- what is shown --------------------------------------------------------------------------------------


def test_the_terminal_says_numbers_rows_chance_and_rule() -> None:
    comparison = compare(survey(), survey(0.1, "tuned", verdict="refuted"))
    text = " ".join(str(comparison).split())
    for words in (
        "tuned against base",
        "≠ attention.cosine ● → ✕ 0.500 [0.480, 0.520] → 0.600 [0.580, 0.620]",
        "supported → refuted",
        "differs by 0.100 [0.060, 0.140]",
        "r2: 6 of 6 heads differ, 6 up and 0 down (by chance 0.033, at most 0.60)",
        "R², median head rose from 0.500 to 0.600 (",
        "the verdict changed from supported to refuted",
        "Of 1 claim 1 changed the verdict",
        "≠ the 95 % intervals do not overlap",
    ):
        assert words in text
    assert max(map(len, comparison_text(comparison, 80).splitlines())) <= 80
    assert "though the number did not" in reading(only(compare(survey(), survey(verdict="refuted"))))


def test_what_differs_by_rounding_alone_is_not_printed_as_one_number() -> None:
    """In bfloat16 0.500 and 0.503 say the same; both are printed."""
    half = replace(survey(0.003), provenance=Provenance(dtype="bfloat16", versions={"torch": "2.13"}))
    comparison = compare(survey(), half)
    text = " ".join(comparison_text(comparison, 200, full=True).split())
    assert only(comparison).outcome == "the same"
    assert "0.500 [0.480, 0.520] → 0.503 [0.483, 0.523]" in text and "different by rounding alone" in text
    assert "rounding alone" not in comparison_text(compare(survey(), survey()), 200, full=True)


def test_a_claim_that_failed_on_one_side_is_compared_and_says_so() -> None:
    number = Statistic("not measured", *[float("nan")] * 3)
    failed = survey(verdict="failed", why=Why.FAILED, statistic=number, controls=(), table=Table((), ()), quantities=())
    comparison = compare(survey(verdict="undecided", why=Why.TOO_LITTLE_TEXT), failed)
    assert "undecided: too little text → failed" in " ".join(str(comparison).split())
    assert "○ → !" in str(comparison)
    assert only(comparison).outcome == "missing"
    words = Page(comparison_page(comparison)).words
    assert "undecided (too little text)" in words and "! failed" in words


def test_differences_are_drawn_by_head_with_those_that_the_intervals_show() -> None:
    comparison = compare(survey(), survey(0.01, "tuned"))
    gap, levels = pair_quantities(only(comparison), comparison.names)
    assert gap.values.shape == (3, 2)
    assert gap.values[0, 0] == pytest.approx(0.1)
    shown = gap.controls["where the intervals do not overlap: 1 of 6"]
    assert np.isfinite(shown).sum() == 1
    assert np.isfinite(shown[0, 0])
    assert "minus" in gap.name, "drawn on a scale centred at zero"
    assert list(levels.controls) == ["A: base"]
    assert levels.label == "B: tuned"


def test_differences_are_drawn_by_site_with_their_interval() -> None:
    a, b = (with_table("site", "x", "x_low", "x_high", rows=[("L0.ln1", v, v - 0.1, v + 0.1)]) for v in (1.0, 2.0))
    (gap,) = pair_quantities(only(compare(a, b)), ("a", "b"))
    assert gap.low is not None and gap.high is not None
    assert (gap.values[0], gap.low[0], gap.high[0]) == pytest.approx((1.0, 0.8, 1.2))
    assert list(gap.theory) == ["no difference"]


def test_files_by_their_ending(tmp_path: Path) -> None:
    comparison = compare(survey(), survey(0.1, "tuned"))
    record = json.loads(comparison.save(tmp_path / "c.json").read_text())
    assert record["claims"][0]["outcome"] == "differs"
    assert record["claims"][0]["columns"][0]["differ"] == 6
    assert (
        comparison.save(tmp_path / "c.csv")
        .read_text()
        .startswith("claim,verdict_a,verdict_b,statistic,a,a_low,a_high,b,")
    )
    page = Page(comparison.save(tmp_path / "c.html").read_text())
    assert page.part(0)["tables"][0]["name"] == "columns compared"
    assert comparison.to_frame().outcome.tolist() == ["differs"]
    assert set(comparison.rows().claim) == {"attention.cosine"}
    with pytest.raises(OutputError, match="ends in"):
        comparison.save(tmp_path / "c.png")


def test_words_of_a_model_change_nothing_on_the_page() -> None:
    shapes = []
    for text in ("plain words", NASTY):
        a, b = (renamed(survey(shift, "x"), text) for shift in (0.0, 0.1))
        comparison = compare(a, b)
        page = Page(comparison_page(comparison))
        shapes.append([(tag, sorted(attrs)) for tag, attrs in page.tags])
        assert all("<" not in block for name, block in page.blocks.items() if name)
        static = Page(comparison_html(comparison))
        assert not [tag for tag, _ in static.tags if tag == "script"]
        assert "\x1b" not in comparison_text(comparison, 100)
        json.loads(comparison_json(comparison))
    assert shapes[0] == shapes[1]
    assert comparison._repr_html_() == comparison_html(comparison)


# ---- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Path]:
    for name, shift in (("a", 0.0), ("b", 0.1)):
        write_survey(survey(shift, name), tmp_path / name)
    return tmp_path / "a", tmp_path / "b"


def test_two_stored_surveys(stored: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = stored
    out = tmp_path / "out-v1.5"
    output = works("compare", a, b, "--out", out).stdout
    assert "b against a" in output
    assert "\x1b" not in output
    assert {path.name for path in out.iterdir()} == {"compare.html", "compare.json", "compare.csv", "rows.csv"}
    works("compare", a / "survey.json", b, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
    assert json.loads(works("compare", a, b, "--json").stdout)["names"] == ["a", "b"]


def test_what_cannot_be_compared_is_refused_in_a_sentence(stored: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = stored
    (tmp_path / "empty").mkdir()
    refused("neither a survey nor a model", "compare", a, tmp_path / "empty")
    refused("--tokens would change nothing", "compare", a, b, "--tokens", 100)
    refused("give a folder, or a file in", "compare", a, b, "--out", tmp_path / "x.pdf")
    refused("did you mean", "compare", a, "builtin:gpt", "--claims", "sphere.radios")
    refused("nowhere", "compare", a, tmp_path / "nowhere")
    (tmp_path / "empty" / "survey.json").write_text("{")
    refused("is not JSON", "compare", a, tmp_path / "empty")


def test_comparing_stored_surveys_never_imports_torch(stored: tuple[Path, Path]) -> None:
    code = (
        f"import sys; sys.argv = ['armillary', 'compare', {str(stored[0])!r}, {str(stored[1])!r}]\n"
        "from armillary.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'transformers', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_two_models_are_surveyed_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE", str(tmp_path / "cache"))
    first = folders.model_folder("gpt2", tmp_path / "first")
    second = folders.spoilt(first, tmp_path / "second")
    folders.change_weights(second, transformer__h__0__ln_1__weight=lambda w: w * 3)
    out = tmp_path / "out"
    monkeypatch.setenv("ARMILLARY_PROGRESS", "1")
    progress = run("compare", first, second, "--claims", "sphere.ellipsoid", "--out", out).stderr
    monkeypatch.setenv("ARMILLARY_PROGRESS", "0")
    assert f"surveying A, {first}" in progress and f"surveying B, {second}" in progress
    assert (out / "a" / "report.html").exists()
    assert (out / "b" / "survey.json").exists()
    record = json.loads((out / "compare.json").read_text())
    rows = record["claims"][0]["numbers"]["rows"]
    changed = {(row[1], row[2]) for row in rows if row[-1] != "the same"}
    assert ("L0.ln1", "longest") in changed
    assert {where for where, _ in changed} == {"L0.ln1"}, "only the site whose gain was changed"
    output = works("compare", out / "a", second).stdout
    assert "second against first" in output


def test_the_gguf_of_the_docs_is_the_model_rounded(tmp_path):
    """The pair 'float32 against a 4-bit GGUF' of docs/compare.md: same tokens, and weights rounded as Q4_0 says."""
    script = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "compare.py"))
    script["quantise"](tmp_path)
    whole, read = (load(name, progress=False) for name in ("builtin:llama", tmp_path / "bits" / "q4_0.gguf"))
    text = "The old clock's hands — 12:45, “stopped” —\n\tdidn't move…  Ça va? 東京"
    assert whole.tokenizer(text)["input_ids"] == read.tokenizer(text)["input_ids"]
    kind, rounded = script["GGMLQuantizationType"].Q4_0, 0
    theirs = dict(read.model.named_parameters())
    for name, weight in whole.model.named_parameters():
        values = weight.detach().float().numpy()
        if weight.ndim == 2 and ".layers." in name:
            values, rounded = script["quants"].dequantize(script["quants"].quantize(values, kind), kind), rounded + 1
        assert (theirs[name].detach().float().numpy() == values).all(), name
    assert rounded == 7 * whole.layers
