"""Are the coordinates that a feed-forward layer discards irrelevant, and are they chosen in context?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from armillary.probes.machinery import AnyInstrument, Evidence, T, undecided
from armillary.results import Claim, Control, Finding, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.filter.ablation import AblationCosts
    from armillary.probes.machinery.bench import Bench, Trials


class Decision(NamedTuple):
    verdict: Verdict
    why: Why | None
    reason: str
    """For the reading: what the costs amount to."""


@dataclass(frozen=True)
class Select:
    """Loss without the discarded coordinates, against as many at random and the same units for every token."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.select",
        chapter="E",
        statement="What is discarded is irrelevant in this context.",
        source="S3",
        definition=(
            "Change of the next-token loss when the coordinates below zero before the activation (of the gate, where "
            "there is one) are set to zero before W_out, in all layers at once. Also reported: the same for "
            "coordinates below 1 % of their token's peak; for single layers; and with the unit's mean over the tokens "
            "that discard it, or another token's value, in place of zero. After ReLU the values below zero are zero "
            "already, so zeroing them changes nothing, by construction; what remains to measure there is whether the "
            "choice depends on the token."
        ),
        control=(
            "as many coordinates of each token drawn at random; as many units on average, the same for every token: "
            "those discarded most often (random initialisation has no loss to lose)"
        ),
        rule=(
            "All layers at once, coordinates below zero; a condition must hold for the whole interval. The discarded "
            f"coordinates are irrelevant if zeroing them costs at most {T.select_cost} nats per token. They are chosen "
            f"in context if zeroing the same units for every token costs {T.select_cost} more. Supported if both hold "
            f"and zeroing random ones also costs {T.select_cost} more. Qualified if all of this holds except the "
            f"choice in context. Refuted if they cost more than {T.select_cost} and at least {T.select_half:.0%} of "
            f"what random ones cost. Qualified if they cost more than {T.select_cost}, but less than "
            f"{T.select_half:.0%} of that. Undecided if random ones cost at most {T.select_cost}, if an interval spans "
            "a limit or is missing, or if the model has no next-token loss. Documents are read until the rule decides."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.filter.ablation import LAYERS, REPLACED, ZEROED
        from armillary.probes.machinery.depth import spread_layers

        # The chapter's three arms, the unedited model, both definitions in all layers and in some.
        return 3 + 1 + 2 * (len(ZEROED) + len(REPLACED)) + 2 * len(ZEROED) * len(spread_layers(anatomy, LAYERS))

    def experiment(self, bench: "Bench") -> "AblationCosts | None":
        from armillary.probes.filter.ablation import ablation_costs

        return ablation_costs(bench, lambda trials: decide(trials).why is None) if bench.scored else None

    def conclude(self, evidence: Evidence, result: "AblationCosts | None") -> Finding:
        from armillary.probes.filter.ablation import ALL, cost_lines, cost_table
        from armillary.probes.filter.hidden import BELOW, DISCARDS, NO_TOKENS

        if result is None:
            reading = "This model has no next-token loss, so an edit has no cost. Load a causal language model."
            return undecided(self.claim, Why.NOT_APPLICABLE, reading)
        if not result.trials.documents:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, NO_TOKENS)
        decision = decide(result.trials)
        zero, random, fixed = (result.cost(ALL, BELOW, how) for how in ("zero", "random", "fixed"))
        costs = [say(cost[0], ".2g") for cost in (zero, random, fixed)]
        return Finding(
            claim=self.claim,
            verdict=decision.verdict,
            why=decision.why,
            statistic=Statistic("loss when all coordinates below zero are zeroed, all layers", *zero, "nats/token"),
            n=int(result.trials.count.sum()),
            controls=(Control("as many at random", *random), Control("the same units for every token", *fixed)),
            reading=_reading(result, decision.reason),
            headline=f"Zeroing the {say(result.shares[ALL, BELOW], '.0%')} below zero costs {costs[0]} nats per token, "
            f"as many at random {costs[1]}, fixed units {costs[2]}",
            table=cost_table(result),
            quantities=tuple(cost_lines(result, definition) for definition in DISCARDS),
            notes=(
                f"{result.trials.documents} documents were read; intervals are taken at "
                f"{100 * result.trials.level:.3g} %, so that up to three looks count as one",
            ),
        )


def decide(trials: "Trials") -> Decision:
    """The rule, on the trials with all layers at once."""
    from armillary.probes.filter.ablation import ALL, cost_ratio, trial_name
    from armillary.probes.filter.hidden import BELOW

    zero, random, fixed = (trial_name(ALL, BELOW, how) for how in ("zero", "random", "fixed"))
    cost, chance = trials.cost(zero), trials.cost(random)
    context, luck = trials.beside(fixed, zero), trials.beside(random, zero)
    if np.isnan([*cost, *chance]).any():
        return Decision("undecided", Why.NO_INTERVAL, "there are too few documents for an interval")
    if chance[2] <= T.select_cost:
        return Decision("undecided", Why.UNDEFINED, "the loss hardly changes whichever coordinates are removed")
    above, under = (1 + trials.names.index(name) for name in (zero, random))
    ratio = trials.interval(lambda loss, count: cost_ratio(loss[:, above] - loss[:, 0], loss[:, under] - loss[:, 0]))
    if cost[1] > T.select_cost and ratio[1] >= T.select_half:
        return Decision("refuted", None, f"they cost {say(ratio[0], '.0%')} of what random ones cost")
    if cost[1] > T.select_cost and ratio[2] < T.select_half:
        return Decision("qualified", None, f"not irrelevant, but {say(ratio[0], '.1%')} of the random cost")
    if cost[2] <= T.select_cost and luck[1] > T.select_cost:
        if context[1] > T.select_cost:
            return Decision("supported", None, "irrelevant, and chosen in context")
        if context[2] <= T.select_cost:
            return Decision("qualified", None, "irrelevant, but not chosen in context: fixed units do as well")
    return Decision("undecided", Why.SPANS_LIMIT, f"an interval spans {T.select_cost} nats or half of the random cost")


def _reading(result: "AblationCosts", reason: str) -> str:
    from armillary.probes.filter.ablation import ALL
    from armillary.probes.filter.hidden import BELOW, QUIET

    def cost(how: str, definition: str = BELOW, place: str = ALL) -> float:
        return result.cost(place, definition, how)[0]

    share, quiet = (say(result.shares[ALL, definition], ".0%") for definition in (BELOW, QUIET))
    text = f"Zeroing the {share} of coordinates below zero costs {say(cost('zero'), '.2g')} nats per token"
    if result.exact:
        text += " (exactly 0 by construction: the activation has zeroed them already)"
    text += (
        f"; as many at random: {say(cost('random'), '.2g')}; the same units for every token: "
        f"{say(cost('fixed'), '.2g')}. Conclusion: {reason}. With each unit's mean in place of zero the cost is "
        f"{say(cost('mean'), '.2g')}"
    )
    if cost("zero") > T.select_cost and cost("mean") < cost("zero"):
        text += f", so a constant explains {say(1 - max(cost('mean'), 0) / cost('zero'), '.0%')} of the cost"
    single = [place for place in result.places if place != ALL]
    worst = max(single, key=lambda place: cost("zero", place=place))
    return (
        f"{text}; with another token's value it is {say(cost('resample'), '.2g')}. Of single layers {worst} costs most "
        f"({say(cost('zero', place=worst), '.2g')}). Zeroing the {quiet} below 1% of the peak costs "
        f"{say(cost('zero', QUIET), '.2g')} (as many at random: {say(cost('random', QUIET), '.2g')})."
    )
