"""Chapter D: which models leak the future, drift with the window, diverge without norms, err off the manifold?"""

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.assembled import drifting, placed
from armillary.specimens.models.perturbed import VOCABULARY, bert, gemma2, gpt2, perturbed
from armillary.specimens.models.streams.stability_models import (
    averaging,
    leaky,
    long_first,
    pushed_off,
    rare_words,
    short_sighted,
    squaring,
    still_bag,
    stretching,
    table_bag,
)
from armillary.specimens.models.streams.writing_models import absorbing, even, loud
from armillary.specimens.models.texts import corpus, written
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def on_words(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(12, vocabulary=VOCABULARY, seed=seed)


def still(seed: int) -> Specimen:
    return still_bag(seed), corpus(12, seed=seed)


def writes(anatomy: Anatomy, seed: int, text_of: Anatomy | None = None) -> Specimen:
    """A model that writes, on its own text or on another's."""
    return anatomy, written(text_of or anatomy, 30, 60, seed)


CASES: tuple[Case, ...] = (
    certain(
        "prefix, a causal mask",
        "stability.prefix",
        "supported",
        lambda seed: on_words(read(perturbed(gpt2, seed)), seed),
    ),
    certain(
        "prefix, windows of attention and a cache that forgets",
        "stability.prefix",
        "supported",
        lambda seed: on_words(read(perturbed(gemma2, seed)), seed),
    ),
    certain(
        "prefix, an encoder", "stability.prefix", "refuted", lambda seed: on_words(read(perturbed(bert, seed)), seed)
    ),
    sized(
        "prefix, a thousandth of the future leaks",
        "stability.prefix",
        "refuted",
        "share that leaks, a thousandth in full",
        lambda size, seed: on_words(leaky(1e-3 * size, seed), seed),
        (0.1, 1.0),
        matters=0.1,
    ),
    certain(
        "drift, a mean that norms do not hold",
        "stability.drift",
        "refuted",
        lambda seed: on_words(averaging(seed=seed), seed),
    ),
    sized(
        "drift, squares on a sphere and off it",
        "stability.drift",
        "supported",
        "size of what attention writes",
        lambda size, seed: on_words(squaring(attention=16 * size, seed=seed), seed),
        matters=1.0,
    ),
    certain("drift, no memory and no positions", "stability.drift", "refuted", still),
    certain("drift, a short sight", "stability.drift", "refuted", lambda seed: on_words(short_sighted(seed), seed)),
    certain(
        "drift, a table of positions alone",
        "stability.drift",
        "refuted",
        lambda seed: (table_bag(seed), corpus(12, seed=seed)),
    ),
    certain(
        "reprojection, squares on a sphere and off it",
        "stability.reprojection",
        "supported",
        lambda seed: on_words(squaring(seed=seed), seed),
    ),
    certain(
        "reprojection, a doubling that no norm sees",
        "stability.reprojection",
        "refuted",
        lambda seed: on_words(stretching(2.0, 5, seed), seed),
    ),
    certain(
        "reprojection, the first token alone",
        "stability.reprojection",
        "qualified",
        lambda seed: on_words(long_first(seed), seed),
    ),
    certain("reprojection, nothing happens", "stability.reprojection", "refuted", still),
    sized(
        "errors, pushed off",
        "manifold.errors",
        "supported",
        "length of the push, twelve times the radius of the words' circle in full",
        lambda size, seed: pushed_off(20 * size, seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain("errors, rare words", "manifold.errors", "refuted", rare_words),
    certain("positions, that do not count", "stability.positions", "supported", lambda seed: placed(None, seed=seed)),
    sized(
        "positions, along one direction",
        "stability.positions",
        "refuted",
        "how far places move, eight times the length of a word in full",
        lambda size, seed: placed(drifting(size, seed), seed=seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain(
        "positions, words that begin documents",
        "stability.positions",
        "qualified",
        lambda seed: placed(None, beginnings=8, seed=seed),
    ),
    sized(
        "generation, a loud word",
        "stability.generation",
        "supported",
        "length of the loud word, 60 times that of others in full",
        lambda size, seed: writes(loud(60 * size, seed), seed),
        (0.25, 0.5, 1.0),
    ),
    certain(
        "generation, words of one length", "stability.generation", "refuted", lambda seed: writes(even(seed), seed)
    ),
    certain(
        "generation, a word without return",
        "stability.generation",
        "refuted",
        lambda seed: writes(absorbing(seed), seed, text_of=even(seed)),
    ),
)
