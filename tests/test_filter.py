"""The filter: bitstreams decode, hidden layers match a naive count, planted feed-forwards get their known verdicts."""

import lzma

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import conclude, first_reading, name_of, tried
from tiny import MAKERS, tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.edits import Ablate
from armillary.flow.controls import Twins
from armillary.flow.tokens import Corpus, Window
from armillary.geometry.coding import REACH, Coded, decode, encode, entropy, quantise
from armillary.probes import PROBES as ALL_PROBES
from armillary.probes.filter.activations.hidden import below, hidden_layers, quiet
from armillary.probes.filter.activations.units import closest, find_units
from armillary.probes.filter.compress import Compress
from armillary.probes.filter.compression.bits import document_bits, halves_rank, hoyer, random_orientation
from armillary.probes.filter.discard import Discard
from armillary.probes.filter.select import Select
from armillary.probes.filter.selection import decoding
from armillary.probes.filter.selection.ablation import at_random, most_often
from armillary.probes.filter.selection.decoding import decoded_sums, equal_sides
from armillary.probes.filter.selection.undiscard import Undiscard
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence
from armillary.probes.machinery.probe import Experimenter, judge
from armillary.probes.machinery.verdicts import by_layers
from armillary.results import VERDICTS, Finding, Why
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.models.units.filter_units import (
    WORDS,
    finders,
    forward,
    frame,
    nexts,
    plain,
    selector,
    skewed,
    steady,
)
from armillary.specimens.planted.filter_cases import CASES

# Those that experiment; the others are tried in test_second_a.py.
PROBES = tuple(type(p) for p in ALL_PROBES if p.claim.chapter == "E" and isinstance(p, Experimenter))


def lengths(*each: int, vocabulary: int = 97) -> Corpus:
    """Documents of these many tokens: batches of them hold padding."""
    rng = np.random.default_rng(4)
    windows = tuple(Window(i, tuple(rng.integers(3, vocabulary, n).tolist())) for i, n in enumerate(each))
    return Corpus(windows, "planted", len(windows), sum(each), ())


def bench(anatomy: Anatomy, text: Corpus) -> Bench:
    return Bench(anatomy, text, Twins(anatomy, 0), quick=True)


# Bitstreams


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(-3, 3) | st.integers(-5000, 5000), min_size=1, max_size=40), min_size=1, max_size=6)
)
def test_what_is_coded_comes_back(rows):
    rows = [np.array(row) for row in rows]
    kinds = [i % 2 for i in range(len(rows))]
    assert [row.tolist() for row in decode(encode(rows, kinds))] == [row.tolist() for row in rows]


def streams_of_numbers() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2048))
    return {
        "gaussian": quantise(x, 0.25),
        "half of it nothing": quantise(np.maximum(x, 0), 0.25),
        "nearly all nothing": quantise(np.maximum(x - 2.5, 0), 0.25),
        "all the same": np.zeros((40, 2048), dtype=np.int64),
        "far out": quantise(x**9, 0.25),
    }


@pytest.mark.parametrize("name", streams_of_numbers())
def test_a_bitstream_is_as_long_as_the_entropy_and_little_more(name):
    """Caught: bits counted without last states, or taken from a formula; a table that gives rare symbols no share."""
    symbols = streams_of_numbers()[name]
    coded = encode(list(symbols))
    bits, n = coded.bits.sum(), symbols.size
    assert sum(map(len, coded.words)) * 16 + sum(map(len, coded.escaped)) * 32 + 40 * 32 == bits
    least = entropy(symbols.ravel())
    if name != "far out":
        assert least <= bits / n <= least + 32 / 2048 + 0.01
        assert sum(code.bits for code in coded.codes) / n < 0.02
        packed = lzma.compress(symbols.astype(np.int16).tobytes())
        assert bits <= 8 * len(packed) or name == "all the same"
    else:
        assert sum(map(len, coded.escaped)) == (np.abs(symbols) > REACH).sum() > 0


def test_bits_that_are_lost_are_missed():
    """The decoder reads the words, not the answer: with one bit flipped the rest of that row is another."""
    rows = [np.random.default_rng(1).integers(-4, 5, 500), np.random.default_rng(2).integers(-4, 5, 300)]
    coded = encode(rows)
    broken = tuple(word.copy() for word in coded.words)
    broken[0][len(broken[0]) // 2] ^= 4
    damaged = Coded(coded.codes, coded.kinds, coded.states, broken, coded.escaped, coded.lengths)
    first, second = decode(damaged)
    assert (first != rows[0]).any()
    assert (second == rows[1]).all()


def test_what_cannot_be_coded_is_refused():
    with pytest.raises(ValueError, match="nothing to code"):
        encode([])
    with pytest.raises(ValueError, match="nothing to code"):
        encode([np.array([1]), np.array([], dtype=np.int64)])
    with pytest.raises(ValueError, match="without a gap"):
        encode([np.array([1])], [1])
    with pytest.raises(ValueError, match="must be positive"):
        quantise(np.ones(3), 0.0)


def test_relu_never_adds_bits_at_one_step():
    """Its symbols are a function of those before it; at a step of its own it saves less, since it is smaller."""
    x = np.random.default_rng(2).normal(size=(64, 128))
    documents = np.repeat(np.arange(8), 8)
    rms = float(np.sqrt(np.square(np.maximum(x, 0)).mean()))
    relu = np.maximum(x, 0)
    bits = document_bits({"before": (x, 0.25), "same": (relu, 0.25), "own": (relu, 0.25 * rms)}, documents, 8)
    assert bits["same"].sum() < bits["own"].sum() < bits["before"].sum()
    assert (document_bits({"alone": (relu, 0.25)}, documents, 8)["alone"] == bits["same"]).all()


def test_no_edge_of_the_grid_decides():
    """Many values of GELU lie at −0.17. On one grid its bits jump with the step; over shifted grids they do not."""
    from armillary.probes.filter.compression import bits

    x = np.random.default_rng(2).normal(-1, 0.7, size=(64, 256))
    gelu = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    documents = np.repeat(np.arange(8), 8)
    steps = 0.3 * 1.1 ** np.arange(6)

    def roughness() -> float:
        coded = document_bits({str(step): (gelu, float(step)) for step in steps}, documents, 8)
        means = [bits.sum() / gelu.size for bits in coded.values()]
        return float(np.abs(np.diff(means, 2)).max())

    shifted, phases = roughness(), bits.PHASES
    try:
        bits.PHASES = (0.0,) * 4
        assert roughness() > 3 * shifted
    finally:
        bits.PHASES = phases


def test_bits_belong_to_their_documents():
    x = np.concatenate([np.zeros((16, 256)), np.random.default_rng(0).normal(size=(16, 256))])
    documents = np.repeat([0, 3], 16)
    bits = document_bits({"x": (x, 0.25)}, documents, 5)["x"]
    assert (bits[[1, 2, 4]] == 0).all()
    assert bits[3] > 4 * 16 * 256 and bits[0] < 0.3 * bits[3]
    narrow = document_bits({"x": (x[:, :2], 0.25), "half": (x[:, :2] / 2, 0.25)}, documents, 5)
    assert narrow["half"][3] < narrow["x"][3]


# Hidden layers


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "opt", "opt-post", "gpt_neox", "bert"])
def test_hidden_layers_match_a_count_by_hand(name):
    """With padding and a document of one token. Caught: padding or first tokens counted, W_in taken for the gate."""
    a, text = read(tiny(name)), lengths(12, 7, 1, 9, 2)
    stand = bench(a, text)
    for i, layer in enumerate(hidden_layers(stand).arms[MODEL]):
        pres, posts, groups = [], [], []
        for window in stand.text.windows:
            batch = stand.batches([window])[0]
            states = stand.states(batch, [f"L{i}.mlp_pre", f"L{i}.mlp_post"])
            pres.append(states[f"L{i}.mlp_pre"][0].double())
            posts.append(states[f"L{i}.mlp_post"][0].double())
            groups += [window.document] * (len(window.ids) - 1)
        pre, post = (torch.cat([x[1:] for x in xs]) for xs in (pres, posts))
        assert layer.tokens == len(pre)
        by_hand = torch.stack([below(pre, post).double().mean(1), quiet(pre, post).double().mean(1)], 1)
        carried = (post.square() * (pre < 0)).sum(1) / post.square().sum(1)
        for column, values in enumerate((*by_hand.T, carried), 1):
            expected = np.bincount(groups, weights=values.numpy(), minlength=5)
            assert layer.sums[:, column] == pytest.approx(expected, abs=1e-3)
        assert torch.allclose(layer.off[0], below(pre, post).sum(0).double(), atol=1)
        everything = torch.cat(posts)
        assert torch.allclose(layer.peak, everything.abs().amax(0), atol=1e-5)
        assert torch.allclose(layer.least, torch.cat(pres).amin(0), atol=1e-5)
        assert layer.sample("post").shape == (len(layer.groups), a.m)
        ffn = a.blocks[i].feed_forward
        weight, bias = (ffn.W_in, ffn.b_in) if ffn.W_gate is None else (ffn.W_gate, ffn.b_gate)
        again = torch.from_numpy(layer.sample("y")) @ weight.double() + (0 if bias is None else bias.double())
        assert torch.allclose(again, torch.from_numpy(layer.sample("pre")), atol=1e-4)


def test_off_means_are_those_of_the_discarded():
    a = plain("gelu_new")
    layer = hidden_layers(bench(a, corpus(12, 20))).arms[MODEL][0]
    assert (layer.off_mean[0] < 0).all()
    assert (layer.off_mean[0] > -0.171).all()


# Units


def test_units_that_are_never_or_always_on_are_named():
    W_in, b_in = finders(4, -4)
    b_in = b_in.clone()
    b_in[7], b_in[9] = -90, 60
    a = forward(frame(), W_in, b_in, nexts(2), "relu")
    finding = tried(Discard(), a, chained(24, 60))
    units = finding.more_tables["units"].to_frame()
    assert set(units[units.what == "silent"].unit) == {7}
    assert set(units[units.what == "always on"].unit) == {9}
    assert not (units.what == "double").any()
    assert (finding.to_frame().silent == 1).all() and (finding.to_frame().never_on == 1).all()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_doubles_are_found_and_only_they(name):
    model = tiny(name)
    block = (model.transformer.h if name == "gpt2" else model.model.layers)[1].mlp
    with torch.no_grad():
        if name == "gpt2":
            for w in (block.c_fc.weight.T, block.c_fc.bias, block.c_proj.weight):
                w[11] = w[4]
            # The same input, another output: a double by activations alone.
            for w in (block.c_fc.weight.T, block.c_fc.bias):
                w[23] = w[20]
        else:
            for w in (block.gate_proj.weight, block.up_proj.weight, block.down_proj.weight.T):
                w[11] = w[4]
            for w in (block.gate_proj.weight, block.up_proj.weight):
                w[23] = w[20]
    a = read(model)
    layers = hidden_layers(bench(a, corpus(12, 40, 97))).arms[MODEL]
    units = [find_units(layer, a.blocks[i].feed_forward, 0) for i, layer in enumerate(layers)]
    assert not units[0].double.any() and not units[2].double.any()
    assert np.flatnonzero(units[1].double).tolist() == [11, 23]
    assert units[1].partner[[11, 23]].tolist() == [4, 20]
    assert units[1].cosine[11] == pytest.approx(1) and units[1].cosine[23] < 0.9
    assert units[1].correlation[[11, 23]] == pytest.approx([1, 1])


def test_units_that_fire_once_are_not_doubles():
    """Two units that fire on one and the same token correlate perfectly by chance."""
    stand = bench(plain(), corpus(12, 20))
    layer = hidden_layers(stand).arms[MODEL][0]
    post = torch.zeros_like(torch.cat(layer.sample_rows["post"]))
    post[3, :2] = 1.0
    layer.sample_rows["post"] = [post]
    assert not find_units(layer, stand.anatomy.blocks[0].feed_forward, 0).double.any()


def test_units_that_agree_on_massive_tokens_alone_are_not_doubles():
    """Sixteen tokens are a hundred times as long as the others, and two units follow them: correlation 0.999."""
    stand = bench(plain(), corpus(12, 20))
    layer = hidden_layers(stand).arms[MODEL][0]
    draw = torch.Generator().manual_seed(0)
    post = torch.randn(torch.cat(layer.sample_rows["post"]).shape, generator=draw)
    post[:16] *= 3
    post[:16, :2] = 100 * (1 + torch.rand(16, 1, generator=draw)).expand(16, 2)
    layer.sample_rows["post"] = [post]
    ffn = stand.anatomy.blocks[0].feed_forward
    units = find_units(layer, ffn, 0)
    assert units.massive == 16 and not units.double.any()
    assert np.corrcoef(post[:, 0], post[:, 1])[0, 1] > 0.99
    # The same agreement on ordinary tokens is one.
    post[:, 1] = post[:, 0]
    assert np.flatnonzero(find_units(layer, ffn, 0).double).tolist() == [1]


def test_wide_rows_are_sketched_and_blocks_agree(monkeypatch):
    from armillary.probes.filter.activations import units

    rows = torch.randn(300, 400, generator=torch.Generator().manual_seed(0))
    rows[250], rows[40], rows[41] = -rows[100], rows[39] + 0.05 * torch.randn(400), 0
    monkeypatch.setattr(units, "ROWS", 64)
    partner, similarity = closest([rows], 0)
    near = similarity > 0.99
    assert near.nonzero()[:, 0].tolist() == [40, 250]
    assert partner[near].tolist() == [39, 100]


def test_a_long_list_is_cut_and_the_notes_say_so(monkeypatch):
    from armillary.probes.filter import discard

    monkeypatch.setattr(discard, "LISTED", 5)
    finding = tried(Discard(), steady(), chained(24, 40))
    assert len(finding.more_tables["units"].rows) == 5
    assert any("shows 5 of" in note for note in finding.notes)
    assert finding.to_frame().always_on.tolist() == [WORDS, WORDS]


# Claims


@pytest.mark.parametrize("case", first_reading(CASES), ids=name_of)
def test_planted_truth_comes_back(case):
    finding = conclude(case)
    assert finding.verdict == case.planted.verdict, finding.reading
    assert finding.statistic.low <= finding.statistic.value <= finding.statistic.high


def parts_of(finding: Finding) -> dict[str, str]:
    return {part.name: part.verdict for part in finding.parts}


def test_a_wrong_orientation_is_told_although_bits_are_saved():
    """Random directions of the same means and variances would save more; what translation saves is another part."""
    finding = tried(Compress(), skewed(-1, -1.0), corpus(24, 40))
    assert finding.to_frame().saved_low.min() > 0.5
    assert (
        finding.to_frame().more_high < -0.1
    ).all() and "bits more than the model's own in every layer" in finding.reading
    assert parts_of(finding)["the directions of W_1 add to it"] == "refuted"
    assert finding.verdict == "refuted"


def test_large_untrained_weights_have_learned_nothing():
    """They save more than untrained models of the usual size, and as much as other random directions."""
    finding = tried(Compress(), plain("gelu_new", size=5.0), corpus(24, 40))
    parts = parts_of(finding)
    assert parts["the activation saves bits"] == parts["training adds to it"] == "supported"
    assert parts["the directions of W_1 add to it"] == finding.verdict == "refuted"


def test_what_any_activation_saves_is_not_learned():
    parts = parts_of(tried(Compress(), plain(), corpus(24, 40)))
    assert parts["the activation saves bits"] == "supported" and parts["training adds to it"] == "refuted"


def test_below_zero_and_gone_are_two_things():
    parts = parts_of(tried(Discard(), plain("gelu_new", -1.0), corpus(24, 40)))
    assert parts == {"most are below zero": "supported", "they are gone": "refuted"}


def test_layers_become_one_verdict():
    """The mean decides, layers qualify, and layers that span their limit turn nothing."""
    cases = {
        "supported": ([True, True, None], True),
        "refuted": ([False, None, False], False),
        "qualified": ([True, False, None], None),
        "undecided": ([None, None, False], None),
    }
    assert {name: by_layers(*case)[0] for name, case in cases.items()} == {name: name for name in cases}
    # One layer with a large effect carries the mean; the others say that it is not so.
    assert by_layers([True, False, False, False], True)[0] == "qualified"
    assert by_layers([False, False], False, [True, True])[0] == "qualified"


def test_controls_do_not_show_the_effect():
    shares = {c.name: c for c in tried(Discard(), selector(), chained(24, 40)).controls}
    assert abs(shares[RANDOM].value - 0.5) < 0.05
    saved = tried(Compress(), skewed(1), corpus(24, 40))
    controls = {c.name: c.value for c in saved.controls}
    assert saved.statistic.value > controls["random orientation, matched moments"] + 0.1


def test_relu_loses_nothing_by_construction():
    """Exactly nothing, and by construction; GELU's below-zero values are small, and not nothing."""
    finding = tried(Select(), selector(), chained(24, 40))
    zeroed = finding.to_frame()
    assert (zeroed.cost == 0).all() and (zeroed.cost_high == 0).all()
    assert "by construction" in finding.reading
    assert zeroed.random.max() > 1
    other = tried(Select(), selector("gelu_new"), chained(24, 40))
    assert "by construction" not in other.reading
    assert (other.to_frame().cost != 0).any()


def test_zeroing_after_the_activation_says_nothing_of_relevance():
    """ReLU leaves nothing below zero, so zeroing costs nothing, although the next word can be read there."""
    W_in, b_in = finders(-0.75, -6)
    loud_in, loud_b = finders(2, 1)
    W_out = torch.cat((0 * frame(), nexts(2)))
    a = forward(frame(), torch.cat((W_in, loud_in), 1), torch.cat((b_in, loud_b)), W_out, "relu")
    parts = parts_of(tried(Select(), a, chained(24, 40)))
    assert parts["what the activation leaves of them is nothing"] == "supported"
    assert parts["discarded values say little of the next token"] == "refuted"


def test_letting_through_gives_the_input_back():
    """Slope 1 makes the layer linear below zero; as much elsewhere changes as many coordinates by as much."""
    for name in ("gpt2", "llama"):
        a = read(tiny(name))
        stand = bench(a, corpus(12, 20, 97))
        batch = stand.batches()[0]
        site, ffn = "L1.mlp_post", a.blocks[1].feed_forward
        states = stand.states(batch, ["L1.mlp_pre", site, "L1.ln2"])
        through, other = (stand.states(batch, [site], Undiscard(1, 0.5, seed))[site] for seed in (None, (3,)))
        pre, y = states["L1.mlp_pre"], states["L1.ln2"]
        leaky = torch.where(pre < 0, 0.5 * pre, ffn.activation(pre))
        expected = leaky if ffn.W_gate is None else leaky * ffn.up(y)
        assert torch.allclose(through, expected, atol=1e-5)
        moved, elsewhere = (torch.sort((x - states[site]).abs(), -1).values for x in (through, other))
        assert torch.allclose(moved, elsewhere, atol=1e-5) and not torch.allclose(through, other, atol=1e-3)
        assert torch.equal(stand.states(batch, [site])[site], states[site])


def test_equally_many_values_of_both_sides():
    pre = torch.tensor([[3.0, -1, -2, -3], [1, 2, 5, -4], [1, 1, 1, 1]])
    (above, below), number = equal_sides(pre)
    assert above.tolist() == [[3, 0, 0, 0], [0, 0, 5, 0], [0, 0, 0, 0]]
    assert below.tolist() == [[0, 0, 0, -3], [0, 0, 0, -4], [0, 0, 0, 0]]
    assert number == pytest.approx(2 / 3)


def test_what_can_be_decoded_is_decoded_and_noise_is_not(monkeypatch):
    rng = np.random.default_rng(0)
    fold, values = np.arange(400) % 2, rng.standard_normal((400, 60))
    targets = {"linear": values @ rng.standard_normal((60, 5)), "noise": rng.standard_normal((400, 5))}

    def skills(rows: np.ndarray) -> dict[str, float]:
        sums = decoded_sums(values @ values.T, {name: target[rows] for name, target in targets.items()}, fold)
        return {name: part[:, 1].sum() / part[:, 0].sum() for name, part in sums.items()}

    skill = skills(np.arange(400))
    assert skill["linear"] > 0.95 and abs(skill["noise"]) < 0.05
    # Rows that belong to other tokens are noise as well.
    assert skills(rng.permutation(400))["linear"] < 0.05
    # A penalty that is not chosen lets a fit on noise do harm.
    monkeypatch.setattr(decoding, "PENALTIES", (1e-6,))
    assert skills(np.arange(400))["noise"] < -0.2


def test_units_without_output_cost_exactly_nothing():
    """W_out does not look at units from WORDS on: dropping them changes no loss by a single bit."""
    a = steady()
    trials = bench(a, chained(24, 40)).compare(
        {
            "blind": (Ablate(1, lambda pre, post: torch.arange(post.shape[-1]).expand(post.shape) >= WORDS),),
            "seen": (Ablate(1, lambda pre, post: torch.arange(post.shape[-1]).expand(post.shape) < WORDS),),
        }
    )
    assert trials.cost("blind") == (0.0, 0.0, 0.0)
    assert trials.cost("seen")[1] > 1


def test_a_fixed_choice_differs_from_one_in_context():
    fixed, free = (tried(Select(), a, chained(24, 40)) for a in (steady(), selector("gelu_new")))
    verdicts = [parts_of(finding)["the choice depends on context"] for finding in (fixed, free)]
    assert verdicts == ["refuted", "supported"]
    row = fixed.to_frame().set_index("where").loc["all layers"]
    assert row.fixed == row.cost == 0


def test_a_constant_below_zero_differs_from_information():
    """W_out reads what below-zero units give; it is the same for every token, so their mean does as well as they do."""
    W_in, b_in = finders(4, -4)
    steady_in, steady_b = 0 * W_in, torch.full((WORDS,), -0.75)
    W_out = torch.cat((nexts(2), 6 * frame()))
    # Without the constant, the stream loses what distinguishes the chain's words.
    a = forward(frame(), torch.cat((W_in, steady_in), 1), torch.cat((b_in, steady_b)), W_out)
    finding = tried(Select(), a, chained(24, 40))
    row = finding.to_frame().set_index("where").loc["all layers"]
    assert abs(row["mean"]) < 1e-4
    assert abs(row.cost) > 1e-3


def test_a_layer_that_writes_nothing_cannot_tell():
    finding = tried(Select(), plain(), corpus(24, 40))
    assert finding.verdict == "undecided" and finding.why is Why.UNDEFINED


def test_random_choices_drop_as_many_of_every_token():
    pre = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0))
    choose = at_random(below, [0])
    first, second = choose(pre, pre), choose(pre, pre)
    assert torch.equal(first.sum(-1), (pre < 0).sum(-1)) and torch.equal(second.sum(-1), first.sum(-1))
    assert not torch.equal(first, second)
    # Independent of the sign: half of what is dropped was above zero.
    assert 0.3 < float((first & (pre > 0)).sum() / first.sum()) < 0.7
    full = at_random(lambda pre, post: torch.ones_like(post, dtype=torch.bool), [0])(pre, pre)
    assert full.all()


def test_fixed_choices_are_those_discarded_most_often():
    layer = hidden_layers(bench(plain("gelu_new", -0.5), corpus(12, 30))).arms[MODEL][0]
    chosen = most_often(layer)(torch.zeros(2, 3, 128), torch.zeros(2, 3, 128))
    assert (chosen == chosen[0, 0]).all()
    assert int(chosen[0, 0].sum()) == round(float(layer.off[0].sum()) / layer.tokens)
    assert layer.off[0][chosen[0, 0]].min() >= layer.off[0][~chosen[0, 0]].max()


def test_random_orientation_keeps_every_units_moments():
    rng = np.random.default_rng(0)
    y, pre = rng.normal(size=(80, 16)), rng.exponential(size=(80, 30)) - 2
    pre[:, 3] = 5.0
    turned, centred = random_orientation(y, pre, rng)
    assert turned.mean(0) == pytest.approx(pre.mean(0)) and turned.std(0) == pytest.approx(pre.std(0))
    assert centred.mean(0) == pytest.approx(np.zeros(30)) and centred.std(0) == pytest.approx(pre.std(0))
    assert np.linalg.matrix_rank(centred) == 16
    assert not np.allclose(turned, pre)


def test_rank_and_sparsity_by_hand():
    rng = np.random.default_rng(0)
    cloud = np.zeros((400, 50))
    cloud[:, :5] = rng.normal(size=(400, 5))
    assert halves_rank(cloud, np.arange(400)) == pytest.approx(5, rel=0.05)
    assert np.isnan(halves_rank(cloud, np.zeros(400, dtype=int)))
    assert np.isnan(halves_rank(np.ones((10, 4)), np.arange(10)))
    assert hoyer(np.array([[3.0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])).tolist() == [1, 0, 1]


# Every family, and what cannot be answered


def judged(probe, a: Anatomy, text: Corpus) -> Finding:
    stand = bench(a, text)
    stand.prove()
    finding = judge(probe, Evidence(a, text, stand.untrained), stand)
    assert (finding.why is not None) == (finding.verdict == "undecided")
    return finding


def no_nan(finding: Finding) -> bool:
    tables = (finding.table, *finding.more_tables.values())
    return not any(isinstance(cell, float) and np.isnan(cell) for table in tables for row in table.rows for cell in row)


# Dropping coordinates takes many passes; families that differ only in attention need not all make them.
DISTINCT = ("gpt2", "llama-biased-untied", "gpt_neox", "gemma2", "opt", "opt-post", "bert", "bert-decoder")


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("name", MAKERS)
def test_every_family_is_measured(name):
    a, text = read(tiny(name)), lengths(14, 12, 9, 8, 12, 11, 10, 14, 13, 9)
    for probe in (p for p in PROBES if p is not Select or name in DISTINCT):
        finding = judged(probe(), a, text)
        assert finding.verdict in VERDICTS and no_nan(finding)
        if probe is Select and not (a.causal and a.W_U is not None):
            assert finding.verdict == "undecided" and finding.why is Why.NOT_APPLICABLE
            continue
        assert len(finding.table.rows) in (a.layers, 2 + 1)
        gated = a.blocks[0].feed_forward.W_gate is not None
        if probe is Compress:
            assert (finding.to_frame()["product"].notna().all()) == gated
        if probe is Discard:
            assert ("gate" in finding.reading) == gated


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (lambda: lengths(40, 40, 40), Why.NO_INTERVAL),
        (lambda: lengths(*[1] * 70), Why.TOO_LITTLE_TEXT),
        (lambda: lengths(9, 8), Why.TOO_LITTLE_TEXT),
    ],
    ids=["three documents", "one token each", "seventeen tokens"],
)
def test_too_little_text_decides_nothing(probe, text, why):
    finding = judged(probe(), read(tiny("llama")), text())
    assert finding.verdict == "undecided" and no_nan(finding)
    assert finding.why is why


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_half_precision_is_measured_too(probe, name):
    a = read(tiny(name).to(torch.float16))
    finding = judged(probe(), a, lengths(*[14] * 9))
    assert finding.verdict in VERDICTS and no_nan(finding)
    assert np.isfinite(finding.statistic.value)


@pytest.mark.parametrize("probe", PROBES)
def test_one_block_with_a_silent_layer_is_survived(probe):
    """All units at zero: nothing varies, nothing is coded, and no number is invented."""
    a = forward(frame(), torch.zeros(64, 30), torch.full((30,), -1.0), None, "relu", layers=1)
    finding = judged(probe(), a, chained(12, 20))
    assert finding.verdict in VERDICTS and no_nan(finding)


@pytest.mark.parametrize("probe", PROBES)
def test_passes_are_promised_and_kept(probe):
    """At most as many as are announced, the chapter's shared ones included."""
    a, text = read(tiny("gpt2")), lengths(*[12] * 12)
    stand, read_tokens = Bench(a, text, Twins(a, 0)), []
    stand.tick = read_tokens.append
    probe().experiment(stand)
    assert 0 < sum(read_tokens) <= probe().passes(a) * stand.text.tokens
