"""Vectors in the spaces of heads: against slow counts, and against mistakes that the counting could make."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import finding_of, tried, whole
from test_grid import FAMILIES
from tiny import tiny

from armillary.anatomy.read import read
from armillary.probes.grid.orthogonality import Orthogonality
from armillary.probes.grid.spaces.token_pairs import law, pair_sums, sample_vectors, space_sums
from armillary.probes.machinery.bench import Bench
from armillary.results import Why
from armillary.specimens.models.heads.grid_models import leaning, reading
from armillary.specimens.models.texts import corpus


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name):
    whole(tried(Orthogonality(), read(tiny(name)), corpus(9, 18, vocabulary=97)))


def test_half_precision_can_be_asked():
    whole(tried(Orthogonality(), read(tiny("llama").half()), corpus(9, 18, vocabulary=97)))


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_the_law_of_random_directions(n):
    rows = np.random.default_rng(n).standard_normal((2, 200_000, n))
    left, right = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    assert law(n) == pytest.approx(np.abs((left * right).sum(-1)).mean(), rel=0.01)
    assert law(n) == pytest.approx(math.sqrt(2 / (math.pi * n)), rel=0.5 / n)


def drawn(anatomy, words: int = 60):
    return sample_vectors(Bench(anatomy, corpus(12, 40, vocabulary=words)), [0, 1])


def test_pairs_are_those_of_a_slow_count():
    """Different words of different documents, and no others; first tokens are left out."""
    some = drawn(read(tiny("llama")), 30)
    q, k = some.vectors[1]["q"], some.vectors[1]["k"]
    assert q.shape[1:] == k.shape[1:] == (4, 8), "keys of a group stand with each of its heads"
    unit = [side / side.norm(dim=-1, keepdim=True) for side in (q, k)]
    total, count = 0.0, 0
    for i in range(len(q)):
        for j in range(len(q)):
            if some.documents[i] != some.documents[j] and some.words[i] != some.words[j]:
                total += abs(float(unit[0][i, 2] @ unit[1][j, 2]))
                count += 1
    sums = pair_sums(some, q, k, 12)
    assert sums.count.sum() == count
    assert sums.means(np.ones((1, 12)))[0, 2] == pytest.approx(total / count)


def test_vectors_are_what_the_projections_give():
    anatomy = read(tiny("gpt2"))
    attention = anatomy.blocks[1].attention
    some = drawn(anatomy).vectors[1]
    for name, weight, bias in (("q", attention.W_Q, attention.b_Q), ("v", attention.W_V, attention.b_V)):
        projected = torch.einsum("nd,hdk->nhk", some["y"], weight.double()) + bias.double()
        assert torch.allclose(projected, some[name], atol=1e-5)


def test_fewer_axes_alone_are_not_a_pocket():
    """Measured against the law of d axes, every head of eight would look like one."""
    frame = finding_of("pockets, all directions").to_frame()
    assert frame.ratio.between(0.85, 1.3).all() and frame.excess.between(0.85, 1.3).all() and not frame.pocket.any()
    assert (frame.ratio * law(8) / law(32) > 1.5).all()


def test_pairs_of_the_same_word_would_make_pockets():
    some = drawn(reading(8), words=6)
    groups = np.ones((1, 12))
    honest = pair_sums(some, some.vectors[0]["q"], some.vectors[0]["q"], 12).means(groups)
    naive = replace(some, words=np.arange(len(some.words)))
    counted = pair_sums(naive, some.vectors[0]["q"], some.vectors[0]["q"], 12).means(groups)
    assert (counted > honest).all() and counted.mean() > honest.mean() + 0.08


def test_a_shared_direction_is_removed_with_the_mean():
    finding = finding_of("pockets, one direction for all words")
    frame = finding.to_frame()
    # Beside random directions every head would be a pocket; random projections of the same vectors show as much.
    assert (frame.ratio > 1.5).all() and frame.excess.between(0.8, 1.2).all() and not frame.pocket.any()
    assert [part.verdict for part in finding.parts] == ["refuted", "supported", "refuted", "undecided"]
    assert [part.asserted for part in finding.parts] == [True, True, True, False]
    some = drawn(reading(8, leaning()))
    raw, centred = (
        space_sums(some, 0, 12, flag)["full"].means(np.ones((1, 12)))[0, 0] / law(32) for flag in (False, True)
    )
    assert centred < 1.3 < 2 < raw


def test_too_few_documents_leave_it_open():
    finding = tried(Orthogonality(), reading(2), corpus(4, 40, vocabulary=60))
    assert finding.verdict == "undecided" and finding.why is Why.NO_INTERVAL
    whole(finding)
    assert tried(Orthogonality(), reading(2), corpus(1, 40, vocabulary=60)).why is Why.TOO_LITTLE_TEXT
