"""Does moving an axis to another head cost more than moving it within its head?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    NAN3,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    beats,
    name_sites,
    over_twins,
    undecided,
)
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.axes.axis_shuffles import ShuffleCase, ShuffleCosts
    from armillary.probes.machinery.bench import Bench, Trials

PLACES = {"z": "at the heads' results", "q": "on queries alone"}
OPEN, IDLE, ABOVE, BELOW = "open", "idle", "above", "below"
TWINS = 5
IDLE_HEADLINE = "Shuffling axes costs nothing, within heads or across"


@dataclass(frozen=True, eq=False)
class AxesResult:
    trials: "Trials"
    twins: tuple[Interval, ...]
    """What moving all axes of all layers across heads costs in untrained models, nats per token."""


@dataclass(frozen=True)
class HeadAxes:
    """Change of the loss when the same axes are shuffled within their heads and across heads."""

    claim: ClassVar[Claim] = Claim(
        id="heads.axes",
        chapter="F",
        statement="Meaning is encoded in axis indices: shuffling axes across heads hurts more than within heads.",
        source="S3",
        question=(
            "Shuffle the axes of what heads read or write, once within each head and once across heads. Does it cost "
            "much more if axes move to another head?"
        ),
        definition=(
            "Axes are shuffled, either within their head or each to another head. Both kinds of shuffle move the "
            "same axes. The cost of a shuffle is the change of the next-token loss, in nats per token.\n"
            "The statistic is the share of the cost that is due to crossing heads: (across − within)/across, the "
            "median over cases.\n"
            "Shuffles are made in two places: at z, the heads' results before W_O, and on q alone, before it meets "
            "k. A case is one of three layers with all axes moved, or all layers with all axes, half or a quarter of "
            "them. Every document has two shuffles of its own. With the median, no single case decides, and none "
            "that destroys the model.\n"
            "A case counts only if moving axes across heads has a cost: the lower end of the cost's interval must "
            f"reach {T.crossing_cost} nats per token, and {T.crossing_steady:.0%} of the cost itself. The control's "
            "share has the same condition.\n"
            "Only one side is shuffled. The numbering of axes within a head is a convention: W_V and W_O, or W_Q and "
            "W_K, could be renumbered together without any effect."
        ),
        control=(
            "q and k shuffled in the same way within heads, which changes no score; a second shuffle within heads "
            "in place of the one across; random initialisation (five twins of a small model): what it costs to move "
            "all axes at z"
        ),
        rule=(
            "The share of a shuffle's cost that is due to crossing heads, in the median case, is compared with "
            f"{T.crossing_share}, at z and on q. At {T.crossing_share}, a shuffle across heads costs a quarter more "
            "than one within. A number lies above or below a limit only if its whole interval does.\n"
            f"Supported if the share lies above {T.crossing_share} at z and on q.\n"
            "Refuted if it lies below in both places, and no single case lies above (at a level corrected for the "
            "number of cases).\n"
            f"Qualified if the share lies above {T.crossing_share} in only one of the two places, or below in both "
            "while a single case lies above; these are named.\n"
            "If no shuffle has a cost in one place, the other place alone decides, and the claim is qualified at "
            "most.\n"
            f"Undecided if an interval spans {T.crossing_share}, if no shuffle has a cost in either place, or if "
            "intervals leave open whether any has one in a place.\n"
            "Undecided without untrained models, or if moving all axes does not clearly cost more than in them: then "
            "the share is withheld.\n"
            "Undecided with too few documents, with one head per layer, with one axis per head, or without a "
            "next-token loss."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-15",
                "Every document has its own shuffles, and each shuffle weighs by its cost: two single shuffles had "
                "differed by a quarter of their cost in SmolLM2. On builtin:gpt undecided became refuted.",
            ),
            RuleChange(
                "2026-11-16",
                "The median over layers and doses, and single cases, in place of the summed costs: the one case that "
                "destroys the model had been 69 % of the sum. A share of a cost that may be 0 is withheld, and cases "
                "are also compared with untrained models.",
            ),
            RuleChange(
                "2026-11-18",
                "Shares are withheld, the control's too, unless moving all axes costs more than in untrained models "
                "and what they are a share of is above 0. On the built-in GPT with its matrices permuted a share of "
                "0.44 had been printed, and −0.73 [−124, 170] as the control, beside 'there is no cost to share out'. "
                "A cost that is not clearly above untrained models is told from one that is not above them. "
                "Twins are five.",
            ),
            RuleChange(
                "2026-11-18",
                "On the built-in GPT with its matrices permuted, --quick printed a control of 0.00 [−6.99, 0.49]: what "
                "it is a share of was above 0, but by next to nothing in some draws. A cost now counts only if its "
                "interval stays above a hundredth of a nat and above a quarter of the cost itself.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "62513171004c", 4),
            Rewording("2026-11-18", "a6fc0d6c32a3", 4),
            Rewording("2026-11-19", "438210974d90", 4),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.grid.axes.axis_shuffles import TRIALS, shuffle_cases

        crossing = sum(kind == "across" for kind, _ in TRIALS)
        return 2 + len(shuffle_cases(anatomy)) * len(TRIALS) + TWINS * (1 + crossing)

    def experiment(self, bench: "Bench") -> AxesResult | None:
        from armillary.probes.grid.axes.axis_shuffles import (
            ShuffleCosts,
            case_trials,
            shuffle_cases,
            shuffle_trials,
            whole_case,
        )

        anatomy = bench.anatomy
        if not bench.scored or not shuffle_cases(anatomy):
            return None

        def decided(trials: "Trials") -> bool:
            return all(_side(costs)[0] != OPEN for costs in _places(trials, anatomy).values())

        whole = whole_case(anatomy)
        twins = [bench.arm(arm) for arm in bench.twins[:TWINS]]
        costs = [
            ShuffleCosts(twin.compare(dict(case_trials(twin.anatomy, whole, ["across"]))), whole).cost("across")
            for twin in twins
        ]
        return AxesResult(bench.compare(dict(shuffle_trials(anatomy)), decided), tuple(costs))

    def conclude(self, evidence: Evidence, result: AxesResult | None) -> Finding:
        from armillary.probes.grid.axes.axis_shuffles import (
            ALIKE,
            ShuffleCosts,
            placebo_share,
            share_line,
            shuffle_cases,
            shuffle_line,
            shuffle_table,
            whole_case,
        )

        if result is None:
            return undecided(self.claim, Why.NOT_APPLICABLE, _not_applicable(evidence.anatomy))
        if not result.twins:
            return undecided(self.claim, Why.NO_CONTROL, "There is no untrained model to compare with.")
        cases, trials = shuffle_cases(evidence.anatomy), result.trials
        places = _places(trials, evidence.anatomy)
        random, most = (
            over_twins(result.twins).tolist(),
            ShuffleCosts(trials, whole_case(evidence.anatomy)).cost("across"),
        )
        learned = beats(most, random, len(result.twins))
        sides, values = _shares(places, cases, learned)
        single = [i for i, share in enumerate(values["share"]) if share[1] > T.crossing_share]
        verdict, why = _verdict([side for side, _ in sides.values()], bool(single), learned, trials.documents)
        defined = [cost for cost in places["z"] if learned and cost.has_cost and cost.has_placebo]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("(across − within)/across at z, median of layers and doses", *sides["z"][1]),
            n=trials.documents,
            controls=(
                Control("a second shuffle within heads instead", *placebo_share(defined)),
                Control("random initialisation: cost of moving all axes, nats per token", *random),
                Control("q and k alike within heads, nats per token", *trials.cost(ALIKE)),
            ),
            reading=_reading(cases, values, sides, single, (most[0], random[0]), learned),
            headline=_headline(sides, learned),
            table=shuffle_table(cases, values, trials.level),
            quantities=tuple(
                draw(where, PLACES[where], cases, values) for draw in (share_line, shuffle_line) for where in PLACES
            ),
            notes=(
                f"documents were read in {trials.looks} of 3 parts; intervals are taken at {100 * trials.level:.3g} %",
            ),
        )


Side = tuple[str, Interval]


def _places(trials: "Trials", anatomy: "Anatomy") -> "dict[str, list[ShuffleCosts]]":
    from armillary.probes.grid.axes.axis_shuffles import ShuffleCosts, shuffle_cases

    cases = shuffle_cases(anatomy)
    return {where: [ShuffleCosts(trials, case) for case in cases if case.where == where] for where in PLACES}


def _side(costs: "Sequence[ShuffleCosts]") -> Side:
    """On which side of the limit the median share of a place lies: above, below, open, or idle where nothing costs."""
    from armillary.probes.grid.axes.axis_shuffles import crossing_share

    known = [cost.has_cost for cost in costs]
    share = crossing_share([cost for cost, has in zip(costs, known, strict=True) if has])
    if True not in known:
        return (OPEN if None in known else IDLE), share
    side = above(share, T.crossing_share)
    return (OPEN if side is None else ABOVE if side else BELOW), share


def _shares(
    places: "dict[str, list[ShuffleCosts]]", cases: "list[ShuffleCase]", learned: bool | None
) -> "tuple[dict[str, Side], dict[str, Floats]]":
    """Each place's side and each case's costs; shares are NaN unless shuffles cost more than in untrained models."""
    from armillary.probes.grid.axes.axis_shuffles import ShuffleCosts, case_costs

    trials = next(iter(places.values()))[0].trials
    sides, values = (
        {w: _side(costs) for w, costs in places.items()},
        case_costs([ShuffleCosts(trials, c) for c in cases]),
    )
    if learned is not True:
        sides = {where: (side, NAN3) for where, (side, _) in sides.items()}
        values["share"] = np.full_like(values["share"], np.nan)
    return sides, values


def _verdict(sides: list[str], single: bool, learned: bool | None, documents: int) -> tuple[Verdict, Why | None]:
    """`learned`: does moving all axes cost more than in untrained models? None where that is unclear."""
    if documents < T.documents_least:
        return "undecided", Why.NO_INTERVAL
    counted = [side for side in sides if side != IDLE]
    if not counted or learned is False:
        return "undecided", Why.UNDEFINED
    if OPEN in counted or learned is None:
        return "undecided", Why.SPANS_LIMIT
    if sides.count(ABOVE) == len(sides):
        return "supported", None
    return ("qualified" if ABOVE in counted or single else "refuted"), None


def _not_applicable(anatomy: "Anatomy") -> str:
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return (
            f"A layer of this model has {anatomy.n_heads} head{'s' * (anatomy.n_heads > 1)} of {anatomy.k} axes, so an "
            "axis cannot move to another head or place. A model with several heads would decide."
        )
    return "This model predicts no next token, so a shuffle has no cost. A causal language model would decide."


def _reading(
    cases: "list[ShuffleCase]",
    values: "dict[str, Floats]",
    sides: dict[str, Side],
    single: list[int],
    costs: tuple[float, float],
    learned: bool | None,
) -> str:
    from armillary.probes.grid.axes.axis_shuffles import label

    parts = []
    for where, place in PLACES.items() if learned else ():
        share = sides[where][1]
        shares = [values["share"][i, 0] for i, case in enumerate(cases) if case.where == where]
        known = [value for value in shares if not np.isnan(value)]
        text = f"{place[0].upper()}{place[1:]}, "
        if not known:
            text += "shuffles cost next to nothing"
        else:
            text += (
                f"{say(share[0], '.0%')} of the cost of a shuffle is due to crossing heads in the median case "
                f"(from {say(min(known), '.0%')} to {say(max(known), '.0%')}; {len(known)} of {len(shares)} cases "
                "have a cost)"
            )
        parts.append(f"{text}.")
    if single:
        names = [f"{cases[i].where} of {label(cases[i], cases)}, {cases[i].moved} axes" for i in single]
        parts.append(f"Single cases above the limit: {name_sites(names)}.")
    parts.append(
        f"Moving all axes of all layers across heads costs {say(costs[0], '.2g')} nats per token, in an untrained "
        f"model {say(costs[1], '.2g')}."
    )
    if learned is False:
        parts.append("That is no more than in untrained models: there is no cost to share out.")
    elif learned is None:
        parts.append("Whether that is more than in untrained models is unclear: the share is withheld.")
        parts.append("More text would decide.")
    elif OPEN in [side for side, _ in sides.values()]:
        parts.append("More text would decide.")
    return " ".join(parts)


def _headline(sides: dict[str, Side], learned: bool | None) -> str:
    if learned is None:
        return "Shuffling axes does not clearly cost more than in untrained models"
    parts = [f"{say(sides[w][1][0], '.0%')} {place}" for w, place in PLACES.items() if np.isfinite(sides[w][1][0])]
    if not parts:
        return "Shuffling axes costs no more than in untrained models" if learned is False else IDLE_HEADLINE
    return "Share of a shuffle's cost that is due to crossing heads, median case: " + " and ".join(parts)
