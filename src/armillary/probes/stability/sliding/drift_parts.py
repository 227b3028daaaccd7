"""The two parts of drift: is there any, and do norms hold it back?"""

import numpy as np

from armillary.probes.machinery import Evidence, Floats, T, above, missing_interval
from armillary.probes.machinery.intervals import triple
from armillary.probes.stability.nudges.growth import APART, FROZEN, OWN
from armillary.probes.stability.nudges.growth_parts import in_all
from armillary.probes.stability.sliding.window_angles import WindowAngles
from armillary.results import Part, Statistic, Verdict, Why, say

WAYS = {
    FROZEN: "frozen to one scale",
    APART: "frozen with first tokens apart",
    OWN: "frozen to the scale each token had",
}


def drifts(
    result: WindowAngles, angles: Floats, in_place: Floats, untrained: Floats, growth: Floats, learned: bool
) -> Part:
    """Part 1, from angles [slide, state, (value, low, high)] in degrees, and the last state's under controls."""
    single, half, same = (triple(values) for values in (angles[0, -1], angles[-1, -1], in_place))
    verdict, why = _drifted(*(above(angle, T.drift_degrees) for angle in (half, single, same)))
    if verdict == "undecided":
        why = missing_interval(*single, *half, *same)
    most = int(np.nanargmax(angles[-1, :, 0]))
    text = (
        f"In windows of {result.window} tokens, a token's last state moves by {single[0]:.2g}° when one token slides "
        f"out and by {half[0]:.2g}° when {result.slides[-1]} do; the state that moves most is {result.states[most]} "
        f"({angles[-1, most, 0]:.2g}°).{_growing(*growth)}"
    )
    if verdict == "qualified":
        where = ["after one token"] if single[2] < T.drift_degrees else []
        where += ["with positions kept"] if same[2] < T.drift_degrees else []
        text += f" It moves by less than {T.drift_degrees:g}° {' and '.join(where)}."
    if learned:
        share = "positions hardly matter"
        if abs(same[0] - half[0]) > half[0] / 10:
            partly = "restarting positions makes up for part of it"
            share = partly if same[0] > half[0] else "the rest is due to the position table"
        text += f" With positions kept, so that only the context differs, it moves by {same[0]:.2g}°: {share}."
    if np.isfinite(untrained[0]):
        text += f" In untrained models it moves by {untrained[0]:.2g}°: drift needs no training."
    return Part("states drift", verdict, text, Statistic("angle moved by the last state", *half, "degrees"), why=why)


def _drifted(half: bool | None, single: bool | None, in_place: bool | None) -> tuple[Verdict, Why | None]:
    """The rule, from whether each angle lies above the limit (None: spans it)."""
    if half is False:
        return "refuted", None
    if half and single and in_place:
        return "supported", None
    if half and False in (single, in_place):
        return "qualified", None
    return "undecided", Why.SPANS_LIMIT


def _growing(whole: Floats, first: Floats, last: Floats) -> str:
    """How the last state's angle grows, from exponents (value, low, high) over all, the first and the last slides."""
    if np.isnan(whole).any():
        return ""
    value, low, high = (say(part, ".2f") for part in whole)
    text = f" The angle grows as the slide to the power of {value} [{low}, {high}]"
    ends = f"{say(first[0], '.2f')} over the first slides, {say(last[0], '.2f')} over the last"
    if last[2] < first[1]:
        return f"{text}, slower and slower ({ends})."
    return f"{text}, faster and faster ({ends})." if last[1] > first[2] else f"{text}."


def held_back(evidence: Evidence, result: WindowAngles) -> Part:
    """Part 2, from the ratios of angles with norms frozen and live."""
    ratios = {name: result.ratio(evidence, name) for name in WAYS}
    larger = {
        name: True if result.diverges(name) else above(ratio, T.reprojection_factor) for name, ratio in ratios.items()
    }
    verdict, why = in_all(list(larger.values()))
    says = [
        ("without bound" if result.diverges(name) else f"{say(ratio[0], '.2g')} times as far")
        + f" with norms {WAYS[name]}"
        for name, ratio in ratios.items()
    ]
    statistic = None
    if np.isfinite(ratios[APART][0]):
        statistic = Statistic(f"angle with norms {WAYS[APART]}, over that with norms live", *ratios[APART], "times")
    if verdict == "undecided":
        known = all(result.diverges(name) or np.isfinite(ratio[0]) for name, ratio in ratios.items())
        why = Why.UNDEFINED if not known else missing_interval(*(end for ratio in ratios.values() for end in ratio))
        if not known:
            text = "With norms live states move by no more than rounding, so there is no drift to hold back."
            return Part("norms hold the drift back", verdict, text, statistic, why=why)
    text = f"Compared with live norms, the last state moves {', '.join(says)}."
    if verdict == "qualified":
        yes, no = ([WAYS[name] for name, flag in larger.items() if flag is wanted] for wanted in (True, False))
        text += (
            f" So norms hold the drift back compared with norms {' or '.join(yes)}, not with norms {' or '.join(no)}."
        )
    return Part("norms hold the drift back", verdict, text, statistic, why=why)
