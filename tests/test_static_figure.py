"""Does the figure in a notebook show the numbers that it was given, as text that cannot act?"""

import runpy
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from folders import tokenizer
from tiny import tiny

from armillary import load
from armillary.results import Quantity
from armillary.views.figures.figure import drawn, figure
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
