"""Contextual states, heads that resolve language, heads with regions: what is planted comes back, lists hold what they
say, poor input decides nothing."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import bench_of, case_of, conclude, finding_of, name_of, whole
from scipy.stats import rankdata
from tiny import tiny

from armillary import survey
from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.capture import run, still, watching_patterns
from armillary.flow.controls import random_twin
from armillary.flow.tokens import Corpus
from armillary.probes.grid.head_language import HeadLanguage
from armillary.probes.grid.head_regions import HeadRegions
from armillary.probes.grid.language.attention_gaps import measure_gaps
from armillary.probes.grid.language.effects import Cost, best_gap, significant, weaker
from armillary.probes.grid.language.item_places import readable as read_items
from armillary.probes.grid.language.templates import PHENOMENA, items
from armillary.probes.grid.regions.partition import explain, kmeans, nearest
from armillary.probes.grid.regions.readings import read_heads
from armillary.probes.grid.regions.shares import alike, median_share, region_passes
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather, observe
from armillary.probes.words.context import Context
from armillary.probes.words.contexts.adjacent_words import _others, _within, explained
from armillary.probes.words.contexts.self_similarity import SampledStates, same_tokens, self_similarity
from armillary.probes.words.senses.clusters import triplets
from armillary.probes.words.senses.homographs import listed, readable, shuffled
from armillary.results import Finding, Part, Why
from armillary.specimens.models.heads.grid_models import gpt2
from armillary.specimens.models.heads.language_heads import item_text, item_words, linguist
from armillary.specimens.models.heads.region_heads import WORDS, regional
from armillary.specimens.models.streams.sense_models import (
    beginnings,
    mixing,
    plain_tokenizer,
    sense_text,
    sense_words,
    split,
)
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted import CASES

FAMILIES = ("gpt2", "llama", "gemma2", "gpt_neox", "opt-post", "bert")


CLAIMS = ("words.context", "heads.language", "heads.regions")
NO_REGIONS = ([()] * 4, (1.0,) * 4)
Planted = tuple[Anatomy, Corpus]


def on_sentences(anatomy: Anatomy) -> Planted:
    return anatomy, sense_text(anatomy)


def on_items(anatomy: Anatomy) -> Planted:
    return anatomy, item_text(anatomy)


def tried(probe: type, anatomy: Anatomy, text: Corpus) -> Finding:
    """What a survey concludes about one claim."""
    evidence = gather(anatomy, text, probe().instruments)
    return judge(probe(), evidence, bench_of(evidence))


@pytest.mark.parametrize("case", [name_of(case) for case in CASES if case.planted.claim in CLAIMS])
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    whole(finding)
    assert finding.verdict == case_of(case).planted.verdict, f"{finding.statistic}: {finding.reading}"


def part(finding: Finding, name: str) -> Part:
    return next(part for part in finding.parts if part.name == name)


ON = {
    Context: lambda: on_sentences(mixing(1.0, True)),
    HeadLanguage: lambda: on_items(linguist(())),
    HeadRegions: lambda: (regional(*NO_REGIONS), corpus(24, 50, vocabulary=WORDS)),
}


@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("claim", list(ON), ids=lambda claim: claim.claim.id)
def test_nothing_learned_is_found_in_an_untrained_model(claim, seed):
    anatomy, text = ON[claim]()
    untrained = replace(random_twin(anatomy, seed), tokenizer=anatomy.tokenizer)
    assert tried(claim, untrained, text).verdict in ("refuted", "undecided")


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("claim", list(ON), ids=lambda claim: claim.claim.id)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name, claim):
    whole(tried(claim, read(tiny(name)), corpus(12, 30, vocabulary=97)))


@pytest.mark.parametrize("claim", list(ON), ids=lambda claim: claim.claim.id)
def test_one_block_can_be_asked(claim):
    whole(tried(claim, gpt2(layers=1), corpus(12, 30, vocabulary=60)))


# Contextual states.


def test_every_sense_has_ten_sentences_and_no_cue_beside_the_word():
    rows = listed()
    assert set(Counter((row.word, row.sense) for row in rows).values()) == {10}
    assert len({row.sentence for row in rows}) == len(rows)
    for row in rows:
        assert len(re.findall(rf"\b{row.word}\b", row.sentence)) == 1
        assert row.sentence.endswith(f" the {row.word}.")


def test_senses_are_balanced_in_length():
    """The place of a word must not tell its sense."""
    for word in {row.word for row in listed()}:
        places = [[len(row.sentence.split()) for row in listed() if row[:2] == (word, sense)] for sense in (0, 1)]
        assert abs(np.mean(places[0]) - np.mean(places[1])) < 1.5, word


def test_a_causal_model_reads_up_to_the_word():
    anatomy, text = on_sentences(mixing(1.0, True))
    sentences = readable(anatomy, text)
    assert len(sentences) == len(listed())
    for sentence in sentences:
        assert sentence.place == len(sentence.window.ids) - 1
        assert sense_words()[sentence.window.ids[-1]] == sentence.listed.word
    mixed = shuffled(sentences[0], np.random.default_rng(0))
    assert sorted(mixed.ids) == sorted(sentences[0].window.ids) and mixed.ids[-1] == sentences[0].window.ids[-1]
    assert mixed.ids != sentences[0].window.ids


def test_words_that_cannot_be_read_are_counted_and_decide_nothing():
    anatomy, text = on_sentences(mixing(3.0, True))
    few = tuple(word if word not in {row.word for row in listed()[140:]} else f"no {word}" for word in sense_words())
    finding = tried(Context, replace(anatomy, tokenizer=plain_tokenizer(few)), text)
    assert finding.why is Why.UNDEFINED and "7 of the listed words" in finding.reading
    assert part(finding, "they differ by context").verdict == "supported"
    none = tried(Context, replace(anatomy, tokenizer=None), text)
    assert none.why is Why.UNDEFINED and "0 of the listed words" in none.reading and not none.more_tables
    whole(finding), whole(none)


def test_a_context_too_short_for_the_sentences_decides_nothing():
    anatomy, text = on_sentences(mixing(3.0, True))
    finding = tried(Context, replace(anatomy, context=5), beginnings(text, 5))
    assert finding.verdict == "undecided"
    whole(finding)


def test_attention_to_the_word_before_is_what_neighbours_predict():
    finding = tried(Context, *on_sentences(mixing(3.0, True, nearest=True)))
    share = part(finding, "neighbours predict it")
    assert share.verdict == "supported" and share.statistic is not None and share.statistic.value > 0.5
    assert not share.asserted


def test_states_with_attention_off_depend_on_word_and_place_alone():
    off = next(c for c in finding_of("context, the meaning of the words before").controls if c.name == "attention off")
    assert (off.value, off.low, off.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_attention_that_does_nothing_is_no_context(seed):
    """Words and places share the state evenly with attention on and off: refuted, not by chance."""
    finding = conclude(case_of("context, word and place"), seed=seed)
    differ = part(finding, "they differ by context")
    assert (
        differ.verdict == "refuted" and "on the same tokens this is a change of +0.00 [+0.00, +0.00]" in differ.reading
    )
    assert 0.3 < differ.statistic.value < 0.7


def test_pairs_are_of_the_same_tokens():
    """A token that one sample lacks is left out of both."""
    places = np.array([[0, 1, 5, 6], [0, 2, 6, 7], [1, 1, 5, 8]])
    z = torch.arange(3.0)[:, None, None]
    first, second = same_tokens(SampledStates(z, places), SampledStates(10 * z[[2, 0]], places[[2, 0]]))
    assert first.places.tolist() == second.places.tolist() == places[[0, 2]].tolist()
    assert first.z.flatten().tolist() == [0, 2] and second.z.flatten().tolist() == [0, 20]


def test_the_own_share_is_what_was_mixed_in():
    """Unit states √s·word + √(1 − s)·context in many dimensions have the own share s."""
    draw = np.random.default_rng(0)
    document, word = np.repeat(np.arange(20), 30), np.tile(np.arange(30), 20)
    words, contexts = draw.standard_normal((30, 2000)), draw.standard_normal((600, 2000))
    for share in (0.0, 0.3, 1.0):
        z = np.sqrt(share) * words[word] + np.sqrt(1 - share) * contexts
        places = np.stack([document, np.ones_like(word), word, word], 1)
        similar = self_similarity(SampledStates(torch.tensor(z)[:, None].float(), places), 20)
        value, low, high = similar.interval(similar.draws(0)[:, 0])
        assert value == pytest.approx(share, abs=0.02) and low <= value <= high


def test_what_all_words_share_is_not_a_words_own():
    draw = np.random.default_rng(1)
    document, word = np.repeat(np.arange(20), 30), np.tile(np.arange(30), 20)
    z = draw.standard_normal((600, 400)) + 5 * draw.standard_normal(400)
    places = np.stack([document, np.ones_like(word), word, word], 1)
    similar = self_similarity(SampledStates(torch.tensor(z)[:, None].float(), places), 20)
    same, other = similar.cosines()[0]
    assert same > 0.9 and other > 0.9
    assert abs(similar.draws(0)[0, 0]) < 0.02


def test_chance_is_one_half_and_clusters_are_found():
    draw = torch.Generator().manual_seed(0)
    sense = torch.tensor([0, 1] * 10)
    vectors = torch.nn.functional.normalize(torch.randn(300, 20, 8, generator=draw), dim=-1)
    shares = triplets(vectors @ vectors.mT, sense)
    assert shares.mean().item() == pytest.approx(0.5, abs=0.02)
    apart = torch.nn.functional.normalize(vectors + 3 * torch.eye(8)[sense], dim=-1)
    assert triplets(apart @ apart.mT, sense).min() > 0.9
    assert triplets(torch.ones(1, 20, 20), sense).item() == 0.5


def test_neighbours_are_not_told_by_the_word_itself():
    """Deviations that have nothing to do with features are not predicted, though both are taken about word means."""
    draw = np.random.default_rng(2)
    cell, fold = np.repeat(np.arange(60), 3), np.repeat(np.arange(60) % 2, 3)
    features, noise = (_within(draw.standard_normal((180, 12)), cell) for _ in range(2))
    unrelated = explained(features, noise[:, None], cell, fold).sum((0, 1))
    related = explained(features, features[:, None] @ draw.standard_normal((12, 12)), cell, fold).sum((0, 1))
    assert unrelated[1] / unrelated[0] < 0.02 < 0.8 < related[1] / related[0]
    others = _others(cell, draw)
    assert (cell[others] == cell).all() and (others != np.arange(180)).all()
    assert sorted(others) == list(range(180))


# Heads and language.


def test_every_phenomenon_has_forty_items_and_every_pair_exchanges_its_roles():
    assert Counter(item.phenomenon for item in items()) == dict.fromkeys(PHENOMENA, 40)
    for first, second in zip(items()[::2], items()[1::2], strict=True):
        assert (first.phenomenon, first.pair) == (second.phenomenon, second.pair)
        assert (first.target, first.distractor) == (second.distractor, second.target)


def test_orders_exchange_the_places_of_target_and_distractor_and_keep_the_query():
    for item in items():
        first, second = (split(order) for order in item.orders)
        target, distractor, query = (first.index(word) for word in (item.target, item.distractor, item.query))
        assert target < distractor < query
        exchanged = [second.index(word) for word in (item.distractor, item.target, item.query)]
        assert exchanged == [target, distractor, query]
        assert len(first) == len(second)
        # A phrase that moves to the front of its noun brings a comma; elsewhere all other words stay.
        moved = set(first) ^ set(second)
        assert moved == ({"then", ","} if item.phenomenon in ("agreement", "subject") else set())


def test_words_of_one_phenomenon_are_not_used_in_two_of_its_pairs():
    for phenomenon in ("agreement", "subject", "determiner", "synonym", "antonym", "pronoun"):
        targets = [item.target for item in items() if item.phenomenon == phenomenon]
        assert len(set(targets)) == len(targets)


def test_the_items_are_those_of_their_seed():
    assert items.__wrapped__() == items()


def test_all_items_are_read_where_they_should_be():
    anatomy, text = on_items(linguist(()))
    read = read_items(anatomy, text)
    assert len(read) == len(items())
    words = item_words()
    for entry in read:
        for order, window in enumerate(entry.windows):
            target, distractor = entry.places if order == 0 else entry.places[::-1]
            chosen = [words[window.ids[place]] for place in (target, distractor, entry.query)]
            assert chosen == [entry.item.target, entry.item.distractor, entry.item.query]


def test_a_gap_is_the_attention_of_the_pattern():
    anatomy, text = on_items(linguist(PHENOMENA))
    entry = read_items(anatomy, text)[0]
    pair = [e for e in read_items(anatomy, text) if (e.item.phenomenon, e.item.pair) == ("agreement", 0)]
    gaps = measure_gaps(Bench(anatomy, text), pair)["agreement"]
    patterns: dict[int, torch.Tensor] = {}
    with still(anatomy.model), watching_patterns(anatomy, lambda layer, p: patterns.update({layer: p})):
        run(anatomy, torch.tensor([pair[0].windows[1].ids, pair[1].windows[1].ids]))
    (first, second), query = entry.places, entry.query
    expected = [(p[:, :, query, second] - p[:, :, query, first]).mean(0) for p in patterns.values()]
    assert torch.allclose(torch.tensor(gaps[0, 1]), torch.stack(expected).double(), atol=1e-6)


def test_a_head_that_goes_by_place_has_no_gap_in_the_weaker_order():
    """The nearer word is the target in one order: a mean over orders would count half of it."""
    gaps = np.zeros((20, 2, 1, 1))
    gaps[:, 1] = 0.8
    assert weaker(gaps).item() == 0
    assert best_gap(gaps, 0, 6)[2] == 0
    assert not significant({"agreement": gaps})["agreement"].any()


def test_the_best_of_many_random_heads_is_not_best_on_the_other_half():
    """Chosen and measured on the same items, the best of 400 heads without any gap would seem to have one."""
    gaps = 0.1 * np.random.default_rng(0).standard_normal((20, 2, 20, 20))
    assert weaker(gaps).max() > 0.03
    value, low, _ = best_gap(gaps, 0, 6)
    assert abs(value) < 0.05 and low < 0
    assert significant({"agreement": gaps})["agreement"].sum() <= 1


def test_heads_that_write_nothing_are_of_no_use_and_heads_that_resolve_nothing_are_not_asked():
    assert part(finding_of("language, all phenomena"), "they are of use").verdict == "refuted"
    assert part(finding_of("language, loud words"), "they are of use").why is Why.UNDEFINED


def test_what_removing_heads_costs_on_items_is_beyond_what_it_costs_on_text():
    rng = np.random.default_rng(0)
    text = np.stack([np.full(12, 50.0), 50 * (0.01 + 0.002 * rng.standard_normal(12))], 1)
    cost = Cost(((0, 0),), 0.5 + 0.05 * rng.standard_normal(20), text)
    value, low, high = cost.beyond(0)
    assert 0.4 < low < value < high < 0.6


def test_a_tokenizer_that_fits_no_template_decides_nothing():
    anatomy, text = on_items(linguist(PHENOMENA))
    strange = replace(anatomy, tokenizer=plain_tokenizer(("[UNK]", *(f"{word}x" for word in item_words()[1:]))))
    for model in (strange, replace(anatomy, tokenizer=None)):
        finding = tried(HeadLanguage, model, text)
        whole(finding)
        assert finding.why is Why.UNDEFINED and "0 of agreement" in finding.reading


def test_a_phenomenon_that_cannot_be_read_is_left_out_and_said():
    anatomy, text = on_items(linguist(PHENOMENA))
    pronouns = ("he", "she", "it", "they")
    words = tuple(f"{word}x" if word in pronouns else word for word in item_words())
    finding = tried(HeadLanguage, replace(anatomy, tokenizer=plain_tokenizer(words)), text)
    whole(finding)
    assert part(finding, "anaphora").why is Why.UNDEFINED and finding.verdict == "undecided"
    assert part(finding, "syntax").verdict == "supported"
    assert "pronoun (0 items)" in finding.reading


def test_a_context_too_short_for_the_items_decides_nothing():
    anatomy, text = on_items(linguist(PHENOMENA))
    finding = tried(HeadLanguage, replace(anatomy, context=6), beginnings(text, 6))
    assert finding.verdict == "undecided"
    whole(finding)


# Regions.


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma2", "mistral", "bert"])
def test_readings_are_those_of_the_heads_instrument(name):
    """Write length, entropy and mean score at the sampled queries, computed in another way."""
    anatomy, text = read(tiny(name)), corpus(9, 24, vocabulary=97)
    rows = observe(anatomy, text, [HEADS])[HEADS]
    readings = read_heads(Bench(anatomy, text))
    at = {(document, position): i for i, (document, position, _) in enumerate(readings.places.tolist())}
    places = list(zip(rows.documents().tolist(), rows.positions().tolist(), strict=True))
    chosen = [at[place] for place in places]
    assert list(readings.z) == list(range(anatomy.layers)) and len(chosen) > 50
    for layer, heads in readings.heads.items():
        expected = np.stack([rows.sampled(field)[layer].T for field in ("update", "entropy", "mean_score")], -1)
        np.testing.assert_allclose(heads[chosen].numpy(), expected, rtol=1e-3, atol=1e-4)


def test_regions_are_found_again():
    draw = np.random.default_rng(0)
    centres = np.eye(8)
    label = np.arange(400) % 8
    points = centres[label] + 0.1 * draw.standard_normal((400, 8))
    regions = kmeans(points, 8, draw)
    assert sorted(nearest(centres, regions).tolist()) == list(range(8))


def invented_tokens(documents: int = 24, each: int = 50, seed: int = 0):
    """Directions in eight regions, and where tokens stand."""
    draw = np.random.default_rng(seed)
    n = documents * each
    places = np.stack([np.repeat(np.arange(documents), each), np.tile(np.arange(8, 8 + each), documents)], 1)
    places = np.concatenate([places, draw.integers(0, 60, (n, 1))], 1)
    region = draw.integers(0, 8, n)
    z = 5 * np.eye(16)[region] + draw.standard_normal((n, 16))
    return draw, places, region, z


def explained_share(heads: np.ndarray, z: np.ndarray, places: np.ndarray, frequency: np.ndarray | None = None) -> float:
    ones = np.ones(len(z)) if frequency is None else frequency
    return median_share([explain(z, heads, places, ones, 24, 0)], 0)[0]


def test_regions_explain_what_depends_on_them_and_nothing_else():
    draw, places, region, z = invented_tokens()
    noise = draw.standard_normal((len(z), 2, 3))
    by_region = 3 * draw.standard_normal(8)[region][:, None, None] + noise
    assert explained_share(by_region, z, places) > 0.5
    assert -0.03 < explained_share(noise, z, places) < 0.01


def test_position_and_frequency_are_taken_out_first():
    """Regions of places or of frequent words explain nothing of heads that depend on place or frequency alone."""
    draw, places, _, z = invented_tokens()
    frequency = 1.0 + places[:, 2] ** 2
    for known in (np.log(places[:, 1] + 1.0), np.log(frequency)):
        by_known = 5 * np.eye(16)[(8 * rankdata(known) / (len(known) + 1)).astype(int)] + draw.standard_normal(z.shape)
        heads = known[:, None, None] + 0.3 * draw.standard_normal((len(z), 2, 3))
        assert explained_share(heads, by_known, places, frequency) < 0.05
        others = draw.permutation(places), draw.permutation(frequency)
        assert explained_share(heads, by_known, np.concatenate([places[:, :1], others[0][:, 1:]], 1), others[1]) > 0.3


def test_what_belongs_to_documents_is_not_explained_by_regions():
    """States that tell nothing but their document: on other documents such regions say nothing."""
    draw, places, _, _ = invented_tokens()
    documents = draw.standard_normal((24, 16))[places[:, 0]]
    z = 5 * documents + draw.standard_normal(documents.shape)
    heads = draw.standard_normal((24, 2, 3))[places[:, 0]] + 0.5 * draw.standard_normal((len(z), 2, 3))
    assert explained_share(heads, z, places) < 0.05


def test_agreement_is_one_for_the_same_regions_and_none_for_others():
    draw, places, region, z = invented_tokens()
    noise = draw.standard_normal((len(z), 2, 3))
    profiles = draw.standard_normal((8, 2))
    same = 3 * profiles[region][:, :1, None] + noise
    opposite = same * np.array([1, -1])[None, :, None]
    values = [alike([explain(z, heads, places, np.ones(len(z)), 24, 0)], 0) for heads in (same, opposite, noise)]
    assert values[0][0] == pytest.approx(1, abs=0.1) and values[0][1] > 0.5
    assert values[1][0] == pytest.approx(-1, abs=0.1)
    assert np.isnan(values[2][0]) or values[2][1] < 0.5


def test_a_single_outlier_does_not_make_the_variance():
    draw, places, region, z = invented_tokens()
    heads = 3 * draw.standard_normal(8)[region][:, None, None] + draw.standard_normal((len(z), 2, 3))
    plain = explained_share(heads, z, places)
    heads[0] = 1e6
    assert explained_share(heads, z, places) == pytest.approx(plain, abs=0.01)


def test_short_documents_have_no_regions():
    finding = tried(HeadRegions, regional(*NO_REGIONS), corpus(24, 10, vocabulary=WORDS))
    assert finding.why is Why.TOO_LITTLE_TEXT and "ninth" in finding.reading


@pytest.mark.parametrize(("documents", "decided"), [(T.regions_documents - 1, False), (T.regions_documents, True)])
def test_few_documents_have_no_regions(documents, decided):
    finding = tried(HeadRegions, regional(*NO_REGIONS), corpus(documents, 40, vocabulary=WORDS))
    assert (finding.why is not Why.TOO_LITTLE_TEXT) == decided, finding.reading
    assert decided or f"has {documents} documents" in finding.reading


def test_quick_surveys_read_all_documents_for_regions_or_none():
    """With enough text a quick survey gives the same share; its own text has too few documents."""
    anatomy, text = regional(*NO_REGIONS), corpus(24, 40, vocabulary=WORDS)
    full, quick = (region_passes(Bench(anatomy, text, quick=quick)) for quick in (False, True))
    assert full is not None and quick is not None
    assert len(np.unique(quick.places[:, 0])) == 24
    assert median_share(quick.arms[MODEL], 0) == median_share(full.arms[MODEL], 0)
    finding = survey("builtin:gpt", claims="heads.regions", quick=True, progress=False).findings[0]
    assert (finding.verdict, finding.why) == ("undecided", Why.TOO_LITTLE_TEXT)
