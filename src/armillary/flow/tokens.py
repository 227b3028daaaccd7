"""How does text become the batches a model reads, with every token's document known?

Documents are cut into windows that fit the context, never joined; windows are batched by length, and no batch mixes
the two halves of the documents (so that a statistic can be checked on one half against the other). Padding is marked
and never counted.
"""

import hashlib
import logging
import random
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from armillary.errors import TextError
from armillary.flow.documents import Documents

# Of a CPU; `flow.machine.batch_size.batch_tokens` says how many a GPU takes.
BATCH_TOKENS = 2048
SEGMENT_TOKENS = 1 << 16
# With a GPU's batches a segment has this many: its states are copied at its end.
SEGMENT_BATCHES = 64
WINDOW = 1024
GROUPS = 64
# Documents are what intervals are taken over: a budget reads no more of one than spans two dozen of them, but enough
# of each for context to matter.
SPAN = 24
SHARE = 128
# A token of ordinary text has three to five characters. Only what is far longer than the budget is cut.
CHARACTERS = 64
CUT = 64
# Of images and clips an experiment reads at least so many.
WHOLE_LEAST = 8


class Tokenizer(Protocol):
    def __call__(self, text: str, add_special_tokens: bool = ...) -> Any: ...


@dataclass(frozen=True)
class Window:
    """A stretch of one document that is read at once."""

    document: int
    ids: tuple[int, ...]
    prefix: int = 0
    suffix: int = 0
    """How many ids at either end the tokenizer added (BOS, [CLS], [SEP]): they keep their place in a shuffle."""


@dataclass(frozen=True)
class Batch:
    """ids, mask [b, t]; documents [b]; following [b, t]: the next token within the window, −1 where there is none."""

    ids: Tensor
    mask: Tensor
    documents: Tensor
    following: Tensor
    fold: int
    """Which half of the documents."""
    windows: tuple[Window, ...] = ()
    number: int = 0
    """In the whole text."""

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())


@dataclass(frozen=True)
class Segment:
    """Numbers of batches that follow each other, and their tokens."""

    batches: range
    tokens: int


@dataclass(frozen=True)
class Corpus:
    """What will be read: windows of whole documents within the budget, and what was done to get them."""

    windows: tuple[Window, ...]
    source: str
    documents: int
    tokens: int
    notes: tuple[str, ...]
    one_token: int = 0
    longer: int = 0
    batch: int | None = None
    """Tokens in a batch of a pass; None is what suits a CPU."""
    whole: bool = False
    """Windows are whole images or clips, which cannot be read in part."""

    @property
    def batch_tokens(self) -> int:
        return self.batch or BATCH_TOKENS

    @property
    def segment_tokens(self) -> int:
        """Tokens of a segment, at least."""
        large = self.batch_tokens > BATCH_TOKENS
        return max(SEGMENT_TOKENS, SEGMENT_BATCHES * self.batch_tokens) if large else SEGMENT_TOKENS

    @property
    def groups(self) -> int:
        """Document groups for the bootstrap: one per document up to 64, then several documents each."""
        return min(self.documents, GROUPS)

    def group(self, documents: Tensor) -> Tensor:
        return documents % self.groups

    @property
    def checksum(self) -> str:
        """A short hash of every token, and of the documents they belong to."""
        digest = hashlib.sha256()
        for window in self.windows:
            digest.update(repr((window.document, window.prefix, window.suffix)).encode())
            digest.update(torch.tensor(window.ids).numpy().tobytes())
        return digest.hexdigest()[:16]

    def batches(self, size: int | None = None, only: Container[int] | None = None) -> Iterator[Batch]:
        """Windows of similar length together, about `size` tokens a batch, in a fixed order; `only` some, by number."""
        for number, windows in enumerate(self._batched(size or self.batch_tokens)):
            if only is None or number in only:
                yield collate(windows, windows[0].document % 2, number)

    def segments(self) -> "list[Segment]":
        """Stretches of batches whose states are added: all in one, unless the text is long."""
        segments, start, tokens = [], 0, 0
        sizes = [sum(len(window.ids) for window in windows) for windows in self.batched_windows()]
        for end, size in enumerate(sizes, 1):
            tokens += size
            if tokens >= self.segment_tokens or end == len(sizes):
                segments.append(Segment(range(start, end), tokens))
                start, tokens = end, 0
        return segments

    def batch_count(self) -> int:
        return sum(1 for _ in self.batched_windows())

    def batched_windows(self) -> "Iterator[list[Window]]":
        """The windows of one batch after another."""
        return self._batched(self.batch_tokens)

    def _batched(self, size: int) -> Iterator[list[Window]]:
        for fold in (0, 1):
            half = [w for w in self.windows if w.document % 2 == fold]
            half.sort(key=lambda w: (-len(w.ids), w.document))
            start = 0
            while start < len(half):
                rows = max(1, size // len(half[start].ids))
                yield half[start : start + rows]
                start += rows

    def places(self, last: int = 0) -> Tensor:
        """[n, (document, position)] of every token that is not first, nor among the `last` of its window."""
        lengths = torch.tensor([max(0, len(w.ids) - last - 1) for w in self.windows])
        documents = torch.tensor([w.document for w in self.windows]).repeat_interleave(lengths)
        starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return torch.stack((documents, torch.arange(len(starts)) - starts + 1), 1)

    def shuffled(self, seed: int) -> "Corpus":
        """The same tokens in random order within each document; added special tokens keep their place."""
        rng = random.Random(seed)
        bodies: dict[int, list[int]] = {}
        for w in self.windows:
            bodies.setdefault(w.document, []).extend(w.ids[w.prefix : len(w.ids) - w.suffix])
        for body in bodies.values():
            rng.shuffle(body)
        windows = []
        for w in self.windows:
            length = len(w.ids) - w.prefix - w.suffix
            body, bodies[w.document] = bodies[w.document][:length], bodies[w.document][length:]
            ids = (*w.ids[: w.prefix], *body, *w.ids[len(w.ids) - w.suffix :])
            windows.append(Window(w.document, ids, w.prefix, w.suffix))
        return replace(self, windows=tuple(windows))

    def thinned(self, tokens: int, documents: int) -> "Corpus":
        """The beginnings of the first few documents, an equal share of each, within a smaller budget."""
        share = max(2, tokens // min(documents, self.documents))
        if self.whole:
            # As many whole documents as the budget has room for, and as many as an interval needs in any case.
            share = len(self.windows[0].ids)
            documents = min(documents, max(WHOLE_LEAST, tokens // share))
        firsts: dict[int, Window] = {}
        for window in self.windows:
            if window.document < documents and window.document not in firsts:
                firsts[window.document] = Window(window.document, window.ids[:share], window.prefix)
        count = sum(len(window.ids) for window in firsts.values())
        return replace(self, windows=tuple(firsts.values()), tokens=count, one_token=0, longer=0)


def collate(windows: Sequence[Window], fold: int, number: int = 0) -> Batch:
    longest = max(len(w.ids) for w in windows)
    ids = torch.zeros(len(windows), longest, dtype=torch.long)
    mask = torch.zeros(len(windows), longest, dtype=torch.bool)
    following = torch.full((len(windows), longest), -1, dtype=torch.long)
    for row, window in enumerate(windows):
        n = len(window.ids)
        # A padding id that every vocabulary has; the mask keeps it out of attention and out of every count.
        ids[row, :n] = torch.tensor(window.ids)
        mask[row, :n] = True
        following[row, : n - 1] = ids[row, 1:n]
    return Batch(ids, mask, torch.tensor([w.document for w in windows]), following, fold, tuple(windows), number)


def encode(
    documents: Documents, tokenizer: Tokenizer, context: int, budget: int, seed: int = 0, start: int | None = None
) -> Corpus:
    """Tokenize documents until the budget is spent; say what was cut, dropped or too short. Every window of a decoder
    begins with its `start` token."""
    if budget < 1:
        raise TextError(f"--tokens {budget} leaves nothing to read; give at least 1, better 2000 or more.")
    added = _added(tokenizer)
    if start is not None and added[0][:1] != [start]:
        added = ([start, *added[0]], added[1])
    prefix, suffix = len(added[0]), len(added[1])
    room = min(context, WINDOW) - prefix - suffix
    texts: Iterable[str] = documents.texts
    if not documents.ordered:
        # A fixed order that mixes the sources, so that a small budget does not read one author alone.
        texts = list(texts)
        random.Random(seed).shuffle(texts)
    with unalarmed():
        bodies, lengths, empty = _bodies(texts, tokenizer, budget)
    cap = _share(bodies, budget)
    windows: list[Window] = []
    count = taken = 0
    for body in bodies:
        if count >= budget:
            break
        body = body[: min(cap, max(1, budget - count))]
        for start in range(0, len(body), room):
            ids = (*added[0], *body[start : start + room], *added[1])
            windows.append(Window(taken, ids, prefix, suffix))
            count += len(ids)
        taken += 1
    if not windows:
        raise TextError(f"{documents.source} gives no token with this tokenizer; pass a text with some words in it.")
    read = bodies[:taken]
    one_token, longer = sum(len(body) == 1 for body in read), sum(n > context for n in lengths[:taken])
    split = sum(len(body[:cap]) > room for body in read)
    cut = sum(len(body) > cap for body in read)
    notes = list(documents.notes)
    if one_token:
        notes.append(f"{_documents(one_token)} of one token")
    if longer:
        notes.append(f"{_documents(longer)} longer than the context of {context} tokens")
    if split:
        notes.append(f"{_documents(split)} read in windows of {room} tokens that stay in their document")
    if cut:
        notes.append(f"of {_documents(cut)} the first {cap} tokens, so that the budget spans more documents")
    if empty:
        notes.append(f"{_documents(empty)} gave no token and did not count")
    notes += _unknown(tokenizer, windows, count)
    return Corpus(tuple(windows), documents.source, taken, count, tuple(notes), one_token, longer)


def check_varied(corpus: Corpus, tokenizer: Any) -> None:
    """The first token of a document is counted apart; where all others are one word, no direction varies."""
    ordinary, before = list[int](), -1
    for window in corpus.windows:
        body = window.ids[window.prefix : len(window.ids) - window.suffix]
        ordinary += body[int(window.document != before) :]
        before = window.document
    if len(ordinary) > 1 and len(set(ordinary)) == 1:
        raise TextError(
            f"{corpus.source} repeats one token ({tokenizer.convert_ids_to_tokens(ordinary[0])!r}) behind the first of "
            "each document, so nothing can be compared; pass a text with different words."
        )


def _unknown(tokenizer: Any, windows: Sequence[Window], count: int) -> list[str]:
    """A text of another language, or another model's tokenizer, gives verdicts as well."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    strangers = 0 if unknown is None else sum(window.ids.count(unknown) for window in windows)
    if 2 * strangers <= count:
        return []
    return [f"{strangers} of {count} tokens are {tokenizer.unk_token}, the word for what the tokenizer does not know"]


def _documents(number: int) -> str:
    return f"{number} document{'s' if number != 1 else ''}"


@contextmanager
def unalarmed() -> Iterator[None]:
    """Hugging Face warns of documents that are longer than the context; here they are cut afterwards."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _bodies(texts: Iterable[str], tokenizer: Tokenizer, budget: int) -> tuple[list[list[int]], list[float], int]:
    """Token ids of as many documents as the budget can span, their whole lengths, and how many gave none."""
    bodies: list[list[int]] = []
    lengths: list[float] = []
    reach = empty = 0
    share = max(SHARE, budget // SPAN)
    for text in texts:
        if reach >= budget:
            break
        body, length = _beginning(text, tokenizer, budget)
        if body:
            lengths.append(length)
            body = body[:budget]
            bodies.append(body)
            reach += min(len(body), share)
        else:
            empty += 1
    return bodies, lengths, empty


def _beginning(text: str, tokenizer: Tokenizer, tokens: int) -> tuple[list[int], float]:
    """The ids of a text and their number; of a very long one at least the first `tokens` ids, and an estimate."""
    characters = CHARACTERS * tokens
    while True:
        ids = list(tokenizer(text[:characters], add_special_tokens=False)["input_ids"])
        if characters >= len(text):
            return ids, len(ids)
        # Where the text was cut the last tokens may differ from those of the whole.
        if len(ids) >= tokens + CUT:
            return ids[:tokens], len(ids) * len(text) / characters
        characters *= 4


def _share(bodies: list[list[int]], budget: int) -> int:
    """How much to read of each: a fair share, or more where few documents must fill the budget."""
    cap = max(SHARE, budget // SPAN)
    while sum(min(len(body), cap) for body in bodies) < budget and cap < max(map(len, bodies), default=0):
        cap *= 2
    return cap


def _added(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens a tokenizer puts before and after a text."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    dressed = list(tokenizer("a", add_special_tokens=True)["input_ids"])
    for start in range(len(dressed) - len(plain) + 1):
        if dressed[start : start + len(plain)] == plain:
            return dressed[:start], dressed[start + len(plain) :]
    return [], []
