"""What does one word look for, who looks for it, and what is written for it? A sheet of its keys, queries and values."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import WordError
from armillary.readouts.ask import Gauge, Matrix, output_said
from armillary.readouts.lookups import Lookup, Values, look_up, values
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

Progress = Callable[[str, int, int], None]
KEYS = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("self_rank", "the word's own place among its keys, 1 is first"),
    RANK,
    *side_columns("key", "keys that the word looks for", "score that softmax receives, or cosine of query and key"),
    *side_columns(
        "query", "queries that look for the word", "its score above the query's mean over all words, or cosine"
    ),
)
WRITES = (
    Column("layer", "layer"),
    Column("head", "head, or the sum of a layer's heads with its bias"),
    Column("length", "length of what is written for the word", "‖x‖"),
    Column("relative", "length over that of the stream it is added to"),
    RANK,
    *side_columns("promoted", "words that the write promotes, alone", "product (or cosine) with the write"),
    *side_columns("result", "words that word and write together read as", "logit, or cosine"),
)


def output_note(anatomy: Anatomy) -> str:
    return f"Writes are read through {output_said(anatomy)}."


def word_sheet(
    reader: Reader,
    word: str,
    layers: Sequence[int],
    heads: Sequence[int],
    matrices: Sequence[Matrix],
    gauge: Gauge,
    progress: Progress,
) -> Sheet:
    """One word in some heads: the keys it looks for, the queries that look for it, and what is written for it."""
    if not word.strip():
        raise WordError(f"{word!r} is no word; give one with a letter in it, for example --word time.")
    anatomy = reader.anatomy
    number = reader.vocabulary.find(word)
    text, ids = reader.vocabulary.texts[number], torch.tensor([number], device=anatomy.device)
    tables: dict[str, Table] = {}
    quantities: list[Quantity] = []
    titles = []
    for matrix in matrices:
        name, part = ("keys", _keys) if matrix == "qk" else ("values", _values)
        tables[name], quantity, said = part(reader, ids, layers, heads, gauge, progress)
        quantities.append(quantity)
        titles.append(said.format(word=f"‘{word}’"))
    notes = [f"{text!r} is token {number}, alone and without a position."]
    notes += [output_note(anatomy)] if "vo" in matrices else []
    return Sheet(
        name="word",
        title="; ".join(titles),
        caption=gauge.caption(anatomy),
        tables=tables,
        quantities=tuple(quantities),
        notes=tuple(notes),
        about=gauge.about(anatomy) | {"word": text, "token": number},
    )


Part = tuple[Table, Quantity, str]


def _keys(
    reader: Reader, ids: Tensor, layers: Sequence[int], heads: Sequence[int], gauge: Gauge, progress: Progress
) -> Part:
    seen = []
    for done, layer in enumerate(layers):
        progress("looking up keys", done, len(layers))
        seen.append(look_up(reader, layer, ids, heads, gauge.offset))
    ranks = np.concatenate([one.self_rank for one in seen], 1).T.astype(float)
    grid = _grid("place of the word among its own keys", "1: it looks for itself", "rank", layers, heads, ranks, True)
    said = f"{{word}} is its own first key in {int((ranks == 1).sum())} of {ranks.size} heads"
    return _keys_table(reader, layers, heads, seen), grid, said


def _values(
    reader: Reader, ids: Tensor, layers: Sequence[int], heads: Sequence[int], gauge: Gauge, progress: Progress
) -> Part:
    written = []
    for done, layer in enumerate(layers):
        progress("reading writes", done, len(layers))
        written.append(values(reader, layer, ids))
    lengths = np.stack([one.length[list(heads), 0] for one in written])
    meaning = "what each head writes where it attends to the word alone"
    grid = _grid("length of the write", meaning, "‖x‖", layers, heads, lengths)
    said = f"a head writes {np.median(lengths):.3g} long for {{word}} in the middle"
    return _values_table(reader, layers, heads, written), grid, said


def _grid(
    name: str,
    meaning: str,
    unit: str,
    layers: Sequence[int],
    heads: Sequence[int],
    found: np.ndarray,
    log: bool = False,
) -> Quantity:
    coords = {"layer": [f"L{layer}" for layer in layers], "head": [f"H{head}" for head in heads]}
    return Quantity(name, meaning, unit, ("layer", "head"), coords, found, logs=("value",) if log else ())


def _keys_table(reader: Reader, layers: Sequence[int], heads: Sequence[int], seen: Sequence[Lookup]) -> Table:
    rows: list[dict[str, Cell]] = []
    for layer, one in zip(layers, seen, strict=True):
        assert one.queries is not None
        for at, head in enumerate(heads):
            start: dict[str, Cell] = {
                "layer": layer,
                "head": f"L{layer}H{head}",
                "self_rank": int(one.self_rank[at, 0]),
            }
            rows += reader.ranked(start, key=one.keys[at, 0], query=one.queries[at, 0])
    return Table.of(KEYS, rows)


def _values_table(reader: Reader, layers: Sequence[int], heads: Sequence[int], seen: Sequence[Values]) -> Table:
    rows: list[dict[str, Cell]] = []
    for layer, one in zip(layers, seen, strict=True):
        for at in [*heads, -1]:
            length, stream = float(one.length[at, 0]), float(one.stream[0])
            start: dict[str, Cell] = {"layer": layer, "head": f"L{layer} sum" if at < 0 else f"L{layer}H{at}"}
            start |= {"length": length, "relative": length / stream if stream else None}
            rows += reader.ranked(start, promoted=one.promoted[at, 0], result=one.result[at, 0])
    return Table.of(WRITES, rows)
