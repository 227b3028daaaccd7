"""Which words have two senses, and in which sentences can a model's tokenizer show them?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from armillary.anatomy import Anatomy
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow.tokens import Corpus, Window

# A sense with fewer readable sentences has no cluster to speak of.
SENTENCES_LEAST = 5


class ListedSentence(NamedTuple):
    """One sentence of the committed list."""

    word: str
    sense: int
    """0 or 1: which of the word's two senses."""
    meaning: str
    sentence: str


@dataclass(frozen=True)
class SenseSentence:
    """A sentence as a model reads it."""

    listed: ListedSentence
    window: Window
    place: int
    """Where the word stands in the window."""


@cache
def listed() -> tuple[ListedSentence, ...]:
    """The committed list (data/homographs.tsv says how it was made).

    >>> listed()[0][:3], len({row.word for row in listed()}), len(listed())
    (('bank', 0, 'edge of a river'), 16, 320)
    """
    text = files("armillary.probes.words.senses").joinpath("data", "homographs.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")][1:]
    senses: dict[str, list[str]] = {}
    for word, meaning, _ in rows:
        known = senses.setdefault(word, [])
        known += [] if meaning in known else [meaning]
    return tuple(
        ListedSentence(word, senses[word].index(meaning), meaning, sentence) for word, meaning, sentence in rows
    )


def readable(anatomy: Anatomy, corpus: Corpus) -> list[SenseSentence]:
    """The sentences in which the word is one token that occurs once, no token is unknown, and all fit the context.

    Only words with enough sentences of both senses are kept. A causal model reads no further than the word. What the
    tokenizer puts around a text is taken from the corpus.
    """
    if anatomy.tokenizer is None:
        return []
    texts = Vocabulary.of(anatomy).texts
    sentences = [_read(anatomy, texts, row, number, corpus.windows[0]) for number, row in enumerate(listed())]
    usable = [sentence for sentence in sentences if sentence is not None]
    count = Counter((sentence.listed.word, sentence.listed.sense) for sentence in usable)
    return [s for s in usable if min(count[s.listed.word, 0], count[s.listed.word, 1]) >= SENTENCES_LEAST]


def _read(
    anatomy: Anatomy, texts: Sequence[str], row: ListedSentence, number: int, example: Window
) -> SenseSentence | None:
    tokenizer = anatomy.tokenizer
    ids = list(tokenizer(row.sentence, add_special_tokens=False)["input_ids"])
    unknown = getattr(tokenizer, "unk_token_id", None)
    if not ids or unknown in ids or max(ids) >= anatomy.vocabulary:
        return None
    places = [t for t, token in enumerate(ids) if texts[token].strip().casefold() == row.word]
    if len(places) != 1:
        return None
    before, after = example.ids[: example.prefix], example.ids[len(example.ids) - example.suffix :]
    place = len(before) + places[0]
    window = Window(number, (*before, *ids, *after), len(before), len(after))
    if anatomy.causal:
        window = Window(number, window.ids[: place + 1], len(before))
    return SenseSentence(row, window, place) if len(window.ids) <= anatomy.context else None


def shuffled(sentence: SenseSentence, rng: np.random.Generator) -> Window:
    """The same tokens with those before the word in random order."""
    ids, first, place = sentence.window.ids, sentence.window.prefix, sentence.place
    order = first + rng.permutation(place - first)
    return replace(sentence.window, ids=(*ids[:first], *(ids[i] for i in order), *ids[place:]))


def words_of(sentences: Sequence[SenseSentence]) -> list[str]:
    """The words that have sentences, in the order of the list."""
    return list(dict.fromkeys(sentence.listed.word for sentence in sentences))
