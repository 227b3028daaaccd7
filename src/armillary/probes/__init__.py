"""One question per file, its claim beside it. A probe is added by one line here, or by an entry point."""

from functools import cache

from armillary.errors import ArmillaryError, nearest
from armillary.probes.attention.cosine import Cosine
from armillary.probes.attention.geodesic import Geodesic
from armillary.probes.attention.key_value_store import Store
from armillary.probes.attention.lookup import KeyLookup
from armillary.probes.attention.nullspace import Nullspace
from armillary.probes.attention.principal_axes import PrincipalAxes
from armillary.probes.attention.qk_subjects import QuerySubjects
from armillary.probes.attention.related import Related
from armillary.probes.attention.score_scale import ScoreScale
from armillary.probes.attention.subjects import Subjects
from armillary.probes.attention.two_views import TwoViews
from armillary.probes.filter.compress import Compress
from armillary.probes.filter.discard import Discard
from armillary.probes.filter.forward_store import ForwardStore
from armillary.probes.filter.select import Select
from armillary.probes.filter.write import ForwardWrite
from armillary.probes.grid.coarse import Coarse
from armillary.probes.grid.emerge import HeadEmergence
from armillary.probes.grid.gradients import HeadGradients
from armillary.probes.grid.head_axes import HeadAxes
from armillary.probes.grid.head_language import HeadLanguage
from armillary.probes.grid.head_regions import HeadRegions
from armillary.probes.grid.nonlinear import Nonlinear
from armillary.probes.grid.orthogonality import Orthogonality
from armillary.probes.grid.privileged import Privileged
from armillary.probes.grid.specialise import HeadSpecialisation
from armillary.probes.machinery.probe import AnyProbe, Probe
from armillary.probes.others.anisotropy import Anisotropy
from armillary.probes.others.collapse import Collapse
from armillary.probes.others.id_peak import IdPeak
from armillary.probes.others.linear import Linear
from armillary.probes.others.massive import Massive
from armillary.probes.others.selectable import Selectable
from armillary.probes.others.straight import Straight
from armillary.probes.sphere.concentration import Concentration
from armillary.probes.sphere.contrast import Contrast
from armillary.probes.sphere.dimension import EffectiveDimension
from armillary.probes.sphere.direction import Direction
from armillary.probes.sphere.ellipsoid import Ellipsoid
from armillary.probes.sphere.isotropy import Isotropy
from armillary.probes.sphere.local import Local
from armillary.probes.sphere.plane import Plane
from armillary.probes.sphere.radius import Radius
from armillary.probes.sphere.shared import Shared
from armillary.probes.sphere.two_zeros import TwoZeros
from armillary.probes.stability.drift import Drift
from armillary.probes.stability.generation import Generation
from armillary.probes.stability.manifold_errors import ManifoldErrors
from armillary.probes.stability.positions import PositionRules
from armillary.probes.stability.prefix import Prefix
from armillary.probes.stability.reprojection import Reprojection
from armillary.probes.words.artifact import Artifact
from armillary.probes.words.context import Context
from armillary.probes.words.output import Output
from armillary.probes.words.refinement import Refinement
from armillary.probes.words.travel import Travel
from armillary.results import CHAPTERS, KINDS, Claim

PROBES: tuple[AnyProbe, ...] = (
    Radius(),
    Plane(),
    Ellipsoid(),
    Concentration(),
    Direction(),
    TwoZeros(),
    Local(),
    EffectiveDimension(),
    Isotropy(),
    Contrast(),
    Shared(),
    TwoViews(),
    Cosine(),
    ScoreScale(),
    Geodesic(),
    Related(),
    KeyLookup(),
    PrincipalAxes(),
    QuerySubjects(),
    Nullspace(),
    Store(),
    Subjects(),
    Travel(),
    Refinement(),
    Artifact(),
    Output(),
    Context(),
    Prefix(),
    Drift(),
    Reprojection(),
    Generation(),
    ManifoldErrors(),
    PositionRules(),
    Discard(),
    Compress(),
    Select(),
    ForwardStore(),
    ForwardWrite(),
    HeadAxes(),
    Orthogonality(),
    HeadGradients(),
    HeadSpecialisation(),
    HeadLanguage(),
    HeadEmergence(),
    HeadRegions(),
    Nonlinear(),
    Coarse(),
    Privileged(),
    Massive(),
    Anisotropy(),
    Linear(),
    Straight(),
    IdPeak(),
    Collapse(),
    Selectable(),
)


@cache
def outside() -> dict[str, tuple[AnyProbe, ...]]:
    """Installed package → the probes it offers by the entry point group `armillary.probes`.

    An entry point names a probe or a tuple of probes. One that cannot be loaded, or that takes a claim's id twice, is
    refused by name: a ledger in which a claim is silently missing would mislead.
    """
    from importlib.metadata import entry_points

    offers: dict[str, tuple[AnyProbe, ...]] = {}
    taken = {probe.claim.id: "armillary" for probe in PROBES}
    for point in sorted(entry_points(group="armillary.probes"), key=lambda point: point.name):
        package = point.dist.name if point.dist is not None else point.value
        try:
            offer = point.load()
        except Exception as error:
            raise ArmillaryError(
                f"the package {package} offers probes by {point.value!r}, which cannot be loaded "
                f"({type(error).__name__}: {error}); repair or uninstall it."
            ) from error
        for probe in offer if isinstance(offer, tuple) else (offer,):
            if not _is_probe(probe):
                raise ArmillaryError(
                    f"the package {package} offers {probe!r} as a probe; a probe is an object with a `claim` of a "
                    f"chapter {', '.join(CHAPTERS)}, `instruments` and `conclude`; repair or uninstall it."
                )
            if probe.claim.id in taken:
                raise ArmillaryError(
                    f"the package {package} offers the claim {probe.claim.id}, which {taken[probe.claim.id]} has "
                    "already; rename it or uninstall the package."
                )
            taken[probe.claim.id] = package
            offers[package] = (*offers.get(package, ()), probe)
    return offers


def _is_probe(offer: object) -> bool:
    claim, instruments = getattr(offer, "claim", None), getattr(offer, "instruments", None)
    listed = isinstance(claim, Claim) and claim.chapter in CHAPTERS and claim.kind in KINDS
    listed = listed and isinstance(instruments, tuple)
    return listed and not isinstance(offer, type) and callable(getattr(offer, "conclude", None))


def available() -> tuple[AnyProbe, ...]:
    """Our own probes, then those of other packages, in the order of their chapters."""
    every = [*PROBES, *(probe for probes in outside().values() for probe in probes)]
    return tuple(sorted(every, key=lambda probe: list(CHAPTERS).index(probe.claim.chapter)))


def claims() -> tuple[Claim, ...]:
    return tuple(probe.claim for probe in available())


def origin(claim_id: str) -> str:
    """The package that a claim comes from."""
    for package, probes in outside().items():
        if any(probe.claim.id == claim_id for probe in probes):
            return package
    return "armillary"


def choose(asked: str) -> tuple[AnyProbe, ...]:
    """The probes that a comma-separated list names by claim id, chapter letter or 'all', in the order of chapters.

    >>> [probe.claim.id for probe in choose("sphere.plane,sphere.radius")]
    ['sphere.radius', 'sphere.plane']
    """
    from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
    from armillary.lab.study.generalise import GENERALISE

    wanted: set[str] = set()
    trained = {claim.id: claim for claim in (*LAB_CLAIMS, GENERALISE)}
    known = {claim.id: claim.chapter for claim in claims()}
    for word in (part.strip() for part in asked.split(",")):
        if word in known:
            wanted.add(word)
        elif word.lower() == "all":
            wanted.update(known)
        elif word.upper() in CHAPTERS:
            chapter = [claim for claim, letter in known.items() if letter == word.upper()]
            if not chapter:
                raise ArmillaryError(
                    f"chapter {word.upper()} ({CHAPTERS[word.upper()]}) is decided by training models, not by a "
                    "survey; run `armillary lab run all`, or one of its studies."
                )
            wanted.update(chapter)
        elif word in trained:
            raise ArmillaryError(
                f"{word} is decided by training models, not by a survey; run `{trained[word].command}`."
            )
        else:
            raise ArmillaryError(f"there is no claim {word!r}; {nearest(word, [*known, *CHAPTERS, 'all'])}")
    return tuple(probe for probe in available() if probe.claim.id in wanted)


__all__ = ["CHAPTERS", "PROBES", "AnyProbe", "Probe", "available", "choose", "claims", "origin", "outside"]
