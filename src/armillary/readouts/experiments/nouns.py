"""Nouns in a vocabulary (COCA's hundred most frequent), their keys (E3) and values (E4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from armillary.anatomy.vocabulary import Vocabulary
from armillary.errors import WordError
from armillary.lab.required_words import NOUNS
from armillary.readouts.head_spectra import Progress, head_map
from armillary.readouts.lookups import look_up, values
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.readouts.settings import Settings, describe_output
from armillary.readouts.word_sheet import PROMOTED, WRITES, write_row
from armillary.results import Column, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

TOKENS = (
    Column("noun", "noun of the COCA list, by frequency"),
    Column("token_word", "its token; empty if it is several tokens"),
    Column("token_id", "its number in the vocabulary"),
    Column("pieces", "the tokens it is split into, if it was left out"),
)
KEYS = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("noun", "the query"),
    Column("self_rank", "rank of the noun among its own keys, 1 is first"),
    RANK,
    *side_columns("key", "key", "score that softmax receives, or cosine of query and key"),
)
VALUES = (
    *WRITES[:2],
    Column("noun", "the only token that is attended to"),
    Column("length", "length of what is written", "‖x‖"),
    *WRITES[3:5],
    *side_columns("result", "words that noun and write together read as", "logit, or cosine"),
    *PROMOTED,
)


@dataclass(frozen=True)
class Nouns:
    """The tokens of nouns, the nouns that were left out with the pieces they are split into, and the spelling used."""

    ids: Mapping[str, int]
    split: Mapping[str, tuple[str, ...]]
    spaced: bool
    asked_bare: bool

    def table(self, vocabulary: Vocabulary) -> Table:
        rows = []
        for noun in NOUNS:
            number = self.ids.get(noun)
            word = "" if number is None else vocabulary.texts[number]
            rows.append((noun, word, number, " ".join(map(repr, self.split.get(noun, ())))))
        return Table(TOKENS, tuple(rows))

    @property
    def note(self) -> str:
        """How many nouns are single tokens, how they are spelt, and which were left out."""
        spelling = "with a leading space" if self.spaced else "as bare strings"
        if not self.spaced and not self.asked_bare:
            spelling += " (this vocabulary has no tokens that begin with a space)"
        split = ", ".join(f"{noun} ({' · '.join(map(repr, pieces))})" for noun, pieces in self.split.items())
        note = f"{len(self.ids)} of the {len(NOUNS)} nouns are single tokens here, {spelling}"
        return f"{note}; left out: {split}." if split else f"{note}."


def find_nouns(vocabulary: Vocabulary, bare: bool = False) -> Nouns:
    index: dict[str, int] = {}
    for number, text in enumerate(vocabulary.texts):
        if vocabulary.shown[number]:
            index.setdefault(text, number)
    spaced = not bare and any(text.startswith(" ") for text in index)
    spelt = {noun: f" {noun}" if spaced else noun for noun in NOUNS}
    ids = {noun: index[text] for noun, text in spelt.items() if text in index}
    if not ids:
        raise WordError(
            f"none of the {len(NOUNS)} nouns is a single token of {vocabulary.anatomy.name}, so their keys and values "
            "cannot be read; armillary heads reads singular vectors without them."
        )
    split = {}
    for noun, text in spelt.items():
        if noun not in ids:
            pieces = vocabulary.anatomy.tokenizer(text, add_special_tokens=False)["input_ids"]
            split[noun] = tuple(vocabulary.texts[i] if i < len(vocabulary) else f"#{i}" for i in pieces)
    return Nouns(ids, split, spaced, bare)


def keys_sheet(reader: Reader, nouns: Nouns, layers: Sequence[int], settings: Settings, progress: Progress) -> Sheet:
    """E3: the best keys of every noun."""
    anatomy, heads, top = reader.anatomy, range(reader.anatomy.n_heads), settings.top
    ids = torch.tensor(list(nouns.ids.values()), device=anatomy.device)
    rows: list[dict[str, Cell]] = []
    own = np.zeros((len(layers), len(heads)))
    for done, layer in enumerate(layers):
        progress("E3: keys of nouns", done, len(layers))
        lookup = look_up(reader, layer, ids, heads, both=False)
        own[done] = (lookup.self_rank <= top).mean(1)
        for head in heads:
            for n, noun in enumerate(nouns.ids):
                start: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{head}", "noun": noun}
                start["self_rank"] = int(lookup.self_rank[head, n])
                rows += reader.ranked(start, key=lookup.keys[head, n])
    layer, head = divmod(int(own.argmax()), own.shape[1])
    name, meaning = f"nouns among their own {top} best keys", "share of nouns that prefer themselves"
    return Sheet(
        name="E3-keys",
        title=f"A noun is among its own {top} best keys for {np.median(own):.0%} of nouns in the median head, for "
        f"{own.max():.0%} in L{layers[layer]}H{head}",
        caption=settings.caption(anatomy),
        tables={"keys": Table.of(KEYS, rows), "nouns": nouns.table(reader.vocabulary)},
        quantities=(head_map(name, meaning, "share", own, layers, heads),),
        notes=(nouns.note,),
        about=settings.about(anatomy),
    )


def values_sheet(reader: Reader, nouns: Nouns, layers: Sequence[int], settings: Settings, progress: Progress) -> Sheet:
    """E4: what every head, and the sum of a layer's heads, writes for a noun."""
    anatomy, heads = reader.anatomy, range(reader.anatomy.n_heads)
    ids = torch.tensor(list(nouns.ids.values()), device=anatomy.device)
    rows: list[dict[str, Cell]] = []
    lengths, changed = np.zeros((len(layers), len(heads))), np.zeros((len(layers), len(heads) + 1))
    for done, layer in enumerate(layers):
        progress("E4: values of nouns", done, len(layers))
        written = values(reader, layer, ids)
        lengths[done] = np.median(written.length[:-1], 1)
        changed[done] = (written.result.ids[..., 0] != ids.cpu().numpy()).mean(1)
        for head in [*heads, -1]:
            for n, noun in enumerate(nouns.ids):
                start = write_row(written, layer, head, n) | {"noun": noun}
                rows += reader.ranked(start, result=written.result[head, n], promoted=written.promoted[head, n])
    sums = ", ".join(f"{share:.0%} in L{layer}" for layer, share in zip(layers, changed[:, -1], strict=True))
    name, meaning = "nouns that one head turns into another word", "share whose best result is not the noun"
    return Sheet(
        name="E4-values",
        title=f"With the whole layer's write a noun reads as another word for {sums}",
        caption=settings.caption(anatomy),
        tables={"values": Table.of(VALUES, rows)},
        quantities=(
            head_map(name, meaning, "share", changed[:, :-1], layers, heads),
            head_map("length of the write", "median over nouns", "‖x‖", lengths, layers, heads),
        ),
        notes=(
            f"Read through {describe_output(anatomy)}. b_O belongs to the layer: it counts in the sum, in no single "
            "head.",
        ),
        about=settings.about(anatomy),
    )
