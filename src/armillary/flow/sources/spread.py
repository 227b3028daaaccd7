"""What if a text is one long document? Then passages of it stand in for documents, and the notes say so.

Every interval is taken over documents. A book, or a few long files, would leave all claims undecided however long they
are, so their documents are cut into passages that are spread over the whole.
"""

import random
import re
from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

from armillary.flow.documents import BLANK, Documents
from armillary.flow.tokens import CHARACTERS, Tokenizer, unalarmed

# With fewer documents, long ones are cut. So many passages leave enough of each for context to matter.
FEW = 16
PASSAGES = 20
# Passages shorter than this are no context to speak of: a text too short for them stays as it is.
LEAST = 16
SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s+")
SPACE = re.compile(r"\s+")
# Characters in which a boundary before a place is looked for.
NEAR = 4000
# Characters that tell how many a token has.
TASTE = 20_000


def spread(documents: Documents, tokenizer: Tokenizer, budget: int, seed: int = 0) -> Documents:
    """The same documents; where they are few and long, passages of them, which fit the budget together."""
    texts = documents.texts
    # A list is counted where it is; of a stream the first few are taken, and it goes on after them.
    stream = iter(texts)
    first = list(_taken(stream))
    filled = [text for text in first if text.strip()]
    if len(filled) >= FEW or not filled:
        return documents if isinstance(texts, Sized) else replace(documents, texts=chain(first, stream))
    with unalarmed():
        sizes = [_size(text, tokenizer) for text in filled]
        length = min(budget, int(sum(sizes))) // PASSAGES
        if length < LEAST or max(sizes) <= budget // PASSAGES:
            return replace(documents, texts=tuple(first))
        shares = _shares(sizes)
        cutter = _Cutter(tokenizer, length, random.Random(seed))
        passages = [p for text, share in zip(filled, shares, strict=True) for p in cutter.passages(text, share)]
    whole = f"{len(filled)} documents were" if len(filled) > 1 else "1 document was"
    note = f"{whole} cut into {len(passages)} passages; intervals treat passages as independent"
    return replace(documents, texts=tuple(passages), notes=(*documents.notes, note), ordered=False)


def _taken(stream: Iterator[str]) -> Iterator[str]:
    """Texts up to the last of the first `FEW` that are not empty."""
    count = 0
    for text in stream:
        yield text
        count += bool(text.strip())
        if count == FEW:
            return


def _size(text: str, tokenizer: Tokenizer) -> float:
    """About how many tokens; exact for a text that is not long."""
    return _tokens(text[:TASTE], tokenizer) * max(1.0, len(text) / TASTE)


def _tokens(text: str, tokenizer: Tokenizer) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _shares(sizes: list[float]) -> list[int]:
    """How many passages each document gives: in proportion to its size, none of them nothing.

    >>> _shares([900.0, 90.0, 10.0])
    [17, 2, 1]
    """
    shares = [1] * len(sizes)
    while sum(shares) < PASSAGES:
        largest = max(range(len(sizes)), key=lambda i: sizes[i] / shares[i])
        shares[largest] += 1
    return shares


@dataclass(frozen=True)
class _Cutter:
    tokenizer: Tokenizer
    length: int
    """Tokens that a passage may have."""
    rng: random.Random

    def passages(self, text: str, number: int) -> Iterator[str]:
        """Passages of equal stretches of a text, each at another place of its stretch with another seed."""
        half = len(text) // number // 2
        places = (len(text) * i // number for i in range(1, number))
        ends = [0, *(_boundary(text, place, place - half, place + half) for place in places), len(text)]
        for start, end in pairwise(ends):
            stretch = text[start:end]
            # Of a stretch that is longer than a passage, any part may be read.
            spare = int(len(stretch) * (1 - self.length / max(1.0, _size(stretch, self.tokenizer))))
            begin = _boundary(stretch, self.rng.randrange(spare), 0, spare) if spare > 0 else 0
            if (passage := self._fitted(stretch[begin:])).strip():
                yield passage

    def _fitted(self, text: str) -> str:
        """The beginning of a text that has no more tokens than a passage may have, up to the end of a word."""
        text = text[: CHARACTERS * self.length]
        while (tokens := _tokens(text, self.tokenizer)) > self.length:
            end = min(len(text) - 1, int(len(text) * (self.length / tokens) ** 0.98))
            spaces = [match.start() for match in islice(SPACE.finditer(text, max(0, end - 40), end + 1), 40)]
            text = text[: spaces[-1]] if spaces and spaces[-1] else text[:end]
        return text


def _boundary(text: str, place: int, low: int, high: int) -> int:
    """Where to cut near a place: at a paragraph between `low` and `high`, else a sentence, else a word, else there."""
    for pattern in (BLANK, SENTENCE, SPACE):
        if match := pattern.search(text, place, high):
            return match.end()
        if before := [match.end() for match in pattern.finditer(text, max(low, place - NEAR), place)]:
            return before[-1]
    return place
