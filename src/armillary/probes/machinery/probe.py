"""What is a probe? One question, the instruments it reads, and a conclusion from what they recorded."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from armillary.probes.machinery.evidence import MODEL, Evidence
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.probes.machinery.limits import with_limits
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.probes.machinery.tables import site_table
from armillary.probes.machinery.verdicts import undecided
from armillary.results import VERDICTS, Claim, Finding, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

R = TypeVar("R")


class Probe(Protocol):
    """A frozen dataclass whose fields are its settings. `instruments` are those of the shared pass that it reads; none
    means that it reads weights alone. A rule that draws no interval over documents sets `needs_documents` to False: it
    then decides with few of them as well. A probe module imports torch only inside functions, so that `armillary
    claims` starts at once."""

    claim: ClassVar[Claim]
    instruments: ClassVar[tuple[AnyInstrument, ...]]

    def conclude(self, evidence: Evidence) -> Finding: ...


@runtime_checkable
class Experimenter(Protocol[R]):
    """A probe that needs passes of its own, edited ones or of other tokens than the text's: `conclude` gets what
    `experiment` returned."""

    claim: ClassVar[Claim]
    instruments: ClassVar[tuple[AnyInstrument, ...]]

    def passes(self, anatomy: "Anatomy") -> float:
        """Whole passes over the evaluation text, at most; those of a twin count as well."""
        ...

    def experiment(self, bench: "Bench") -> R: ...

    def conclude(self, evidence: Evidence, result: R) -> Finding: ...


AnyProbe = Probe | Experimenter[Any]


def reads_text(probe: AnyProbe) -> bool:
    return bool(probe.instruments) or isinstance(probe, Experimenter)


def needs_documents(probe: AnyProbe) -> bool:
    """Does its rule draw intervals over documents? So it does, unless the probe says otherwise."""
    return bool(getattr(probe, "needs_documents", True))


def judge(probe: AnyProbe, evidence: Evidence, bench: "Bench | None" = None) -> Finding:
    """A probe's finding, or `undecided` where the text cannot carry any: what no rule needs to repeat.

    A probe that experiments does so on `bench`.
    """
    if evidence.corpus is None or not reads_text(probe):
        return _concluded(probe, evidence, bench)
    counts = [instrument.count(evidence[instrument][MODEL]) for instrument in probe.instruments]
    fewest, what = min(counts or [(evidence.tokens, "tokens")])
    if fewest < T.tokens_least:
        reading = f"A verdict needs {T.tokens_least} {what}; the text has {fewest}. Give more text or longer documents."
        return undecided(probe.claim, Why.TOO_LITTLE_TEXT, reading, site_table(evidence.sites), fewest)
    finding = _concluded(probe, evidence, bench)
    documents = evidence.corpus.documents
    if documents >= T.documents_least or finding.why is not None:
        return finding
    if not needs_documents(probe) or not finding.of_text:
        return finding
    reading = f"An interval needs {T.documents_least} documents; the text has {documents}. Give more text. Without it: "
    return replace(finding, verdict="undecided", why=Why.NO_INTERVAL, reading=reading + finding.reading)


def _concluded(probe: AnyProbe, evidence: Evidence, bench: "Bench | None") -> Finding:
    if not isinstance(probe, Experimenter):
        return _complete(probe.claim, probe.conclude(evidence), evidence)
    if bench is None:
        raise ValueError(f"{probe.claim.id} makes experiments and needs a bench")
    try:
        result = probe.experiment(bench)
    finally:
        # An experiment that raised may have left the model changed as well.
        bench.prove()
    return _complete(probe.claim, probe.conclude(evidence, result), evidence)


def _complete(claim: Claim, finding: Any, evidence: Evidence) -> Finding:
    """The finding with its limits, if it can stand in a ledger."""
    if not isinstance(finding, Finding):
        raise TypeError(f"conclude returned {finding!r}; it must return a Finding")
    if finding.claim != claim:
        raise ValueError(f"conclude returned a finding of {finding.claim.id}, not of {claim.id}")
    if finding.verdict not in VERDICTS:
        raise ValueError(f"the verdict is {finding.verdict!r}; it must be one of {', '.join(VERDICTS)}")
    if finding.verdict == "undecided" and finding.why is None:
        raise ValueError("the verdict is undecided and `why` is None; give one of results.Why")
    return with_limits(finding, evidence.anatomy)
