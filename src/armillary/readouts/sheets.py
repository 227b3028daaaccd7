"""One head, one layer, one word or all heads: what is asked for, as a sheet."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model
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
    pick_heads,
    pick_layers,
    pick_matrices,
    pick_ranking,
)
from armillary.readouts.atlas import atlas
from armillary.readouts.head_spectra import (
    Decomposed,
    decompose,
    spectra_table,
    spectrum_quantities,
    values_table,
)
from armillary.readouts.reader import Reader
from armillary.readouts.singular import bias_table, directions_table
from armillary.readouts.word import output_note, word_sheet
from armillary.results import Column, Table
from armillary.results.sheet import Sheet

Progress = Callable[[str, int, int], None]
PLACES = "first,middle,last"
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
    tables = {"spectra": spectra, "singular-values": values_table(found, heads)}
    screen = {"spectra": spectra}
    notes = [output_note(anatomy)] if "vo" in matrices else []
    try:
        reader = Reader.of(anatomy, gauge.top, gauge.ranking)
    except WordError as error:
        notes = [f"No words: {error}"]
    else:
        words = _in_words(reader, found, heads, gauge, directions, progress)
        tables = {**words, **tables}
        screen |= {
            SHOWN[m]: _on_screen(words["directions"], m, len(layers) * len(heads), len(matrices)) for m in matrices
        }
        if "qk" in matrices and not words["biases"].rows:
            notes.append("No biases: the score has no terms but W_QK.")
        elif "qk" in matrices and len(layers) * len(heads) == 1:
            screen["biases"] = words["biases"]
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


def _in_words(
    reader: Reader, found: Sequence[Decomposed], heads: Sequence[int], gauge: Gauge, directions: int, progress: Progress
) -> dict[str, Table]:
    parts = []
    for done, one in enumerate(found):
        progress("reading directions", done, len(found))
        parts.append(directions_table(reader, [one], heads, directions))
    made = {"directions": joined(parts)}
    layers = [one.layer for one in found if one.matrix == "qk"]
    return made | ({"biases": bias_table(reader, layers, heads, gauge.offset)} if layers else {})


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
