"""A pass whose batches are replayed gives the numbers of one that runs each; the graph here records PyTorch's calls."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from tiny import tiny
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from transformers import PreTrainedModel, masking_utils

from armillary.anatomy.read import read
from armillary.flow.machine.feed import ALIGNED, FixedFeed
from armillary.flow.machine.recording import LEAST, Recorder, unpacked
from armillary.flow.tokens import Corpus, Window
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.curvatures import CURVATURES
from armillary.probes.instruments.head_samples import HEAD_SAMPLES
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.position_samples import POSITION_SAMPLES
from armillary.probes.instruments.samples import LAST_SAMPLES, SAMPLES, Samples
from armillary.probes.instruments.stream_pairs import STREAM_PAIRS
from armillary.probes.instruments.words import WORDS
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery.shared_pass import observe_parts

INSTRUMENTS = (
    *(LENGTHS, COVARIANCES, SAMPLES, LAST_SAMPLES, POSITION_SAMPLES, WRITE_SAMPLES),
    *(HEADS, HEAD_SAMPLES, CURVATURES, STREAM_PAIRS),
)


def storages(values) -> set[int]:
    return {v.untyped_storage().data_ptr() for v in tree_flatten(values)[0] if isinstance(v, torch.Tensor)}


class CallGraph(TorchDispatchMode):
    """PyTorch's calls of some work, repeated on the same memory: what Python does beside them is not."""

    def __init__(self, work) -> None:
        super().__init__()
        self.calls: list[tuple] = []
        with self:
            work()
        # On a GPU nothing runs while a graph is recorded; here it has.
        self.done = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.lift_fresh.default:
            raise RuntimeError("a number of the host cannot be copied while a graph is recorded")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        if self.done:
            self.done = False
            return
        for func, args, kwargs, out in self.calls:
            again = func(*args, **kwargs)
            given = storages((args, kwargs))
            for old, new in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
                if isinstance(old, torch.Tensor) and old.untyped_storage().data_ptr() not in given:
                    old.copy_(new)


def text(windows: int = 36, width: int = 24, documents: int = 18) -> Corpus:
    """Windows of one length, but for some shorter ones that make a batch with padding."""
    draw = np.random.default_rng(3)
    rows = [Window(i % documents, tuple(draw.integers(3, 90, width).tolist())) for i in range(windows)]
    rows += [Window(i, tuple(draw.integers(3, 90, width - 5 - i).tolist())) for i in range(4)]
    return Corpus(tuple(rows), "random", documents, sum(len(w.ids) for w in rows), (), batch=3 * width)


def states(anatomy, corpus, instruments, parts, recorder=None):
    return [
        {i: {n: a.clone() for n, a in state.arrays().items()} for i, state in states.items()}
        for states in observe_parts(anatomy, corpus, instruments, parts, recorder=recorder)
    ]


@pytest.fixture
def in_groups(monkeypatch):
    # Hugging Face leaves this look at the tokens out while a graph is recorded.
    monkeypatch.setattr(PreTrainedModel, "warn_if_padding_and_no_attention_mask", lambda *given: None)
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("enough", [256, 2], ids=["all tokens", "a share"])
def test_a_replayed_pass_has_the_bits_of_one_that_runs(family, dtype, enough, in_groups, monkeypatch):
    monkeypatch.setattr("armillary.probes.instruments.covariances.ENOUGH", enough)
    monkeypatch.setattr("armillary.measures.moments.PILOT", 100)
    anatomy, corpus = read(tiny(family).to(dtype)), text()
    count = corpus.batch_count()
    parts = [range(count // 3), range(count // 3, count)]
    plain = states(anatomy, corpus, INSTRUMENTS, parts)
    recorder = Recorder(CallGraph)
    replayed = states(anatomy, corpus, INSTRUMENTS, parts, recorder)
    assert recorder.refused is None and recorder.replayed > count // 3
    for ours, theirs in zip(replayed, plain, strict=True):
        for instrument in INSTRUMENTS:
            assert list(ours[instrument]) == list(theirs[instrument])
            for name, array in theirs[instrument].items():
                assert torch.equal(ours[instrument][name], array), (instrument.name, name)


def test_what_a_batch_leaves_is_copied(in_groups, monkeypatch):
    """The mutation: kept as it is, what every replayed batch leaves is what the last one left."""
    live, corpus = tiny("llama"), text()
    with torch.no_grad():
        live.get_input_embeddings().weight[::7, 3] = 4000.0
    anatomy, parts = read(live), [range(corpus.batch_count())]

    def largest() -> torch.Tensor:
        states = next(observe_parts(anatomy, corpus, [LENGTHS], parts, recorder=Recorder(CallGraph)))
        return states[LENGTHS].arrays()["massive/L0.ln2/payload"]

    plain = states(anatomy, corpus, [LENGTHS], parts)[0][LENGTHS]["massive/L0.ln2/payload"]
    assert len(plain) and torch.equal(largest(), plain)
    monkeypatch.setattr(torch.Tensor, "clone", lambda self, **kwargs: self)
    assert not torch.equal(largest(), plain)


def test_work_that_cannot_be_recorded_runs_each_time_and_says_why():
    recorder, runs = Recorder(CallGraph), []

    def work() -> int:
        runs.append(torch.tensor([1.0]))
        return len(runs)

    assert [recorder("a", work, 10) for _ in range(4)] == [1, 2, 3, 4]
    assert recorder.refused == "RuntimeError: a number of the host cannot be copied while a graph is recorded"
    assert recorder.replayed == 0


def test_few_batches_are_not_worth_a_recording():
    recorder, total = Recorder(CallGraph), torch.zeros(())
    for left in (LEAST, LEAST - 1, LEAST - 2):
        recorder("a", lambda: total.add_(1.0), left)
    assert (recorder.replayed, float(total)) == (0, 3.0)
    for left in (5, 4, 3):
        recorder("b", lambda: total.add_(1.0), left)
    assert (recorder.replayed, float(total)) == (2, 6.0)
    recorder(None, lambda: total.add_(1.0), 9)
    assert recorder.replayed == 2


def test_arrays_of_equal_shapes_come_to_the_same_places():
    feed = FixedFeed(torch.device("cpu"), 4 * ALIGNED)
    places = []
    for start in (0, 10):
        feed.begin()
        parts = [feed(np.arange(start, start + 5)), feed(torch.tensor([True, False])), feed(np.zeros((0, 2)))]
        feed.send()
        assert parts[0].tolist() == list(range(start, start + 5)) and parts[1].tolist() == [True, False]
        assert parts[2].shape == (0, 2) and feed.complete
        places.append([part.data_ptr() for part in parts[:2]])
    assert places[0] == places[1]
    feed.begin()
    assert feed(np.arange(400)).tolist() == list(range(400)) and not feed.complete


def test_a_state_made_empty_is_an_empty_state(in_groups):
    anatomy, corpus = read(tiny("gpt2")), text()
    (states,) = observe_parts(anatomy, corpus, INSTRUMENTS, [range(4)])
    for instrument, state in states.items():
        other = instrument.start(anatomy, replace(corpus), 0).state
        state.reset()
        ours, theirs = state.arrays(), other.arrays()
        for name in theirs:
            if "shift" not in name:
                assert torch.equal(ours[name], theirs[name]), (instrument.name, name)
        assert all(not ours[name].any() for name in ours if "strip" in name)


@pytest.mark.parametrize("capacity", range(20, 40, 3))
@pytest.mark.parametrize("grouped", [False, True])
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(grouped, capacity, monkeypatch):
    """Also where tokens of two windows of a document have one priority: half of them would be in the smaller sample."""
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", grouped)
    anatomy, corpus = read(tiny("llama")), text()
    small, large = Samples(capacity, last_norm=True), Samples(60, last_norm=True)
    (states,) = observe_parts(anatomy, corpus, [small, large], [range(corpus.batch_count())])
    few, many = (next(iter(states[i].rows.values())).sample().payload for i in (small, large))
    assert 0 < len(few) <= capacity and torch.equal(few, many[: len(few)])


def test_watches_that_mix_host_and_device_are_not_recorded(in_groups):
    """Without kernels the paths of words are prepared on the device while arrays are still to be sent."""
    anatomy, corpus = read(tiny("bert")), text()
    recorder, parts = Recorder(CallGraph), [range(corpus.batch_count())]
    ours = states(anatomy, corpus, [LENGTHS, WORDS], parts, recorder)[0]
    theirs = states(anatomy, corpus, [LENGTHS, WORDS], parts)[0]
    assert recorder.replayed == 0
    for instrument, arrays in theirs.items():
        assert all(torch.equal(ours[instrument][name], array) for name, array in arrays.items())


def test_masks_of_hugging_face_are_as_before_afterwards():
    before = {name: getattr(masking_utils, name) for name in ("is_tracing", "find_packed_sequence_indices")}
    live, ids = tiny("llama"), torch.arange(3, 15)[None].repeat(2, 1)
    with torch.no_grad():
        plain = live(ids).logits
        with unpacked():
            assert masking_utils.find_packed_sequence_indices(ids) is None
            assert torch.equal(live(ids).logits, plain)
    assert all(getattr(masking_utils, name) is function for name, function in before.items())


def test_a_model_that_somebody_edits_is_not_recorded(in_groups):
    """Here by a hook that counts the batches: replayed, it would count no more."""
    live, corpus, recorder = tiny("llama"), text(), Recorder(CallGraph)
    anatomy, parts = read(live), [range(corpus.batch_count())]

    def lengths_read(recorder=None):
        batches = count(1)
        handle = live.model.layers[0].register_forward_hook(lambda module, given, out: out * next(batches))
        arrays = states(anatomy, corpus, [LENGTHS], parts, recorder)[0][LENGTHS]
        handle.remove()
        return arrays

    plain, ours = lengths_read(), lengths_read(recorder)
    assert recorder.replayed == 0 and all(torch.equal(ours[name], array) for name, array in plain.items())
