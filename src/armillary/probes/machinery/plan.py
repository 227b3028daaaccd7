"""How long will a survey take? Passes are counted beforehand, at a speed measured on this machine with this model."""

import time
from collections.abc import Sequence
from typing import Any

from armillary.anatomy import Anatomy
from armillary.flow.capture import run, still
from armillary.flow.controls import twins_for
from armillary.flow.tokens import Corpus, collate
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.probe import AnyProbe, Experimenter
from armillary.results import Plan

# What one watched pass costs beside a bare one at the default budget, all instruments on (bench/overhead.py).
WATCHED = 2.0
# Seconds of algebra a claim takes, and how many more for each million numbers of a layer's width² over all layers.
CLAIM, CLAIM_MILLION = 1.5, 1.5
# A speed from fewer tokens than this says little of a whole batch.
TIMED = 256


def make_plan(anatomy: Anatomy, corpus: Corpus | None, probes: Sequence[AnyProbe], quick: bool, jobs: int = 1) -> Plan:
    """Claims are decided by `jobs` processes, which read nothing."""
    algebra = len(probes) * _algebra(anatomy)
    if corpus is None:
        return Plan(len(probes), 0, 0, 0, 0, algebra / jobs, jobs=jobs)
    experimenters = [probe for probe in probes if isinstance(probe, Experimenter)]
    passes = sum(_passes(probe, anatomy) for probe in experimenters)
    evaluation = Bench(anatomy, corpus, quick=quick).text.tokens
    read = corpus.tokens if any(probe.instruments for probe in probes) else 0
    speed, waits = _speed(anatomy, corpus)
    seconds = (algebra * waits + passes * evaluation / speed) / jobs + arms_of(anatomy) * WATCHED * read / speed
    return Plan(len(probes), len(experimenters), read, passes, evaluation, seconds, arms_of(anatomy), jobs, speed)


def expected_costs(plan: Plan, anatomy: Anatomy, probes: Sequence[AnyProbe]) -> tuple[float, dict[str, float]]:
    """Seconds of reading, and of each claim: what a bar over the whole survey is divided by."""
    each = {}
    read = plan.arms * WATCHED * plan.tokens / plan.speed if plan.speed else 0.0
    experiments = plan.passes * plan.evaluation / plan.speed if plan.speed else 0.0
    algebra = max(0.0, (plan.seconds - read) * plan.jobs - experiments) / max(1, len(probes))
    for probe in probes:
        passes = _passes(probe, anatomy) if isinstance(probe, Experimenter) and plan.speed else 0.0
        run = passes * plan.evaluation / plan.speed if plan.speed else 0.0
        each[probe.claim.id] = (algebra + run) / plan.jobs
    return read, each


def _algebra(anatomy: Anatomy) -> float:
    """Seconds a claim takes beside its passes."""
    return CLAIM + CLAIM_MILLION * anatomy.layers * anatomy.d**2 / 1e6


def arms_of(anatomy: Anatomy) -> int:
    """How many passes read the whole text: the model on it, the model on it shuffled, and every untrained twin."""
    return 2 + twins_for(anatomy)


def _passes(probe: Experimenter[Any], anatomy: Anatomy) -> float:
    try:
        return probe.passes(anatomy)
    except Exception:
        # Its claim fails with this error when its turn comes; the plan of the others stands.
        return 0


def _speed(anatomy: Anatomy, corpus: Corpus) -> tuple[float, float]:
    """Tokens a second, logits included where the model has them, the better of two tries; and how many times longer
    this process takes than it computes, because others use the machine."""
    windows, count = [], 0
    for window in corpus.windows:
        windows.append(window)
        count += len(window.ids)
        if count >= TIMED:
            break
    batch, times = collate(windows, 0), []
    with still(anatomy.model):
        for _ in range(2):
            began, used = time.perf_counter(), time.process_time()
            run(anatomy, batch.ids, batch.mask, logits=anatomy.W_U is not None)
            times.append((time.perf_counter() - began, time.process_time() - used))
    wall, computed = min(times)
    return count / wall, max(1.0, wall / max(computed, 1e-6)) if anatomy.device.type == "cpu" else 1.0
