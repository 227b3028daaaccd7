"""What does 'a key–value store' mean? That keys and values give the write, by definition; and, ours, that few do."""

from collections.abc import Callable

import numpy as np

from armillary.probes.attention.lexicon.keys.key_matches import KeyMatches
from armillary.probes.attention.lexicon.word_statistics import TWIN_LAYERS
from armillary.probes.machinery import RANDOM, Evidence, Flags, Floats, Interval, T
from armillary.probes.machinery.verdicts import beats, by_share, missing_interval
from armillary.results import Control, Part, Statistic, Verdict, Why, say

ERROR = "largest error of updates rebuilt from keys and values, relative to the largest update"
RULE = (
    "Supported if no error exceeds 64 roundings of the model's dtype (8 in half precision).\n"
    "Refuted otherwise.\n"
    "It holds by definition, so a support says nothing about training."
)


def definition_part(evidence: Evidence, errors: Floats, layers: list[str], name: str, store: str, writer: str) -> Part:
    """From errors [layer, (as claimed, keys and updates exchanged)]: `store` says what gives the write of `writer`."""
    import torch

    from armillary.flow.laws import ROUNDINGS

    dtype, worst = evidence.anatomy.dtype, float(errors[:, 0].max())
    tolerance = ROUNDINGS[dtype] * torch.finfo(dtype).eps
    size = f"to a relative error of {say(worst, '.1g')}"
    reading = (
        f"{store} give what {writer} writes for a word, {size}. They must, by definition: this says nothing about "
        f"training. With keys and updates exchanged the error is {say(errors[:, 1].min(), '.2g')} or more."
        if worst <= tolerance
        else f"Keys and updates give what {writer} writes only {size} ({layers[int(errors[:, 0].argmax())]}); rounding "
        f"explains {say(tolerance, '.1g')}, so the model computes something that its weights do not show."
    )
    verdict: Verdict = "supported" if worst <= tolerance else "refuted"
    return Part(name, verdict, reading, worst_error(errors))


def worst_error(errors: Floats) -> Statistic:
    """The largest of errors [layer, 2] as claimed. It is no average and has no interval."""
    worst = float(errors[:, 0].max())
    return Statistic(ERROR, worst, worst, worst)


def rebuilding_controls(
    evidence: Evidence, errors: Floats, untrained: Callable[[str, range], Floats]
) -> tuple[Control, ...]:
    """Keys and updates exchanged; and the errors that `untrained` gives for the first layers of each twin."""
    some = range(min(TWIN_LAYERS, evidence.anatomy.layers))

    def largest(arm: str) -> Interval:
        worst = float(untrained(arm, some)[:, 0].max())
        return worst, worst, worst

    worst = float(errors[:, 1].max())
    controls = [Control("keys and updates exchanged", worst, worst, worst)]
    if evidence.twins:
        controls.append(Control(RANDOM, *evidence.over_twins(largest)))
    return tuple(controls)


def few_keys_verdict(stores: Flags, ratio: Interval, untrained: Interval, twins: int) -> tuple[Verdict, Why | None]:
    """From the heads, or layers, that store, and the ratio of the median one to chance."""
    verdict, learned = by_share(stores, most=T.heads_many), beats(ratio, untrained, twins)
    if verdict == "refuted" or learned is False:
        return "refuted", None
    if np.isnan(untrained[2]):
        return "undecided", Why.NO_CONTROL
    if learned is None:
        return "undecided", missing_interval(*ratio)
    return verdict, None


def few_keys_rule(places: str) -> str:
    """The rule of the second part; `places` are heads or layers."""
    place = places.removesuffix("s")
    return (
        f"A {place} stores if its ratio is at least {T.store_ratio} and significant against both kinds of chance "
        f"(at most {T.false_discovery:.0%} false discoveries over {places}, Benjamini–Hochberg).\n"
        f"Supported if at least {T.heads_many:.0%} of {places} store, and the whole interval of the median {place}'s "
        "ratio lies above that of untrained models.\n"
        f"Refuted if at most {T.sites_few:.0%} of {places} store, or if the ratio is no larger than untrained models "
        "reach.\n"
        f"Qualified if more {places} store, but not {T.heads_many:.0%}.\n"
        "Undecided if the interval spans what untrained models reach"
    )


def few_keys_reading(
    matches: KeyMatches, keys: int, place: str, word: str, ratio: Interval, against: list[float], untrained: Interval
) -> str:
    """`place` is a head or a layer; `against` the ratios to rotated keys and to rotated words alone."""
    met, chance = matches.keys[..., 0], matches.keys[..., 1:].min(-1)
    return (
        f"That a {word} matches few keys is our addition: in the median {place} it matches {np.median(met):.1f} of "
        f"{keys} keys, by chance {np.median(chance):.1f}. Its update is {times(ratio)} times as concentrated as by "
        f"chance ({say(against[0], '.2f')} against rotated keys alone, {say(against[1], '.2f')} against rotated "
        f"{word}s alone), in an untrained model {times(untrained)} times."
    )


def times(interval: Interval) -> str:
    value, low, high = (say(end, ".2f") for end in interval)
    return f"{value} ({low} to {high})"
