"""Attention's claims are supported where they are planted and refuted where their opposite is."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from planted import conclude, first_reading, name_of, tried
from planted import evidence as gathered_for

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.probes.attention import score_scale
from armillary.probes.attention.cosine import Cosine
from armillary.probes.attention.geodesic import Geodesic
from armillary.probes.attention.nullspace import Nullspace
from armillary.probes.attention.principal_axes import PrincipalAxes
from armillary.probes.attention.score_scale import ScoreScale
from armillary.probes.attention.scores.sampled_queries import WITHOUT_FIRST
from armillary.probes.attention.scores.stream_scale import random_exponent, random_growth, scales_of
from armillary.probes.attention.spaces.null_correlation import correlation_part
from armillary.probes.attention.spaces.null_counts import existence
from armillary.probes.attention.two_views import TwoViews
from armillary.probes.instruments.heads import (
    HEADS,
    HeadRows,
)
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence
from armillary.probes.machinery.probe import judge
from armillary.results import VERDICTS, Why
from armillary.specimens.models.bag import VOCABULARY, D, attentive, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.heads.scoring_heads import (
    EYE,
    half_blind,
    one_axis_repeated,
    query_bias_alone,
    random,
    random_heads,
)
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted.attention_cases import CASES

evidence = partial(gathered_for, chapters="B")


@pytest.mark.parametrize("case", first_reading(CASES), ids=name_of)
def test_planted_truth_comes_back(case):
    finding = conclude(case)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"
    assert finding.headline
    assert finding.reading


@pytest.fixture(scope="module")
def ordinary() -> Evidence:
    return evidence(random_heads(), corpus())


def test_random_heads_stay_insignificant(ordinary):
    frame = PrincipalAxes().conclude(ordinary).to_frame()
    assert not frame.leans.any()


def places_of(rows: HeadRows) -> list[tuple[int, int]]:
    """Document and position of every sampled query."""
    return list(zip(rows.documents().tolist(), rows.positions().tolist(), strict=True))


def test_an_exact_null_space_is_counted():
    gathered = evidence(half_blind(), corpus())
    rows, anatomy = gathered[HEADS][MODEL], gathered.anatomy
    share = rows.sampled("null_query")[0, 0]
    tokens = {(w.document, t): w.ids[t] for w in gathered.corpus.windows for t in range(len(w.ids))}
    queries = [tokens[place] for place in places_of(rows)]
    basis = torch.linalg.svd(fold(anatomy, 0).qk().dense()[0]).U[:, : D // 2]
    z = anatomy.blocks[0].ln1.direction(anatomy.W_E[queries].double())
    expected = 1 - (z @ basis).square().sum(-1) / z.square().sum(-1)
    assert np.allclose(share, expected.numpy(), atol=1e-5)


def test_gaussian_weights_make_what_the_law_says(ordinary):
    """Var(q·k)/k by real Gaussian matrices, of z and of x, is the squared mean square; and Var(q·k) grows like k."""
    scales, d = scales_of(ordinary), D
    assert scales.normed[:, 0] == pytest.approx(1, abs=1e-3)
    tokens = ordinary[SAMPLES][MODEL].ordinary(ordinary.anatomy, "L0.ln1")
    draw = generator(5)
    for side, law in ((tokens.z, scales.normed[0, 0]), (tokens.x, scales.bare[0, 0])):
        squares = []
        for _ in range(200):
            queries, keys = side[torch.randperm(len(side), generator=draw)[:64]].float().chunk(2)
            q, k = (rows @ torch.randn(d, 16, generator=draw) / d**0.5 for rows in (queries, keys))
            squares.append(float((q @ k.T).square().mean()) / 16)
        # 200 draws of isotropic rows: three standard errors are about 5 %.
        assert np.mean(squares) == pytest.approx(law, rel=0.08)
    exponent, error = random_exponent(random_growth(ordinary))
    assert exponent == pytest.approx(1, abs=0.05)
    assert error < 0.05


def test_the_growth_over_random_axes_is_that_of_the_heads(ordinary):
    """V/A against rotations of the head's space, one random axis at a time."""
    gathered = evidence(one_axis_repeated(), corpus())
    rows = gathered[HEADS][MODEL]
    v, a = (rows.sampled(name).sum(-1) for name in ("product_power", "axis_power"))
    # q and k are parallel: one random axis of k = 16 gives 3 V / (k (k + 2)).
    assert np.allclose(v / a, 18 / 3, rtol=1e-3)
    v, a = (ordinary[HEADS][MODEL].sampled(name).sum(-1) for name in ("product_power", "axis_power"))
    assert np.allclose(v / a, 1, atol=0.2)


def test_an_untrained_model_keeps_the_law_of_the_scale():
    parts = {part.name: part.verdict for part in ScoreScale().conclude(untrained(7)).parts if part.asserted}
    assert set(parts.values()) == {"supported"}


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "supported"), (0.91, "undecided"), (1.2, "refuted")])
def test_a_growth_across_its_limit_is_open(ordinary, monkeypatch, exponent, verdict):
    monkeypatch.setattr(score_scale, "random_exponent", lambda growth: (exponent, 0.02))
    part = next(part for part in ScoreScale().conclude(ordinary).parts if part.name == "with the norm, Var(q·k) = k")
    assert part.verdict == verdict


def untrained(seed: int, heads: int = 2, width: int = D) -> Evidence:
    import transformers as tr

    config = tr.GPT2Config(n_embd=width, n_layer=2, n_head=heads, vocab_size=VOCABULARY, n_positions=64)
    torch.manual_seed(seed)
    return evidence(read(tr.GPT2LMHeadModel(config).eval()), corpus())


def test_positions_do_not_pass_for_null_space():
    """Later queries see more keys: without the partial correlation, a null share that grows with position counts."""
    assert abs(correlation_part(evidence(query_bias_alone(), corpus())).statistic.value) < 0.1


def test_forgetting_the_mean_per_query_would_count_what_softmax_ignores():
    """A key-independent part of the score, made huge by a bias, moves R² only if it is not taken out."""
    bias = 40 * torch.randn(D, generator=generator(2))
    rows = evidence(attentive(gaussian(), 2, random(1), random(2), b_K=bias), corpus())[HEADS][MODEL]
    power = rows.sampled("score_power").sum(-1) / rows.sampled("keys").sum(-1)
    assert ((rows.sampled("mean_score") ** 2).mean(-1) > 5 * power).all()


def test_the_twin_is_a_control(ordinary):
    finding = Geodesic().conclude(ordinary)
    assert RANDOM in [control.name for control in finding.controls]


# The first key: what one token of every window does to a head's statistics.


def from_one_word(documents: int = 40, length: int = 60) -> Corpus:
    """Windows that begin with the last word, which stands nowhere else and keeps its place in a shuffle."""
    whole = corpus(documents, length, VOCABULARY - 1)
    first = VOCABULARY - 1
    return replace(whole, windows=tuple(replace(w, ids=(first, *w.ids[1:]), prefix=1) for w in whole.windows))


def apart(leaning: float) -> tuple[torch.Tensor, torch.Tensor]:
    """An axis, and embeddings of one length that all lean to it alike, but for the last, which lies on it."""
    axis = torch.randn(D, generator=generator(21))
    axis = (axis - axis.mean()) / (axis - axis.mean()).norm()
    words = gaussian() - gaussian().mean(1, keepdim=True)
    words = torch.nn.functional.normalize(words - (words @ axis)[:, None] * axis, dim=-1) + leaning * axis
    words[-1] = axis
    return D**0.5 * words, axis


def cosine_of_a_sink() -> Evidence:
    """All keys but the first have one direction and many lengths; the first has another and gets the highest scores."""
    words, axis = apart(0.0)
    ray, other = torch.randn(2, D, generator=generator(3))
    lengths = torch.randn(D, 1, generator=generator(4)) * ray[None] / D**0.5 + 1e-4 * random(5)
    keys = lengths + 5 * axis[:, None] * other
    return evidence(attentive(words, 2, random(1, 0.3), keys, b_Q=other, b_K=6 * ray), from_one_word())


def nearest_is_a_sink() -> Evidence:
    """The first token is nearest to every other and gets the highest score; the rest is random."""
    words, axis = apart(0.7)
    across = EYE - axis[:, None] * axis
    other = torch.randn(D, generator=generator(3))
    keys = across @ random(2) + 2 * axis[:, None] * other
    return evidence(attentive(words, 2, across @ random(1), keys, b_Q=other), from_one_word(60, 16))


def test_a_score_that_is_cosine_for_the_sake_of_a_sink_is_not_without_it():
    finding = Cosine().conclude(cosine_of_a_sink())
    frame = finding.to_frame()
    assert (frame.r2 > 0.9).all()
    assert (frame.r2_later < 0.2).all()
    assert {control.name: control.high < 0.1 for control in finding.controls}[WITHOUT_FIRST]
    assert "L0H0, L0H1, L1H0 and L1H1 are no longer mostly cosine" in finding.reading
    assert finding.verdict == "refuted"


def test_nearness_that_is_a_sink_s_is_gone_without_it():
    finding = Geodesic().conclude(nearest_is_a_sink())
    frame = finding.to_frame()
    assert (frame.rho_low > 0.15).all()
    assert (frame.rho_later.abs() < 0.06).all()
    assert "no head changes side" in finding.reading


def test_without_a_sink_the_first_key_is_one_of_many(ordinary):
    for probe, column in ((Cosine, "r2"), (Geodesic, "rho")):
        frame = probe().conclude(ordinary).to_frame()
        assert (frame[column] - frame[f"{column}_later"]).abs().max() < 0.02


# Edges: heads that see nothing, very short texts.


def blind() -> Evidence:
    return evidence(attentive(gaussian(), 2, torch.zeros(D, D), random(2)), corpus())


@pytest.mark.parametrize("probe", [Cosine, Nullspace])
def test_heads_that_see_nothing_decide_nothing(probe):
    finding = probe().conclude(blind())
    assert finding.verdict == "undecided", finding.reading
    assert finding.why is Why.UNDEFINED
    assert not finding.to_frame().isna().any(axis=None) or probe is Cosine


def test_a_head_as_wide_as_the_stream_has_no_null_space():
    """It sees every query whole; what rounding leaves of the shares must not pass for an answer."""
    gathered = evidence(attentive(gaussian(), 1, random(1), random(2)), corpus())
    assert gathered[HEADS][MODEL].sampled("null_query").max() < 1e-4
    finding = Nullspace().conclude(gathered)
    assert finding.verdict == "undecided", finding.reading
    assert finding.why is Why.NOT_APPLICABLE


def test_queries_at_one_place_need_no_partial_correlation():
    """Documents of nine tokens: every sampled query stands at position 8."""
    short = evidence(half_blind(), corpus(300, 9))
    assert set(short[HEADS][MODEL].positions()) == {8}
    assert correlation_part(short).statistic.value > 0.3


@pytest.mark.parametrize("seed", range(3))
def test_untrained_heads_do_not_pass_for_a_finding(seed):
    """At random initialisation a query seen less has smaller scores: that much is algebra."""
    gathered = untrained(seed)
    assert Nullspace().conclude(gathered).verdict == "refuted"
    assert correlation_part(gathered).verdict == "refuted"


def test_narrow_untrained_heads_see_nothing_and_that_is_no_finding():
    """k = 2 of d = 64: every query is hardly seen and attends equally, in the model and in its twins alike."""
    finding = Nullspace().conclude(untrained(1, heads=32, width=64))
    assert finding.statistic.value > 0.5
    parts = {part.name: part for part in finding.parts}
    assert parts["there are such queries"].verdict == "qualified"
    assert "no more than in an untrained model or by chance" in finding.reading
    assert finding.verdict != "supported"


@pytest.mark.parametrize(("share", "verdict"), [(0.504, "qualified"), (0.53, "supported"), (0.51, "undecided")])
def test_a_share_must_exceed_untrained_models_by_a_size_that_counts(share, verdict):
    """0.504 [0.501, 0.507] lies above the end of untrained models, 0.498, and is hardly more than they have."""
    interval = (share, share - 0.003, share + 0.003)
    part = existence("queries", "share", "queries", interval, (0.478, 0.458, 0.498), 5, (0.47, 0.46, 0.48))
    assert part.verdict == verdict
    by_chance = existence("queries", "share", "queries", interval, (0.1, 0.08, 0.12), 5, (0.47, 0.46, 0.498))
    assert by_chance.verdict == verdict


def test_a_bias_chooses_where_nothing_is_seen():
    """A query without its visible part attends as the biases say, not to all keys equally."""
    parts = {part.name: part for part in tried(Nullspace(), query_bias_alone(), corpus()).parts}
    assert parts["a query without its visible part attends equally"].verdict == "refuted"
    parts = {part.name: part for part in tried(Nullspace(), random_heads(), corpus()).parts}
    assert parts["a query without its visible part attends equally"].statistic.value == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("probe", [TwoViews, Cosine, ScoreScale, Geodesic, PrincipalAxes, Nullspace])
@pytest.mark.parametrize("text", [lambda: corpus(1, 60), lambda: corpus(300, 2), lambda: corpus(40, 9)])
def test_hardly_any_text_is_survived(probe, text):
    finding = judge(probe(), evidence(attentive(gaussian(), 2, random(1), random(2)), text()))
    assert finding.verdict in VERDICTS
