"""Lists of words: which are related, which a model knows, and what is undecided without them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import weights
from test_attention_words import PROBES

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.keys.key_matches import concentration
from armillary.probes.attention.lexicon.known_words import forms, marks, whole
from armillary.probes.attention.lexicon.related_nouns import near, pairings_of, related, related_pairs, repair
from armillary.probes.attention.lexicon.themes.likeness import coherence, specific, stem
from armillary.probes.attention.lookup import KeyLookup
from armillary.probes.attention.subjects import Subjects
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.probes.machinery.tables import head_names
from armillary.results import Why
from armillary.specimens.models.heads import word_heads as heads


def test_likeness_by_frequency_alone_is_no_subject():
    """A common axis, along which rare words lie, makes any of them alike until it is taken away."""
    rows = heads.gaussian() + 6 * heads.frame(3)[0] * torch.linspace(-1, 1, len(heads.words()))[:, None]
    rare = np.arange(len(rows))[None, -10:]
    apart = np.arange(len(rows))
    assert coherence(specific(rows, 0), rare, apart)[0] > 0.3
    assert abs(coherence(specific(rows, 1), rare, apart)[0]) < 0.1


def test_forms_of_one_word_are_no_subject():
    unit = specific(heads.clustered(), 0)
    place = np.array([[1, 2, 3, 4]])
    assert coherence(unit, place, np.zeros(len(unit), dtype=int))[0] == 0
    one_apart = np.array([0, 0, 0, 0, 1])[np.minimum(np.arange(len(unit)), 4)]
    cosines = unit[1:4] @ unit[4]
    assert coherence(unit, place, one_apart)[0] == pytest.approx(float(cosines.mean()), abs=1e-6)
    assert stem(" Houses") == stem("house") != stem("horse")


def test_the_list_is_clean():
    pairs = related_pairs()
    assert len({frozenset(pair[1:]) for pair in pairs}) == len(pairs)
    assert all(pair.first != pair.second for pair in pairs)
    assert all(sum(pair.kind == kind for pair in pairs) >= 40 for kind in {pair.kind for pair in pairs})
    assert sum(noun in related() for noun in NOUNS) >= 95


def test_unrelated_pairs_use_every_word_as_often_and_no_relation():
    gathered = weights(heads.gpt2(heads.gaussian(), heads.randoms()))
    words, pairings = pairings_of(gathered, related_pairs())
    names = list(words)
    for pairing in pairings:
        assert (np.sort(pairing.repaired, 1) == np.arange(len(pairing.first))).all()
        for order in pairing.repaired[:20]:
            for a, b in zip(pairing.first, pairing.second[order], strict=True):
                assert names[b] not in near(names[a])


def test_impossible_repairings_are_refused():
    assert repair(np.zeros((3, 3), dtype=bool), 2, np.random.default_rng(0), tries=20) is None
    assert repair(np.zeros((1, 1), dtype=bool), 2, np.random.default_rng(0)) is None


def test_forms_and_marks():
    assert {"men", "man"} <= forms("man")
    assert {"lives", "life"} <= forms("life")
    assert "other" in forms("others")
    assert "woman" not in forms("man")
    gathered = weights(heads.gpt2(heads.gaussian(), heads.randoms()))
    marked = marks(gathered, [["year"]])[0]
    assert {heads.words()[i] for i in np.flatnonzero(marked)} == {"year", "years"}


def test_whole_words_prefer_a_space_and_say_so():
    vocabulary = ("[UNK]", "Ġtime", "time", "year", "english")
    anatomy = heads.gpt2(heads.gaussian()[:5], heads.randoms(), layers=1)
    gathered = Evidence(replace(anatomy, tokenizer=heads.tokenizer(vocabulary)))
    assert whole(gathered, ["time", "year", "English", "absent"]) == {"time": 1, "year": 3, "English": 4}
    assert whole(gathered, ["time"], spaced=False) == {"time": 2}


def test_concentration_counts_keys():
    met = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    assert concentration(met, torch.ones(4)).tolist() == pytest.approx([1, 0.5, 0.25, 0])


@pytest.mark.parametrize("probe", PROBES)
def test_without_a_tokenizer_nothing_is_decided(probe):
    anatomy = replace(heads.gpt2(heads.gaussian(), heads.randoms(), layers=2), tokenizer=None)
    finding = probe().conclude(Evidence(anatomy))
    assert finding.verdict == "undecided"
    assert finding.why is Why.UNDEFINED
    assert finding.n == 0
    assert [row[0] for row in finding.table.rows] == head_names(anatomy.layers, anatomy.n_heads)


@pytest.mark.parametrize("probe", PROBES)
def test_too_few_whole_words_decide_nothing(probe):
    anatomy = heads.gpt2(heads.gaussian()[:30], heads.randoms(), layers=2)
    finding = probe().conclude(Evidence(anatomy))
    assert finding.verdict == "undecided"
    assert finding.why is Why.UNDEFINED
    assert finding.n < T.words_least


@pytest.mark.parametrize("probe", [KeyLookup, Subjects])
def test_one_layer_has_no_depth(probe):
    finding = probe().conclude(weights(heads.gpt2(heads.gaussian(), heads.randoms(), layers=1)))
    assert finding.verdict == "undecided"
    assert finding.why is Why.NOT_APPLICABLE
