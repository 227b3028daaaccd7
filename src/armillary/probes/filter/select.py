"""Are the coordinates that a feed-forward layer discards irrelevant, and are they chosen in context?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.filter.by_layer import RULE
from armillary.probes.filter.expert_parts import NOTE
from armillary.probes.filter.selection.select_parts import Skills, context_part, leak_part, read_part, through_part
from armillary.probes.machinery import (
    RANDOM,
    AnyInstrument,
    Evidence,
    T,
    cells,
    interval_cells,
    table,
    undecided,
)
from armillary.probes.machinery.verdicts import FIVE_TWINS, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Table, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.selection.ablation import AblationCosts
    from armillary.probes.filter.selection.decoding import Decoded
    from armillary.probes.machinery.bench import Bench

STATISTIC = "share of the next token's embedding decoded from kept less that from discarded values, mean over layers"


@dataclass(frozen=True)
class Select:
    """What discarded values say, what they would do if let through, and whether they are chosen in context."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.select",
        chapter="E",
        statement="What is discarded is irrelevant in this context.",
        source="S3",
        question=(
            "An activation shrinks hidden values below zero and keeps those above. Are the values that it shrinks "
            "worth less for the next word than those that it keeps, and does it choose them for every word "
            "separately?"
        ),
        kind="learned",
        definition=(
            "Is what the activation discards worth less than what it keeps? Discarded coordinates are those below "
            "zero before the activation (of the gate, where there is one). Three things are measured.\n"
            "(1) Reading: how much of the next token's embedding a linear fit decodes from the discarded values, and "
            "from the kept ones, before the activation. It is a share of variance, fitted on one half of the "
            "documents and tested on the other, in the first, middle and last layer. Both sides have the same number "
            "of coordinates of each token, the largest ones.\n"
            "(2) Letting through: what it costs to let the discarded values through, with slope 1 in place of the "
            "activation below zero, in the first, middle and last layer, one at a time (also slopes 0.1 to 1 in all "
            "layers at once). For comparison, the same changes are made at as many random coordinates of each "
            "token.\n"
            "(3) Context: what it costs to zero as many units, the same ones for every token, compared with zeroing "
            "the discarded ones. Is the choice made in context?\n"
            "Also reported, as a part of our own: what it costs to zero the discarded coordinates after the "
            "activation. This measures only what the activation has left of them (after ReLU: nothing)."
        ),
        control=(
            "the kept values; random initialisation (five untrained twins of a small model, two with --quick, "
            "middle layer); the same changes at random coordinates; as many units, the same for every token: those "
            "discarded most often"
        ),
        rule=(
            "Three parts; the weakest decides. Parts 1 and 2 are answered layer by layer. An answer counts only if "
            "the whole interval lies on one side of the limit.\n"
            f"Part 1, reading. It holds in a layer if the discarded values decode less than {T.select_half:.0%} of "
            "what the kept ones do, and the difference exceeds that of untrained models (upper end, middle layer). "
            "Only layers in which the kept values decode anything count, but the mean is over all measured layers.\n"
            "Part 2, letting through. It holds in a layer if letting the discarded values through costs less than "
            f"{T.select_half:.0%} of what the same changes cost elsewhere. Only layers in which the changes elsewhere "
            f"cost more than {T.select_cost} nats per token count.\n"
            "Parts 1 and 2, over layers:\n"
            f"{RULE}\n"
            "Part 3, context.\n"
            f"Supported if zeroing the same units for every token costs {T.select_cost} nats per token more than "
            "zeroing the discarded ones.\n"
            "Refuted if it does not.\n"
            f"Undecided if zeroing as many random units costs at most {T.select_cost} nats per token: then no choice "
            "can show.\n"
            "Undecided otherwise: intervals span a limit; no layer counts in part 1 or 2; part 1 has no untrained "
            "models; or the model has no next-token loss."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The rule zeroed what the activation had discarded already, so it measured GELU's leak; and its ratio "
                "over all layers was that of the first. Relevance is now measured before the activation, by decoding "
                "and by letting the values through, layer by layer. The former measure is a part of our own.",
            ),
            FIVE_TWINS,
        ),
        rewordings=(
            Rewording("2026-11-18", "c3eec0bbff79", 2),
            Rewording("2026-11-18", "29effd8f0b53", 2),
            Rewording("2026-11-19", "ad8213ba983e", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.filter.selection.ablation import LAYERS, SLOPES, ZEROED
        from armillary.probes.machinery.layers import spread_layers

        # The chapter's seven arms, six to decode, the unedited model, all layers at once, and single layers.
        every = len(ZEROED) + 1 + 2 * len(SLOPES)
        return 7 + 6 + 1 + every + 4 * len(spread_layers(anatomy, LAYERS))

    def experiment(self, bench: "Bench") -> "tuple[AblationCosts, Decoded] | None":
        from armillary.probes.filter.selection.ablation import ablation_costs
        from armillary.probes.filter.selection.decoding import decode

        if not bench.scored or not any(len(window.ids) > 2 for window in bench.text.windows):
            return None
        return ablation_costs(bench), decode(bench)

    def conclude(self, evidence: Evidence, result: "tuple[AblationCosts, Decoded] | None") -> Finding:
        from armillary.probes.filter.activations.hidden import NO_TOKENS
        from armillary.probes.filter.selection.ablation import cost_lines, cost_table, slope_table
        from armillary.probes.filter.selection.decoding import NEXT, SAME

        if result is None and evidence.anatomy.causal and evidence.anatomy.W_U is not None:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        if result is None:
            reading = "This model has no next-token loss, so an edit has no cost. Load a causal language model."
            return undecided(self.claim, Why.NOT_APPLICABLE, reading)
        costs, decoded = result
        skills, own = (Skills.of(evidence, decoded, target) for target in (NEXT, SAME))
        parts = (read_part(skills, own), through_part(costs), context_part(costs), leak_part(costs))
        from_kept, from_discarded = (say(value, ".1%") for value in skills.skill[:, :, 0].mean(0))
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic(STATISTIC, *skills.mean_difference),
            n=decoded.tokens,
            controls=(
                *([Control(RANDOM, *skills.untrained)] if decoded.twins else []),
                Control("the token itself in place of the next", *own.mean_difference),
            ),
            headline=f"The discarded values decode {from_discarded} of the next token's embedding, as many kept values "
            f"decode {from_kept}",
            table=cost_table(costs),
            quantities=cost_lines(costs),
            notes=(
                f"{costs.trials.documents} documents; {len(decoded.twins)} untrained models",
                *([NOTE] if decoded.experts else []),
            ),
            more_tables={"decoded": _decoded_table(skills, own, decoded), "slopes": slope_table(costs)}
            | _expert_tables(evidence, costs, decoded),
        )


def _expert_tables(evidence: Evidence, costs: "AblationCosts", decoded: "Decoded") -> dict[str, Table]:
    """What every expert keeps and discards says of the next token; and what letting through costs in some of them."""
    from armillary.probes.filter.selection.ablation import expert_cost_table

    if not decoded.experts:
        return {}
    skill = np.full((len(decoded.experts), 2, 3), np.nan)
    known = [(row, sums) for row, (_, sums) in enumerate(decoded.experts.values()) if sums is not None]
    if known:
        skill[[row for row, _ in known]] = evidence.intervals(np.stack([sums for _, sums in known], 1))
    experts = table(
        cells("layer", "layer", [f"L{layer}" for layer, _ in decoded.experts]),
        cells("expert", "the expert", [name for _, name in decoded.experts]),
        cells("tokens", "tokens that it gets and that have a next one", [n for n, _ in decoded.experts.values()]),
        interval_cells("next_kept", "share of the next token's embedding decoded from kept values", skill[:, 0]),
        interval_cells("next_discarded", "the same from as many discarded values", skill[:, 1]),
    )
    return {"experts": experts} | ({"expert costs": expert_cost_table(costs)} if costs.experts else {})


def _decoded_table(skills: Skills, own: Skills, decoded: "Decoded") -> Table:
    return table(
        cells("layer", "layer", skills.names),
        cells("coordinates", "coordinates of a token on each side, mean over tokens", decoded.coordinates),
        interval_cells("next_kept", "share of the next token's embedding decoded from kept values", skills.skill[:, 0]),
        interval_cells("next_discarded", "the same from as many discarded values", skills.skill[:, 1]),
        interval_cells("next_less", "next_kept − next_discarded", skills.difference),
        interval_cells("own_kept", "share of the token's own embedding decoded from kept values", own.skill[:, 0]),
        interval_cells("own_discarded", "the same from as many discarded values", own.skill[:, 1]),
    )
