"""What is a probe? One question, the instruments it needs, and a conclusion from what they recorded."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Finding, Statistic, Table

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

Instrument = Literal["lengths", "spectra", "sample", "attention", "travel"]


class Probe(Protocol):
    """A frozen dataclass whose fields are its settings.

    `instruments` are those of the shared pass it reads ('lengths', 'spectra', 'sample', 'attention', 'travel'); none
    means that it reads none. A probe module imports torch only inside functions, so that the list of claims is shown at
    once.
    """

    claim: ClassVar[Claim]
    instruments: ClassVar[tuple[Instrument, ...]]

    def conclude(self, evidence: Evidence) -> Finding: ...


@runtime_checkable
class Experimenter(Probe, Protocol):
    """A probe that needs passes of its own: edited ones, or of other tokens than the text's.

    What `experiment` returns is found in `evidence.found[claim id]` when it concludes.
    """

    def passes(self, anatomy: "Anatomy") -> float:
        """Whole passes over the evaluation text, at most; those of a twin count as well."""
        ...

    def experiment(self, bench: "Bench") -> Any: ...


def judge(probe: Probe, evidence: Evidence) -> Finding:
    """A probe's finding, or `undecided` where the text cannot carry any: what no rule needs to repeat."""
    if evidence.corpus is None or not (probe.instruments or isinstance(probe, Experimenter)):
        return probe.conclude(evidence)
    documents = evidence.corpus.documents
    counts = {"ordinary tokens": evidence.ordinary if probe.instruments else evidence.tokens}
    counts |= {"queries with enough keys": evidence.queries} if "attention" in probe.instruments else {}
    counts |= {"tokens between two others": evidence.followed} if "travel" in probe.instruments else {}
    what, fewest = min(counts.items(), key=lambda count: count[1])
    if fewest < T.tokens_least:
        nothing = float("nan")
        return Finding(
            claim=probe.claim,
            verdict="undecided",
            statistic=Statistic("not measured", nothing, nothing, nothing),
            n=fewest,
            controls=(),
            reading=f"Only {fewest} {what}, and {T.tokens_least} are the least; give more text, or longer documents.",
            headline="Too little text: nothing can be concluded",
            table=Table((Column("site", "norm site"),), tuple((site,) for site in evidence.sites)),
        )
    found = probe.conclude(evidence)
    if documents >= T.documents_least or (found.verdict == "undecided" and "more text" in found.reading):
        return found
    why = f"Only {documents} documents, and intervals need {T.documents_least}: give more text. Without them: "
    return replace(found, verdict="undecided", reading=why + found.reading)
