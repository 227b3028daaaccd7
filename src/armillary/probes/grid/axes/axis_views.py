"""How is what axes say shown? By place, and by queries, keys, values and results."""

from collections.abc import Mapping, Sequence

import numpy as np

from armillary.probes.grid.axes.axis_blocks import grouped_ratio, median_ratio
from armillary.probes.grid.axes.axis_evidence import NAMES, Blocks, Meanings, auc_difference
from armillary.probes.machinery import NAN3, Evidence, Floats, Interval, T
from armillary.probes.machinery.tables import Cells, cells, interval_cells, line, site_table, table
from armillary.probes.sphere.across_sites import drawn_interval
from armillary.results import Quantity, Table


def _excess(evidence: Evidence, meanings: Meanings) -> Floats:
    return np.array([drawn_interval(evidence, auc_difference(meaning)) for meaning in meanings.values()])


def stream_table(evidence: Evidence, meanings: Meanings) -> Table:
    """One row per norm; empty where it was not measured."""
    return site_table(evidence.sites, *_columns(evidence, meanings, evidence.sites))


def head_table(evidence: Evidence, meanings: Meanings) -> Table:
    places = cells("place", "a layer's queries (q), keys (k), values (v) or results (z)", list(meanings))
    return table(places, *_columns(evidence, meanings, list(meanings)))


def _columns(evidence: Evidence, meanings: Meanings, places: Sequence[str]) -> tuple[Cells, ...]:
    rows = [meanings.get(place) for place in places]
    excess = dict(zip(meanings, _excess(evidence, meanings), strict=True))

    def values(key: str) -> list[float | None]:
        return [None if row is None else float(getattr(row, key)[0]) for row in rows]

    return (
        cells("auc", "AUC of the best single axis, mean over classes", values("auc")),
        cells("auc_rotated", "the same in rotated axes", values("rotated_auc")),
        *interval_cells("excess", "auc minus auc_rotated", np.array([excess.get(p, NAN3) for p in places])),
        cells("kurtosis", "mean kurtosis of axes over tokens", values("kurtosis")),
        cells("kurtosis_rotated", "the same in rotated axes", values("rotated_kurtosis")),
        cells("classes", "classes of tokens that were tested", [row and row.classes for row in rows], "classes"),
    )


def block_table(blocks: Blocks, untrained: Mapping[str, Interval]) -> Table:
    columns = {
        "ratio": ("|correlation| of axes within a head over across, median layer", map(median_ratio, blocks.values())),
        "grouped": ("with axes grouped at random", map(grouped_ratio, blocks.values())),
        "untrained": ("at random initialisation", (untrained.get(space, NAN3) for space in blocks)),
    }
    return table(
        cells("space", "queries, keys, values or results", [NAMES[space] for space in blocks]),
        *(interval_cells(name, meaning, np.array(list(rows))) for name, (meaning, rows) in columns.items()),
    )


def axis_quantities(
    evidence: Evidence, stream: Meanings, heads: Meanings, blocks: Blocks, untrained: Mapping[str, Interval]
) -> tuple[Quantity, ...]:
    ordered = sorted(heads, key=lambda place: "qkvz".index(place[-1]))
    by_space = {"{1} of {0}".format(*place.split(".")): heads[place] for place in ordered}
    meaning = "AUC of the best axis for a class of tokens, less that of the best rotated axis"
    quantities = []
    for name, axis, meanings in (
        ("what an axis of the stream says", "site", stream),
        ("what an axis of heads says: q, k, v and results z", "place", by_space),
    ):
        count = len(meanings)
        limits = {f"the limit: {T.axis_auc}": np.full(count, T.axis_auc), "no difference: 0": np.zeros(count)}
        excess = _excess(evidence, meanings)
        quantities.append(line(name, meaning, "difference of AUCs", axis, list(meanings), excess, None, limits))
    if blocks:
        controls = {
            "untrained": np.array([untrained.get(space, NAN3)[0] for space in blocks]),
            "grouped at random": np.array([grouped_ratio(layers)[0] for layers in blocks.values()]),
        }
        quantities.append(
            line(
                "are related axes in one head?",
                "|correlation| of two axes of one head, over that of axes of different heads, median layer",
                "within heads / across",
                "space",
                [NAMES[space] for space in blocks],
                np.array([median_ratio(layers) for layers in blocks.values()]),
                controls,
                {f"the limit: {T.axis_block}": np.full(len(blocks), T.axis_block)},
            )
        )
    return tuple(quantities)
