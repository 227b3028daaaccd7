"""What is kept of every norm site during the one pass?

Three instruments, each switched on only if a probe needs it; all are commutative monoids, so a record of a pass is
the sum of the records of its batches, in any order. Nothing here grows with the number of tokens.
"""

from dataclasses import dataclass, field

import torch

from armillary.anatomy import Norm
from armillary.flow.glimpse import KINDS, ORDINARY, Glimpse
from armillary.measures import GroupedScalars, Moments, Reservoir, TopK
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T

SCALARS = ("length", "length2", "radius", "radius_error", "short", "near", "before_near", "cos2", "mean_z", "cos2_x")
SAMPLE = 768
TOP = 8


@dataclass
class NormRecord:
    """One site's instruments.

    lengths   per kind of token and document group: the scalars of `SCALARS`
    spectra   mean and covariance of z over ordinary tokens, for either half of the documents
    sample    rows of x for ordinary and massive tokens: document, position, token, following token, kind
    massive   the largest massive activations over the site's median magnitude, with document, position, token, dimension
    """

    groups: int
    norm: Norm
    instruments: frozenset[Instrument]
    lengths: GroupedScalars | None = None
    spectra: tuple[Moments, Moments] | None = None
    sample: Reservoir | None = None
    massive: TopK = field(default_factory=lambda: TopK.empty(TOP, 4))
    massive_count: int = 0
    deviation: float = 0.0
    pilot: tuple[float, float] | None = None
    """Median length and magnitude in the first batch: what 'near' and 'massive' are measured by. A setting, fixed once."""

    def __post_init__(self) -> None:
        d = self.norm.d
        if "lengths" in self.instruments and self.lengths is None:
            self.lengths = GroupedScalars.empty(len(KINDS) * self.groups, SCALARS)
        if "spectra" in self.instruments and self.spectra is None:
            # No coordinate of z exceeds √d, and massive tokens are left out: no entry is far from its column.
            self.spectra = (Moments.empty(d, even=True), Moments.empty(d, even=True))
        if "sample" in self.instruments and self.sample is None:
            self.sample = Reservoir.empty(SAMPLE, d, 5)

    def include(self, glimpse: Glimpse) -> None:
        """Take in one batch."""
        tokens = glimpse.tokens
        if self.pilot is None:
            self.pilot = glimpse.pilot()
        glimpse.typical = self.pilot[1]
        self.deviation = max(self.deviation, glimpse.deviation())
        if self.lengths is not None:
            self._lengths(glimpse, self.lengths)
        if self.sample is not None:
            payload = torch.cat((tokens.places, glimpse.kind[tokens.offered, None]), 1)
            self.sample.include(glimpse.x, payload, tokens.offered, tokens.rank)
        if self.spectra is not None:
            self._spectra(glimpse, self.spectra[tokens.fold])

    def _lengths(self, glimpse: Glimpse, lengths: GroupedScalars) -> None:
        tokens, d = glimpse.tokens, glimpse.norm.d
        assert self.pilot is not None
        columns = torch.stack(
            (
                glimpse.length,
                glimpse.length.square(),
                glimpse.radius,
                (glimpse.radius - glimpse.theory).abs(),
                (glimpse.radius < 1 - T.radius_within).double(),
                ((glimpse.radius - 1).abs() <= T.radius_within).double(),
                ((glimpse.length / max(self.pilot[0], 1e-30) - 1).abs() <= T.radius_within).double(),
                d * (glimpse.mean_z / glimpse.radius.clamp_min(1e-30)).square(),
                glimpse.mean_z.abs(),
                d * d * glimpse.mean.square() / glimpse.length.square().clamp_min(1e-60),
            ),
            1,
        )
        index = glimpse.kind * self.groups + tokens.group
        if not tokens.whole:
            index, columns = index[tokens.real], columns[tokens.real]
        lengths.include(index, columns)
        self._massive(glimpse)

    def _massive(self, glimpse: Glimpse) -> None:
        rows = glimpse.massive.nonzero()[:, 0]
        if not len(rows):
            return
        tokens, x = glimpse.tokens, glimpse.x[rows].abs()
        self.massive_count += len(rows)
        value, dimension = x.max(-1)
        payload = (tokens.document[rows], tokens.position[rows], tokens.token[rows], dimension)
        self.massive.include(value.double() / glimpse.typical, torch.stack(payload, 1))

    def _spectra(self, glimpse: Glimpse, moments: Moments) -> None:
        left_out = glimpse.kind != ORDINARY
        if not glimpse.tokens.whole:
            left_out |= ~glimpse.tokens.real
        # Last of all: z is used up by it.
        moments.include(glimpse.z, left_out.nonzero()[:, 0], consume=True)

    def __add__(self, other: "NormRecord") -> "NormRecord":
        both = NormRecord(self.groups, self.norm, self.instruments)
        if self.lengths is not None and other.lengths is not None:
            both.lengths = self.lengths + other.lengths
        if self.spectra is not None and other.spectra is not None:
            both.spectra = (self.spectra[0] + other.spectra[0], self.spectra[1] + other.spectra[1])
        if self.sample is not None and other.sample is not None:
            both.sample = self.sample + other.sample
        both.massive = self.massive + other.massive
        both.massive_count = self.massive_count + other.massive_count
        both.deviation = max(self.deviation, other.deviation)
        both.pilot = self.pilot or other.pilot
        return both
