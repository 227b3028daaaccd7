"""Does the activation shorten the description of a layer's stream, and more than under a random W_1?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.filter.unmeasured import NO_TOKENS, unmeasured
from armillary.probes.machinery.evidence import Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.bits import Described
    from armillary.probes.machinery.bench import Bench

TURNED, UNSHIFTED, UNTRAINED = (
    "random orientation, matched moments",
    "random orientation, no shift",
    "random initialisation",
)
DECIDING = "model 0.25"
ARMS = {"turned": TURNED, "unshifted": UNSHIFTED, "untrained": UNTRAINED}
BITS = "bits/coordinate"
COLUMNS = (
    Column("layer", "layer"),
    Column(
        "before", "bits a coordinate before the activation (of the gate), at a step of ¼ of its root mean square", BITS
    ),
    Column("after", "bits after it, at a step of ¼ of its own root mean square", BITS),
    Column("after_same", "bits after it, at the same absolute step as before", BITS),
    Column("saved", "before less after: what the activation saves", BITS),
    Column("saved_low", "its 95 % interval over documents, low end", BITS),
    Column("saved_high", "its 95 % interval over documents, high end", BITS),
    Column("saved_turned", "the same under random directions W_1, each unit at its own mean and variance", BITS),
    Column("more", "saved less saved_turned", BITS),
    Column("more_low", "its 95 % interval over documents, low end", BITS),
    Column("more_high", "its 95 % interval over documents, high end", BITS),
    Column("saved_unshifted", "saved under random directions W_1, each unit centred at zero", BITS),
    Column("saved_untrained", "saved at random initialisation; nothing where no twin was made", BITS),
    Column("product", "bits of the product that W_out gets, at ¼ of its own size; nothing without a gate", BITS),
    Column("rank_before", "participation ratio of the covariance before the activation"),
    Column("rank_after", "participation ratio after it"),
    Column("rank_product", "participation ratio of the product; nothing without a gate"),
    Column("entropy_rank_before", "entropy rank before, of the kept tokens alone (it cannot exceed their number)"),
    Column("entropy_rank_after", "entropy rank after it"),
    Column("hoyer_before", "Hoyer sparsity before the activation, mean over tokens"),
    Column("hoyer_after", "Hoyer sparsity after it"),
    Column("hoyer_product", "Hoyer sparsity of the product; nothing without a gate"),
)
ORIENTATION = (
    Column("layer", "layer"),
    Column("w_1", "which directions and shifts: the model's, or a control's"),
    Column("before", "bits a coordinate before the activation, at ¼ of its root mean square", BITS),
    Column("after", "bits after it, at ¼ of its own root mean square", BITS),
    Column("after_same", "bits after it, at the step of before", BITS),
)
STEPS = (
    Column("layer", "layer"),
    Column("step", "step before the activation, as a share of the root mean square"),
    Column("before", "bits a coordinate before the activation", BITS),
    Column("after_same", "bits after it, at the same absolute step", BITS),
    Column("after", "bits after it, at the same share of its own root mean square", BITS),
)


@dataclass(frozen=True)
class Compress:
    """Entropy-coded bits before and after the activation, ranks and sparsity, against random directions W_1."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.compress",
        chapter="E",
        statement="The activation reduces complexity, by what W_1 turns into its discard region.",
        source="S3",
        definition=(
            "Bits a hidden coordinate takes in a decodable bitstream (quantised, coded one coordinate at a time with one table for "
            "the layer, table and ends counted), before and after the activation, each at a step of a quarter of its own root mean "
            "square; sixteen tokens of each document, none of them first, up to 1024 units. The activation of a gate is measured on "
            "the gate, the product beside it. The same absolute step on both sides is told too, but scale alone would save bits "
            "there (small numbers leave GELU halved), and W_out can undo scale. Effective rank and Hoyer sparsity are told and "
            "decide nothing: a pointwise map of a stream of rank d nearly always raises its rank."
        ),
        control=(
            "random directions in place of W_1's, every unit at the mean and variance it has in the model; the same centred at "
            "zero; random initialisation"
        ),
        rule=(
            f"A layer saves when its activation takes off more than {T.compress_bits} bits a coordinate, and by its orientation when "
            f"that is {T.compress_margin} bits more than under random directions with matched moments, both with their whole interval. "
            f"Supported: both in ≥ {T.sites_most:.0%} of layers. Refuted: ≤ {T.sites_few:.0%} of layers save, or random directions would "
            f"save {T.compress_margin} bits more in ≥ {T.sites_most:.0%}. Qualified otherwise: any such activation saves bits, whatever "
            "was learned."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3

    def experiment(self, bench: "Bench") -> "dict[int, Described]":
        from armillary.probes.filter.bits import described

        return described(bench)

    def conclude(self, evidence: Evidence) -> Finding:
        found: dict[int, Described] = evidence.found[self.claim.id]
        if not found:
            return unmeasured(self.claim, COLUMNS[0], NO_TOKENS)
        layers = list(found.values())
        saved = evidence.site_intervals(_stats(layers, (DECIDING,)), _saved)
        more = evidence.site_intervals(_stats(layers, (DECIDING, "turned")), _more)
        statistic = evidence.across_sites(_stats(layers, (DECIDING,)), _saved, np.mean)
        verdict = _verdict(statistic, saved, more)
        controls = [(key, name) for key, name in ARMS.items() if f"{key} own" in layers[0].bits]
        rows = _rows(found, saved, more)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("bits a coordinate that the activation saves, mean over layers", *statistic, BITS),
            n=layers[0].tokens,
            controls=tuple(
                Control(name, *evidence.across_sites(_stats(layers, (key,)), _saved, np.mean)) for key, name in controls
            ),
            reading=_reading(verdict, rows, layers, statistic[0], more),
            headline=f"The activation saves {statistic[0]:.2g} bits a coordinate; under random directions it would save "
            f"{np.mean([row['saved_turned'] for row in rows]):.2g}",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(rows, saved, [name for key, name in controls], found),
            notes=(f"{layers[0].tokens} tokens were coded in each of {len(layers)} layers",),
            more_tables={
                "orientation": Table.of(ORIENTATION, _arm_rows(found)),
                "steps": Table.of(STEPS, _step_rows(found)),
            },
        )


def _stats(layers: "list[Described]", names: tuple[str, ...]) -> Floats:
    """[layer, group, (coordinates, bits before and after of each name)], groups with text only."""
    made = [
        np.stack([one.count, *(one.bits[f"{name} {side}"] for name in names for side in ("before", "own"))], -1)
        for one in layers
    ]
    stats = np.stack(made)
    return stats[:, stats[0, :, 0] > 0]


def _saved(stats: Floats) -> Floats:
    return np.asarray((stats[..., 1] - stats[..., 2]) / np.maximum(stats[..., 0], 1e-300))


def _more(stats: Floats) -> Floats:
    """Saved by the model less saved under random directions."""
    return np.asarray(_saved(stats) - (stats[..., 3] - stats[..., 4]) / np.maximum(stats[..., 0], 1e-300))


def _verdict(statistic: tuple[float, float, float], saved: Floats, more: Floats) -> Verdict:
    if np.isnan(statistic).any():
        return "undecided"
    saves, oriented = saved[:, 1] > T.compress_bits, more[:, 1] > T.compress_margin
    if (saves & oriented).mean() >= T.sites_most:
        return "supported"
    opposed = more[:, 2] < -T.compress_margin
    return "refuted" if saves.mean() <= T.sites_few or opposed.mean() >= T.sites_most else "qualified"


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _bits(one: "Described", name: str) -> float:
    return float(one.bits[name].sum() / one.count.sum())


def _rows(found: "dict[int, Described]", saved: Floats, more: Floats) -> list[dict[str, Any]]:
    rows = []
    for place, (layer, one) in enumerate(found.items()):
        row: dict[str, Any] = {"layer": f"L{layer}"}
        row |= {"before": _bits(one, f"{DECIDING} before"), "after": _bits(one, f"{DECIDING} own")}
        row |= {"after_same": _bits(one, f"{DECIDING} same")}
        for name, shares in (("saved", saved), ("more", more)):
            row |= {f"{name}{end}": _known(shares[place, i]) for i, end in enumerate(("", "_low", "_high"))}
        for name in ARMS:
            there = f"{name} own" in one.bits
            row[f"saved_{name}"] = _bits(one, f"{name} before") - _bits(one, f"{name} own") if there else None
        row["product"] = _bits(one, "product") if "product" in one.bits else None
        for name, values in (("rank", one.rank), ("hoyer", one.hoyer)):
            row |= {f"{name}_{side}": _known(values.get(side, np.nan)) for side in ("before", "after", "product")}
        row |= {f"entropy_rank_{side}": _known(one.entropy_rank[side]) for side in ("before", "after")}
        rows.append(row)
    return rows


SIDES = {"before": "before", "after": "own", "after_same": "same"}


def _arm_rows(found: "dict[int, Described]") -> list[dict[str, Any]]:
    return [
        {"layer": f"L{layer}", "w_1": told} | {name: _bits(one, f"{key} {side}") for name, side in SIDES.items()}
        for layer, one in found.items()
        for key, told in {DECIDING: "the model's", **ARMS}.items()
        if f"{key} own" in one.bits
    ]


def _step_rows(found: "dict[int, Described]") -> list[dict[str, Any]]:
    from armillary.probes.filter.bits import STEPS as SHARES

    return [
        {"layer": f"L{layer}", "step": share}
        | {name: _bits(one, f"model {share:g} {side}") for name, side in SIDES.items()}
        for layer, one in found.items()
        for share in SHARES
    ]


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else None


def _reading(
    verdict: Verdict, rows: list[dict[str, Any]], layers: "list[Described]", value: float, more: Floats
) -> str:
    told = f"A coordinate takes {_mean(rows, 'before'):.2f} bits before the activation and {_mean(rows, 'after'):.2f} after it: {value:.2f} saved"
    told += f", where random directions at the same means and variances save {_mean(rows, 'saved_turned'):.2f}"
    if verdict != "supported":
        told += _layers_told([row["layer"] for row in rows], more)
    keys = (DECIDING, *ARMS)[:3]
    same = [np.mean([_bits(one, f"{key} before") - _bits(one, f"{key} same") for one in layers]) for key in keys]
    told += f". At one absolute step {same[0]:.2f} bits are saved, {same[1]:.2f} by random directions, {same[2]:.2f} by centred ones"
    product = _mean(rows, "product")
    told += f". The product with the other branch takes {product:.2f}" if product is not None else ""
    ranks = _mean(rows, "rank_before"), _mean(rows, "rank_after")
    if ranks[0] is not None and ranks[1] is not None:
        told += f". Effective rank goes from {ranks[0]:.0f} to {ranks[1]:.0f}"
    return f"{told}; Hoyer sparsity from {_mean(rows, 'hoyer_before'):.2f} to {_mean(rows, 'hoyer_after'):.2f}."


def _layers_told(names: list[str], more: Floats) -> str:
    def chosen(flags: Flags) -> list[str]:
        return [name for name, yes in zip(names, flags, strict=True) if yes]

    helped, opposed = chosen(more[:, 1] > T.compress_margin), chosen(more[:, 2] < -T.compress_margin)
    told = f" (orientation saves {T.compress_margin} more in {name_sites(helped) if helped else 'no layer'}"
    return f"{told}{f' and as much less in {name_sites(opposed)}' if opposed else ''})"


def _quantities(
    rows: list[dict[str, Any]], saved: Floats, controls: list[str], found: "dict[int, Described]"
) -> tuple[Quantity, ...]:
    coords = {"layer": [row["layer"] for row in rows]}

    def column(name: str) -> Floats:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)

    low, high = (None, None) if np.isnan(saved).any() else (saved[:, 1], saved[:, 2])
    arms = {name: column(f"saved_{key}") for key, name in ARMS.items() if name in controls}
    made = [
        Quantity(
            "bits saved by the activation",
            "bits a coordinate before less after, each at a quarter of its own size",
            "bits",
            ("layer",),
            coords,
            saved[:, 0],
            low,
            high,
            arms,
            {"nothing saved: 0": np.zeros(len(rows))},
        ),
        Quantity(
            "bits a coordinate after the activation",
            "in a decodable bitstream",
            "bits",
            ("layer",),
            coords,
            column("after"),
            controls={"before it": column("before"), "after, at the step of before": column("after_same")},
            label="after it",
        ),
    ]
    for name, label in (
        ("rank", "effective rank after the activation"),
        ("hoyer", "Hoyer sparsity after the activation"),
    ):
        values = column(f"{name}_after")
        if not np.isnan(values).any() and not np.isnan(column(f"{name}_before")).any():
            meaning = (
                "participation ratio of the covariance" if name == "rank" else "0 if all are as large, 1 if one is all"
            )
            beside = {"before it": column(f"{name}_before")}
            made.append(Quantity(label, meaning, "", ("layer",), coords, values, controls=beside, label="after it"))
    return tuple(made)
