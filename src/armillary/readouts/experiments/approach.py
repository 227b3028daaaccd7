"""E10: how much better a state predicts the next word than the word itself, by layer and by position in the sentence.

(e_next − e_own)·ln_f(x) is the difference of two logits, read from a state as if it were the last one (without bias and
soft cap). Each sentence is read by itself. A word that moves away from itself raises the number wherever it goes, so a
control is measured too: a random word in place of the next word, drawn from the next words of all positions.
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
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.readouts.head_spectra import Floats
from armillary.readouts.sentence_states import body, first_window, stream_sites
from armillary.readouts.settings import Settings
from armillary.readouts.trajectory import moves
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

Ints = NDArray[np.int64]
# A few sentences of each of the sample's 68 documents make some 4000 tokens. Few of them are longer than PLACES tokens.
SENTENCES, LEAST, MOST, PLACES = 4, 6, 64, 24
MEANS = ("difference", "control", "next", "own", "other")
_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[.!?][\"'”’)\]])\s+|\n\s*\n")
RANDOM = "a random next word"
WHAT = "(e_next − e_own)·ln_f(x)"
COLUMNS = (
    Column("state", "state of the stream"),
    Column("difference", f"{WHAT}, mean over words", "logits"),
    Column("low", "low end of its 95 % interval over documents", "logits"),
    Column("high", "high end of its 95 % interval over documents", "logits"),
    Column("control", "the same with a random next word", "logits"),
    Column("next", "e_next·ln_f(x)", "logits"),
    Column("own", "e_own·ln_f(x)", "logits"),
    Column("other", "e·ln_f(x) of the random word", "logits"),
    Column("words", "words counted"),
    Column("documents", "documents that contain them"),
)
BY_PLACE = (COLUMNS[0], Column("position", "position in the sentence, 1 is its first token"), *COLUMNS[1:])


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over words [document, state, position, part].

    The parts are: the number of words, their products with the next word's vector and with their own, the number of
    words that have a random word, and the products with that one.
    """

    states: tuple[str, ...]
    values: Floats
    sentences: int
    first: bool
    """Is the first position of a sentence also the model's first, with nothing before it?"""

    @property
    def by_state(self) -> Floats:
        """[document, state, part], over all positions but the model's first."""
        return np.asarray(self.values[:, :, int(self.first) :].sum(2))

    @property
    def known(self) -> "Sums":
        """Only positions in as many documents as an interval needs (in any, if there are fewer documents)."""
        documents = (self.values[:, 0, :, 0] > 0).sum(0)
        enough = documents >= min(T.documents_least, max(1, len(self.values)))
        return replace(self, values=self.values[:, :, enough])


def sentences(text: str) -> list[str]:
    """Split a document into sentences by punctuation.

    >>> sentences('He went. "Why?" she asked.\\n\\nNo answer')
    ['He went.', '"Why?"', 'she asked.', 'No answer']
    """
    return [part.strip() for part in _END.split(text) if part.strip()]


def windows_of(anatomy: Anatomy, documents: Documents, seed: int = 0) -> list[Window]:
    """A few sentences of every document, one window each, cut after MOST tokens."""
    draw = np.random.default_rng(seed)
    windows: list[Window] = []
    for document, text in enumerate(documents.texts):
        candidates = sentences(text)
        chosen: list[Window] = []
        for at in draw.permutation(len(candidates)):
            try:
                window, _ = first_window(anatomy, candidates[at])
            except TextError:
                continue  # it contains no token of this vocabulary
            length = len(body(window))
            if length >= LEAST:
                ids = window.ids[: window.prefix + min(length, MOST)]
                chosen.append(replace(window, document=document, ids=ids, suffix=0))
            if len(chosen) == SENTENCES:
                break
        windows += chosen
    return windows


def approach(anatomy: Anatomy, windows: Sequence[Window], seed: int = 0) -> Sums:
    """One pass over the sentences that keeps only sums."""
    sites = stream_sites(anatomy, sublayers=False)
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
    """Rows of the sentences' tokens that have a next token, and their positions."""
    prefix = torch.tensor([w.prefix for w in batch.windows])
    place = torch.arange(batch.ids.shape[1])[None] - prefix[:, None]
    chosen = (batch.following >= 0) & (place >= 0) & (place < places)
    rows = chosen.reshape(-1).nonzero()[:, 0]
    return rows, place.reshape(-1)[rows].numpy()


@dataclass(frozen=True, eq=False)
class _Words:
    """Rows of a batch with three vectors each: of the next word, of the word itself and of a random word."""

    anatomy: Anatomy
    rows: Tensor
    vectors: tuple[Tensor, Tensor, Tensor]
    drawn: Floats
    """1 where a random word was drawn, else 0."""

    @classmethod
    def of(cls, anatomy: Anatomy, batch: Batch, rows: Tensor, pool: Ints, draw: np.random.Generator) -> "_Words":
        assert anatomy.W_U is not None
        own, following = (part.reshape(-1)[rows] for part in (batch.ids, batch.following))
        other, drawn = other_words(own.numpy(), following.numpy(), pool, draw)
        table = anatomy.W_U.T
        a, b, c = (table[ids.to(table.device)].double() for ids in (following, own, torch.from_numpy(other)))
        return cls(anatomy, rows.to(anatomy.device), (a, b, c), drawn)

    def watcher(self, values: Floats, to: tuple[Ints, int, Ints]) -> Watcher:
        def see(given: Tensor | None, output: Tensor) -> None:
            state = output if self.anatomy.order == "post" else given
            assert state is not None
            x, norm = state.reshape(-1, self.anatomy.d)[self.rows], self.anatomy.ln_final
            y = (x if norm is None else norm(x)).double()
            following, own, other = ((y * vectors).sum(-1).cpu().numpy() for vectors in self.vectors)
            document, step, place = to
            parts = np.stack([np.ones(len(y)), following, own, self.drawn, other * self.drawn], 1)
            np.add.at(values[:, step], (document, place), parts)

        return see


def other_words(own: Ints, following: Ints, pool: Ints, draw: np.random.Generator) -> tuple[Ints, Floats]:
    """A random word for each word, drawn from `pool`, neither the word nor its next; and 0 where none was found."""
    tries = draw.choice(pool, (8, len(own)))
    good = (tries != own) & (tries != following)
    return tries[good.argmax(0), np.arange(len(own))], good.any(0).astype(np.float64)


def means(sums: Floats) -> Floats:
    """[..., MEANS] from summed parts; NaN where nothing was summed."""
    count, following, own, drawn, other = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        following, own, other = following / count, own / count, other / drawn
    return np.stack([following - own, other - own, following, own, other], -1)


def intervals(sums: Floats) -> Floats:
    """[(value, low, high), ..., MEANS] of sums [document, ..., part]; NaN for the ends if documents are too few."""
    value = means(sums.sum(0))
    if len(sums) < T.documents_least:
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)])
    interval = bootstrap(sums, means)
    return np.stack([value, interval.low, interval.high])


def approach_sheet(anatomy: Anatomy, documents: Documents, settings: Settings) -> Sheet:
    windows = windows_of(anatomy, documents)
    if not windows:
        raise TextError(f"{documents.source} contains no sentence of 6 tokens or more; give prose.")
    sums = approach(anatomy, windows).known
    by_state, by_place = intervals(sums.by_state), intervals(sums.values)
    start, end = by_state[0, 0], by_state[0, -1]
    first = "The model's first position, which sees no other token, counts only in the maps. " if sums.first else ""
    return Sheet(
        name="E10-approach",
        title=f"{WHAT} goes from {start[0]:.3g} to {end[0]:.3g} logits through the layers; with {RANDOM} from "
        f"{start[1]:.3g} to {end[1]:.3g}".replace("-", "−"),
        caption=f"{anatomy.name} · {documents.source} · {sums.sentences} sentences of {len(sums.values)} documents, "
        "each read by itself",
        tables={"by-layer": _by_layer(sums, by_state), "by-position": _by_place(sums, by_place)},
        quantities=_quantities(sums, by_state, by_place),
        notes=(
            "e are rows of the "
            f"unembedding{'' if anatomy.ln_final is not None else '; there is no final norm, so x is used as it is'}. "
            "Bias and soft cap of the logits are left out. The random word is the next word of another position, "
            "neither the word itself nor its next; a word that moves away from itself raises the number for it too. "
            f"{first}Intervals: 95 %, bootstrap over documents.",
            "Many states predict frequent words at any position, and one set of sentences makes up a position's "
            "whole column: positions differ by chance within the intervals of the table.",
        ),
        about=settings.about(anatomy),
    )


def _row(interval: Floats, sums: Floats) -> dict[str, Cell]:
    value, low, high = interval
    numbers = {**dict(zip(MEANS, value, strict=True)), "low": low[0], "high": high[0]}
    row: dict[str, Cell] = {name: None if np.isnan(number) else float(number) for name, number in numbers.items()}
    return row | {"words": int(sums[:, 0].sum()), "documents": int((sums[:, 0] > 0).sum())}


def _by_layer(sums: Sums, values: Floats) -> Table:
    rows = [{"state": s, **_row(values[:, i], sums.by_state[:, i])} for i, s in enumerate(sums.states)]
    return Table.of(COLUMNS, rows)


def _by_place(sums: Sums, values: Floats) -> Table:
    rows = [
        {"state": state, "position": p + 1, **_row(values[:, i, p], sums.values[:, i, p])}
        for i, state in enumerate(sums.states)
        for p in range(sums.values.shape[2])
    ]
    return Table.of(BY_PLACE, rows)


def _quantities(sums: Sums, by_state: Floats, by_place: Floats) -> tuple[Quantity, ...]:
    after = ["embed", *moves(sums.states)]
    at = {name: i for i, name in enumerate(MEANS)}

    def line(name: str, meaning: str, part: str, control: str, label: str) -> Quantity:
        value, low, high = by_state[..., at[part]]
        controls = {label: by_state[0][:, at[control]]}
        return Quantity(name, meaning, "logits", ("after",), {"after": after}, value, low, high, controls)

    meaning = "how much better a state predicts the next word than the word itself; band: 95 % over documents"
    return (
        line(WHAT, meaning, "difference", "control", RANDOM),
        line("e_next·ln_f(x)", "logit of the next word", "next", "other", "a random word"),
        line("e_own·ln_f(x)", "logit of the word itself", "own", "other", "a random word"),
        Quantity(
            "the difference by position in the sentence",
            "mean over sentences; the state before the first layer, where a word predicts itself, is only in the "
            "tables",
            "logits",
            ("after", "position"),
            {"after": after[1:], "position": [str(p + 1) for p in range(sums.values.shape[2])]},
            by_place[0, 1:, :, at["difference"]],
            controls={RANDOM: by_place[0, 1:, :, at["control"]]},
        ),
    )
