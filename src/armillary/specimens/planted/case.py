"""What must be found? Models whose answer is known, planted more and more weakly."""

from collections.abc import Callable
from dataclasses import dataclass

from armillary.anatomy import Anatomy
from armillary.flow.tokens import Corpus
from armillary.probes import PROBES, AnyProbe
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Finding, Verdict
from armillary.results.calibration import STRENGTHS, Planted
from armillary.specimens.models.draws import seeded

# Tells this stream from those of the models' own numbers.
_INITIAL = 0x91A27

Specimen = tuple[Anatomy, Corpus | None]
"""A model and its text; a claim about weights alone needs none."""


@dataclass(frozen=True)
class Case:
    """A planted model: `make(strength, seed)` gives it and its text, both drawn with the seed. At strength 1 the effect
    has its full size, below it that share of it."""

    planted: Planted
    make: Callable[[float, int], Specimen]


def certain(name: str, claim: str, verdict: Verdict, make: Callable[[int], Specimen]) -> Case:
    """A case that has no size: it is there or not."""
    return Case(Planted(name, claim, verdict, (1.0,)), lambda strength, seed: make(seed))


def sized(
    name: str,
    claim: str,
    verdict: Verdict,
    size: str,
    make: Callable[[float, int], Specimen],
    strengths: tuple[float, ...] = STRENGTHS,
    matters: float = 1.0,
) -> Case:
    """A case whose effect has a size; `matters` is the strength from which on it must be found."""
    return Case(Planted(name, claim, verdict, strengths, matters, size), make)


def draw(case: Case, strength: float = 1.0, seed: int = 0) -> Specimen:
    """The model and its text, the same for the same seed."""
    # What a model leaves at Hugging Face's initialisation is drawn from torch's own generator.
    with seeded(_INITIAL, seed):
        return case.make(strength, seed)


def evidence_of(case: Case, strength: float = 1.0, seed: int = 0) -> Evidence:
    """What a survey of the case would gather for its claim; the seed is the survey's as well."""
    return gather(*draw(case, strength, seed), probe_of(case.planted.claim).instruments, seed)


def conclude(case: Case, strength: float = 1.0, seed: int = 0) -> Finding:
    """What a survey would conclude about the case's claim."""
    evidence = evidence_of(case, strength, seed)
    probe, text = probe_of(case.planted.claim), evidence.corpus
    if text is None:
        return judge(probe, evidence)
    bench = Bench(evidence.anatomy, text, evidence.untrained, seed)
    bench.prove()
    return judge(probe, evidence, bench)


def probe_of(claim: str) -> AnyProbe:
    return next(probe for probe in PROBES if probe.claim.id == claim)
