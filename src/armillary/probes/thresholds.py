"""Which numbers decide a verdict? All of them, in one place, each with its reason, fixed before results were seen."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Thresholds:
    """The decision rules' numbers; every survey stores and prints those it was decided with."""

    # sphere.radius: S0's and S3's 'norm √d' taken as 1 %, for 99 of 100 tokens.
    radius_within: float = 0.01
    radius_share: float = 0.99
    # How many roundings of the dtype a radius, a mean or a module may differ from theory by: a sum of d terms in
    # blocked order loses a few, a thousandfold of them would be another computation.
    roundings: float = 64.0
    # sphere.plane: in the plane when the share of squared length along 1 is a hundredth of a random direction's 1/d.
    plane_ratio: float = 0.01
    # sphere.ellipsoid: warped when the longest semi-axis is twice the shortest that is not flat (a factor one sees in
    # a drawing); flat below 1 % of the median; displaced when the centre moved by 5 % of the typical semi-axis.
    warp_ratio: float = 2.0
    flat_axis: float = 0.01
    displacement: float = 0.05
    # sphere.concentration: follows the Gaussian law within a factor of two; a thin shell at all below 10 % spread
    # (what S2's own example, 4.5 % or 2.2 %, would still call thin); a site counts on its interval's near end.
    shell_law_factor: float = 2.0
    shell_thin: float = 0.10
    # sphere.direction: the cosine must beat |Δ length| by 0.1 of AUC and itself reach 0.6, and scaling the stream by
    # ½ or 2 may cost at most 0.05 nats a token (half of what a good fine-tune gains) for length to carry nothing.
    direction_margin: float = 0.10
    direction_auc: float = 0.60
    scaling_cost: float = 0.05
    # spectrum.two-zeros: 'orders of magnitude below the rest' read as 1e-6 of the median eigenvalue, with three times
    # as many tokens as axes, since fewer make zeros of their own.
    zero_eigenvalue: float = 1e-6
    tokens_per_axis: float = 3.0
    # spectrum.local: 'falls like α²' read as a log–log slope of 2 ± ½; no fall at all is a slope below ½.
    local_slope: float = 2.0
    local_slope_within: float = 0.5
    local_slope_none: float = 0.5
    # spectrum.dimension: d − 2 effective dimensions within 10 %, or plainly not: fewer than half.
    dimension_full: float = 0.90
    dimension_half: float = 0.50
    # A claim about 'every site' is supported when 90 % of sites agree and refuted when at most 10 % do.
    sites_most: float = 0.90
    sites_few: float = 0.10
    # Intervals: 95 %, over documents; fewer than this many documents give none.
    documents_least: int = 8
    # Fewer ordinary tokens than this have no geometry to speak of (four times the neighbours of one).
    tokens_least: int = 64

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


THRESHOLDS = Thresholds()
