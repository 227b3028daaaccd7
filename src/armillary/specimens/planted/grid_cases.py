"""Chapter F: which heads are pockets, have a purpose, learn alone; which maps bend; which states reach far?"""

from collections.abc import Callable, Sequence

from armillary.anatomy import Anatomy
from armillary.specimens.models.heads.grid_models import (
    WORDS,
    K,
    averaging,
    bending,
    bulging,
    independent,
    interchangeable,
    leaning,
    purposeful,
    reading,
    separate,
    topical,
    writing,
)
from armillary.specimens.models.texts import corpus, topics, written
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def on_its_own_text(anatomy: Anatomy, seed: int, length: int = 40) -> Specimen:
    return anatomy, written(anatomy, length=length, seed=seed)


def on_few_words(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(20, 40, vocabulary=12, seed=seed)


def on_many_words(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(20, 40, vocabulary=WORDS, seed=seed)


def roles(*plan: Sequence[str]) -> Callable[[int], Specimen]:
    """Seed → heads with these purposes, by layer."""
    return lambda seed: on_few_words(purposeful(plan, seed=seed), seed)


THREE = (("previous", "same", "first"),) * 2

CASES: tuple[Case, ...] = (
    sized(
        "axes, interchangeable within heads",
        "heads.axes",
        "supported",
        "share by which axes of a head are read alike",
        lambda share, seed: on_its_own_text(interchangeable(share, share, seed), seed),
        matters=0.75,
    ),
    certain(
        "axes, interchangeable in results alone",
        "heads.axes",
        "qualified",
        lambda seed: on_its_own_text(interchangeable(queries=0, seed=seed), seed),
    ),
    certain(
        "axes, each with a part of its own",
        "heads.axes",
        "refuted",
        lambda seed: on_its_own_text(separate(seed), seed, length=60),
    ),
    sized(
        "roles, three purposes",
        "heads.specialise",
        "supported",
        "size of scores",
        lambda size, seed: on_few_words(purposeful(THREE, sharp=size, seed=seed), seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain("roles, some heads", "heads.specialise", "qualified", roles(*[("previous", "random", "uniform")] * 2)),
    certain("roles, a sink", "heads.specialise", "qualified", roles(*[("first", "first", "previous")] * 2)),
    certain(
        "roles, half rest on the first token",
        "heads.specialise",
        "refuted",
        roles(("first", "first", "uniform"), ("first", "uniform", "uniform")),
    ),
    certain("roles, uniform", "heads.specialise", "refuted", roles(*[("uniform",) * 3] * 2)),
    certain("roles, all alike", "heads.specialise", "refuted", roles(*[("previous",) * 3] * 2)),
    certain("roles, random and sharp", "heads.specialise", "refuted", roles(*[("random",) * 3] * 2)),
    certain(
        "gradients, heads that no one notices",
        "heads.gradients",
        "supported",
        lambda seed: on_its_own_text(independent(seed), seed),
    ),
    certain(
        "gradients, heads that write little",
        "heads.gradients",
        "refuted",
        lambda seed: on_its_own_text(writing(0.05, seed), seed),
    ),
    certain(
        "gradients, heads that write much",
        "heads.gradients",
        "refuted",
        lambda seed: on_its_own_text(writing(1.0, seed), seed),
    ),
    sized(
        "pockets, two directions a head",
        "heads.orthogonality",
        "supported",
        "share by which a head neglects all other directions",
        lambda share, seed: on_many_words(reading(2, share=share, seed=seed), seed),
        matters=1.0,
    ),
    certain(
        "pockets, all directions",
        "heads.orthogonality",
        "refuted",
        lambda seed: on_many_words(reading(K, seed=seed), seed),
    ),
    certain(
        "pockets, half of the heads",
        "heads.orthogonality",
        "qualified",
        lambda seed: on_many_words(reading(3, others=K, seed=seed), seed),
    ),
    certain(
        "pockets, one direction for all words",
        "heads.orthogonality",
        "refuted",
        lambda seed: on_many_words(reading(K, leaning(seed=seed), seed=seed), seed),
    ),
    sized(
        "maps, of one direction",
        "map.nonlinear",
        "supported",
        "share by which matrices neglect all other directions",
        lambda share, seed: on_many_words(bulging(share, seed), seed),
        (0.1, 0.5, 1.0),
        matters=0.5,
    ),
    certain(
        "maps, of all directions", "map.nonlinear", "refuted", lambda seed: on_many_words(bulging(0.0, seed), seed)
    ),
    certain("maps, steep", "map.nonlinear", "refuted", lambda seed: on_many_words(bending(3.0, seed), seed)),
    certain("maps, isometries", "map.nonlinear", "refuted", lambda seed: on_many_words(bending(0.0, seed), seed)),
    sized(
        "flow, a topic that layers bring out",
        "flow.coarse",
        "supported",
        "how much each layer adds to a word's topic",
        lambda size, seed: (topical([1.5 * size] * 3, seed), topics(seed=seed)),
        matters=0.75,
    ),
    certain(
        "flow, a topic brought out and put back",
        "flow.coarse",
        "qualified",
        lambda seed: (topical([12.0, -0.3, -0.3], seed), topics(documents=80, seed=seed)),
    ),
    certain(
        "flow, windows that grow",
        "flow.coarse",
        "refuted",
        lambda seed: (averaging([2, 2, 3], seed=seed), corpus(300, 60, vocabulary=WORDS, seed=seed)),
    ),
    certain(
        "flow, no window", "flow.coarse", "refuted", lambda seed: on_many_words(averaging([0] * 3, seed=seed), seed)
    ),
)
