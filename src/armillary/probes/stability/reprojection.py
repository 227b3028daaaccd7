"""Do norms keep the state from spiralling away?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.stability.perturbation_record import APART, FROZEN, LIVE, OWN, Nudged
from armillary.probes.stability.said import Interval, cell, intervals, mean, not_measured, unclear
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

COLUMNS = (
    Column("state", "state of the stream"),
    Column(
        "live", "angle between the turned and the unturned stream over the turn, norms live, geometric mean over tokens"
    ),
    Column("live_low", "its 95 % interval over documents, low end"),
    Column("live_high", "its 95 % interval over documents, high end"),
    Column("own", "the same with every norm frozen to the scale each token had there (empty: diverged)"),
    Column("frozen", "the same with every norm frozen to one scale, the text's typical (empty: diverged)"),
    Column("frozen_low", "its 95 % interval over documents, low end"),
    Column("frozen_high", "its 95 % interval over documents, high end"),
    Column("apart", "as `frozen`, first tokens left their own scale (empty: diverged)"),
    Column("later_live", "as `live`, turned after the first block (empty: before it)"),
    Column("later_frozen", "as `frozen`, turned after the first block (empty: before it, or diverged)"),
    Column("length_live", "‖x‖ over its value before the first block, norms live, geometric mean"),
    Column("length_frozen", "the same with every norm frozen to one scale (empty: diverged)"),
    Column("length_apart", "the same, first tokens left their own scale (empty: diverged)"),
    Column("diverged", "share of tokens whose state is no finite number with norms frozen to one scale"),
)
Ratios = dict[str, list[Interval]]
"""condition → log ratios to live, of the turn's growth and of that of ‖x‖."""
WINDOWS = (
    Column("slide", "tokens that slid out of the window", "tokens"),
    Column("live", "angle at the window's end over the turn at its beginning, norms live"),
    Column("live_low", "its 95 % interval over documents, low end"),
    Column("live_high", "its 95 % interval over documents, high end"),
    Column("frozen", "the same with every norm frozen to one scale (empty: diverged)"),
)


@dataclass(frozen=True)
class Reprojection:
    """A small turn carried through the blocks, with norms live and frozen."""

    claim: ClassVar[Claim] = Claim(
        id="stability.reprojection",
        chapter="D",
        statement="Projecting onto a fixed manifold again and again keeps the state from spiralling away.",
        source="S3",
        definition=(
            "Every token's state is turned by a small angle in a random direction before the first block; how much the turn has "
            "grown after each block, geometric mean over tokens, first ones left out. Norms live; frozen to one scale (each "
            "multiplies by the reciprocal of the text's median length there: gain, shift and centring stay, the sphere is gone), for "
            "all tokens, and for all but first ones, which may be many times as long; and frozen to the scale each token had anyway, which leaves the unturned stream as it is and only lets the turn's "
            "radial part through. Growth of ‖x‖ likewise. In windows that slid, the beginning is turned and the end looked at. "
            "The statistic is the growth per block, norms live, as a logarithm (like a Lyapunov exponent)."
        ),
        control="norms frozen to one scale; the same, first tokens apart; frozen to each token's own; random initialisation; twice the turn (linear regime)",
        rule=(
            f"Bounded: with norms live the turn grows at no state, and in no slid window, beyond {T.reprojection_bound:g} times "
            f"(upper end). Held back: over the whole depth it grows {T.reprojection_factor:g} times as much with norms frozen to one "
            "scale (lower end of the ratio's interval; a state that overflows for most tokens counts), and likewise ‖x‖. "
            "Supported: bounded, and both are held back, first tokens apart too. Qualified: bounded, and one of them, or only with "
            "first tokens frozen as the others. Refuted: not bounded (lower end), or neither is held back, the upper ends of all "
            f"ratios lying below {T.reprojection_factor:g}. Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Fifteen passes of two thirds of the text, two of them first tokens apart and four the twin's, and twelve of slid windows.
        return 22.0

    def experiment(self, bench: "Bench") -> Nudged | None:
        from armillary.probes.stability.perturbation import nudge

        return nudge(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        found: Nudged | None = evidence.found.get(self.claim.id)
        if found is None:
            why = (
                "No document is long enough to follow a turn through it; more text, in longer documents, would decide."
            )
            return not_measured(self.claim, COLUMNS[0], (), why, "No text to turn states of: nothing can be concluded")
        grown = {name: _angles(evidence, found, name) for name in (LIVE, OWN, FROZEN, APART)}
        slid = {name: intervals(evidence, sums) for name, sums in found.slid.items()}
        ratios = {name: _ratios(evidence, found, name) for name in (FROZEN, APART)}
        verdict = _verdict(found, grown[LIVE], slid[LIVE], ratios)
        name = "growth of a turn per block, norms live (log)"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(name, *_per_block(grown[LIVE]), "per block"),
            n=found.tokens,
            controls=_controls(evidence, found, grown),
            reading=_reading(verdict, found, grown, slid, ratios),
            headline=_headline(found, grown),
            table=_table(found, grown),
            quantities=_quantities(found, grown),
            notes=_notes(found),
            more_tables={"windows": _windows(found, slid)},
        )


def _per_block(grown: Floats) -> Interval:
    """The exponent from log growth [state, (value, low, high)]: to the last state that has one, by block."""
    there = int(np.flatnonzero(np.isfinite(grown[:, 0]))[-1])
    value, low, high = grown[there] / max(1, there)
    return float(value), float(low), float(high)


def _angles(evidence: Evidence, found: Nudged, name: str) -> Floats:
    """Log growth of the turn [state, (value, low, high)]; nothing where most tokens have diverged, since what the others do
    says nothing of the stream."""
    grown = intervals(evidence, found.sums[name, "angle"])
    return np.where(found.diverged(name)[:, None] > 0.5, np.nan, grown)


def _ratios(evidence: Evidence, found: Nudged, name: str) -> list[Interval]:
    """Logs of how many times more a turn, and ‖x‖, grow with norms frozen, over the whole depth."""
    made = []
    for what in ("angle", "length"):
        both = np.stack([found.sums[condition, what][:, -1] for condition in (name, LIVE)], 1)
        value, low, high = intervals(evidence, both, lambda s: -np.diff(mean(s), axis=-1))[0]
        made.append((float(value), float(low), float(high)))
    return made


def _verdict(found: Nudged, live: Floats, slid: Floats, ratios: Ratios) -> Verdict:
    ends = np.concatenate([live, slid])[:, 1:]
    if np.isnan(ends).any():
        return "undecided"
    if ends[:, 0].max() > np.log(T.reprojection_bound):
        return "refuted"
    held = _held(found, ratios)
    bounded = ends[:, 1].max() <= np.log(T.reprojection_bound)
    if bounded and any(held):
        return "supported" if all(held) else "qualified"
    highs = [high for parts in ratios.values() for _, _, high in parts]
    return "refuted" if not any(held) and max(highs) < np.log(T.reprojection_factor) else "undecided"


def _held(found: Nudged, ratios: Ratios) -> list[bool]:
    """Are turn and ‖x‖ held back, with all tokens frozen and with first ones apart?"""
    least = np.log(T.reprojection_factor)
    return [found.overflows(name) or low >= least for name, parts in ratios.items() for _, low, _ in parts]


def _controls(evidence: Evidence, found: Nudged, grown: dict[str, Floats]) -> tuple[Control, ...]:
    made = []
    for name in (FROZEN, APART, OWN):
        broken = np.flatnonzero(np.isnan(grown[name][:, 0]))
        more = f", up to {found.states[broken[0] - 1]}" if len(broken) else ""
        made.append(Control(name + more, *_per_block(grown[name])))
    for name in (LIVE, FROZEN):
        twin = found.sums.get((f"{RANDOM}, {name}", "angle"))
        if twin is not None:
            made.append(Control(f"{RANDOM}, {name}", *_per_block(intervals(evidence, twin))))
    return tuple(made)


def _reading(verdict: Verdict, found: Nudged, grown: dict[str, Floats], slid: dict[str, Floats], ratios: Ratios) -> str:
    live, most = np.exp(grown[LIVE][-1, 0]), int(np.argmax(grown[LIVE][:, 0]))
    peak = "" if most == found.blocks else f" (at most {np.exp(grown[LIVE][most, 0]):.2g}, at {found.states[most]})"
    told = f"With norms live a small turn is {live:.2g} times what it was after {found.blocks} blocks{peak}"
    told += (
        f"; frozen to one scale, {_frozen(found, FROZEN, ratios)}; first tokens apart, {_frozen(found, APART, ratios)}"
    )
    own = grown[OWN][-1, 0] - grown[LIVE][-1, 0]
    told += f"; freezing alone, at each token's own scale, makes it {np.exp(own):.2g} times" if np.isfinite(own) else ""
    told += (
        f"; turned at a slid window's beginning, its end turns by {np.exp(slid[LIVE][:, 0].max()):.2g} of that at most"
    )
    if verdict == "undecided":
        return f"{told}; {unclear('the rule', grown[LIVE])}"
    if verdict == "qualified" and not any(_held(found, ratios)[2:]):
        told += ". What runs away when frozen does so for the first tokens alone: left their own scale, they keep the others in place"
    return f"{told}."


def _frozen(found: Nudged, name: str, ratios: Ratios) -> str:
    if found.overflows(name):
        return f"the stream diverged at {found.states[int(np.flatnonzero(found.diverged(name) > 0.5)[0])]}"
    angle, length = (np.exp(value) for value, _, _ in ratios[name])
    return f"{angle:.2g} times that, with ‖x‖ {length:.2g} times as long as live"


def _headline(found: Nudged, grown: dict[str, Floats]) -> str:
    live = f"A small turn is {np.exp(grown[LIVE][-1, 0]):.2g} times what it was after {found.blocks} blocks"
    if found.overflows(FROZEN):
        return f"{live}; with norms frozen the stream diverges"
    return f"{live}, and {np.exp(grown[FROZEN][-1, 0]):.2g} times with norms frozen to one scale"


def _notes(found: Nudged) -> tuple[str, ...]:
    made = [f"turned by {found.angle:.2g} radians; {found.documents} documents"]
    for name in (LIVE, FROZEN):
        bend = float(np.exp(mean(found.sums[name, "doubled"].sum(0))[-1]))
        if np.isfinite(bend):
            linear = "linear" if abs(bend - 1) < 0.1 else "no longer linear"
            made.append(f"{name}: twice the turn gives {2 * bend:.3g} times the angle, {linear}")
    lost = {name: float(found.diverged(name)[-1]) for name in (FROZEN, APART) if found.diverged(name)[-1] > 0}
    made += [
        f"{name}: {share:.0%} of tokens end as no finite numbers and are left out of means"
        for name, share in lost.items()
    ]
    return tuple(made)


def _table(found: Nudged, grown: dict[str, Floats]) -> Table:
    live, own, frozen, apart = (np.exp(grown[name]) for name in (LIVE, OWN, FROZEN, APART))
    later = [found.grown(name, "later") for name in (LIVE, FROZEN)]
    lengths = [found.grown(name, "length") for name in (LIVE, FROZEN, APART)]
    diverged = found.diverged(FROZEN)
    names = [column.name for column in COLUMNS]
    arrays = [*live.T, own[:, 0], *frozen.T, apart[:, 0], *later, *lengths, diverged]
    rows: list[dict[str, Any]] = [
        dict(zip(names, (state, *(cell(array[i]) for array in arrays)), strict=True))
        for i, state in enumerate(found.states)
    ]
    return Table.of(COLUMNS, rows)


def _windows(found: Nudged, slid: dict[str, Floats]) -> Table:
    names = [column.name for column in WINDOWS]
    columns = np.exp(np.concatenate([slid[LIVE], slid[FROZEN][:, :1]], 1))
    cells = [(by, *map(cell, row)) for by, row in zip(found.slides, columns, strict=True)]
    return Table.of(WINDOWS, [dict(zip(names, row, strict=True)) for row in cells])


def _quantities(found: Nudged, grown: dict[str, Floats]) -> tuple[Quantity, ...]:
    coords = {"state": list(found.states)}
    live = np.exp(grown[LIVE])
    lengths = {name: found.grown(name, "length") for name in (LIVE, FROZEN, APART)}
    twin = f"{RANDOM}, {LIVE}"
    others = {name: np.exp(grown[name][:, 0]) for name in (FROZEN, APART, OWN)}
    others |= {twin: found.grown(twin, "angle")} if (twin, "angle") in found.sums else {}
    return (
        Quantity(
            "growth of a small turn",
            "angle between turned and unturned stream over the turn before the first block",
            "times",
            ("state",),
            coords,
            live[:, 0],
            live[:, 1],
            live[:, 2],
            controls=others,
            theory={"no growth: 1": np.ones(len(found.states))},
            logs=("value",),
            label=LIVE,
        ),
        Quantity(
            "growth of ‖x‖",
            "over its value before the first block, geometric mean over tokens",
            "times",
            ("state",),
            coords,
            lengths[LIVE],
            controls={name: lengths[name] for name in (FROZEN, APART)},
            logs=("value",),
            label=LIVE,
        ),
    )
