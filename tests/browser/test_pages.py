"""Do figures and pages say what was measured, and let nothing in? (No browser needed; see test_figures.)"""

import json
import re
import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from markup import Page

from armillary.results import VERDICTS, Quantity, Survey
from armillary.views.figures.figure import figure, ledger_figure
from armillary.views.figures.marks import DARK, LIGHT, MARKS
from armillary.views.figures.panels import LineLabel, spread
from armillary.views.figures.scales import Numbers, label_axis
from armillary.views.figures.theme import both_themes
from armillary.views.page import figure_html, finding_csv
from armillary.views.report.notebook import finding_html, ledger_html

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "synthetic.py"))
EVIL = SYNTHETIC["EVIL"]


@pytest.fixture(scope="module")
def survey() -> Survey:
    return SYNTHETIC["synthetic_survey"]()


@pytest.fixture(scope="module")
def hostile() -> Survey:
    return SYNTHETIC["hostile_survey"]()


# ---- figures --------------------------------------------------------------------------------------------


def words(fig: object) -> str:
    """Everything a figure holds, as plotly will read it."""
    return json.dumps(json.loads(fig.to_json()), ensure_ascii=False).replace("<br>", " ")  # type: ignore[attr-defined]


def test_a_figure_says_what_it_shows(survey: Survey) -> None:
    finding = survey["sphere.concentration"]
    fig = figure(finding)
    assert fig.layout.title.text == finding.headline
    assert "◐" in fig.layout.title.subtitle.text
    assert "qualified" in fig.layout.title.subtitle.text
    assert "16,384 tokens" in fig.layout.title.subtitle.text.replace("<br>", " ")
    texts = [a.text.replace("<br>", " ") for a in fig.layout.annotations]
    assert {"◇ without 3 massive tokens", "□ tokens shuffled", "1/√(2d)", "ln1", "ln2"} <= set(texts)
    shapes = [t.marker.symbol for t in fig.data if t.line.dash == "dash"]
    assert sorted(shapes) == 2 * ["diamond-open"] + 2 * ["square-open"], "two controls, each for ln1 and ln2"
    assert [t.line.dash for t in fig.data].count("dot") == 1
    assert fig.layout.yaxis.type == "log"
    assert fig.layout.paper_bgcolor is None
    assert fig.layout.template.layout.paper_bgcolor == LIGHT.ground


def test_a_figure_draws_the_numbers_it_was_given(survey: Survey) -> None:
    quantity = survey["spectrum.dimension"].quantities[0]
    drawn = {}
    for trace in figure(survey["spectrum.dimension"]).data:
        if trace.hovertext is not None:
            drawn |= dict(zip(trace.x, trace.y, strict=True))
    assert [drawn[i] for i in range(61)] == quantity.values.tolist()


def test_61_sites_are_ticked_thinly_and_hovered_in_full(survey: Survey) -> None:
    fig = figure(survey["spectrum.dimension"])
    ticks = fig.layout.xaxis.ticktext
    assert len(ticks) <= 13
    assert (ticks[0], ticks[-1]) == ("L0", "ln_final")
    hover = [h for t in fig.data if t.hovertext is not None for h in t.hovertext]
    assert any("L17.ln2" in h and "Gaussian, same covariance" in h for h in hover)


def test_zeros_on_a_log_axis_are_marked(survey: Survey) -> None:
    fig = figure(survey["sphere.radius"])
    assert "0" in fig.layout.yaxis2.ticktext
    marked = [t for t in fig.data if t.marker.symbol == "triangle-down-open"]
    zeros = sum(int(np.isfinite(np.array(t.y, float)).sum()) for t in marked)
    assert zeros == int((survey["sphere.radius"].quantities[1].values == 0).sum())


def test_a_heat_map_shares_its_scale_with_its_control(survey: Survey) -> None:
    fig = figure(survey["sphere.direction"])
    maps = [t for t in fig.data if t.type == "heatmap"]
    assert [m.coloraxis for m in maps] == ["coloraxis", "coloraxis"]
    assert fig.layout.coloraxis.cmin == -fig.layout.coloraxis.cmax, "a difference is centred at zero"
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1], "layers run down"


def test_the_dark_figure_differs_only_in_colour(survey: Survey) -> None:
    fig = figure(survey["sphere.concentration"])
    light, dark = (json.loads(text) for text in both_themes(fig))
    assert light == json.loads(fig.to_json())
    assert LIGHT.accent in json.dumps(light)
    assert LIGHT.accent not in json.dumps(dark)
    assert dark["layout"]["template"]["layout"]["paper_bgcolor"] == DARK.ground
    assert dark["layout"]["title"]["text"] == fig.layout.title.text
    token = replace(survey.findings[0], headline=LIGHT.accent)
    _, dark = both_themes(figure(token))
    assert json.loads(dark)["layout"]["title"]["text"] == LIGHT.accent, "words are data, whatever they spell"


def test_odd_quantities_still_draw(survey: Survey) -> None:
    nothing = np.full(3, np.nan)
    odd = [
        Quantity("all absent", "m", "u", ("x",), {"x": [1.0, 2.0, 3.0]}, nothing, nothing, nothing),
        Quantity("no logs", "m", "", ("x",), {"x": [0, 1, 2]}, np.array([-1.0, 0, 0]), logs=("value", "x")),
        Quantity("one", "m", "", ("site",), {"site": ["ln_final"]}, np.ones(1)),
        Quantity("log map", "m", "", ("layer", "head"), {"layer": [0, 1], "head": [0, 1]},
                 np.array([[1.0, 0.0], [100.0, np.nan]]), logs=("value",)),
        Quantity("none", "m", "", ("x",), {"x": []}, np.zeros(0)),
    ]  # fmt: skip
    fig = figure(replace(survey.findings[0], quantities=tuple(odd)))
    assert len(fig.layout.annotations) >= 5
    more = Quantity("more", "m", "", tuple("abcd"), {axis: [0] for axis in "abcd"}, np.zeros((1, 1, 1, 1)))
    with pytest.raises(ValueError, match="one axis, two or three"):
        figure(replace(survey.findings[0], quantities=(more,)))


def test_a_third_axis_is_a_row_of_maps_on_one_scale(survey: Survey) -> None:
    coords = {"kind": ["<b>one", "two"], "layer": ["L0", "L1"], "head": ["H0", "H1", "H2"]}
    cube = Quantity("row", "m", "u", ("kind", "layer", "head"), coords, np.arange(12.0).reshape(2, 2, 3))
    fig = figure(replace(survey.findings[0], quantities=(cube,)))
    assert [np.array(trace.z).tolist() for trace in fig.data] == cube.values.tolist()
    assert {trace.coloraxis for trace in fig.data} == {"coloraxis"}
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (0, 11)
    assert {"&lt;b&gt;one", "two"} <= {note.text for note in fig.layout.annotations}


def test_labels_keep_their_distance() -> None:
    labels = [
        LineLabel("a", "", 0.5),
        LineLabel("two lines of text here, really", "", 0.5),
        LineLabel("c", "", 0.52),
        LineLabel("d", "", 0.9),
    ]
    places = spread(labels, 250)
    order = sorted(zip(places, labels, strict=True), key=lambda pair: pair[0])
    for (low, a), (high, b) in pairwise(order):
        assert high - low >= (len(a.lines) + len(b.lines)) * 15 / 2 / 250 - 1e-9
    assert abs(places[3] - 0.9) < 1e-9, "a label with room stays"
    assert abs(float(np.mean(places[:3])) - 0.507) < 0.05, "the others move about their middle"


def test_the_ledger_figure_puts_a_number_and_its_control_on_one_scale(survey: Survey) -> None:
    fig = ledger_figure(survey)
    assert fig.layout.title.text == "Of 8 claims: 3 supported, 2 qualified, 2 refuted, 1 undecided"
    text = words(fig)
    assert "each row on its own scale" in text
    for finding in survey:
        assert finding.id in text
    x = {t.hovertext[0]: t.x[0] for t in fig.data if t.hovertext is not None}
    plane = next(place for label, place in x.items() if "sphere.plane" in label)
    chance = next(place for label, place in x.items() if label.startswith("random directions"))
    assert 0 < chance < plane < 1


def test_axes() -> None:
    assert Numbers.of([np.array([1e-5, 1.0])], True).ticks() == {
        1e-5: "10<sup>−5</sup>", 1e-4: "10<sup>−4</sup>", 1e-3: "0.001", 1e-2: "0.01", 0.1: "0.1", 1.0: "1"
    }  # fmt: skip
    assert label_axis(["<b>", " a"], "token").ticktext == ("&lt;b&gt;", "␣a")


# ---- pages ----------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_and_lets_nothing_in(hostile: Survey) -> None:
    clean = Page(figure_html([figure(SYNTHETIC["synthetic_survey"]().findings[4])], hostile.findings[4]))
    for finding in hostile:
        page = Page(figure_html([figure(finding)], finding))
        assert page.loads() == []
        scripts = [attrs for tag, attrs in page.tags if tag == "script"]
        assert len(scripts) == len([1 for tag, _ in clean.tags if tag == "script"]) == 5
        assert any("default-src 'none'" in (attrs.get("content") or "") for _, attrs in page.tags)
        assert not [tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "object", "base")]


def test_plotly_gets_no_markup_from_data(hostile: Survey) -> None:
    allowed = re.compile(r"</?(b|br|sup)>|<span style=\\?\"color:#[0-9A-F]{6}\\?\">|</span>|<extra></extra>")
    for fig in (*(figure(f) for f in hostile), ledger_figure(hostile)):
        left = allowed.sub("", words(fig))
        assert "<" not in left
        assert "window.pwned" in left, "the words are there, only harmless"


def test_the_page_has_reading_rule_table_and_buttons(survey: Survey) -> None:
    finding = survey["sphere.direction"]
    page = Page(figure_html([figure(finding)], finding))
    assert [attrs["value"] for tag, attrs in page.tags if tag == "button"] == ["png", "svg", "csv"]
    assert finding.reading in page.shown
    assert all(line in page.shown for line in finding.claim.rule.split("\n"))
    assert ("details", {}) in page.tags
    assert "prefers-color-scheme: dark" in "".join(page.shown)
    table = finding_csv(finding)
    assert table.splitlines()[0] == (
        "quantity,unit,layer,head,value,control: labels permuted,token,low,high,control: scaled by 1"
    )
    assert table.count("\n") >= 30 * 9 + 8


def test_notebook_html_is_static_and_escaped(survey: Survey, hostile: Survey) -> None:
    for text in (ledger_html(hostile), *(finding_html(f) for f in hostile)):
        page = Page(text)
        assert not [tag for tag, _ in page.tags if tag == "script"]
        assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
        assert page.loads() == []
        assert any(EVIL in data for data in page.shown)
    shown = ledger_html(survey)
    assert {f.verdict for f in survey} == set(VERDICTS) - {"failed"}
    assert all(MARKS[f.verdict] in shown for f in survey)
    assert all(f"id='{f.id}'" in shown for f in survey), "each row can be linked to"
    assert survey._repr_html_() == shown
