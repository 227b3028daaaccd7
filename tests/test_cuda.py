"""On a GPU: a recorded pass has the bits of one that runs each batch, and a model that cannot be recorded is run.

Where there is no pytest: python tests/test_cuda.py
"""

import contextlib
from dataclasses import replace

import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow.machine.recording import Graphs, Recorder
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.curvatures import CURVATURES
from armillary.probes.instruments.head_samples import HEAD_SAMPLES
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.position_samples import POSITION_SAMPLES
from armillary.probes.instruments.samples import LAST_SAMPLES, SAMPLES
from armillary.probes.instruments.stream_pairs import STREAM_PAIRS
from armillary.probes.instruments.words import WORDS
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery.shared_pass import observe_parts
from armillary.specimens.models.texts import chained

INSTRUMENTS = (
    *(LENGTHS, COVARIANCES, SAMPLES, LAST_SAMPLES, POSITION_SAMPLES, WRITE_SAMPLES),
    *(HEADS, HEAD_SAMPLES, CURVATURES, STREAM_PAIRS, WORDS),
)


with contextlib.suppress(ImportError):
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Never:
    """A recorder that runs everything."""

    replayed, refused = 0, None

    def __call__(self, key, work, to_come):
        return work()


def states(anatomy, corpus, recorder):
    count = corpus.batch_count()
    parts = [range(count // 2), range(count // 2, count)]
    states = observe_parts(anatomy, corpus, INSTRUMENTS, parts, recorder=recorder)
    return [{i.name: dict(state.arrays()) for i, state in each.items()} for each in states]


def differing(states, others) -> list[str]:
    return [
        f"part {part}: {name} {field}"
        for part, (first, second) in enumerate(zip(states, others, strict=True))
        for name in first
        for field in first[name]
        if not torch.equal(first[name][field], second[name][field])
    ]


def long_text():
    """Fifty-odd batches of one shape in either half of the documents."""
    return replace(chained(320, 48, vocabulary=90), batch=3 * 48)


def test_a_recorded_pass_has_the_bits_of_one_that_runs():
    for family in ("gpt2", "llama", "bert", "gemma2"):
        for dtype in (torch.float32, torch.bfloat16):
            anatomy, corpus = read(tiny(family).to("cuda", dtype)), long_text()
            recorder = Recorder(Graphs(anatomy.device))
            ours, theirs = states(anatomy, corpus, recorder), states(anatomy, corpus, Never())
            names = differing(ours, theirs)
            print(f"{family} {dtype}: {recorder.replayed} replayed, {len(names)} arrays differ {names[:3]}", flush=True)
            assert recorder.refused is None and recorder.replayed > 50 and not names


def test_a_model_that_waits_for_the_device_is_run():
    live = tiny("llama").to("cuda")
    anatomy, corpus = read(live), long_text()
    theirs = states(anatomy, corpus, Never())

    class Waiting(type(live.model.norm)):
        def forward(self, x):
            assert float(x.abs().sum()) > 0
            return super().forward(x)

    live.model.norm.__class__ = Waiting
    recorder = Recorder(Graphs(anatomy.device))
    ours = states(anatomy, corpus, recorder)
    print(f"refused: {recorder.refused}", flush=True)
    assert recorder.refused and not recorder.replayed and not differing(ours, theirs)


if __name__ == "__main__":
    test_a_recorded_pass_has_the_bits_of_one_that_runs()
    test_a_model_that_waits_for_the_device_is_run()
    print("both hold")
