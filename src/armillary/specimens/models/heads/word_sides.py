"""Heads for chapter B whose queries and keys read topics, loud axes or parts of speech."""

from dataclasses import replace
from functools import cache
from itertools import product

import torch

from armillary.anatomy import Anatomy
from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.word_classes import FUNCTION_WORDS, SPEECH, part_of_speech
from armillary.specimens.models.draws import generator, normal
from armillary.specimens.models.heads.word_heads import (
    HEADS,
    LAYERS,
    D,
    K,
    Plant,
    PlantedHead,
    frame,
    gpt2,
    random_head,
    tokenizer,
)


def meeting(
    sides: tuple[bool, bool] = (True, True), layers: range = range(LAYERS), share: float = 1.0, seed: int = 0
) -> Plant:
    """In a share of the heads of these layers the sides read topics of `clustered`, each head its own; what else is
    there is random. Pairs of heads share their keys, as grouped heads do."""
    order = torch.randperm(HEADS, generator=generator(90, seed)).tolist()
    chosen = set(order[: round(share * HEADS)])

    def plant(layer: int, head: int) -> PlantedHead:
        other = random_head(10 * layer + head + 1, seed)
        if layer not in layers or head not in chosen:
            return other
        query, key = (
            frame(9, seed=seed)[torch.randperm(40, generator=generator(10 * layer + which, seed))[:K]]
            for which in (head, 100 + head // 2)
        )
        # In a rotated model halves of the coordinates are pairs; at offset 0 they stay where they are.
        strength = torch.linspace(2, 1, K)
        planted = replace(other, W_Q=query.T * strength) if sides[0] else other
        return replace(planted, W_K=key.T * 0.2) if sides[1] else planted

    return plant


def along_loud_axes(axes: int, seed: int = 0) -> Plant:
    """Both sides read the loud axes of `loud` most, mixed at random."""

    def plant(layer: int, head: int) -> PlantedHead:
        turn = frame(9, seed=seed)
        sides = []
        for which in range(2):
            inside = frame(300 + 100 * which + 10 * layer + head, axes, seed) @ turn[:axes]
            sides.append(torch.cat([inside, turn[axes:K]]).T)
        strength = torch.cat([torch.linspace(2, 1, axes), torch.full((K - axes,), 0.1)])
        return replace(random_head(10 * layer + head + 1, seed), W_Q=sides[0] * strength, W_K=sides[1])

    return plant


@cache
def classed_words() -> tuple[str, ...]:
    """Nouns, function words, and words without meaning whose ending makes a class."""
    stems = ["zq" + "".join(letters) for letters in product("abcfhk", repeat=2)]
    endings = [stem + ending for ending in ("ly", "ing", "ed", "ous") for stem in stems]
    functions = [word for words in FUNCTION_WORDS.values() for word in words.split()]
    return ("[UNK]", *dict.fromkeys([*NOUNS, *functions, *endings]))


def classed(order: tuple[int, ...] | None) -> Anatomy:
    """Every part of speech is an axis. Left vector i reads class i, right vector i class order[i], or any direction."""
    classes = torch.tensor([SPEECH.index(part_of_speech(word) or "noun") for word in classed_words()])
    embedding = 4 * frame(9)[classes] + 0.4 * normal(len(classes), D, stream=1)

    def plant(layer: int, head: int) -> PlantedHead:
        rest = frame(9)[len(SPEECH) : len(SPEECH) + K - 8].T * 0.01
        axes = frame(9)[: len(SPEECH)].T
        right = frame(20 + layer)[:, :8] if order is None else axes[:, list(order)]
        query = torch.cat((axes[:, :8] * torch.linspace(2, 1, 8), rest), 1)
        return replace(random_head(head + 1), W_Q=query, W_K=torch.cat((right, rest), 1))

    return replace(gpt2(embedding, plant), tokenizer=tokenizer(classed_words()))
