"""Do tables and figures fit a screen of 400 pixels: nothing cut, nothing over another, nothing to scroll sideways?"""

import re
from pathlib import Path

import pytest
from PIL import ImageFont
from test_training_view import COLLAPSE

from armillary.lab.study.conclusions.outcome import outcome
from armillary.results import Column, Table
from armillary.views.figures.lab.study import study_figure
from armillary.views.figures.lab.training import training_figure
from armillary.views.report.notebook import CSS, table_html

STUDIES = sorted(path.parent for path in (Path(__file__).parents[1] / "docs" / "lab").glob("*/runs.jsonl"))


def table(columns: int, cell: str = "0.123") -> Table:
    return Table(tuple(Column(f"column {i}", "") for i in range(columns)), ((cell,) * columns,))


def test_a_wide_table_stacks_and_a_small_one_does_not():
    assert "stacks" not in table_html(table(3))
    wide = table_html(table(6))
    assert "<table class='stacks'>" in wide
    assert re.findall("<td[^>]*data-name='([^']*)'", wide) == [f"column {i}" for i in range(6)]
    assert "stacks" in table_html(table(2, "a long reading " * 5)), "long cells count, not columns"
    assert ".wide .stacks td::before{content:attr(data-name)" in CSS


def test_lists_of_words_stack_under_their_own_names():
    listed = table_html(table(1), ["left"], [["a&emsp;b"]])
    assert "<td data-name='left'>a&emsp;b</td>" in listed


def test_a_name_from_a_model_stays_text_in_an_attribute():
    hostile = Table((Column("'><img src=x onerror=alert(1)>", ""),), (("x" * 60,),))
    assert "<img" not in table_html(hostile)


@pytest.mark.parametrize("folder", [None, *STUDIES], ids=lambda folder: folder.name if folder else "training")
def test_titles_of_panels_have_room_above_them(folder):
    """Each title's lines lie between the panel below and whatever is above it."""
    drawn = study_figure(outcome(folder), narrow=True) if folder else training_figure(COLLAPSE, "m", narrow=True)
    name, layout = folder, drawn.layout
    plot = layout.height - layout.margin.t - layout.margin.b
    domains = sorted(layout[key].domain for key in layout if key.startswith("yaxis"))
    titles = [note for note in layout.annotations if note.yref == "paper" and note.yanchor == "bottom"]
    assert len(titles) == len(domains)
    for note in titles:
        lines = note.text.split("<br>")
        top = note.y + (note.yshift + 15 * len(lines)) / plot
        above = [low for low, _ in domains if low >= note.y]
        assert top <= min([1.0, *above]), name
        assert note.y in [high for _, high in domains], "it stands on its panel"
        left = layout.margin.l + note.xshift
        assert left >= 0
        assert all(left + _pixels(line, note.font.size) <= 372 for line in lines), lines


@pytest.mark.parametrize("folder", STUDIES, ids=lambda path: path.name)
@pytest.mark.parametrize("narrow", [False, True])
def test_names_of_arms_fit_the_margin(folder, narrow):
    study = outcome(folder)
    figure = study_figure(study, narrow)
    size = figure.layout.yaxis.tickfont.size or 12
    longest = max(_pixels(arm.name, size) for arm in study.arms)
    assert figure.layout.margin.l >= longest + 6


def _pixels(text: str, size: float) -> float:
    """As wide as DejaVu Sans, the widest of the fonts that pages name."""
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return float(ImageFont.truetype(str(path), round(size)).getlength(text))
