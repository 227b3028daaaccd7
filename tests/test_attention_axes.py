"""Overlaps of W_QK with the data's axes: larger side to larger side, untrained heads are as near as random ones."""

import numpy as np
import pytest
import torch
import transformers as tr

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.probes.attention.principal_axes import PrincipalAxes
from armillary.probes.attention.spaces.axis_overlaps import RANK, _gaussian_heads, axis_overlaps
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Why
from armillary.specimens.models.bag import VOCABULARY, D
from armillary.specimens.models.texts import corpus


def untrained(seed: int) -> Anatomy:
    config = tr.GPT2Config(n_embd=D, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=64)
    torch.manual_seed(seed)
    return read(tr.GPT2LMHeadModel(config).eval(), "untrained")


@pytest.fixture(scope="module")
def ordinary() -> Evidence:
    return gather(untrained(7), corpus(), (SAMPLES,))


def test_random_heads_hold_no_more_memory_than_is_read(ordinary):
    for side in _gaussian_heads(ordinary, 64, 16, None, None):
        assert side.shape[1:] == (64, RANK)
        assert side.untyped_storage().nbytes() == side.numel() * side.element_size()


def test_untrained_heads_overlap_as_much_as_random_ones(ordinary):
    finding = PrincipalAxes().conclude(ordinary)
    controls = {control.name: control for control in finding.controls}
    gaussian, twins = controls["Gaussian heads"], controls[RANDOM]
    assert finding.verdict == "refuted", finding.reading
    assert gaussian.low < 1 < gaussian.high
    assert gaussian.low < gaussian.value < gaussian.high
    assert twins.low < 1 < twins.high
    assert finding.statistic.value == pytest.approx(1, abs=0.15)


def test_the_larger_side_over_one_side_would_be_above_one(ordinary):
    overlaps = axis_overlaps(ordinary, MODEL, range(2))
    wrong = overlaps.larger / overlaps.sides.mean((0, 2))[:, None]
    assert np.median(wrong) > 1.05
    assert np.median(overlaps.ratio) < np.median(wrong)


def test_overlaps_are_those_of_the_matrices_themselves(ordinary):
    """Axes of all sampled tokens, without the detour by way of the leading ones."""
    anatomy, overlaps = ordinary.anatomy, axis_overlaps(ordinary, MODEL, range(2))
    z = ordinary[SAMPLES][MODEL].ordinary(anatomy, "L1.ln1").z
    axes = torch.linalg.svd(z - z.mean(0), full_matrices=False).Vh[:RANK]
    W_Q, W_K = (weight[2].double() for weight in (anatomy.blocks[1].attention.W_Q, anatomy.blocks[1].attention.W_K))
    centring = torch.eye(D, dtype=torch.float64) - 1 / D
    U, _, Vh = torch.linalg.svd(centring @ W_Q @ W_K.T @ centring)
    for side, vectors in enumerate((U[:, :RANK], Vh[:RANK].T)):
        assert overlaps.sides[side, 1, 2] == pytest.approx(float((axes @ vectors).square().sum() / RANK), abs=1e-6)


def test_three_documents_give_no_interval():
    finding = judge(PrincipalAxes(), gather(untrained(7), corpus(3, 60), (SAMPLES,)))
    assert np.isnan([finding.statistic.low, finding.statistic.high]).all()
    assert finding.verdict == "undecided"
    assert finding.why is Why.NO_INTERVAL


def test_axes_of_resampled_documents_vary(ordinary):
    value, low, high = axis_overlaps(ordinary, MODEL, range(2)).median
    assert 0.5 < low < value < high < 1.5
