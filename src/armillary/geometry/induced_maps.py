"""What does a matrix do to directions? x ↦ xA/|xA| maps one sphere to another, and is linear only if lengths allow."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def induced(x: Float[Tensor, "p n"], matrix: Float[Tensor, "n m"]) -> Float[Tensor, "p m"]:
    """Where directions (rows) go, as unit vectors; a row that the matrix sends to 0 goes nowhere and stays 0.

    >>> induced(torch.tensor([[1.0, 1.0]]), torch.diag(torch.tensor([3.0, 4.0])))
    tensor([[0.6000, 0.8000]])
    """
    return torch.nn.functional.normalize(x @ matrix, dim=-1)


def differential(point: Float[Tensor, " n"], matrix: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """The induced map's derivative at a unit vector: tangent rows v go to v @ differential, tangent at the image.

    >>> differential(torch.tensor([1.0, 0.0]), torch.diag(torch.tensor([2.0, 3.0])))
    tensor([[0.0000, 0.0000],
            [0.0000, 1.5000]])
    """
    image = point @ matrix
    length = image.norm()
    image = image / length
    return (matrix - (matrix @ image)[:, None] * image) / length


def log_map(point: Float[Tensor, " n"], x: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """Unit vectors as tangent vectors at a unit point: as long as the angle between them."""
    along = x @ point
    across = x - along[:, None] * point
    length = across.norm(dim=-1)
    return across * (torch.atan2(length, along) / length.clamp_min(torch.finfo(x.dtype).tiny))[:, None]


def exp_map(point: Float[Tensor, " n"], v: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """Tangent vectors as points: walk from `point` along each for its length.

    >>> x = torch.nn.functional.normalize(torch.tensor([[0.1, 2.0, -1.0]]), dim=1)
    >>> torch.allclose(exp_map(torch.tensor([1.0, 0, 0]), log_map(torch.tensor([1.0, 0, 0]), x)), x)
    True
    """
    length = v.norm(dim=-1, keepdim=True)
    return torch.cos(length) * point + torch.sinc(length / math.pi) * v


# Of a matrix that was stored in float32, singular values this far below the largest are rounding.
NOTHING = 1e-6


def polar_factor(matrix: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """The nearest (partial) isometry UVᵀ: what is left of a matrix when all its singular values that are not 0 are 1.

    Of all rotations it explains most of the induced map where directions are uniform: E[xᵀ f(x)] has the matrix's own
    singular vectors, since turning the sign of one coordinate in their frame changes nothing.
    """
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return (left * (values > NOTHING * values[0])) @ right


def procrustes(x: Float[Tensor, "p n"], y: Float[Tensor, "p m"]) -> Float[Tensor, "n m"]:
    """The (partial) isometry that brings the rows of x nearest to those of y."""
    return polar_factor(x.mT @ y)


def shear(strength: float) -> Float[Tensor, "2 2"]:
    """(x, y) ↦ (x + s·y, y).

    >>> torch.tensor([[1.0, 1.0]], dtype=torch.float64) @ shear(2.0)
    tensor([[3., 1.]], dtype=torch.float64)
    """
    return torch.tensor([[1.0, 0.0], [strength, 1.0]], dtype=torch.float64)


def sheared_angle(angle: Float[np.ndarray, " p"], strength: float) -> Float[np.ndarray, " p"]:
    """Where a shear sends a direction of the plane, in closed form: cot θ' = cot θ + s.

    >>> bool(np.isclose(sheared_angle(np.array([np.pi / 2]), 1.0)[0], np.pi / 4))
    True
    """
    return np.asarray(np.arctan2(np.sin(angle), np.cos(angle) + strength * np.sin(angle)))
