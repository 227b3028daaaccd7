"""Does the activation shorten the description of a layer's stream, and more than under a random W_1?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.filter.bit_tables import (
    BITS,
    CONTROLS,
    bit_lines,
    bit_table,
    layer_names,
    orientation_table,
    step_table,
)
from armillary.probes.machinery import AnyInstrument, Evidence, Floats, T, missing_interval, name_sites, undecided
from armillary.probes.machinery.intervals import Interval
from armillary.results import Claim, Control, Finding, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.bit_tables import Coded
    from armillary.probes.filter.bits import CodedLayer
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class Compress:
    """Entropy-coded bits before and after the activation, ranks and sparsity, against random directions W_1."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.compress",
        chapter="E",
        statement="The activation reduces complexity, by what W_1 moves into its discard region.",
        source="S3",
        definition=(
            "Bits per hidden coordinate in a decodable bitstream, before and after the activation. Values are "
            "quantised at a step of a quarter of their own root mean square and coded one coordinate at a time, with "
            "one table per layer; the table and the ends of the stream are counted. Sixteen tokens of each document, "
            "first ones left out, up to 1024 units. In a gated layer the activation of the gate is measured, and the "
            "product is reported as well. Bits at the same absolute step on both sides are reported too; there scale "
            "alone saves bits (small numbers leave GELU halved), and W_out can undo scale. Effective rank and Hoyer "
            "sparsity are reported but do not decide: a pointwise map of a stream of rank d nearly always raises its "
            "rank."
        ),
        control=(
            "random directions in place of those of W_1, every unit at the mean and variance it has in the model; the "
            "same centred at zero; random initialisation"
        ),
        rule=(
            f"A layer saves if its activation removes more than {T.compress_bits} bits per coordinate. Its orientation "
            f"helps if that is {T.compress_margin} bits more than random directions with matched moments save. Both "
            f"must hold for the whole interval. Supported if both hold in at least {T.sites_most:.0%} of layers. "
            f"Refuted if at most {T.sites_few:.0%} of layers save, or if random directions would save "
            f"{T.compress_margin} bits more in at least {T.sites_most:.0%}. Qualified otherwise: any such activation "
            "saves bits, trained or not. Undecided if there are too few documents for an interval."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3

    def experiment(self, bench: "Bench") -> "Coded":
        from armillary.probes.filter.bits import coded_layers

        return coded_layers(bench)

    def conclude(self, evidence: Evidence, result: "Coded") -> Finding:
        from armillary.probes.filter.hidden import NO_TOKENS

        if not result:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        layers = list(result.values())
        saved = evidence.intervals(_sums(layers, "model"), _saved)
        more = evidence.intervals(_sums(layers, "model", "turned"), lambda s: _saved(s) - _saved(s[..., [0, 3, 4]]))
        sources = ["model", *(source for source in CONTROLS if f"{source} own" in layers[0].bits)]
        means = {s: evidence.interval(_sums(layers, s), lambda sums: _saved(sums).mean(-1)) for s in sources}
        verdict = _verdict(means["model"], saved, more)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*means["model"]) if verdict == "undecided" else None,
            statistic=Statistic(
                "bits per coordinate that the activation saves, mean over layers", *means["model"], BITS
            ),
            n=layers[0].tokens,
            controls=tuple(Control(CONTROLS[source], *means[source]) for source in sources[1:]),
            reading=_reading(verdict, result, more),
            headline=f"The activation saves {say(means['model'][0], '.2g')} bits per coordinate; with random "
            f"directions it would save {say(means['turned'][0], '.2g')}",
            table=bit_table(result, saved, more),
            quantities=bit_lines(result, saved, sources[1:]),
            notes=(f"{layers[0].tokens} tokens were coded in each of {len(layers)} layers",),
            more_tables={"orientation": orientation_table(result, sources), "steps": step_table(result)},
        )


def _sums(layers: "list[CodedLayer]", *sources: str) -> Floats:
    """[group, layer, (coordinates, bits before and after of each source)]."""
    sides = [f"{source} {side}" for source in sources for side in ("before", "own")]
    return np.stack([np.stack([layer.count, *(layer.bits[name] for name in sides)], -1) for layer in layers], 1)


def _saved(sums: Floats) -> Floats:
    return np.asarray((sums[..., 1] - sums[..., 2]) / np.maximum(sums[..., 0], 1e-300))


def _verdict(statistic: Interval, saved: Floats, more: Floats) -> Verdict:
    if np.isnan(statistic).any():
        return "undecided"
    saves, helps = saved[:, 1] > T.compress_bits, more[:, 1] > T.compress_margin
    if (saves & helps).mean() >= T.sites_most:
        return "supported"
    opposed = more[:, 2] < -T.compress_margin
    return "refuted" if saves.mean() <= T.sites_few or opposed.mean() >= T.sites_most else "qualified"


def _reading(verdict: Verdict, coded: "Coded", more: Floats) -> str:
    layers = list(coded.values())

    def average(values: Iterable[float], spec: str = ".2f") -> str:
        known = [value for value in values if not np.isnan(value)]
        return say(float(np.mean(known)) if known else np.nan, spec)

    text = (
        f"The activation saves {average(layer.saved('model') for layer in layers)} bits per coordinate; random "
        f"directions with the same means and variances save {average(layer.saved('turned') for layer in layers)}"
    )
    if verdict != "supported":
        helped, opposed = (
            name_sites([name for name, flag in zip(layer_names(coded), flags, strict=True) if flag])
            for flags in (more[:, 1] > T.compress_margin, more[:, 2] < -T.compress_margin)
        )
        text += f" (the model's orientation saves {T.compress_margin} bits more in {helped or 'no layer'}"
        text += f" and {T.compress_margin} less in {opposed})" if opposed else ")"
    before, after = (average(layer.mean_bits("model", side) for layer in layers) for side in ("before", "own"))
    same = [average(layer.saved(source, "same") for layer in layers) for source in ("model", "turned", "unshifted")]
    text += (
        f". A coordinate takes {before} bits before the activation and {after} after it. With the same absolute "
        f"step on both sides the model saves {same[0]} bits, random directions {same[1]}, centred ones {same[2]}"
    )
    if "product own" in layers[0].bits:
        text += (
            f". The product with the other branch takes {average(c.mean_bits('product', 'own') for c in layers)} bits"
        )
    ranks, sparsity = (
        [average((layer.shape(name, side) for layer in layers), spec) for side in ("before", "after")]
        for name, spec in (("rank", ".0f"), ("hoyer", ".2f"))
    )
    return (
        f"{text}. The effective rank goes from {ranks[0]} to {ranks[1]}, Hoyer sparsity from {sparsity[0]} to "
        f"{sparsity[1]}."
    )
