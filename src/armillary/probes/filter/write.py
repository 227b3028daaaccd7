"""Is a feed-forward's update simpler than the input that it was computed from?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.filter.by_layer import RULE
from armillary.probes.filter.writes.expert_write_bits import expert_bits, expert_write_table
from armillary.probes.filter.writes.layer_writes import INPUT, WRITE
from armillary.probes.filter.writes.write_bits import STEP, WriteBits, write_bits
from armillary.probes.filter.writes.write_parts import WriteSavings, write_parts
from armillary.probes.filter.writes.write_tables import write_lines, write_table
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, T, spread_layers, undecided
from armillary.probes.machinery.verdicts import FIVE_TWINS, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

LAYERS, TWINS, TWIN_LAYERS = 8, 5, 3
ROUTED = (
    "Mixture of experts: the write is the routed sum, shared experts included; the table 'experts' lists every expert, "
    "measured on the tokens that are routed to it."
)


@dataclass(frozen=True)
class ForwardWrite:
    """Bits and effective rank of what a feed-forward writes, beside its input and attention's write."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.write",
        chapter="E",
        kind="learned",
        statement="The feed-forward computes a filtered, simplified update.",
        source="S3",
        question=(
            "Is what a feed-forward layer adds simpler than what it reads, in that fewer bits describe it? And did "
            "training make it so?"
        ),
        definition=(
            "Is what the feed-forward adds (its write) simpler than what it reads? Bits per coordinate are counted "
            "for the write, for its input y (the norm's output) and for attention's write, on sampled tokens (no "
            "first and no massive ones).\n"
            "Each stream is rotated to its principal axes, which come from the other half of the documents. Every "
            f"coordinate is quantised at a step of {STEP:g} of the stream's own root mean square, so that scale does "
            "not count, and coded with one table per octave of axes; tables are counted too.\n"
            "The statistic is the share of the input's bits that the write does not need, averaged over layers.\n"
            "Effective rank is the participation ratio. The write is also computed from units above zero alone, and "
            f"with the values below zero let through. At most {LAYERS} layers are measured, and those that write "
            "nothing are left out. Intervals are over documents."
        ),
        control=(
            f"random initialisation ({TWINS} untrained twins of a small model, in the first, middle and last layer); "
            "attention's write in place of the feed-forward's"
        ),
        rule=(
            "Five parts, each answered layer by layer. The weaker of parts 1 and 2 decides. An answer counts only if "
            "the whole interval lies on one side of the limit.\n"
            f"Part 1, the write is simpler. It holds in a layer if the write takes {T.write_saved:.0%} fewer bits "
            "than its input.\n"
            "Part 2, training makes it so. It holds in a layer if the share saved exceeds the upper end of untrained "
            f"models by {T.write_margin:.0%} of the bits, in the nearest layer that was measured there. It fails if "
            f"the share lies below the upper end of five untrained models plus {T.write_margin:.0%}. The two or three "
            "twins of a large model have a wide interval that must not refute.\n"
            f"Parts 3 to 5 are ours and decide nothing: the write is {T.write_saved:.0%} simpler than attention's "
            f"write; it is {T.write_saved:.0%} simpler than the same write with the discarded values let through; and "
            f"it takes {T.write_saved:.0%} fewer directions than the input.\n"
            "Each part, over layers:\n"
            f"{RULE}\n"
            "Undecided otherwise: intervals span the limit, or there are no untrained models."
        ),
        changes=(
            FIVE_TWINS,
            RuleChange(
                "2026-11-18",
                "Two or three untrained models, as a large model has, refute part 2 only below what five would show, "
                "as in all other claims. Their wide interval had refuted by itself. The rule's text says so now.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "517fe9bad4c2", 2),
            Rewording("2026-11-18", "dc5a9d646d60", 2),
            Rewording("2026-11-19", "cad15037fabb", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def conclude(self, evidence: Evidence) -> Finding:
        measured = write_bits(evidence, MODEL, spread_layers(evidence.anatomy, LAYERS))
        if measured is None or not measured.writing.any():
            return _nothing(self.claim, evidence, measured)
        some = spread_layers(evidence.anatomy, TWIN_LAYERS)
        each = {arm: write_bits(evidence, arm, some, (INPUT, WRITE)) for arm in evidence.twins[:TWINS]}
        twins = {arm: bits for arm, bits in each.items() if bits is not None}
        saved = WriteSavings.of(evidence, measured, twins)
        parts = write_parts(saved)
        mean, control = saved.bits[INPUT].mean, saved.untrained.mean
        controls = [Control("attention's write in its place", *saved.attention.mean)]
        if twins:
            controls.append(Control(RANDOM, *control))
        experts = expert_bits(evidence, MODEL, saved.layers)
        untrained = f"; in untrained models {say(control[0], '.0%')}" if twins else ""
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic("share of the input's bits that the write does not need, mean over layers", *mean),
            n=measured.tokens,
            controls=tuple(controls),
            headline=(
                f"The write takes {say(_mean(measured, WRITE), '.2f')} bits per coordinate, its input "
                f"{say(_mean(measured, INPUT), '.2f')}: {say(mean[0], '.0%')} saved{untrained}"
            ),
            table=write_table(measured, saved),
            quantities=write_lines(measured, saved),
            notes=(*_notes(evidence, measured, len(twins)), *([ROUTED] if experts else [])),
            more_tables={"experts": expert_write_table(evidence, experts)} if experts else {},
        )


def _nothing(claim: Claim, evidence: Evidence, measured: WriteBits | None) -> Finding:
    assert evidence.corpus is not None
    if measured is None or evidence.corpus.documents < T.documents_least:
        reading = "Axes come from one half of the documents and are used in the other. Give more documents."
        return undecided(claim, Why.NO_INTERVAL, reading)
    return undecided(claim, Why.UNDEFINED, "The feed-forwards of this model write the same for every token.")


def _mean(measured: WriteBits, name: str) -> float:
    """Bits per coordinate, mean over the layers that write."""
    return float(np.nanmean(measured.bits(name)[measured.writing]))


def _notes(evidence: Evidence, measured: WriteBits, twins: int) -> tuple[str, ...]:
    silent = [f"L{layer}" for layer, flag in zip(measured.layers, measured.writing, strict=True) if not flag]
    notes = [
        f"{measured.tokens} sampled tokens in {len(measured.layers)} of {evidence.anatomy.layers} layers; first and "
        "massive tokens are left out.",
        f"Random initialisation: {twins} untrained models, {TWIN_LAYERS} layers of each at most.",
    ]
    if silent:
        notes.append(f"Layers that write the same for every token, left out: {', '.join(silent)}.")
    return tuple(notes)
