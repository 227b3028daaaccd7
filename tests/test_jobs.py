"""Do several processes decide what one does, and lose nothing when something goes wrong?"""

import gc
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import weakref
from types import SimpleNamespace

import folders
import pytest
import torch
from job_probes import Changes, Dies, Raises, Where
from tiny import MAKERS, tiny

import armillary
from armillary.anatomy.loading import weights
from armillary.anatomy.read import read
from armillary.errors import ArmillaryError
from armillary.flow.capture import run, still
from armillary.probes import PROBES, choose
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.bench import ModelChangedError
from armillary.probes.machinery.conclude import begin, conclude, crew_of
from armillary.probes.machinery.instrument import MODEL
from armillary.probes.machinery.processes import jobs, workers
from armillary.probes.machinery.processes.jobs import jobs_for
from armillary.probes.machinery.shared_pass import gather
from armillary.results.store import survey_json
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.texts import corpus

# Of the weights, of the pass, of edited passes, of untrained twins; with draws of each.
CLAIMS = "sphere.ellipsoid,sphere.direction,qk.axes,words.output,stability.reprojection"


@pytest.fixture
def folder(tmp_path):
    return folders.model_folder("gpt2", tmp_path / "gpt2")


@pytest.fixture
def evidence():
    return gather(bag(gaussian()), corpus(), [LENGTHS])


def decided(evidence, probes, asked=True, report=lambda what: None):
    with crew_of(2, []) as crew:
        crew = begin(crew, evidence, probes, True, asked)
        return list(conclude(evidence, probes, True, report, crew))


def test_a_state_is_freed_with_the_last_claim_that_reads_it():
    probes = choose("sphere.radius,spectrum.dimension")
    evidence = gather(bag(gaussian()), corpus(), [LENGTHS, COVARIANCES, SAMPLES])
    states = {instrument: weakref.ref(evidence[instrument][MODEL]) for instrument in (LENGTHS, COVARIANCES, SAMPLES)}
    assert all(instrument in probes[1].instruments for instrument in (COVARIANCES, SAMPLES))
    conclusions = conclude(evidence, probes, True)
    del evidence
    next(conclusions)
    gc.collect()
    held = {instrument for instrument, state in states.items() if state() is not None}
    assert held == set(probes[1].instruments)
    next(conclusions)
    gc.collect()
    assert not any(state() for state in states.values())


def processes(conclusions):
    return {conclusion.finding.statistic.value for conclusion in conclusions}


@pytest.mark.parametrize("start", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_two_processes_decide_what_one_does(folder, monkeypatch, start):
    monkeypatch.setattr(workers, "START", start)
    reports: list[list[str]] = []
    alone = armillary.survey(folder, claims=CLAIMS, quick=True, progress=False)
    shared = armillary.survey(
        folder, claims=CLAIMS, quick=True, progress=False, jobs=2, tell=lambda s: reports.append([f.id for f in s])
    )
    assert not any(finding.verdict == "failed" for finding in alone)
    records = [json.loads(survey_json(survey)) for survey in (alone, shared)]
    assert [record.pop("times")["plan"]["jobs"] for record in records] == [1, 2]
    assert records[0] == records[1]
    # Whatever is decided first, the ledger grows in its own order.
    ids = [finding.id for finding in alone]
    assert reports == [ids[:count] for count in range(len(ids) + 1)]
    assert not multiprocessing.active_children()


def test_every_worker_decides_some(evidence):
    reports: list[list[workers.Doing]] = []
    conclusions = decided(evidence, [Where(str(i)) for i in range(6)], report=reports.append)
    assert {conclusion.finding.id for conclusion in conclusions} == {f"jobs.{i}" for i in range(6)}
    assert len(processes(conclusions)) == 2 and os.getpid() not in processes(conclusions)
    assert any(len({doing.task for doing in what}) == 2 for what in reports)


def test_a_worker_that_dies_loses_nothing(evidence):
    conclusions = decided(evidence, [Where("first"), Dies("dies"), *(Where(str(i)) for i in range(3))])
    assert sorted(c.finding.id for c in conclusions) == ["jobs.0", "jobs.1", "jobs.2", "jobs.dies", "jobs.first"]
    assert all(conclusion.finding.verdict == "supported" for conclusion in conclusions)
    assert next(c for c in conclusions if c.finding.id == "jobs.dies").finding.statistic.value == os.getpid()


def test_a_probe_that_raises_loses_its_own_claim(evidence):
    first, raised, last = sorted(decided(evidence, [Where("a"), Raises("b"), Where("c")]), key=lambda c: c.finding.id)
    assert (first.finding.verdict, raised.finding.verdict, last.finding.verdict) == ("supported", "failed", "supported")
    assert "ZeroDivisionError: by mistake" in raised.finding.reading
    assert 'raise ZeroDivisionError("by mistake")' in raised.traceback


def test_a_changed_model_stops_the_survey(evidence):
    with pytest.raises(ModelChangedError, match=r"jobs.changes: an experiment changed the model"):
        decided(evidence, [Where("a"), Changes("changes")])


def test_what_cannot_be_sent_is_decided_here(evidence):
    probe = Where("local")
    probe.odd = lambda: None
    assert processes(decided(evidence, [probe], asked=False)) == {os.getpid()}
    with pytest.raises(ArmillaryError, match=r"claims cannot be decided in several processes: .* use 1 job"):
        decided(evidence, [probe])


def test_jobs_are_counted_from_one(folder):
    with pytest.raises(ArmillaryError, match="--jobs 0 leaves no process to run; give at least 1"):
        armillary.survey(folder, jobs=0)


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_arrives_as_it_was(name):
    model = read(tiny(name))
    content = io.BytesIO()
    torch.save(model, content)
    content.seek(0)
    arrived = torch.load(content, weights_only=False)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with still(model.model), still(arrived.model):
        assert torch.equal(run(model, ids), run(arrived, ids))
    for sent, received in ((model.W_E, arrived.W_E), (model.blocks[0].attention.W_Q, arrived.blocks[0].attention.W_Q)):
        assert torch.equal(sent, received)
    # Its views are views of the weights that run, in both.
    owned = {parameter.untyped_storage().data_ptr() for parameter in arrived.model.parameters()}
    assert arrived.W_E.untyped_storage().data_ptr() in owned


@pytest.fixture
def machine(monkeypatch):
    """Eight threads and much memory, whatever this machine has."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(weights, "free_memory", lambda device: 1 << 36)


def test_how_many_processes(machine, monkeypatch):
    anatomy = read(tiny("gpt2"))
    assert jobs_for(anatomy, PROBES) == jobs.JOBS
    assert jobs_for(anatomy, PROBES[: 3 * jobs.CLAIMS_EACH]) == 3
    assert jobs_for(anatomy, PROBES[:1]) == 1
    elsewhere = SimpleNamespace(model=anatomy.model, device=torch.device("cuda"))
    assert jobs_for(elsewhere, PROBES) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert jobs_for(anatomy, PROBES) == 2
    monkeypatch.setattr(weights, "free_memory", lambda device: 3 * jobs.PROCESS_BYTES)
    assert jobs_for(anatomy, PROBES) == 1


def test_a_large_model_is_not_copied(machine, monkeypatch):
    anatomy = read(tiny("gpt2"))
    monkeypatch.setattr(jobs, "COPIED", sum(p.numel() for p in anatomy.model.parameters()) - 1)
    assert jobs_for(anatomy, PROBES) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_end_leaves_what_was_decided_and_no_process(tmp_path, ending):
    command = [sys.executable, "-m", "armillary", "survey", "--quick", "--claims", "A,B", "--jobs", "2", "--out", "out"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, start_new_session=True) as process:
        stored = tmp_path / "out" / "survey.json"
        while process.poll() is None and not stored.exists():
            time.sleep(0.2)
        if ending == signal.SIGINT:
            # As a terminal does: to the whole group.
            os.killpg(process.pid, ending)
        else:
            process.send_signal(ending)
        _, errors = process.communicate(timeout=60)
    if ending == signal.SIGINT:
        assert process.returncode == 130
        assert b"armillary: interrupted; the claims that were already decided are saved;" in errors
        assert b"Traceback" not in errors
    assert len(armillary.read(tmp_path / "out")) > 0
    ends = time.monotonic() + 60
    while _lives(process.pid):
        assert time.monotonic() < ends
        time.sleep(0.1)


def _lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
