"""At which tokens does the loss depend on a role? Tokens that are marked, and as many others to compare with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow.tokens import Batch, Corpus, Window
from armillary.probes.instruments.patterns import FIRST_QUERY, repeated
from armillary.probes.machinery.bench import BATCH

MARKED, OTHER = 0, 1
# The gradient of fewer tokens is that of a few words.
LEAST = 32
# Documents that get a row of repeated tokens.
COPIES = 24

Place = tuple[int, int]
"""Number of a window, and a position in it whose next token is predicted."""


@dataclass(frozen=True, eq=False)
class MarkedBatch:
    """A batch with its tokens of each phenomenon, [b, t]: (phenomenon, MARKED or OTHER) → mask."""

    batch: Batch
    marks: Mapping[tuple[str, int], Tensor]


@dataclass(frozen=True, eq=False)
class Phenomena:
    """All marked tokens; `counts` has as many marked as other ones for each phenomenon."""

    batches: tuple[MarkedBatch, ...]
    counts: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.counts)


def mark(anatomy: Anatomy, corpus: Corpus, seed: int) -> Phenomena:
    """Tokens of every phenomenon that this text has enough of."""
    rng = np.random.default_rng([seed, 59])
    on_text = {"same": _same_word(corpus, rng), "previous": _inside_words(anatomy, corpus, rng)}
    places = {name: sides for name, sides in on_text.items() if len(sides[MARKED]) >= LEAST}
    marked = [_marked(batch, corpus.windows, places) for batch in corpus.batches(BATCH)]
    batches = (*_copies(anatomy, corpus, seed), *(batch for batch in marked if batch.marks))
    counts: dict[str, int] = {}
    for batch in batches:
        for (name, side), mask in batch.marks.items():
            counts[name] = counts.get(name, 0) + int(mask.sum()) * (side == MARKED)
    return Phenomena(batches, counts)


def _same_word(corpus: Corpus, rng: np.random.Generator) -> tuple[list[Place], list[Place]]:
    """Tokens that have stood in their window before, and as many of the same words that have not."""
    again: dict[int, list[Place]] = {}
    fresh: dict[int, list[Place]] = {}
    for number, window in enumerate(corpus.windows):
        for t in _queries(window):
            seen = window.ids[t] in window.ids[window.prefix : t]
            (again if seen else fresh).setdefault(window.ids[t], []).append((number, t))
    sides: tuple[list[Place], list[Place]] = ([], [])
    for word in sorted(again.keys() & fresh.keys()):
        for side, places in zip(sides, _as_many(again[word], fresh[word], rng), strict=True):
            side.extend(places)
    return sides


def _inside_words(anatomy: Anatomy, corpus: Corpus, rng: np.random.Generator) -> tuple[list[Place], list[Place]]:
    """Pieces of a word, not its first, that another piece follows, and as many that end their word.

    None where tokens do not show where a word begins.
    """
    if anatomy.tokenizer is None:
        return [], []
    texts = Vocabulary.of(anatomy).texts
    if not any(text.startswith(" ") for text in texts):
        return [], []
    inside, ends = list[Place](), list[Place]()
    for number, window in enumerate(corpus.windows):
        letters = [texts[token] for token in window.ids]
        joined = [False, *(before[-1:].isalpha() and after[:1].isalpha() for before, after in pairwise(letters))]
        for t in _queries(window):
            if joined[t]:
                (inside if joined[t + 1] else ends).append((number, t))
    return _as_many(inside, ends, rng)


def _queries(window: Window) -> Iterable[int]:
    """Positions whose next token is a token of the text."""
    return range(max(FIRST_QUERY, window.prefix), len(window.ids) - window.suffix - 1)


def _as_many(
    places: Sequence[Place], others: Sequence[Place], rng: np.random.Generator
) -> tuple[list[Place], list[Place]]:
    count = min(len(places), len(others))
    first, second = ([side[i] for i in sorted(rng.permutation(len(side))[:count])] for side in (places, others))
    return first, second


def _marked(
    batch: Batch, windows: Sequence[Window], places: Mapping[str, tuple[list[Place], list[Place]]]
) -> MarkedBatch:
    rows = {id(window): row for row, window in enumerate(batch.windows)}
    marks: dict[tuple[str, int], Tensor] = {}
    for name, sides in places.items():
        for side, chosen in enumerate(sides):
            mask = torch.zeros(batch.ids.shape, dtype=torch.bool)
            for number, t in chosen:
                row = rows.get(id(windows[number]))
                if row is not None:
                    mask[row, t] = True
            if mask.any():
                marks[name, side] = mask
    return MarkedBatch(batch, marks)


def _copies(anatomy: Anatomy, corpus: Corpus, seed: int) -> list[MarkedBatch]:
    """Random tokens repeated once, marked in the second copy; and rows that go on with other tokens instead, at the
    same places. None where the text has too few different tokens."""
    again = repeated(corpus, range(COPIES), anatomy.context, seed)
    prefix = again.windows[0].prefix
    length = (len(again.windows[0].ids) - prefix) // 2
    known = np.array(sorted({token for w in corpus.windows for token in w.ids[w.prefix : len(w.ids) - w.suffix]}))
    if length < 4 or len(known) < 2 * length:
        return []
    rng = np.random.default_rng([seed, 61])
    others = []
    for window in again.windows:
        first = window.ids[: prefix + length]
        fresh = rng.choice(np.setdiff1d(known, first), length, replace=False).tolist()
        others.append(replace(window, ids=(*first, *fresh)))
    marked = []
    for side, rows in ((MARKED, again.windows), (OTHER, tuple(others))):
        for batch in replace(again, windows=rows).batches(BATCH):
            mask = torch.zeros(batch.ids.shape, dtype=torch.bool)
            mask[:, prefix + length : prefix + 2 * length - 1] = True
            marked.append(MarkedBatch(batch, {("induction", side): mask}))
    return marked
