"""Sheets of attention heads: the atlas of all, some heads, or one word in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model
from armillary.errors import WordError
from armillary.flow.laws import check
from armillary.readouts.atlas import atlas
from armillary.readouts.head_spectra import (
    Decomposed,
    Progress,
    decompose,
    spectra_table,
    spectrum_quantities,
    values_table,
)
from armillary.readouts.reader import Reader
from armillary.readouts.settings import (
    SHOWN,
    Layers,
    Matrix,
    Settings,
    check_counts,
    check_offset,
    pick_heads,
    pick_layers,
    pick_matrices,
    pick_ranking,
)
from armillary.readouts.singular_vectors import bias_table, directions_table
from armillary.readouts.word_sheet import output_note, word_sheet
from armillary.results import Column, Table
from armillary.results.sheets.sheet import Sheet

PLACES = "first,middle,last"
# Lists of words that fit on one screen.
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

    `model` is what `armillary.load` returns, or anything that it accepts. `offset`: how many positions a query stands
    after its key, under RoPE. `directions`: how many singular pairs of each head are read in words.
    """
    check_counts(top, directions)
    matrices, ranked = pick_matrices(matrix), pick_ranking(ranking)
    anatomy = opened(model)
    chosen = pick_heads(head, anatomy)
    settings = Settings(check_offset(offset, anatomy, matrices), ranked, top)
    with torch.no_grad():
        if word is not None:
            layers = pick_layers(PLACES if layer is None and head is None else layer, anatomy)
            return word_sheet(Reader.of(anatomy, top, ranked), word, layers, chosen, matrices, settings, progress)
        layers = pick_layers(layer, anatomy)
        if layer is None and head is None:
            return atlas(anatomy, matrices, settings, progress)
        return head_sheet(anatomy, layers, chosen, matrices, settings, directions, progress)


def opened(model: Any) -> Anatomy:
    """A model in canonical form, with its laws checked."""
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
    settings: Settings,
    directions: int,
    progress: Progress,
) -> Sheet:
    """Singular values of some heads, and the words at both ends of their directions."""
    parts: list[Decomposed] = []
    for done, layer in enumerate(layers):
        progress("decomposing heads", done, len(layers))
        parts += decompose(anatomy, layer, matrices, settings.offset)
    spectra = spectra_table(parts, heads)
    tables = {"spectra": spectra, "singular-values": values_table(parts, heads)}
    screen = {"spectra": spectra}
    notes = [output_note(anatomy)] if "vo" in matrices else []
    try:
        reader = Reader.of(anatomy, settings.top, settings.ranking)
    except WordError as error:
        notes = [f"No words: {error}"]
    else:
        words = _in_words(reader, parts, heads, settings, directions, progress)
        tables = {**words, **tables}
        screen |= {
            SHOWN[m]: _on_screen(words["directions"], m, len(layers) * len(heads), len(matrices)) for m in matrices
        }
        if "qk" in matrices and not words["biases"].rows:
            notes.append("No biases: the score is W_QK alone.")
        elif "qk" in matrices and len(layers) * len(heads) == 1:
            screen["biases"] = words["biases"]
    return Sheet(
        name="heads",
        title=_head_title(spectra),
        caption=settings.caption(anatomy),
        tables=tables,
        quantities=spectrum_quantities(parts, heads),
        notes=tuple(notes),
        about=settings.about(anatomy),
        screen=screen,
    )


def _in_words(
    reader: Reader,
    parts: Sequence[Decomposed],
    heads: Sequence[int],
    settings: Settings,
    directions: int,
    progress: Progress,
) -> dict[str, Table]:
    tables = []
    for done, part in enumerate(parts):
        progress("reading directions", done, len(parts))
        tables.append(directions_table(reader, part, heads, directions))
    layers = [part.layer for part in parts if part.matrix == "qk"]
    biases = {"biases": bias_table(reader, layers, heads, settings.offset)} if layers else {}
    return {"directions": joined(tables), **biases}


def joined(tables: Sequence[Table]) -> Table:
    return Table(tables[0].columns, tuple(row for table in tables for row in table.rows))


# What the two ends of a singular pair are, by matrix.
_ENDS: dict[Matrix, tuple[str, str]] = {"qk": ("query", "key"), "vo": ("read", "written")}


def _on_screen(table: Table, matrix: Matrix, heads: int, matrices: int) -> Table:
    """As many directions of one matrix as fit on a screen; with many heads only the + side."""
    lists = 2 * heads * matrices
    most, signs = max(1, SCREEN // lists), "+" if lists > SCREEN else "+−"
    rows = table.where("matrix", SHOWN[matrix]).where("index", *range(1, most + 1)).where("sign", *signs).rows
    left, right = _ENDS[matrix]
    shown = [name.replace("left_", f"{left}_").replace("right_", f"{right}_") for name in table.names]
    return Table(tuple(Column(name, c.meaning) for name, c in zip(shown, table.columns, strict=True)), rows)


def _head_title(spectra: Table) -> str:
    parts: list[str] = []
    for matrix in dict.fromkeys(spectra.column("matrix")):
        group: list[dict[str, Any]] = list(spectra.where("matrix", matrix).records())
        best = max(group, key=lambda row: row["sigma_1"])
        spread = [row["participation"] for row in group if row["participation"] is not None]
        median = f"{float(np.median(spread)):.1f}" if spread else "none"
        if len(group) == 1:
            parts.append(
                f"{matrix} of {best['head']} spreads over {median} of {best['of']} directions, σ1 {best['sigma_1']:.3g}"
            )
        else:
            most = f"σ1 up to {best['sigma_1']:.3g} ({best['head']})"
            parts.append(f"{matrix} spreads over {median} of {best['of']} directions in the median head, {most}")
    return "; ".join(parts)
