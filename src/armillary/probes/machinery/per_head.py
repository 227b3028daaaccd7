"""How are many heads summed up, with documents as the independent draws?"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.weights import head_names
from armillary.probes.machinery.evidence import Evidence, Flags, Floats
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Column, Quantity, Table, Verdict

if TYPE_CHECKING:
    from armillary.probes.instruments.heads import HeadRows

Statistic = Callable[[Floats], Floats]
"""From sums [..., field] to numbers [...]."""


def sums(record: "HeadRows", columns: Sequence[Floats]) -> Floats:
    """[group, layer, head, column]: sums over each document group's sampled queries of [layer, head, query] arrays."""
    group = record.documents() % record.groups
    stacked = np.stack(columns, -1)
    made = np.zeros((record.groups, *stacked.shape[:2], stacked.shape[-1]))
    np.add.at(made, group, np.moveaxis(stacked, 2, 0))
    return made[np.bincount(group, minlength=record.groups) > 0]


def means(record: "HeadRows", field: str) -> Floats:
    """[group, layer, head, (count, sum)] of one sampled field."""
    values = record.sampled(field)
    return sums(record, [np.ones_like(values), values])


def mean(stats: Floats) -> Floats:
    return ratio(stats, 1, 0)


def ratio(stats: Floats, above: int, below: int) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(stats[..., above] / stats[..., below])


def grid(evidence: Evidence, stats: Floats, statistic: Statistic) -> tuple[Floats, Floats, Floats]:
    """Value, low and high [layer, head] by bootstrap over documents; the ends NaN where there are too few."""
    from armillary.geometry.resample import bootstrap

    value = statistic(stats.sum(0))
    if len(stats) < T.documents_least:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    found = bootstrap(stats, statistic, seed=evidence.seed)
    return value, np.asarray(found.low), np.asarray(found.high)


def median_head(evidence: Evidence, stats: Floats, statistic: Statistic) -> tuple[float, float, float]:
    """The middle of all heads, with its interval over documents."""
    if not len(stats):
        nothing = float("nan")
        return nothing, nothing, nothing
    return evidence.interval(stats, lambda drawn: np.median(statistic(drawn).reshape(len(drawn), -1), axis=1))


def by_share(holds: Flags) -> Verdict:
    """Supported where nearly all heads agree, refuted where hardly any does."""
    share = float(np.mean(holds))
    if share >= T.sites_most:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def name_heads(flags: Flags, most: int = 4) -> str:
    """Heads by name, the first few.

    >>> name_heads(np.array([[True, False], [False, True]]))
    'L0H0 and L1H1'
    """
    from armillary.probes.machinery.verdicts import name_sites

    return name_sites([f"L{layer}H{head}" for layer, head in np.argwhere(flags)], most)


def change_sides(before: Flags, after: Flags, said: str) -> str:
    """Who passes a threshold, `said` so, only after something was left out, and who only before.

    >>> change_sides(np.array([[True, False]]), np.array([[False, False]]), "above ½")
    'L0H0 is no longer above ½'
    """
    rises, falls = after & ~before, before & ~after
    told = [f"{name_heads(rises)} {_is(rises)} then {said}"] if rises.any() else []
    told += [f"{name_heads(falls)} {_is(falls)} no longer {said}"] if falls.any() else []
    return " and ".join(told) or "no head changes side"


def _is(flags: Flags) -> str:
    return "is" if flags.sum() == 1 else "are"


def head_table(evidence: Evidence, columns: Sequence[Column], arrays: Sequence[Floats | Flags]) -> Table:
    """A row a head: its name, then its entry of each array [layer, head], under the columns in their order."""
    names = [column.name for column in columns]
    flat = [np.asarray(array).reshape(-1).tolist() for array in arrays]
    rows = [dict(zip(names, cells, strict=True)) for cells in zip(head_names(evidence.anatomy), *flat, strict=True)]
    return Table.of(columns, rows)


def head_map(
    name: str, meaning: str, unit: str, values: Floats, controls: dict[str, Floats] | None = None, log: bool = False
) -> Quantity:
    """A quantity over layers (down) and heads (across)."""
    coords = {
        "layer": [f"L{layer}" for layer in range(values.shape[0])],
        "head": [f"H{head}" for head in range(values.shape[1])],
    }
    logs = ("value",) if log else ()
    return Quantity(name, meaning, unit, ("layer", "head"), coords, values, controls=controls or {}, logs=logs)
