"""Untrained twins: their seeds, their number, and the interval that another initialisation falls into."""

import numpy as np
import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow import controls
from armillary.flow.controls import Twins, random_twin, twin_seed
from armillary.probes.machinery import above, beats, over_twins, weakest
from armillary.probes.machinery.intervals import surely_reached
from armillary.results import Part, Why


def test_twins_differ_and_come_back():
    anatomy = read(tiny("gpt2"))
    twins = Twins(anatomy, 0)
    assert len(twins) == 5
    embeddings = [twin.W_E for twin in twins]
    for i in range(5):
        assert torch.equal(embeddings[i], Twins(anatomy, 0)[i].W_E)
        for j in range(i):
            assert not torch.equal(embeddings[i], embeddings[j])
    with pytest.raises(IndexError, match="5 twins"):
        twins[5]


def test_a_plain_seed_never_makes_a_twin():
    anatomy = read(tiny("gpt2"))
    assert not torch.equal(random_twin(anatomy, 0).W_E, Twins(anatomy, 0)[0].W_E)
    assert len({twin_seed(seed, index) for seed in range(50) for index in range(5)}) == 250


def test_large_models_have_fewer_and_keep_one(monkeypatch):
    anatomy = read(tiny("gpt2"))
    monkeypatch.setattr(controls, "TWINS", ((10, 5), (float("inf"), 2)))
    monkeypatch.setattr(controls, "KEPT_BYTES", 1)
    twins = Twins(anatomy, 0)
    assert len(twins) == 2
    first = twins[0]
    assert twins[0] is first
    assert twins[1] is not first
    assert twins[0] is not first
    assert torch.equal(twins[0].W_E, first.W_E)


@pytest.mark.parametrize("number", [2, 3, 5])
def test_another_initialisation_exceeds_the_interval_in_one_case_of_forty(number):
    draw = np.random.default_rng(number)
    values = draw.standard_normal((number, 20000, 1)).repeat(3, -1)
    high = over_twins(values)[:, 2]
    rate = (draw.standard_normal(20000) > high).mean()
    # The standard error of a rate of 2.5 % over 20 000 trials is 0.11 %.
    assert rate == pytest.approx(0.025, abs=0.005)


def test_one_twin_has_only_its_documents():
    assert over_twins([(1.0, 0.5, 2.0)]).tolist() == [1.0, 0.5, 2.0]
    assert np.isnan(over_twins([(1.0, np.nan, np.nan)])[1:]).all()
    assert np.isnan(over_twins([])).all()


def test_an_interval_across_a_limit_decides_nothing():
    assert above((1.0, 0.5, 2.0), float("nan")) is None
    assert above((1.0, float("nan"), float("nan")), 0.0) is None
    assert beats((1.0, 0.9, 1.1), (0.5, 0.4, 0.8), 5) is True
    assert beats((1.0, 0.9, 1.1), (0.5, 0.4, 1.0), 5) is None
    assert beats((1.0, 0.9, 1.1), (0.5, 0.4, 1.2), 5) is False


def test_the_weakest_part_that_the_source_asserts_decides():
    parts = [
        Part("a", "supported", ""),
        Part("b", "undecided", "", why=Why.SPANS_LIMIT),
        Part("c", "refuted", "", asserted=False),
    ]
    assert weakest(parts) == ("undecided", Why.SPANS_LIMIT)
    assert weakest(parts[::2]) == ("supported", None)


def test_more_than_five_twins_make_the_end_steadier_and_not_lower():
    """Ends of many groups of untrained models, drawn from one normal law."""
    rng = np.random.default_rng(3)
    ends, least = {}, {}
    for number in (5, 20):
        controls = [over_twins(np.repeat(rng.standard_normal((number, 1)), 3, 1)) for _ in range(400)]
        ends[number] = np.array([control[2] for control in controls])
        least[number] = np.array([surely_reached(control, number) for control in controls])
    assert ends[20].std() < 0.6 * ends[5].std()
    assert abs(ends[20].mean() - ends[5].mean()) < 0.3
    # What untrained models surely reach comes nearer to what they reach (1.96), from below.
    assert least[5].mean() < least[20].mean() < 1.96
    assert (least[20] < 1.96).mean() > 0.95
