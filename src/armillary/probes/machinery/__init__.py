"""What every probe shares: the contract, the shared pass, evidence, the bench, the plan and the thresholds.

What a probe's conclusion is written with can be imported from here. `bench` and `shared_pass` cannot: they need torch.
"""

from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, TWINS, Evidence, Flags, Floats, Ints
from armillary.probes.machinery.instrument import ARMS, AnyInstrument, View
from armillary.probes.machinery.intervals import (
    NAN3,
    Interval,
    discoveries,
    interval_of_draws,
    mean,
    median_defined,
    over_twins,
    p_values,
    reached_by,
    redrawn,
    spread,
)
from armillary.probes.machinery.layers import spread_layers
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.probes.machinery.memo import once, once_if_small
from armillary.probes.machinery.processes.threads import over_sites
from armillary.probes.machinery.tables import (
    Cells,
    cells,
    head_map,
    head_table,
    interval_cells,
    layer_table,
    line,
    site_table,
    table,
)
from armillary.probes.machinery.verdicts import (
    above,
    all_of,
    beats,
    between,
    by_share,
    by_side,
    by_sides,
    missing_interval,
    name_heads,
    name_sites,
    undecided,
    weakest,
    weighed,
)

__all__ = ["ARMS", "MODEL", "NAN3", "RANDOM", "SHUFFLED", "TWINS", "AnyInstrument", "Cells", "Evidence", "Flags"]
__all__ += [
    "Floats",
    "Interval",
    "Ints",
    "T",
    "View",
    "above",
    "all_of",
    "beats",
    "between",
    "by_share",
    "by_side",
    "by_sides",
    "cells",
    "discoveries",
    "interval_of_draws",
]
__all__ += ["head_map", "head_table", "interval_cells", "layer_table", "line", "mean", "median_defined"]
__all__ += [
    "missing_interval",
    "name_heads",
    "name_sites",
    "once",
    "once_if_small",
    "over_sites",
    "over_twins",
    "p_values",
    "reached_by",
    "redrawn",
]
__all__ += ["site_table", "spread", "spread_layers", "table", "undecided", "weakest", "weighed"]
