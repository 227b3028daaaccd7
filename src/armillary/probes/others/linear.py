"""Is a block nearly a linear map, and is it more than its skip that makes it so?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.stream_pairs import STREAM_PAIRS, block_states
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    missing_interval,
    undecided,
    weighed,
)
from armillary.probes.machinery.intervals import Statistic as Share
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.others.streams.block_fits import BlockFits, block_fits, skip, whole, write
from armillary.probes.sphere.across_sites import defined_median
from armillary.results import Claim, Control, Finding, Part, Quantity, Rewording, Statistic, Table, Verdict, Why, say


@dataclass(frozen=True)
class Linear:
    """The share of the stream after a block that a linear map of the stream before it explains, on other documents."""

    claim: ClassVar[Claim] = Claim(
        id="others.linear",
        chapter="H",
        statement="A block is nearly a linear map from the stream before it to the stream after it.",
        source="Razzhigaev et al. 2024 (arXiv:2405.12250)",
        question=(
            "Could a block be replaced by one matrix? How much of the stream after it would that matrix get right?"
        ),
        definition=(
            "How much of the stream after a block does one matrix get right? It is the share of the stream's "
            "variance, over all coordinates, that a linear map of the stream before the block explains. The "
            "statistic is the share of the median block. First and massive tokens are left out.\n"
            "The map is fitted by ridge regression to one half of the documents and tested on the other, both ways. "
            "The penalty for one half is chosen on the other, and shrinks the map towards the skip (the stream "
            "passed on unchanged).\n"
            "Two more shares are measured: how much of what the block adds (the stream after minus the stream "
            "before) is linear, and how much of the stream the skip explains with no map at all.\n"
            "The authors' score, 1 − min ‖XA − Y‖² of centred clouds X and Y of norm 1, is fitted and measured on "
            "the same tokens. It grows when there are fewer tokens than d; it is in the table."
        ),
        control=("the skip alone; random initialisation (all twins), where small writes make any block nearly linear"),
        rule=(
            "Two parts; the weaker decides. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, with its skip.\n"
            f"Supported if the share lies above {T.linear_most}.\n"
            f"Refuted if it lies below {T.linear_not}.\n"
            "Qualified if it lies between the two.\n"
            "Part 2, not by the skip alone.\n"
            f"Supported if more than {T.linear_write:.0%} of what the median block adds is linear.\n"
            "Qualified if less is, or if blocks add nothing: then a block is nearly linear because it adds little.\n"
            "Each part is undecided where an interval spans its limit. Where a half of the documents has fewer than "
            f"{T.tokens_per_axis:.0f} tokens per axis, a part is undecided instead of refuted or qualified, because a "
            "map fitted to few tokens errs on others. (Blocks that add nothing are qualified even then.)"
        ),
        kind="behaviour",
        rewordings=(
            Rewording("2026-11-18", "19d4ee7032b8", 0),
            Rewording("2026-11-18", "197a3f759c93", 0),
            Rewording("2026-11-19", "b17bdc3eaf27", 0),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES, STREAM_PAIRS)

    def conclude(self, evidence: Evidence) -> Finding:
        if not block_states(evidence.anatomy):
            return undecided(self.claim, Why.NOT_APPLICABLE, "No norm of this model reads the stream.")
        model = block_fits(evidence, MODEL)
        twins = {arm: block_fits(evidence, arm) for arm in evidence.twins}

        def median(of: BlockFits, share: Share) -> Interval:
            return evidence.interval(of.sums, lambda sums: defined_median(share(sums)))

        value, added = median(model, whole), median(model, write)
        enough = model.fitted >= T.tokens_per_axis * evidence.anatomy.d
        parts = (_with_skip(value, enough), _not_skip(added, median(model, skip), enough))
        untrained = evidence.over_twins(lambda arm: median(twins[arm], whole))
        untrained_write = evidence.over_twins(lambda arm: median(twins[arm], write))
        return Finding(
            claim=self.claim,
            **weighed(parts, _reading(parts, model, untrained, untrained_write), more=True),
            statistic=Statistic("share of the stream after a block that is linear, median block", *value),
            n=int(model.sums[:, 0, 0].sum()),
            controls=(
                Control("the skip alone", *median(model, skip)),
                Control(RANDOM, *untrained),
                Control("what the block adds", *added),
                Control(f"what the block adds, {RANDOM}", *untrained_write),
            ),
            headline=f"A linear map explains {say(value[0], '.1%')} of the stream after the median block, and "
            f"{say(added[0], '.0%')} of what the block adds",
            table=_table(evidence, model, twins),
            quantities=_lines(evidence, model, twins),
        )


def _with_skip(value: Interval, enough: bool) -> Part:
    name = "with its skip"
    most, least = above(value, T.linear_most), above(value, T.linear_not)
    verdict: Verdict = "undecided"
    if most:
        verdict = "supported"
    elif enough and least is False:
        verdict = "refuted"
    elif enough and least and most is False:
        verdict = "qualified"
    reading = f"A linear map explains {say(value[0], '.1%')} of the stream after the median block."
    why = None if verdict != "undecided" else _why(value, enough)
    return Part(name, verdict, reading, Statistic("linear share, median block", *value), why=why)


def _not_skip(added: Interval, alone: Interval, enough: bool) -> Part:
    side = above(added, T.linear_write)
    verdict: Verdict = "supported" if side else "qualified" if side is False and enough else "undecided"
    reading = (
        f"The skip alone explains {say(alone[0], '.1%')}; of what the block adds, {say(added[0], '.0%')} is linear."
    )
    why = None
    if np.isnan(added[0]):
        verdict, reading = "qualified", "The blocks add nothing: the skip is all there is."
    elif verdict == "undecided":
        why = _why(added, enough)
    return Part("not by the skip alone", verdict, reading, Statistic("linear share of the write", *added), why=why)


def _why(value: Interval, enough: bool) -> Why:
    return missing_interval(*value) if enough else Why.TOO_LITTLE_TEXT


def _reading(parts: tuple[Part, ...], model: BlockFits, untrained: Interval, untrained_write: Interval) -> str:
    return (
        f"{parts[0].reading} {parts[1].reading} In an untrained model the shares are {say(untrained[0], '.1%')} and "
        f"{say(untrained_write[0], '.0%')}. Fitted and measured on the same tokens, as in the source, the first would "
        f"be {say(float(np.median(model.in_sample)), '.1%')}."
    )


def _table(evidence: Evidence, model: BlockFits, twins: dict[str, BlockFits]) -> Table:
    return table(
        cells("block", "block, from 0", model.blocks),
        interval_cells("linear", "linear share of the stream after the block", evidence.intervals(model.sums, whole)),
        interval_cells("write", "linear share of what the block adds", evidence.intervals(model.sums, write)),
        cells("skip", "share that the skip alone explains", skip(model.sums.sum(0))),
        cells("in_sample", "the authors' score, fitted and measured on the same tokens", model.in_sample),
        cells("random_linear", "linear share at random initialisation, mean over twins", _mean(twins, whole)),
        cells("random_write", "the same of what the block adds", _mean(twins, write)),
    )


def _mean(twins: dict[str, BlockFits], share: Share) -> Floats:
    rows = [share(fits.sums.sum(0)) for fits in twins.values()]
    return np.asarray(np.mean(rows, axis=0))


def _lines(evidence: Evidence, model: BlockFits, twins: dict[str, BlockFits]) -> tuple[Quantity, ...]:
    def drawn(name: str, meaning: str, share: Share, limit: float, more: dict[str, Floats]) -> Quantity:
        values = evidence.intervals(model.sums, share)
        controls = {**more, **({RANDOM: _mean(twins, share)} if twins else {})}
        theory = {"the limit": np.full(len(model.blocks), limit)}
        return line(name, meaning, "share", "block", model.blocks, values, controls, theory)

    alone = {"the skip alone": skip(model.sums.sum(0))}
    return (
        drawn("how linear a block is", "share of the stream after the block", whole, T.linear_most, alone),
        drawn("how linear what it adds is", "share of what the block adds", write, T.linear_write, {}),
    )
