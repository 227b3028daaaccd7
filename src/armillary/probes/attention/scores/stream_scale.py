"""What would Gaussian weights make of the model's own states, with the norm before attention and without it?"""

from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Floats, Ints, mean
from armillary.probes.machinery.tables import line
from armillary.results import Quantity, say

WIDTHS = (8, 16, 32, 64, 128, 256)
DRAWS, PAIRS = 24, 256


@dataclass(frozen=True, eq=False)
class StreamScales:
    """Var(q·k)/k behind Gaussian weights [layer, (value, low, high)], of z and of the stream x."""

    layers: tuple[str, ...]
    """Those with a norm before attention."""
    normed: Floats
    bare: Floats

    def range(self, values: Floats) -> tuple[str, str]:
        """The least and the largest over layers."""
        scales = values[:, 0]
        return (say(float(scales.min()), ".2g"), say(float(scales.max()), ".2g")) if len(scales) else ("–", "–")

    def line(self) -> Quantity:
        return line(
            "Var(q·k)/k with Gaussian weights",
            "the model's own directions z through Gaussian W_Q and W_K; ordinary tokens",
            "variance over k",
            "layer",
            list(self.layers),
            self.normed,
            label="its directions, Gaussian weights",
            controls={"the stream x, without the norm": self.bare[:, 0]},
            theory={"unit variance": np.ones(len(self.layers))},
            logs=("value",),
        )


def scales_of(evidence: Evidence) -> StreamScales:
    """For Gaussian W of variance 1/d, E(q·k)² = k · (|z_i|²/d)(|z_j|²/d): over pairs, the mean of |z|²/d squared."""
    squares = {layer: _mean_squares(evidence, site) for layer, site in _sites(evidence).items()}
    if not squares:
        return StreamScales((), np.zeros((0, 3)), np.zeros((0, 3)))
    groups = 1 + max(int(document.max(initial=0)) for document, _, _ in squares.values())
    sums = np.zeros((2, groups, len(squares), 2))
    for row, (document, z, x) in enumerate(squares.values()):
        for side, values in enumerate((z, x)):
            np.add.at(sums[side, :, row], document, np.stack([np.ones_like(values), values], -1))
    normed, bare = (evidence.intervals(side, lambda stats: mean(stats) ** 2) for side in sums)
    return StreamScales(tuple(squares), normed, bare)


def _sites(evidence: Evidence) -> dict[str, str]:
    """Layer → the norm that its attention reads."""
    from armillary.anatomy.folded import reading_norm

    sites = [reading_norm(evidence.anatomy, layer)[0] for layer in range(evidence.anatomy.layers)]
    return {f"L{layer}": site for layer, site in enumerate(sites) if site in evidence.anatomy.norms}


def _mean_squares(evidence: Evidence, site: str) -> tuple[Ints, Floats, Floats]:
    """Of each ordinary token: its document, |z|²/d and |x|²/d."""
    tokens = evidence[SAMPLES][MODEL].ordinary(evidence.anatomy, site)
    z, x = (side.square().mean(-1).numpy() for side in (tokens.z, tokens.x))
    return tokens.document, z, x


def random_growth(evidence: Evidence) -> dict[int, Floats]:
    """Var(q·k) for each width, one value per draw, for pairs of the model's own directions.

    Every pair has Gaussian weights of its own: z W is Gaussian with variance |z|²/d in every axis, and is drawn so.
    """
    rng = np.random.default_rng([evidence.seed, 43])
    every = [_mean_squares(evidence, site)[1] for site in _sites(evidence).values()]
    squares = np.concatenate(every) if every else np.ones(1)
    variances = {}
    for k in WIDTHS:
        scale = np.sqrt(rng.choice(squares, (2, DRAWS, PAIRS, 1)))
        q, keys = scale * rng.standard_normal((2, DRAWS, PAIRS, k))
        variances[k] = np.square((q * keys).sum(-1)).mean(-1)
    return variances


def random_exponent(growth: dict[int, Floats]) -> tuple[float, float]:
    """Exponent of the growth in k, and half of its 95 % interval over draws."""
    from scipy.stats import t

    x = np.log(np.array(WIDTHS, dtype=float))
    y = np.stack([np.log(growth[k]) for k in WIDTHS], 1)
    slopes = np.array([np.polyfit(x, row, 1)[0] for row in y])
    reach = t.ppf(0.975, len(slopes) - 1) / len(slopes) ** 0.5
    return float(slopes.mean()), float(reach * slopes.std(ddof=1))


def growth_line(growth: dict[int, Floats]) -> Quantity:
    values = np.array([growth[k].mean() for k in WIDTHS])
    error = np.array([1.96 * growth[k].std(ddof=1) / len(growth[k]) ** 0.5 for k in WIDTHS])
    return line(
        "Var(q·k) with Gaussian weights",
        "pairs of the model's own directions z through Gaussian W_Q and W_K",
        "variance",
        "head width k",
        [float(k) for k in WIDTHS],
        np.stack([values, values - error, values + error], -1),
        label="its directions, Gaussian weights",
        controls={"after 1/√k": values / np.array(WIDTHS)},
        theory={"k": np.array(WIDTHS, dtype=float)},
        logs=("head width k", "value"),
    )


def logarithm(intervals: Floats) -> Floats:
    """ln, −∞ of nothing."""
    with np.errstate(divide="ignore"):
        return np.log(intervals)


def away(intervals: Floats, centre: float) -> Floats:
    """How far from a centre: […, (value, low, high)] of |v − centre|.

    >>> away(np.array([[1.0, 0.5, 2.0], [-2.0, -3.0, -1.0]]), 0.0).tolist()
    [[1.0, 0.5, 2.0], [2.0, 1.0, 3.0]]
    """
    value, low, high = np.moveaxis(intervals - centre, -1, 0)
    ends = np.stack([np.abs(low), np.abs(high)])
    nearest = np.where((low <= 0) & (high >= 0), 0.0, ends.min(0))
    return np.stack([np.abs(value), nearest + 0 * ends.sum(0), ends.max(0)], -1)


def near(intervals: Floats, centre: float) -> Floats:
    """How near to a centre: […, (value, low, high)] of −|v − centre|.

    >>> near(np.array([[1.0, 0.5, 2.0]]), 1.0).tolist()
    [[-0.0, -1.0, -0.0]]
    """
    value, low, high = np.moveaxis(away(intervals, centre), -1, 0)
    return -np.stack([value, high, low], -1)
