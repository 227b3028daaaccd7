"""Words: streams that move by known angles, a model that moves every token to the next word, one that moves nothing."""

import math
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tr
from planted import INSTRUMENTS, conclude, first_reading, name_of, tried
from planted import evidence as gathered_for
from tiny import MAKERS, tiny

from armillary.anatomy import Norm
from armillary.anatomy.read import read
from armillary.flow.capture import run, still, watching
from armillary.flow.glimpse import Glimpse, Tokens
from armillary.flow.tokens import collate
from armillary.geometry.sphere import angle
from armillary.probes.instruments.word_parts.word_products import PRODUCTS, Products
from armillary.probes.instruments.word_parts.words_watch import WordWatch
from armillary.probes.instruments.words import (
    ENOUGH,
    FEWEST,
    LAST,
    MOVE,
    PATH,
    STATE,
    WORDS,
    WordSums,
    longer_text,
    most,
    room,
    sampled_tokens,
    states,
)
from armillary.probes.machinery.evidence import MODEL, SHUFFLED, Evidence
from armillary.probes.machinery.instrument import View
from armillary.probes.machinery.limits.thresholds import THRESHOLDS
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.words.artifact import Artifact
from armillary.probes.words.lens import lens, logits
from armillary.probes.words.output import Output
from armillary.probes.words.refinement import Refinement, after_first_block, falling
from armillary.probes.words.travel import Travel, move_names
from armillary.results import VERDICTS, Why
from armillary.specimens.models.bag import CONTEXT, D, bag, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.streams.word_models import SIZE, in_three_dimensions, leaver, mover
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.planted.word_cases import CASES

evidence = partial(gathered_for, chapters="C")


def followed(anatomy) -> Evidence:
    """Evidence on text in which t + 1 always follows t."""
    return evidence(anatomy, chained(vocabulary=SIZE, follows=1.0))


@pytest.mark.parametrize("case", first_reading(CASES), ids=name_of)
def test_planted_truth_comes_back(case):
    finding = conclude(case)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"
    assert finding.headline and finding.reading and finding.why is None


def test_every_token_of_the_mover_arrives():
    words = followed(mover())[WORDS][MODEL]
    shares = {name: words.sums("path", name)[:, 1].sum() / words.tokens for name in PATH}
    assert shares["left"] == shares["approached"] == shares["both"] == 1
    assert shares["left_more"] > 0.95
    assert shares["more"] > 0.95  # sometimes the random word is the next one
    # Along one great circle the path is as long as the geodesic.
    assert shares["path"] == pytest.approx(shares["geodesic"], rel=2e-3)
    assert np.degrees(words.means("move", "turning"))[1:].max() < 8


def test_angles_are_those_of_known_rotations():
    """States rotated by 10°, 20° and 30°, the second at a right angle to the first, each also made longer."""
    anatomy = bag(gaussian())
    text = corpus(3, 12)
    watch = WordWatch(anatomy, text, 0)
    tokens = Tokens.of(collate(text.windows, 0), 3, torch.device("cpu"))
    watch.begin(tokens)
    frame = torch.linalg.qr(torch.randn(D, 6, generator=generator(1)))[0].T.double()
    frame = frame - frame.mean(1, keepdim=True)
    frame = torch.linalg.qr(frame.T)[0].T
    a, b, c = (math.radians(x) for x in (10, 20, 30))
    first = frame[0]
    second = math.cos(a) * frame[0] + math.sin(a) * frame[1]
    third = math.cos(b) * second + math.sin(b) * frame[2]
    back = -math.sin(b) * second + math.cos(b) * frame[2]  # the direction in which third was reached
    fourth = math.cos(c) * third + math.sin(c) * back
    path = [first, 2 * second, 5 * third, 5 * fourth, 5 * fourth]
    norm = Norm("layernorm", torch.ones(D), None, 0.0)
    for site, state in zip(states(anatomy), path, strict=True):
        x = state.float().expand(3 * 12, D)
        watch.see(site, View(x, x, lambda x=x: Glimpse(norm, x, x, tokens)))
    watch.end()
    words = watch.state
    moved, turning, radial = (words.means("move", name) for name in ("moved", "turning", "radial"))
    assert np.allclose(np.degrees(moved), [10, 20, 30, 0], atol=1e-3)
    assert np.allclose(np.degrees(turning)[1:3], [90, 0], atol=0.1)
    # From 1 to 2·second: Δ = 2 second − first, of which 2cos10° − 1 lies along the stream.
    along = (2 * math.cos(a) - 1) ** 2 / (5 - 4 * math.cos(a))
    assert radial[0] == pytest.approx(along, rel=1e-4)
    assert np.degrees(words.means("path", "path")) == pytest.approx(60, abs=1e-3)
    direct = math.degrees(math.acos(float(first @ fourth)))
    assert np.degrees(words.means("path", "geodesic")) == pytest.approx(direct, abs=1e-3)


def observed(anatomy, text, seed: int = 0) -> WordSums:
    return observe(anatomy, text, [WORDS], seed)[WORDS]


@pytest.mark.parametrize("name", list(MAKERS))
def test_states_are_the_model_s_own(name):
    """What is sampled at each state is the block's own input or output, on every family."""
    anatomy, text = read(tiny(name)), corpus(6, 20, 97)
    words = observed(anatomy, text)
    (sampled, places), names = words.sampled(), words.names
    expected: dict[tuple[int, str], torch.Tensor] = {}
    for batch in text.batches():
        at: dict[str, torch.Tensor] = {}
        wanted = {n for n in names if n in anatomy.sites}
        watchers = {site: (lambda given, value, site=site, at=at: at.update({site: value})) for site in wanted}
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, batch.ids, batch.mask)
        for row, window in enumerate(batch.windows):
            for i, place in enumerate(places):
                if place[0] == window.document:
                    expected |= {(i, site): at[site][row, place[1]] for site in wanted}
    assert expected
    for (i, site), state in expected.items():
        assert torch.allclose(sampled[i, names.index(site)], state, atol=1e-5), (i, site)
    assert len(move_names(names)) == len(names) - 1


@pytest.mark.parametrize("name", list(MAKERS))
def test_angles_are_those_of_the_states_themselves(name):
    """All tokens are sampled, so every mean can be recomputed naively: in float64, state by state, from the stream."""
    anatomy, text = read(tiny(name)), corpus(4, 12, 97)
    # Beside the instruments that share the sites' z.
    measured = observe(anatomy, text, INSTRUMENTS)[WORDS]
    sampled, places = measured.sampled()
    assert len(sampled) == measured.tokens
    x, norm = sampled.double(), anatomy.ln_final
    z = x - x.mean(-1, keepdim=True) if next(iter(anatomy.norms.values())).kind == "layernorm" else x
    u = torch.nn.functional.normalize(z, dim=-1)
    y = x
    if norm is not None:
        y = u * norm.gain.double() * anatomy.d**0.5 + (0 if norm.shift is None else norm.shift.double())
    words = (anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T).double()
    last, now = x[:, :-1], x[:, 1:]
    step = now - last
    arriving, leaving = (a - (a * u[:, 1:-1]).sum(-1, keepdim=True) * u[:, 1:-1] for a in (-u[:, :-2], u[:, 2:]))
    truths = {
        ("state", "length"): x.norm(dim=-1),
        ("state", "own"): angle(y, words[places[:, 2]][:, None]),
        ("state", "next"): angle(y, words[places[:, 3]][:, None]),
        ("move", "moved"): angle(u[:, :-1], u[:, 1:]),
        ("move", "radial"): (step * last).sum(-1) ** 2 / (step.norm(dim=-1) * last.norm(dim=-1)) ** 2,
        ("move", "turning"): torch.cat((0 * step[:, :1, 0], angle(arriving, leaving)), 1),
        ("path", "geodesic"): angle(u[:, 0], u[:, -1]),
    }
    for (part, scalar), truth in truths.items():
        assert np.allclose(measured.means(part, scalar), truth.mean(0).numpy(), rtol=2e-5), (part, scalar)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 19, 25])
def test_products_of_rows_in_blocks_are_those_at_once(count):
    """Full and partial blocks, of batches that share their memory."""
    draw, rows, d = generator(2), 37, 16
    words, gain, shift = (torch.randn(*shape, d, generator=draw) for shape in ((3, rows), (), ()))
    states = torch.randn(count, rows, d, generator=draw)
    products = Products(gain, shift, count)
    for some in (9, 20, rows):
        products.begin(some).copy_(words[:, :some] * gain)
        for z in states:
            products.take(z[:some])
        total = products.total()
    steps = torch.diff(states, dim=0, prepend=torch.zeros_like(states[:1]))
    truth = {name: (steps * word * gain).sum(-1) for name, word in zip(("own", "next", "other"), words, strict=True)}
    before = torch.cat((torch.zeros_like(steps[:1]), steps[:-1]))
    truth |= {"stepped": (steps**2).sum(-1), "bend": (steps * before).sum(-1)}
    truth |= {"power": (gain * states).square().sum(-1), "tilted": steps @ (gain * shift)}
    assert total.shape == (count, len(PRODUCTS), rows)
    for index, name in enumerate(PRODUCTS):
        assert torch.allclose(total[:, index], truth[name], atol=1e-4), name


def test_the_lens_ends_at_the_model_s_own_loss():
    anatomy, text = read(tiny("gemma2")), corpus(8, 20, 97)
    gathered = evidence(anatomy, text)
    seen = lens(gathered, MODEL)
    assert np.allclose(seen.kl[:, -1], 0)
    assert (seen.rank[:, -1] == 0).all()
    _, places = gathered[WORDS][MODEL].sampled()
    for batch in text.batches():
        with still(anatomy.model):
            scores = run(anatomy, batch.ids, batch.mask, logits=True).log_softmax(-1)
        for row, window in enumerate(batch.windows):
            for i, (document, t, _, following) in enumerate(places):
                if document == window.document:
                    assert seen.loss[i, -1] == pytest.approx(-float(scores[row, t, following]), abs=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "opt"])
def test_divergence_and_rank_are_those_of_the_distributions(name):
    gathered = evidence(read(tiny(name)), corpus(8, 20, 97))
    seen, (sampled, _) = lens(gathered, MODEL), gathered[WORDS][MODEL].sampled()
    scores = logits(gathered.anatomy, sampled.double()).log_softmax(-1)
    last = scores[:, -1:]
    assert np.allclose(seen.kl, (last.exp() * (last - scores)).sum(-1), atol=2e-5)
    best = scores.gather(-1, last.argmax(-1, keepdim=True).expand(-1, scores.shape[1], 1))
    assert (seen.rank == (scores > best).sum(-1).numpy()).mean() > 0.99  # float32 may reverse a near tie
    # The mutation: the divergence in the other direction is another number.
    assert not np.allclose(seen.kl, (scores.exp() * (scores - last)).sum(-1), rtol=0.05)


def test_a_lens_without_the_state_s_own_norm_would_be_wrong():
    """States grow with depth: divided by another state's length, an early one would predict something else."""
    gathered = followed(mover())
    anatomy, (sampled, _) = gathered.anatomy, gathered[WORDS][MODEL].sampled()
    early = sampled[:, 0]
    assert not torch.allclose(logits(anatomy, early), early @ anatomy.W_U, atol=0.1)
    assert torch.allclose(logits(anatomy, early), logits(anatomy, 7 * early), rtol=1e-3)


def test_encoders_predict_no_next_token():
    gathered = evidence(read(tiny("bert")), corpus(vocabulary=97))
    for probe in (Travel, Refinement, Output):
        finding = probe().conclude(gathered)
        assert (finding.verdict, finding.why) == ("undecided", Why.NOT_APPLICABLE)
    assert finding.more_tables["embeddings and their directions"].rows


def agree(a: WordSums, b: WordSums, scalars=None, **tolerance) -> None:
    """Equal sums of all scalars but those of the random word, which is drawn batch by batch."""
    for part, names in (scalars or {"state": STATE, "move": MOVE, "path": PATH}).items():
        for name in names:
            if "other" not in name and not name.endswith("more"):
                assert np.allclose(a.sums(part, name), b.sums(part, name), **tolerance), name


def test_a_state_of_halves_is_the_state_of_the_whole():
    anatomy, text = read(tiny("llama")), corpus(8, 24, 97)
    whole = observed(anatomy, text)
    even, odd = (
        observed(anatomy, replace(text, windows=tuple(w for w in text.windows if w.document % 2 == fold)))
        for fold in (0, 1)
    )
    agree(odd + even, whole)
    assert torch.allclose((odd + even).sampled()[0], whole.sampled()[0], atol=1e-5)
    # The mutation: one half twice is another state.
    assert not np.allclose((even + even).sums("path", "path"), whole.sums("path", "path"))


def test_a_state_comes_back_from_its_arrays():
    anatomy, text = read(tiny("gpt2")), corpus(8, 24, 97)
    words, again = observed(anatomy, text), WORDS.start(anatomy, text, 0).state
    again.load(words.arrays())
    for part, names in (("state", STATE), ("move", MOVE), ("path", PATH)):
        assert all(np.array_equal(again.sums(part, name), words.sums(part, name)) for name in names)
    assert torch.equal(again.sampled()[0], words.sampled()[0])
    assert np.array_equal(again.sampled()[1], words.sampled()[1])


@dataclass
class Shape:
    """All that the price of the lens depends on."""

    d: int
    layers: int
    k: int
    n_kv_heads: int
    m: int
    vocabulary: int
    blocks: tuple[Any, ...] = ()
    opaque: bool = False


def test_the_sample_is_bounded_by_its_price():
    blocks = read(tiny("gpt2")).blocks
    cheap, dear = (Shape(32, 3, 8, 4, 64, words, blocks) for words in (97, 4_000_000))
    assert room(cheap, 1) == ENOUGH
    assert room(cheap, 10_000) == 4 * ENOUGH, "more text is read, not only paid for"
    assert room(cheap, 10**9) == most(cheap) == 4096
    # Multiplications per token: three layers of width 32 with 64 hidden units; seven states times all words.
    once, look = 3 * (4 * 32 * 32 + 2 * 32 * 64), 7 * 32 * 4_000_000
    assert room(dear, 1) == FEWEST >= 5 * THRESHOLDS.documents_least
    assert FEWEST < room(dear, 10**8) == int(0.022 * 10**8 * once / look) < ENOUGH
    assert sampled_tokens(dear, 1) == LAST


def test_more_text_decides_only_where_more_is_read():
    blocks = read(tiny("gpt2")).blocks
    cheap, dear = (Shape(32, 3, 8, 4, 64, words, blocks) for words in (97, 4_000_000))
    assert longer_text(cheap, 2500, room) == " More text would decide."
    assert "4,096 tokens are read at most" in longer_text(cheap, 10**9, room)
    advice = longer_text(dear, 2500, room)
    enough = int(advice.split("from ")[1].split(" tokens")[0].replace(",", ""))
    assert room(dear, enough // 2) == FEWEST < room(dear, 2 * enough)


def test_the_lens_of_gpt2_costs_no_more_than_its_share():
    """At 20 480 tokens of GPT-2 small: 2.2 % of the pass's multiplications, or forty tokens."""
    small = Shape(768, 12, 64, 12, 3072, 50257, read(tiny("gpt2")).blocks)
    assert room(small, 20_480) == FEWEST


def test_shuffled_text_has_no_next_word_to_approach():
    """Tokens still move to t + 1, which is no longer the next word: chance remains."""
    words = followed(mover())[WORDS][SHUFFLED]
    assert words.means("path", "more") == pytest.approx(0.5, abs=0.08)


def test_three_documents_give_a_picture_no_interval():
    finding = tried(Artifact(), bag(gaussian()), corpus(3))
    assert np.isfinite(finding.statistic.value)
    assert np.isnan([finding.statistic.low, finding.statistic.high]).all()
    assert (finding.verdict, finding.why) == ("undecided", Why.NO_INTERVAL)


def test_the_interval_of_a_picture_contains_its_value():
    statistic = tried(Artifact(), bag(in_three_dimensions()), corpus(vocabulary=400)).statistic
    assert statistic.low <= statistic.value <= statistic.high
    assert statistic.high - statistic.low < 0.1


def untrained(seed: int) -> Evidence:
    config = tr.GPT2Config(n_embd=D, n_layer=2, n_head=2, vocab_size=60, n_positions=CONTEXT)
    torch.manual_seed(seed)
    return evidence(read(tr.GPT2LMHeadModel(config).eval()), chained())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("probe", [Travel, Refinement])
def test_untrained_words_neither_travel_nor_refine(probe, seed):
    finding = probe().conclude(untrained(seed))
    assert finding.verdict == "refuted", f"{finding.statistic}: {finding.reading}"


def test_the_divergence_alone_is_no_refinement():
    """An untrained model approaches its own end; the true next word decides."""
    settling, learning = Refinement().conclude(untrained(0)).parts
    assert (settling.verdict, learning.verdict) == ("supported", "refuted")


def test_what_the_first_block_lowers_outweighs_nothing():
    """With the first block, 90 % of the movement goes down in both: that was the rule."""
    text = chained(vocabulary=SIZE, follows=1.0)
    for steps, verdict in (((0.005, -0.001), "qualified"), ((-0.001, -0.001), "refuted")):
        finding = tried(Refinement(), leaver(*steps), text)
        curve = finding.to_frame().loss.to_numpy()
        assert falling(np.stack([np.ones(len(curve)), curve], -1)[None])[0] > 0.9
        assert finding.verdict == verdict, finding.reading
        assert "from there to the end" in finding.reading


def test_a_single_block_leaves_no_curve():
    finding = tried(Refinement(), leaver(), chained(vocabulary=SIZE))
    assert (finding.verdict, finding.why) == ("undecided", Why.NOT_APPLICABLE)
    assert after_first_block(["L0.resid_mid", "L0.resid_post", "L1.resid_mid", "L1.resid_post"]) == 1


def test_leaving_oneself_is_no_travel():
    """Every token goes to a word of its own that is not the next one: all leave, none arrives."""
    text = chained(vocabulary=SIZE)
    apart = tuple(replace(w, ids=tuple((w.ids[0] + 3 * t) % SIZE for t in range(len(w.ids)))) for w in text.windows)
    finding = tried(Travel(), mover(), replace(text, windows=apart))
    leaving, approaching = finding.parts
    assert (leaving.verdict, approaching.verdict, finding.verdict) == ("supported", "refuted", "refuted")


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "opt-post"])
def test_neither_padding_nor_batches_matter(name):
    anatomy, whole = read(tiny(name)), corpus(10, 30, 97)
    text = replace(whole, windows=tuple(replace(w, ids=w.ids[: 3 + 2 * w.document]) for w in whole.windows))
    together = observed(anatomy, text)
    alone = [observed(anatomy, replace(text, windows=(window,))) for window in text.windows]
    assert together.tokens == sum(len(w.ids) - 2 for w in text.windows)
    exact = {"state": ("length", "own", "next"), "move": MOVE, "path": ("path", "geodesic", "both")}
    agree(together, reduce(add, alone), exact, atol=2e-3)


@pytest.mark.parametrize("probe", [Travel, Refinement, Artifact, Output])
@pytest.mark.parametrize("text", [lambda: corpus(1, 60), lambda: corpus(300, 2), lambda: corpus(40, 3)])
def test_hardly_any_text_is_survived(probe, text):
    finding = judge(probe(), evidence(bag(gaussian()), text()))
    assert finding.verdict in VERDICTS
    assert (finding.why is not None) == (finding.verdict == "undecided")
