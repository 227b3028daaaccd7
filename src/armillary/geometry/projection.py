"""How are directions in many dimensions drawn in three, and how far can the drawing be believed? NumPy only.

Every projection takes one stacked matrix of unit vectors: a second batch would get another picture.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from jaxtyping import Float

from armillary.errors import ArmillaryError, nearest

Points = Float[np.ndarray, "n dims"]
NEIGHBOURS = 10
FEWEST = 8
"""Below this many points pacmap and umap find no neighbours to keep, or fail."""
_PAIRS = 60_000


@dataclass(frozen=True)
class Fidelity:
    """What a drawing keeps of the true angles; 1 is all.

    trustworthiness  are points that are near on the drawing near in truth? (Venna and Kaski 2001)
    continuity       are points that are near in truth near on the drawing?
    correlation      rank correlation of distances on the drawing with true angles, all pairs
    stability        the same between this drawing and one from another seed
    """

    trustworthiness: float
    continuity: float
    correlation: float
    stability: float


def angles(u: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """All angles between unit vectors, in radians."""
    return np.arccos(np.clip(u @ u.T, -1, 1))


def pca(u: Float[np.ndarray, "n d"], dims: int = 3, seed: int = 0) -> Points:
    """Principal axes in the tangent space at the mean direction: the sphere unrolled where the points are.

    The sign of each axis is such that its largest coordinate is positive.

    >>> circle = np.linspace(-0.5, 0.5, 9)
    >>> flat = pca(np.stack([np.cos(circle), np.sin(circle), 0 * circle], 1), 1)
    >>> bool(np.allclose(np.abs(flat[:, 0]), np.abs(circle)))
    True
    """
    middle = u.mean(0)
    middle = middle / max(float(np.linalg.norm(middle)), 1e-300)
    along = np.clip(u @ middle, -1, 1)
    tangent = u - along[:, None] * middle
    length = np.linalg.norm(tangent, axis=1)
    # As far from the middle as the angle says, in the direction of the great circle that leads there.
    tangent = tangent * (np.arccos(along) / np.maximum(length, 1e-300))[:, None]
    tangent = tangent - tangent.mean(0)
    left, values, _ = np.linalg.svd(tangent, full_matrices=False)
    points = np.zeros((len(u), dims))
    rank = min(dims, left.shape[1])
    points[:, :rank] = left[:, :rank] * values[:rank]
    largest = np.abs(points).argmax(0)
    signs = np.sign(points[largest, np.arange(dims)])
    return points * np.where(signs == 0, 1.0, signs)


def pacmap(u: Float[np.ndarray, "n d"], dims: int = 3, seed: int = 0) -> Points:
    """PaCMAP by angular distance: neighbours first, the large picture second."""
    _enough("pacmap", u)
    with _quietly("pacmap"):
        try:
            import pacmap as library
        except ImportError as error:
            raise _missing("pacmap") from error
        fitted = library.PaCMAP(n_components=dims, distance="angular", random_state=seed)
        return np.asarray(fitted.fit_transform(u.astype(np.float32)), dtype=float)


def umap(u: Float[np.ndarray, "n d"], dims: int = 3, seed: int = 0) -> Points:
    """UMAP by cosine distance: neighbours, at the price of everything farther."""
    _enough("umap", u)
    with _quietly("umap"):
        try:
            import umap as library
        except ImportError as error:
            raise _missing("umap") from error
        neighbours = min(15, len(u) - 1)
        fitted = library.UMAP(n_components=dims, metric="cosine", random_state=seed, n_neighbors=neighbours, n_jobs=1)
        return np.asarray(fitted.fit_transform(u), dtype=float)


def installed(name: str) -> bool:
    """Can this projection be drawn? An empty folder, which an uninstalled package may leave, is no package."""
    if name not in ("pacmap", "umap"):
        return True
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def check_installed(name: str) -> None:
    """Refuse, before anything is computed, a projection whose package is not here."""
    if not installed(name):
        raise _missing(name)


def _missing(name: str) -> ArmillaryError:
    return ArmillaryError(f"the projection {name} needs the package: pip install 'armillary[{name}]'; pca needs none.")


def _enough(name: str, u: np.ndarray) -> None:
    if len(u) < FEWEST:
        raise ArmillaryError(
            f"the projection {name} needs {FEWEST} points to find neighbours among, and there are {len(u)}; use pca."
        )


@contextmanager
def _quietly(name: str) -> Iterator[None]:
    """Both libraries warn of what is meant: a seed, three dimensions, few points, no TensorFlow.

    And pacmap, given a seed, leaves OpenMP with one thread, which torch shares.
    """
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        logger.setLevel(level)


PROJECTIONS: Mapping[str, Callable[..., Points]] = {"pca": pca, "pacmap": pacmap, "umap": umap}


def project(name: str, u: Float[np.ndarray, "n d"], dims: int = 3, seed: int = 0) -> Points:
    """A drawing of unit vectors by the named projection, all fitted at once."""
    if name not in PROJECTIONS:
        raise ArmillaryError(f"there is no projection {name!r}; {nearest(name, [*PROJECTIONS, 'span'])}")
    return PROJECTIONS[name](u, dims, seed)


def principal(u: Float[np.ndarray, "n d"], dims: int = 3) -> Float[np.ndarray, "dims d"]:
    """Orthonormal axes along which unit vectors differ most; one is zero where they differ along fewer.

    The sign of each axis is such that its largest coordinate is positive.
    """
    _, values, right = np.linalg.svd(u - u.mean(0), full_matrices=False)
    rank = min(dims, int((values > 1e-9 * max(float(values[0]), 1e-300)).sum()))
    axes = np.zeros((dims, u.shape[1]))
    axes[:rank] = right[:rank]
    along = u @ axes.T
    signs = np.sign(along[np.abs(along).argmax(0), np.arange(dims)])
    return axes * np.where(signs == 0, 1.0, signs)[:, None]


def on_globe(points: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """Points pushed out from the centre onto the unit globe; one at the very centre lands on the first axis."""
    length = np.linalg.norm(points, axis=-1, keepdims=True)
    pole = np.broadcast_to(np.array([1.0, 0.0, 0.0]), points.shape)
    return np.where(length > 1e-12, points / np.maximum(length, 1e-12), pole)


def globe(name: str, u: Float[np.ndarray, "n d"], seed: int = 0) -> Float[np.ndarray, "n 3"]:
    """Unit vectors drawn on a globe.

    pca looks from the sphere's own centre along the three principal axes, without moving the centre to the points'
    mean: so a great circle stays a great circle. Other projections know no centre; theirs is the mean of their points.

    >>> angle = np.linspace(0, 1, 5)
    >>> u = np.stack([np.cos(angle), np.sin(angle), 0 * angle, 0 * angle], 1)
    >>> drawn = globe("pca", u)
    >>> bool(np.allclose(angles(drawn), angles(u), atol=1e-6))
    True
    """
    if name == "pca":
        return on_globe(u @ principal(u).T)
    points = project(name, u, 3, seed)
    return on_globe(points - points.mean(0))


def span(
    start: Float[np.ndarray, " d"], end: Float[np.ndarray, " d"], goal: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "3 d"]:
    """Three orthonormal axes: towards the start, in its plane with the end, and what the goal adds.

    The three lie in their own span, so an inner product with any of them is the same on the drawing as in truth: a
    state's first coordinate is its true cosine with the start. How much of its unit length lies outside is the part
    that such a drawing does not show. An axis is zero where a vector adds nothing to those before it.
    """
    axes: list[np.ndarray] = []
    for vector in (start, end, goal):
        rest = vector - sum((vector @ axis) * axis for axis in axes)
        size = float(np.linalg.norm(rest))
        axes.append(rest / size if size > 1e-9 else np.zeros_like(rest))
    return np.stack(axes)


def fidelity(
    u: Float[np.ndarray, "n d"],
    points: Points,
    other: Points | None = None,
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
) -> Fidelity:
    """Scores of a drawing of unit vectors; `other` is the same from another seed.

    >>> u = np.random.default_rng(0).standard_normal((50, 3))
    >>> u = u / np.linalg.norm(u, axis=1, keepdims=True)
    >>> score = fidelity(u, u)
    >>> score.trustworthiness, round(score.correlation, 3)
    (1.0, 1.0)
    """
    if len(u) < 3:
        raise ValueError(f"three points at least can be near or far; got {len(u)}")
    true, drawn = angles(u), distances(points)
    k = min(neighbours, max(1, (len(u) - 1) // 2))
    first, second = _pairs(len(u), seed)
    stability = 1.0 if other is None else _spearman(drawn[first, second], distances(other)[first, second])
    near_truly, near_drawn = _by_distance(true), _by_distance(drawn)
    return Fidelity(
        trustworthiness=_faithful(near_truly, near_drawn, k),
        continuity=_faithful(near_drawn, near_truly, k),
        correlation=_spearman(true[first, second], drawn[first, second]),
        stability=stability,
    )


def distances(points: Points) -> Float[np.ndarray, "n n"]:
    square = (points**2).sum(1)
    return np.sqrt(np.maximum(square[:, None] + square[None] - 2 * points @ points.T, 0))


def _pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.triu_indices(count, 1)
    if len(first) > _PAIRS:
        pairs = np.random.default_rng(seed).choice(len(first), _PAIRS, replace=False)
        first, second = first[pairs], second[pairs]
    return first, second


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float(x @ y / scale) if scale > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share their mean rank. (Importing SciPy's version would take half a second.)

    >>> _ranks(np.array([3.0, 1.0, 3.0]))
    array([2.5, 1. , 2.5])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    bounds = np.concatenate([np.flatnonzero(first), [len(values)]])
    group = first.cumsum() - 1
    ranks = np.empty(len(values))
    ranks[order] = (bounds[group] + bounds[group + 1] + 1) / 2
    return ranks


def _by_distance(matrix: np.ndarray) -> np.ndarray:
    """All points in each row, the nearest other one first and the point itself last."""
    return np.argsort(matrix + np.diag(np.full(len(matrix), np.inf)), axis=1, kind="stable")


def _faithful(true: np.ndarray, drawn: np.ndarray, k: int) -> float:
    """1 less the penalty for neighbours by `drawn` that are none by `true`, by how far down its ranks they stand."""
    count = len(true)
    ranks = np.empty_like(true)
    np.put_along_axis(ranks, true, np.arange(1, count + 1)[None].repeat(count, 0), 1)
    excess = np.maximum(np.take_along_axis(ranks, drawn[:, :k], 1) - k, 0).sum()
    most = count * k * (2 * count - 3 * k - 1) / 2
    return float(1 - excess / most) if most > 0 else 1.0
