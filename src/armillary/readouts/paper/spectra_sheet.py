"""E7 as a sheet: how fast do a head's singular values add up?"""

from collections.abc import Sequence

import numpy as np

from armillary.anatomy import Anatomy
from armillary.readouts.ask import SHOWN, Gauge
from armillary.readouts.head_spectra import Decomposed, cumulative, spectra_table, spectrum_quantities, values_table
from armillary.results import Quantity
from armillary.results.sheet import Sheet


def spectra_sheet(anatomy: Anatomy, found: Sequence[Decomposed], gauge: Gauge) -> Sheet:
    """E7: how fast singular values add up."""
    heads = range(anatomy.n_heads)
    table = spectra_table(found, heads)
    said = []
    for name in SHOWN.values():
        rows = [row for row in table.rows if row[2] == name]
        counts, spread = [int(row[5] or 0) for row in rows], [float(row[4]) for row in rows if row[4] is not None]
        middle = f"{np.median(spread):.1f}" if spread else "none"
        said.append(
            f"{name} needs {min(counts)} to {max(counts)} of {rows[0][6]} for 99 % of Σσ, yet spreads over {middle}"
        )
    return Sheet(
        name="E7-spectra",
        title="; ".join(said) + " (participation ratio, median head)",
        caption=gauge.caption(anatomy).rsplit(" · ", 1)[0],
        tables={"spectra": table, "singular-values": values_table(found, heads)},
        quantities=tuple(_cumulative(one) for one in found) if len(found) <= 12 else spectrum_quantities(found, heads),
        about=gauge.about(anatomy),
    )


def _cumulative(one: Decomposed) -> Quantity:
    shares = cumulative(one.values)
    index = np.arange(1, shares.shape[1] + 1)
    return Quantity(
        f"cumulative singular values of {SHOWN[one.matrix]}, L{one.layer}",
        "share of Σσ up to each: the median head, and the band of all heads",
        "share of Σσ",
        ("index",),
        {"index": [float(i) for i in index]},
        np.median(shares, 0),
        shares.min(0),
        shares.max(0),
        theory={"all alike: i/k": index / len(index)},
        label="median head",
    )
