"""How is the cycle shown? A table by sublayer, a drawing of its four stations by layer, and the maps' errors."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import MODEL, NAN3, Evidence, Floats, cells, interval_cells, line, over_twins, table
from armillary.probes.sphere.across_sites import drawn_interval
from armillary.probes.sphere.symmetry.cycle import ATTENTION, FEED_FORWARD, STATIONS, Cycle, sublayers
from armillary.probes.sphere.symmetry.cycle_parts import AFFINE, BARE, StationChange, norm_error, sublayer_error
from armillary.results import Quantity, Table

if TYPE_CHECKING:
    from armillary.probes.sphere.symmetry.rotations import RotationErrors

WHERE = dict(zip(STATIONS, ("before the norm", "on the sphere", "after gain and shift", "the write"), strict=True))
MEANING = (
    "isotropy of the cloud of tokens (participation ratio over d; 1 if all axes are alike): before the norm (x), on "
    "the sphere (z), after gain and shift (y), and of what the sublayer writes (w); bars are 95 % intervals"
)


def _intervals(evidence: Evidence, model: Cycle) -> Floats:
    """[sublayer, station, (value, low, high)] of the isotropy."""
    _, parts, stations = model.participation.shape
    flat = [drawn_interval(evidence, column) for column in model.participation.reshape(-1, parts * stations).T]
    return np.array(flat).reshape(parts, stations, 3)


def cycle_table(
    evidence: Evidence, model: Cycle, raised: StationChange, bare: StationChange, lowered: StationChange
) -> Table:
    isotropy, parts = _intervals(evidence, model), sublayers(evidence.anatomy)
    others = {
        "cosine": ("mean cosine of two tokens", model.cosine),
        "top": ("share of the variance along the strongest axis", model.top),
    }
    return table(
        cells("sublayer", "attention or feed-forward of a layer", [part.name for part in parts]),
        *(
            interval_cells(f"isotropy_{name}", f"participation ratio over d, {WHERE[name]}", isotropy[:, i])
            for i, name in enumerate(STATIONS)
        ),
        interval_cells("norm_factor", "isotropy of y over that of x", raised.intervals),
        cells("norm_untrained", "the same at random initialisation", raised.untrained[:, 0]),
        interval_cells("projection_factor", "isotropy of z over that of x", bare.intervals),
        cells("projection_untrained", "the same at random initialisation", bare.untrained[:, 0]),
        interval_cells("sublayer_factor", "isotropy of the write over that of y", lowered.intervals),
        cells("sublayer_untrained", "the same at random initialisation", lowered.untrained[:, 0]),
        *(
            cells(f"{name}_{station}", f"{meaning}, {WHERE[station]}", values[:, i])
            for name, (meaning, values) in others.items()
            for i, station in enumerate(STATIONS)
        ),
    )


def cycle_drawing(evidence: Evidence, model: Cycle, twins: Sequence[Cycle]) -> Quantity:
    """The four stations of every sublayer."""
    value, low, high = np.moveaxis(_intervals(evidence, model), -1, 0)
    coords = {"sublayer": [part.name for part in sublayers(evidence.anatomy)], "station": list(STATIONS)}
    controls = {"untrained": np.mean([twin.participation[0] for twin in twins], axis=0)} if twins else {}
    axes = ("sublayer", "station")
    return Quantity("the cycle", MEANING, "isotropy", axes, coords, value, low, high, controls, logs=("value",))


MAPS = ("norm, bare", "norm with γ, β", ATTENTION, FEED_FORWARD)


def _errors(evidence: Evidence, errors: "Mapping[str, RotationErrors]") -> tuple[Floats, Floats]:
    """[map, (value, low, high)] of the model and of an untrained one."""
    kinds = (ATTENTION, FEED_FORWARD)
    model = [norm_error(evidence, which) for which in (BARE, AFFINE)]
    model += [sublayer_error(evidence, errors[MODEL], kind) for kind in kinds]
    twins = [over_twins([sublayer_error(evidence, errors[arm], kind) for arm in evidence.twins]) for kind in kinds]
    return np.array(model), np.array([NAN3, NAN3, *twins])


def error_line(evidence: Evidence, errors: "Mapping[str, RotationErrors]") -> Quantity:
    model, untrained = _errors(evidence, errors)
    return line(
        "does the map treat all directions alike?",
        "‖f(xR) − f(x)R‖/‖f(x)‖ for a random rotation R, median norm or sublayer: 0 if it does",
        "error under a rotation",
        "map",
        list(MAPS),
        # What float64 leaves of an exact zero is drawn as zero.
        np.where(model < 1e-12, 0.0, model),
        {"Gaussian weights": untrained[:, 0]},
        {"an unrelated result: √2": np.full(len(MAPS), np.sqrt(2))},
    )


def error_table(evidence: Evidence, errors: "Mapping[str, RotationErrors]") -> Table:
    model, untrained = _errors(evidence, errors)
    return table(
        cells("map", "norm or sublayer, median of those measured", MAPS),
        interval_cells("error", "‖f(xR) − f(x)R‖/‖f(x)‖ for a random rotation R", model),
        interval_cells("gaussian", "the same at random initialisation", untrained),
    )
