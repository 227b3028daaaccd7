"""Heads: the atlas of all heads, and one head on a sentence: its pattern, its spectrum, its words, its role."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.errors import ArmillaryError, nearest
from armillary.serve.blocks import Block, choices_block, html_block, sheet_blocks
from armillary.serve.fields import Field
from armillary.serve.room import SENTENCE, Ask, Opened, Room, RoomPart

if TYPE_CHECKING:
    from armillary.results.sheets.sheet import Sheet
    from armillary.results.table import Table

# Which columns of the atlas are long-tailed.
LOGS = ("sigma_1_qk", "sigma_1_vo")
FIELDS = (
    SENTENCE,
    Field("layer", "whole", "Layer", 0, of="layers"),
    Field("head", "whole", "Head", 0, of="heads"),
    Field("statistic", "choice", "Colour by", "entropy", about="what the atlas shows of every head"),
    Field("word", "word", "Word", "time", about="one token: its keys, and what the head writes for it"),
)


def pattern(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.sentences.pattern import pattern as attended

    opened.progress("reading the sentence", 0, 0)
    return sheet_blocks(attended(opened.anatomy, ask["sentence"], ask["layer"], ask["head"]), ask["narrow"])


def atlas(opened: Opened, ask: Ask) -> Sequence[Block]:
    """One statistic of all heads, and everything that the atlas says of the chosen one."""
    from armillary.readouts.head_sheet import heads

    whole: Sheet = opened.once("atlas", lambda: heads(opened.anatomy, progress=opened.progress))
    table = whole.table
    names = {column.name: column.meaning for column in table.columns if column.name not in ("layer", "head", "role")}
    wanted = ask["statistic"] if ask["statistic"] in names or ask["statistic"] != "entropy" else next(iter(names))
    if wanted not in names:
        raise ArmillaryError(f"the atlas has no {wanted!r}; {nearest(wanted, names)}")
    chosen = choices_block("statistic", [(name, f"{name}: {meaning}") for name, meaning in names.items()])
    sheet = _map(whole, wanted, opened)
    figure = sheet_blocks(sheet, ask["narrow"], pick={"layer": "row", "head": "column"})[:1]
    return [chosen, *figure, html_block(_facts(table, f"L{ask['layer']}H{ask['head']}", whole.notes))]


def _map(whole: "Sheet", wanted: str, opened: Opened) -> "Sheet":
    from dataclasses import replace

    import numpy as np

    from armillary.readouts.head_spectra import head_map

    column = next(c for c in whole.table.columns if c.name == wanted)
    cells = [np.nan if cell is None else float(cell) for cell in whole.table.column(wanted)]
    layers, heads = opened.anatomy.layers, opened.anatomy.n_heads
    values = np.array(cells).reshape(layers, heads)
    known = values[np.isfinite(values)]
    ends = f"from {known.min():.3g} to {known.max():.3g}" if known.size else "no value"
    quantity = head_map(wanted, column.meaning, column.unit, values, range(layers), range(heads), wanted in LOGS)
    return replace(
        whole, name=f"atlas-{wanted}", title=f"{wanted}: {ends} over {values.size} heads", quantities=(quantity,)
    )


def _facts(table: "Table", name: str, notes: Sequence[str]) -> str:
    """The chosen head's row of the atlas."""
    from armillary.views.report.claims import terms
    from armillary.views.text.quoting import html_text, show_cell

    row = next((row for row in table.records() if row["head"] == name), None)
    if row is None:
        raise ArmillaryError(f"there is no head {name} in this model.")
    role = str(row.get("role") or "")
    summary = f"{name}: its role is ‘{role}’" if role else f"{name} has no role that the atlas knows"
    facts: list[tuple[str, list[str]]] = [
        (c.name, [f"{show_cell(row[c.name], c.name)} · {c.meaning}"])
        for c in table.columns
        if c.name not in ("layer", "head", "role") and row[c.name] is not None
    ]
    listed = terms(*facts, ("note", list(notes)))
    return f"<details><summary>{html_text(summary)}; all its numbers</summary>{listed}</details>"


def head(opened: Opened, ask: Ask) -> Sequence[Block]:
    from armillary.readouts.head_sheet import heads

    return sheet_blocks(
        heads(opened.anatomy, ask["layer"], ask["head"], progress=opened.progress, directions=6), ask["narrow"]
    )


def word(opened: Opened, ask: Ask) -> Sequence[Block]:
    from dataclasses import replace

    from armillary.readouts.head_sheet import heads

    sheet = heads(opened.anatomy, ask["layer"], ask["head"], ask["word"], top=8, progress=opened.progress)
    # One head: the map of a single cell says nothing that the title does not.
    return sheet_blocks(replace(sheet, quantities=()), ask["narrow"])


HEADS = Room(
    "heads",
    "Heads",
    "Every head of the model. Click one in the atlas, or choose layer and head, to see it on your sentence.",
    FIELDS,
    (
        RoomPart("atlas", "The atlas", ("statistic", "layer", "head"), atlas),
        RoomPart("pattern", "Its pattern on the sentence", ("sentence", "layer", "head"), pattern, needs=("sentence",),
             beside="atlas", quick=True),
        RoomPart("head", "Its spectrum, and the words at both sides", ("layer", "head"), head),
        RoomPart("word", "Keys and values of a word", ("word", "layer", "head"), word, needs=("word",)),
    ),
)  # fmt: skip
