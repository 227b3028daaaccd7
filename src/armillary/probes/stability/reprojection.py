"""Do norms keep the state from diverging?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    T,
    cells,
    mean,
    table,
    undecided,
    weakest,
)
from armillary.probes.machinery.verdicts import FIVE_SHOWN
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE, OWN, RotationGrowth, per_block
from armillary.probes.stability.nudges.growth_parts import bounded, held_back
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class Reprojection:
    """A small rotation followed through the blocks, with norms live and with norms frozen."""

    claim: ClassVar[Claim] = Claim(
        id="stability.reprojection",
        chapter="D",
        statement="Projecting onto a fixed manifold again and again, as norms do, keeps the state from diverging.",
        source="S3",
        question=(
            "Turn a token's vector a little at the start: does the turn shrink or grow on its way through the "
            "blocks? And is it the norms that hold it back?"
        ),
        kind="behaviour",
        definition=(
            "Does a small error grow or shrink on its way through the blocks? Before the first block every token's "
            "state is rotated by a small angle in a random direction. After each block, the growth of this rotation "
            "and of the length ‖x‖ is measured, as geometric means over tokens; first tokens are left out.\n"
            "The statistic is the growth of the rotation per block with norms live, as a logarithm (like a Lyapunov "
            "exponent): 0 means that a rotation keeps its size.\n"
            "Four conditions are compared.\n"
            "(1) Norms live.\n"
            "(2) Norms frozen to one scale: each norm multiplies by the reciprocal of the text's median length at "
            "its site. Gain, shift and centring stay; the sphere is gone.\n"
            "(3) The same, but first tokens keep their own scale, because they may be many times as long.\n"
            "(4) Norms frozen to each token's own scale: the unrotated stream stays as it is, and no norm removes "
            "the radial part of the rotation.\n"
            "In slid windows, the start of the window is rotated and its end is measured. Windows have at most 64 "
            "tokens, slid ones 128: this is stability through depth and over one window, not over long generations."
        ),
        control=(
            "conditions 2, 3 and 4; random initialisation (five untrained models, norms live and frozen); twice the "
            "rotation (is the response linear?)"
        ),
        rule=(
            "Two parts; the weaker decides.\n"
            "Part 1, bounded with norms live. The size of the rotation, at every state and in every slid window, is "
            f"compared with {T.reprojection_bound:.0f} times its first size.\n"
            f"Supported if all intervals end at {T.reprojection_bound:.0f} times or below.\n"
            f"Refuted if any interval lies wholly above {T.reprojection_bound:.0f} times.\n"
            "Undecided otherwise: an interval spans the limit, or is missing.\n"
            "Part 2, norms hold growth back. There are four comparisons: the rotation and ‖x‖, each with norms "
            "frozen as in (2) and (3). In each, the growth over all blocks with norms frozen is divided by that with "
            f"norms live. The ratio lies above or below {T.reprojection_factor:g} only if its whole interval does; it "
            "counts as above if most tokens overflow with norms frozen.\n"
            f"Supported if the ratio lies above {T.reprojection_factor:g} in all four.\n"
            "Qualified if it lies above in some and below in others.\n"
            "Refuted if it lies below in all four.\n"
            "Undecided otherwise: an interval spans its limit, or is missing."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule asks for both ways of freezing, with first tokens and without, after the first numbers "
                "of builtin:gpt and before the other models were measured.",
            ),
            RuleChange(
                "2026-11-16",
                "The two conditions became parts with verdicts of their own. A comparison whose interval spans the "
                "limit no longer counts as 'not held back'. Untrained models are several, not one.",
            ),
            FIVE_SHOWN,
        ),
        rewordings=(
            Rewording("2026-11-18", "51b2af8d24e7", 3),
            Rewording("2026-11-18", "72c7c515a5f9", 3),
            Rewording("2026-11-19", "b80dff0e41ac", 3),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Eleven passes over two thirds of the text, four of each of five twins, and twelve over slid windows.
        return 34.0

    def experiment(self, bench: "Bench") -> RotationGrowth | None:
        from armillary.probes.stability.nudges.perturbation import perturb

        return perturb(bench)

    def conclude(self, evidence: Evidence, result: RotationGrowth | None) -> Finding:
        if result is None:
            reading = "No document is long enough to follow a rotation through it. Give more text, in longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, table(cells("state", "state of the stream", ())))
        angles = {name: result.log_angles(evidence, name) for name in (LIVE, OWN, FROZEN, APART)}
        slid = {name: evidence.intervals(sums) for name, sums in result.slid.items()}
        untrained = {name: result.untrained(evidence, name) for name in (LIVE, FROZEN)}
        parts = (bounded(result, angles, slid[LIVE], untrained[LIVE]), held_back(evidence, result, angles))
        verdict, why = weakest(parts)
        live = f"A small rotation is {np.exp(angles[LIVE][-1, 0]):.2g} times its size after {result.blocks} blocks"
        frozen = f"{np.exp(angles[FROZEN][-1, 0]):.2g} times with norms frozen to one scale"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            parts=parts,
            statistic=Statistic(
                "growth of a rotation per block, norms live (log)", *per_block(angles[LIVE]), "per block"
            ),
            n=result.tokens,
            controls=_controls(result, angles, untrained),
            reading=" ".join(part.reading for part in parts)
            + (" More text, in longer documents, would decide." if why else ""),
            headline=f"{live}; " + ("with norms frozen the stream diverges" if result.overflows(FROZEN) else frozen),
            table=result.table(angles),
            quantities=result.lines(angles, untrained[LIVE]),
            notes=_notes(result),
            more_tables={"windows": result.window_table(slid)},
        )


def _controls(result: RotationGrowth, angles: dict[str, Floats], untrained: dict[str, Floats]) -> tuple[Control, ...]:
    controls = []
    for name in (FROZEN, APART, OWN):
        diverged = np.flatnonzero(np.isnan(angles[name][:, 0]))
        until = f", up to {result.states[diverged[0] - 1]}" if len(diverged) else ""
        controls.append(Control(name + until, *per_block(angles[name])))
    if result.twins:
        controls.append(Control(RANDOM, *per_block(untrained[LIVE])))
        controls.append(Control(f"{RANDOM}, {FROZEN}", *per_block(untrained[FROZEN])))
    return tuple(controls)


def _notes(result: RotationGrowth) -> tuple[str, ...]:
    notes = [
        f"rotated by {result.angle:.2g} radians; {result.documents} documents, windows of {result.window} tokens, slid "
        f"ones of {result.slid_window}; {len(result.twins)} untrained models"
    ]
    for name in (LIVE, FROZEN):
        factor = float(np.exp(mean(result.sums[name, "doubled"].sum(0))[-1]))
        if np.isfinite(factor):
            linear = "linear" if abs(factor - 1) < 0.1 else "not linear"
            notes.append(f"{name}: twice the rotation gives {2 * factor:.3g} times the angle ({linear})")
    lost = {name: float(result.diverged(name)[-1]) for name in (FROZEN, APART)}
    notes += [
        f"{n}: {share:.0%} of tokens overflow and are left out of means" for n, share in lost.items() if share > 0
    ]
    return tuple(notes)
