"""Do two models represent the same words alike? Their streams at the ends of words, one word per passage.

A word's end is a place in the text, not a token, so models with different tokenizers can be compared. One word per
passage makes the samples exchangeable: a permutation then says what chance gives.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.capture import run, still, watching
from armillary.flow.documents import Documents
from armillary.flow.tokens import Window, collate
from armillary.geometry.alignment import FEWEST, Alignment, cka, mutual_neighbours
from armillary.probes.machinery.layers import stream_states
from armillary.results.compare.similarity import Similarity, SimilarityMaps

PASSAGES, QUICK_PASSAGES = 256, 128
WORDS = 24
FIRST_WORD = 8
"""The sampled word has at least this many before it."""
PER_DOCUMENT = 8
DOCUMENTS = 512
NEIGHBOURS = 10
BATCH = 16


@dataclass(frozen=True, eq=False)
class SampledStream:
    """One model's stream at words' ends: state → [word, d], and which passage each word is of."""

    passages: tuple[int, ...]
    states: dict[str, np.ndarray]


def passages(documents: Documents, number: int, seed: int = 0) -> list[tuple[str, int]]:
    """Passages of 24 words, each with the character at which its sampled word ends."""
    rng, chosen = random.Random(seed), []
    for text in _texts(documents.texts):
        words = list(re.finditer(r"\S+", text[:20_000]))
        for start in list(range(0, len(words) - WORDS + 1, WORDS))[:PER_DOCUMENT]:
            stretch = words[start : start + WORDS]
            begin = stretch[0].start()
            end = stretch[rng.randrange(FIRST_WORD, WORDS)].end()
            chosen.append((text[begin : stretch[-1].end()], end - begin))
    rng.shuffle(chosen)
    return chosen[:number]


def _texts(texts: Iterable[str]) -> list[str]:
    return list(islice(texts, DOCUMENTS))


def sample_states(anatomy: Anatomy, cut: list[tuple[str, int]]) -> SampledStream:
    """The stream before the first block and after each, at the token that ends where the sampled word does."""
    windows, places, numbers = [], [], []
    for number, (text, end) in enumerate(cut):
        at_word = _token_at(anatomy, text, end)
        if at_word is not None:
            ids, place = at_word
            windows.append(Window(number, tuple(ids)))
            places.append(place)
            numbers.append(number)
    if len(numbers) < FEWEST:
        raise TextError(f"{anatomy.name}: only {len(numbers)} of {len(cut)} passages end a token at the sampled word.")
    states = stream_states(anatomy)
    rows: dict[str, list[Tensor]] = {state.name: [] for state in states}
    for start in range(0, len(windows), BATCH):
        batch = collate(windows[start : start + BATCH], 0)
        at = torch.tensor(places[start : start + BATCH])
        here = torch.arange(len(at))

        def watcher(name: str, output: bool, here: Tensor = here, at: Tensor = at):  # type: ignore[no-untyped-def]
            def watch(given: Tensor | None, value: Tensor) -> None:
                seen = value if output or given is None else given
                rows[name].append(seen.detach().float().cpu()[here, at])

            return watch

        watchers = {state.norm: watcher(state.name, state.output) for state in states}
        with still(anatomy.model), watching(anatomy, watchers):
            run(anatomy, batch.ids, batch.mask)
    return SampledStream(tuple(numbers), {name: torch.cat(parts).numpy() for name, parts in rows.items()})


def _token_at(anatomy: Anatomy, text: str, end: int) -> tuple[list[int], int] | None:
    """The passage's ids and the index of the token that ends at a character; None where no token ends there."""
    tokenizer = anatomy.tokenizer
    if tokenizer is None or not getattr(tokenizer, "is_fast", False):
        raise TextError(f"{anatomy.name} has no fast tokenizer, so words cannot be found among its tokens.")
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids = list(encoded["input_ids"])[: anatomy.context]
    places = [i for i, (_, stop) in enumerate(encoded["offset_mapping"][: len(ids)]) if stop == end]
    return (ids, places[-1]) if places and places[-1] > 0 else None


def compare_states(a: SampledStream, b: SampledStream, seed: int = 0) -> Similarity:
    """CKA and mutual nearest neighbours of every pair of states, with a null by permuting words."""
    shared = sorted(set(a.passages) & set(b.passages))
    if len(shared) < FEWEST:
        raise TextError(f"both models have a token's end at only {len(shared)} words; give a longer text.")
    first, second = (
        [x[[side.passages.index(number) for number in shared]].astype(np.float64) for x in side.states.values()]
        for side in (a, b)
    )
    k = min(NEIGHBOURS, len(shared) // 4)
    measures: dict[str, tuple[str, Alignment]] = {
        "CKA": ("linear CKA of the streams at the same words", cka(first, second, seed=seed)),
        "mutual neighbours": (
            f"share of a word's {k} nearest words that both models have in common",
            mutual_neighbours(first, second, k=k, seed=seed),
        ),
    }
    measured = tuple(
        SimilarityMaps(name, meaning, likeness.score, likeness.chance, likeness.best, likeness.best_chance)
        for name, (meaning, likeness) in measures.items()
    )
    return Similarity((tuple(a.states), tuple(b.states)), len(shared), measured)
