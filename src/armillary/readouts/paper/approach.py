"""E10: how much more does a state say the next word than the word itself, by layer and by place in the sentence?

(e_next − e_own)·ln_f(x): the difference of two logits, had the model stopped there (without bias and soft cap). Sentences are
read by themselves. A word that leaves itself raises the number wherever it goes, so a control goes with it: another word for
the next one, drawn from the next words of all places.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.documents import Documents
from armillary.flow.tokens import Batch, Corpus, Window
from armillary.geometry.resample import bootstrap
from armillary.probes.instruments.words_record import states
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.readouts.trajectory_states import body, first_window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Of each of the sample's 68 documents a few sentences make some 4000 tokens. Words stand beyond the last place in few of them.
SENTENCES, LEAST, MOST, PLACES = 4, 6, 64, 24
MEANS = ("difference", "control", "next", "own", "other")
_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[.!?][\"'”’)\]])\s+|\n\s*\n")


@dataclass(frozen=True, eq=False)
class Sums:
    """[document, state, place, part]: how many words, their products with the next word's vector and their own, how many have
    another word, and the products with that one's."""

    states: tuple[str, ...]
    values: Floats
    sentences: int
    first: bool
    """Is the first place the model's own first position, at which nothing came before?"""

    @property
    def by_state(self) -> Floats:
        """[document, state, part], over all places; without the model's first position."""
        return np.asarray(self.values[:, :, int(self.first) :].sum(2))

    @property
    def known(self) -> "Sums":
        """Places that stand in as many documents as an interval needs, or in any where there are fewer documents."""
        documents = (self.values[:, 0, :, 0] > 0).sum(0)
        enough = documents >= min(T.documents_least, max(1, len(self.values)))
        return replace(self, values=self.values[:, :, enough])


def sentences(text: str) -> list[str]:
    """A document's sentences, by their punctuation.

    >>> sentences('He went. "Why?" she asked.\\n\\nNo answer')
    ['He went.', '"Why?"', 'she asked.', 'No answer']
    """
    return [part.strip() for part in _END.split(text) if part.strip()]


def windows_of(anatomy: Anatomy, documents: Documents, seed: int = 0) -> list[Window]:
    """A few sentences of every document, each to be read by itself; very long ones to their sixty-fourth token."""
    draw = np.random.default_rng(seed)
    made: list[Window] = []
    for document, text in enumerate(documents.texts):
        found = sentences(text)
        kept: list[Window] = []
        for at in draw.permutation(len(found)):
            try:
                window, _ = first_window(anatomy, found[at])
            except TextError:
                continue  # no token of this vocabulary in it
            length = len(body(window))
            if length >= LEAST:
                ids = window.ids[: window.prefix + min(length, MOST)]
                kept.append(replace(window, document=document, ids=ids, suffix=0))
            if len(kept) == SENTENCES:
                break
        made += kept
    return made


def approach(anatomy: Anatomy, windows: Sequence[Window], seed: int = 0) -> Sums:
    """One pass over the sentences, of which only sums are kept."""
    way = states(anatomy)
    sites = {site: state for site, state in way.items() if not state.endswith("mid") or site == next(iter(way))}
    numbers = {document: i for i, document in enumerate(dict.fromkeys(w.document for w in windows))}
    places = min(PLACES, max(len(w.ids) - w.prefix for w in windows) - 1)
    values = np.zeros((len(numbers), len(sites), places, 5))
    draw = np.random.default_rng(seed)
    pool = np.array([token for w in windows for token in w.ids[w.prefix + 1 :]], dtype=np.int64)
    for batch in Corpus(tuple(windows), "", len(numbers), sum(len(w.ids) for w in windows), ()).batches():
        rows, place = _followed(batch, places)
        if len(rows):
            words = _Words.of(anatomy, batch, rows, pool, draw)
            document = np.array([numbers[int(d)] for d in batch.documents])[rows.numpy() // batch.ids.shape[1]]
            watchers = {site: words.watcher(values, (document, i, place)) for i, site in enumerate(sites)}
            with still(anatomy.model), watching(anatomy, watchers):
                run(anatomy, batch.ids, batch.mask)
    return Sums(tuple(sites.values()), values, len(windows), all(w.prefix == 0 for w in windows))


def _followed(batch: Batch, places: int) -> tuple[Tensor, Ints]:
    """Rows of the sentences' own tokens that another one follows, and each one's place."""
    prefix = torch.tensor([w.prefix for w in batch.windows])
    place = torch.arange(batch.ids.shape[1])[None] - prefix[:, None]
    chosen = (batch.following >= 0) & (place >= 0) & (place < places)
    rows = chosen.reshape(-1).nonzero()[:, 0]
    return rows, place.reshape(-1)[rows].numpy()


@dataclass(frozen=True, eq=False)
class _Words:
    """A batch's followed rows, with three words' vectors each: the next, its own and another."""

    anatomy: Anatomy
    rows: Tensor
    vectors: tuple[Tensor, Tensor, Tensor]
    met: Floats
    """1 where another word was found, else 0."""

    @classmethod
    def of(cls, anatomy: Anatomy, batch: Batch, rows: Tensor, pool: Ints, draw: np.random.Generator) -> "_Words":
        assert anatomy.W_U is not None
        own, following = (part.reshape(-1)[rows] for part in (batch.ids, batch.following))
        other, met = other_words(own.numpy(), following.numpy(), pool, draw)
        table = anatomy.W_U.T
        a, b, c = (table[ids.to(table.device)].double() for ids in (following, own, torch.from_numpy(other)))
        return cls(anatomy, rows.to(anatomy.device), (a, b, c), met)

    def watcher(self, values: Floats, to: tuple[Ints, int, Ints]) -> Watcher:
        def see(given: Tensor | None, output: Tensor) -> None:
            state = output if self.anatomy.order == "post" else given
            assert state is not None
            x, norm = state.reshape(-1, self.anatomy.d)[self.rows], self.anatomy.ln_final
            y = (x if norm is None else norm(x)).double()
            following, own, other = ((y * vectors).sum(-1).cpu().numpy() for vectors in self.vectors)
            document, step, place = to
            parts = np.stack([np.ones(len(y)), following, own, self.met, other * self.met], 1)
            np.add.at(values[:, step], (document, place), parts)

        return see


def other_words(own: Ints, following: Ints, pool: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
    """Another word for each, as frequent as next words are, that is neither the word nor its next; and 0 where none was met."""
    tries = draw.choice(pool, (8, len(own)))
    good = (tries != own) & (tries != following)
    return tries[good.argmax(0), np.arange(len(own))], good.any(0).astype(np.float64)


def means(sums: Floats) -> Floats:
    """[..., MEANS] from summed parts; NaN of nothing."""
    count, following, own, met, other = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        following, own, other = following / count, own / count, other / met
    return np.stack([following - own, other - own, following, own, other], -1)


def intervals(sums: Floats) -> Floats:
    """[(value, low, high), ..., MEANS] of sums [document, ..., part]; no ends where documents are too few."""
    value = means(sums.sum(0))
    if len(sums) < T.documents_least:
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)])
    found = bootstrap(sums, means)
    return np.stack([value, found.low, found.high])
