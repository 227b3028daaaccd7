"""The two parts of reprojection: does a rotation stay bounded, and do norms hold it back?"""

import numpy as np

from armillary.probes.machinery import Evidence, Floats, T, above, missing_interval
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE, OWN, RotationGrowth
from armillary.results import Part, Statistic, Verdict, Why, say


def bounded(result: RotationGrowth, angles: dict[str, Floats], slid: Floats, untrained: Floats) -> Part:
    """Part 1, from the log growth [state or slide, (value, low, high)] with norms live."""
    growth = np.concatenate([angles[LIVE], slid])
    live, bound = np.exp(angles[LIVE][:, 0]), np.log(T.reprojection_bound)
    most = int(live.argmax())
    verdict: Verdict = "undecided"
    if not np.isnan(growth).any() and growth[:, 2].max() <= bound:
        verdict = "supported"
    elif (growth[:, 1] > bound).any():
        verdict = "refuted"
    peak = "" if most in (0, result.blocks) else f" (at most {live[most]:.2g} times, at {result.states[most]})"
    text = (
        f"In windows of {result.window} tokens with norms live, a small rotation is {live[-1]:.2g} times its size "
        f"after {result.blocks} blocks{peak}. If the start of a slid window of {result.slid_window} tokens is rotated, "
        f"its end turns by at most {np.exp(slid[:, 0].max()):.2g} times that angle."
    )
    if np.isfinite(untrained[-1, 0]):
        text += f" In untrained models it is {np.exp(untrained[-1, 0]):.2g} times its size."
    value, low, high = np.exp(growth[int(np.nanargmax(growth[:, 0]))]).tolist()
    statistic = Statistic("largest growth of a rotation, norms live", value, low, high, "times")
    why = None if verdict != "undecided" else missing_interval(*growth.ravel())
    return Part("bounded with norms live", verdict, text, statistic, why=why)


def held_back(evidence: Evidence, result: RotationGrowth, angles: dict[str, Floats]) -> Part:
    """Part 2, from the log ratios of growth with norms frozen and live."""
    ratios = {name: result.log_ratios(evidence, name) for name in (FROZEN, APART)}
    limit = float(np.log(T.reprojection_factor))
    held = {
        f"{what}, {name}": True if result.overflows(name) else above((value, low, high), limit)
        for name, rows in ratios.items()
        for what, (value, low, high) in zip(("rotation", "‖x‖"), rows.tolist(), strict=True)
    }
    verdict, why = in_all(list(held.values()))
    if why is not None:
        why = missing_interval(*np.concatenate([rows.ravel() for rows in ratios.values()]))
    sentences = [
        f"With norms frozen to one scale, {_frozen(result, FROZEN, ratios)}; with first tokens at their own scale, "
        f"{_frozen(result, APART, ratios)}."
    ]
    own = angles[OWN][-1, 0] - angles[LIVE][-1, 0]
    if np.isfinite(own):
        sentences.append(
            f"With norms frozen to each token's own scale, the rotation is {np.exp(own):.2g} times as large."
        )
    if verdict == "qualified":
        no = [name for name, flag in held.items() if flag is False]
        sentences.append(f"Norms do not hold growth back for: {'; '.join(no)}.")
        if sum(name.endswith(APART) for name in no) == 2:
            sentences.append("Mostly the first tokens make the frozen stream grow.")
    statistic = None
    # An overflow has no ratio: it is withheld.
    if not result.overflows(APART):
        value, low, high = np.exp(ratios[APART][0]).tolist()
        name = "growth of the rotation with norms frozen, first tokens apart, over live"
        statistic = Statistic(name, value, low, high, "times")
    return Part("norms hold growth back", verdict, " ".join(sentences), statistic, why=why)


def in_all(held: list[bool | None]) -> tuple[Verdict, Why | None]:
    """Supported if a condition holds in every comparison, qualified if in some, refuted if in none; None: spans."""
    if all(held):
        return "supported", None
    if True in held and False in held:
        return "qualified", None
    return ("undecided", Why.SPANS_LIMIT) if None in held else ("refuted", None)


def _frozen(result: RotationGrowth, name: str, ratios: dict[str, Floats]) -> str:
    if result.overflows(name):
        return f"the stream diverges at {result.states[int(np.flatnonzero(result.diverged(name) > 0.5)[0])]}"
    angle, length = np.exp(ratios[name][:, 0])
    return f"the rotation is {say(angle, '.2g')} times as large as with live norms, ‖x‖ {say(length, '.2g')} times"
