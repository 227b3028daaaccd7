"""Large vocabularies and large twins: few rows, and one twin, are held at a time, and no number changes."""

import gc
import sys
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow import controls
from armillary.flow.controls import Twins
from armillary.probes.attention.lexicon import word_directions
from armillary.probes.machinery import bench as benches
from armillary.probes.machinery import once_if_small
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.memo import Memo
from armillary.specimens.models.texts import corpus


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "bert"])
def test_words_by_blocks_are_words_at_once(monkeypatch, name):
    anatomy = read(tiny(name))
    words = Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset())
    ids = torch.tensor([3, 90, 1, 1, 40])
    whole = [words.outputs(), words.embedded(), words.directions(1), words.outputs(ids), words.directions(1, ids)]
    monkeypatch.setattr("armillary.anatomy.vocabulary.BLOCK", 7)
    f = torch.float32
    again = [words.outputs(), words.embedded(), words.directions(1), words.outputs(ids), words.directions(1, ids)]
    narrow = [words.outputs(dtype=f), words.embedded(dtype=f), words.directions(1, dtype=f), words.outputs(ids, f)]
    assert all(torch.equal(a.values, b.values) and a.space == b.space for a, b in zip(whole, again, strict=True))
    assert all(torch.equal(a.values.float(), b.values) for a, b in zip(whole, narrow, strict=False))


def test_keys_by_blocks_are_keys_at_once(monkeypatch):
    from armillary.anatomy.folded import fold

    anatomy = read(tiny("qwen3"))
    words = Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset())
    z, heads = words.directions(1), fold(anatomy, 1)
    whole = [word_directions.keys(heads, z, 2), word_directions.keys(heads, z)]
    monkeypatch.setattr(word_directions, "BLOCK", 10)
    again = [word_directions.keys(heads, z, 2), word_directions.keys(heads, z)]
    for a, b in zip(whole, again, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_of_large_results_only_the_latest_is_kept(monkeypatch):
    @dataclass
    class Holder:
        memo: Memo = field(default_factory=Memo)

    computed: list[int] = []

    @once_if_small(lambda value: value)
    def size_of(holder: Holder, size: int) -> int:
        computed.append(size)
        return size

    # By the module's name: the package gives the function of that name in its place.
    monkeypatch.setattr(sys.modules["armillary.probes.machinery.memo"], "LARGE", 10)
    holder = Holder()
    for size in (1, 50, 50, 1, 60, 50, 1):
        assert size_of(holder, size) == size
    # The small one is computed once; 50 again, after 60 has taken its place.
    assert computed == [1, 50, 60, 50]


def test_batches_shrink_with_the_vocabulary_and_losses_stay(monkeypatch):
    anatomy, text = read(tiny("gpt2")), corpus(8, 20, vocabulary=90)
    before = Bench(anatomy, text)
    batches = before.batches()
    losses = before.losses(batches)
    monkeypatch.setattr(benches, "LOGITS", 30 * anatomy.vocabulary)
    after = Bench(anatomy, text)
    assert max(batch.ids.numel() for batch in after.batches()) <= 30 < max(b.ids.numel() for b in batches)
    np.testing.assert_allclose(after.losses(after.batches()), losses, rtol=1e-6)


def test_one_large_twin_is_held_at_a_time(monkeypatch):
    anatomy, text = read(tiny("gpt2")), corpus(8, 20, vocabulary=90)
    monkeypatch.setattr(controls, "KEPT_BYTES", 0)
    twins = Twins(anatomy, 0, 3)
    assert twins.one_at_a_time
    bench, held = Bench(anatomy, text, twins), []
    for arm in bench.twins:
        gc.collect()
        assert sum(model() is not None for model in held) <= 1
        held.append(weakref.ref(bench.arm(arm).anatomy.model))
    monkeypatch.undo()
    assert not Twins(anatomy, 0, 3).one_at_a_time
