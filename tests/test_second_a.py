"""Units as a store, simple updates, and what W_QK's vectors mean: planted truths come back, mistakes are caught."""

import math
from dataclasses import replace

import numpy as np
import planted_heads as heads
import pytest
import torch
from planted import bag, corpus, gaussian, generator
from planted_grid import whole
from planted_second_a import CASES, finding_of
from tiny import MAKERS, tiny

from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.geometry.coding import ENTRY_BITS, code_lengths, encode, quantise
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.filter.layer_writes import ATTENTION, INPUT, WRITE, layer_writes
from armillary.probes.filter.write import ForwardWrite
from armillary.probes.filter.write_bits import principal_bits
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Why
from armillary.results.store import finding_json

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
WRITES = {
    "write, few directions": {SIMPLER: "supported", LEARNED: "supported", DISCARDING: "refuted", FEWER: "supported"},
    "write, few units above zero": {SIMPLER: "supported", LEARNED: "supported", DISCARDING: "supported"},
    "write, a copy of the input": {SIMPLER: "refuted", LEARNED: "refuted", FEWER: "refuted"},
    "write, simple before training": {SIMPLER: "supported", LEARNED: "refuted", FEWER: "supported"},
    "write, one layer of two": {SIMPLER: "qualified", LEARNED: "qualified", FEWER: "qualified"},
}


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    assert finding.verdict == CASES[case][1], f"{finding.statistic}: {finding.reading}"
    if case in PARTS:
        assert tuple(part.verdict for part in finding.parts) == PARTS[case], finding.reading


@pytest.mark.parametrize("case", list(CASES))
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
    assert table == coded.table_bits
    np.testing.assert_allclose(bits.sum(1), coded.bits - 32, atol=40)


def test_a_feed_forward_that_writes_nothing_decides_nothing():
    finding = ForwardWrite().conclude(gather(bag(gaussian()), corpus(), (SAMPLES,)))
    assert (finding.verdict, finding.why) == ("undecided", Why.UNDEFINED)


def test_without_untrained_models_a_write_is_not_called_learned():
    _, _, make = CASES["write, few directions"]
    gathered = gather(*make(), (SAMPLES,))
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
    for layer, told in enumerate(streams):
        sites = {INPUT: mlp_norm(anatomy, layer)[0], WRITE: f"L{layer}.mlp_out", ATTENTION: f"L{layer}.attn_out"}
        rows = states_of(bench, text, list(sites.values()))
        for stream, site in sites.items():
            if stream not in told:
                assert (name, layer, stream) == ("opt-post", 0, ATTENTION)
                continue
            expected = rows[site][where[:, 0], where[:, 1]]
            assert torch.allclose(told[stream], expected, atol=2e-4 * float(expected.abs().max())), (layer, stream)
