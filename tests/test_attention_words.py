"""Claims that read heads in words: planted truths and their opposites come back, and wrong measurements are caught."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import case_of, conclude, first_reading, name_of, weights

from armillary import load
from armillary.anatomy.read import read
from armillary.flow.controls import random_twin
from armillary.geometry import readout
from armillary.probes.attention import related as related_module
from armillary.probes.attention.key_value_store import Store
from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.related_nouns import related, related_pairs
from armillary.probes.attention.lexicon.themes.loudness import Loudness
from armillary.probes.attention.lexicon.themes.subject_parts import Compared, reach, share_verdict
from armillary.probes.attention.lexicon.themes.written_words import letter_ids, trained_ids
from armillary.probes.attention.lookup import KeyLookup
from armillary.probes.attention.related import Related
from armillary.probes.attention.subjects import Subjects, rise_verdict
from armillary.probes.machinery import discoveries
from armillary.probes.machinery.evidence import RANDOM, Evidence
from armillary.probes.machinery.tables import head_names
from armillary.results import Why
from armillary.specimens.models.heads import word_heads as heads
from armillary.specimens.models.heads.scoring_heads import misread
from armillary.specimens.planted.case import evidence_of
from armillary.specimens.planted.word_head_cases import CASES, FIRST, LAST, LOUD

PROBES = (Related, KeyLookup, Store, Subjects)
PARTS = {
    "lookup, early copies": ("supported", "supported", "refuted"),
    "lookup, random heads": ("refuted", "refuted", "supported"),
    "lookup, deep copies": ("refuted", "refuted", "supported"),
    "lookup, copies everywhere": ("supported", "refuted", "refuted"),
    "lookup, half early and all deep": ("supported", "refuted", "refuted"),
    "store, any model": ("supported", "refuted"),
    "store, a gain misread": ("refuted", "refuted"),
    "subjects, deep topics": ("supported", "supported"),
    "subjects, topics everywhere": ("supported", "qualified"),
    "subjects, early topics": ("refuted", "refuted"),
}
FEW_KEYS = {
    "one key a word": ("supported", heads.one_axis_each, heads.storing),
    "one key for all words": ("refuted", heads.one_axis_for_all, heads.shared_key),
}


@pytest.mark.parametrize("case", first_reading(CASES), ids=name_of)
def test_planted_truth_comes_back(case):
    finding = conclude(case)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"
    if name_of(case) in PARTS:
        assert tuple(part.verdict for part in finding.parts) == PARTS[name_of(case)], finding.reading


@pytest.mark.parametrize("case", list(FEW_KEYS))
def test_that_words_match_few_keys_is_a_part_that_decides_nothing(case):
    verdict, embedding, plant = FEW_KEYS[case]
    finding = Store().conclude(weights(heads.gpt2(embedding(), plant())))
    by_definition, few = finding.parts
    assert (by_definition.verdict, few.verdict) == ("supported", verdict), finding.reading
    assert by_definition.asserted and not few.asserted
    assert finding.verdict == "supported"


def crowds(noise: float, words: int) -> torch.Tensor:
    """Gaussian words; the first ones after [UNK] lie around eight points: tight crowds, or topics if there is noise."""
    rows = heads.gaussian()
    rows[1 : words + 1] = 6 * heads.frame(9)[torch.arange(words) % 8] + noise * rows[1 : words + 1]
    return rows


def writing_crowds(layer: int, head: int) -> heads.PlantedHead:
    """The last layer's heads write the eight points."""
    other = heads.random_head(10 * layer + head + 1)
    strength = torch.cat([torch.linspace(2, 1, 8), torch.full((8,), 0.01)])
    left = heads.frame(8000 + head)[:, : heads.K]
    return replace(other, W_V=left * strength, W_O=heads.frame(9)[: heads.K]) if layer in LAST else other


@pytest.mark.parametrize(("noise", "left_out", "verdict"), [(0.1, 168, "refuted"), (0.5, 0, "supported")])
def test_crowds_of_hardly_trained_tokens_are_no_subject(noise, left_out, verdict):
    """The same model has subjects where the words around a point are as far apart as words of a topic are."""
    finding = Subjects().conclude(weights(heads.gpt2(crowds(noise, 168), writing_crowds)))
    assert finding.verdict == verdict, finding.reading
    assert any(f"hardly trained: {left_out} of " in note for note in finding.notes), finding.notes


def test_a_model_of_crowds_alone_is_undecided():
    finding = Subjects().conclude(weights(heads.gpt2(crowds(0.1, len(heads.words()) - 1), writing_crowds)))
    assert finding.why is Why.UNDEFINED and "only 0 are apart" in finding.reading


def test_hardly_trained_tokens_of_the_built_in_model_are_left_out():
    evidence = weights(load("builtin:gpt"))
    left = np.setdiff1d(letter_ids(evidence), trained_ids(evidence))
    texts = {vocabulary(evidence).texts[i] for i in left}
    # Parts of words that merging built and then used up.
    assert {" toget", "verty", "mosp"} <= texts and len(texts) == 11


LEARNED, ABSENT, NONE = (0.1, 0.08, 0.12), (0.0, -0.01, 0.01), (0.0, -0.02, 0.02)
NEVER = (math.nan,) * 3


@pytest.mark.parametrize(
    ("mean", "untrained", "share", "verdict"),
    [
        (LEARNED, ABSENT, (0.75, 0.5, 0.9), "supported"),
        # A count at the limit: half of the heads, and an interval across.
        (LEARNED, ABSENT, (0.5, 0.4, 0.6), "undecided"),
        (LEARNED, ABSENT, (0.3, 0.2, 0.4), "qualified"),
        (LEARNED, ABSENT, (0.2, 0.05, 0.3), "undecided"),
        (LEARNED, ABSENT, (0.05, 0.0, 0.1), "refuted"),
        (NONE, ABSENT, (0.75, 0.5, 0.9), "undecided"),
        ((-0.1, -0.2, 0.0), ABSENT, (0.75, 0.5, 0.9), "refuted"),
        (LEARNED, NEVER, (0.75, 0.5, 0.9), "undecided"),
    ],
)
def test_every_limit_of_the_share_of_heads_with_a_subject(mean, untrained, share, verdict):
    assert share_verdict(Compared(mean, untrained, 5), share)[0] == verdict


@pytest.mark.parametrize(
    ("slope", "untrained", "early", "verdict"),
    [
        (LEARNED, ABSENT, NONE, "supported"),
        ((-0.1, -0.2, -0.01), ABSENT, NONE, "refuted"),
        (NONE, ABSENT, (0.05, 0.0, 0.1), "refuted"),
        (NONE, ABSENT, (0.2, 0.05, 0.3), "undecided"),
        (NONE, ABSENT, (0.3, 0.2, 0.4), "qualified"),
        ((0.1, -0.2, 0.3), ABSENT, (0.3, 0.2, 0.4), "undecided"),
        (LEARNED, NEVER, NONE, "undecided"),
    ],
)
def test_every_limit_of_the_rise_with_depth(slope, untrained, early, verdict):
    assert rise_verdict(Compared(slope, untrained, 5), early)[0] == verdict


def test_the_share_of_heads_counts_what_is_significant_and_large():
    excess, beyond_chance = np.array([[0.2, 0.2], [0.01, 0.2]]), np.array([[True, False], [True, True]])
    assert reach(excess, beyond_chance, 0.05) == 0.5
    by_relation = np.stack([excess, 0 * excess], -1), np.stack([beyond_chance, beyond_chance], -1)
    assert reach(*by_relation, 0.05) == 0.5


@pytest.mark.parametrize("probe", [Related, KeyLookup, Subjects])
def test_without_untrained_models_nothing_learned_is_supported(probe):
    claim = (probe.claim.id, "supported")
    case = next(case for case in CASES if (case.planted.claim, case.planted.verdict) == claim)
    finding = probe().conclude(Evidence(evidence_of(case).anatomy))
    assert finding.verdict == "undecided"
    assert finding.why is Why.NO_CONTROL


@pytest.mark.parametrize("shape", [heads.gpt2, heads.llama])
@pytest.mark.parametrize("probe", PROBES)
def test_untrained_models_are_not_supported(probe, shape):
    """Seeds of their own: none of them makes a twin."""
    anatomy = shape(heads.gaussian(), heads.randoms())
    finding = probe().conclude(weights(replace(random_twin(anatomy, 5), tokenizer=anatomy.tokenizer)))
    expected = "supported" if probe is Store else "refuted"
    assert finding.verdict == expected, finding.reading


@pytest.fixture(scope="module")
def ordinary() -> Evidence:
    return weights(heads.gpt2(heads.gaussian(), heads.copying(FIRST)))


@pytest.mark.parametrize("probe", PROBES)
def test_findings_are_complete(ordinary, probe):
    finding = probe().conclude(ordinary)
    claim = finding.claim
    assert all((claim.statement, claim.source, claim.question, claim.definition, claim.control, claim.rule))
    assert finding.quantities and finding.more_tables and finding.notes
    assert RANDOM in [control.name for control in finding.controls]
    assert finding.n > 0
    assert finding.statistic.low <= finding.statistic.value <= finding.statistic.high
    assert finding.table.columns[0].name == "head"
    assert [row[0] for row in finding.table.rows] == head_names(ordinary.anatomy.layers, ordinary.anatomy.n_heads)
    assert any(quantity.axes == ("layer", "head") for quantity in finding.quantities)
    for table in (finding.table, *finding.more_tables.values()):
        assert table.rows
        assert all(column.meaning for column in table.columns)
        cells = [cell for row in table.rows for cell in row]
        assert not any(isinstance(cell, float) and not math.isfinite(cell) for cell in cells)
        assert all(cell is not None for cell in cells)


@pytest.mark.parametrize("probe", PROBES)
def test_the_same_seed_gives_the_same_numbers(probe):
    anatomy = heads.gpt2(heads.gaussian(), heads.copying(FIRST), layers=2)
    first, second = (probe().conclude(weights(anatomy)) for _ in range(2))
    assert first.statistic == second.statistic
    assert first.table == second.table


# Random heads stay where they belong.

FLAGS = {Related: "separates", KeyLookup: "clear", Store: "stores", Subjects: "subject"}


@pytest.mark.parametrize("probe", PROBES)
def test_random_heads_are_no_discoveries(probe):
    """Before the size is asked for: discoveries by p-value alone are rare, and small p-values as rare as they claim."""
    p, flagged = [], []
    for seed in range(4):
        embedding = heads.clustered(seed=seed) if probe is Subjects else heads.gaussian(seed)
        frame = probe().conclude(Evidence(heads.gpt2(embedding, heads.randoms(seed + 1)))).to_frame()
        p.append(frame.p_value.to_numpy())
        flagged.append(frame[FLAGS[probe]].to_numpy())
    assert np.mean([discoveries(each).mean() for each in p]) <= 0.05
    assert np.concatenate(flagged).mean() <= 0.05
    # 48 heads: a share of 0.1 has a standard deviation of 0.043, and heads of one model are not independent.
    assert (np.concatenate(p) <= 0.1).mean() <= 0.25


# Mutations: a measurement that is wrong in one way must be noticed.


@pytest.mark.parametrize(
    ("probe", "embedding", "plant"),
    [
        (Related, lambda: heads.coded(False), heads.matching()),
        (KeyLookup, lambda: heads.coded(False), heads.matching(FIRST)),
        (Store, heads.one_axis_each, heads.storing()),
    ],
)
def test_forgetting_the_gain_loses_the_heads(probe, embedding, plant):
    anatomy = heads.gpt2(embedding(), plant)
    right = probe().conclude(weights(anatomy))
    wrong = probe().conclude(weights(misread(anatomy)))
    assert right.verdict == "supported"
    assert wrong.verdict == "refuted"


def test_permuted_pairs_are_not_separated(monkeypatch):
    draw = np.random.default_rng(0)
    seconds = draw.permutation([pair.second for pair in related_pairs()])
    permuted = tuple(pair._replace(second=str(word)) for pair, word in zip(related_pairs(), seconds, strict=True))
    monkeypatch.setattr(related_module, "related_pairs", lambda: permuted)
    finding = Related().conclude(weights(heads.gpt2(heads.coded(False), heads.matching())))
    assert finding.verdict == "refuted"
    assert finding.statistic.low < 0.55


def test_a_frequent_word_does_not_pass_for_a_related_one():
    """A word that every query likes is as frequent among the unrelated pairs."""
    embedding = heads.gaussian()
    often = [i for i, word in enumerate(heads.words()) if len(related().get(word, ())) > 3]
    embedding[often] += 3 * heads.frame(2)[0]

    def plant(layer, head):
        side = torch.cat([heads.frame(2)[0][:, None], 0.2 * heads.normal(heads.D, heads.K - 1, stream=head)], 1)
        return replace(heads.random_head(head + 1), W_Q=side, W_K=side)

    gathered = weights(heads.gpt2(embedding, plant))
    finding = Related().conclude(gathered)
    assert finding.verdict == "refuted"
    assert abs(finding.statistic.value - 0.5) < 0.03


def test_rotating_the_keys_alone_would_call_a_shared_axis_a_key():
    finding = Store().conclude(weights(heads.gpt2(heads.one_axis_for_all(), heads.shared_key())))
    by_rotated_keys = (finding.to_frame().keys_turned / finding.to_frame().keys_met).median()
    assert by_rotated_keys > 1.5
    assert finding.parts[1].statistic.value == pytest.approx(1, abs=0.05)
    assert finding.parts[1].verdict == "refuted"


def test_tokens_of_similar_frequency_alone_would_give_every_direction_a_subject():
    finding = Subjects().conclude(weights(heads.gpt2(heads.clustered(), heads.randoms())))
    frame = finding.to_frame()
    assert (frame.coherence - frame.chance_frequency).min() > 0.05
    assert frame.excess.abs().mean() < 0.05
    assert finding.verdict == "refuted"


def test_random_directions_of_the_whole_stream_would_give_loud_axes_a_subject(monkeypatch):
    case = case_of("subjects, loud axes without meaning")
    assert not conclude(case).to_frame().subject[-heads.HEADS :].any()
    monkeypatch.setattr(Loudness, "like", lambda self, directions, weights, normal: normal)
    wrong = conclude(case)
    assert wrong.verdict == "supported"
    assert wrong.to_frame().subject[-heads.HEADS :].all()


def test_a_written_topic_is_read_at_its_own_end_whatever_the_left_vector(monkeypatch):
    case = case_of("subjects, deep topics behind random left vectors")
    right = conclude(case).more_tables["subjects L2"].to_frame()
    assert right.coherence.min() > 0.3
    monkeypatch.setattr(readout, "farther_end", readout.top_tokens)
    wrong = conclude(case).more_tables["subjects L2"].to_frame()
    assert (wrong.coherence < 0.15).mean() > 0.2


def test_random_directions_keep_the_energy_of_a_head_in_every_band():
    loudness = Loudness.of(heads.loud(LOUD, 3.0))
    head = heads.frame(9)[None, :LOUD]
    weights, normal = torch.full((1, LOUD), 1 / LOUD), heads.normal(1, 400, heads.D, stream=3)
    random = loudness.like(head, weights, normal)[0]
    inside = (random @ heads.frame(9)[:LOUD].T).square().sum() / random.square().sum()
    # The axes of a sample of words mix a little with their neighbours.
    assert inside > 0.95
    assert random.square().sum(1).mean() == pytest.approx(1, rel=0.1)


def test_topics_are_named_by_their_own_tokens():
    anatomy = heads.gpt2(heads.clustered(), heads.on_topic(LAST))
    finding = Subjects().conclude(weights(anatomy))
    table = finding.more_tables["subjects L2"].to_frame().set_index(["head", "direction"])
    row = finding.to_frame().set_index("head").loc["L2H0"]
    tokens = [table.loc[("L2H0", 1), f"token {i}"] for i in range(1, 11)]
    assert row["topic token"] in tokens
    assert row["next topic token"] in tokens
    chosen = torch.randperm(40, generator=heads.generator(20))[0]
    of = torch.randint(0, 40, (len(heads.words()),), generator=heads.generator(1))
    assert {int(of[heads.words().index(token)]) for token in tokens} == {int(chosen)}


def tied_heads() -> heads.Plant:
    """Odd heads write all directions with the same strength, even ones each with another."""

    def plant(layer: int, head: int) -> heads.PlantedHead:
        store = heads.storing()(layer, head)
        return replace(store, W_V=store.W_V.sign()) if head % 2 else store

    return plant


def test_directions_that_nearly_tie_are_marked_and_counted():
    gathered = weights(heads.gpt2(heads.clustered(), tied_heads()))
    store, subjects = Store().conclude(gathered), Subjects().conclude(gathered)
    for table in (store.more_tables["directions L0"].to_frame(), subjects.more_tables["subjects L0"].to_frame()):
        alone = table["head"].isin(["L0H0", "L0H2"])
        assert set(table.tie[alone]) == {""}
        # The norm's centring takes some strength from one of the sixteen equal ones.
        assert set(table.tie[~alone]) == {"1–15"}
    assert store.to_frame().tie.tolist() == ["", "1–15"] * 6
    assert subjects.to_frame().tied.tolist() == [0, 8] * 6
    assert any(note.startswith("90 of 192 directions") and "6 of 12 heads" in note for note in store.notes)
    assert any(note.startswith("48 of 96 directions") and "6 of 12 heads" in note for note in subjects.notes)


def test_a_store_is_read_and_written_where_it_was_planted():
    embedding = heads.one_axis_each()
    finding = Store().conclude(weights(heads.gpt2(embedding, heads.storing())))
    axis = torch.randint(0, heads.D, (len(embedding),), generator=heads.generator(1))
    table = finding.more_tables["directions L0"].to_frame()
    reads = table[(table["head"] == "L0H1") & (table["direction"] == 1) & (table["side"] == "reads")].iloc[0]
    tokens = [heads.words().index(reads[f"token {i}"]) for i in range(1, 6)]
    assert {int(axis[token]) for token in tokens} == {heads.K}
    assert finding.to_frame()["keys_met"].max() < 6


def test_updates_are_what_the_model_adds():
    """Length and promoted token of a noun's update, from the live module's own projections."""
    anatomy = heads.gpt2(heads.gaussian(), heads.randoms())
    table = Store().conclude(weights(anatomy)).more_tables["updates L1"].to_frame()
    block, noun = anatomy.model.transformer.h[1], heads.words().index("year")
    with torch.no_grad():
        embedded = anatomy.model.transformer.wte.weight[noun]
        value = block.attn.c_attn(block.ln_1(embedded[None]))[0, 2 * heads.D :]
        whole_layer = block.attn.c_proj(value[None])[0]
        one_head = value[: heads.K] @ block.attn.c_proj.weight[: heads.K]
    rows = table[table.noun == "year"].set_index("head")
    assert rows.loc["all heads", "length"] == pytest.approx(float(whole_layer.norm()), rel=1e-4)
    assert rows.loc["L1H0", "length"] == pytest.approx(float(one_head.norm()), rel=1e-4)
    logits = anatomy.model.lm_head(anatomy.model.transformer.ln_f(embedded + whole_layer))
    logits[0] = -math.inf
    assert rows.loc["all heads", "outcome token"] == heads.words()[int(logits.argmax())]


def test_the_query_bias_is_in_a_column_of_its_own():
    """A bias that favours one key for every query spoils the biased column and leaves the other alone."""
    anatomy = heads.gpt2(heads.gaussian(), heads.copying(FIRST))
    clean = KeyLookup().conclude(weights(anatomy)).to_frame()
    with torch.no_grad():
        anatomy.model.transformer.h[0].attn.c_attn.bias[: heads.D] += 100 * heads.normal(heads.D, stream=8)
    spoilt = KeyLookup().conclude(weights(read_again(anatomy))).to_frame()
    assert spoilt.clarity[0] == clean.clarity[0] > 0.8
    assert spoilt.clarity_biased[0] < 0.1


def read_again(anatomy):
    return replace(read(anatomy.model), tokenizer=anatomy.tokenizer)


def test_top_keys_are_those_of_the_running_model():
    anatomy = heads.gpt2(heads.gaussian(), heads.randoms())
    table = KeyLookup().conclude(weights(anatomy)).more_tables["top keys L1"].to_frame()
    block = anatomy.model.transformer.h[1]
    with torch.no_grad():
        both = block.attn.c_attn(block.ln_1(anatomy.model.transformer.wte.weight)).double()
        # Without biases: the projection of what the norm's gain alone gives, as a difference from that of nothing.
        nothing = block.attn.c_attn(block.ln_1(torch.zeros(1, heads.D))).double()
        query, key = (both - nothing)[:, : heads.K], (both - nothing)[:, heads.D : heads.D + heads.K]
        scores = query[heads.words().index("year")] @ key.T
    scores[0] = -math.inf
    row = table[(table.noun == "year") & (table["head"] == "L1H0")].iloc[0]
    assert [row[f"key {i}"] for i in range(1, 6)] == [heads.words()[int(i)] for i in scores.topk(5).indices]


def test_heads_that_write_nothing_are_survived():
    def silent(layer, head):
        random = heads.random_head(head + 1)
        return replace(random, W_O=torch.zeros_like(random.W_O), W_Q=torch.zeros_like(random.W_Q))

    gathered = weights(heads.gpt2(heads.gaussian(), silent, layers=2))
    for probe in PROBES:
        finding = probe().conclude(gathered)
        assert finding.verdict == ("supported" if probe is Store else "refuted"), finding.reading
        assert math.isfinite(finding.statistic.value)
