"""Does the activation send most hidden coordinates to a discard region?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Flags, Floats, T, mean
from armillary.probes.machinery.tables import cells, interval_cells, layer_table, line
from armillary.probes.machinery.verdicts import by_share, missing_interval, name_sites, undecided
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.hidden import HiddenLayers
    from armillary.probes.filter.units import Units
    from armillary.probes.machinery.bench import Bench

# A longer list would not be read; the notes say how many were left out.
LISTED = 200


@dataclass(frozen=True)
class Discard:
    """Shares of hidden coordinates below zero and near zero, layer by layer; and units that are never or always on."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.discard",
        chapter="E",
        statement="The activation of a feed-forward layer moves irrelevant coordinates to a discard region.",
        source="S3",
        definition=(
            "Two shares per layer, over all tokens but first ones: hidden coordinates below zero before the activation "
            "(of the gate, where there is one), and coordinates below 1 % of their token's peak at the input of W_out "
            "(the product, where there is a gate). In any stream centred at zero, half of the coordinates are below "
            "zero, trained or not. Also reported: the share of the squared length that coordinates below zero still "
            "carry; and units that are silent, always on, or duplicates of another. Whether the discarded coordinates "
            "are irrelevant is measured by ffn.select."
        ),
        control="one half, for a centred stream; random initialisation; shuffled text",
        rule=(
            "All conditions must hold for the whole interval. A layer discards if its share below zero exceeds two "
            f"thirds, and exceeds chance by more than {100 * T.discard_beyond:.0f} points; chance is the larger of 50% "
            f"and the untrained layer's share. Its coordinates are gone if more than {T.discard_gone:.0%} of them are "
            f"below 1% of the peak. Supported if both hold in at least {T.sites_most:.0%} of layers. Refuted if the "
            f"share exceeds chance by more than {100 * T.discard_beyond:.0f} points in at most {T.sites_few:.0%} of "
            "layers. Qualified otherwise. Undecided if there are too few documents for an interval."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3

    def experiment(self, bench: "Bench") -> "tuple[HiddenLayers, list[Units]]":
        from armillary.probes.filter.hidden import hidden_layers
        from armillary.probes.filter.units import find_units

        layers = hidden_layers(bench)
        blocks = bench.anatomy.blocks
        units = [find_units(layer, blocks[i].feed_forward, bench.seed) for i, layer in enumerate(layers.arms[MODEL])]
        return layers, units

    def conclude(self, evidence: Evidence, result: "tuple[HiddenLayers, list[Units]]") -> Finding:
        from armillary.probes.filter.hidden import NO_TOKENS
        from armillary.probes.filter.units import unit_table

        layers, units = result
        tokens = layers.arms[MODEL][0].tokens
        if not tokens:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        shares = {name: evidence.intervals(layers.sums(MODEL, name)) for name in ("below", "quiet", "carried")}
        low, quiet = shares["below"][:, 1], shares["quiet"]
        beyond = low > np.maximum(0.5, np.nan_to_num(_values(layers, RANDOM, "below"))) + T.discard_beyond
        sends, gone = beyond & (low > T.discard_most), quiet[:, 1] > T.discard_gone
        below = {arm: evidence.interval(layers.sums(arm, "below"), lambda s: mean(s).mean(-1)) for arm in layers.arms}
        verdict: Verdict = "undecided" if np.isnan(below[MODEL]).any() else by_share(sends & gone, beyond)
        listed, count = unit_table(units, LISTED)
        notes = [f"'silent' and 'always on' refer to the {tokens} tokens that were read; a longer text may differ"]
        if count > LISTED:
            notes.append(f"the list of units shows {LISTED} of {count}; the counts in the table include all")
        where = "of the gate's coordinates" if layers.gated else "of hidden coordinates"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*below[MODEL]) if verdict == "undecided" else None,
            statistic=Statistic("share of hidden coordinates below zero, mean over layers", *below[MODEL]),
            n=tokens,
            controls=tuple(Control(arm, *below[arm]) for arm in (RANDOM, SHUFFLED) if arm in layers.arms),
            reading=_reading(verdict, layers, units, shares, sends, gone),
            headline=f"{say(below[MODEL][0], '.0%')} {where} are below zero; {say(quiet[:, 0].mean(), '.0%')} are near "
            "zero after the activation",
            table=_table(layers, units, shares),
            quantities=_quantities(layers, shares),
            notes=tuple(notes),
            more_tables={"units": listed} if count else {},
        )


def _values(layers: "HiddenLayers", arm: str, name: str) -> Floats:
    """[layer] of one share; NaN in an arm that was not measured."""
    if arm not in layers.arms:
        return np.full(len(layers.arms[MODEL]), np.nan)
    return mean(layers.sums(arm, name).sum(0))


def _table(layers: "HiddenLayers", units: "list[Units]", shares: dict[str, Floats]) -> Table:
    place = "of the gate" if layers.gated else "before the activation"
    untrained = "the same share at random initialisation; empty without a twin"

    return layer_table(
        len(units),
        interval_cells("below", f"share of hidden coordinates below zero {place}", shares["below"]),
        cells("below_untrained", untrained, _values(layers, RANDOM, "below")),
        interval_cells(
            "quiet", "share of coordinates below 1 % of their token's peak, at the input of W_out", shares["quiet"]
        ),
        cells("quiet_untrained", untrained, _values(layers, RANDOM, "quiet")),
        cells(
            "carried",
            "share of the squared length of W_out's input that coordinates below zero carry",
            shares["carried"][:, 0],
        ),
        *(
            cells(name, meaning, [int(getattr(unit, flags).sum()) for unit in units], "units")
            for name, flags, meaning in (
                ("silent", "silent", "units that never reach 1 % of the median unit's peak on this text"),
                ("never_on", "never", "units at or below zero on every token of this text"),
                ("always_on", "always", "units above zero on every token of this text"),
                ("double", "double", "units that duplicate an earlier one, by weights or by activations"),
            )
        ),
    )


def _reading(
    verdict: Verdict,
    layers: "HiddenLayers",
    units: "list[Units]",
    shares: dict[str, Floats],
    sends: Flags,
    gone: Flags,
) -> str:
    below, quiet, carried = (say(shares[name][:, 0].mean(), ".0%") for name in ("below", "quiet", "carried"))
    where = "the gate's coordinates" if layers.gated else "hidden coordinates"
    untrained = f"; untrained: {say(_values(layers, RANDOM, 'below').mean(), '.0%')}" if RANDOM in layers.arms else ""
    text = f"{below} of {where} are below zero (chance: 50%{untrained})"
    if verdict != "supported" and sends.any():
        others = [f"L{i}" for i in np.flatnonzero(~sends)]
        text += f", more than two thirds in {sends.sum()} of {len(sends)} layers"
        text += f" (not in {name_sites(others)})" if others else ""
    text += f". {quiet} are below 1% of their token's peak after the activation"
    if verdict != "supported" and not gone.all():
        text += f" (more than half in {gone.sum()} of {len(gone)} layers)"
    silent, always, double = (
        sum(int(getattr(u, name).sum()) for u in units) for name in ("silent", "always", "double")
    )
    return (
        f"{text}. Coordinates below zero still carry {carried} of the squared length of W_out's input. Of "
        f"{sum(len(u.silent) for u in units)} units on this text: {silent} silent, {always} always on, {double} "
        "duplicates of another."
    )


def _quantities(layers: "HiddenLayers", shares: dict[str, Floats]) -> tuple[Quantity, ...]:
    names = [f"L{i}" for i in range(len(shares["below"]))]
    place = "of the gate" if layers.gated else "before the activation"
    meanings = {
        "below": ("coordinates below zero", f"{place}, all tokens but first ones"),
        "quiet": ("coordinates below 1 % of the peak", "at the input of W_out, relative to the token's largest"),
        "carried": ("squared length carried by coordinates below zero", "at the input of W_out, mean over tokens"),
    }
    half = {"centred stream: ½": np.full(len(names), 0.5)}
    return tuple(
        line(
            title,
            meaning,
            "share",
            "layer",
            names,
            shares[name],
            {arm: _values(layers, arm, name) for arm in (RANDOM, SHUFFLED) if arm in layers.arms},
            half if name == "below" else {},
        )
        for name, (title, meaning) in meanings.items()
    )
