"""How far apart are two directions, and how thin is the shell on which high-dimensional vectors lie?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

# Chunks of the Monte-Carlo hold at most this many normals: 16 MB of float32, at d = 3 as at d = 10 000.
_CHUNK_NORMALS = 1 << 22

# Above this dimension lgamma's own rounding (its value is about d·log d) reaches the shell's thickness of
# order 1/d, while the series below is exact to rounding.
_SERIES_FROM = 1000


def angle(a: Float[Tensor, "*a d"], b: Float[Tensor, "*b d"]) -> Float[Tensor, "*ab"]:
    """The angle between directions, in radians; leading axes broadcast. A zero vector has none: NaN.

    arccos of the cosine cannot see angles below 3e-4 in float32 (1 − θ²/2 rounds to 1) and turns rounding
    above 1 into NaN. Kahan's form 2·atan2(|â − b̂|, |â + b̂|) keeps full accuracy at 0 and at π.

    >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-6]))
    tensor(1.0000e-06)
    """
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    unit_a = a.to(wide) / torch.linalg.vector_norm(a, dim=-1, keepdim=True, dtype=wide)
    unit_b = b.to(wide) / torch.linalg.vector_norm(b, dim=-1, keepdim=True, dtype=wide)
    apart = torch.linalg.vector_norm(unit_a - unit_b, dim=-1)
    along = torch.linalg.vector_norm(unit_a + unit_b, dim=-1)
    return 2 * torch.atan2(apart, along)


@dataclass(frozen=True)
class ShellLaw:
    """Coefficients of variation of |x| and |x|² for a standard Gaussian in d dimensions."""

    d: int
    length: float  # exact
    length_asymptotic: float  # 1/√(2d)
    squared: float  # √(2/d), exact


def gaussian_shell_cv(d: int) -> ShellLaw:
    """How thin the shell of a d-dimensional standard Gaussian is, in closed form.

    >>> law = gaussian_shell_cv(1000)
    >>> round(law.length, 5), round(law.length_asymptotic, 5), round(law.squared, 5)
    (0.02236, 0.02236, 0.04472)
    """
    if d < 1:
        raise ValueError(f"a Gaussian needs at least one dimension, got d = {d}")
    x = d / 2
    # E|x| = √d · (1 − gap); the mean of x² is d, so the variance of |x| is d · gap · (2 − gap).
    if d < _SERIES_FROM:
        gap = 1 - math.exp(math.lgamma(x + 0.5) - math.lgamma(x)) / math.sqrt(x)
    else:
        gap = 1 / (8 * x) - 1 / (128 * x**2) - 5 / (1024 * x**3) + 21 / (32768 * x**4)
    length = math.sqrt(gap * (2 - gap)) / (1 - gap)
    return ShellLaw(d, length, 1 / math.sqrt(2 * d), math.sqrt(2 / d))


@dataclass(frozen=True)
class ShellRow:
    """One dimension of the Monte-Carlo table: what was sampled, beside what the law says."""

    d: int
    samples: int
    cv_length: float
    cv_length_error: float  # standard error of the sampled value
    cv_squared: float
    law: ShellLaw


def monte_carlo_shell(dims: Sequence[int], samples: int, seed: int) -> list[ShellRow]:
    """Sample Gaussian vectors and measure how their lengths spread; a row depends on d and the seed alone.

    >>> row, = monte_carlo_shell([100], samples=2000, seed=0)
    >>> abs(row.cv_length - row.law.length) < 4 * row.cv_length_error
    True
    """
    if samples < 2:
        raise ValueError(f"a spread needs at least two samples, got {samples}")
    return [_shell_row(d, samples, seed) for d in dims]


def _shell_row(d: int, samples: int, seed: int) -> ShellRow:
    law = gaussian_shell_cv(d)
    random = np.random.default_rng([seed, d])
    squared = np.empty(samples)
    step = max(1, _CHUNK_NORMALS // d)
    for start in range(0, samples, step):
        rows = random.standard_normal((min(step, samples - start), d), dtype=np.float32)
        squared[start : start + len(rows)] = np.square(rows, out=rows).sum(axis=1, dtype=np.float64)
    length = np.sqrt(squared)
    cv_length = float(length.std(ddof=1) / length.mean())
    cv_squared = float(squared.std(ddof=1) / squared.mean())
    # The length of a Gaussian is nearly Gaussian, whose sample deviation has relative error 1/√(2(n−1)).
    return ShellRow(d, samples, cv_length, cv_length / math.sqrt(2 * (samples - 1)), cv_squared, law)


def cap_ratio(alpha: float, m: int, d: int) -> float:
    """Radial over mean tangential variance for points uniform in a ball of angle α on an m-sphere inside R^d.

    α²·(d − 1)/((m + 2)(m + 4)) for small α: the local law, slope 2. Balls of nearest neighbours are not
    small when m is large, and then the law itself is steeper: a slope must be compared with this function,
    not with 2.

    >>> round(cap_ratio(0.02, 5, 64) / cap_ratio(0.01, 5, 64), 3)
    4.0
    """
    if not (0 < alpha <= math.pi and 1 <= m < d):
        raise ValueError(f"need 0 < α ≤ π and 1 ≤ m < d, got α = {alpha}, m = {m}, d = {d}")
    nodes, weights = np.polynomial.legendre.leggauss(400)
    theta = alpha * (nodes + 1) / 2
    # Relative to sin α the density underflows for no m that occurs; 1 − cos is used because cos loses θ⁴.
    mass = weights * (np.sin(theta) / np.sin(theta).max()) ** (m - 1)
    mass /= mass.sum()
    drop = 2 * np.sin(theta / 2) ** 2
    radial = float(mass @ (drop - mass @ drop) ** 2)
    return radial * (d - 1) / float(mass @ np.sin(theta) ** 2)
