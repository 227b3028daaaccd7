"""How sure is a rate? Wilson's interval for a share of successes."""

import math
from statistics import NormalDist


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a rate of which `hits` in `n` were seen; it says something even where none or all were.

    >>> [round(end, 4) for end in wilson(0, 120)], [round(end, 4) for end in wilson(9, 10)]
    ([0.0, 0.031], [0.5958, 0.9821])
    """
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} of {n} is not a share")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate, weight = hits / n, z * z / n
    centre = (rate + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(rate * (1 - rate) / n + weight / (4 * n))
    # The ends at 0 and n are 0 and 1 exactly; rounding would leave 1e-18.
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)
