"""Limits and predictions: which comparison decided, stored and drawn."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import disagreeing, finding_of, resting_on_open_intervals
from tiny import tiny

from armillary.anatomy.read import read
from armillary.probes import PROBES
from armillary.probes.attention.lexicon.themes.subject_parts import Compared, share_verdict
from armillary.probes.attention.related import related_verdict
from armillary.probes.machinery import NAN3, beats, over_twins, reached_by
from armillary.probes.machinery.intervals import surely_reached
from armillary.probes.machinery.limits import with_limits
from armillary.probes.machinery.limits.comparisons import OWN, predictions, rules
from armillary.probes.others.anisotropy import _learned
from armillary.probes.sphere.directions.direction_parts import Separations, against_length
from armillary.results import Control, Limit, Prediction, Statistic, Why
from armillary.results.disk.finding_records import check_claim, finding_from
from armillary.results.store import finding_json, table_csv
from armillary.views.report.strip import strip_html
from armillary.views.text.strip_scale import StripScale, comparison, on_strip
from armillary.views.text.summary import fields

SUPPORTED, REFUTED = "straight, a block that clears noise from a curve", "straight, noise that stays"


def test_every_claim_has_rules_and_no_rule_is_of_another():
    anatomy, ids = read(tiny("gpt2")), [probe.claim.id for probe in PROBES]
    assert sorted(rules(anatomy)) == sorted(ids)
    assert set(predictions(anatomy)) <= set(ids)
    parts = {claim: {rule.part for rule in listed} for claim, listed in rules(anatomy).items()}
    assert all(part in parts[claim] for claim, part in OWN.items())


@pytest.mark.parametrize("name", [SUPPORTED, REFUTED])
def test_a_limit_on_the_wrong_side_is_noticed(name):
    """The mutation of the law: with its sides exchanged, a finding contradicts itself."""
    finding = finding_of(name)
    assert finding.limits and not disagreeing(finding)
    turned = {"above": "below", "below": "above"}
    wrong = replace(finding, limits=tuple(replace(limit, side=turned[limit.side]) for limit in finding.limits))
    assert disagreeing(wrong)


def test_what_decides_comes_first():
    finding = finding_of(REFUTED)
    assert finding.limits[0].part == "straightens" and finding.limits[0].measured is None
    assert re.fullmatch(r"[−\d.]+ < 5 \(limit: straightens\)", comparison(finding))
    assert dict(fields(finding))["decided"] == [comparison(finding)]
    # A part that is weaker decides, whatever stands first in the table.
    by_text = next(part for part in finding.parts if part.name == "from the text")
    parts = tuple(replace(part, verdict="supported") for part in finding.parts if part is not by_text)
    other = with_limits(
        replace(finding, limits=(), parts=(*parts, replace(by_text, verdict="refuted"))), read(tiny("gpt2"))
    )
    assert other.limits[0].part == "from the text"
    assert other.limits[0].measured is not None and comparison(other).startswith("from the text: degrees: ")


def test_an_interval_across_a_limit_is_said_to_span_it():
    finding = finding_of(REFUTED)
    spanning = replace(finding.statistic, value=5.2, low=4.0, high=6.0)
    undecided = replace(finding, verdict="undecided", statistic=spanning)
    assert comparison(undecided) == "5.20 [4.00, 6.00] spans 5 (limit: straightens)"
    exact = replace(finding, limits=(Limit(2.0, "at", "two"),), statistic=Statistic("zeros", 1, 1, 1))
    assert comparison(exact) == "1 ≠ 2 (limit: two)"
    assert comparison(replace(finding, limits=())) == ""


def test_a_verdict_on_an_open_interval_is_noticed():
    """The mutation of the law: the same verdicts with intervals that span the limits."""
    for name in (SUPPORTED, REFUTED):
        finding = finding_of(name)
        assert not resting_on_open_intervals(finding)
        limit = next(each for each in finding.limits if each.part == "straightens")
        around = replace(finding.statistic, value=limit.value, low=limit.value - 1, high=limit.value + 1)
        assert resting_on_open_intervals(replace(finding, statistic=around, limits=(replace(limit, measured=None),)))


def test_a_share_across_one_half_is_undecided():
    clear, none = Compared((0.2, 0.15, 0.25), (0.0, -0.01, 0.01), 5), Compared((0.0, -0.02, 0.0), (0.0, -0.01, 0.01), 5)
    verdicts = [share_verdict(clear, share)[0] for share in ((0.6, 0.5, 0.7), (0.5, 0.4, 0.6), (0.3, 0.2, 0.4))]
    assert verdicts == ["supported", "undecided", "qualified"]
    assert share_verdict(none, (0.6, 0.5, 0.7))[0] == "refuted"


HIGH, NONE = Compared((0.8, 0.7, 0.9), (0.5, 0.45, 0.55), 5), (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("share", "untrained", "gain", "median", "verdict"),
    [
        ((0.6, 0.5, 0.7), NONE, (0.2, 0.1, 0.3), HIGH, "supported"),
        ((0.5, 0.4, 0.6), NONE, (0.2, 0.1, 0.3), HIGH, "undecided"),
        ((0.3, 0.2, 0.4), NONE, (0.0, -0.1, 0.1), HIGH, "qualified"),
        ((0.15, 0.05, 0.25), NONE, (0.0, -0.1, 0.1), HIGH, "undecided"),
        ((0.05, 0.0, 0.1), NONE, (0.0, -0.1, 0.1), HIGH, "refuted"),
        ((0.3, 0.2, 0.4), (0.3, 0.1, 0.5), (0.0, -0.1, 0.1), HIGH, "refuted"),
        ((0.3, 0.2, 0.4), (0.2, 0.1, 0.3), (0.0, -0.1, 0.1), HIGH, "undecided"),
        ((0.6, 0.5, 0.7), NONE, (-0.2, -0.3, -0.1), HIGH, "refuted"),
        ((0.6, 0.5, 0.7), NONE, (0.2, -0.1, 0.3), HIGH, "undecided"),
        ((0.6, 0.5, 0.7), NONE, (0.2, 0.1, 0.3), Compared((0.5, 0.48, 0.52), (0.5, 0.45, 0.55), 5), "refuted"),
    ],
)
def test_a_share_of_heads_that_separate_has_an_interval(share, untrained, gain, median, verdict):
    assert related_verdict(Compared(share, untrained, 5), gain, median)[0] == verdict


def test_a_share_of_heads_that_separate_needs_untrained_models():
    alone = Compared((0.6, 0.5, 0.7), NAN3, 0)
    assert related_verdict(alone, (0.2, 0.1, 0.3), alone) == ("undecided", Why.NO_CONTROL)


def test_an_angle_within_the_reach_of_untrained_models_is_open():
    """Below what they surely reach it is refuted; up to their upper end, which five models hardly tell, it is open."""
    untrained = (0.15, 0.03, 0.27)
    least = float(surely_reached(untrained, 5))
    verdicts = []
    for value in ((0.4, 0.3, 0.5), (0.24, 0.2, 0.26), (0.17, 0.15, least - 0.001)):
        angle = Separations((0.8, 0.75, 0.85), (0.7, 0.65, 0.75), (0.5, 0.45, 0.55), value, (0.1, 0.05, 0.15))
        verdicts.append(against_length(angle, untrained, 5, "ln_final").verdict)
    assert verdicts == ["supported", "undecided", "refuted"]


def exceeding(law, compared, trials=4000):
    """How often one more untrained model lies above what five others are said to reach."""
    values = law((trials, 6))
    return float(np.mean([bool(compared(row[5], row[:5])) for row in values]))


def passes(value, twins):
    return beats((value,) * 3, tuple(over_twins([(twin,) * 3 for twin in twins]).tolist()), len(twins))


@pytest.mark.parametrize("law", ["standard_normal", "random"])
def test_one_more_untrained_model_hardly_passes(law):
    """The interval over five twins is that of one more: at most one in twenty passes, for a single number without an
    interval of its own. The largest of the five, the mutation, is passed by one in six."""
    draws = getattr(np.random.default_rng(2026), law)
    assert exceeding(draws, passes) <= 0.05
    assert exceeding(draws, lambda value, twins: value > twins.max()) > 0.1


def test_untrained_models_that_differ_leave_it_open():
    """Supported above their upper end, refuted below what they surely reach, undecided between both."""
    untrained = (0.2, 0.1, 0.3)
    least = float(surely_reached(untrained, 5))
    assert untrained[0] < least < float(reached_by(untrained, 5)) == untrained[2]
    values = ((0.35, 0.31, 0.4), (0.27, 0.26, 0.28), (0.21, 0.2, least - 0.001))
    assert [_learned(value, untrained, 5).verdict for value in values] == ["supported", "undecided", "refuted"]
    assert _learned(values[0], NAN3, 0).why is Why.NO_CONTROL


def test_limits_are_stored_and_older_files_have_none(tmp_path):
    finding = replace(finding_of(REFUTED), prediction=Prediction(0.0, "no turn"))
    path = tmp_path / "table.csv"
    path.write_text(table_csv(finding.table), "utf-8")
    record = json.loads(finding_json(finding))
    check_claim(record)
    back = finding_from(record, lambda name: path)
    assert back.limits == finding.limits and back.prediction == finding.prediction
    older = finding_from({k: v for k, v in record.items() if k not in ("limits", "prediction")}, lambda name: path)
    assert older.limits == () and older.prediction is None
    record["limits"][0]["side"] = "beside"
    with pytest.raises(ValueError, match="side"):
        check_claim(record)


def test_a_strip_has_a_scale_its_limits_its_prediction_and_all_controls():
    finding = replace(finding_of(REFUTED), prediction=Prediction(0.0, "no turn"))
    html = strip_html(finding)
    svg, keys = html.split("<ul", 1)
    assert svg.count("class='limit'") == len(on_strip(finding)) == len({limit.value for limit in on_strip(finding)})
    assert svg.count("class='prediction'") == 1 and svg.count("<text class='tick'") >= 2
    assert svg.count("path class='control'") == len(finding.controls) == 2
    assert all(control.name in keys for control in finding.controls) and "limit 5, straightens" in keys
    assert "0, no turn" in keys
    shapes = re.findall(r"path class='control'[^>]* d='([^']+)'", keys)
    assert len(set(shapes)) == len(finding.controls), "controls are told apart by their shapes"


def test_names_in_a_strip_are_text():
    bad = "<img onerror=x>"
    finding = finding_of(REFUTED)
    finding = replace(
        finding, controls=(Control(bad, 1, 1, 1),), prediction=Prediction(1.0, bad), limits=(Limit(5, "above", bad),)
    )
    assert "<img" not in strip_html(finding)


@pytest.mark.parametrize(
    ("low", "high", "log"), [(-0.1, 1.1, False), (0.03, 0.11, False), (-14, 1, True), (1, 3.2, True)]
)
def test_a_scale_has_a_few_round_ticks(low, high, log):
    scale = StripScale(low, high, log)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 5
    assert all(0 <= scale.at(value) <= 1 for value in ticks)
    assert len(set(ticks.values())) == len(ticks)


def test_a_number_without_a_size_has_no_strip():
    finding = finding_of(REFUTED)
    nothing = replace(finding, statistic=Statistic("not measured", *[float("nan")] * 3), limits=())
    assert strip_html(nothing) == ""
    assert with_limits(nothing, read(tiny("gpt2"))).limits == ()


def test_passes_of_untrained_models_are_counted_by_part():
    bench = runpy.run_path(str(Path(__file__).parent.parent / "bench" / "untrained_parts.py"))
    results = [("a.b", "one", True)] + 19 * [("a.b", "one", False)] + 20 * [("a.c", "", False)]
    (first, second) = bench["rows"](results)
    assert first[:3] == ("a.b: one", 1, 20) and second[:3] == ("a.c", 0, 20)
    assert first[3] < 0.05 < first[4] and second[3] == 0
    shapes = [bench["shape_of"](kind, number) for number in range(24) for kind in ("gpt", "llama")]
    drawn = [shape for shape in shapes if shape]
    assert len(drawn) == 24 and len({tuple(shape.values()) for shape in drawn}) > 12, "half of them have their own"
    assert all(shape["width"] % shape["heads"] == 0 and shape["width"] // shape["heads"] % 2 == 0 for shape in drawn)
