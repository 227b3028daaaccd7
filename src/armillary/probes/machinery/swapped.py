"""Which claims say nothing about a model whose norms or heads were swapped?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.probes.machinery.probe import AnyProbe
from armillary.probes.machinery.verdicts import undecided
from armillary.results import Claim, Finding, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

# Claims that read no norm's sphere, but hidden values of the feed-forward layers alone.
WITHOUT_SPHERE = ("ffn.discard", "ffn.compress")
# Claims about W_QK, W_VO, scores, patterns or what one head writes, by the beginning of their names.
OF_HEADS = ("attention.", "qk.", "rank.", "vo.", "heads.", "axes.", "map.", "flow.")
# Claims whose texts are written with a cache of keys and values, or whose states are judged by patterns.
OF_CACHES = ("stability.prefix", "stability.generation", "manifold.errors")


@dataclass(frozen=True)
class NotApplicable:
    """In place of a probe whose claim says nothing about this model."""

    claim: Claim
    reading: str
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        return undecided(self.claim, Why.NOT_APPLICABLE, self.reading)


def applicable(probe: AnyProbe, anatomy: "Anatomy") -> AnyProbe:
    """The probe, or one that says why its claim does not apply to swapped parts."""
    claim, swapped = probe.claim, anatomy.swapped
    if "norms" in swapped and claim.id not in WITHOUT_SPHERE:
        reading = f"This model's norms were swapped for {swapped['norms']}, which sends no state to a sphere."
    elif "heads" in swapped and claim.id.startswith(OF_HEADS):
        reading = f"This model's heads were swapped for {swapped['heads']}: W_QK and W_VO do not give their results."
    elif "heads" in swapped and claim.id in OF_CACHES:
        reading = f"This model's heads were swapped for {swapped['heads']}, without cache and patterns."
    else:
        return probe
    return cast(AnyProbe, NotApplicable(claim, reading))
