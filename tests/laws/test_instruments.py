"""What holds for every instrument: a text's state is the sum of its parts' states, and comes back from its arrays."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.measures import Named, State
from armillary.probes import PROBES
from armillary.probes.instruments.covariances import CovarianceSums
from armillary.probes.instruments.patterns import Patterns, texts
from armillary.probes.instruments.samples import TokenSamples
from armillary.probes.machinery.shared_pass import observe
from armillary.specimens.models.texts import chained
from armillary.training.snapshot import PEAKS

FAMILIES = ("gpt2", "llama", "bert", "opt")
SHARED = list(dict.fromkeys(instrument for probe in PROBES for instrument in probe.instruments))
INSTRUMENTS = [*SHARED, Patterns(), Patterns(first_query=1, compared=0), PEAKS]


def text(instrument) -> Corpus:
    """Documents of different lengths, so that batches hold padding; of one length where patterns are compared."""
    whole = chained(24, 40, vocabulary=90)
    windows = tuple(replace(w, ids=w.ids[: 40 - w.document % 7]) for w in whole.windows)
    corpus = replace(whole, windows=windows, tokens=sum(len(w.ids) for w in windows))
    return texts(corpus, 8) if isinstance(instrument, Patterns) else corpus


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("armillary.flow.tokens.BATCH_TOKENS", 160)


def same(a: State, b: State) -> None:
    """Equal in all that a reader can ask for: sums to rounding, samples and places in any order."""
    ours, theirs = readable(a), readable(b)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert array.shape == theirs[name].shape, name
        torch.testing.assert_close(array, theirs[name], rtol=1e-9, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def readable(state: State) -> dict[str, torch.Tensor]:
    """Rows in an order of their own, and covariances instead of sums about a shift that depends on what came first."""
    if isinstance(state, CovarianceSums):
        halves = {f"{half}/{site}": m for half in ("even", "odd") for site, m in getattr(state, half).items()}
        return {name: m.covariance() if m.count else torch.zeros(0) for name, m in halves.items()}
    arrays = {name: array.double() for name, array in state.arrays().items()}
    for name in [name for name in arrays if name.startswith(("rows/", "documents/", "places/", "patterns/"))]:
        arrays[name] = arrays[name] if isinstance(state, TokenSamples) else arrays[name].sum(0)
    return arrays


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_the_whole_is_the_sum_of_its_parts_in_any_order(instrument, family):
    anatomy, corpus = read(tiny(family)), text(instrument)
    whole = observe(anatomy, corpus, [instrument])[instrument]
    numbers = range(len(list(corpus.batches())))
    assert len(numbers) > 3
    parts = [observe(anatomy, corpus, [instrument], part=numbers[i::3])[instrument] for i in range(3)]
    same(whole, parts[2] + parts[0] + parts[1])
    assert instrument.count(parts[1] + parts[2] + parts[0]) == instrument.count(whole)


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_a_state_comes_back_from_its_arrays(instrument):
    anatomy, corpus = read(tiny("gpt2")), text(instrument)
    state = observe(anatomy, corpus, [instrument])[instrument]
    again = instrument.start(anatomy, corpus, 0).state
    again.load({name: array.clone() for name, array in state.arrays().items()})
    same(state, again)
    same(state + instrument.start(anatomy, corpus, 0).state, again)


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_an_instrument_is_told_apart_by_its_settings_alone(instrument):
    assert instrument == replace(instrument) and hash(instrument) == hash(replace(instrument))
    assert instrument != replace(instrument, name="another")


def test_a_state_of_other_settings_does_not_add():
    anatomy = read(tiny("gpt2"))
    few, many = (SHARED[0].start(anatomy, chained(n, 20, vocabulary=90), 0).state for n in (8, 12))
    with pytest.raises(ValueError, match="cannot add"):
        few + many


def test_a_measure_that_forgets_a_part_is_noticed():
    """The law above fails for a state whose sum keeps one side only."""
    anatomy, corpus, instrument = read(tiny("gpt2")), text(SHARED[0]), SHARED[0]
    numbers = range(len(list(corpus.batches())))
    parts = [observe(anatomy, corpus, [instrument], part=numbers[i::2])[instrument] for i in range(2)]
    parts[0].scalars = Named({site: _forgetting(scalars) for site, scalars in parts[0].scalars.items()})
    with pytest.raises(AssertionError):
        same(observe(anatomy, corpus, [instrument])[instrument], parts[0] + parts[1])


def _forgetting(scalars):
    scalars.__class__ = type("Forgets", (type(scalars),), {"__add__": lambda self, other: self})
    return scalars
