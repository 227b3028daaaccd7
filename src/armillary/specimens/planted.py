"""What must be found? Models whose answer is known, planted more and more weakly."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.tokens import Corpus
from armillary.probes import PROBES, AnyProbe
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Finding
from armillary.results.calibration import Planted

# Tells these seeds from those of untrained models and of a survey's twins.
_STREAM = 0x91A27


@dataclass(frozen=True)
class Case:
    """A planted model: `make(strength, seed)` is the evidence of it, on a text drawn with the seed."""

    planted: Planted
    make: Callable[[float, int], Evidence]


def plant(planted: Planted, build: Callable[[], Anatomy], text: Callable[[int], Corpus]) -> Case:
    """A case whose weights are mixed with random ones; `text` draws the text of a seed."""

    def make(strength: float, seed: int) -> Evidence:
        return gather(graded(build(), strength, seed), text(seed), probe_of(planted.claim).instruments, seed)

    return Case(planted, make)


def graded(planted: Anatomy, strength: float, seed: int) -> Anatomy:
    """strength · the planted weights + (1 − strength) · the same architecture at random initialisation."""
    if strength == 1:
        return planted
    model = planted.model
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise ValueError("what is planted by a hook is not in the weights and cannot be graded; try it at strength 1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([_STREAM, seed]).generate_state(1, np.uint64)[0] >> 1))
        mixed = type(model)(model.config).eval()
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in mixed.named_parameters():
            parameter.mul_(1 - strength).add_(weights[name], alpha=strength)
    return read(mixed, planted.name)


def conclude(case: Case, strength: float, seed: int) -> Finding:
    """What a survey would conclude about the case's claim."""
    evidence = case.make(strength, seed)
    assert evidence.corpus is not None
    bench = Bench(evidence.anatomy, evidence.corpus, evidence.untrained, evidence.seed)
    return judge(probe_of(case.planted.claim), evidence, bench)


def probe_of(claim: str) -> AnyProbe:
    return next(probe for probe in PROBES if probe.claim.id == claim)


CASES: tuple[Case, ...] = ()
