"""How does S3's shear move directions, in closed form and as measured?"""

import numpy as np
import torch

from armillary.geometry.induced import induced, shear, sheared_angle
from armillary.probes.grid.maps import unexplained_at_uniform
from armillary.probes.machinery import cells, line, table
from armillary.results import Quantity, Table

STRENGTHS = (0.5, 1.0, 2.0)


def shear_curve() -> Quantity:
    """The shear on the circle: computed by the induced map, beside the closed form."""
    angles = np.linspace(0, np.pi, 61)
    circle = torch.as_tensor(np.stack([np.cos(angles), np.sin(angles)], 1))
    out = {s: np.unwrap(np.arctan2(*induced(circle, shear(s)).numpy().T[::-1])) for s in STRENGTHS}
    degrees = np.degrees(angles)
    return line(
        "a shear on the circle",
        "where x ↦ x + s·y sends a direction, at s = 1; a rotation would be a line of slope 1",
        "angle after, degrees",
        "angle before, degrees",
        degrees.tolist(),
        np.degrees(out[1.0]),
        {"s = 0.5": np.degrees(out[0.5]), "s = 2": np.degrees(out[2.0])},
        {"cot θ' = cot θ + 1": np.degrees(sheared_angle(angles, 1.0)), "no shear": degrees},
        label="s = 1",
    )


def shear_table() -> Table:
    """The shear in two dimensions and in three, as S3 draws it."""
    rows = [(n, strength) for n in (2, 3) for strength in STRENGTHS]
    results = []
    for n, strength in rows:
        matrix = torch.eye(n, dtype=torch.float64)
        matrix[n - 1, 0] = strength
        results.append(unexplained_at_uniform(matrix, 0))
    meanings = {
        "rotation": "share of the induced map at uniform directions that no rotation explains",
        "tangent": "share that the differential at one point, at its best scale, leaves",
        "linear": "share that the matrix itself leaves with one scale for all",
    }
    return table(
        cells("dimensions", "of the space", [n for n, _ in rows]),
        cells("strength", "s of the shear x ↦ x + s·y of two axes", [strength for _, strength in rows]),
        *(cells(kind, meaning, [r.share(kind) for r in results]) for kind, meaning in meanings.items()),
    )
