"""What does one head attend to in one sentence?"""

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow.passages import watched
from armillary.readouts.sentence_states import first_window, token_text
from armillary.readouts.settings import pick_heads, pick_layers
from armillary.readouts.trajectory import check, plural
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

TOP = 3
COLUMNS = (
    Column("position", "position of the query, from 1"),
    Column("query", "the token that attends"),
    *(
        column
        for rank in range(1, TOP + 1)
        for column in (Column(f"key {rank}", "the token attended to"), Column(f"share {rank}", "of its attention"))
    ),
)


def pattern(anatomy: Anatomy, sentence: str, layer: int, head: int) -> Sheet:
    """One head's attention on a sentence: a map of queries by keys, and every query's first keys."""
    check(sentence)
    pick_layers(layer, anatomy), pick_heads(head, anatomy)
    window, whole = first_window(anatomy, sentence)
    seen = watched(anatomy, torch.tensor([window.ids]), f"L{layer}.pattern")
    weights = seen[f"L{layer}.pattern"][0, head].double().cpu().numpy()
    vocabulary = Vocabulary.of(anatomy)
    words = [token_text(vocabulary, token) for token in window.ids]
    shown = np.where(np.tri(len(words), dtype=bool), weights, np.nan) if anatomy.causal else weights
    empty = " Empty cells lie after the query: a causal model does not see them." if anatomy.causal else ""
    notes = [f"Each row sums to 1.{empty}"]
    if whole > len(window.ids):
        notes.append(f"Only the first {plural(len(window.ids), 'token')} of {whole:,} were read: one window.")
    coords = {"query": words, "key": words}
    meaning = "share of a query's attention (row) that a key (column) gets"
    return Sheet(
        name=f"pattern-L{layer}H{head}",
        title=_title(f"L{layer}H{head}", weights, words),
        caption=f"{anatomy.name} · {plural(len(words), 'token')}",
        tables={"strongest keys": _table(weights, words)},
        quantities=(Quantity(f"attention of L{layer}H{head}", meaning, "share", ("query", "key"), coords, shown),),
        notes=tuple(notes),
    )


def _title(name: str, weights: np.ndarray, words: list[str]) -> str:
    """Where the attention of all queries but the first goes."""
    count = len(words)
    if count < 2:
        return f"{name} has one token to look at"
    rows = np.arange(1, count)
    kinds = {
        "the first token": float(weights[rows, 0].mean()),
        "the token itself": float(weights[rows, rows].mean()),
        "the token before": float(weights[rows[1:], rows[1:] - 1].mean()) if count > 2 else 0.0,
    }
    most = max(kinds, key=lambda kind: kinds[kind])
    rest = ", ".join(f"{share:.0%} to {kind}" for kind, share in kinds.items() if kind != most)
    return f"{name} gives {kinds[most]:.0%} of its attention to {most}, {rest}"


def _table(weights: np.ndarray, words: list[str]) -> Table:
    rows: list[dict[str, Cell]] = []
    for at, query in enumerate(words):
        row: dict[str, Cell] = {column.name: None for column in COLUMNS}
        row |= {"position": at + 1, "query": query}
        seen = [key for key in np.argsort(-weights[at], kind="stable")[:TOP] if weights[at, key] > 0]
        for rank, key in enumerate(seen, 1):
            row |= {f"key {rank}": words[key], f"share {rank}": float(weights[at, key])}
        rows.append(row)
    return Table.of(COLUMNS, rows)
