"""Is the largest change named first, rounding hidden, depths matched, and likeness measured against chance?"""

import math
from dataclasses import replace

import numpy as np
import pytest
from command import refused
from test_compare import COLUMNS, only, survey

from armillary.geometry.alignment import cka, mutual_neighbours
from armillary.results import Column, Statistic, Table, TextLoss
from armillary.results.compare import Change, Number, compare
from armillary.results.compare.changes import ratio
from armillary.results.compare.similarity import Similarity, SimilarityMaps
from armillary.results.store import read_survey, write_survey
from armillary.views.compare.comparison import _few_lines, comparison_json, comparison_text
from armillary.views.compare.comparison_page import comparison_page
from armillary.views.text.progress import Bar, time_range


def with_loss(nats, tokens=(100,) * 10, size=(400,) * 10, text="same", **changes):
    return replace(survey(**changes), loss=TextLoss(tuple(tokens), tuple(size), tuple(nats), text))


def claims(*moves):
    """A survey of one claim per number, each with an interval of 0.04 over 25 documents."""
    base = survey()
    findings = []
    for place, value in enumerate(moves):
        claim = replace(base.findings[0].claim, id=f"claim.{place}")
        number = Statistic("share", value, value - 0.02, value + 0.02)
        findings.append(replace(base.findings[0], claim=claim, statistic=number, table=Table((), ()), quantities=()))
    return replace(base, findings=tuple(findings), text=replace(base.text, documents=25))


# ---- the loss -------------------------------------------------------------------------------------------


def test_the_loss_comes_first_and_is_paired_by_documents():
    rng = np.random.default_rng(0)
    nats = 300 + 40 * rng.normal(size=10)
    comparison = compare(with_loss(nats), with_loss(nats + 5 + 0.1 * rng.normal(size=10)))
    assert comparison.loss is not None and comparison.loss.paired
    assert comparison.loss.unit == "nats per token"
    assert comparison.loss.difference.value == pytest.approx(0.05, abs=0.005)
    assert comparison.loss.difference.low > 0.04, "documents differ by far more than the models: only pairing sees it"
    text = comparison_text(comparison)
    assert text.index("The loss rose") < text.index("attention.cosine")
    same = compare(with_loss(nats), with_loss(nats + rng.normal(size=10)))
    assert "The loss is not distinguished" in comparison_text(same)
    assert "The loss is the same in every document: 3.0" in " ".join(
        comparison_text(compare(with_loss(nats), with_loss(nats))).split()
    )


def test_other_tokenizers_are_compared_in_bits_per_byte():
    a = with_loss([200.0, 210.0, 190.0], (100,) * 3, (400,) * 3)
    b = with_loss([220.0, 230.0, 210.0], (130,) * 3, (400,) * 3)
    comparison = compare(a, b)
    assert comparison.loss is not None and (comparison.loss.unit, comparison.loss.paired) == ("bits per byte", True)
    assert comparison.loss.a.value == pytest.approx(600 / math.log(2) / 1200)
    other = compare(a, with_loss([220.0] * 3, (130,) * 3, (410,) * 3, "other"))
    assert other.loss is not None and not other.loss.paired
    assert compare(survey(), survey()).loss is None
    assert "The loss cannot be compared" in comparison_text(compare(survey(), survey()))


def test_the_interval_of_a_ratio_covers_as_often_as_it_says():
    rng, hits = np.random.default_rng(1), 0
    for _ in range(1000):
        size = rng.integers(50, 150, 20)
        hits += (
            0
            <= 3.0 - (interval := ratio(3.0 * size + 30 * rng.normal(size=20), size)).low
            <= interval.high - interval.low
        )
    assert 930 <= hits <= 970


def test_the_loss_is_stored(tmp_path):
    write_survey(with_loss([1.5, 2.5], (1, 2), (3, 4)), tmp_path)
    assert read_survey(tmp_path).loss == TextLoss((1, 2), (3, 4), (1.5, 2.5), "same")


# ---- the largest changes --------------------------------------------------------------------------------


def test_the_ten_largest_changes_are_ranked_by_effect_size():
    moves = [0.5 + 0.05 * step for step in range(13)]
    comparison = compare(claims(*[0.5] * 13), claims(*moves))
    shifts = comparison.shifts
    assert [shift.pair.id for shift in shifts] == [f"claim.{place}" for place in range(12, 2, -1)]
    spread = 0.04 / (2 * 1.96) * 5
    assert shifts[0].effect == pytest.approx(0.6 / spread, rel=1e-4)
    assert "1. claim.12: share rose from 0.500 to 1.10" in " ".join(comparison_text(comparison).split())
    assert compare(claims(0.5, 0.6), claims(0.5, 0.6)).shifts == ()


def test_a_column_is_told_by_what_it_means():
    """Where a claim's number stays and its rows change; a unit of degrees stands at its number."""
    heads = [f"L{i}H{j}" for i in range(4) for j in range(2)]
    a, b = survey(0.0, heads=heads), survey(0.1, "tuned", heads=heads)
    b = replace(b, findings=(replace(b.findings[0], statistic=a.findings[0].statistic),))
    text = " ".join(comparison_text(compare(a, b)).split())
    assert "attention.cosine: what r2 means (column r2) rose in 8 of 8 rows" in text
    turned = [replace(s, findings=(replace(s.findings[0], statistic=replace(s.findings[0].statistic, unit="°")),))
              for s in (a, survey(0.1, "tuned", heads=heads))]  # fmt: skip
    assert "rose from 0.500 to 0.600° (" in " ".join(comparison_text(compare(*turned)).split())


def test_a_reading_that_is_too_long_ends_with_a_clause():
    text = "; ".join(f"clause {place} of several words that fill the line" for place in range(12)) + "."
    lines = [line.plain for line in _few_lines(text, 80)]
    assert len(lines) == 4 and "…" not in "".join(lines)
    shown = " ".join(" ".join(lines).split())
    left = 12 - shown.count("of several words that fill the line")
    assert left and shown.endswith(f"fill the line; {left} more in the saved tables.")
    assert [line.plain for line in _few_lines("One clause.", 80)] == ["   One clause."]


def test_errors_of_rounding_do_not_differ():
    assert Change(Number(1.3e-6), Number(1.15e-6)).outcome == "the same"
    assert Change(Number(1.3e-5), Number(1.15e-5)).outcome == "unequal"


def test_rounding_is_no_change():
    small = (Number(2.5e-14, 2.4e-14, 2.6e-14), Number(9e-14, 8e-14, 1e-13))
    assert Change(*small).outcome == "the same"
    assert Change(Number(0.5), Number(0.501)).outcome == "unequal"
    assert Change(Number(0.5), Number(0.501), 2**-7).outcome == "the same"
    coarse = replace(survey(0.001), provenance=replace(survey().provenance, dtype="bfloat16"))
    tallies = {t.column: t.unequal for t in only(compare(survey(), coarse)).tallies}
    assert tallies["spread"] == 0
    assert {t.column: t.unequal for t in only(compare(survey(), survey(0.001))).tallies}["spread"] == 6


def test_claims_without_a_change_are_named_in_one_line():
    comparison = compare(claims(0.5, 0.5), claims(0.5, 0.9))
    assert "No difference found in claim.0" in comparison_text(comparison)
    assert "No difference found" not in comparison_text(comparison, full=True)


def test_layers_meet_at_the_same_relative_depth():
    def deep(layers, shift=0.0):
        rows = [(f"L{i}.ln1", v := i / (layers - 1) + shift, v - 0.01, v + 0.01) for i in range(layers)]
        table = Table((Column("site", ""), *COLUMNS[1:4]), tuple(rows))
        measured = survey(table=table, quantities=())
        return replace(measured, model=replace(measured.model, layers=layers))

    for a, b, names in ((3, 7, ["L0.ln1", "L1.ln1 ↔ L3.ln1", "L2.ln1 ↔ L6.ln1"]),):
        pair = only(compare(deep(a), deep(b)))
        assert [row[1] for row in pair.table.rows] == names
        assert pair.tallies[0].differ == 0
        back = only(compare(deep(b), deep(a, 0.5)))
        assert [row[1] for row in back.table.rows][1] == "L3.ln1 ↔ L1.ln1"
        assert (back.tallies[0].differ, back.tallies[0].rose) == (3, 3)


# ---- likeness of streams --------------------------------------------------------------------------------


def test_likeness_is_one_for_a_turned_copy_and_chance_for_noise():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 12))
    turned = 3 * x @ np.linalg.qr(rng.normal(size=(12, 12)))[0] + 7
    noise = rng.normal(size=(80, 400))
    for measure in (cka, mutual_neighbours):
        similarity = measure([x], [turned, noise], permutations=100)
        assert similarity.calibrated[0, 0] == pytest.approx(1, abs=1e-5)
        assert similarity.p[0, 0] < 0.02
        assert similarity.calibrated[0, 1] < 0.1
        assert similarity.score[0, 1] < 0.3, "width alone makes nothing alike"


def test_unrelated_streams_pass_for_alike_in_one_case_of_twenty():
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=(100, 30, 6)) for _ in range(2))
    called = sum(cka([x], [y], 39).p[0, 0] <= 0.05 for x, y in zip(a, b, strict=True))
    assert called <= 12


def test_the_map_of_likeness_is_in_every_form():
    layers = (("L0.resid_pre", "L0.resid_post"), ("L0.resid_pre", "L0.resid_post", "L1.resid_post"))
    score = np.array([[0.9, 0.2, 0.1], [0.2, 0.5, 0.8]])
    entry = SimilarityMaps("CKA", "linear CKA", score, np.full((2, 3), 0.1), 0.9, 0.2)
    comparison = compare(survey(), survey(0.1, "tuned"), similarity=Similarity(layers, 64, (entry,)))
    assert "CKA 0.83 in the median layer, lowest 0.78 at L0.resid_post" in " ".join(comparison_text(comparison).split())
    assert '"similarity"' in comparison_json(comparison)
    page = comparison_page(comparison)
    assert "How alike are the streams" in page and 'id="changes"' in page


# ---- progress -------------------------------------------------------------------------------------------


def test_one_bar_runs_over_all_stages_and_lines_are_rare():
    now, lines = [0.0], []
    bar = Bar(write=lines.append, clock=lambda: now[0])
    bar.expect({"reading": 30.0, "concluding": 70.0})
    shares = []
    for stage, total in (("reading", 3), ("concluding", 7)):
        bar.start(stage, total)
        for _ in range(total):
            now[0] += 10
            bar.advance(1)
            shares.append(bar.share)
    assert shares == pytest.approx([0.1 * step for step in range(1, 11)])
    assert lines[0] == "armillary: 20%, 40 s to 2 min left: reading"
    assert len(lines) == 5, "a line every 15 seconds at most"


def test_a_claim_under_way_counts_and_is_not_counted_twice():
    bar = Bar(clock=lambda: 0.0)
    bar.start("concluding", 10)
    bar.say("first: 2 of 4 passes", 2.0)
    assert bar.share == pytest.approx(0.2)
    bar.advance(4, 1.0)
    assert bar.share == pytest.approx(0.5), "the first is done, a second under way"
    bar.say("second")
    assert bar.share == pytest.approx(0.4)


# The seconds that each hundredth of a task takes.
PACES = {
    "as expected": [2.0] * 100,
    "a first stage that takes five times as long": [10.0] * 10 + [2.0] * 90,
    "a first stage that takes a third": [0.7] * 12 + [2.0] * 88,
    "every second stage is twice as long": ([1.0] * 5 + [2.0] * 5) * 10,
    "load from a third on": [1.0] * 33 + [2.0] * 67,
}


def watched(paces: list[float]) -> list[tuple[float, float, tuple[float, float] | None]]:
    """After each hundredth: the share that is done, the true time left, and what the bar says."""
    now = [0.0]
    bar = Bar(clock=lambda: now[0])
    bar.expect({"all": 100.0})
    bar.start("all", 100)
    record = []
    for pace in paces:
        now[0] += pace
        bar.advance(1)
        record.append((bar.share, sum(paces) - now[0], bar.seconds_left))
    return record


@pytest.mark.parametrize("what", PACES)
def test_the_time_left_is_a_range_that_holds_the_truth(what):
    record = [(share, true, range_) for share, true, range_ in watched(PACES[what]) if true > 10]
    assert all(range_ is None for share, _, range_ in record if share < 0.0999), "the first stages say too little"
    ranges = [(share, true, *range_) for share, true, range_ in record if range_ is not None]
    assert len(ranges) >= 80
    # Before it begins, load is known to nobody.
    known = [entry for entry in ranges if entry[0] > 0.4 or "load" not in what]
    held = [low <= true <= high for _, true, low, high in known]
    assert sum(held) >= 0.9 * len(held), [entry for entry, fine in zip(known, held, strict=True) if not fine]


def test_the_time_left_settles():
    """The nearer the end, the narrower; near the end of a steady task one number is said."""
    widths = [range_[1] / range_[0] for _, true, range_ in watched(PACES["as expected"]) if range_ and true > 10]
    assert widths == sorted(widths, reverse=True)
    middle = next(range_ for share, _, range_ in watched(PACES["as expected"]) if share >= 0.85)
    assert middle is not None and time_range(*middle) == "about 30 s"


def test_nothing_is_said_of_the_time_left_in_the_first_seconds():
    assert all(range_ is None for *_, range_ in watched([0.1] * 95)), "the task takes less than ten seconds"


# ---- failed runs ----------------------------------------------------------------------------------------


def test_a_failed_run_leaves_no_empty_folder(tmp_path):
    refused("there is no model at", "survey", tmp_path / "no" / "model", "--out", tmp_path / "new" / "deep")
    refused("there is no model at", "compare", "builtin:gpt", tmp_path / "no" / "model", "--out", tmp_path / "two")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    refused("there is no model at", "survey", tmp_path / "no" / "model", "--out", tmp_path / "mine")
    assert (tmp_path / "mine").is_dir(), "a folder that was there stays"
