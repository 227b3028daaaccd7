"""The instrument of heads: its numbers are the model's own, and neither parts, batches nor padding change them."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from test_attention import places_of, random
from tiny import MAKERS, tiny

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.flow.attention import placed, rotation, visible
from armillary.flow.capture import run, still, watching, watching_patterns
from armillary.flow.tokens import Corpus
from armillary.probes.instruments.head_parts.head_nullspaces import null_shares
from armillary.probes.instruments.head_parts.head_scores import QueryScores, fields_of, ranks
from armillary.probes.instruments.head_parts.heads_watch import HeadWatch
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
from armillary.probes.machinery.shared_pass import observe
from armillary.specimens.models.bag import D, attentive, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.texts import corpus


def test_rank_lost_by_the_keys_is_lost_to_the_queries():
    lost = random(2)
    lost[:, : D // 4] = 0  # half of the first head's key coordinates
    anatomy = attentive(gaussian(), 2, random(1), lost)
    folded = fold(anatomy, 0)
    z = torch.randn(50, D, generator=generator(9), dtype=torch.float64)
    z = z - z.mean(1, keepdim=True)
    null = null_shares(folded).query
    share = null.of((z @ folded.A_Q).transpose(0, 1)[None], z[None])[0]
    for head, rank in ((0, D // 4), (1, D // 2)):
        basis = torch.linalg.svd(folded.qk().dense()[head]).U[:, :rank]
        assert torch.allclose(share[head], 1 - (z @ basis).square().sum(-1) / z.square().sum(-1), atol=1e-9)


def test_half_precision_loses_no_null_space_to_large_biases():
    """Qwen's keys have biases a hundred times their content: q − a rounded to bfloat16 would be noise."""
    folded = fold(read(tiny("qwen2")), 0)
    folded = replace(folded, a_Q=300 * folded.a_Q)
    z = torch.randn(1, 50, D, generator=generator(9), dtype=torch.float64)
    exact = torch.einsum("btd,hdk->bthk", z, folded.A_Q) + folded.a_Q
    seen = null_shares(folded).query.of(exact, z)
    rounded = exact.to(torch.bfloat16).float()
    assert (null_shares(folded).query.of(rounded, z) - seen).abs().max() > 0.1
    assert (null_shares(folded, rounded=True).query.of(rounded, z) - seen).abs().max() < 1e-5


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
        with still(anatomy.model), watching_patterns(anatomy, lambda i, p, seen=patterns: seen.update({i: p.double()})):
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
    """And the mean score of sampled queries, by the model's own projections, with window and groups."""
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
            q, k = placed(block.attention, q, k, rotation(anatomy, layer, q.shape[1]))
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


def assert_same(a: HeadRows, b: HeadRows, atol: float) -> None:
    assert a.queries == b.queries > 0
    for field in FIELDS:
        assert np.allclose(a.sampled(field), b.sampled(field), atol=atol), field
    for name in EXACT:
        assert np.allclose(a.exact(name), b.exact(name), atol=atol), name


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
        "axis_power": _along_one_axis(q, keys[places]),
        "entropy_bare": 1.0,
        "cosine_power": cosine.var() * count,
        "score_cosine": np.cov(scores, cosine, ddof=0)[0, 1] * count,
        "variation": np.abs(pattern - softmax(capped(products * length.mean() / length))).sum() / 2,
        "rho": spearmanr(near[others].round(6), scores[others].round(6))[0],
        "entropy": -(pattern * np.log(pattern)).sum() / np.log(count),
    }


def _along_one_axis(q, keys):
    """k times the sum of squares along a random axis, by the fourth moments of a uniform direction."""
    centred = keys - keys.mean(0)
    k = len(q)
    return ((q @ q) * (centred**2).sum() + 2 * ((centred @ q) ** 2).sum()) / (k + 2)


def test_a_key_s_spread_is_the_variance_of_its_scores():
    """Over the sampled queries that see it, with what biases give every key taken out."""
    bias = 3 * torch.randn(D, generator=generator(4))
    anatomy, text = attentive(gaussian(), 2, random(1), random(2), b_K=bias), corpus(4, 30)
    heads = observe(anatomy, text, [HEADS])[HEADS]
    folded, places = fold(anatomy, 0), places_of(heads)
    tokens = {w.document: torch.tensor(w.ids) for w in text.windows}
    spread, queries = heads.sampled("key_spread")[0], heads.sampled("key_queries")[0]
    for index, (document, t) in enumerate(places):
        z = anatomy.blocks[0].ln1.direction(anatomy.W_E[tokens[document]].double())
        asking = [s for d, s in places if d == document and s >= t]
        scores = (z[asking] @ folded.A_Q) @ (z[t] @ folded.A_K)[..., None] * folded.attention.scale
        assert queries[0, index] == len(asking)
        assert np.allclose(spread[:, index], scores[..., 0].var(-1, correction=0).numpy(), rtol=1e-3, atol=1e-5)
