"""Chapter F, second reading: whose axes mean something; which heads resolve language, have regions, follow errors?"""

from collections.abc import Collection, Sequence

import torch

from armillary.anatomy import Anatomy
from armillary.probes.grid.language.templates import PHENOMENA
from armillary.specimens.models.assembled import D, gained, marking
from armillary.specimens.models.heads.emerging_heads import WORDS, fleeing, following, resting, trained
from armillary.specimens.models.heads.language_heads import item_text, linguist
from armillary.specimens.models.heads.region_heads import WORDS as REGIONAL_WORDS
from armillary.specimens.models.heads.region_heads import regional
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def on_items(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, item_text(anatomy, seed)


def resolving(phenomena: Collection[str], seed: int) -> Specimen:
    return on_items(linguist(phenomena, seed=seed), seed)


def in_regions(areas: Sequence[Sequence[int]], seed: int, *sizes: float) -> Specimen:
    return regional(areas, sizes or (1.0,) * len(areas), seed=seed), corpus(
        24, 50, vocabulary=REGIONAL_WORDS, seed=seed
    )


def after_training(models: Sequence[object], seed: int) -> Specimen:
    return trained(models), corpus(16, 40, vocabulary=WORDS, seed=seed)


OWN = [(0, 1), (2, 3), (4, 5), (6, 7)]

CASES: tuple[Case, ...] = (
    sized(
        "axes, one for each frequent word",
        "axes.privileged",
        "supported",
        "length of such a word",
        lambda size, seed: marking(size, seed=seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain("axes, the same but turned", "axes.privileged", "refuted", lambda seed: marking(turned=True, seed=seed)),
    certain(
        "axes, random words and heads",
        "axes.privileged",
        "refuted",
        lambda seed: gained(lambda layer: torch.ones(D), seed=seed),
    ),
    sized(
        "language, all phenomena",
        "heads.language",
        "supported",
        "size of scores",
        lambda size, seed: on_items(linguist(PHENOMENA, size, seed=seed), seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain(
        "language, no subjects",
        "heads.language",
        "qualified",
        lambda seed: resolving([name for name in PHENOMENA if name != "subject"], seed),
    ),
    certain("language, no anaphora", "heads.language", "refuted", lambda seed: resolving(PHENOMENA[:5], seed)),
    certain(
        "language, loud words",
        "heads.language",
        "refuted",
        lambda seed: on_items(linguist((), loud=True, seed=seed), seed),
    ),
    certain(
        "language, the word before",
        "heads.language",
        "refuted",
        lambda seed: on_items(linguist((), previous=True, seed=seed), seed),
    ),
    sized(
        "regions, each head its own",
        "heads.regions",
        "supported",
        "how much more a head writes in its regions",
        lambda size, seed: in_regions(OWN, seed, *[size] * 4),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.5,
    ),
    certain(
        "regions, one head of four, the others faintly",
        "heads.regions",
        "qualified",
        lambda seed: in_regions(OWN, seed, 1.0, 0.27, 0.27, 0.27),
    ),
    certain("regions, all heads the same", "heads.regions", "refuted", lambda seed: in_regions([(0, 1, 2)] * 4, seed)),
    certain("regions, none", "heads.regions", "refuted", lambda seed: in_regions([()] * 4, seed)),
    sized(
        "emergence, roles follow the gradient",
        "heads.emerge",
        "supported",
        "share of a head's gain that goes by its use; the rest goes by chance",
        lambda share, seed: after_training(following(share, seed), seed),
        (0.5, 0.75, 1.0),
    ),
    certain(
        "emergence, roles flee the gradient",
        "heads.emerge",
        "refuted",
        lambda seed: after_training(fleeing(seed), seed),
    ),
    certain(
        "emergence, nothing emerges",
        "heads.emerge",
        "undecided",
        lambda seed: after_training(resting(seed), seed),
    ),
)
