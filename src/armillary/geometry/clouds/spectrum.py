"""In how many directions does a cloud spread, and in which does it not spread at all?"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

# A covariance summed in floating point may have eigenvalues this far below zero, relative to the largest.
# More is no rounding: the matrix is not a covariance.
_ROUNDING = 1e-5


def eigenvalues(cov: Float[Tensor, "d d"] | Float[np.ndarray, "d d"]) -> Float[Tensor, " d"]:
    """Eigenvalues of a covariance, ascending, in float64. What rounding made negative is 0.

    >>> eigenvalues(torch.diag(torch.tensor([3.0, 1.0, 0.0])))
    tensor([0., 1., 3.], dtype=torch.float64)
    """
    values = torch.linalg.eigvalsh(_symmetric(cov))
    worst = float(values.min())
    if -worst > _ROUNDING * float(values.abs().max()):
        raise ValueError(
            f"not a covariance: eigenvalue {worst:.3g} beside a largest of {float(values.max()):.3g} "
            "is too negative for rounding; check how the matrix was summed"
        )
    return values.clamp(min=0)


def participation_ratio(eigs: Float[Tensor, " d"] | Float[np.ndarray, " d"]) -> float:
    """(Σλ)² / Σλ²: the number of equal eigenvalues that would spread alike.

    >>> participation_ratio(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    2.0
    """
    values = _spread(eigs)
    return float(values.sum() ** 2 / values.square().sum())


def entropy_rank(eigs: Float[Tensor, " d"] | Float[np.ndarray, " d"]) -> float:
    """exp of the Shannon entropy of the eigenvalues' shares; never below the participation ratio.

    >>> round(entropy_rank(torch.tensor([1.0, 1.0, 0.0, 0.0])), 6)
    2.0
    """
    values = _spread(eigs)
    return float(torch.special.entr(values / values.sum()).sum().exp())


def near_zero_count(eigs: Float[Tensor, " d"] | Float[np.ndarray, " d"], relative: float = 1e-6) -> int:
    """How many eigenvalues lie below `relative` times the median one; rounding below zero counts.

    0 where the median itself vanishes: too few rows to tell small from absent.

    >>> near_zero_count(torch.tensor([1e-9, 1.0, 2.0, 3.0]))
    1
    """
    values = torch.as_tensor(eigs).to(torch.float64)
    middle = float(values.median())
    return int((values < relative * middle).sum()) if middle > 0 else 0


def _symmetric(cov: Tensor | np.ndarray) -> Tensor:
    matrix = torch.as_tensor(cov).to(torch.float64)
    # eigh reads one triangle only: an asymmetric matrix would give an answer, of another matrix.
    if not torch.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-6 * float(matrix.abs().max())):
        raise ValueError("not a covariance: the matrix is not symmetric")
    return matrix


def _spread(eigs: Tensor | np.ndarray) -> Tensor:
    values = torch.as_tensor(eigs).to(torch.float64)
    if len(values) == 0 or float(values.min()) < 0 or not float(values.sum()) > 0:
        raise ValueError("eigenvalues must be non-negative with a positive sum; take them from eigenvalues()")
    return values
