"""Does the figure of a training show what the log says, and nothing else?"""

import csv
import io

import pytest

from armillary.errors import OutputError
from armillary.views.figures.lab.training import save_training, training_csv, training_figure


def looks(ranks: list[float]) -> list[dict]:
    return [
        {
            "step": step,
            "valid_bits_per_byte": 3.0 / (1 + step),
            "geometry": {
                "length/L0.ln1": 1.0 + step,
                "length/ln_final": 2.0 + step,
                "effective_rank/L0.ln1": 50.0,
                "effective_rank/ln_final": rank,
                "attention_entropy/L0H0": 0.2,
                "attention_entropy/L0H1": 0.4,
            },
        }
        for step, rank in zip((0, 1, 10, 100), ranks, strict=True)
    ]


COLLAPSE, STEADY = looks([90, 80, 7, 95]), looks([90, 88, 91, 95])


def test_the_headline_tells_a_collapse_from_none():
    title = training_figure(COLLAPSE, "m").layout.title.text.replace("<br>", " ")
    assert "3.00 → 0.03 bits per byte" in title
    assert "falls from 90 to 7 at step 10 and rises to 95" in title
    assert "fall" not in training_figure(STEADY, "m").layout.title.text


def test_every_site_has_its_line():
    figure = training_figure(COLLAPSE, "m")
    drawn = {(trace.yaxis, trace.hovertemplate.split("<br>")[0]): list(trace.y) for trace in figure.data}
    assert drawn["y2", "ln_final"] == [90, 80, 7, 95]
    assert drawn["y3", "L0.ln1"] == [1, 2, 11, 101]
    assert drawn["y4", "L0"] == pytest.approx([0.3] * 4)
    assert len(drawn) == 6
    assert [list(trace.x) for trace in figure.data] == [[0.5, 1, 10, 100]] * 6
    assert list(figure.data[0].customdata) == [0, 1, 10, 100]


def test_a_log_without_geometry_is_drawn_too():
    plain = [{key: value for key, value in look.items() if key != "geometry"} for look in COLLAPSE]
    assert training_figure(plain, "m").layout.title.text == "3.00 → 0.03 bits per byte"


def test_numbers_come_out_as_they_went_in():
    rows = list(csv.DictReader(io.StringIO(training_csv(COLLAPSE))))
    assert len(rows) == 4 * 7
    values = {(int(row["step"]), row["name"]): float(row["value"]) for row in rows}
    assert values[10, "effective_rank/ln_final"] == 7
    assert values[100, "bits_per_byte"] == COLLAPSE[-1]["valid_bits_per_byte"]


def test_saved_pages_are_whole_and_names_inert(tmp_path):
    page = save_training(COLLAPSE, "<script>alert(1)</script>", tmp_path / "t.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "falls from 90 to 7" in page
    assert "https://" not in page.split("<script>")[0]
    assert save_training(COLLAPSE, "m", tmp_path / "t.csv").read_text("utf-8").startswith("step,name,value\n")
    with pytest.raises(OutputError, match=r"choose one of .html .csv .svg .pdf .png"):
        save_training(COLLAPSE, "m", tmp_path / "t.gif")


def test_a_rank_that_was_not_measured_is_not_zero() -> None:
    """A log may lack the geometry of a step, and a rank that was not finite is stored as nothing."""
    first, *others = STEADY
    without = {key: value for key, value in others[0].items() if key != "geometry"}
    nothing = {**others[1], "geometry": dict.fromkeys(others[1]["geometry"])}
    for looks in ([first, without, *others[1:]], [first, nothing, *others[1:]], [without, *others]):
        title = training_figure(looks, "m").layout.title.text
        assert "effective rank" in title
        assert "fall" not in title
