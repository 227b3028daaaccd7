"""Does the activation send most hidden coordinates to a discard region?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.filter.unmeasured import NO_TOKENS, unmeasured
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.hidden import Streams
    from armillary.probes.filter.units import Units
    from armillary.probes.machinery.bench import Bench

# A list that nobody scrolls through helps nobody; how many were left out is said.
LISTED = 200
COLUMNS = (
    Column("layer", "layer"),
    Column("below", "share of hidden coordinates below zero before the activation (of the gate, where there is one)"),
    Column("below_low", "its 95 % interval over documents, low end"),
    Column("below_high", "its 95 % interval over documents, high end"),
    Column("below_untrained", "the same share at random initialisation; nothing where no twin was made"),
    Column("quiet", "share of coordinates below 1 % of their token's peak, of what W_out gets (the product)"),
    Column("quiet_low", "its 95 % interval over documents, low end"),
    Column("quiet_high", "its 95 % interval over documents, high end"),
    Column("quiet_untrained", "the same share at random initialisation; nothing where no twin was made"),
    Column("carried", "share of the squared length of what W_out gets that coordinates below zero carry"),
    Column("silent", "units that never reach 1 % of the median unit's peak on this text", "units"),
    Column("never_on", "units below zero on every token of this text", "units"),
    Column("always_on", "units above zero on every token of this text", "units"),
    Column("double", "units that are doubles of an earlier one, by weights or by activations", "units"),
)
UNITS = (
    Column("layer", "layer"),
    Column("unit", "hidden unit"),
    Column("what", "silent on this text, always on, or double of an earlier unit"),
    Column("partner", "the earlier unit it doubles; nothing for the others"),
    Column("peak", "its largest |activation| on this text, over the median unit's"),
    Column("on", "share of tokens on which it is above zero before the activation"),
    Column(
        "cosine", "smallest |cos| of the pair's columns of W_in (and W_gate) and rows of W_out; nothing if no double"
    ),
    Column("correlation", "of the pair's activations; nothing if no double, or if one speaks on too few tokens"),
)


@dataclass(frozen=True, eq=False)
class Discarded:
    """arm → sums [layer, group, (tokens, below, quiet, carried)], and the units of the model."""

    sums: dict[str, Floats]
    units: "list[Units]"
    gated: bool


@dataclass(frozen=True)
class Discard:
    """Shares of hidden coordinates below zero and near nothing, layer by layer, and units that never or always speak."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.discard",
        chapter="E",
        statement="The activation sends irrelevant coordinates to a discard region.",
        source="S3",
        definition=(
            "Per layer, over all tokens but first ones: the share of hidden coordinates that are below zero before the activation "
            "(of the gate, where there is one), and the share that come out below 1 % of their token's peak, as W_out gets them "
            "(the product, where there is a gate). Of a stream centred at zero, half lies below zero whatever was learned. Beside "
            "them the share of the squared length that coordinates below zero still carry, and units that stay silent, are on at "
            "every token, or double an earlier one. Whether what is discarded is irrelevant is asked by ffn.select."
        ),
        control="half, for a centred stream; random initialisation; shuffled text",
        rule=(
            f"A layer sends when the share below zero lies above {T.discard_most:.0%} with its whole interval, and "
            f"{T.discard_beyond:.0%} above chance (the larger of 50% and the untrained layer's share); its coordinates are gone when "
            f"more than {T.discard_gone:.0%} of them come out below 1% of the peak. Supported: both, in ≥ {T.sites_most:.0%} of layers. "
            f"Refuted: the share lies {T.discard_beyond:.0%} above chance in ≤ {T.sites_few:.0%} of layers. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3

    def experiment(self, bench: "Bench") -> Discarded:
        from armillary.probes.filter.hidden import streams
        from armillary.probes.filter.units import find_units

        found = streams(bench)
        blocks = bench.anatomy.blocks
        layers = found.arms[MODEL]
        units = [find_units(layer, blocks[i].feed_forward, bench.seed) for i, layer in enumerate(layers)]
        return Discarded(_sums(found), units, found.gated)

    def conclude(self, evidence: Evidence) -> Finding:
        found: Discarded = evidence.found[self.claim.id]
        if not found.sums[MODEL].size:
            return unmeasured(self.claim, COLUMNS[0], NO_TOKENS)
        below, quiet, carried = (_shares(evidence, found.sums[MODEL], i) for i in (1, 2, 3))
        chance = np.maximum(0.5, _values(found, RANDOM, 1)) if RANDOM in found.sums else np.full(len(below), 0.5)
        beyond = below[:, 1] > chance + T.discard_beyond
        sends = beyond & (below[:, 1] > T.discard_most)
        gone = quiet[:, 1] > T.discard_gone
        statistic = _across(evidence, found.sums[MODEL], 1)
        verdict = _verdict(statistic, beyond, sends & gone)
        rows = _rows(found, below, quiet, carried)
        listed = _listed(found)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("share of hidden coordinates below zero, mean over layers", *statistic),
            n=int(found.sums[MODEL][0, :, 0].sum()),
            controls=tuple(
                Control(arm, *_across(evidence, found.sums[arm], 1)) for arm in (RANDOM, SHUFFLED) if arm in found.sums
            ),
            reading=_reading(verdict, rows, found, sends, gone),
            headline=f"{statistic[0]:.0%} {_where(found)} lie below zero, {quiet[:, 0].mean():.0%} come out as next to nothing",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(found, below, quiet, carried),
            notes=_notes(found, listed),
            more_tables={"units": Table.of(UNITS, listed[:LISTED])} if listed else {},
        )


def _sums(found: "Streams") -> dict[str, Floats]:
    """Documents that were read; the evaluation text may hold fewer than the survey."""
    made = {arm: np.stack([layer.sums for layer in layers]) for arm, layers in found.arms.items()}
    return {arm: sums[:, sums[0, :, 0] > 0] for arm, sums in made.items()}


def _share(stats: Floats, which: int) -> Floats:
    return np.asarray(stats[..., which] / np.maximum(stats[..., 0], 1e-300))


def _shares(evidence: Evidence, sums: Floats, which: int) -> Floats:
    """[layer, (value, low, high)]"""
    return evidence.site_intervals(sums, lambda stats: _share(stats, which))


def _values(found: Discarded, arm: str, which: int) -> Floats:
    return _share(found.sums[arm].sum(1), which)


def _across(evidence: Evidence, sums: Floats, which: int) -> tuple[float, float, float]:
    return evidence.across_sites(sums, lambda stats: _share(stats, which), np.mean)


def _verdict(statistic: tuple[float, float, float], beyond: Flags, holds: Flags) -> Verdict:
    if np.isnan(statistic).any():
        return "undecided"
    if holds.mean() >= T.sites_most:
        return "supported"
    return "refuted" if beyond.mean() <= T.sites_few else "qualified"


def _rows(found: Discarded, below: Floats, quiet: Floats, carried: Floats) -> list[dict[str, Any]]:
    def untrained(which: int, layer: int) -> float | None:
        return float(_values(found, RANDOM, which)[layer]) if RANDOM in found.sums else None

    def ends(name: str, shares: Floats, layer: int) -> dict[str, float | None]:
        return {
            f"{name}{end}": None if np.isnan(value) else float(value)
            for end, value in zip(("", "_low", "_high"), shares[layer], strict=True)
        }

    return [
        {
            "layer": f"L{i}",
            **ends("below", below, i),
            "below_untrained": untrained(1, i),
            **ends("quiet", quiet, i),
            "quiet_untrained": untrained(2, i),
            "carried": float(carried[i, 0]),
            "silent": int(units.silent.sum()),
            "never_on": int(units.never.sum()),
            "always_on": int(units.always.sum()),
            "double": int(units.double.sum()),
        }
        for i, units in enumerate(found.units)
    ]


def _listed(found: Discarded) -> list[dict[str, Any]]:
    """Units worth a look; doubles first, then silent ones, which are the two kinds one may cut."""
    from armillary.probes.filter.units import unit_rows

    rows = [row for layer, units in enumerate(found.units) for row in unit_rows(layer, units)]
    order = {"double": 0, "silent": 1, "always on": 2}
    return sorted(rows, key=lambda row: (order[row["what"]], row["layer"], row["unit"]))


def _notes(found: Discarded, listed: list[dict[str, Any]]) -> tuple[str, ...]:
    tokens = int(found.sums[MODEL][0, :, 0].sum())
    notes = [
        f"'silent' and 'always on' are said of the {tokens} tokens that were read; a longer text may find them wrong"
    ]
    if len(listed) > LISTED:
        notes.append(f"the list of units shows {LISTED} of {len(listed)}; the table's counts are of all")
    return tuple(notes)


def _where(found: Discarded) -> str:
    return "of the gate's coordinates" if found.gated else "of hidden coordinates"


def _reading(verdict: Verdict, rows: list[dict[str, Any]], found: Discarded, sends: Flags, gone: Flags) -> str:
    where = _where(found)
    below, quiet, carried = (float(np.mean([row[key] for row in rows])) for key in ("below", "quiet", "carried"))
    told = f"{below:.0%} {where} fall below zero (chance 50%"
    told += f", untrained {_values(found, RANDOM, 1).mean():.0%})" if RANDOM in found.sums else ")"
    layers = [row["layer"] for row in rows]
    if verdict != "supported" and sends.any():
        few = [name for name, yes in zip(layers, sends, strict=True) if not yes]
        told += f", more than two in three in {sends.sum()} of {len(layers)} layers"
        told += f" (not in {name_sites(few)})" if few else ""
    told += f"; {quiet:.0%} come out below 1% of their token's peak"
    if verdict != "supported" and not gone.all():
        told += f" (more than half in {gone.sum()} of {len(layers)} layers)"
    told += f", and those below zero still carry {carried:.0%} of the squared length that W_out gets"
    counts = {key: sum(row[key] for row in rows) for key in ("silent", "always_on", "double")}
    units = sum(len(units.silent) for units in found.units)
    return (
        f"{told}. Of {units} units {counts['silent']} are silent on this text, {counts['always_on']} always on, "
        f"{counts['double']} doubles of another."
    )


def _quantities(found: Discarded, below: Floats, quiet: Floats, carried: Floats) -> tuple[Quantity, ...]:
    coords = {"layer": [f"L{i}" for i in range(len(below))]}
    where = "of the gate" if found.gated else "before the activation"

    def line(name: str, meaning: str, shares: Floats, which: int, theory: dict[str, Floats]) -> Quantity:
        low, high = (None, None) if np.isnan(shares).any() else (shares[:, 1], shares[:, 2])
        controls = {arm: _values(found, arm, which) for arm in (RANDOM, SHUFFLED) if arm in found.sums}
        return Quantity(name, meaning, "share", ("layer",), coords, shares[:, 0], low, high, controls, theory)

    half = {"centred stream: ½": np.full(len(below), 0.5)}
    return (
        line("coordinates below zero", f"{where}, all tokens but first ones", below, 1, half),
        line("coordinates below 1 % of the peak", "of what W_out gets, beside the token's largest", quiet, 2, {}),
        line("squared length carried from below zero", "of what W_out gets, mean over tokens", carried, 3, {}),
    )
