"""Singular vectors (E5), biases (E6) and singular values (E7) of all heads of some layers, as sheets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.anatomy import Anatomy
from armillary.readouts.head_sheet import joined
from armillary.readouts.head_spectra import (
    Decomposed,
    Progress,
    cumulative,
    folded_at,
    head_map,
    spectra_table,
    spectrum_quantities,
    values_table,
)
from armillary.readouts.reader import Reader
from armillary.readouts.settings import SHOWN, Settings, describe_output
from armillary.readouts.singular_vectors import bias_table, bias_vectors, directions_table
from armillary.results import Quantity
from armillary.results.sheets.sheet import Sheet

DIRECTIONS = 20


def directions_sheet(reader: Reader, parts: Sequence[Decomposed], settings: Settings, progress: Progress) -> Sheet:
    """E5: the words at both ends of the first singular pairs."""
    heads = range(reader.anatomy.n_heads)
    read = []
    for done, part in enumerate(parts):
        progress("E5: singular vectors in words", done, len(parts))
        read.append((part.matrix, directions_table(reader, part, heads, DIRECTIONS)))
    width = parts[0].values.shape[1]
    most = min(DIRECTIONS, width)
    shares = []
    for matrix, name in SHOWN.items():
        held = [cumulative(part.values)[:, most - 1] for part in parts if part.matrix == matrix]
        shares.append(f"{np.median(np.concatenate(held)):.0%} of Σσ of {name}")
    return Sheet(
        name="E5-directions",
        title=f"The first {most} of {width} directions, read in words, hold {' and '.join(shares)} in the median head",
        caption=settings.caption(reader.anatomy),
        tables={name: joined([table for matrix, table in read if matrix == m]) for m, name in SHOWN.items()},
        quantities=spectrum_quantities(parts, heads),
        notes=(
            "Directions with the same span under 'tie' are determined only up to a rotation within it. + is the side "
            "with the heavier tail of words along the left vector. Writes are read through "
            f"{describe_output(reader.anatomy)}.",
        ),
        about=settings.about(reader.anatomy),
    )


def biases_sheet(reader: Reader, layers: Sequence[int], settings: Settings) -> Sheet:
    """E6: the words that biases prefer."""
    anatomy, heads = reader.anatomy, range(reader.anatomy.n_heads)
    table = bias_table(reader, layers, heads)
    sides = [bias_vectors(folded_at(anatomy, layer, 0)) for layer in layers]
    keys, queries = (np.stack([side[i].norm(dim=-1).double().cpu().numpy() for side in sides]) for i in (0, 1))
    if table.rows:
        title = f"The vector by which biases score keys has length {np.median(keys):.3g} in the median head"
        note = "All constants of a side count: its bias, and the shift of the norm before it. Softmax cancels W_Q b_K."
    else:
        title = "No biases: the score is W_QK alone"
        note = f"{anatomy.name} has neither biases of queries and keys nor a shift in the norm before them."
    unit = "score per direction"
    return Sheet(
        name="E6-biases",
        title=title,
        caption=settings.caption(anatomy),
        tables={"biases": table},
        quantities=(
            head_map("length of b_Q W_K", "what every query adds to keys", unit, keys, layers, heads),
            head_map("length of W_Q b_K", "what queries add to all their keys equally", unit, queries, layers, heads),
        ),
        notes=(note,),
        about=settings.about(anatomy),
    )


def spectra_sheet(anatomy: Anatomy, parts: Sequence[Decomposed], settings: Settings) -> Sheet:
    """E7: how fast singular values add up."""
    heads = range(anatomy.n_heads)
    table = spectra_table(parts, heads)
    titles = []
    for name in SHOWN.values():
        rows: list[dict[str, Any]] = list(table.where("matrix", name).records())
        counts = [row["n99"] for row in rows]
        spread = [row["participation"] for row in rows if row["participation"] is not None]
        median = f"{np.median(spread):.1f}" if spread else "none"
        titles.append(
            f"{name} needs {min(counts)} to {max(counts)} of {rows[0]['of']} for 99 % of Σσ, yet spreads over {median}"
        )
    return Sheet(
        name="E7-spectra",
        title="; ".join(titles) + " (participation ratio, median head)",
        caption=settings.short_caption(anatomy),
        tables={"spectra": table, "singular-values": values_table(parts, heads)},
        quantities=tuple(map(_cumulative, parts)) if len(parts) <= 12 else spectrum_quantities(parts, heads),
        about=settings.about(anatomy),
    )


def _cumulative(part: Decomposed) -> Quantity:
    shares = cumulative(part.values)
    index = np.arange(1, shares.shape[1] + 1)
    return Quantity(
        f"cumulative singular values of {SHOWN[part.matrix]}, L{part.layer}",
        "share of Σσ up to each: the median head, and the band of all heads",
        "share of Σσ",
        ("index",),
        {"index": [float(i) for i in index]},
        np.median(shares, 0),
        shares.min(0),
        shares.max(0),
        theory={"all equal: i/k": index / len(index)},
        label="median head",
    )
