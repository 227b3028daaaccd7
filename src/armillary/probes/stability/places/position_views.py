"""How are distances between ranges of positions shown? Tables by norm and by pair of ranges, and lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, Evidence, T
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table, table
from armillary.probes.stability.places.position_bins import BinDistances
from armillary.probes.stability.places.position_parts import agreeing, distance_intervals
from armillary.results import Quantity, Table

if TYPE_CHECKING:
    from armillary.probes.stability.places.untrained_positions import Beyond


def position_table(evidence: Evidence, arms: dict[str, list[BinDistances]], beyond: "Beyond | None") -> Table:
    shuffled = arms[SHUFFLED]
    columns = [
        interval_cells(
            "distance",
            "energy distance of y between the earliest and the latest range",
            distance_intervals(evidence, arms[MODEL]),
        ),
        interval_cells(
            "halves",
            "the same between halves of the documents in one range",
            distance_intervals(evidence, arms[MODEL], halves=True),
        ),
        interval_cells("shuffled", "the same between ranges, on shuffled text", distance_intervals(evidence, shuffled)),
    ]
    flags = agreeing(evidence, arms[MODEL])
    agree = (
        cells("agrees", "the whole interval is below the limit", flags[0]),
        cells("differs", "the whole interval is above the limit", flags[1]),
    )
    if beyond is None:
        return site_table(evidence.sites, *columns, agree)
    past = cells("beyond", "across the trained length", beyond.across[0])
    return site_table(evidence.sites, *columns, agree, past, cells("before", "as far before it", beyond.before[0]))


def pairs_table(evidence: Evidence, sites: Sequence[BinDistances], names: list[str]) -> Table:
    columns = [
        cells(f"{names[i]} and {names[j]}", "energy distance of y between two ranges", [s.pairs[i, j] for s in sites])
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    return table(cells("site", "norm site", evidence.sites), *columns)


def position_lines(
    evidence: Evidence, arms: dict[str, list[BinDistances]], beyond: "Beyond | None"
) -> tuple[Quantity, ...]:
    sites = evidence.sites
    each = {arm: np.array([site.between[0] for site in of]) for arm, of in arms.items()}
    controls = {SHUFFLED: each[SHUFFLED]} if SHUFFLED in each else {}
    controls |= {RANDOM: np.mean([each[arm] for arm in evidence.twins], axis=0)} if evidence.twins else {}
    controls["halves of one range"] = np.array([site.halves[0] for site in arms[MODEL]])
    limit = {f"the limit: {T.position_distance}": np.full(len(sites), T.position_distance)}
    unit = "energy distance"
    quantities = [
        line(
            "distance between ranges of positions",
            "0 if tokens are distributed alike; between the earliest and the latest range",
            unit,
            "site",
            sites,
            distance_intervals(evidence, arms[MODEL]),
            controls,
            limit,
        )
    ]
    if beyond is not None:
        before = {"as far before it": beyond.before[0]}
        name, meaning = (
            "distance across the trained length",
            f"the last positions before {beyond.length} and the first after",
        )
        quantities.append(line(name, meaning, unit, "site", sites, beyond.across[0], before, limit))
    return tuple(quantities)
