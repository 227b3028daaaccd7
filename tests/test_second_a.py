"""Units as a store, simple updates, and what W_QK's vectors mean: planted truths come back, mistakes are caught."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import case_of, finding_of, name_of, weights, whole
from tiny import MAKERS, tiny

from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.read import read
from armillary.flow.controls import random_twin
from armillary.flow.tokens import Corpus
from armillary.geometry.coding import ENTRY_BITS, code_lengths, encode, quantise
from armillary.probes.attention.lexicon.themes.paired_sides import paired_sides
from armillary.probes.attention.qk_subjects import QuerySubjects
from armillary.probes.attention.spaces.decomposed_heads import decomposed
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.filter.write import ForwardWrite
from armillary.probes.filter.writes.layer_writes import ATTENTION, INPUT, WRITE, layer_writes
from armillary.probes.filter.writes.write_bits import principal_bits
from armillary.probes.filter.writes.write_parts import Saved, WriteSavings, write_parts
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, over_twins
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Why
from armillary.results.store import finding_json
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.heads import word_heads as heads
from armillary.specimens.models.heads.word_sides import classed
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted import CASES
from armillary.specimens.planted.case import draw

SIMPLER, LEARNED = "the write is simpler than its input", "training makes it so"
DISCARDING, FEWER = "discarding makes it simpler", "it takes fewer directions"
PARTS = {
    "forward store, one unit a word": ("supported", "supported"),
    "forward store, random units": ("supported", "refuted"),
    "forward store, an axis that all words share": ("supported", "refuted"),
    "forward store, gated, one unit a word": ("supported", "supported"),
    "forward store, gated, random units": ("supported", "refuted"),
    "forward store, a gain misread": ("refuted", "refuted"),
}
QUERY, KEY, BOTH = (
    "query side: tokens along a vector share a subject",
    "key side: tokens along a vector share a subject",
    "both sides are related",
)
SIDES = {
    "query subjects, topics on both sides": {QUERY: "supported", KEY: "supported"},
    "query subjects, topics of queries alone": {QUERY: "supported", KEY: "refuted"},
    "query subjects, topics of keys alone": {QUERY: "refuted", KEY: "supported"},
    "query subjects, random heads": {QUERY: "refuted", KEY: "refuted", BOTH: "refuted"},
}
WRITES = {
    "write, few directions": {SIMPLER: "supported", LEARNED: "supported", DISCARDING: "refuted", FEWER: "supported"},
    "write, few units above zero": {SIMPLER: "supported", LEARNED: "supported", DISCARDING: "supported"},
    "write, a copy of the input": {SIMPLER: "refuted", LEARNED: "refuted", FEWER: "refuted"},
    "write, simple before training": {SIMPLER: "supported", LEARNED: "refuted", FEWER: "supported"},
    "write, one layer of two": {SIMPLER: "qualified", LEARNED: "qualified", FEWER: "qualified"},
}


MINE = [name_of(case) for case in CASES if case.planted.claim in ("ffn.store", "ffn.write", "qk.subjects")]


@pytest.mark.parametrize("case", MINE)
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    assert finding.verdict == case_of(case).planted.verdict, f"{finding.statistic}: {finding.reading}"
    if case in PARTS:
        assert tuple(part.verdict for part in finding.parts) == PARTS[case], finding.reading


@pytest.mark.parametrize("case", MINE)
def test_findings_are_complete(case):
    whole(finding_of(case))


@pytest.mark.parametrize("name", list(MAKERS))
def test_every_family_is_a_store_by_definition(name):
    anatomy = read(tiny(name))
    finding = ForwardStore().conclude(gather(anatomy, corpus(9, 30, vocabulary=97), (SAMPLES,)))
    assert finding.parts[0].verdict == "supported", finding.reading
    exchanged = finding.controls[0]
    assert exchanged.value > 0.1 > 1e4 * finding.statistic.value
    beside = finding.to_frame().head_keys
    # No norm stands before the first layer of this model, so no direction was sampled there.
    assert beside.isna().tolist() == [name == "opt-post", False, False]
    assert finding_json(finding) and finding.plot() is not None


def test_an_axis_that_all_tokens_share_is_no_key():
    """Rotated keys lose it and would call it a match; rotated tokens keep it."""
    layer = finding_of("forward store, an axis that all words share").to_frame().iloc[0]
    assert layer.keys_turned > 1.25 * layer.keys_met
    assert layer.keys_shaped < 1.1 * layer.keys_met and not layer.stores


def test_units_are_named_by_tokens_of_the_text():
    anatomy = heads.gpt2(heads.gaussian(), heads.randoms())
    finding = ForwardStore().conclude(gather(anatomy, corpus(12, 8, vocabulary=60), (SAMPLES,)))
    units = finding.more_tables["units L0"].to_frame()
    assert set(units["key 1"]) <= set(heads.words()[:60])
    assert units.share.is_monotonic_decreasing and 0 < units.share.sum() <= 1


@pytest.mark.parametrize("case", list(WRITES))
def test_what_a_write_saves_is_told_in_parts(case):
    parts = {part.name: part for part in finding_of(case).parts}
    assert {name: parts[name].verdict for name in WRITES[case]} == WRITES[case], finding_of(case).reading
    assert [part.asserted for part in parts.values()] == [True, True, False, False, False]


def test_a_write_in_two_directions_takes_their_bits_alone():
    """Two of 64 directions have a spread of 4·√32 steps each and take their entropy; the others take nothing."""
    finding = finding_of("write, few directions")
    layer, spread = finding.to_frame().iloc[0], 4 * math.sqrt(32)
    assert layer.rank_write < 2.1 and layer.rank_input > 40
    entropy = 2 / 64 * math.log2(spread * math.sqrt(2 * math.pi * math.e))
    # A table has an entry for each symbol that occurs: at most those within four standard deviations.
    tables = 2 * 8 * spread * ENTRY_BITS / (64 * finding.n)
    assert 0.95 * entropy < layer.write < entropy + tables
    # A Gaussian coordinate at that step.
    assert layer.input == pytest.approx(math.log2(4 * math.sqrt(2 * math.pi * math.e)), rel=0.05)


def test_bits_do_not_depend_on_axes_or_scale():
    rows = torch.randn(600, 32, generator=generator(1), dtype=torch.float64) * torch.logspace(0, -2, 32)
    even = np.arange(600) % 2 == 0
    plain = principal_bits(rows, even).mean()
    turned = torch.linalg.qr(torch.randn(32, 32, generator=generator(2), dtype=torch.float64))[0]
    assert principal_bits(rows @ turned * 1000, even).mean() == pytest.approx(plain, rel=1e-3)
    # In their own axes, mixed at random, the same rows take more.
    symbols = quantise((rows @ turned).numpy(), 0.25 * float(rows.square().mean().sqrt()))
    assert code_lengths(symbols)[0].sum(1).mean() > 1.3 * plain


def test_code_lengths_are_those_of_the_bitstream():
    symbols = quantise(np.random.default_rng(0).normal(size=(4, 5000)), 0.25)
    bits, table = code_lengths(symbols)
    coded = encode(list(symbols))
    assert table == sum(code.bits for code in coded.codes)
    np.testing.assert_allclose(bits.sum(1), coded.bits - 32, atol=40)


def test_a_feed_forward_that_writes_nothing_decides_nothing():
    finding = ForwardWrite().conclude(gather(bag(gaussian()), corpus(), (SAMPLES,)))
    assert (finding.verdict, finding.why) == ("undecided", Why.UNDEFINED)


def test_without_untrained_models_a_write_is_not_called_learned():
    gathered = gather(*draw(case_of("write, few directions")), (SAMPLES,))
    finding = ForwardWrite().conclude(replace(gathered, untrained=()))
    assert (finding.verdict, finding.why) == ("undecided", Why.NO_CONTROL)


def states_of(bench: Bench, text: Corpus, sites: list[str]) -> dict[str, torch.Tensor]:
    """site → [document, position, d]; all documents are equally long."""
    parts = [(batch.documents, bench.states(batch, sites)) for batch in bench.batches(text.windows)]
    order = torch.cat([documents for documents, _ in parts]).argsort()
    return {site: torch.cat([states[site] for _, states in parts])[order].float() for site in sites}


@pytest.mark.parametrize("name", list(MAKERS))
def test_streams_are_what_the_running_model_reads_and_writes(name):
    anatomy, text = read(tiny(name)), corpus(6, 20, vocabulary=97)
    gathered = gather(anatomy, text, (SAMPLES,))
    streams, document = layer_writes(gathered, MODEL, range(anatomy.layers))
    where = gathered[SAMPLES][MODEL].rows[gathered.sites[0]].sample().payload.numpy()
    assert len(document) == len(where), "no token of this text is massive"
    bench = Bench(anatomy, text)
    for layer, nearness in enumerate(streams):
        sites = {INPUT: mlp_norm(anatomy, layer)[0], WRITE: f"L{layer}.mlp_out", ATTENTION: f"L{layer}.attn_out"}
        rows = states_of(bench, text, list(sites.values()))
        for stream, site in sites.items():
            if stream not in nearness:
                assert (name, layer, stream) == ("opt-post", 0, ATTENTION)
                continue
            expected = rows[site][where[:, 0], where[:, 1]]
            assert torch.allclose(nearness[stream], expected, atol=2e-4 * float(expected.abs().max())), (layer, stream)


@pytest.mark.parametrize("case", list(SIDES))
def test_both_sides_of_w_qk_are_told_apart(case):
    parts = {part.name: part for part in finding_of(case).parts}
    assert {name: parts[name].verdict for name in SIDES[case]} == SIDES[case], finding_of(case).reading
    assert [part.asserted for part in parts.values()] == [True, True, False]


RELATED = {
    "the same class on both sides": (lambda: classed(tuple(range(8))), "part of speech", "supported"),
    "other classes on the key side": (lambda: classed((1, 2, 3, 4, 5, 6, 7, 0)), "part of speech", "refuted"),
    "any direction on the key side": (lambda: classed(None), "part of speech", "refuted"),
    "related nouns": (lambda: heads.gpt2(heads.coded(False), heads.matching()), "related nouns", "supported"),
    "related nouns in a grouped, rotated model": (
        lambda: heads.llama(heads.coded(False), heads.matching()),
        "related nouns",
        "supported",
    ),
    "related nouns behind random heads": (
        lambda: heads.gpt2(heads.coded(False), heads.randoms()),
        "related nouns",
        "refuted",
    ),
}


@pytest.mark.parametrize("case", list(RELATED))
def test_related_sides_are_found_by_their_relation(case):
    make, relation, verdict = RELATED[case]
    finding = QuerySubjects().conclude(weights(make()))
    assert finding.parts[2].verdict == verdict, finding.reading
    frame, column = finding.to_frame(), relation.replace(" ", "_")
    assert (frame[column].mean() > 0.1) == (verdict == "supported")
    assert not finding.parts[2].asserted


def test_re_paired_directions_are_as_related_as_any():
    """p-values of heads whose sides have nothing to do with each other are uniform: few are small."""
    gathered = weights(heads.gpt2(heads.clustered(), heads.randoms()))
    p = paired_sides(gathered, MODEL, range(heads.LAYERS)).p(0)
    assert p.shape == (heads.LAYERS, heads.HEADS, 3)
    # 36 values, of which a tenth is expected below 0.1; eleven or more would come once in a thousand times.
    assert (p < 0.1).sum() <= 10


def test_the_sign_of_a_pair_of_vectors_does_not_matter():
    """Both vectors of a pair may be turned round: their ends change places together."""
    gathered = weights(classed(tuple(range(8))))
    plain = paired_sides(gathered, MODEL, range(1))
    svd = decomposed(gathered)[0].qk
    signs = torch.tensor([1.0, -1.0]).repeat(svd.values.shape[-1] // 2).to(svd.left)
    svd.left.mul_(signs)
    svd.right.mul_(signs)
    turned = paired_sides(gathered, MODEL, range(1))
    assert not np.array_equal(plain.tokens, turned.tokens)
    np.testing.assert_allclose(plain.observed, turned.observed, atol=1e-6)
    np.testing.assert_allclose(plain.head_excess, turned.head_excess, atol=1e-6)


@pytest.mark.parametrize("shape", [heads.gpt2, heads.llama])
def test_untrained_heads_have_no_subject(shape):
    anatomy = shape(heads.gaussian(), heads.randoms())
    finding = QuerySubjects().conclude(weights(replace(random_twin(anatomy, 5), tokenizer=anatomy.tokenizer)))
    assert {part.verdict for part in finding.parts} == {"refuted"}, finding.reading


def test_words_need_a_tokenizer_and_training_a_control():
    anatomy, _ = draw(case_of("query subjects, topics on both sides"))
    assert QuerySubjects().conclude(Evidence(anatomy)).why is Why.NO_CONTROL
    assert QuerySubjects().conclude(Evidence(replace(anatomy, tokenizer=None))).why is Why.UNDEFINED


@pytest.mark.parametrize(
    ("twins", "verdict"), [((0.28, 0.32), "undecided"), ((0.28, 0.29, 0.3, 0.31, 0.32), "supported")]
)
def test_two_untrained_models_are_too_few_to_refute_a_write(twins, verdict):
    """The share saved lies 0.2 above the mean twin. Two twins leave open what a third would show; five do not."""

    def saved(value, low, high):
        return Saved(np.array([[value, low, high]] * 2), (value, low, high))

    share = saved(0.5, 0.495, 0.505)
    control = over_twins([(value, value, value) for value in twins]).tolist()
    bits = dict.fromkeys((INPUT, ATTENTION, "kept", "through"), share)
    savings = WriteSavings((0, 1), bits, share, share, saved(*control), len(twins))
    assert {part.name: part.verdict for part in write_parts(savings)}[LEARNED] == verdict
