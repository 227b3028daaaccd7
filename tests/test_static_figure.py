"""Does the figure in a notebook show the numbers that it was given, as text that cannot act?"""

import re
import runpy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from folders import tokenizer
from tiny import tiny

from armillary import load
from armillary.results import Column, Quantity, Table
from armillary.views.figures.figure import drawn, figure
from armillary.views.figures.marks import DARK, LIGHT
from armillary.views.figures.print.picture import picture_svg
from armillary.views.figures.print.static_svg import figure_svg

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))


@pytest.fixture(scope="module")
def hostile():
    return SYNTHETIC["hostile_survey"]()


def test_every_figure_is_one_whole_document(hostile):
    for finding in (*hostile, *SYNTHETIC["synthetic_survey"]()):
        root = ElementTree.fromstring(figure_svg(figure(finding), "a figure"))
        tags = {element.tag for element in root.iter()}
        assert tags <= {"svg", "g", "path", "rect", "circle", "text"}
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]


def test_points_are_where_their_values_are():
    values = np.array([1.0, 4.0, np.nan, 2.0])
    quantity = Quantity("q", "m", "u", ("x",), {"x": [0.0, 1.0, 2.0, 3.0]}, values)
    root = ElementTree.fromstring(figure_svg(drawn([quantity], "title", "subtitle"), "a figure"))
    spots = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter("circle")]
    assert len(spots) == 3
    (x0, y0), (x1, y1), (x3, y3) = spots
    assert x1 - x0 == pytest.approx((x3 - x0) / 3, abs=0.2)
    assert (y0 - y3) / (y0 - y1) == pytest.approx((2.0 - 1.0) / (4.0 - 1.0), abs=0.01)


def test_a_map_has_a_cell_for_every_value_that_is_known():
    grid = np.array([[1.0, 2.0], [3.0, np.nan]])
    quantity = Quantity("q", "m", "u", ("layer", "head"), {"layer": ["L0", "L1"], "head": ["H0", "H1"]}, grid)
    root = ElementTree.fromstring(figure_svg(drawn([quantity], "t", "s"), "a figure"))
    cells = [r for r in root.iter("rect") if float(r.get("width")) > 20]
    assert len(cells) == 3
    assert len({r.get("fill") for r in cells}) == 3


def test_findings_and_models_draw_themselves(hostile):
    finding = hostile.findings[0]
    assert "<svg" in finding._repr_html_()
    assert "<svg" in replace(finding, quantities=())._repr_html_()
    page = load(tiny("gpt2"), tokenizer=tokenizer(), progress=False)._repr_html_()
    assert "<svg" in page and "gain of the norms" in page and "L0.resid_pre" in page
    assert "<script" not in page


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2"])
def test_models_of_other_families_draw_themselves(name):
    assert "<svg" in load(tiny(name), progress=False)._repr_html_()


def svg_of(quantity: Quantity, narrow: bool = False) -> ElementTree.Element:
    return ElementTree.fromstring(figure_svg(drawn([quantity], "title", "subtitle", (), narrow), "a figure"))


def texts(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    return [(e.text or "", float(e.get("x")), float(e.get("y"))) for e in root.iter("text")]


@pytest.mark.parametrize("narrow", [False, True])
def test_labels_of_stations_sublayers_and_layers_do_not_lie_on_each_other(narrow):
    names = [f"L{i} {kind}" for i in range(7) for kind in ("attention", "feed-forward")]
    axes, coords = ("sublayer", "station"), {"sublayer": names, "station": ["x", "z", "y", "write"]}
    quantity = Quantity("the cycle", "m", "isotropy", axes, coords, np.random.default_rng(0).random((14, 4)))
    root = svg_of(quantity, narrow)
    layers = {f"L{i}" for i in range(7)}
    ticks = [entry for entry in texts(root) if entry[0] in {"x", "z", "y", "w", "attn", "ffn"} | layers]
    assert layers <= {text for text, *_ in ticks}
    for row in {y for *_, y in ticks}:
        spans = sorted((x - 3.4 * len(text), x + 3.4 * len(text)) for text, x, y in ticks if y == row)
        assert all(a[1] <= b[0] for a, b in pairwise(spans)), spans
    bands = [path for path in root.iter("path") if path.get("opacity") == "0.35"]
    assert len(bands) == 1 and bands[0].get("stroke") == "none", "a ground has no outline"
    rings = [c for c in root.iter("circle") if c.get("fill") == "var(--ground)"]
    assert len(rings) == 14 and {c.get("stroke") for c in rings} == {"var(--accent)"}


def test_what_a_model_wrote_is_drawn_and_fits():
    finding = next(f for f in SYNTHETIC["synthetic_survey"]() if f.quantities)
    columns = (Column("window", "which"), Column("passage", "what was written"))
    table = Table(columns, ((1, "It was a dark and stormy night, and the rain fell in torrents on the roofs. " * 3),))
    finding = replace(finding, more_tables={"text": table})
    for narrow, most in ((False, 90), (True, 50)):
        lines = [text for text, *_ in texts(ElementTree.fromstring(figure_svg(figure(finding, narrow), "a figure")))]
        written = [line for line in lines if "stormy" in line or "torrents" in line or "window 1" in line]
        assert len(written) >= 2
        assert max(map(len, written)) <= most


def test_a_label_stands_where_its_line_ends_on_the_right():
    quantity = Quantity("q", "m", "u", ("x",), {"x": [3.0, 2.0, 1.0]}, np.array([9.0, 4.0, 1.0]),
                        controls={"control": np.array([1.0, 4.0, 9.0])})  # fmt: skip
    heights = {text: y for text, _, y in texts(svg_of(quantity))}
    assert heights["this model"] < heights["control"], "9 at x = 3 is higher on the page than 1"


def test_zeros_on_a_log_scale_are_marked_in_a_map():
    grid = np.array([[1.0, 0.0], [100.0, 10.0]])
    quantity = Quantity("q", "m", "u", ("a", "b"), {"a": ["r", "s"], "b": ["t", "v"]}, grid, logs=("value",))
    assert [text for text, *_ in texts(svg_of(quantity))].count("0") == 1


def test_a_picture_for_the_site_follows_the_theme_and_one_for_a_paper_does_not():
    quantity = Quantity("q", "m", "u", ("x",), {"x": [0.0, 1.0]}, np.array([1.0, 2.0]))
    draw = partial(drawn, [quantity], "title", "subtitle", ())
    both, paper = (picture_svg(draw, 2, themes) for themes in (True, False))
    assert "prefers-color-scheme: dark" in both and DARK.ink in both
    assert not re.search(f"(fill|stroke)='({LIGHT.ink}|{LIGHT.accent})'", both)
    assert "var(" not in paper and "<style" not in paper
    ElementTree.fromstring(both)
