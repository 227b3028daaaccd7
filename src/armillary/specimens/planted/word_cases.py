"""Chapter C: which words travel to the next one, are refined, are scored by their angle, can be drawn?"""

from collections.abc import Callable

from armillary.specimens.models.bag import bag
from armillary.specimens.models.draws import normal
from armillary.specimens.models.streams.sense_models import mixing, sense_text
from armillary.specimens.models.streams.word_models import (
    SIZE,
    in_three_dimensions,
    leaver,
    mover,
    words_of_one_length,
    words_on_a_ray,
)
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.planted.case import Case, Specimen, certain, sized
from armillary.specimens.planted.sphere_cases import ordinary

# Of `leaver`: one nat of the next word's logit.
STEP = 0.005


def moved(step: float, seed: int, follows: float = 1.0) -> Specimen:
    """A model that moves every token to t + 1, on text in which t + 1 follows t with this chance."""
    return mover(step), chained(vocabulary=SIZE, seed=seed, follows=follows)


def left(*steps: float) -> Callable[[int], Specimen]:
    """Seed → a model whose first block leaves the own word, and whose others take these steps to the next one."""
    return lambda seed: (leaver(*steps), chained(vocabulary=SIZE, seed=seed, follows=1.0))


def mixed(size: float, seed: int, meaning: bool = True, placed: bool = False) -> Specimen:
    """A model that adds the words before, on sentences that use words in two senses."""
    anatomy = mixing(size, meaning, seed=seed, placed=placed)
    return anatomy, sense_text(anatomy, seed)


CASES: tuple[Case, ...] = (
    sized(
        "travel, to the next word",
        "words.travel",
        "supported",
        "chance that the word a token moves to is the next one",
        lambda share, seed: moved(0.5, seed, share),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.5,
    ),
    certain("travel, nowhere", "words.travel", "refuted", ordinary),
    sized(
        "refine, step by step",
        "words.refine",
        "supported",
        "length of the steps",
        lambda size, seed: moved(0.5 * size, seed),
        (0.1, 1.0),
        matters=0.1,
    ),
    certain("refine, away from the next word", "words.refine", "refuted", lambda seed: moved(-0.5, seed)),
    certain("refine, nothing", "words.refine", "refuted", ordinary),
    certain("refine, the own word left first", "words.refine", "supported", left(*[STEP] * 5)),
    certain("refine, the own word left and no more", "words.refine", "refuted", left(*[0.0] * 5)),
    certain("refine, away at the end", "words.refine", "qualified", left(*[STEP] * 4, -STEP)),
    certain("refine, away after the first block", "words.refine", "refuted", left(*[-STEP] * 5)),
    certain(
        "output, words of one length",
        "words.output",
        "supported",
        lambda seed: (bag(words_of_one_length(seed)), corpus(vocabulary=300, seed=seed)),
    ),
    certain(
        "output, words in one direction",
        "words.output",
        "refuted",
        lambda seed: (bag(words_on_a_ray(seed)), chained(seed=seed)),
    ),
    certain(
        "artifact, three dimensions",
        "words.artifact",
        "supported",
        lambda seed: (bag(in_three_dimensions(seed)), corpus(vocabulary=400, seed=seed)),
    ),
    certain(
        "artifact, many dimensions",
        "words.artifact",
        "refuted",
        lambda seed: (bag(normal(1500, 128, stream=4, seed=seed)), corpus(300, seed=seed)),
    ),
    sized(
        "context, the meaning of the words before",
        "words.context",
        "supported",
        "how much of their mean a layer adds, three times in full",
        lambda size, seed: mixed(3.0 * size, seed),
        matters=0.75,
    ),
    certain("context, a little of it", "words.context", "qualified", lambda seed: mixed(0.8, seed)),
    certain("context, words without meaning", "words.context", "refuted", lambda seed: mixed(3.0, seed, False)),
    certain("context, the word alone", "words.context", "refuted", lambda seed: mixed(0.0, seed)),
    certain("context, word and place", "words.context", "refuted", lambda seed: mixed(0.0, seed, placed=True)),
)
