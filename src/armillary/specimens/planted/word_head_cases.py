"""Chapter B, words: which heads match related words, find themselves, store, or have a subject?"""

from collections.abc import Callable

from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.specimens.models.heads.scoring_heads import misread
from armillary.specimens.models.heads.word_heads import (
    LAYERS,
    Plant,
    barely_matching,
    behind_random_keys,
    clustered,
    coded,
    copying,
    gaussian,
    gpt2,
    half_early,
    halved,
    llama,
    loud,
    matching,
    on_loud_axes,
    on_topic,
    randoms,
    same_code,
)
from armillary.specimens.models.heads.word_sides import along_loud_axes, meeting
from armillary.specimens.planted.case import Case, Specimen, certain, sized

ALL, FIRST, LAST = range(LAYERS), range(1), range(LAYERS - 1, LAYERS)
LOUD = 8


def apart(seed: int) -> Tensor:
    return coded(False, seed)


def together(seed: int) -> Tensor:
    return coded(True, seed)


def model(
    embedding: Callable[[int], Tensor],
    plant: Callable[[int], Plant],
    shape: Callable[..., Anatomy] = gpt2,
    layers: int = LAYERS,
) -> Callable[[int], Specimen]:
    """Seed → the model; these claims read weights alone."""
    return lambda seed: (shape(embedding(seed), plant(seed), layers, seed), None)


def stored(misreading: float, seed: int) -> Specimen:
    return misread(gpt2(gaussian(seed), randoms(seed), seed=seed), misreading), None


def topics(seed: int) -> Tensor:
    return clustered(seed=seed)


CASES: tuple[Case, ...] = (
    sized(
        "related, heads that match pairs",
        "qk.related",
        "supported",
        "share of heads that do",
        lambda share, seed: model(apart, lambda seed: matching(share=share, seed=seed))(seed),
        matters=0.75,
    ),
    certain(
        "related, the same in a grouped, rotated model",
        "qk.related",
        "supported",
        model(apart, lambda seed: matching(seed=seed), llama),
    ),
    certain("related, random heads", "qk.related", "refuted", model(apart, randoms)),
    certain(
        "related, near before and lost by the head",
        "qk.related",
        "refuted",
        model(together, lambda seed: matching(seed=seed)),
    ),
    certain("related, near before and nearer by the head", "qk.related", "supported", model(together, same_code)),
    certain(
        "related, near before and less so by the head",
        "qk.related",
        "refuted",
        model(together, lambda seed: copying(ALL, seed=seed)),
    ),
    certain(
        "related, a third of the layers match pairs",
        "qk.related",
        "qualified",
        model(apart, lambda seed: matching(FIRST, seed=seed)),
    ),
    certain("related, half of the heads about the limit", "qk.related", "undecided", model(apart, barely_matching)),
    sized(
        "lookup, early copies",
        "qk.lookup",
        "supported",
        "share of W_Q and W_K that agrees; the rest is random",
        lambda share, seed: model(gaussian, lambda seed: copying(FIRST, share, seed))(seed),
        matters=0.75,
    ),
    certain(
        "lookup, early copies in a grouped, rotated model",
        "qk.lookup",
        "supported",
        model(gaussian, lambda seed: copying(FIRST, seed=seed), llama),
    ),
    certain("lookup, random heads", "qk.lookup", "refuted", model(gaussian, randoms)),
    certain("lookup, deep copies", "qk.lookup", "refuted", model(gaussian, lambda seed: copying(LAST, seed=seed))),
    certain(
        "lookup, copies everywhere", "qk.lookup", "supported", model(gaussian, lambda seed: copying(ALL, seed=seed))
    ),
    certain("lookup, half early and all deep", "qk.lookup", "supported", model(halved, half_early)),
    certain("store, any model", "vo.store", "supported", model(gaussian, randoms)),
    certain("store, the same in a grouped, rotated model", "vo.store", "supported", model(gaussian, randoms, llama)),
    sized(
        "store, a gain misread", "vo.store", "refuted", "how far a gain is read as 1", stored, (0.1, 1.0), matters=0.1
    ),
    sized(
        "subjects, deep topics",
        "vo.subjects",
        "supported",
        "share of the last layer's heads that have one",
        lambda share, seed: model(topics, lambda seed: on_topic(LAST, share, seed))(seed),
        matters=0.75,
    ),
    certain("subjects, random heads", "vo.subjects", "refuted", model(topics, randoms)),
    certain("subjects, early topics", "vo.subjects", "refuted", model(topics, lambda seed: on_topic(FIRST, seed=seed))),
    # The same topics in all of nine layers: no depth has more of them by chance.
    certain(
        "subjects, topics everywhere",
        "vo.subjects",
        "qualified",
        model(topics, lambda seed: on_topic(range(9), seed=seed, alike=True), layers=9),
    ),
    certain(
        "subjects, deep topics behind random left vectors",
        "vo.subjects",
        "supported",
        model(topics, lambda seed: behind_random_keys(on_topic(LAST, seed=seed), seed)),
    ),
    certain(
        "subjects, loud axes without meaning",
        "vo.subjects",
        "refuted",
        model(lambda seed: loud(LOUD, 3.0, seed), lambda seed: on_loud_axes(LOUD, LAST, seed)),
    ),
    sized(
        "query subjects, topics on both sides",
        "qk.subjects",
        "supported",
        "share of heads that read them",
        lambda share, seed: model(topics, lambda seed: meeting(share=share, seed=seed))(seed),
        matters=0.75,
    ),
    certain(
        "query subjects, topics in a grouped, rotated model",
        "qk.subjects",
        "supported",
        model(topics, lambda seed: meeting(seed=seed), llama),
    ),
    certain("query subjects, random heads", "qk.subjects", "refuted", model(topics, randoms)),
    certain(
        "query subjects, topics of queries alone",
        "qk.subjects",
        "refuted",
        model(topics, lambda seed: meeting((True, False), seed=seed)),
    ),
    certain(
        "query subjects, topics of keys alone",
        "qk.subjects",
        "refuted",
        model(topics, lambda seed: meeting((False, True), seed=seed)),
    ),
    certain(
        "query subjects, a quarter of the heads",
        "qk.subjects",
        "qualified",
        model(topics, lambda seed: meeting(layers=FIRST, share=0.75, seed=seed)),
    ),
    certain(
        "query subjects, loud axes without meaning",
        "qk.subjects",
        "refuted",
        model(lambda seed: loud(LOUD, 3.0, seed), lambda seed: along_loud_axes(LOUD, seed)),
    ),
)
