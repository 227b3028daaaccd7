"""Does attention alone make all tokens one vector, and do skips and feed-forwards prevent it?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    between,
    by_side,
    missing_interval,
    over_twins,
    undecided,
    weakest,
)
from armillary.probes.machinery.tables import Cells, cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import FIVE_SHOWN, more_text
from armillary.results import Claim, Control, Finding, Part, Quantity, Rewording, RuleChange, Statistic, Table, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

TWINS = 5
"""Untrained models that are tried: they decide nothing."""


@dataclass(frozen=True)
class Collapse:
    """What is left of the differences between a document's tokens, with and without skips and feed-forwards."""

    claim: ClassVar[Claim] = Claim(
        id="others.collapse",
        chapter="H",
        statement="Attention alone collapses all tokens to one vector; skips and feed-forwards prevent it.",
        source="Dong et al. 2021 (arXiv:2103.03404)",
        question=(
            "Attention averages over tokens. With attention alone, do all tokens become the same vector, and what "
            "prevents it?"
        ),
        definition=(
            "How much of the differences between a document's tokens is left after the last block? X has the states "
            "of the tokens as rows, and m is their mean. The difference is X with m subtracted from every row, and "
            "its share is its length over that of X: 0 where all tokens are one vector. Because a model may begin "
            "with a mean vector that all embeddings share, what is left is the share after a block over the share "
            "before the first block.\n"
            "It is measured after each block in four ways: the whole model, without feed-forwards, without skips, "
            "and without both (attention alone). Norms stay. To remove a skip, what a write is added to is "
            "subtracted beforehand. First tokens are left out.\n"
            "The statistic is what attention alone leaves after the last block.\n"
            "The source measures length by the geometric mean of the 1- and ∞-norm. Here it is the Frobenius norm "
            "(root of the sum of squares), for which no vector leaves less than the mean does."
        ),
        control=(
            "the stream before the first block; random initialisation (five twins of a small model), which decides "
            "nothing"
        ),
        rule=(
            "Three parts, all about what is left after the last block; the weakest decides. A number lies above or "
            "below a limit only if its whole interval does.\n"
            "Part 1, attention alone collapses.\n"
            f"Supported if it leaves less than {T.collapse_left}.\n"
            f"Refuted if it leaves more than {T.collapse_none}.\n"
            "Qualified in between.\n"
            "Part 2, skips prevent it. With skips and without feed-forwards:\n"
            f"Supported if more than {T.collapse_none} is left.\n"
            f"Refuted if less than {T.collapse_left} is left.\n"
            "Qualified in between.\n"
            "Part 3, feed-forwards slow it.\n"
            f"Supported if {T.collapse_slowed} more is left with feed-forwards than without, both without skips.\n"
            "Refuted if the difference is smaller.\n"
            "Every part is undecided where an interval spans its limit. The claim is undecided where all embeddings "
            "are one vector."
        ),
        kind="behaviour",
        changes=(
            FIVE_SHOWN,
            RuleChange(
                "2026-11-18",
                "Feed-forwards must leave a twentieth of the length more; any difference had counted. In MiniLM both "
                "ways leave a millionth, and nothing could be decided about such a difference.",
            ),
            RuleChange(
                "2026-11-18",
                "What is left is counted from the share before the first block. An untrained model whose embeddings "
                "share a mean starts with 0.028 and has 0.028 with skips: 'skips prevent it' had been refuted.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "eaa2c21e1ae4", 3),
            Rewording("2026-11-18", "ea340555a643", 3),
            Rewording("2026-11-19", "e57e87bf2817", 3),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 4.0 + TWINS

    def experiment(self, bench: "Bench") -> "dict[str, Floats] | None":
        from armillary.probes.others.streams.bare_attention import ALONE, WAYS, left_over

        if not bench.text.windows:
            return None
        ways = {way: left_over(bench, way) for way in WAYS}
        return ways | {twin: left_over(bench.arm(twin), ALONE) for twin in bench.twins[:TWINS]}

    def conclude(self, evidence: Evidence, result: "dict[str, Floats] | None") -> Finding:
        from armillary.probes.others.streams.bare_attention import ALONE, FORWARDS, SKIPS, WHOLE, left, share

        if result is None or not result[WHOLE].any():
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, "No document has three tokens. Give longer documents.")
        start = evidence.interval(result[WHOLE], lambda sums: share(sums)[:, 0])
        if start[0] == 0:
            return undecided(self.claim, Why.UNDEFINED, "All embeddings are one vector: there is nothing to collapse.")

        def last(way: str) -> Interval:
            return evidence.interval(result[way], lambda sums: left(sums)[:, -1])

        parts = (_collapses(last(ALONE)), _prevents(last(SKIPS)), _slows(evidence, result))
        verdict, why = weakest(parts)
        value, whole = last(ALONE), last(WHOLE)
        untrained = over_twins([last(twin) for twin in evidence.twins[:TWINS] if twin in result]).tolist()
        controls = (
            Control("share beside the mean before the first block", *start),
            Control(WHOLE, *whole),
            Control(SKIPS, *last(SKIPS)),
            Control(FORWARDS, *last(FORWARDS)),
            Control(f"attention alone, {RANDOM}", *untrained),
        )
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("left beside the mean vector by attention alone, over the start", *value),
            n=int((result[WHOLE][:, 0, 1] > 0).sum()),
            controls=controls,
            reading=" ".join(part.reading for part in parts)
            + f" The whole model leaves {say(whole[0], '.0%')}, the attention of an untrained model "
            f"{say(untrained[0], '.0%')}. Before the first block the differences are {say(start[0], '.0%')} of the "
            f"states' length.{more_text(why)}",
            headline=f"Attention alone leaves {say(value[0], '.0%')} of the differences between tokens, the whole "
            f"model {say(whole[0], '.0%')}",
            table=_table(evidence, result),
            quantities=(_drawn(evidence, result),),
            why=why,
            parts=parts,
        )


def _collapses(value: Interval) -> Part:
    verdict = between(value, refuted=T.collapse_none, supported=T.collapse_left)
    reading = (
        f"Attention alone, without skips and feed-forwards, leaves {say(value[0], '.0%')} of the differences between a "
        "document's tokens and their mean (0%: all tokens are one vector)."
    )
    why = missing_interval(*value) if verdict == "undecided" else None
    return Part("attention alone collapses", verdict, reading, Statistic("left of the start", *value), why=why)


def _prevents(value: Interval) -> Part:
    verdict = between(value, refuted=T.collapse_left, supported=T.collapse_none)
    reading = f"Attention with skips leaves {say(value[0], '.0%')}."
    why = missing_interval(*value) if verdict == "undecided" else None
    return Part("skips prevent it", verdict, reading, Statistic("left of the start", *value), why=why)


def _slows(evidence: Evidence, result: Mapping[str, Floats]) -> Part:
    from armillary.probes.others.streams.bare_attention import ALONE, FORWARDS, left

    both = np.stack([result[FORWARDS], result[ALONE]], 1)
    more = evidence.interval(both, lambda sums: left(sums[:, 0])[:, -1] - left(sums[:, 1])[:, -1])
    side = above(more, T.collapse_slowed)
    verdict = by_side(side)
    amount = f"{say(100 * abs(more[0]), '.0f')} percentage points {'less' if more[0] < 0 else 'more'}"
    reading = f"Attention with feed-forwards, without skips, leaves {amount} than attention alone."
    statistic = Statistic("left with feed-forwards less without", *more)
    why = missing_interval(*more) if side is None else None
    return Part("feed-forwards slow it", verdict, reading, statistic, why=why)


def _names(result: Mapping[str, Floats]) -> list[str]:
    from armillary.probes.others.streams.bare_attention import WHOLE

    return ["L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(result[WHOLE].shape[1] - 1))]


def _table(evidence: Evidence, result: Mapping[str, Floats]) -> Table:
    from armillary.probes.others.streams.bare_attention import ALONE, FORWARDS, SKIPS, WHOLE, left, share

    twins = [left(result[twin].sum(0)) for twin in evidence.twins[:TWINS] if twin in result]
    none = np.full(len(_names(result)), np.nan)

    def column(name: str, way: str) -> tuple[Cells, Cells, Cells]:
        return interval_cells(name, f"left of the start: {way}", evidence.intervals(result[way], left))

    return table(
        cells("stream", "state of the stream", _names(result)),
        cells("whole_share", "share of the length beside the mean vector, whole model", share(result[WHOLE].sum(0))),
        column("alone", ALONE),
        column("forwards", FORWARDS),
        column("skips", SKIPS),
        column("whole", WHOLE),
        cells("random_alone", f"{ALONE}, {RANDOM}, mean over twins", np.mean(twins, axis=0) if twins else none),
    )


def _drawn(evidence: Evidence, result: Mapping[str, Floats]) -> Quantity:
    from armillary.probes.others.streams.bare_attention import ALONE, FORWARDS, SKIPS, WHOLE, left

    others = {way: left(result[way].sum(0)) for way in (FORWARDS, SKIPS, WHOLE)}
    names = _names(result)
    limits = {"collapsed": np.full(len(names), T.collapse_left), "not collapsed": np.full(len(names), T.collapse_none)}
    values = evidence.intervals(result[ALONE], left)
    meaning = "length of X − 1mᵀ over that of X, over the same before the first block"
    return line("what is left beside the mean", meaning, "share", "stream", names, values, others, limits, label=ALONE)
