"""Do earlier states stay what they were when text is appended?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import RANDOM, Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.stability.said import Interval, intervals, not_measured
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

ONE, HALF, CACHED, THROUGH = "one token appended", "half appended", "cached", "appended through the cache"
FLOOR, CHANGED = "another shape of batch", "first token changed"
RECOMPUTED = (ONE, HALF)
ALL = (ONE, HALF, CACHED, THROUGH)
COLUMNS = (
    Column("state", "state of the stream"),
    Column("one", "largest change of an earlier state when one token is appended", "roundings"),
    Column("half", "the same when as many tokens are appended as were there", "roundings"),
    Column(
        "cached",
        "largest difference between earlier states computed with a cache and without (empty: no cache)",
        "roundings",
    ),
    Column(
        "through_cache", "the same for the appended tokens, which see the earlier ones through the cache", "roundings"
    ),
    Column("floor", "largest difference when the same tokens are computed one document at a time", "roundings"),
    Column("unchanged", "whether this state is unchanged by the rule"),
)


@dataclass(frozen=True, eq=False)
class Appended:
    """Largest relative changes ‖Δx‖/‖x‖ [group, state] under each condition; a group without a document is 0."""

    states: tuple[str, ...]
    changes: dict[str, Floats]
    used: Floats
    """[group]: documents of each."""
    window: int
    tokens: int
    """Earlier states compared at each station."""
    epsilon: float
    dtype: str


@dataclass(frozen=True)
class Prefix:
    """States of a text's beginning, read alone and read with what follows."""

    claim: ClassVar[Claim] = Claim(
        id="stability.prefix",
        chapter="D",
        statement="With unlimited context, representations of earlier tokens never change.",
        source="S3",
        definition=(
            "‖Δx‖/‖x‖ of every earlier token's stream, before the first block and after each, when one token, and as many as "
            "were there, are appended: one longer pass against a shorter one. With a cache: the beginning, then one token, "
            "then the rest, against the whole pass, for earlier and for appended tokens. In roundings of the dtype. The "
            "statistic is the largest change of an earlier state without a cache, mean over documents. A causal mask makes "
            "it exact by definition; what is measured is this model's deviation."
        ),
        control="the same tokens one document at a time (rounding alone); the first token changed (what a change looks like); "
        "random initialisation",
        rule=(
            f"A state is unchanged if no token's differs by more than {T.roundings:g} roundings, or {T.prefix_floor:g} times "
            f"what another shape of batch alone makes of it, and in any case by no more than {T.prefix_most:.0%}. Supported: "
            "every state, with and without cache. Qualified: without a cache, but not with it. Refuted: the mean over documents "
            "lies above that with its whole interval. Undecided otherwise: rounding of this dtype hides it."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 6.0

    def experiment(self, bench: "Bench") -> Appended | None:
        from armillary.probes.stability.appended_text import append

        return append(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        found: Appended | None = evidence.found.get(self.claim.id)
        if found is None:
            why = "No document is long enough to append anything to its beginning; more text, in longer documents, would decide."
            return not_measured(self.claim, COLUMNS[0], (), why, "No text to append to: nothing can be concluded")
        recomputed = _documents(evidence, found, _recomputed(found))
        allowed, floor = _allowed(found)
        verdict = _verdict(found, recomputed, allowed, floor)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("largest change of an earlier state, mean over documents", *recomputed, "roundings"),
            n=found.tokens,
            controls=tuple(
                Control(name, *_documents(evidence, found, found.changes[name].max(1)))
                for name in (FLOOR, CHANGED, RANDOM)
                if name in found.changes
            ),
            reading=_reading(verdict, found, allowed, evidence),
            headline=_headline(verdict, found, recomputed[0]),
            table=_table(found, allowed),
            quantities=_quantities(found),
            notes=(f"windows of {found.window} tokens of {int(found.used.sum())} documents, in {found.dtype}",),
        )


def _recomputed(found: Appended) -> Floats:
    """[group]: the largest change of any earlier state by a longer pass."""
    return np.maximum(found.changes[ONE], found.changes[HALF]).max(1)


def _documents(evidence: Evidence, found: Appended, largest: Floats) -> Interval:
    """The mean over documents of each one's largest change [group], in roundings."""
    value, low, high = intervals(evidence, np.stack([found.used, found.used * largest / found.epsilon], -1))
    return float(value), float(low), float(high)


def _allowed(found: Appended) -> tuple[Floats, float]:
    """What rounding may do to each state, and what it was seen to do to any: both relative to the state's length."""
    floor = found.changes[FLOOR].max(0)
    rounding = np.maximum(T.roundings * found.epsilon, T.prefix_floor * floor)
    return np.minimum(rounding, T.prefix_most), float(floor.max())


def _unchanged(found: Appended, allowed: Floats, names: tuple[str, ...]) -> Flags:
    """[state]: does none of these conditions change it?"""
    seen = [found.changes[name].max(0) <= allowed for name in names if name in found.changes]
    return np.asarray(np.all(seen, axis=0))


def _verdict(found: Appended, recomputed: Interval, allowed: Floats, floor: float) -> Verdict:
    if _unchanged(found, allowed, ALL).all():
        return "supported"
    if _unchanged(found, allowed, RECOMPUTED).all():
        return "qualified"
    # In half precision a change must also stand out from what rounding alone was seen to do.
    least = max(float(allowed.max()), T.prefix_floor * floor) / found.epsilon
    return "refuted" if recomputed[1] > least else "undecided"


def _worst(found: Appended, names: tuple[str, ...]) -> float:
    return max(float(found.changes[name].max()) for name in names if name in found.changes)


def _share(value: float) -> str:
    """
    >>> _share(0.234), _share(0.00012)
    ('23 %', '0.012 %')
    """
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:.0f} %"


def _reading(verdict: Verdict, found: Appended, allowed: Floats, evidence: Evidence) -> str:
    largest = _worst(found, RECOMPUTED) / found.epsilon
    changed = [s for s, same in zip(found.states, _unchanged(found, allowed, ALL), strict=True) if not same]
    if verdict == "supported":
        cached = _worst(found, ALL) / found.epsilon
        return (
            "A causal mask: exact by definition; what is measured is this model's deviation. Appending changes no earlier state "
            f"by more than {largest:.2g} roundings, and a cache none by more than {cached:.2g}, where changing the first token "
            f"changes states by up to {_share(found.changes[CHANGED].max())} of their length."
        )
    if verdict == "qualified":
        return (
            f"Appending changes no earlier state by more than {largest:.2g} roundings, but the cache does: by "
            f"{_share(_worst(found, ALL))} of a state's length, at {name_sites(changed)}."
        )
    if verdict == "undecided":
        return (
            f"Earlier states differ by up to {largest:.2g} roundings of {found.dtype} at {name_sites(changed)}, no more than "
            "rounding may do; load the model in float32 to decide."
        )
    why = "Attention looks both ways" if not evidence.anatomy.causal else "Something looks ahead"
    return f"{why}: appended tokens change earlier states by up to {_share(_worst(found, RECOMPUTED))} of their length, at {name_sites(changed)}."


def _headline(verdict: Verdict, found: Appended, value: float) -> str:
    if verdict == "refuted":
        return f"Appended tokens change earlier states, by up to {_share(_worst(found, RECOMPUTED))} of their length"
    return f"Appended tokens leave earlier states alone, but for {value:.2g} roundings"


def _table(found: Appended, allowed: Floats) -> Table:
    names = dict(zip(("one", "half", "cached", "through_cache"), ALL, strict=True)) | {"floor": FLOOR}
    same = _unchanged(found, allowed, ALL)
    rows: list[dict[str, Any]] = [
        {
            "state": state,
            **{
                column: float(found.changes[name].max(0)[i] / found.epsilon) if name in found.changes else None
                for column, name in names.items()
            },
            "unchanged": bool(same[i]),
        }
        for i, state in enumerate(found.states)
    ]
    return Table.of(COLUMNS, rows)


def _quantities(found: Appended) -> tuple[Quantity, ...]:
    largest = {name: found.changes[name].max(0) for name in (THROUGH, FLOOR, CHANGED) if name in found.changes}
    return (
        Quantity(
            "largest change of an earlier state",
            "relative to its length, over all tokens, when one token or half of the window is appended",
            "‖Δx‖/‖x‖",
            ("state",),
            {"state": list(found.states)},
            np.maximum(found.changes[ONE], found.changes[HALF]).max(0),
            controls=largest,
            theory={f"{T.roundings:g} roundings": np.full(len(found.states), T.roundings * found.epsilon)},
            logs=("value",),
        ),
    )
