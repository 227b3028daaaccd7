"""Does the activation send most hidden coordinates to a discard region?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.filter.activations.discard_parts import Shares, discard_parts
from armillary.probes.filter.by_layer import RULE
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Floats, Interval, T, mean
from armillary.probes.machinery.intervals import over_twins
from armillary.probes.machinery.tables import cells, interval_cells, layer_table, line
from armillary.probes.machinery.verdicts import undecided, weighed
from armillary.results import (
    Claim,
    Control,
    Finding,
    Limit,
    Part,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Why,
    say,
)

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.activations.hidden import HiddenLayers
    from armillary.probes.filter.activations.units import Units
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
        question=(
            "Does a feed-forward layer push most of its hidden values below zero, where the activation nearly "
            "deletes them?"
        ),
        kind="learned",
        definition=(
            "How many hidden values of a feed-forward layer does the activation throw away? Two shares are measured "
            "per layer, over all tokens but first ones.\n"
            "(1) Below zero: hidden coordinates below zero before the activation (of the gate, where there is one). "
            "In any stream centred at zero, half of the coordinates are below zero, trained or not.\n"
            f"(2) Gone: coordinates below {T.discard_peak:.0%} of their token's peak at the input of W_out (the "
            "product, where there is a gate).\n"
            "Also reported: the share of the squared length that coordinates below zero still carry; and units that "
            "are silent, always on, or duplicates of another (by their weights, or by their activations on tokens "
            "that are not massive).\n"
            "Whether the discarded coordinates are irrelevant is measured by ffn.select."
        ),
        control="one half, for a centred stream; random initialisation; shuffled text",
        rule=(
            "Two parts, each answered layer by layer; the weaker decides. An answer counts only if the whole "
            "interval lies on one side of the limit.\n"
            "Part 1, below zero. It holds in a layer whose share below zero exceeds two thirds, and exceeds chance "
            f"by more than {100 * T.discard_beyond:.0f} points. Chance is 50%, or what another untrained model would "
            "show (upper end over twins) if that is more.\n"
            f"Part 2, gone. It holds in a layer in which more than {T.discard_gone:.0%} of coordinates are below "
            f"{T.discard_peak:.0%} of the peak, and more than in another untrained model (upper end over twins).\n"
            "Each part, over layers:\n"
            f"{RULE}\n"
            "A layer that exceeds chance, but not two thirds, does not help to refute part 1: in the lines for "
            "'refuted' and 'qualified' it counts as one in which part 1 holds. It also counts as one in which part 1 "
            "fails.\n"
            "Undecided otherwise: intervals span a limit, or there are too few documents or no untrained models."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "Both shares are compared with several untrained models, not with one, and are parts with verdicts "
                "of their own. A layer whose interval spans a limit no longer counts against the claim. Units that "
                "agree only on massive tokens are not duplicates.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "6edc40fc67f2", 1),
            Rewording("2026-11-18", "29e04b4c47f6", 1),
            Rewording("2026-11-19", "274160e200fc", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # The chapter's shared passes: the model, shuffled text and at most five twins.
        return 7

    def experiment(self, bench: "Bench") -> "tuple[HiddenLayers, list[Units]]":
        from armillary.probes.filter.activations.hidden import hidden_layers
        from armillary.probes.filter.activations.mixtures import whole
        from armillary.probes.filter.activations.units import find_units

        layers = hidden_layers(bench)
        blocks = bench.anatomy.blocks
        numbered = enumerate(layers.arms[MODEL])
        units = [find_units(layer, whole(blocks[i].channels), bench.seed) for i, layer in numbered]
        return layers, units

    def conclude(self, evidence: Evidence, result: "tuple[HiddenLayers, list[Units]]") -> Finding:
        from armillary.probes.filter.activations.hidden import NO_TOKENS
        from armillary.probes.filter.activations.mixtures import expert_table
        from armillary.probes.filter.activations.units import unit_table

        layers, units = result
        tokens = layers.arms[MODEL][0].tokens
        if not tokens:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        shares = {name: evidence.intervals(layers.sums(MODEL, name)) for name in ("below", "quiet", "carried")}
        untrained = {name: _untrained(evidence, layers, name) for name in shares}
        below, quiet, carried = (
            Shares(shares[name], untrained[name], *_means(evidence, layers, name), len(evidence.twins))
            for name in shares
        )
        parts = discard_parts(below, quiet, layers.gated)
        listed, count = unit_table(units, LISTED)
        notes = [f"'silent' and 'always on' refer to the {tokens} tokens that were read; a longer text may differ"]
        notes.append(f"random initialisation: {len(layers.twins)} untrained models")
        if count > LISTED:
            notes.append(f"the list of units shows {LISTED} of {count}; the counts in the table include all")
        experts = expert_table(evidence, layers.arms[MODEL])
        where = "of the gate's coordinates" if layers.gated else "of hidden coordinates"
        shuffled = evidence.interval(layers.sums(SHUFFLED, "below"), _mean_layer)
        return Finding(
            claim=self.claim,
            **weighed(parts, " ".join(part.reading for part in parts) + _more(carried, units)),
            statistic=Statistic("share of hidden coordinates below zero, mean over layers", *below.mean),
            n=tokens,
            controls=(
                *([Control(RANDOM, *below.mean_untrained)] if layers.twins else []),
                Control(SHUFFLED, *shuffled),
            ),
            headline=f"{say(below.mean[0], '.0%')} {where} are below zero; {say(quiet.mean[0], '.0%')} are near zero "
            "after the activation",
            table=_table(layers, units, shares, untrained),
            quantities=_quantities(layers, shares, untrained),
            notes=tuple(notes),
            more_tables=({"units": listed} if count else {}) | ({} if experts is None else {"experts": experts}),
            limits=_beyond_untrained(quiet, parts[1]),
        )


def _beyond_untrained(quiet: Shares, part: Part) -> tuple[Limit, ...]:
    """What untrained models show of near zeros stands in no control: those are of the share below zero."""
    end = quiet.mean_untrained[2]
    limit = Limit(end, "above", "above untrained models", part=part.name, measured=part.statistic)
    return (limit,) if np.isfinite(end) else ()


def _mean_layer(sums: Floats) -> Floats:
    return np.asarray(mean(sums).mean(-1))


def _means(evidence: Evidence, layers: "HiddenLayers", name: str) -> tuple[Interval, Interval]:
    """The mean over layers of one share: of the model, and over untrained twins."""
    model, *twins = (evidence.interval(layers.sums(arm, name), _mean_layer) for arm in (MODEL, *layers.twins))
    value, low, high = over_twins(twins).tolist()
    return model, (value, low, high)


def _untrained(evidence: Evidence, layers: "HiddenLayers", name: str) -> Floats:
    """[layer, (value, low, high)] of one share over untrained twins; NaN without twins."""
    each = [evidence.intervals(layers.sums(arm, name)) for arm in layers.twins]
    return over_twins(np.stack(each)) if each else np.full((len(layers.arms[MODEL]), 3), np.nan)


def _table(
    layers: "HiddenLayers", units: "list[Units]", shares: dict[str, Floats], untrained: dict[str, Floats]
) -> Table:
    place = "of the gate" if layers.gated else "before the activation"
    twins = "the same share at random initialisation, mean over twins; empty without twins"

    return layer_table(
        len(units),
        interval_cells("below", f"share of hidden coordinates below zero {place}", shares["below"]),
        cells("below_untrained", twins, untrained["below"][:, 0]),
        interval_cells(
            "quiet", "share of coordinates below 1 % of their token's peak, at the input of W_out", shares["quiet"]
        ),
        cells("quiet_untrained", twins, untrained["quiet"][:, 0]),
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
                (
                    "double",
                    "double",
                    "units that duplicate an earlier one, by weights or by activations on ordinary tokens",
                ),
            )
        ),
    )


def _more(carried: Shares, units: "list[Units]") -> str:
    silent, always, double = (
        sum(int(getattr(u, name).sum()) for u in units) for name in ("silent", "always", "double")
    )
    return (
        f" Coordinates below zero still carry {say(carried.mean[0], '.0%')} of the squared length of W_out's input. Of "
        f"{sum(len(u.silent) for u in units)} units on this text: {silent} silent, {always} always on, {double} "
        "duplicates of another."
    )


def _quantities(
    layers: "HiddenLayers", shares: dict[str, Floats], untrained: dict[str, Floats]
) -> tuple[Quantity, ...]:
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
            ({RANDOM: untrained[name][:, 0]} if layers.twins else {})
            | {SHUFFLED: mean(layers.sums(SHUFFLED, name).sum(0))},
            half if name == "below" else {},
        )
        for name, (title, meaning) in meanings.items()
    )
