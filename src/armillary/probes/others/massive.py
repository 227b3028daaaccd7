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
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

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
        question=(
            "Do a few coordinates have huge values that hardly change from text to text? And does the model need them?"
        ),
        definition=(
            "How large is the largest coordinate of the stream compared with a typical one? For each document and "
            "state of the stream (before the first block, after each block), the largest magnitude of a coordinate "
            "is divided by the state's median magnitude.\n"
            "The statistic is that ratio in the median document, at the state where it is largest (the peak).\n"
            "Sun et al. call an activation massive if it is at least a thousand times the median and exceeds 100. "
            "What 100 means depends on a model's scale, so it is left out here.\n"
            "Fixed: the share of documents whose largest coordinate at the peak is in the most common dimension.\n"
            "Constant: the spread (standard deviation over mean) of the value in that dimension, over those "
            "documents.\n"
            "At a few tokens: the share of a document's other tokens that reach half of the value in its dimension.\n"
            f"Parked attention: a head gives the first token more than {T.sink_attention:g} of its attention on "
            "average over queries (Gu et al.; here queries from the ninth place on).\n"
            "Needed: outliers are coordinates of at least a hundred times the median magnitude. At the first state "
            "where the median document has one, all of them are set to zero, or to their mean over texts; for "
            "comparison, as many other coordinates of the same tokens are set to zero. The cost is in nats per token."
        ),
        control=(
            "random initialisation (all twins); shuffled text; as many other coordinates of the same tokens set to zero"
        ),
        rule=(
            "Five parts; the weakest decides. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, massive values.\n"
            f"Supported if the largest coordinate is more than {T.massive_ratio:.0f} times the median magnitude, and "
            "more than in an untrained model.\n"
            f"Refuted if it is less than {T.massive_outlier:.0f} times, or less than untrained models reach.\n"
            f"Qualified if it is between {T.massive_outlier:.0f} and {T.massive_ratio:.0f} times (outliers), and more "
            "than in an untrained model.\n"
            "Part 2, fixed and constant.\n"
            f"Supported if at least {T.sites_most:.0%} of documents agree on the dimension, and the spread lies below "
            f"{T.massive_constant}.\n"
            f"Refuted if at most half agree, or the spread lies above {T.massive_varies}.\n"
            f"Qualified in between, and also where the interval of the share that agrees spans {T.sites_most:.0%}.\n"
            "Part 3, at a few tokens.\n"
            f"Supported if at most {T.sites_few:.0%} of other tokens reach half of the value.\n"
            "Refuted if more than half do.\n"
            "Qualified in between.\n"
            "Part 4, heads park attention on the first token.\n"
            f"Supported if more than {T.heads_many:.0%} of heads do, and more than in an untrained model.\n"
            f"Refuted if at most {T.sites_few:.0%} do, or fewer than untrained models reach.\n"
            "Qualified in between, if more do than in an untrained model.\n"
            "Undecided if texts are too short to measure attention.\n"
            "Part 5, needed as a bias.\n"
            f"Supported if setting the values to zero costs {T.massive_cost} nats per token more than setting others "
            f"to zero, and setting them to their mean costs less than {T.massive_cost}.\n"
            f"Qualified if zero costs that much more, but the mean also costs more than {T.massive_cost}.\n"
            f"Refuted if zero costs less than {T.massive_cost} nats per token more than setting others to zero.\n"
            "Undecided if the model predicts no next token.\n"
            "Without outliers, parts 2, 3 and 5 have nothing to decide and are undecided. Without untrained models, "
            "parts 1 and 4 are refuted or undecided. Otherwise every part is undecided where an interval spans its "
            "limit."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-18",
                "That values stand at a few tokens is decided. A planted model with the same coordinate of 4000 at "
                "every token, which the source does not mean, had been supported.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "c393f312ec56", 1),
            Rewording("2026-11-18", "623784ed74b8", 1),
            Rewording("2026-11-19", "9d2797d5016f", 1),
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
