"""Does a cluster measure what one process does, and survive the death of a worker?"""

import json
import os
import signal
import subprocess
import sys
import time
from threading import Event, Timer
from types import ModuleType

import folders
import pytest
import torch
from cluster_instruments import DiesOnce, Raises
from command import check_sentence, run

import armillary
from armillary.errors import ClusterError
from armillary.flow.documents import from_any, sample
from armillary.flow.tokens import encode
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery.instrument import MODEL, SHUFFLED
from armillary.probes.machinery.shared_pass import InstrumentError, PassArm, SegmentReader, gather
from armillary.results.store import survey_json
from armillary.survey_states import SentModel

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402

from armillary.probes.machinery.processes import cluster  # noqa: E402
from armillary.probes.machinery.processes.workers import prepare  # noqa: E402

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
    """Two processes of one thread, forked from one that has imported what all need: five of them live in this file."""
    method = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    with method, pytest.MonkeyPatch.context() as patch:
        # Dask would ask for modules of its own only.
        patch.setattr("distributed.utils._forkserver_preload_set", True)
        prepare(["distributed", "armillary.survey_states", "transformers.models.gpt2.modeling_gpt2"])
        with cluster.cluster_of("local:2") as workers:
            yield workers


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


def gathered(anatomy, workers, instrument):
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 2500)
    with workers.holding(SentModel.of(anatomy), corpus, 0) as observe:
        return gather(anatomy, corpus, [instrument], reader=SegmentReader(None, observe, ahead=observe.expect))


def test_a_worker_that_is_killed_is_survived(model, workers, tmp_path):
    anatomy = armillary.load(model, progress=False)
    before = set(workers.client.run(os.getpid).values())
    evidence = gathered(anatomy, workers, DiesOnce(str(tmp_path / "dead")))
    dead = int((tmp_path / "dead").read_text())
    assert dead in before
    alone = gather(anatomy, evidence.corpus, [LENGTHS])
    for arm in (MODEL, SHUFFLED):
        got, expected = (state.arrays() for state in (next(iter(evidence.states.values()))[arm], alone[LENGTHS][arm]))
        assert all(torch.equal(array, got[name]) for name, array in expected.items())
    # Another took its place, or will.
    assert dead not in workers.client.run(os.getpid).values()


def test_all_workers_may_die_at_once(model, workers):
    anatomy = armillary.load(model, progress=False)
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 1000)
    arm = PassArm(MODEL, anatomy, corpus, 0)
    with workers.holding(SentModel.of(anatomy), corpus, 0) as observe:
        for pid in workers.client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        states, raised = SegmentReader(None, observe)(arm, [LENGTHS], lambda tokens: None)
    assert not raised
    assert LENGTHS.count(states[LENGTHS]) == LENGTHS.count(
        SegmentReader()(arm, [LENGTHS], lambda tokens: None)[0][LENGTHS]
    )


def test_an_instrument_that_raises_on_a_worker_is_lost_alone(model, workers):
    anatomy = armillary.load(model, progress=False)
    corpus = encode(from_any(TEXT), anatomy.tokenizer, anatomy.context, 2500)
    with workers.holding(SentModel.of(anatomy), corpus, 0) as observe:
        reader = SegmentReader(None, observe, ahead=observe.expect)
        evidence = gather(anatomy, corpus, [LENGTHS, Raises()], reader=reader)
    assert evidence[LENGTHS][MODEL]
    with pytest.raises(InstrumentError, match="'raises' raised ZeroDivisionError: planted"):
        evidence[Raises()][MODEL]


def test_what_workers_cannot_import_ends_with_a_sentence(model, workers, monkeypatch):
    """A class of a module that exists in this process alone."""
    elsewhere = ModuleType("nowhere_else")
    elsewhere.Raises = type("Raises", (Raises,), {"__module__": "nowhere_else", "__qualname__": "Raises"})
    monkeypatch.setitem(sys.modules, "nowhere_else", elsewhere)
    anatomy = armillary.load(model, progress=False)
    message = r"cannot import what it was sent \(ModuleNotFoundError: No module named 'nowhere_else'\); install"
    with pytest.raises(ClusterError, match=message):
        gathered(anatomy, workers, elsewhere.Raises())
    with pytest.raises(ClusterError, match=message):
        list(workers.map(repr, [elsewhere.Raises()]))


RELEASED = Event()


def waits(number):
    RELEASED.wait()
    return number


def test_a_cluster_that_does_nothing_is_given_up(monkeypatch):
    """No worker; a worker that never begins. One that works is waited for, however long."""
    monkeypatch.setattr(cluster, "LOOK", 0.05)
    monkeypatch.setattr(cluster, "EMPTY", 0.3)
    monkeypatch.setattr(cluster, "IDLE", 0.3)
    in_threads = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**in_threads) as threads, threads.get_client() as client:
        workers = cluster.Cluster(client)
        with pytest.raises(ClusterError, match=r"has had no worker for \d+ seconds; start some"):
            list(workers.map(abs, [-1]))
        threads.scale(1)
        client.wait_for_workers(1)
        future = client.submit(waits, 3)
        while workers._workers() != (1, 1):
            time.sleep(0.05)
        Timer(1, RELEASED.set).start()
        assert workers.result(future) == 3
        (worker,) = threads.workers.values()
        while workers._workers() != (1, 0):
            time.sleep(0.05)
        monkeypatch.setattr(worker.state, "nthreads", 0)
        with pytest.raises(ClusterError, match=r"1 workers of the dask cluster have done nothing for \d+ seconds"):
            list(workers.map(abs, [-1]))


def test_what_names_no_cluster_is_refused(model, tmp_path, monkeypatch):
    for address in ("local:0", "local", "local:x", "somewhere"):
        with pytest.raises(ClusterError, match=f"--dask {address} is not a cluster; give the address"):
            survey(model, dask=address)
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with pytest.raises(ClusterError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:9 "):
        survey(model, dask="tcp://127.0.0.1:9")
    result = run("survey", model, "--dask", "nowhere", "--out", tmp_path / "out")
    assert result.exit_code == 2
    check_sentence(result.stderr, "--dask nowhere is not a cluster")
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "armillary.probes.machinery.processes.cluster")
        patch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ClusterError, match=r"pip install 'armillary\[dask\]'"):
            survey(model, dask="local:2")


def test_a_worker_starts_without_torch():
    code = "import armillary.probes.machinery.processes.cluster, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_of_one_machine_get_a_gpu_each():
    assert [cluster.device_of(worker, 2) for worker in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert cluster.device_of(3, 0) == "cpu"
