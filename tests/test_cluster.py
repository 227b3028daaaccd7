"""Does a cluster measure what one process does, and survive the death of a worker?"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import folders
import pytest
import torch
from command import check_sentence, run

import armillary
from armillary.errors import ClusterError
from armillary.flow.documents import from_any, sample
from armillary.flow.tokens import encode
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery.instrument import MODEL, SHUFFLED
from armillary.probes.machinery.shared_pass import Arm, InstrumentError, Passage, gather
from armillary.reading import Sent
from armillary.results.store import survey_json

distributed = pytest.importorskip("distributed")
from armillary.probes.machinery import cluster  # noqa: E402

# Workers are fresh processes: they import torch and the model's class, which takes seconds.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CLAIMS = "sphere.radius,spectrum.two-zeros,attention.cosine,words.travel"
TEXT = list(sample().texts)[:24]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(folders.model_folder("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


@pytest.fixture(autouse=True, scope="module")
def small():
    """Segments of a few batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("armillary.flow.tokens.SEGMENT_TOKENS", 600)
        yield


@pytest.fixture(scope="module")
def workers():
    """Two processes of one thread."""
    with cluster.cluster_of("local:2") as found:
        yield found


def survey(model, **more):
    settings = {"tokens": 2500, "claims": CLAIMS, "quick": True, "progress": False}
    return armillary.survey(model, TEXT, **settings | more)


def record(result):
    return {key: value for key, value in json.loads(survey_json(result)).items() if key != "times"}


@pytest.fixture(scope="module")
def whole(model):
    return record(survey(model))


def test_a_cluster_measures_what_one_process_does(model, workers, whole):
    assert record(survey(model, dask=workers.client.scheduler.address)) == whole


def test_a_model_that_has_no_folder_travels(model, workers, whole):
    anatomy = armillary.load(model, progress=False)
    assert record(survey(anatomy, dask=workers.client.scheduler.address))["claims"] == whole["claims"]


@dataclass(frozen=True)
class DiesOnce:
    """Lengths; the first worker that sees a third site with it is killed there, in the middle of a segment."""

    flag: str
    name: ClassVar[str] = "dies"
    arms: ClassVar[tuple[str, ...]] = (MODEL, SHUFFLED)
    overwrites: ClassVar[bool] = False

    def start(self, anatomy, corpus, seed):
        watch = LENGTHS.start(anatomy, corpus, seed)
        see, seen = watch.see, []

        def dying(site, view):
            seen.append(site)
            # The process that asks starts one, too, to know an empty state; it sees nothing.
            if len(seen) == 3:
                with suppress(FileExistsError), open(self.flag, "x") as file:
                    file.write(str(os.getpid()))
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
            see(site, view)

        watch.see = dying
        return watch

    def count(self, state):
        return LENGTHS.count(state)

    def bytes(self, anatomy):
        return LENGTHS.bytes(anatomy)


def gathered(anatomy, workers, instrument):
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 2500)
    with workers.holding(Sent.of(anatomy), corpus, 0) as observe:
        return gather(anatomy, corpus, [instrument], reader=Passage(None, observe, ahead=observe.expect))


@pytest.mark.slow
def test_a_worker_that_is_killed_is_survived(model, workers, tmp_path):
    anatomy = armillary.load(model, progress=False)
    before = set(workers.client.run(os.getpid).values())
    evidence = gathered(anatomy, workers, DiesOnce(str(tmp_path / "dead")))
    dead = int((tmp_path / "dead").read_text())
    assert dead in before
    alone = gather(anatomy, evidence.corpus, [LENGTHS])
    for arm in (MODEL, SHUFFLED):
        got, expected = (found.arrays() for found in (next(iter(evidence.states.values()))[arm], alone[LENGTHS][arm]))
        assert all(torch.equal(array, got[name]) for name, array in expected.items())
    # Another took its place, or will.
    assert dead not in workers.client.run(os.getpid).values()


@pytest.mark.slow
def test_all_workers_may_die_at_once(model, workers):
    anatomy = armillary.load(model, progress=False)
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 1000)
    arm = Arm(MODEL, anatomy, corpus, 0)
    with workers.holding(Sent.of(anatomy), corpus, 0) as observe:
        for pid in workers.client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        states, raised = Passage(None, observe)(arm, [LENGTHS], lambda tokens: None)
    assert not raised
    assert LENGTHS.count(states[LENGTHS]) == LENGTHS.count(Passage()(arm, [LENGTHS], lambda tokens: None)[0][LENGTHS])


@pytest.mark.slow
def test_an_instrument_that_raises_on_a_worker_is_lost_alone(model, workers):
    anatomy = armillary.load(model, progress=False)
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 2500)
    with workers.holding(Sent.of(anatomy), corpus, 0) as observe:
        reader = Passage(None, observe, ahead=observe.expect)
        evidence = gather(anatomy, corpus, [LENGTHS, Raises()], reader=reader)
    assert evidence[LENGTHS][MODEL]
    with pytest.raises(InstrumentError, match="'raises' raised ZeroDivisionError: planted"):
        evidence[Raises()][MODEL]


@dataclass(frozen=True)
class Raises(DiesOnce):
    flag: str = ""
    name: ClassVar[str] = "raises"

    def start(self, anatomy, corpus, seed):
        watch = LENGTHS.start(anatomy, corpus, seed)
        watch.see = lambda site, view: _raise()
        return watch


def _raise():
    raise ZeroDivisionError("planted")


def test_what_names_no_cluster_is_refused(model, tmp_path, monkeypatch):
    for address in ("local:0", "local", "local:x", "somewhere"):
        with pytest.raises(ClusterError, match=f"--dask {address} names no cluster; give the address"):
            survey(model, dask=address)
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with pytest.raises(ClusterError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:9 "):
        survey(model, dask="tcp://127.0.0.1:9")
    result = run("survey", model, "--dask", "nowhere", "--out", tmp_path / "out")
    assert result.exit_code == 2
    check_sentence(result.stderr, "--dask nowhere names no cluster")
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "armillary.probes.machinery.cluster")
        patch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ClusterError, match=r"pip install 'armillary\[dask\]'"):
            survey(model, dask="local:2")


def test_a_worker_starts_without_torch():
    code = "import armillary.probes.machinery.cluster, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_of_one_machine_get_a_gpu_each():
    assert [cluster.device_of(worker, 2) for worker in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert cluster.device_of(3, 0) == "cpu"
