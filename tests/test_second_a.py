"""Units as a store, simple updates, and what W_QK's vectors mean: planted truths come back, mistakes are caught."""

import planted_heads as heads
import pytest
from planted import corpus
from planted_grid import whole
from planted_second_a import CASES, finding_of
from tiny import MAKERS, tiny

from armillary.anatomy.read import read
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.shared_pass import gather
from armillary.results.store import finding_json

PARTS = {
    "forward store, one unit a word": ("supported", "supported"),
    "forward store, random units": ("supported", "refuted"),
    "forward store, an axis that all words share": ("supported", "refuted"),
    "forward store, gated, one unit a word": ("supported", "supported"),
    "forward store, gated, random units": ("supported", "refuted"),
    "forward store, a gain misread": ("refuted", "refuted"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    assert finding.verdict == CASES[case][1], f"{finding.statistic}: {finding.reading}"
    if case in PARTS:
        assert tuple(part.verdict for part in finding.parts) == PARTS[case], finding.reading


@pytest.mark.parametrize("case", list(CASES))
def test_findings_are_complete(case):
    whole(finding_of(case))


@pytest.mark.parametrize("name", list(MAKERS))
def test_every_family_is_a_store_by_definition(name):
    anatomy = read(tiny(name))
    finding = ForwardStore().conclude(gather(anatomy, corpus(9, 30, vocabulary=97), (SAMPLES,)))
    assert finding.parts[0].verdict == "supported", finding.reading
    exchanged = finding.controls[0]
    assert exchanged.value > 0.1 > 1e4 * finding.statistic.value
    beside = finding.to_frame().head_keys
    # No norm stands before the first layer of this model, so no direction was sampled there.
    assert beside.isna().tolist() == [name == "opt-post", False, False]
    assert finding_json(finding) and finding.plot() is not None


def test_an_axis_that_all_tokens_share_is_no_key():
    """Rotated keys lose it and would call it a match; rotated tokens keep it."""
    layer = finding_of("forward store, an axis that all words share").to_frame().iloc[0]
    assert layer.keys_turned > 1.25 * layer.keys_met
    assert layer.keys_shaped < 1.1 * layer.keys_met and not layer.stores


def test_units_are_named_by_tokens_of_the_text():
    anatomy = heads.gpt2(heads.gaussian(), heads.randoms())
    finding = ForwardStore().conclude(gather(anatomy, corpus(12, 8, vocabulary=60), (SAMPLES,)))
    units = finding.more_tables["units L0"].to_frame()
    assert set(units["key 1"]) <= set(heads.words()[:60])
    assert units.share.is_monotonic_decreasing and 0 < units.share.sum() <= 1
