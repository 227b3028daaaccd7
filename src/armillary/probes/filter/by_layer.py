"""How do the answers of single layers become one verdict?"""

from collections.abc import Iterable, Sequence

import numpy as np

from armillary.probes.machinery import Floats, T, above, all_of, beats, name_sites
from armillary.probes.machinery.intervals import triple
from armillary.probes.machinery.verdicts import Answers


def each_above(intervals: Floats, limits: Floats | float) -> list[bool | None]:
    """For each layer of [layer, (value, low, high)]: does the whole interval lie above its limit?"""
    limits = np.broadcast_to(limits, len(intervals))
    return [above(triple(values), float(limit)) for values, limit in zip(intervals, limits, strict=True)]


def each_beats(
    intervals: Floats, untrained: Floats, twins: int, least: float, margin: float = 0.0
) -> list[bool | None]:
    """For each layer: does the whole interval lie above `least` and above untrained models, by a margin?"""
    return [
        all_of(above(model, least), beats(model, control, twins, margin))
        for model, control in zip(map(triple, intervals), map(triple, untrained), strict=True)
    ]


def nearest(layers: Iterable[int], measured: Sequence[int]) -> list[int]:
    """For each layer the place of the nearest one that was measured.

    >>> nearest(range(5), [0, 2, 4])
    [0, 0, 1, 1, 2]
    """
    return [int(np.argmin([abs(layer - number) for number in measured])) for layer in layers]


RULE = (
    f"Supported if it holds for the mean over layers, and fails in at most {T.sites_few:.0%} of layers.\n"
    f"Refuted if it fails for the mean, and holds in at most {T.sites_few:.0%} of layers.\n"
    f"Qualified if it holds in more than {T.sites_few:.0%} of layers and fails in more than {T.sites_few:.0%}."
)
"""How rules of this chapter say it."""


def where(names: Sequence[str], holds: Answers) -> str:
    """'in L0 and L3, not in L1 and L2 (unclear in L4)', with what applies.

    >>> where(["L0", "L1"], [True, False]), where(["L0", "L1"], [False, False])
    ('in L0, not in L1', 'in no layer')
    >>> where(["L0", "L1"], [False, None]), where(["L0", "L1"], [True, None])
    ('surely in no layer (unclear in L1)', 'in L0 (unclear in L1)')
    """
    if len(set(holds)) == 1 and None not in holds:
        return "in every layer" if holds[0] else "in no layer"
    lists = [[n for n, flag in zip(names, holds, strict=True) if flag is wanted] for wanted in (True, False, None)]
    yes, no, unclear = (name_sites(part, 8) for part in lists)
    if not yes:
        return f"surely in no layer (unclear in {unclear})"
    text = f"in {yes}, not in {no}" if no else f"in {yes}"
    return f"{text} (unclear in {unclear})" if unclear else text
