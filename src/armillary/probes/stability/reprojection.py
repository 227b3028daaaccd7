"""Do norms keep the state from diverging?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Flags, Floats, T, cells, mean, table, undecided
from armillary.probes.stability.growth import APART, FROZEN, LIVE, OWN, RotationGrowth, per_block
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Verdict, Why, say

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
        definition=(
            "Before the first block every token's state is rotated by a small angle in a random direction. Measured "
            "is how much the rotation and ‖x‖ have grown after each block: geometric means over tokens, first tokens "
            "left out. Four conditions are compared. (1) Norms live. (2) Norms frozen to one scale: each multiplies "
            "by the reciprocal of the text's median length there. Gain, shift and centring stay; the sphere is gone. "
            "(3) The same, but first tokens keep their own scale, because they may be many times as long. (4) Norms "
            "frozen to each token's own scale: the unrotated stream stays as it is, and no norm removes the radial "
            "part of the rotation. In slid windows the start is rotated and the end is measured. The statistic is the "
            "growth per block with norms live, as a logarithm (like a Lyapunov exponent)."
        ),
        control="conditions 2, 3 and 4; random initialisation; twice the rotation (is the response linear?)",
        rule=(
            "Bounded: with norms live the rotation is at no state, and in no slid window, more than "
            f"{T.reprojection_bound:g} times its first size (upper ends of the intervals). Held back: over all blocks, "
            f"the rotation, or ‖x‖, grows at least {T.reprojection_factor:g} times as much with norms frozen (lower "
            "end of the ratio; an overflow of most tokens counts). There are four comparisons: the rotation and ‖x‖, "
            "each with conditions 2 and 3. Supported if bounded and held back in all four. Qualified if bounded and "
            f"held back in some. Refuted if not bounded (a lower end above {T.reprojection_bound:g}), or if held back "
            f"in none and all upper ends of the ratios lie below {T.reprojection_factor:g}. Undecided otherwise."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule asks for both ways of freezing, with first tokens and without, after the first numbers "
                "of builtin:gpt and before the other models were measured.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        # Fifteen passes over two thirds of the text, two of them without first tokens and four of the twin, and twelve
        # over slid windows.
        return 22.0

    def experiment(self, bench: "Bench") -> RotationGrowth | None:
        from armillary.probes.stability.perturbation import perturb

        return perturb(bench)

    def conclude(self, evidence: Evidence, result: RotationGrowth | None) -> Finding:
        if result is None:
            reading = "No document is long enough to follow a rotation through it. Give more text, in longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, table(cells("state", "state of the stream", ())))
        angles = {name: result.log_angles(evidence, name) for name in (LIVE, OWN, FROZEN, APART)}
        slid = {name: evidence.intervals(sums) for name, sums in result.slid.items()}
        ratios = {name: result.log_ratios(evidence, name) for name in (FROZEN, APART)}
        held = np.concatenate([_held_back(result, name, ratios[name]) for name in (FROZEN, APART)])
        highs = np.concatenate([ratios[name][:, 2] for name in (FROZEN, APART)])
        verdict, why = _decide(np.concatenate([angles[LIVE], slid[LIVE]])[:, 1:], held, highs)
        live = f"A small rotation is {np.exp(angles[LIVE][-1, 0]):.2g} times its size after {result.blocks} blocks"
        frozen = f"{np.exp(angles[FROZEN][-1, 0]):.2g} times with norms frozen to one scale"
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic(
                "growth of a rotation per block, norms live (log)", *per_block(angles[LIVE]), "per block"
            ),
            n=result.tokens,
            controls=_controls(evidence, result, angles),
            reading=_reading(result, angles, slid, ratios)
            + _first_tokens_alone(verdict, held)
            + (" More text, in longer documents, would decide." if why else ""),
            headline=f"{live}; " + ("with norms frozen the stream diverges" if result.overflows(FROZEN) else frozen),
            table=result.table(angles),
            quantities=result.lines(angles),
            notes=_notes(result),
            more_tables={"windows": result.window_table(slid)},
        )


def _held_back(result: RotationGrowth, name: str, ratios: Floats) -> Flags:
    """[(rotation, ‖x‖)]: do live norms hold the growth back, compared with this way of freezing?"""
    return np.asarray((ratios[:, 1] >= np.log(T.reprojection_factor)) | result.overflows(name))


def _decide(ends: Floats, held: Flags, highs: Floats) -> tuple[Verdict, Why | None]:
    """From the interval ends [state or slide, (low, high)] of the log growth with norms live, and the ratios."""
    bound = np.log(T.reprojection_bound)
    if np.isnan(ends).any():
        return "undecided", Why.NO_INTERVAL
    if ends[:, 0].max() > bound:
        return "refuted", None
    if ends[:, 1].max() <= bound and held.any():
        return "supported" if held.all() else "qualified", None
    if not held.any() and highs.max() < np.log(T.reprojection_factor):
        return "refuted", None
    return "undecided", Why.SPANS_LIMIT


def _controls(evidence: Evidence, result: RotationGrowth, angles: dict[str, Floats]) -> tuple[Control, ...]:
    controls = []
    for name in (FROZEN, APART, OWN):
        diverged = np.flatnonzero(np.isnan(angles[name][:, 0]))
        until = f", up to {result.states[diverged[0] - 1]}" if len(diverged) else ""
        controls.append(Control(name + until, *per_block(angles[name])))
    twins = {f"{RANDOM}, {name}": result.sums.get((f"{RANDOM}, {name}", "angle")) for name in (LIVE, FROZEN)}
    controls += [Control(n, *per_block(evidence.intervals(sums))) for n, sums in twins.items() if sums is not None]
    return tuple(controls)


def _reading(
    result: RotationGrowth, angles: dict[str, Floats], slid: dict[str, Floats], ratios: dict[str, Floats]
) -> str:
    live = np.exp(angles[LIVE][:, 0])
    most, own = int(live.argmax()), angles[OWN][-1, 0] - angles[LIVE][-1, 0]
    peak = "" if most in (0, result.blocks) else f" (at most {live[most]:.2g} times, at {result.states[most]})"
    sentences = [
        f"With norms live a small rotation is {live[-1]:.2g} times its size after {result.blocks} blocks{peak}.",
        f"With norms frozen to one scale, {_frozen(result, FROZEN, ratios)}; with first tokens at their own scale, "
        f"{_frozen(result, APART, ratios)}.",
        "If the start of a slid window is rotated, its end moves by at most "
        f"{np.exp(slid[LIVE][:, 0].max()):.2g} of that.",
    ]
    if np.isfinite(own):
        sentences.insert(2, f"With norms frozen to each token's own scale, it is {np.exp(own):.2g} times as large.")
    return " ".join(sentences)


def _frozen(result: RotationGrowth, name: str, ratios: dict[str, Floats]) -> str:
    if result.overflows(name):
        return f"the stream diverges at {result.states[int(np.flatnonzero(result.diverged(name) > 0.5)[0])]}"
    angle, length = np.exp(ratios[name][:, 0])
    return f"it is {say(angle, '.2g')} times as large as live, and ‖x‖ is {say(length, '.2g')} times as long"


def _first_tokens_alone(verdict: Verdict, held: Flags) -> str:
    if verdict == "qualified" and not held[2:].any():
        return " Only the first tokens make the frozen stream grow: with their own scale, the others stay as they are."
    return ""


def _notes(result: RotationGrowth) -> tuple[str, ...]:
    notes = [f"rotated by {result.angle:.2g} radians; {result.documents} documents"]
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
