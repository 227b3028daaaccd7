"""One head, one layer, one word or all heads: what is asked for, as a sheet."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.load import load_model
from armillary.errors import WordError
from armillary.flow.laws import check
from armillary.readouts.ask import (
    SHOWN,
    Gauge,
    Layers,
    Matrix,
    check_directions,
    check_offset,
    check_top,
    output_said,
    pick_heads,
    pick_layers,
    pick_matrices,
    pick_ranking,
)
from armillary.readouts.atlas import atlas
from armillary.readouts.lookups import Lookup, Values, look_up, values
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.readouts.singular import bias_table, directions_table
from armillary.readouts.spectra import (
    Decomposed,
    decompose,
    spectra_table,
    spectrum_quantities,
    values_table,
)
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

Progress = Callable[[str, int, int], None]
PLACES = "first,middle,last"
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
# A screen holds so many lists of words.
SCREEN = 24


def heads(
    model: Any,
    layer: Layers = None,
    head: int | None = None,
    word: str | None = None,
    matrix: str | None = None,
    offset: int | None = None,
    top: int = 5,
    ranking: str = "dot",
    directions: int = 10,
    progress: Progress = lambda what, done, total: None,
) -> Sheet:
    """Read heads: the atlas of all, singular values and read-outs of some (`layer`, `head`), or a `word` in them.

    `model` is what `armillary.load` gives, or anything that it takes. `offset`: how many places a query stands after
    its key, under RoPE. `directions`: how many singular pairs of each head are read in words.
    """
    check_top(top)
    check_directions(directions)
    matrices, ranked = pick_matrices(matrix), pick_ranking(ranking)
    anatomy = opened(model)
    chosen = pick_heads(head, anatomy)
    gauge = Gauge(check_offset(offset, anatomy, matrices), ranked, top)
    with torch.no_grad():
        if word is not None:
            layers = pick_layers(PLACES if layer is None and head is None else layer, anatomy)
            return word_sheet(Reader.of(anatomy, top, ranked), word, layers, chosen, matrices, gauge, progress)
        layers = pick_layers(layer, anatomy)
        if layer is None and head is None:
            return atlas(anatomy, matrices, gauge, progress)
        return head_sheet(anatomy, layers, chosen, matrices, gauge, directions, progress)


def opened(model: Any) -> Anatomy:
    """A model in canonical form, its laws checked."""
    if isinstance(model, Anatomy):
        return model
    anatomy = load_model(model)
    check(anatomy)
    return anatomy


def head_sheet(
    anatomy: Anatomy,
    layers: Sequence[int],
    heads: Sequence[int],
    matrices: Sequence[Matrix],
    gauge: Gauge,
    directions: int,
    progress: Progress,
) -> Sheet:
    """Singular values of some heads, and the words at both ends of their directions."""
    found: list[Decomposed] = []
    for done, layer in enumerate(layers):
        progress("decomposing heads", done, len(layers))
        found += decompose(anatomy, layer, matrices, gauge.offset)
    spectra = spectra_table(found, heads)
    notes = [output_note(anatomy)] if "vo" in matrices else []
    tables = {"spectra": spectra, "singular-values": values_table(found, heads)}
    screen = {"spectra": spectra}
    try:
        reader = Reader.of(anatomy, gauge.top, gauge.ranking)
    except WordError as error:
        notes = [f"No words: {error}"]
    else:
        parts = []
        for done, one in enumerate(found):
            progress("reading directions", done, len(found))
            parts.append(directions_table(reader, [one], heads, directions))
        read = joined(parts)
        for one_of in matrices:
            screen[SHOWN[one_of]] = _on_screen(read, one_of, len(layers) * len(heads), len(matrices))
        tables = {"directions": read, **tables}
        if "qk" in matrices:
            tables["biases"] = bias_table(reader, layers, heads, gauge.offset)
            notes += [] if tables["biases"].rows else ["No biases: the score has no terms but W_QK."]
            screen |= {"biases": tables["biases"]} if len(layers) * len(heads) == 1 and tables["biases"].rows else {}
    return Sheet(
        name="heads",
        title=_head_title(spectra),
        caption=gauge.caption(anatomy),
        tables=tables,
        quantities=spectrum_quantities(found, heads),
        notes=tuple(notes),
        about=gauge.about(anatomy),
        screen=screen,
    )


def output_note(anatomy: Anatomy) -> str:
    return f"Writes are read through {output_said(anatomy)}."


def joined(parts: Sequence[Table]) -> Table:
    return Table(parts[0].columns, tuple(row for part in parts for row in part.rows))


# What the two ends of a pair are, by matrix.
_ENDS: dict[Matrix, tuple[str, str]] = {"qk": ("query", "key"), "vo": ("read", "written")}


def _on_screen(table: Table, matrix: Matrix, heads: int, matrices: int) -> Table:
    """The first directions of one matrix, as many as a screen holds; of many heads the + side alone."""
    names = [column.name for column in table.columns]
    m, index, sign = (names.index(name) for name in ("matrix", "index", "sign"))
    most = max(1, SCREEN // (2 * heads * matrices))
    one_side = 2 * heads * matrices > SCREEN
    rows = [row for row in table.rows if row[m] == SHOWN[matrix] and int(row[index] or 0) <= most]
    left, right = _ENDS[matrix]
    shown = [name.replace("left_", f"{left}_").replace("right_", f"{right}_") for name in names]
    columns = tuple(Column(name, column.meaning) for name, column in zip(shown, table.columns, strict=True))
    return Table(columns, tuple(row for row in rows if not one_side or row[sign] == "+"))


def _head_title(spectra: Table) -> str:
    parts: list[str] = []
    for matrix in dict.fromkeys(row[2] for row in spectra.rows):
        group: list[dict[str, Any]] = [
            dict(zip((c.name for c in spectra.columns), row, strict=True)) for row in spectra.rows if row[2] == matrix
        ]
        best = max(group, key=lambda row: row["sigma_1"])
        spread = [row["participation"] for row in group if row["participation"] is not None]
        middle = f"{float(np.median(spread)):.1f}" if spread else "none"
        if len(group) == 1:
            parts.append(
                f"{matrix} of {best['head']} spreads over {middle} of {best['of']} directions, σ1 {best['sigma_1']:.3g}"
            )
        else:
            most = f"σ1 up to {best['sigma_1']:.3g} ({best['head']})"
            parts.append(f"{matrix} spreads over {middle} of {best['of']} directions in the median head, {most}")
    return "; ".join(parts)


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
    anatomy = reader.anatomy
    if not word.strip():
        raise WordError(f"{word!r} is no word; give one with a letter in it, for example --word time.")
    number = reader.vocabulary.find(word)
    ids = torch.tensor([number], device=anatomy.device)
    text = reader.vocabulary.texts[number]
    tables: dict[str, Table] = {}
    quantities: list[Quantity] = []
    titles = []
    if "qk" in matrices:
        seen = []
        for done, layer in enumerate(layers):
            progress("looking up keys", done, len(layers))
            seen.append(look_up(reader, layer, ids, heads, gauge.offset))
        tables["keys"] = _keys_table(reader, layers, heads, seen)
        ranks = np.concatenate([one.self_rank for one in seen], 1).T.astype(float)
        quantities.append(
            _grid("place of the word among its own keys", "1: it looks for itself", "rank", layers, heads, ranks, True)
        )
        titles.append(f"‘{word}’ is its own first key in {int((ranks == 1).sum())} of {ranks.size} heads")
    if "vo" in matrices:
        written = []
        for done, layer in enumerate(layers):
            progress("reading writes", done, len(layers))
            written.append(values(reader, layer, ids))
        tables["values"] = _values_table(reader, layers, heads, written)
        lengths = np.stack([one.length[list(heads), 0] for one in written])
        meaning = "what each head writes where it attends to the word alone"
        quantities.append(_grid("length of the write", meaning, "‖x‖", layers, heads, lengths))
        titles.append(f"a head writes {np.median(lengths):.3g} long for ‘{word}’ in the middle")
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
