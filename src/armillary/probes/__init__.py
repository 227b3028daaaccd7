"""One question per file, its claim beside it. A probe joins in one line here."""

from armillary.errors import ArmillaryError, nearest
from armillary.probes.attention.cosine import Cosine
from armillary.probes.attention.geodesic import Geodesic
from armillary.probes.attention.lookup import Lookup
from armillary.probes.attention.nullspace import Nullspace
from armillary.probes.attention.principal_axes import Axes
from armillary.probes.attention.related import Related
from armillary.probes.attention.score_scale import Scale
from armillary.probes.attention.store import Store
from armillary.probes.attention.subjects import Subjects
from armillary.probes.attention.two_views import TwoViews
from armillary.probes.filter.compress import Compress
from armillary.probes.filter.discard import Discard
from armillary.probes.filter.select import Select
from armillary.probes.grid.coarse import Coarse
from armillary.probes.grid.gradients import HeadGradients
from armillary.probes.grid.head_axes import HeadAxes
from armillary.probes.grid.nonlinear import Nonlinear
from armillary.probes.grid.orthogonality import Orthogonality
from armillary.probes.grid.specialise import Specialise
from armillary.probes.machinery.probe import Probe
from armillary.probes.sphere.concentration import Concentration
from armillary.probes.sphere.dimension import Dimension
from armillary.probes.sphere.direction import Direction
from armillary.probes.sphere.ellipsoid import Ellipsoid
from armillary.probes.sphere.local import Local
from armillary.probes.sphere.plane import Plane
from armillary.probes.sphere.radius import Radius
from armillary.probes.sphere.two_zeros import TwoZeros
from armillary.probes.stability.drift import Drift
from armillary.probes.stability.off_manifold import Errors
from armillary.probes.stability.prefix import Prefix
from armillary.probes.stability.reprojection import Reprojection
from armillary.probes.words.artifact import Artifact
from armillary.probes.words.output import Output
from armillary.probes.words.refine import Refine
from armillary.probes.words.travel import Travel
from armillary.results import CHAPTERS, Claim

PROBES: tuple[Probe, ...] = (
    Radius(),
    Plane(),
    Ellipsoid(),
    Concentration(),
    Direction(),
    TwoZeros(),
    Local(),
    Dimension(),
    TwoViews(),
    Cosine(),
    Scale(),
    Geodesic(),
    Related(),
    Lookup(),
    Axes(),
    Nullspace(),
    Store(),
    Subjects(),
    Travel(),
    Refine(),
    Artifact(),
    Output(),
    Prefix(),
    Drift(),
    Reprojection(),
    Errors(),
    Discard(),
    Compress(),
    Select(),
    HeadAxes(),
    Orthogonality(),
    HeadGradients(),
    Specialise(),
    Nonlinear(),
    Coarse(),
)


def claims() -> tuple[Claim, ...]:
    return tuple(probe.claim for probe in PROBES)


def choose(asked: str) -> tuple[Probe, ...]:
    """The probes that a comma-separated list of claim ids, chapter letters or 'all' names, in the book's order.

    >>> [probe.claim.id for probe in choose("sphere.plane,sphere.radius")]
    ['sphere.radius', 'sphere.plane']
    """
    wanted: set[str] = set()
    known = {probe.claim.id: probe.claim.chapter for probe in PROBES}
    for word in (part.strip() for part in asked.split(",")):
        if word in known:
            wanted.add(word)
        elif word.lower() == "all":
            wanted.update(known)
        elif word.upper() in CHAPTERS:
            chapter = [claim for claim, letter in known.items() if letter == word.upper()]
            if not chapter:
                ready = ", ".join(sorted(set(known.values())))
                raise ArmillaryError(
                    f"chapter {word.upper()} ({CHAPTERS[word.upper()]}) has no probe yet; measured so far: {ready}."
                )
            wanted.update(chapter)
        else:
            raise ArmillaryError(f"there is no claim {word!r}; {nearest(word, [*known, *CHAPTERS, 'all'])}")
    return tuple(probe for probe in PROBES if probe.claim.id in wanted)


__all__ = ["CHAPTERS", "PROBES", "Probe", "choose", "claims"]
