"""Does a head come to specialise because gradients of a phenomenon's errors flow to it?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    AnyInstrument,
    Evidence,
    Interval,
    T,
    above,
    missing_interval,
    name_sites,
    undecided,
    weighed,
)
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.checkpoints.emergence import Emergence
    from armillary.probes.machinery.bench import Bench

# Passes over the evaluation text per checkpoint: patterns of text and copies, then each set of tokens backwards, on all
# of the survey's text.
PASSES = 22


@dataclass(frozen=True)
class HeadEmergence:
    """Shares of the loss gradient by head at kept checkpoints, against roles then and at the next checkpoint."""

    claim: ClassVar[Claim] = Claim(
        id="heads.emerge",
        chapter="F",
        statement="Gradients make heads specialise: errors of one kind update the slices of the head that comes to "
        "resolve them.",
        source="S3",
        question=(
            "During training, do the heads that get more of the gradient for a kind of error become those that resolve "
            "it?"
        ),
        definition=(
            "Do the heads that get more of the gradient for a kind of error become those that resolve it? The kept "
            "checkpoints of one training run are compared.\n"
            "Phenomena are errors that a role of heads resolves, at tokens that can be marked. Marked tokens are "
            "compared with as many other tokens.\n"
            "Induction: the second copy of random tokens that are repeated once, compared with other random tokens "
            "at the same places. The role is attention to what followed a token's first occurrence.\n"
            "Same word: words that have occurred in their window before, compared with the same words where they "
            "have not. The role is attention to the same word.\n"
            "Previous token: pieces inside a word that another piece follows, compared with pieces that end a word. "
            "The role is attention to the token before.\n"
            "A head's share of the gradient is |∂L/∂W|² over its own slices of W_Q, W_K and W_V (of W_Q alone where "
            "heads share the others), over the sum of its layer. L is the loss summed over the tokens of a set. Its "
            "excess is its share on marked tokens minus that on the others.\n"
            "The statistic is the rank correlation, over all heads, of the excess with how much of the role the head "
            "gains until the next checkpoint. The layer's mean is subtracted from both, and the share on other "
            "tokens is taken out (partial correlation). It is averaged over the phenomena and checkpoints at which "
            f"some head gains {T.emerge_gain} of its attention more than its layer. The second part uses the role "
            "that a head already has in place of the gain, also to choose checkpoints. Intervals are bootstraps over "
            "heads."
        ),
        control="gradients of a layer's heads exchanged; the share on other tokens",
        rule=(
            "Two parts, by the same rule; the weaker decides. 'Next': the excess predicts the gain until the next "
            "checkpoint. 'Now': the excess goes with the role that the head already has.\n"
            f"Supported if the rank correlation lies above {T.emerge_rho} with its whole interval, is larger than "
            "97.5 % of those with heads exchanged, and is larger than that of the share on other tokens, with the "
            "whole interval of the difference.\n"
            f"Qualified if all this holds, but the correlation within a single phenomenon lies below {T.emerge_rho} "
            "with its whole interval.\n"
            f"Refuted if the interval lies below {T.emerge_rho}, or that of the difference below 0.\n"
            "Undecided if an interval spans its limit, if exchanged heads reach the correlation, or if no role "
            "emerges. Also undecided without three checkpoints or a next-token loss, or with one head per layer or "
            "fewer than eight heads.\n"
            "There are no untrained twins: they have no next checkpoint. A gain is what training added since the "
            "checkpoint before, so each checkpoint is the less trained model that the next one is compared with. A "
            "role that comes from initialisation, or from depth, is not a gain.\n"
            "A third part is ours and decides nothing: the first part again, with the role that the head has at the "
            f"time taken out of the correlation as well. It is supported above {T.emerge_rho} and refuted below."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-18",
                "The rule says why a claim about training has no untrained twins. Nothing is measured or decided "
                "otherwise.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "4ed67ffa99af", 1),
            Rewording("2026-11-18", "7005e591bd9f", 1),
            Rewording("2026-11-18", "3f8779697199", 1),
            Rewording("2026-11-19", "9f7fa2560690", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()
    needs_documents: ClassVar[bool] = False

    def passes(self, anatomy: "Anatomy") -> float:
        if anatomy.checkpoints is None or not anatomy.causal or anatomy.W_U is None or anatomy.n_heads < 2:
            return 0.0
        return float(PASSES * len(anatomy.checkpoints.each))

    def experiment(self, bench: "Bench") -> "Emergence | None":
        from armillary.probes.grid.checkpoints.emergence import measure_emergence, shipped

        if not bench.scored or bench.anatomy.n_heads < 2:
            return None
        if bench.anatomy.checkpoints is None:
            return shipped(bench.anatomy)
        text = bench.text if bench.quick else bench.corpus
        return measure_emergence(bench.anatomy, text, bench.seed, bench.tick)

    def conclude(self, evidence: Evidence, result: "Emergence | None") -> Finding:
        from armillary.probes.grid.checkpoints import emerge_views as views
        from armillary.probes.grid.checkpoints.emerge_ranks import (
            NEXT,
            NOW,
            OTHERS,
            beyond_others,
            cells,
            correlation,
            exchanged,
        )

        missing = self._missing(evidence, result)
        if result is None or missing is not None:
            return undecided(self.claim, *(missing or (Why.UNDEFINED, "")))
        seed, layers = evidence.seed, result.roles.shape[2]
        ranked = {when: cells(result, when) for when in (NEXT, NOW)}
        whole = {when: correlation(each, seed) for when, each in ranked.items()}
        null = {when: exchanged(each, layers, seed) for when, each in ranked.items()}
        parts = []
        for when in (NEXT, NOW):
            apart = {n: correlation([c for c in ranked[when] if c.phenomenon == n], seed) for n in result.names}
            others = correlation(ranked[when], seed, OTHERS, ())
            beyond = beyond_others(ranked[when], seed)
            parts.append(_part(when, whole[when], null[when], others, beyond, apart))
        parts.append(views.beyond_role(ranked[NEXT], seed))
        return Finding(
            claim=self.claim,
            **weighed(parts, " ".join([*(part.reading for part in parts), views.story(result), *result.damaged])),
            statistic=Statistic(
                "rank correlation of a head's excess share of the gradient with its gain until the next checkpoint",
                *whole[NEXT],
            ),
            n=len(result.steps),
            controls=(
                Control("heads of a layer exchanged", *null[NEXT]),
                Control("share on other tokens instead", *correlation(ranked[NEXT], seed, OTHERS, ())),
            ),
            headline=views.headline(whole[NEXT], whole[NOW]),
            table=views.table_of(result, ranked),
            quantities=views.quantities(result, ranked, null[NEXT]),
            notes=views.notes(evidence.anatomy, result, ranked, seed),
            more_tables={"heads": views.head_rows(result)},
            of_text=not result.making,
        )

    def _missing(self, evidence: Evidence, result: "Emergence | None") -> tuple[Why, str] | None:
        """Why nothing can be measured, and what to give."""
        anatomy = evidence.anatomy
        if not anatomy.causal or anatomy.W_U is None:
            return Why.NOT_APPLICABLE, "This model predicts no next token, so no error sends a gradient to its heads."
        if anatomy.n_heads < 2:
            return Why.NOT_APPLICABLE, "A layer of this model has one head, so heads have no neighbour to differ from."
        if result is None:
            reading = (
                "How roles come about is seen over checkpoints of one training run, and this is one model. Give the "
                "folder of a run: `armillary survey DIR --steps`, with steps/000400/ (armillary lab train) or "
                "checkpoint-400/ (Hugging Face's Trainer) inside."
            )
            return Why.NO_CHECKPOINTS, reading
        if len(result.steps) < 3:
            return Why.NO_CHECKPOINTS, f"{len(result.steps)} checkpoints could be read. {' '.join(result.damaged)}"
        if not result.counts:
            return Why.TOO_LITTLE_TEXT, "The text has too few tokens of any phenomenon. Give more text."
        return None


def _part(
    when: str, whole: Interval, null: Interval, others: Interval, beyond: Interval, apart: dict[str, Interval]
) -> Part:
    predicted = "what it gains of the role until the next checkpoint" if when == "next" else "the role that it has"
    statistic = Statistic(f"partial rank correlation, {when}", *whole)
    if np.isnan(whole[0]):
        text = f"No role emerges: at no checkpoint is a head {T.emerge_gain} above its layer ({when})."
        return Part(when, "undecided", text, statistic, why=Why.UNDEFINED)
    verdict = _verdict(whole, null, beyond)
    weak = [name for name, ends in apart.items() if above(ends, T.emerge_rho) is False]
    strong = [name for name, ends in apart.items() if not np.isnan(ends[0]) and name not in weak]
    verdict = "qualified" if verdict == "supported" and weak else verdict
    text = (
        f"A head's excess share of its layer's gradient on the tokens of a phenomenon has a rank correlation of "
        f"{_span(whole)} with {predicted}. With the heads of a layer exchanged it is at most {say(null[2], '.2f')}; "
        f"for the share on other tokens it is {say(others[0], '.2f')}, a difference of {_span(beyond)}"
    )
    if verdict == "qualified":
        text += f". It holds for {name_sites(strong)}, and not for {name_sites(weak)}"
    each = ", ".join(f"{name} {say(ends[0], '.2f')}" for name, ends in apart.items() if not np.isnan(ends[0]))
    text += f" (by phenomenon: {each})." if len(apart) > 1 else "."
    why = missing_interval(*whole, *beyond) if verdict == "undecided" else None
    return Part(when, verdict, text, statistic, why=why)


def _verdict(whole: Interval, null: Interval, beyond: Interval) -> Verdict:
    predicts, own = above(whole, T.emerge_rho), above(beyond, 0.0)
    if predicts is False or own is False:
        return "refuted"
    return "supported" if predicts and own and whole[0] > null[2] else "undecided"


def _span(ends: Interval) -> str:
    value, low, high = (say(end, ".2f") for end in ends)
    return f"{value} [{low}, {high}]"
