"""What is a probe? One question, the instruments it needs, and a conclusion from what they recorded."""

from typing import ClassVar, Literal, Protocol

from armillary.probes.evidence import Evidence
from armillary.results import Claim, Finding

Instrument = Literal["lengths", "spectra", "sample"]


class Probe(Protocol):
    """A frozen dataclass whose fields are its settings.

    `instruments` are those of the shared pass it reads ('lengths', 'spectra', 'sample'); none means weights only.
    `scaling` asks for the edited passes too. A probe module imports torch only inside functions, so that the list of
    claims is shown at once.
    """

    claim: ClassVar[Claim]
    instruments: ClassVar[tuple[Instrument, ...]]
    scaling: ClassVar[bool]

    def conclude(self, evidence: Evidence) -> Finding: ...
