"""Attention's claims are supported where they are planted and refuted where their opposite is; the instrument of heads."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from planted import VOCABULARY, D, attentive, corpus, evidence, gaussian, generator
from tiny import MAKERS, tiny

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.flow.attention import placed, rotation, visible
from armillary.flow.capture import run, still, watching, watching_patterns
from armillary.flow.tokens import Corpus
from armillary.probes.attention.cosine import Cosine
from armillary.probes.attention.geodesic import Geodesic
from armillary.probes.attention.nullspace import Nullspace
from armillary.probes.attention.principal_axes import PrincipalAxes
from armillary.probes.attention.sampled_queries import WITHOUT_FIRST
from armillary.probes.attention.score_scale import ScoreScale, random_growth
from armillary.probes.attention.two_views import TwoViews
from armillary.probes.instruments.head_nullspaces import senses
from armillary.probes.instruments.head_scores import QueryScores, fields_of, ranks
from armillary.probes.instruments.heads import (
    ERRORS,
    EXACT,
    FIELDS,
    HEADS,
    LEAST,
    ONE_IN,
    QUERIES,
    WINDOWS,
    HeadRows,
    Heads,
    Sampling,
)
from armillary.probes.instruments.heads_watch import HeadWatch
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import observe
from armillary.results import VERDICTS, Why

EYE = torch.eye(D)


def random(seed: int, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(D, D, generator=generator(seed)) / D**0.5


def normal() -> Evidence:
    return evidence(attentive(gaussian(), 2, random(1), random(2)), corpus())


def one_key_direction() -> Evidence:
    """All keys of a head point the same way, and differ in length alone."""
    ray = torch.randn(D, generator=generator(3))
    lengths = torch.randn(D, 1, generator=generator(4)) * ray[None] / D**0.5
    return evidence(attentive(gaussian(), 2, random(1), lengths + 1e-4 * random(5), b_K=6 * ray), corpus())


def loud() -> Evidence:
    return evidence(attentive(gaussian(), 2, random(1, 60), random(2)), corpus())


def the_sphere_itself() -> Evidence:
    return evidence(attentive(gaussian(), 1, EYE, EYE), corpus())


def few_axes() -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings with eight long axes, and the projector on them."""
    frame = torch.randn(D, D, generator=generator(11))
    frame = torch.linalg.qr(frame - frame.mean(0))[0].T[:8]
    frame = frame - frame.mean(1, keepdim=True)
    projector = frame.T @ torch.linalg.solve(frame @ frame.T, frame)
    return gaussian() @ (0.2 * EYE + 3 * projector), projector


def along_the_data() -> Evidence:
    embedding, projector = few_axes()
    return evidence(attentive(embedding, 2, projector @ random(1), projector @ random(2)), corpus())


def across_the_data() -> Evidence:
    embedding, projector = few_axes()
    across = EYE - projector
    return evidence(attentive(embedding, 2, across @ random(1), across @ random(2)), corpus())


def half_blind() -> Evidence:
    """Words that a head sees and words that it does not: W_Q reads the first half of the axes, words lie in either."""
    embedding = gaussian()
    seen = torch.rand(VOCABULARY, 1, generator=generator(12))
    embedding[:, : D // 2] *= 2 * seen
    embedding[:, D // 2 :] *= 2 * (1 - seen)
    reads = 3 * random(1)
    reads[D // 2 :] = 0
    return evidence(attentive(embedding, 2, reads, 2 * random(2)), corpus())


def query_bias_alone() -> Evidence:
    """What a query is counts for nothing: all queries ask the same."""
    bias = torch.randn(D, generator=generator(13))
    return evidence(attentive(gaussian(), 2, 1e-6 * random(1), random(2), b_Q=bias), corpus())


def misread() -> Evidence:
    anatomy = read(tiny("gpt2"))
    ones = [replace(b, ln1=replace(b.ln1, gain=torch.ones_like(b.ln1.gain))) for b in anatomy.blocks]
    return evidence(replace(anatomy, blocks=tuple(ones)), corpus(vocabulary=97))


CASES = {
    "two views, a perturbed model": (
        TwoViews,
        "supported",
        lambda: evidence(read(tiny("gpt2")), corpus(vocabulary=97)),
    ),
    "two views, a gain misread": (TwoViews, "refuted", misread),
    "cosine, random heads": (Cosine, "supported", normal),
    "cosine, one direction and many lengths": (Cosine, "refuted", one_key_direction),
    "scale, random heads": (ScoreScale, "supported", normal),
    "scale, sixty times too loud": (ScoreScale, "refuted", loud),
    "geodesic, W_Q and W_K the identity": (Geodesic, "supported", the_sphere_itself),
    "geodesic, random heads": (Geodesic, "refuted", normal),
    "axes, heads that read the long ones": (PrincipalAxes, "supported", along_the_data),
    "axes, heads that read the others": (PrincipalAxes, "refuted", across_the_data),
    "null space, words half seen": (Nullspace, "supported", half_blind),
    "null space, a bias asks for all": (Nullspace, "refuted", query_bias_alone),
}


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    probe, verdict, make = CASES[case]
    finding = probe().conclude(make())
    assert finding.verdict == verdict, f"{finding.statistic}: {finding.reading}"
    assert finding.headline
    assert finding.reading


@pytest.fixture(scope="module")
def ordinary() -> Evidence:
    return normal()


def test_random_heads_stay_insignificant(ordinary):
    frame = PrincipalAxes().conclude(ordinary).to_frame()
    assert not frame.leans.any()


def places_of(rows: HeadRows) -> list[tuple[int, int]]:
    """Document and position of every sampled query."""
    return list(zip(rows.documents().tolist(), rows.positions().tolist(), strict=True))


def test_an_exact_null_space_is_counted():
    gathered = half_blind()
    rows, anatomy = gathered[HEADS][MODEL], gathered.anatomy
    share = rows.sampled("null_query")[0, 0]
    tokens = {(w.document, t): w.ids[t] for w in gathered.corpus.windows for t in range(len(w.ids))}
    queries = [tokens[place] for place in places_of(rows)]
    basis = torch.linalg.svd(fold(anatomy, 0).qk().dense()[0]).U[:, : D // 2]
    z = anatomy.blocks[0].ln1.direction(anatomy.W_E[queries].double())
    expected = 1 - (z @ basis).square().sum(-1) / z.square().sum(-1)
    assert np.allclose(share, expected.numpy(), atol=1e-5)


def test_rank_lost_by_the_keys_is_lost_to_the_queries():
    lost = random(2)
    lost[:, : D // 4] = 0  # half of the first head's key coordinates
    anatomy = attentive(gaussian(), 2, random(1), lost)
    folded = fold(anatomy, 0)
    z = torch.randn(50, D, generator=generator(9), dtype=torch.float64)
    z = z - z.mean(1, keepdim=True)
    blind = senses(folded).query
    share = blind.share((z @ folded.A_Q).transpose(0, 1)[None], z[None])[0]
    for head, rank in ((0, D // 4), (1, D // 2)):
        basis = torch.linalg.svd(folded.qk().dense()[head]).U[:, :rank]
        assert torch.allclose(share[head], 1 - (z @ basis).square().sum(-1) / z.square().sum(-1), atol=1e-9)


@pytest.mark.parametrize("name", list(MAKERS))
def test_statistics_agree_with_the_model_s_own_patterns(name):
    """Entropy and two views, on every family, compared with eager attention."""
    anatomy, text = read(tiny(name)), corpus(6, 24, 97)
    heads = observe(anatomy, text, [HEADS])[HEADS]
    assert max(heads.error("scores_error")) < 2e-6
    assert max(heads.error("results_error")) < 2e-6
    assert min(heads.error("unfolded_error")) > 0.05
    sampled, places = heads.sampled("entropy"), places_of(heads)
    checked = 0
    for batch in text.batches():
        patterns = {}
        with still(anatomy.model), watching_patterns(anatomy, lambda i, p, kept=patterns: kept.update({i: p.double()})):
            run(anatomy, batch.ids, batch.mask)
        rows = {window.document: row for row, window in enumerate(batch.windows)}
        for index, (document, t) in enumerate(places):
            if document not in rows:
                continue
            for layer, pattern in patterns.items():
                p = pattern[rows[document], :, t]
                entropy = -torch.xlogy(p, p).sum(-1) / (p > 0).sum(-1).log()
                assert np.allclose(sampled[layer, :, index], entropy.numpy(), atol=2e-6)
                checked += 1
    assert checked == heads.queries * anatomy.layers


@pytest.mark.parametrize("name", ["mistral", "bert", "qwen3"])
def test_exact_lengths_are_those_of_every_token(name):
    """And the mean score of every sampled query, compared with the model's own projections, window and groups included."""
    anatomy, text = read(tiny(name)), corpus(6, 24, 97)
    heads = observe(anatomy, text, [HEADS])[HEADS]
    q, k, scores = _by_hand(anatomy, text)
    for side, expected in (("q_length", q), ("k_length", k)):
        count, total, square = np.moveaxis(heads.exact(side).sum(2), -1, 0)
        assert (count == 6 * 23).all()
        assert np.allclose(total, expected.sum((1, 3))), side
        assert np.allclose(square, (expected**2).sum((1, 3))), side
    places = (heads.documents(), heads.positions() - 1)
    assert np.allclose(heads.sampled("mean_score"), scores.transpose(0, 2, 1, 3)[:, :, *places], atol=1e-5)


def _by_hand(anatomy, text):
    """|q|, |k| and the mean score [layer, document, head, token], first tokens left out."""
    sums = np.zeros((3, anatomy.layers, 6, anatomy.n_heads, 23))
    for batch in text.batches():
        at = {}
        sites = {f"L{i}.{s}" for i in range(anatomy.layers) for s in "qk"}
        keep = {site: (lambda x, y, site=site, at=at: at.update({site: y})) for site in sites}
        with still(anatomy.model), watching(anatomy, keep):
            run(anatomy, batch.ids, batch.mask)
        for layer, block in enumerate(anatomy.blocks):
            q, k = (at[f"L{layer}.{s}"] for s in "qk")
            q, k = placed(block.attention, q, k, rotation(anatomy, q.shape[1]))
            scores = torch.einsum("bihk,bjhk->bhij", q, k).double() * block.attention.scale
            sees = visible(block.attention, q.shape[1], anatomy.causal, q.device)
            mean = (scores * sees).sum(-1) / sees.sum(-1)
            parts = (q.norm(dim=-1).transpose(1, 2), k.norm(dim=-1).transpose(1, 2), mean)
            for values, part in zip(sums, parts, strict=True):
                values[layer, batch.documents] = part[..., 1:].numpy()
    return sums


@dataclass(frozen=True)
class HeadsOf(Heads):
    """The instrument, with its queries chosen from a whole text of which it reads a part."""

    text: Corpus | None = None

    def start(self, anatomy, corpus, seed):
        return HeadWatch(anatomy, self.text, seed)


def heads_of_part(anatomy, text: Corpus, windows) -> HeadRows:
    instrument = HeadsOf(text=text)
    return observe(anatomy, replace(text, windows=tuple(windows)), [instrument])[instrument]


def assert_same(one: HeadRows, other: HeadRows, atol: float) -> None:
    assert one.queries == other.queries > 0
    for field in FIELDS:
        assert np.allclose(one.sampled(field), other.sampled(field), atol=atol), field
    for name in EXACT:
        assert np.allclose(one.exact(name), other.exact(name), atol=atol), name


def test_the_state_of_a_text_is_the_sum_of_its_halves():
    anatomy, text = read(tiny("llama")), corpus(8, 24, 97)
    whole = observe(anatomy, text, [HEADS])[HEADS]
    even, odd = (heads_of_part(anatomy, text, [w for w in text.windows if w.document % 2 == half]) for half in (0, 1))
    assert_same(odd + even, whole, atol=1e-6)


def test_a_state_comes_back_from_its_arrays():
    anatomy, text = read(tiny("llama")), corpus(8, 24, 97)
    state = observe(anatomy, text, [HEADS])[HEADS]
    loaded = HEADS.start(anatomy, text, 0).state
    loaded.load(state.arrays())
    assert_same(loaded, state, atol=0)
    for name in ERRORS:
        assert np.array_equal(loaded.error(name), state.error(name)), name
    assert HEADS.count(loaded) == HEADS.count(state)


def test_the_sample_is_a_share_between_a_least_and_a_most():
    """Short texts keep what their intervals need; long ones pay a share of the pass; and nothing grows for ever."""
    texts = {n: corpus(n, 60) for n in (10, 200, 500, 2000)}
    short, floor, share, most = (Sampling.of(text, 0) for text in texts.values())
    assert len(short.chosen) == 10
    assert [sum(map(len, s.chosen.values())) for s in (short, floor)] == [10 * QUERIES, LEAST]
    assert len(share.chosen) == len(most.chosen) == WINDOWS
    assert share.rate == pytest.approx(1 / ONE_IN, rel=WINDOWS / LEAST)
    assert sum(map(len, most.chosen.values())) == WINDOWS * QUERIES
    assert most.rate == pytest.approx(WINDOWS * QUERIES / (2000 * 60))
    assert floor.chosen == Sampling.of(texts[200], 0).chosen
    assert floor.chosen != Sampling.of(texts[200], 1).chosen


def test_ranks_are_scipy_s():
    from scipy.stats import rankdata

    values = torch.randint(0, 9, (5, 30), generator=generator(1)).double()
    assert np.array_equal(ranks(values, torch.ones(5, 30)).numpy(), rankdata(values.numpy(), axis=-1))


def test_the_exponent_at_random_weights_is_one():
    growth = random_growth(64, 0)
    slope = np.polyfit(np.log(list(growth)), [np.log(v.mean()) for v in growth.values()], 1)[0]
    assert slope == pytest.approx(1, abs=0.05)


def test_positions_do_not_pass_for_null_space():
    """Later queries see more keys: without the partial correlation a null share that grows with position would count."""
    finding = Nullspace().conclude(query_bias_alone())
    assert abs(finding.controls[0].value) < 0.1


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
    """All keys but the first point one way and differ in length; the first points another, and gets the highest scores."""
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


@pytest.mark.parametrize(("window", "cap"), [(None, None), (5, None), (None, 2.0)])
def test_a_query_s_statistics_are_those_of_plain_sums(window, cap):
    """Ties and all, against NumPy and SciPy one query at a time; position 0 is out of sight in the narrow window."""
    b, h, n, t, k = 2, 3, 4, 20, 8
    attention = replace(read(tiny("gpt2")).blocks[0].attention, window=window, softcap=cap)
    draw = generator(31)
    # Whole numbers, so that some scores and some angles are alike to the last bit.
    q, keys = (torch.randn(b, h, m, k, generator=draw).round() for m in (n, t))
    z = torch.randn(b, t, 8, generator=draw).sign()
    query = torch.tensor([[8, 11, 12, 19], [9, 10, 17, 18]])
    sees = visible(attention, t, True, z.device)[query]
    null = torch.rand(b, h, t, generator=draw)
    scores = QueryScores(attention, q, keys, z, torch.rand(b, h, n), query, sees)
    rows = fields_of(scores, (null[..., :n], null[..., :n], null), FIELDS)
    for i, j, m in np.ndindex(b, h, n):
        asked = (attention, q[i, j, m], keys[i, j], z[i], int(query[i, m]))
        places = np.flatnonzero(sees[i, m])
        expected = plain(*asked, places)
        expected |= {f"{name}_later": value for name, value in plain(*asked, places[places > 0]).items()}
        fields = dict(zip(FIELDS, rows[i, m, j].double().tolist(), strict=True))
        for name in set(FIELDS) & set(expected):
            assert fields[name] == pytest.approx(expected[name], abs=2e-5, rel=2e-5), name


def plain(attention, q, keys, z, query, places):
    from scipy.stats import spearmanr

    q, keys, z = (x.double().numpy() for x in (q, keys, z))

    def capped(products):
        scores = products * attention.scale
        return scores if attention.softcap is None else attention.softcap * np.tanh(scores / attention.softcap)

    def softmax(scores):
        return np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()

    products, length = keys[places] @ q, np.linalg.norm(keys[places], axis=1)
    scores, cosine = capped(products), products / length / np.linalg.norm(q)
    others = places != query
    near = z[places] @ z[query] / np.linalg.norm(z[places], axis=1)
    pattern, count = softmax(scores), len(places)
    return {
        "mean_score": scores.mean(),
        "score_power": scores.var() * count,
        "product_power": products.var() * count,
        "cosine_power": cosine.var() * count,
        "score_cosine": np.cov(scores, cosine, ddof=0)[0, 1] * count,
        "variation": np.abs(pattern - softmax(capped(products * length.mean() / length))).sum() / 2,
        "rho": spearmanr(near[others].round(6), scores[others].round(6))[0],
        "entropy": -(pattern * np.log(pattern)).sum() / np.log(count),
    }


# Edges: rows of unequal length, heads that see nothing, texts of hardly anything.


def ragged() -> Corpus:
    whole = corpus(10, 30, 97)
    return replace(whole, windows=tuple(replace(w, ids=w.ids[: 9 + 2 * w.document]) for w in whole.windows))


@pytest.mark.parametrize("name", ["gpt2", "mistral", "bert", "opt-post"])
def test_padding_counts_for_nothing(name):
    """A batch of unequal rows says what each row says alone."""
    anatomy, text = read(tiny(name)), ragged()
    together = observe(anatomy, text, [HEADS])[HEADS]
    alone = [heads_of_part(anatomy, text, [window]) for window in text.windows]
    assert_same(together, reduce(add, alone), atol=1e-3)


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
    assert finding.why is Why.UNDEFINED


def test_queries_at_one_place_need_no_partial_correlation():
    """Documents of nine tokens: every sampled query stands at position 8."""
    short = evidence(half_blind().anatomy, corpus(300, 9))
    assert set(short[HEADS][MODEL].positions()) == {8}
    assert Nullspace().conclude(short).statistic.value > 0.3


def test_untrained_heads_do_not_pass_for_a_finding():
    """At random initialisation a query seen less has smaller scores: that much is algebra."""
    import transformers as tr

    config = tr.GPT2Config(n_embd=D, n_layer=2, n_head=2, vocab_size=VOCABULARY, n_positions=64)
    torch.manual_seed(7)
    finding = Nullspace().conclude(evidence(read(tr.GPT2LMHeadModel(config).eval()), corpus()))
    assert finding.verdict != "supported"


@pytest.mark.parametrize("probe", [TwoViews, Cosine, ScoreScale, Geodesic, PrincipalAxes, Nullspace])
@pytest.mark.parametrize("text", [lambda: corpus(1, 60), lambda: corpus(300, 2), lambda: corpus(40, 9)])
def test_hardly_any_text_is_survived(probe, text):
    finding = judge(probe(), evidence(attentive(gaussian(), 2, random(1), random(2)), text()))
    assert finding.verdict in VERDICTS


def test_half_precision_loses_no_null_space_to_large_biases():
    """Qwen's keys have biases a hundred times their content: q − a rounded to bfloat16 would be noise."""
    folded = fold(read(tiny("qwen2")), 0)
    folded = replace(folded, a_Q=300 * folded.a_Q)
    z = torch.randn(1, 50, D, generator=generator(9), dtype=torch.float64)
    exact = torch.einsum("btd,hdk->bthk", z, folded.A_Q) + folded.a_Q
    seen = senses(folded).query.share(exact, z)
    rounded = exact.to(torch.bfloat16).float()
    assert (senses(folded).query.share(rounded, z) - seen).abs().max() > 0.1
    assert (senses(folded, rounded=True).query.share(rounded, z) - seen).abs().max() < 1e-5
