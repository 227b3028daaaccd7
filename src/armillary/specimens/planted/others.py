"""Chapter H: where are activations massive, representations in a cone, blocks linear, trajectories straight?"""

from armillary.specimens.models.others import (
    averaging,
    curved,
    offset,
    parked,
    resting,
    rogue,
    spread_mean,
    unfolding,
    writing,
)
from armillary.specimens.planted.case import Case, certain, sized
from armillary.specimens.planted.sphere import ordinary

CASES: tuple[Case, ...] = (
    sized(
        "massive, heads rest on a first token",
        "others.massive",
        "supported",
        "the coordinate, 4000 in full beside a median of two thirds",
        lambda size, seed: resting(size, seed=seed),
        (0.5, 1.0),
    ),
    certain("massive, ordinary words", "others.massive", "refuted", ordinary),
    certain("massive, no head looks", "others.massive", "refuted", lambda seed: resting(used=False, seed=seed)),
    certain("massive, at every token", "others.massive", "refuted", lambda seed: resting(everywhere=True, seed=seed)),
    sized(
        "anisotropy, a mean along two axes",
        "others.anisotropy",
        "supported",
        "length of the mean, 1.4 times that of a word in full",
        lambda size, seed: offset(rogue(size), seed),
        (0.25, 0.5, 0.75, 1.0),
        matters=0.75,
    ),
    certain("anisotropy, no mean", "others.anisotropy", "refuted", ordinary),
    certain(
        "anisotropy, a mean along all axes",
        "others.anisotropy",
        "refuted",
        lambda seed: offset(spread_mean(seed), seed),
    ),
    sized(
        "linear, blocks that write a linear map",
        "others.linear",
        "supported",
        "length of a write beside the stream",
        lambda size, seed: writing(0.0, size, seed),
        (0.5, 1.0),
        matters=0.5,
    ),
    certain("linear, large writes of |y|", "others.linear", "refuted", lambda seed: writing(1.0, 2.0, seed)),
    certain("linear, small writes of |y|", "others.linear", "qualified", lambda seed: writing(1.0, 0.1, seed)),
    sized(
        "straight, a block that clears noise from a curve",
        "others.straight",
        "supported",
        "length of the noise, three times that of the curve in full",
        lambda size, seed: curved(noise=3 * size, seed=seed),
        (0.25, 0.5, 1.0),
        matters=0.5,
    ),
    certain("straight, noise that stays", "others.straight", "refuted", lambda seed: curved(clears=False, seed=seed)),
    certain("straight, means of all words so far", "others.straight", "refuted", averaging),
    certain("peak, noise that is loud in between", "others.idpeak", "supported", lambda seed: unfolding(seed=seed)),
    certain(
        "peak, noise that is loud after the first block alone",
        "others.idpeak",
        "refuted",
        lambda seed: unfolding(seed=seed, layers=6, until=1),
    ),
    certain("peak, words of one dimension", "others.idpeak", "refuted", lambda seed: unfolding(False, seed)),
    certain("collapse, heads look at one token", "others.collapse", "supported", lambda seed: parked(seed=seed)),
    certain(
        "collapse, words that share a mean",
        "others.collapse",
        "supported",
        lambda seed: parked(seed=seed, mean=60.0),
    ),
    certain(
        "collapse, writes that drown the skips",
        "others.collapse",
        "refuted",
        lambda seed: parked(seed=seed, loud=300.0),
    ),
    certain("collapse, heads look at their own", "others.collapse", "refuted", lambda seed: parked(True, seed)),
)
