"""What does 'one space' say, part by part: of exchanges, of gains and shifts, and of the strongest axes?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.machinery import T, above, by_side
from armillary.probes.sphere.gains.shared_axes import AxisOverlap, GainLikeness
from armillary.results import Part, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.sphere.gains.gain_swaps import LayerPair, Swaps

UNIT = "nats/token"


def swap_part(swaps: "Swaps | None", anatomy: "Anatomy") -> Part:
    name = "neighbours can exchange gains and shifts"
    if swaps is None:
        missing = "one layer alone has no neighbour" if anatomy.layers < 2 else "this model predicts no next token"
        return Part(name, "undecided", f"An exchange has no cost here: {missing}.", why=Why.NOT_APPLICABLE)
    statistic = Statistic("cost of exchanging γ and β, median pair", *swaps.median("swap"), UNIT)
    reading = (
        f"In nats per token, exchanging γ and β costs {_costs(swaps, swaps.neighbours)}; permuting their axes costs "
    )
    reading += f"{say(swaps.median('permute')[0], '.2g')} at the median pair."
    for text in dict.fromkeys(STATES.values()):
        pairs = [pair.name for pair in swaps.neighbours if STATES[state_of(swaps, pair)] == text]
        reading += f" {text.format('; '.join(pairs))}." if pairs else ""
    sizes = {pair.name: size_ratio(anatomy, pair) for pair in swaps.neighbours}
    unlike = [f"{name} by a factor of {say(ratio, '.2g')}" for name, ratio in sizes.items() if not 2 / 3 < ratio < 1.5]
    reading += f" The size of γ differs between {', '.join(unlike)}." if unlike else ""
    if swaps.far:
        reading += f" For pairs further apart it costs {_costs(swaps, swaps.far)}."
    verdict, why = swaps.verdict()
    return Part(name, verdict, reading, statistic, why=why)


STATES = {
    "shared": "One space is shared by {}",
    "own": "No space is shared by {}",
    "idle": "Gains do not matter for {}: neither an exchange nor a permutation costs anything",
    "open": "The intervals decide nothing for {}",
}


def state_of(swaps: "Swaps", pair: "LayerPair") -> str:
    if swaps.idle(pair):
        return "idle"
    return {True: "shared", False: "own", None: "open"}[swaps.shared(pair)]


def _costs(swaps: "Swaps", pairs: "Sequence[LayerPair]") -> str:
    return ", ".join(f"{say(swaps.cost(pair)[0], '.2g')} between {pair.name}" for pair in pairs)


def gain_part(gains: GainLikeness) -> Part:
    """Ours, from weights alone."""
    name = "neighbours' gains and shifts are alike"
    gain, shift = (float(values[0]) if len(values) else float("nan") for values in (gains.gain, gains.shift))
    if np.isnan(gain):
        return Part(name, "undecided", "All gains are constant.", asserted=False, why=Why.UNDEFINED)
    reading = f"Over axes, the γ of neighbouring layers have a correlation of {say(gain, '.2f')}"
    reading += f" and their β of {say(shift, '.2f')}" if not np.isnan(shift) else ""
    reading += f" (permuted axes: up to {say(gains.chance, '.2f')})."
    least = np.nanmin([gain, shift])
    verdict: Verdict = "supported" if least > T.shared_half else "refuted" if least < gains.chance else "qualified"
    statistic = Statistic("correlation of neighbours' γ, mean", gain, gain, gain)
    return Part(name, verdict, reading, statistic, asserted=False)


def axes_part(overlap: AxisOverlap | None) -> Part:
    """Ours: a residual stream keeps most of what it had, so neighbours must be somewhat alike."""
    name = "neighbours' strongest axes coincide"
    if overlap is None or len(overlap.by_distance) < 2:
        why = Why.TOO_LITTLE_TEXT if overlap is None else Why.NOT_APPLICABLE
        return Part(name, "undecided", "There are no axes to compare.", asserted=False, why=why)
    ceiling, near, far = overlap.by_distance[0, 0], overlap.by_distance[1], overlap.by_distance[-1, 0]
    reading = (
        f"The strongest {overlap.axes} axes of z overlap by {say(near[0], '.2f')} between neighbouring layers and by "
        f"{say(far, '.2f')} between the first and the last (halves of one layer: {say(ceiling, '.2f')}, random axes: "
        f"{say(overlap.chance, '.2f')})."
    )
    value, low, high = (near / ceiling).tolist()
    side = above((value, low, high), T.shared_half)
    verdict = by_side(side)
    statistic = Statistic("overlap of neighbours' axes over that of one layer's halves", value, low, high)
    return Part(name, verdict, reading, statistic, asserted=False, why=Why.SPANS_LIMIT if side is None else None)


def size_ratio(anatomy: "Anatomy", pair: "LayerPair") -> float:
    """Mean over norms of the ratio of root mean squares."""
    from armillary.probes.sphere.gains.gain_swaps import norms_of

    sizes = [
        [float(anatomy.norms[site].gain.double().square().mean().sqrt()) for site in norms_of(anatomy, layer).values()]
        for layer in (pair.first, pair.second)
    ]
    return float(np.mean([upper / lower for lower, upper in zip(*sizes, strict=True) if lower > 0] or [np.nan]))
