"""Correlation lengths of states: known ones come back, and nothing else counts as one."""

import numpy as np
import pytest
import torch
from planted import finding_of, name_of, tried, whole
from test_grid import FAMILIES
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.probes.grid.coarse import Coarse, rank_correlation, sites_of
from armillary.probes.grid.coarsening.correlation_length import (
    StateCorrelations,
    added,
    centred_states,
    correlation,
    length,
    state_correlations,
)
from armillary.probes.grid.coarsening.flow_steps import bures, depth_steps, measure_steps
from armillary.probes.instruments.patterns import texts
from armillary.probes.machinery import T
from armillary.results import Why
from armillary.specimens.models.heads.grid_models import averaging, gpt2
from armillary.specimens.models.texts import corpus, two_words
from armillary.specimens.planted.grid_cases import CASES


@pytest.mark.parametrize("case", [case for case in CASES if case.planted.claim == "flow.coarse"], ids=name_of)
def test_planted_truth_comes_back(case):
    finding = finding_of(name_of(case))
    whole(finding)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name):
    finding = tried(Coarse(), read(tiny(name)), corpus(9, 20, vocabulary=97))
    whole(finding)
    assert len(finding.table.rows) == 4


def test_half_precision_can_be_asked():
    whole(tried(Coarse(), read(tiny("llama").half()), corpus(9, 20, vocabulary=97)))


def beginnings(text: Corpus) -> tuple[np.ndarray, np.ndarray]:
    windows = texts(text, 8, 128).windows
    return np.array([window.ids for window in windows]), np.array([window.document for window in windows])


def measured(anatomy, text: Corpus, sites=("L0.resid_pre",)) -> StateCorrelations:
    ids, documents = beginnings(text)
    return state_correlations(centred_states(anatomy, ids, sites, 1), documents, text.groups)


@pytest.mark.parametrize("stay", [0.7, 0.9])
def test_a_known_length_comes_back(stay):
    """Two words in a chain: C(Δ) = (2·stay − 1)^Δ, and ½ + Σ of it."""
    products = measured(averaging([0]), two_words(stay, documents=300)).products.sum(0)
    decay = (2 * stay - 1) ** np.arange(1, 9)
    assert np.allclose(correlation(products)[0, 1:9], decay, atol=0.06)
    known = 0.5 + ((2 * stay - 1) ** np.arange(1, 200)).sum()
    assert length(products)[0] == pytest.approx(known, rel=0.25)


def test_shuffling_removes_the_length_and_not_the_sum():
    """Within a document the sum over all pairs is the same in any order: an integrated length that includes what the
    document shares would hardly change."""
    text = two_words(0.9, documents=300)
    ordered, shuffled = (measured(averaging([0]), t).products.sum(0) for t in (text, text.shuffled(0)))
    assert length(ordered)[0] - length(shuffled)[0] > 2.5
    naive = [0.5 + correlation(products)[0, 1:].sum() for products in (ordered, shuffled)]
    assert abs(naive[0] - naive[1]) < 1.5


def test_correlations_are_those_of_a_slow_count():
    anatomy, text = read(tiny("llama")), corpus(9, 20, vocabulary=97)
    ids, documents = beginnings(text)
    z = centred_states(anatomy, ids, ["L1.resid_post"], 1)["L1.resid_post"]
    assert z.shape == (9, 19, 32) and float(z.mean(0).abs().max()) < 1e-5
    products = state_correlations({"L1.resid_post": z}, documents, 9).products.sum(0)[0]
    slow = [
        np.mean([float(z[d, t].double() @ z[d, t + apart].double()) for d in range(9) for t in range(19 - apart)])
        for apart in range(10)
    ]
    assert np.allclose(products / 9, slow, rtol=1e-4)


def test_averaging_adds_about_as_many_tokens_in_any_order():
    """Why text and shuffled text are compared by tokens added: on words that are nearly uncorrelated, as a model's
    input is. Of words that are correlated themselves averaging makes more; the factor would favour disorder."""
    sites = ("L0.resid_pre", "L0.resid_post")

    def both(stay: float) -> list[np.ndarray]:
        text = two_words(stay, documents=600)
        return [measured(averaging([8]), t, sites).products.sum(0) for t in (text, text.shuffled(0))]

    ordered, shuffled = both(0.55)
    assert abs(added(ordered) - added(shuffled)) < T.flow_text < 0.7 < added(shuffled)
    ordered, shuffled = both(0.9)
    factors = [length(products)[1] / length(products)[0] for products in (ordered, shuffled)]
    assert added(ordered) > added(shuffled) and factors[1] > 1.5 * factors[0]


def test_growth_that_shuffled_words_show_too_is_refuted():
    """The model on which growth alone was called a flow."""
    finding = finding_of("flow, windows that grow")
    grows, learned, norms = finding.parts
    assert grows.verdict == "supported" and learned.verdict == "refuted" and "Shuffled words" in learned.reading
    assert not norms.asserted


def test_steps_say_which_sublayer_lengthens():
    frame = finding_of("flow, windows that grow").more_tables["steps"].to_frame().set_index("step")
    factor = frame.after / frame.before
    assert (factor["attention"] > 1.3).all() and np.allclose(factor["feed-forward"], 1)
    depth = finding_of("flow, no window").more_tables["depth"].to_frame()
    # The root of a rounding error: covariances that are equal to 1e-7 have a distance of up to 1e-3.
    assert depth.moved.max() < 1e-5 and depth.bures.max() < 1e-3


def test_the_bures_distance_of_diagonal_covariances():
    """Σ (√a − √b)² where they commute."""
    a, b = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.1, 0.8])
    known = float((a.sqrt() - b.sqrt()).norm())
    assert bures(torch.diag(a), 7 * torch.diag(b)) == pytest.approx(known, rel=1e-5)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0]
    assert bures(turn @ torch.diag(a) @ turn.T, turn @ torch.diag(b) @ turn.T) == pytest.approx(known, rel=1e-3)
    z = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    moved, distance = depth_steps({"a": z, "b": 2 * z})
    assert moved == pytest.approx(1) and distance == pytest.approx(0, abs=1e-6), "a longer cloud has the same shape"


def test_ranks_of_depth():
    lengths = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 3.0, 2.0]])
    assert rank_correlation(lengths) == pytest.approx([1, -1, 0, 0.5])


def test_positions_are_not_a_correlation():
    """Embeddings of neighbouring positions are similar: uncentred, that alone would be a long length."""
    turn = torch.linspace(0, 1, 64)[:, None] * torch.arange(1, 33)
    anatomy = gpt2(places=5 * torch.sin(turn))
    text = corpus(40, 60, vocabulary=60)
    ids, documents = beginnings(text)
    z = centred_states(anatomy, ids, ["L0.resid_pre"], 1)["L0.resid_pre"]
    assert length(state_correlations({"z": z}, documents, 40).products.sum(0))[0] < 1
    stream = anatomy.W_E[torch.as_tensor(ids)] + anatomy.positions.table[: ids.shape[1]]
    raw = anatomy.blocks[0].ln1.direction(stream)[:, 1:]
    assert length(state_correlations({"z": raw - raw.mean((0, 1))}, documents, 40).products.sum(0))[0] > 1.5


def test_what_a_document_shares_is_not_a_length():
    """Every document has a word of its own at half of its places. All its pairs are correlated, near or far."""
    rng = np.random.default_rng(0)
    anatomy = averaging([0, 0])
    windows = list(corpus(40, 60, vocabulary=60).windows)
    for i, window in enumerate(windows):
        own = rng.random(60) < 0.5
        ids = tuple(int(i % 60) if flag else int(word) for word, flag in zip(window.ids, own, strict=True))
        windows[i] = type(window)(window.document, ids)
    row = tried(Coarse(), anatomy, Corpus(tuple(windows), "planted", 40, 2400, ())).to_frame().iloc[0]
    assert row.shared > 0.15 and row.length < 1


def test_states_are_spread_over_the_depth():
    class Deep:
        layers = 30

    assert sites_of(Deep()) == ("L0.resid_pre", *(f"L{i}.resid_post" for i in (0, 4, 8, 12, 17, 21, 25, 29)))


def test_without_averaging_no_state_changes():
    assert "cannot be measured" in finding_of("flow, no window").reading
    frame = finding_of("flow, no window").to_frame()
    assert np.ptp(frame.length) < 1e-6 and np.ptp(frame.participation) < 1e-3
    short = tried(Coarse(), averaging([0]), corpus(9, 12, vocabulary=60))
    assert short.verdict == "undecided" and short.why is Why.TOO_LITTLE_TEXT


def test_steps_of_texts_that_are_longer_than_a_batch(monkeypatch):
    """One clip of Whisper has 1500 frames: parts of fewer than one text would be empty."""
    anatomy = read(tiny("llama"))
    ids = np.random.default_rng(0).integers(3, 97, (3, 20))
    whole = measure_steps(anatomy, ids, np.arange(3), 3, [1], 1)
    monkeypatch.setattr("armillary.probes.grid.coarsening.flow_steps.BATCH", 4)
    parts = measure_steps(anatomy, ids, np.arange(3), 3, [1], 1)
    assert parts[:2] == whole[:2]
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-4, atol=1e-4)
