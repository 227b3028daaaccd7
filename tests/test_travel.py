"""Words that travel: streams that turn by known angles, a model that walks to the next word, one that goes nowhere."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as tr
from planted import CONTEXT, D, bag, chained, corpus, evidence, gaussian, generator
from tiny import MAKERS, tiny

from armillary.anatomy import Norm
from armillary.anatomy.read import read
from armillary.flow.capture import run, still, watching
from armillary.flow.glimpse import Glimpse, Tokens
from armillary.flow.tokens import collate
from armillary.geometry.sphere import angle
from armillary.probes.instruments import word_products as strides
from armillary.probes.instruments.words_record import FEWEST, MOVE, PATH, STATE, room, states
from armillary.probes.instruments.words_watch import TravelWatch
from armillary.probes.machinery.evidence import MODEL, Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.machinery.thresholds import THRESHOLDS
from armillary.probes.words.artifact import Artifact
from armillary.probes.words.lens import lens, logits
from armillary.probes.words.output import Output
from armillary.probes.words.refine import Refine
from armillary.probes.words.travel import Travel, move_names
from armillary.results import VERDICTS

WORDS, LAYERS = 40, 6


def walker(step: float = 0.5):
    """Every block moves a word towards the next one, t + 1, along the great circle between them.

    The first half of the stream is where words are read out; the second remembers which word this is, and the final
    norm's gain does not see it.
    """
    config = tr.GPTNeoXConfig(
        hidden_size=2 * WORDS,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=WORDS,
        vocab_size=WORDS,
        max_position_embeddings=CONTEXT,
        hidden_act="relu",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = tr.GPTNeoXForCausalLM(config).eval()
    one = torch.eye(WORDS)
    with torch.no_grad():
        model.gpt_neox.embed_in.weight.copy_(torch.cat((one, 3 * one), 1))
        model.lm_head.weight.copy_(torch.cat((one, 0 * one), 1))
        model.gpt_neox.final_layer_norm.weight[WORDS:] = 0
        for layer in model.gpt_neox.layers:
            layer.attention.dense.weight.zero_()
            layer.attention.dense.bias.zero_()
            layer.mlp.dense_h_to_4h.weight.copy_(torch.cat((0 * one, one), 1))
            layer.mlp.dense_h_to_4h.bias.fill_(-2.0)
            # The remembered word's unit alone is alive; it lowers that word and raises the next.
            layer.mlp.dense_4h_to_h.weight.copy_(torch.cat((one.roll(1, 0) - 0.5 * one, 0 * one), 0) * step / LAYERS)
            layer.mlp.dense_4h_to_h.bias.zero_()
    return read(model, "walker")


def followed(anatomy) -> Evidence:
    text = chained(vocabulary=WORDS)
    sure = tuple(replace(w, ids=tuple((w.ids[0] + t) % WORDS for t in range(len(w.ids)))) for w in text.windows)
    return evidence(anatomy, replace(text, windows=sure))


def by_length() -> Evidence:
    """Words in one direction, told apart by length alone."""
    ray = torch.randn(1, D, generator=generator(8))
    return evidence(
        bag(ray * torch.linspace(1, 9, 60)[:, None] + 0.02 * torch.randn(60, D, generator=generator(9))), chained()
    )


def of_one_length() -> Evidence:
    points = torch.randn(300, D, generator=generator(3))
    points = points - points.mean(1, keepdim=True)
    return evidence(bag(torch.nn.functional.normalize(points, dim=1) * 4), corpus(vocabulary=300))


def in_three_dimensions() -> Evidence:
    frame = torch.randn(D, D, generator=generator(5))
    frame = torch.linalg.qr(frame - frame.mean(0))[0].T[:3]
    points = torch.randn(400, 3, generator=generator(6))
    return evidence(bag(4 * torch.nn.functional.normalize(points, dim=1) @ frame), corpus(vocabulary=400))


CASES = {
    "travel, to the next word": (Travel, "supported", lambda: followed(walker())),
    "travel, nowhere": (Travel, "refuted", lambda: evidence(bag(gaussian()), corpus())),
    "refine, step by step": (Refine, "supported", lambda: followed(walker())),
    "refine, nothing": (Refine, "refuted", lambda: evidence(bag(gaussian()), corpus())),
    "output, words of one length": (Output, "supported", of_one_length),
    "output, words in one direction": (Output, "refuted", by_length),
    "artifact, three dimensions": (Artifact, "supported", in_three_dimensions),
    "artifact, many dimensions": (
        Artifact,
        "refuted",
        lambda: evidence(bag(torch.randn(1500, 128, generator=generator(4))), corpus(300)),
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    probe, verdict, make = CASES[case]
    finding = probe().conclude(make())
    assert finding.verdict == verdict, f"{finding.statistic}: {finding.reading}"
    assert finding.headline
    assert finding.reading


def test_every_word_of_the_walker_arrives():
    found = followed(walker())
    record = found.travel[MODEL]
    shares = {name: record.sums("path", name)[:, 1].sum() / record.tokens for name in PATH}
    assert shares["left"] == shares["approached"] == shares["both"] == 1
    assert shares["more"] > 0.95  # now and then the other word is the next one
    # Along one great circle: what was walked is how far it is.
    assert shares["path"] == pytest.approx(shares["geodesic"], rel=2e-3)
    turns = record.sums("move", "turning").sum(1)
    assert np.degrees(turns[1:, 1] / turns[1:, 0]).max() < 8


def finding_shares(found: Evidence) -> dict[str, float]:
    return {control.name: control.value for control in Travel().conclude(found).controls}


def test_angles_are_those_that_were_turned():
    """States turned by 10°, 20° and 30°, the second at a right angle to the first, each also made longer."""
    anatomy = bag(gaussian())
    text = corpus(3, 12)
    watch = TravelWatch(anatomy, text, 0)
    batch = collate(text.windows, 0)
    watch.begin(batch)
    frame = torch.linalg.qr(torch.randn(D, 6, generator=generator(1)))[0].T.double()
    frame = frame - frame.mean(1, keepdim=True)
    frame = torch.linalg.qr(frame.T)[0].T
    a, b, c = (math.radians(x) for x in (10, 20, 30))
    first = frame[0]
    second = math.cos(a) * frame[0] + math.sin(a) * frame[1]
    third = math.cos(b) * second + math.sin(b) * frame[2]
    back = -math.sin(b) * second + math.cos(b) * frame[2]  # the way third was reached
    fourth = math.cos(c) * third + math.sin(c) * back
    path = [first, 2 * second, 5 * third, 5 * fourth, 5 * fourth]
    norm = Norm("layernorm", torch.ones(D), None, 0.0)
    tokens = Tokens.of(batch, 3, torch.device("cpu"))
    for site, state in zip(states(anatomy), path, strict=True):
        x = state.float().expand(3 * 12, D)
        watch.see(site, Glimpse(norm, x, x, tokens))
    record = watch.record
    means = {name: record.sums("move", name).sum(1) for name in MOVE}
    moved, turning, radial = (
        np.array(means[name][:, 1] / means[name][:, 0]) for name in ("moved", "turning", "radial")
    )
    assert np.allclose(np.degrees(moved), [10, 20, 30, 0], atol=1e-3)
    assert np.allclose(np.degrees(turning)[1:3], [90, 0], atol=0.1)
    # From 1 to 2·second: Δ = 2 second − first, of which 2cos10° − 1 lies along the stream.
    along = (2 * math.cos(a) - 1) ** 2 / (5 - 4 * math.cos(a))
    assert radial[0] == pytest.approx(along, rel=1e-4)
    total = record.path.additive().sum(0)
    assert np.degrees(total[PATH.index("path"), 1] / total[PATH.index("path"), 0]) == pytest.approx(60, abs=1e-3)
    direct = math.degrees(math.acos(float(first @ fourth)))
    assert np.degrees(total[PATH.index("geodesic"), 1] / total[PATH.index("geodesic"), 0]) == pytest.approx(
        direct, abs=1e-3
    )


@pytest.mark.parametrize("name", list(MAKERS))
def test_states_are_the_model_s_own(name):
    """What is sampled at each state is the block's own input or output, on every family."""
    anatomy, text = read(tiny(name)), corpus(6, 20, 97)
    watch = TravelWatch(anatomy, text, 0)
    observe(anatomy, text, ("lengths",), travel=watch)
    sampled, places = watch.record.sampled()
    names = watch.record.names
    kept: dict[str, torch.Tensor] = {}
    for batch in text.batches():
        at: dict[str, tuple] = {}
        wanted = {n for n in names if n in anatomy.sites}
        keep = {site: (lambda x, y, site=site, at=at: at.update({site: (x, y)})) for site in wanted}
        with still(anatomy.model), watching(anatomy, keep):
            run(anatomy, batch.ids, batch.mask)
        for row, window in enumerate(batch.windows):
            for i, place in enumerate(places):
                if place[0] != window.document:
                    continue
                for site in wanted:
                    side = at[site][0 if site.endswith("pre") else 1].reshape(*batch.ids.shape, -1)
                    kept[f"{i} {site}"] = side[row, place[1]]
    assert kept
    for key, expected in kept.items():
        i, site = key.split()
        assert torch.allclose(sampled[int(i), names.index(site)], expected, atol=1e-5), key
    assert len(move_names(names)) == len(names) - 1


@pytest.mark.parametrize("name", list(MAKERS))
def test_angles_are_those_of_the_states_themselves(name):
    """All tokens are sampled, so every mean can be had the long way: in float64, state by state, from the stream."""
    anatomy, text = read(tiny(name)), corpus(4, 12, 97)
    watch = TravelWatch(anatomy, text, 0)
    observe(anatomy, text, ("lengths", "spectra", "sample"), travel=watch)
    sampled, places = watch.record.sampled()
    assert len(sampled) == watch.record.tokens
    x, norm = sampled.double(), anatomy.ln_final
    z = x - x.mean(-1, keepdim=True) if next(iter(anatomy.norms.values())).kind == "layernorm" else x
    u = torch.nn.functional.normalize(z, dim=-1)
    y = x
    if norm is not None:
        y = u * norm.gain.double() * anatomy.d**0.5 + (0 if norm.shift is None else norm.shift.double())
    words = (anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T).double()
    last, now = x[:, :-1], x[:, 1:]
    step = now - last
    came, goes = (a - (a * u[:, 1:-1]).sum(-1, keepdim=True) * u[:, 1:-1] for a in (-u[:, :-2], u[:, 2:]))
    truths = {
        ("state", "length"): x.norm(dim=-1),
        ("state", "own"): angle(y, words[places[:, 2]][:, None]),
        ("state", "next"): angle(y, words[places[:, 3]][:, None]),
        ("move", "moved"): angle(u[:, :-1], u[:, 1:]),
        ("move", "radial"): (step * last).sum(-1) ** 2 / (step.norm(dim=-1) * last.norm(dim=-1)) ** 2,
        ("move", "turning"): torch.cat((0 * step[:, :1, 0], angle(came, goes)), 1),
        ("path", "geodesic"): angle(u[:, 0], u[:, -1]),
    }
    for (part, scalar), truth in truths.items():
        stats = watch.record.sums(part, scalar).sum(-2)
        assert np.allclose(stats[..., 1] / stats[..., 0], truth.mean(0).numpy(), rtol=2e-5), (part, scalar)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 19, 25])
def test_products_of_rows_in_blocks_are_those_at_once(count):
    """Blocks that are whole and that are not, of batches that use the same memory in turn."""
    draw, rows, d = generator(2), 37, 16
    words, gain, shift = (torch.randn(*shape, d, generator=draw) for shape in ((3, rows), (), ()))
    states = torch.randn(count, rows, d, generator=draw)
    watched = strides.Strides(gain, shift, count)
    for some in (9, 20, rows):
        watched.begin(some).copy_(words[:, :some] * gain)
        for z in states:
            watched.take(z[:some])
        found = watched.found()
    steps = torch.diff(states, dim=0, prepend=torch.zeros_like(states[:1]))
    truth = {name: (steps * word * gain).sum(-1) for name, word in zip(("own", "next", "other"), words, strict=True)}
    before = torch.cat((torch.zeros_like(steps[:1]), steps[:-1]))
    truth |= {"stepped": (steps**2).sum(-1), "bend": (steps * before).sum(-1)}
    truth |= {"power": (gain * states).square().sum(-1), "tilted": steps @ (gain * shift)}
    assert found.shape == (count, len(strides.PRODUCTS), rows)
    for index, name in enumerate(strides.PRODUCTS):
        assert torch.allclose(found[:, index], truth[name], atol=1e-4), name


def test_the_lens_ends_at_the_model_s_own_loss():
    anatomy, text = read(tiny("gemma2")), corpus(8, 20, 97)
    found = evidence(anatomy, text)
    seen = lens(found, MODEL)
    assert np.allclose(seen.kl[:, -1], 0)
    assert (seen.rank[:, -1] == 0).all()
    _, places = found.travel[MODEL].sampled()
    for batch in text.batches():
        with still(anatomy.model):
            said = run(anatomy, batch.ids, batch.mask, logits=True).log_softmax(-1)
        for row, window in enumerate(batch.windows):
            for i, (document, t, _, following) in enumerate(places):
                if document == window.document:
                    assert seen.loss[i, -1] == pytest.approx(-float(said[row, t, following]), abs=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "opt"])
def test_divergence_and_rank_are_those_of_the_distributions(name):
    found = evidence(read(tiny(name)), corpus(8, 20, 97))
    seen, (sampled, _) = lens(found, MODEL), found.travel[MODEL].sampled()
    said = logits(found.anatomy, sampled.double()).log_softmax(-1)
    last = said[:, -1:]
    assert np.allclose(seen.kl, (last.exp() * (last - said)).sum(-1), atol=2e-5)
    best = said.gather(-1, last.argmax(-1, keepdim=True).expand(-1, said.shape[1], 1))
    assert (seen.rank == (said > best).sum(-1).numpy()).mean() > 0.99  # float32 may turn a near tie round
    # The mutation: the divergence the other way round is another number.
    assert not np.allclose(seen.kl, (said.exp() * (said - last)).sum(-1), rtol=0.05)


def test_a_lens_without_the_state_s_own_norm_would_be_wrong():
    """States grow along the way: divided by another's length, an early state would say something else."""
    found = followed(walker())
    sampled, _ = found.travel[MODEL].sampled()
    early = sampled[:, 0]
    assert not torch.allclose(logits(found.anatomy, early), early @ found.anatomy.W_U, atol=0.1)
    assert torch.allclose(logits(found.anatomy, early), logits(found.anatomy, 7 * early), rtol=1e-3)


def test_encoders_read_out_no_next_word():
    found = evidence(read(tiny("bert")), corpus(vocabulary=97))
    for probe in (Travel, Refine, Output):
        finding = probe().conclude(found)
        assert finding.verdict == "undecided"
        assert "no next word" in finding.reading


def test_a_record_of_parts_is_the_record_of_the_whole():
    anatomy, text = read(tiny("llama")), corpus(8, 24, 97)
    whole = TravelWatch(anatomy, text, 0)
    observe(anatomy, text, ("lengths",), travel=whole)
    parts = []
    for fold in (0, 1):
        half = replace(text, windows=tuple(w for w in text.windows if w.document % 2 == fold))
        watch = TravelWatch(anatomy, text, 0)
        observe(anatomy, half, ("lengths",), travel=watch)
        parts.append(watch.record)
    both = parts[1] + parts[0]
    for part, names in (("state", STATE), ("move", MOVE), ("path", PATH)):
        for name in names:
            if "other" in name or name == "more":
                continue  # drawn batch by batch
            assert np.allclose(both.sums(part, name), whole.record.sums(part, name)), name
    assert torch.allclose(both.sampled()[0], whole.record.sampled()[0], atol=1e-5)


def test_the_sample_is_bounded_by_its_price():
    anatomy = read(tiny("gpt2"))
    assert room(anatomy, 1) == FEWEST >= 5 * THRESHOLDS.documents_least
    assert room(anatomy, 10**9) == 512
    # Three layers of width 32 and m hidden units multiply 3 · (4 · 32² + 2 · 32 · m) times a token; seven states meet 97 words.
    once, look = 3 * (4 * 32 * 32 + 2 * 32 * anatomy.m), 7 * 32 * 97
    assert room(anatomy, 5000) == int(0.022 * 5000 * once / look) > FEWEST


def test_shuffled_text_has_no_next_word_to_approach():
    """The walker still goes to t + 1, which is no longer the next word: chance is left."""
    record = followed(walker()).travel["shuffled text"]
    assert record.sums("path", "more")[:, 1].sum() / record.tokens == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "opt-post"])
def test_padding_counts_for_nothing(name):
    anatomy, whole = read(tiny(name)), corpus(10, 30, 97)
    text = replace(whole, windows=tuple(replace(w, ids=w.ids[: 3 + 2 * w.document]) for w in whole.windows))
    together, apart = TravelWatch(anatomy, text, 0), TravelWatch(anatomy, text, 0)
    observe(anatomy, text, ("lengths",), travel=together)
    for window in text.windows:
        observe(anatomy, replace(text, windows=(window,)), ("lengths",), travel=apart)
    assert together.record.tokens == sum(len(w.ids) - 2 for w in text.windows)
    for part, names in (("state", ("length", "own", "next")), ("move", MOVE), ("path", ("path", "geodesic", "both"))):
        for scalar in names:
            assert np.allclose(together.record.sums(part, scalar), apart.record.sums(part, scalar), atol=2e-3), scalar


@pytest.mark.parametrize("probe", [Travel, Refine, Artifact, Output])
@pytest.mark.parametrize("text", [lambda: corpus(1, 60), lambda: corpus(300, 2), lambda: corpus(40, 3)])
def test_hardly_any_text_is_survived(probe, text):
    finding = judge(probe(), evidence(bag(gaussian()), text()))
    assert finding.verdict in VERDICTS


def test_an_encoder_still_shows_its_embeddings():
    finding = Output().conclude(evidence(read(tiny("bert")), corpus(vocabulary=97)))
    assert finding.more_tables["embeddings and their directions"].rows
