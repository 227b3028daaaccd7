"""Does the activation shorten the description of a layer's stream, and has training a part in it?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.filter.by_layer import RULE
from armillary.probes.filter.compression.bit_tables import (
    BITS,
    CONTROLS,
    bit_lines,
    bit_table,
    expert_bit_table,
    layer_names,
    orientation_table,
    step_table,
)
from armillary.probes.filter.compression.compress_parts import Savings, compress_parts
from armillary.probes.filter.expert_parts import NOTE
from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, T, undecided, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.compression.bit_tables import Coded
    from armillary.probes.filter.compression.bits import CodedLayers
    from armillary.probes.machinery.bench import Bench

COUNTED = (
    "In a mixture a token counts once for every expert that it is routed to. The same number of units of each expert "
    "is coded, with one table, without the router's weight; random directions take the place of each expert's own."
)


@dataclass(frozen=True)
class Compress:
    """Entropy-coded bits before and after the activation, against untrained models and random directions W_1."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.compress",
        chapter="E",
        statement="The activation reduces complexity, by what W_1 has learned to move into its discard region.",
        source="S3",
        question=(
            "How many bits does it take to store the hidden values, before and after the activation? Does the "
            "activation save bits, and because of what the model has learned?"
        ),
        kind="learned",
        definition=(
            "How many bits does it take to store the hidden values, before and after the activation? Bits are "
            "counted per hidden coordinate, in a bitstream that can be decoded. Values are quantised at a step of a "
            "quarter of their own root mean square and coded one coordinate at a time, with one table per layer; the "
            "table and the ends of the stream are counted too. Sixteen tokens of each document (no first ones) and "
            "up to 1024 units are coded.\n"
            "In a gated layer the activation of the gate is measured, and the product is reported as well.\n"
            "Bits at the same absolute step on both sides are reported too. There, scale alone saves bits (GELU "
            "halves small numbers), and W_out can undo scale.\n"
            "Effective rank and Hoyer sparsity are reported but do not decide: a pointwise map of a stream of rank d "
            "nearly always raises its rank."
        ),
        control=(
            "random initialisation (five untrained twins of a small model, two with --quick, in the first, middle "
            "and last layer); random directions in place of those of W_1, every unit at the mean and variance it "
            "has in the model; the same centred at zero"
        ),
        rule=(
            "Three parts, each answered layer by layer; the weakest decides. An answer counts only if the whole "
            "interval lies on one side of the limit.\n"
            "Part 1, the activation saves bits. It holds in a layer if the activation removes more than "
            f"{T.compress_bits} bits per coordinate. Any such activation saves bits, trained or not.\n"
            f"Part 2, training adds to it. It holds in a layer that saves {T.compress_margin} bits more than "
            "untrained models do (upper end, in the nearest layer that was measured there). Large untrained weights "
            "save more, too: the farther inputs reach, the more is cut.\n"
            f"Part 3, what W_1 has learned adds to it. It holds in a layer that saves {T.compress_margin} bits more "
            "than random directions at the same means and variances. S3 counts scaling and translation among what "
            "W_1 learns; this control keeps both, so that only the directions of W_1 differ.\n"
            "Each part, over layers:\n"
            f"{RULE}\n"
            "Undecided otherwise: intervals span the limit, or there are no untrained models."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "What any activation saves, what training adds and what directions add shared one verdict. They are "
                "parts now. Untrained models are several and decide whether anything was learned. A layer whose "
                "interval spans a limit no longer counts against the claim.",
            ),
            RuleChange(
                "2026-11-18",
                "Random directions with matched moments decide; part 3 had only been reported. An untrained model with "
                "its matrices multiplied by five was supported (1.21 bits, random directions 1.21, untrained models "
                "0.31), and so were the built-in GPT with its matrices permuted, and MiniLM, where random directions "
                "save more. Untrained models are five, where three had been.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "2c78bd9d768e", 2),
            Rewording("2026-11-18", "66ab883d2fa0", 2),
            Rewording("2026-11-19", "d5cf7074f339", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # The chapter's shared passes: the model, shuffled text and at most five twins.
        return 7

    def experiment(self, bench: "Bench") -> "CodedLayers":
        from armillary.probes.filter.compression.bits import coded_layers

        return coded_layers(bench)

    def conclude(self, evidence: Evidence, result: "CodedLayers") -> Finding:
        from armillary.probes.filter.activations.hidden import NO_TOKENS

        coded = result.layers
        if not coded:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        savings = Savings.of(evidence, result)
        parts = compress_parts(savings, layer_names(coded))
        mean, tokens = savings.means["model"], next(iter(coded.values())).tokens
        controls = [Control(name, *savings.means[source]) for source, name in CONTROLS.items()]
        if result.twins:
            controls.append(Control(RANDOM, *savings.twins))
        return Finding(
            claim=self.claim,
            **weighed(parts, " ".join(part.reading for part in parts) + _more(coded)),
            statistic=Statistic("bits per coordinate that the activation saves, mean over layers", *mean, BITS),
            n=tokens,
            controls=tuple(controls),
            headline=f"The activation saves {say(mean[0], '.2g')} bits per coordinate; in untrained models "
            f"{say(savings.twins[0], '.2g')}, with random directions {say(savings.means['turned'][0], '.2g')}",
            table=bit_table(coded, savings.saved, savings.more, savings.untrained),
            quantities=bit_lines(coded, savings.saved, savings.untrained),
            notes=(
                f"{tokens} tokens were coded in each of {len(coded)} layers, and in some layers of "
                f"{len(result.twins)} untrained models",
                *([NOTE, COUNTED] if result.experts else []),
            ),
            more_tables={"orientation": orientation_table(coded), "steps": step_table(coded)}
            | ({"experts": expert_bit_table(evidence, result.experts)} if result.experts else {}),
        )


def _more(coded: "Coded") -> str:
    """What does not decide: bits on either side, at the same step, of the product; ranks and sparsity."""
    layers = list(coded.values())

    def average(values: Iterable[float], spec: str = ".2f") -> str:
        known = [value for value in values if not np.isnan(value)]
        return say(float(np.mean(known)) if known else np.nan, spec)

    before, after = (average(layer.mean_bits("model", side) for layer in layers) for side in ("before", "own"))
    same = [average(layer.saved(source, "same") for layer in layers) for source in ("model", "turned", "unshifted")]
    text = (
        f" A coordinate takes {before} bits before the activation and {after} after it. With the same absolute "
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
