"""How are claims decided? One after another, or in several processes; a probe that raises loses only its own claim."""

import io
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from armillary.errors import ArmillaryError, ValuesError
from armillary.flow.controls import Twins
from armillary.probes.machinery.bench import Bench, ModelChangedError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.probe import AnyProbe, Experimenter, judge
from armillary.probes.machinery.processes.workers import (
    CannotBeginError,
    Crew,
    Doing,
    Say,
    WorkerDiedError,
    from_both_ends,
)
from armillary.probes.machinery.verdicts import failed, overflown
from armillary.results import Finding
from armillary.results.store import finding_json


@dataclass(frozen=True)
class Conclusion:
    finding: Finding
    seconds: float
    traceback: str = ""


@contextmanager
def crew_of(jobs: int, modules: Sequence[str]) -> Iterator[Crew | None]:
    """Processes that share the threads of this one; none for one job."""
    if jobs == 1:
        yield None
        return
    with closing(Crew(jobs, max(1, torch.get_num_threads() // jobs), modules)) as crew:
        yield crew


def begin(crew: Crew | None, evidence: Evidence, probes: Sequence[AnyProbe], quick: bool, asked: bool) -> Crew | None:
    """The crew, ready to decide these claims; None if it cannot and nobody asked for one."""
    if crew is None:
        return None
    try:
        crew.begin(SentClaims(evidence, probes, quick))
    except (CannotBeginError, WorkerDiedError) as error:
        crew.close()
        if asked:
            hint = 'use 1 job; in a script, call this below `if __name__ == "__main__":`'
            raise ArmillaryError(f"claims cannot be decided in several processes: {error}; {hint}.") from error
        return None
    return crew


def conclude(
    evidence: Evidence,
    probes: Sequence[AnyProbe],
    quick: bool,
    tell: Callable[[list[Doing]], None] = lambda doing: None,
    crew: Crew | None = None,
) -> Iterator[Conclusion]:
    """Claim by claim, with experiments when their claim's turn comes; a crew, which has begun, decides several at once
    and ends them in any order."""
    left = list(probes)
    if crew is not None:
        give = from_both_ends(range(len(probes)), len(crew))
        try:
            for number, conclusion in crew.results(give, tell):
                left.remove(probes[number])
                yield conclusion
        except WorkerDiedError:
            # What it worked on is begun again here, with the memory that the others give back.
            crew.close()
    if left:
        work = Concluder(evidence, left, quick)
        del evidence
        for number in range(len(left)):
            yield work(number, lambda doing: tell([doing]))[1]


class Concluder:
    """Decides the claims of one survey, given the number of a probe.

    A state that no probe still to come reads is dropped here, and freed unless the caller keeps the evidence.
    """

    def __init__(self, evidence: Evidence, probes: Sequence[AnyProbe], quick: bool) -> None:
        self._probes, self._left = probes, set(range(len(probes)))
        self._states = dict(evidence.states)
        self._evidence = replace(evidence, states=self._states)
        self._bench: Bench | None = None
        if evidence.corpus is not None and any(isinstance(probe, Experimenter) for probe in probes):
            self._bench = Bench(evidence.anatomy, evidence.corpus, evidence.untrained, evidence.seed, quick)
            self._bench.prove()

    def __call__(self, number: int, say: Say) -> tuple[int, Conclusion]:
        probe = self._probes[number]
        began, trace = time.perf_counter(), ""
        say(Doing(probe.claim.id, probe.claim.id))
        try:
            if self._bench is not None and isinstance(probe, Experimenter):
                self._bench.tick = _ticker(probe, self._bench, say)
            finding = judge(probe, self._evidence, self._bench)
            # What cannot be stored is this probe's error, not the survey's.
            finding_json(finding)
        except ModelChangedError as error:
            # Nothing that is measured on a changed model can be believed.
            raise ModelChangedError(f"{probe.claim.id}: {error}") from error
        except ValuesError as error:
            finding = overflown(probe.claim, str(error).rstrip("."))
        except Exception as error:
            finding, trace = failed(probe.claim, error), f"{probe.claim.id}\n{traceback.format_exc()}"
        self._left.discard(number)
        read = {instrument for left in self._left for instrument in self._probes[left].instruments}
        for instrument in self._states.keys() - read:
            del self._states[instrument]
        return number, Conclusion(finding, round(time.perf_counter() - began, 2), trace)


def _ticker(probe: Experimenter[Any], bench: Bench, say: Say) -> Callable[[int], None]:
    claim, most, done = probe.claim.id, probe.passes(bench.anatomy), [0.0]

    def tick(tokens: int) -> None:
        before, done[0] = round(done[0]), done[0] + tokens / max(1, bench.text.tokens)
        if round(done[0]) > before:
            share = min(1.0, done[0] / most) if most else 0.0
            # How many passes it takes is an estimate, and once it is passed it says nothing.
            of = f" of about {most:.0f}" if done[0] <= most else ""
            say(Doing(f"{claim}: {done[0]:.0f}{of} passes", claim, share))

    return tick


@dataclass(frozen=True, eq=False)
class SentClaims:
    """All that a survey's claims are decided from, as it travels to another process; called, it is ready to work."""

    evidence: Evidence
    probes: Sequence[AnyProbe]
    quick: bool

    def __reduce__(self) -> "tuple[Callable[[bytes], SentClaims], tuple[bytes]]":
        """By torch, which knows that several tensors are views of one weight; pickle alone would send each."""
        anatomy, twins = self.evidence.anatomy, len(self.evidence.untrained)
        content, states = io.BytesIO(), dict(self.evidence.states)
        torch.save((anatomy, self.evidence.corpus, twins, states, self.evidence.seed, self.probes, self.quick), content)
        return _received, (content.getvalue(),)

    def __call__(self) -> Concluder:
        return Concluder(self.evidence, self.probes, self.quick)


def _received(content: bytes) -> SentClaims:
    # The bytes come from the parent process alone.
    anatomy, corpus, twins, states, seed, probes, quick = torch.load(io.BytesIO(content), weights_only=False)
    # Untrained twins follow from their seeds.
    return SentClaims(Evidence(anatomy, corpus, Twins(anatomy, seed, twins), states, seed), probes, quick)
