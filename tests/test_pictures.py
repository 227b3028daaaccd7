"""Is a figure for a paper whole, sized in inches, and the same picture in every format, without a browser?"""

import io
import math
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command import refused, works
from PIL import Image

from armillary.errors import OutputError
from armillary.probes import claims
from armillary.results import Quantity
from armillary.results.store import write_survey
from armillary.views.figures.figure import drawn, figure
from armillary.views.figures.paint import DPI, painted
from armillary.views.figures.panels import panel
from armillary.views.figures.print.picture import SIZES, picture, picture_svg
from armillary.views.figures.scales import Numbers
from armillary.views.text.glossary import SYNONYMS, TERMS, explained

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))


@pytest.fixture(scope="module")
def hostile():
    return SYNTHETIC["hostile_survey"]()


def line(name, values, labels=None, **more):
    values = np.array(values, float)
    axis = list(range(len(values))) if labels is None else labels
    return Quantity(name, "meaning", more.pop("unit", "u"), ("x",), {"x": axis}, values, **more)


@pytest.mark.parametrize("columns", [1, 2])
def test_every_figure_is_whole_and_has_its_width_in_inches(hostile, columns):
    for finding in hostile.findings[:4]:
        root = ElementTree.fromstring(picture_svg(lambda narrow, f=finding: figure(f, narrow), columns))
        assert root.get("width") == f"{SIZES[columns][1]:.3f}in"
        assert "var(" not in ElementTree.tostring(root, "unicode"), "no colour depends on a page's style"
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            "svg",
            "g",
            "path",
            "rect",
            "circle",
            "text",
        }


def test_png_and_pdf_are_the_same_picture():
    quantity = line("q", [1.0, 3.0, 2.0], low=np.array([0.5, 2.5, 1.5]), high=np.array([1.5, 3.5, 2.5]))
    pictures = [
        picture(lambda narrow: drawn([quantity], "title", "subtitle", narrow=narrow), k) for k in ("png", "pdf")
    ]
    image = np.asarray(Image.open(io.BytesIO(pictures[0])).convert("RGB"), dtype=int)
    assert image.shape[1] == round(SIZES[2][1] * DPI)
    accent = np.abs(image - np.array([0xB8, 0x86, 0x2B])).sum(-1) < 12
    assert 200 < accent.sum() < 0.05 * accent.size, "the model's line is there, in its colour"
    assert pictures[1].startswith(b"%PDF")
    assert pictures[1] == picture(lambda narrow: drawn([quantity], "title", "subtitle", narrow=narrow), "pdf")
    with pytest.raises(OutputError, match="1 or 2 columns"):
        picture_svg(lambda narrow: None, 3)


def test_the_command_writes_figures(tmp_path):
    survey = SYNTHETIC["synthetic_survey"]()
    survey = replace(survey, findings=survey.findings[:2])
    write_survey(survey, tmp_path / "survey")
    works("figures", tmp_path / "survey", "--out", tmp_path / "out", "--as", "svg")
    assert len(list((tmp_path / "out").glob("*.svg"))) == len(survey) + 1
    name = survey.findings[0].id
    works("figures", tmp_path / "survey", name, "--out", tmp_path / "one.svg", "--columns", "1")
    assert "3.400in" in (tmp_path / "one.svg").read_text("utf-8")
    refused("does not end in", "figures", tmp_path / "survey", name, "--out", tmp_path / "folder")


# ---- what figures must say ------------------------------------------------------------------------------


@pytest.mark.parametrize("low", [3e-8, 0.0021, 1.7, 25.0, 995.0, 4.1e6])
@pytest.mark.parametrize("factor", [1.01, 1.3, 2.3, 6.0, 40.0])
def test_a_log_axis_has_at_least_three_ticks(low, factor):
    """One mark alone is no scale: it does not say how far the next one is."""
    axis = Numbers(True, math.log10(low), math.log10(low * factor))
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 9 and len(set(ticks.values())) == len(ticks)
    assert all(low * (1 - 1e-9) <= value <= low * factor * (1 + 1e-9) for value in ticks)


def test_counts_have_whole_ticks_and_shares_do_not():
    axis = panel(line("vanishing eigenvalues", [1, 1, 2])).cells[0].yaxis
    assert axis["dtick"] == 1
    assert "dtick" not in panel(line("share", [0.1, 0.4])).cells[0].yaxis


def test_axis_titles_are_words():
    assert panel(line("angle to the next word", [1, 2], unit="°")).cells[0].yaxis["title"]["text"].endswith("degrees")
    assert panel(line("length", [1.5, 2], unit="√d")).cells[0].yaxis["title"]["text"] != "√d"


def test_few_names_are_whole():
    names = ["correlation", "trustworthiness", "continuity", "stability"]
    assert panel(line("scores", [1, 2, 3, 4], names)).cells[0].xaxis["ticktext"] == names


def test_long_names_of_rows_do_not_meet_the_axis_title():
    coords = {"matrix": ["H0 W_QK of a head", "W_in"], "layer": ["L3"]}
    quantity = Quantity("q", "m", "u", ("matrix", "layer"), coords, np.ones((2, 1)))
    root = ElementTree.fromstring(picture_svg(lambda narrow: drawn([quantity], "t", "s", narrow=narrow)))
    texts = {"".join(t.itertext()): t for t in root.iter("{http://www.w3.org/2000/svg}text")}
    label, title = texts["H0 W_QK of a head"], texts["matrix"]
    assert float(title.get("x")) + 4 < float(label.get("x")) - 6.2 * len("H0 W_QK of a head")
    assert float(title.get("x")) > 8


def test_controls_are_told_apart_by_shape():
    controls = {name: np.full(40, value) for name, value in (("random", 1.0), ("shuffled", 2.0))}
    grid = panel(line("q", np.linspace(0, 3, 40), controls=controls))
    shapes = {t.marker.symbol for t in grid.cells[0].traces if t.marker.symbol and t.marker.symbol != "circle"}
    assert shapes == {"diamond-open", "square-open"}
    assert [label.text[0] for label in grid.labels if "m" in label.text][:1] == ["◇"]


# ---- words that explain themselves ----------------------------------------------------------------------


def test_the_glossary_explains_terms_once_and_nothing_else():
    html = explained("S3 says that ln1 and ln1 differ; salon1 does not. &lt;b&gt;")
    assert html.count("<abbr") == 2 and "salon1 does" in html and "&lt;b&gt;" in html
    assert re.search(r"<abbr title='[^']+' tabindex='0'>ln1</abbr> and ln1", html)


def test_a_picture_is_the_same_in_every_process():
    """Python hashes strings differently in each, and plotly's layout follows."""
    code = (
        "import sys; sys.path[:0] = [{!r}]; import runpy; from armillary.views.figures.figure import figure; "
        "from armillary.views.figures.print.picture import picture_svg; "
        "survey = runpy.run_path({!r})['hostile_survey'](); "
        "print(picture_svg(lambda narrow: figure(survey.findings[0], narrow)))"
    ).format(str(Path(__file__).parent), str(Path(__file__).parent / "browser" / "synthetic.py"))
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }
    assert len(seen) == 1


def test_sites_are_explained_with_their_layer():
    html = explained("at L4.resid_mid and L0.ln2, not at L1.z or XL0.ln1")
    assert "stream between attention and feed-forward' tabindex='0'>L4.resid_mid</abbr>" in html
    assert html.count("<abbr") == 2 and "XL0.ln1" in html


def test_terms_are_explained_once_over_several_texts():
    seen: set[str] = set()
    assert [explained(text, seen).count("<abbr") for text in ("L0.ln1", "L1.ln1", "L0.ln2", "γ")] == [1, 0, 1, 1]


def test_the_glossary_is_that_of_the_docs():
    page = (Path(__file__).parents[1] / "docs" / "glossary.md").read_text("utf-8")
    for term in TERMS:
        assert term in page, f"docs/glossary.md lacks {term}"
    known = {claim.id for claim in claims()}
    assert "dead" in SYNONYMS
    assert {name for names in SYNONYMS.values() for name in names} <= known


def test_completion_knows_claims_and_models():
    from armillary.cli.terminal.options import complete_claims, complete_models

    assert "sphere.radius" in complete_claims(None, None, "sphere.r")
    assert complete_claims(None, None, "A,sphere.rad") == ["A,sphere.radius"]
    assert "builtin:gpt" in [item.value for item in complete_models(None, None, "built")]


def test_every_model_on_the_command_line_completes():
    from armillary.cli import main

    def commands(group):
        for command in group.commands.values():
            yield from commands(command) if hasattr(command, "commands") else [command]

    takes = {"model", "models", "a", "b", "against"}
    named = [(c.name, p) for c in commands(main) for p in c.params if p.name in takes]
    assert len(named) > 10
    assert not [command for command, parameter in named if parameter._custom_shell_complete is None]


@pytest.mark.parametrize(
    "asked", [("heads", "--out", "new"), ("paper", "--out", "new"), ("travel", "a b", "--out", "new/x.html")]
)
def test_a_read_out_that_fails_leaves_no_empty_folder(tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    command, *more = asked
    refused("there is no", command, "/nowhere/at/all", *more)
    assert not list(tmp_path.iterdir())


def test_one_panel_of_a_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    survey = SYNTHETIC["synthetic_survey"]()
    write_survey(survey, tmp_path / "s")
    finding = next(f for f in survey if len(f.quantities) > 1)
    works("figures", "s", finding.id, "--out", "all.svg", "--columns", 1)
    works("figures", "s", finding.id, "--out", "one.svg", "--columns", 1, "--panel", 2)
    whole, single = ((tmp_path / name).read_text("utf-8") for name in ("all.svg", "one.svg"))
    heights = [float(re.search(r"height='([\d.]+)in'", svg)[1]) for svg in (whole, single)]
    assert heights[1] < heights[0]
    assert finding.quantities[1].name in single and finding.quantities[0].name not in single
    refused("has no panel 9; it has 1 \\(", "figures", "s", finding.id, "--out", "x.svg", "--panel", 9)
    refused("give the CLAIM too", "figures", "s", "--out", "x", "--panel", 1)


def test_long_units_stay_inside_the_ledger(hostile):
    """A number, its interval and its unit fit beside the strip, or the unit stands in the line below."""
    from armillary.views.figures.figure import _VALUE, ledger_figure

    finding = hostile.findings[0]
    statistic = replace(finding.statistic, value=0.0272, low=-0.0156, high=0.0806, unit="nats/token")
    drawing = ledger_figure(replace(hostile, findings=(replace(finding, statistic=statistic),)))
    texts = [re.sub("<[^>]*>", "", note.text) for note in drawing.layout.annotations]
    value = next(text for text in texts if text.startswith("0.0272"))
    assert len(value) <= _VALUE and "nats/token" not in value
    assert any(text.startswith("nats/token; ") for text in texts)


def test_groups_hand_down_their_place_and_their_style():
    """A square of a group that is moved, coloured and half transparent; a disc with a gradient; nothing else."""
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 100 100' width='100' height='100'>"
        "<defs><radialGradient id='g' cx='.5' cy='.5' r='.5'><stop offset='0' stop-color='#ff0000'/>"
        "<stop offset='1' stop-color='#0000ff'/></radialGradient></defs>"
        "<rect x='0' y='0' width='100' height='100' fill='#ffffff'/>"
        "<g transform='translate(10 20)' fill='#00ff00' opacity='.5'><path d='M0 0H20V20H0Z'/></g>"
        "<circle cx='70' cy='70' r='20' fill='url(#g)'/></svg>"
    )
    image = np.asarray(Image.open(io.BytesIO(painted(svg, "png", 1.0))).convert("RGB"), dtype=int)

    def at(x, y):
        return image[round(y * image.shape[0] / 100), round(x * image.shape[1] / 100)]

    assert np.abs(at(20, 30) - [128, 255, 128]).max() <= 2, "moved in both directions, and half transparent"
    assert np.abs(at(5, 10) - 255).max() <= 2
    assert at(70, 70)[0] > 240 > 60 > at(70, 70)[2]
    assert at(87, 70)[2] > 180
    assert np.abs(at(86, 86) - 255).max() <= 2, "outside the disc"
