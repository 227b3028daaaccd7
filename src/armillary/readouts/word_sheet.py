"""One word in some heads, as a sheet: its keys, the queries that prefer it, and what is written for it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import WordError
from armillary.readouts.head_spectra import Progress, head_map
from armillary.readouts.lookups import Values, look_up, values
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.readouts.settings import Matrix, Settings, describe_output
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

KEY = side_columns("key", "keys that the word prefers", "score that softmax receives, or cosine of query and key")
KEYS = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("self_rank", "rank of the word among its own keys, 1 is first"),
    RANK,
    *KEY,
    *side_columns(
        "query", "queries that prefer the word", "its score above the query's mean over all words, or cosine"
    ),
)
PROMOTED = side_columns("promoted", "words that the write alone promotes", "product (or cosine) with the write")
RESULT = side_columns("result", "words that word and write together read as", "logit, or cosine")
WRITES = (
    Column("layer", "layer"),
    Column("head", "head, or the sum of a layer's heads with its bias"),
    Column("length", "length of what is written for the word", "‖x‖"),
    Column("relative", "length over that of the stream it is added to"),
    RANK,
    *PROMOTED,
    *RESULT,
)


def output_note(anatomy: Anatomy) -> str:
    return f"Writes are read through {describe_output(anatomy)}."


def word_sheet(
    reader: Reader,
    word: str,
    layers: Sequence[int],
    heads: Sequence[int],
    matrices: Sequence[Matrix],
    settings: Settings,
    progress: Progress,
) -> Sheet:
    """One word in some heads: the keys it prefers, the queries that prefer it, and what is written for it."""
    if not word.strip():
        raise WordError(f"{word!r} is not a word; give one with a letter in it, for example 'time'.")
    anatomy = reader.anatomy
    number = reader.vocabulary.find(word)
    text, ids = reader.vocabulary.texts[number], torch.tensor([number], device=anatomy.device)
    tables: dict[str, Table] = {}
    quantities: list[Quantity] = []
    titles = []
    for matrix in matrices:
        name, part = ("keys", _keys) if matrix == "qk" else ("values", _values)
        tables[name], quantity, title = part(reader, ids, layers, heads, settings, progress)
        quantities.append(quantity)
        titles.append(title.format(word=f"‘{word}’"))
    notes = [f"{text!r} is token {number}, alone and without a position."]
    notes += [output_note(anatomy)] if "vo" in matrices else []
    return Sheet(
        name="word",
        title="; ".join(titles),
        caption=settings.caption(anatomy),
        tables=tables,
        quantities=tuple(quantities),
        notes=tuple(notes),
        about=settings.about(anatomy) | {"word": text, "token": number},
    )


Part = tuple[Table, Quantity, str]


def _keys(
    reader: Reader, ids: Tensor, layers: Sequence[int], heads: Sequence[int], settings: Settings, progress: Progress
) -> Part:
    rows: list[dict[str, Cell]] = []
    ranks = np.zeros((len(layers), len(heads)))
    for done, layer in enumerate(layers):
        progress("looking up keys", done, len(layers))
        lookup = look_up(reader, layer, ids, heads, settings.offset)
        assert lookup.queries is not None
        ranks[done] = lookup.self_rank[:, 0]
        for at, head in enumerate(heads):
            start: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{head}", "self_rank": int(ranks[done, at])}
            rows += reader.ranked(start, key=lookup.keys[at, 0], query=lookup.queries[at, 0])
    name, meaning = "rank of the word among its own keys", "1: the word prefers itself"
    title = f"{{word}} is its own first key in {int((ranks == 1).sum())} of {ranks.size} heads"
    return Table.of(KEYS, rows), head_map(name, meaning, "rank", ranks, layers, heads, log=True), title


def _values(
    reader: Reader, ids: Tensor, layers: Sequence[int], heads: Sequence[int], settings: Settings, progress: Progress
) -> Part:
    rows: list[dict[str, Cell]] = []
    lengths = np.zeros((len(layers), len(heads)))
    for done, layer in enumerate(layers):
        progress("reading writes", done, len(layers))
        written = values(reader, layer, ids)
        lengths[done] = written.length[list(heads), 0]
        for head in [*heads, -1]:
            start = write_row(written, layer, head, 0)
            rows += reader.ranked(start, promoted=written.promoted[head, 0], result=written.result[head, 0])
    meaning = "what each head writes if it attends to the word alone"
    title = f"the median head writes a vector of length {np.median(lengths):.3g} for {{word}}"
    return Table.of(WRITES, rows), head_map("length of the write", meaning, "‖x‖", lengths, layers, heads), title


def write_row(written: Values, layer: int, head: int, word: int) -> dict[str, Cell]:
    """Where a write belongs and how long it is; head −1 is the sum of the layer's heads."""
    length, stream = float(written.length[head, word]), float(written.stream[word])
    name = f"L{layer} sum" if head < 0 else f"L{layer}H{head}"
    return {"layer": layer, "head": name, "length": length, "relative": length / stream if stream else None}
