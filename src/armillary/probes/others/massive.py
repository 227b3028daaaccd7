"""Do a few fixed coordinates carry enormous, nearly constant values, and do heads park attention there?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Interval,
    T,
    undecided,
    weighed,
)
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.others.largest.massive_parts import MassiveResult


@dataclass(frozen=True)
class Massive:
    """The largest coordinates of the stream beside the median one; attention to the first token; edits of both."""

    claim: ClassVar[Claim] = Claim(
        id="others.massive",
        chapter="H",
        statement="A few fixed coordinates carry enormous, nearly constant values at a few tokens; heads park their "
        "attention there, and the model needs them as a bias.",
        source="Sun et al. 2024 (arXiv:2402.17762); Gu et al. 2024 (arXiv:2410.10781)",
        definition=(
            "Per document and state of the stream (before the first block, after each block): the largest magnitude of "
            "a coordinate, over the state's median magnitude. The statistic is that of the median document, at the "
            "state where it is largest (the peak). Sun et al. call an activation massive from a thousand times the "
            "median on, if it also exceeds 100; what 100 means depends on a model's scale, so it is left out here. "
            "Fixed: the share of documents whose largest coordinate at the peak is in the most common dimension. "
            "Constant: the spread (standard deviation over mean) of these values over documents. At a few tokens: the "
            "share of a document's other tokens that reach half of the value in its dimension. A head parks its "
            "attention on the first token if it gives it more than 0.3 on average over queries (Gu et al.; here "
            "queries from the ninth place on). Needed: at the first state with coordinates beyond a hundred times the "
            "median, these are set to zero, to their mean over texts, or as many other coordinates of the same tokens "
            "are set to zero; the cost is in nats per token."
        ),
        control=(
            "random initialisation (all twins); shuffled text; as many other coordinates of the same tokens set to zero"
        ),
        rule=(
            "Five parts, the weakest decides. 'Massive values': supported if the ratio's interval lies above "
            f"{T.massive_ratio:g} and above that of an untrained model; refuted if it lies below "
            f"{T.massive_outlier:g} or below untrained models; qualified in between (outliers). 'Fixed and constant': "
            f"supported if at least {T.sites_most:.0%} of documents agree on the dimension and the spread lies below "
            f"{T.massive_constant:g}; refuted if at most half agree or the spread lies above {T.massive_varies:g}; "
            f"qualified in between. 'At a few tokens': supported if at most {T.sites_few:.0%} of other tokens have it, "
            "refuted if more than half do, qualified in between. "
            f"'Heads park attention': supported if more than {T.heads_many:.0%} of heads do, and "
            f"more than in an untrained model; refuted if at most {T.sites_few:.0%} do, or not more; qualified in "
            "between. 'Needed as a bias': supported if setting the values to zero costs "
            f"{T.massive_cost:g} nats more than setting others to zero, and setting them to their mean costs less than "
            f"{T.massive_cost:g}; qualified if the mean costs more; refuted if zero does not. Without outliers the "
            "second, third and fifth part have nothing to decide. Undecided where an interval spans its limit."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-18",
                "That values stand at a few tokens is decided. A planted model with the same coordinate of 4000 at "
                "every token, which the source does not mean, had been supported.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.plan import arms_of

        # States and patterns in every arm; then the means of the outliers, three edits and the baseline.
        return 2.75 * arms_of(anatomy) + 5

    def experiment(self, bench: "Bench") -> "MassiveResult | None":
        from armillary.probes.grid.head_kinds import kind_scores
        from armillary.probes.instruments.patterns import LENGTH_LEAST
        from armillary.probes.others.largest.massive_parts import MassiveResult
        from armillary.probes.others.largest.massive_places import extremes, intervene

        if not bench.text.windows:
            return None
        by_arm = {arm: extremes(bench.arm(arm)) for arm in (MODEL, *bench.twins, SHUFFLED)}
        return MassiveResult(by_arm, kind_scores(bench, LENGTH_LEAST), intervene(bench, by_arm[MODEL]), bench.scored)

    def conclude(self, evidence: Evidence, result: "MassiveResult | None") -> Finding:
        from armillary.probes.others.largest.massive_parts import massive_lines, massive_parts, massive_table

        if result is None or len(result.extremes[MODEL].document) < 2:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, "The text has fewer than two documents. Give more text.")
        parts = massive_parts(evidence, result)

        def ratio(arm: str) -> Interval:
            return result.ratio(evidence, arm)

        value, peak = ratio(MODEL), result.peak(MODEL)
        state = result.extremes[MODEL].states[peak]
        dimension, _ = result.common(MODEL)
        parked = np.nan if result.heads is None else float(result.sinks(MODEL).mean())
        return Finding(
            claim=self.claim,
            **weighed(parts, more=True),
            statistic=Statistic("largest coordinate over the median magnitude, median document at the peak", *value),
            n=len(result.extremes[MODEL].document),
            controls=(Control(RANDOM, *evidence.over_twins(ratio)), Control(SHUFFLED, *ratio(SHUFFLED))),
            headline=f"The largest coordinate is {say(value[0], '.2g')} times the median magnitude (at {state}, "
            f"dimension {dimension}); {say(parked, '.0%')} of heads park their attention on the first token",
            table=massive_table(result),
            quantities=massive_lines(evidence, result),
        )
