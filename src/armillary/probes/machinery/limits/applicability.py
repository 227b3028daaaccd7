"""Which claims say nothing about a model: because parts were swapped, or because it has no such parts?"""

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
OF_HEADS = ("attention.", "qk.", "rank.", "vo.", "heads.", "axes.", "map.", "flow.", "others.brody")
# Claims whose texts are written with a cache of keys and values, or whose states are judged by patterns.
OF_CACHES = ("stability.prefix", "stability.generation", "manifold.errors", "others.massive")
# Claims about feed-forward layers that compare them with heads.
BESIDE_HEADS = ("ffn.store",)
# Claims that read the hidden values of feed-forward layers.
OF_HIDDEN = ("ffn.", "map.")
# Of those, claims that read experts one by one and together.
OF_EXPERTS = ("ffn.",)
# Claims that take feed-forward layers out of a model.
OF_TWO_SUBLAYERS = ("others.collapse",)
# Claims about what attention and the feed-forward layer do one after the other, with no third sublayer between them.
OF_TWO_STEPS = ("words.travel", "flow.coarse", "others.collapse", "ffn.write")
# Claims that edit queries and keys after their rotation.
OF_HEAD_EDITS = ("heads.axes",)
# Claims that follow the stream from norm to norm, or fold a norm into what reads it.
OF_READING_NORMS = (
    *("words.travel", "words.refine", "words.artifact", "words.output", "sphere.shared", "cycle.isotropy"),
    *("ffn.store", "ffn.write", "attention.scale", "qk.axes", "flow.coarse", "others.brody"),
)
# Claims about words, a vocabulary, or the prediction of the next token.
OF_WORDS = (
    *("words.", "sphere.direction", "sphere.shared", "qk.related", "qk.lookup", "qk.subjects", "vo.", "ffn.select"),
    *("ffn.store", "heads.axes", "heads.gradients", "heads.language", "heads.emerge", "axes.privileged"),
    "manifold.errors",
)
# Claims that shorten, extend or slide what is read, which cannot be done with an image or a clip of fixed size.
OF_LENGTHS = ("stability.prefix", "stability.drift", "stability.reprojection", "stability.generation")
# Claims about distances along a text; patches of an image lie in a plane.
OF_SEQUENCES = ("others.straight", "flow.coarse")


@dataclass(frozen=True)
class NotApplicable:
    """In place of a probe whose claim says nothing about this model."""

    claim: Claim
    reading: str
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        return undecided(self.claim, Why.NOT_APPLICABLE, self.reading)


def applicable(probe: AnyProbe, anatomy: "Anatomy") -> AnyProbe:
    """The probe, or one that says why its claim does not apply."""
    reading = _swapped(probe.claim, anatomy) or _missing(probe.claim, anatomy)
    return cast(AnyProbe, NotApplicable(probe.claim, reading)) if reading else probe


def _swapped(claim: Claim, anatomy: "Anatomy") -> str:
    """Why a claim says nothing about swapped parts; '' where it does."""
    swapped = anatomy.swapped
    if "norms" in swapped and claim.id not in WITHOUT_SPHERE:
        return f"This model's norms were swapped for {swapped['norms']}, which sends no state to a sphere."
    if "heads" in swapped and claim.id.startswith(OF_HEADS):
        return f"This model's heads were swapped for {swapped['heads']}: W_QK and W_VO do not give their results."
    if "heads" in swapped and claim.id in OF_CACHES:
        return f"This model's heads were swapped for {swapped['heads']}, without cache and patterns."
    return ""


def _without_text(claim: Claim, reads: str) -> str:
    """Why a claim says nothing about a model of images or sound; '' where it does."""
    if claim.id.startswith(OF_WORDS):
        return f"The claim is about words or the next token; this model reads {reads} and has no vocabulary."
    if claim.id in OF_LENGTHS:
        return f"The claim is about texts that grow or slide; this model reads {reads} of one fixed size."
    if reads == "images" and claim.id in OF_SEQUENCES:
        return "The claim is about distances along a text; patches of an image lie in a plane, not in a row."
    return ""


def _missing(claim: Claim, anatomy: "Anatomy") -> str:
    """Why a claim says nothing about a model of this kind; '' where it does."""
    from armillary.anatomy import FeedForward, Routed

    opaque = anatomy.opaque
    if anatomy.signal is not None and (reading := _without_text(claim, anatomy.reads)):
        return reading
    if "heads" in opaque and (claim.id.startswith(OF_HEADS) or claim.id in BESIDE_HEADS):
        return f"Layers of this model mix tokens by {opaque['heads']}: it has no heads with matrices W_QK and W_VO."
    if "heads" in opaque and claim.id in OF_CACHES:
        return f"Layers of this model mix tokens by {opaque['heads']}: no patterns, and no cache of keys and values."
    known = all(isinstance(block.channels, FeedForward | Routed) for block in anatomy.blocks)
    routed = known and claim.id.startswith(OF_EXPERTS)
    if "hidden" in opaque and claim.id.startswith(OF_HIDDEN) and not routed:
        return f"The claim is about the hidden values of dense feed-forward layers; here: {opaque['hidden']}."
    if claim.id in OF_TWO_SUBLAYERS and any(block.channels is None for block in anatomy.blocks):
        return (
            "The claim compares two sublayers, and blocks of this model have one write: no feed-forward of their own."
        )
    if anatomy.encoder is not None and claim.id in OF_TWO_STEPS:
        return "The claim is about blocks of two sublayers; this decoder attends to its encoder between them."
    if anatomy.encoder is not None and claim.id in (*OF_LENGTHS, "manifold.errors"):
        return "The claim is about texts that grow or slide; this decoder's encoder would read another text each time."
    if not anatomy.head_edits and claim.id in OF_HEAD_EDITS:
        return f"{anatomy.family} models attend by code of their own, in which queries and keys cannot be edited."
    if anatomy.unnormed and claim.id in OF_READING_NORMS:
        return "Layers of this model read the stream itself: its norms stand on what is written, not before sublayers."
    return ""
