"""Do earlier states stay the same when text is appended?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T, over_twins
from armillary.probes.machinery.tables import Cells, cells, line, table
from armillary.probes.machinery.verdicts import FIVE_SHOWN, missing_interval, name_sites, undecided
from armillary.results import Claim, Control, Finding, Rewording, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

ONE, HALF, CACHED, THROUGH = "one token appended", "half appended", "cached", "appended through the cache"
FLOOR, CHANGED = "another shape of batch", "first token changed"
RECOMPUTED = (ONE, HALF)
ALL = (ONE, HALF, CACHED, THROUGH)
EPSILONS = "machine epsilons"


@dataclass(frozen=True, eq=False)
class StateChanges:
    """Largest relative changes ‖Δx‖/‖x‖ [group, state] per condition; 0 for a group without documents."""

    states: tuple[str, ...]
    changes: dict[str, Floats]
    twins: Sequence[Floats]
    """The same [group, state] for each untrained twin, half appended."""
    documents: Floats
    """[group]: how many documents."""
    window: int
    tokens: int
    """Earlier states compared per station."""
    epsilon: float
    dtype: str

    def largest(self, names: tuple[str, ...] = RECOMPUTED) -> Floats:
        """[group, state]: the largest change under any of these conditions."""
        return np.max([self.changes[name] for name in names if name in self.changes], axis=0)

    def allowed(self) -> Floats:
        """[state]: the relative change that counts as rounding."""
        rounding = np.maximum(T.roundings * self.epsilon, T.prefix_floor * self.changes[FLOOR].max(0))
        return np.minimum(rounding, T.prefix_most)

    def unchanged(self, names: tuple[str, ...] = ALL) -> Flags:
        """[state]: does no condition change it by more than rounding?"""
        return np.asarray(self.largest(names).max(0) <= self.allowed())


@dataclass(frozen=True)
class Prefix:
    """States of a text's first tokens, read alone and read with what follows."""

    claim: ClassVar[Claim] = Claim(
        id="stability.prefix",
        chapter="D",
        statement="With unlimited context, the representations of earlier tokens never change.",
        source="S3",
        question=(
            "Does a token's vector stay the same when more text follows? It must, if a token sees only what comes "
            "before it."
        ),
        kind="definition",
        definition=(
            "How much the stream of earlier tokens changes when text is appended: ‖Δx‖/‖x‖ of every earlier token, "
            "before the first block and after each block. Either one token is appended, or as many tokens as there "
            "already were.\n"
            "Without a cache, a pass over the longer text is compared with a pass over the shorter one. With a "
            "cache, the first half is read, then one token, then the rest; earlier and appended tokens are compared "
            "with a single pass over the whole text.\n"
            "Changes are counted in machine epsilons of the dtype, the relative size of one rounding. The statistic "
            "is the largest change of an earlier state without a cache, averaged over documents.\n"
            "A causal mask makes it 0 by construction. The measurement shows how far this model's arithmetic "
            "deviates from that."
        ),
        control=(
            "the same tokens computed one document at a time (rounding alone); the first token replaced (what a "
            "real change looks like); random initialisation (five untrained models of a small one)"
        ),
        rule=(
            f"A state is unchanged if no token changes by more than the state's limit: {T.roundings:.0f} machine "
            f"epsilons, or {T.prefix_floor:g} times the change that another batch shape alone causes at this state, "
            f"whichever is larger, but never more than {T.prefix_most:.0%} of the token's length.\n"
            "Supported if every state is unchanged, with and without a cache.\n"
            "Qualified if every state is unchanged without a cache, but not with it.\n"
            "Refuted if the whole interval of the statistic lies above the limit of every state, and above "
            f"{T.prefix_floor:g} times the largest change that another batch shape causes.\n"
            "Undecided otherwise: rounding of this dtype hides the answer, or no document is long enough."
        ),
        changes=(FIVE_SHOWN,),
        rewordings=(
            Rewording("2026-11-18", "c703fb1cc013", 1),
            Rewording("2026-11-19", "498ac8a975c7", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Six, of which some are shorter, and one and a half of each of five twins.
        return 13.0

    def experiment(self, bench: "Bench") -> StateChanges | None:
        from armillary.probes.stability.sliding.appended_text import append

        return append(bench)

    def conclude(self, evidence: Evidence, result: StateChanges | None) -> Finding:
        if result is None:
            reading = "No document is long enough to append anything to. Give more text, in longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, table(cells("state", "state of the stream", ())))
        mean_change = _over_documents(evidence, result, result.largest().max(1))
        verdict = _verdict(result, mean_change[1])
        refuted = f"Appended tokens change earlier states by up to {_percent(result.largest().max())} of their length"
        unchanged = f"Appended tokens change earlier states by {say(mean_change[0], '.2g')} machine epsilons: rounding"
        limit = np.full(len(result.states), T.roundings * result.epsilon)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*mean_change) if verdict == "undecided" else None,
            statistic=Statistic("largest change of an earlier state, mean over documents", *mean_change, EPSILONS),
            n=result.tokens,
            controls=_controls(evidence, result),
            reading=_reading(verdict, result, evidence.anatomy.causal),
            headline=refuted if verdict == "refuted" else unchanged,
            table=_table(result),
            quantities=(
                line(
                    "largest change of an earlier state",
                    "relative to its length, over all tokens, when one token or half of the window is appended",
                    "‖Δx‖/‖x‖",
                    "state",
                    result.states,
                    result.largest().max(0),
                    {n: result.changes[n].max(0) for n in (THROUGH, FLOOR, CHANGED) if n in result.changes},
                    {f"{T.roundings:g} machine epsilons": limit},
                    logs=("value",),
                ),
            ),
            notes=(
                f"windows of {result.window} tokens from {int(result.documents.sum())} documents, in {result.dtype}",
            ),
        )


def _over_documents(evidence: Evidence, result: StateChanges, largest: Floats) -> Interval:
    """The mean over documents of each group's largest change [group], in machine epsilons."""
    return evidence.interval(np.stack([result.documents, result.documents * largest / result.epsilon], -1))


def _controls(evidence: Evidence, result: StateChanges) -> tuple[Control, ...]:
    controls = [Control(n, *_over_documents(evidence, result, result.changes[n].max(1))) for n in (FLOOR, CHANGED)]
    if result.twins:
        each = [_over_documents(evidence, result, change.max(1)) for change in result.twins]
        controls.append(Control(RANDOM, *over_twins(each).tolist()))
    return tuple(controls)


def _verdict(result: StateChanges, low: float) -> Verdict:
    if result.unchanged().all():
        return "supported"
    if result.unchanged(RECOMPUTED).all():
        return "qualified"
    # In half precision a change must also exceed what another batch shape alone causes.
    limit = max(float(result.allowed().max()), T.prefix_floor * float(result.changes[FLOOR].max())) / result.epsilon
    return "refuted" if low > limit else "undecided"


def _percent(value: float) -> str:
    """
    >>> _percent(0.234), _percent(0.00012)
    ('23 %', '0.012 %')
    """
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:.0f} %"


def _reading(verdict: Verdict, result: StateChanges, causal: bool) -> str:
    recomputed, any_way = (float(result.largest(names).max()) for names in (RECOMPUTED, ALL))
    epsilons = say(recomputed / result.epsilon, ".2g")
    where = name_sites([state for state, same in zip(result.states, result.unchanged(), strict=True) if not same])
    if verdict == "supported":
        return (
            f"Appending changes no earlier state by more than {epsilons} machine epsilons, and with a cache by no "
            f"more than {say(any_way / result.epsilon, '.2g')}. Replacing the first token changes states by up to "
            f"{_percent(result.changes[CHANGED].max())} of their length. With a causal mask this holds by "
            "construction; the numbers are this model's deviation from it."
        )
    if verdict == "qualified":
        return (
            f"Appending changes no earlier state by more than {epsilons} machine epsilons. The cache changes "
            f"states by up to {_percent(any_way)} of their length, at {where}."
        )
    if verdict == "undecided":
        return (
            f"Earlier states change by up to {epsilons} machine epsilons of {result.dtype}, at {where}. That may "
            "be rounding; load the model in float32 to decide."
        )
    reason = "something in this causal model reads later tokens" if causal else "attention reads in both directions"
    return (
        f"Appended tokens change earlier states by up to {_percent(recomputed)} of their length, at {where}: {reason}."
    )


def _table(result: StateChanges) -> Table:
    def epsilons(column: str, meaning: str, name: str) -> Cells:
        change = result.changes.get(name)
        values = np.full(len(result.states), np.nan) if change is None else change.max(0) / result.epsilon
        return cells(column, meaning, values, EPSILONS)

    return table(
        cells("state", "state of the stream", result.states),
        epsilons("one", "largest change of an earlier state when one token is appended", ONE),
        epsilons("half", "the same when as many tokens are appended as there were", HALF),
        epsilons("cached", "largest difference of earlier states with and without a cache (empty: no cache)", CACHED),
        epsilons(
            "through_cache", "the same for the appended tokens, which read the earlier ones from the cache", THROUGH
        ),
        epsilons("floor", "largest difference when the same tokens are computed one document at a time", FLOOR),
        cells("unchanged", "is this state unchanged by the rule?", result.unchanged()),
    )
