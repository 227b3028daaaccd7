"""Do the singular vectors of W_QK lie along the main axes of the data?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.lexicon.word_statistics import twin_layers, twin_note
from armillary.probes.attention.spaces.axis_overlaps import GAUSSIANS, RANK, AxisOverlaps, axis_overlaps
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    AnyInstrument,
    Evidence,
    Flags,
    Interval,
    T,
    above,
    all_of,
    beats,
    cells,
    discoveries,
    head_map,
    head_table,
    missing_interval,
    name_heads,
)
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Table, Verdict, Why, say


@dataclass(frozen=True)
class PrincipalAxes:
    """Principal angles between leading singular subspaces and principal axes."""

    claim: ClassVar[Claim] = Claim(
        id="qk.axes",
        chapter="B",
        kind="learned",
        statement="The leading singular vectors of W_QK lie along the principal axes of the data.",
        source="S0 R",
        question=(
            "The data vary most along a few directions. Are these the directions that a head's queries and keys "
            "look at?"
        ),
        definition=(
            "Do a head's queries and keys look along the directions in which the data vary most? A head's overlap is "
            f"the share of the {RANK} leading singular vectors of its W_QK (Δ = 0) that lies along the {RANK} "
            "principal axes of the data: the mean cos² of the principal angles, 1 for the same subspace. The query "
            "and the key side are measured separately, and the larger counts.\n"
            "The statistic is a head's overlap divided by that of random heads, larger side compared with larger "
            "side, for the median head. Its interval is a bootstrap over documents.\n"
            "The data are sampled directions at the norm that the head reads. The axes of the token embeddings after "
            "the same norm are measured too."
        ),
        control=(
            f"{GAUSSIANS} heads with Gaussian W_Q and W_K after the same gain and centring, measured the same way; "
            "random initialisation"
        ),
        rule=(
            f"A head leans to the data's axes if its overlap is significant (at most {T.false_discovery:.0%} false "
            f"discoveries, Benjamini–Hochberg) and at least {T.axes_factor:g} times that of random heads. Two numbers "
            "of the median head are compared with their whole intervals: its overlap, and the ratio of its overlap to "
            "that of random heads.\n"
            f"Supported if at least {T.heads_many:.0%} of heads lean, the ratio is above {T.axes_factor:g} and above "
            f"that of untrained models, and the overlap is above {T.axes_share:.0%}.\n"
            f"Refuted if at most {T.sites_few:.0%} of heads lean, or if the ratio is no larger than that of untrained "
            "models.\n"
            "Qualified if the ratio is above that of untrained models, but either the ratio is below "
            f"{T.axes_factor:g} (then fewer than half of the heads lean) or the overlap is below {T.axes_share:.0%}.\n"
            f"Undecided otherwise: if an interval spans its limit, if fewer than {T.heads_many:.0%} of heads lean "
            "although ratio and overlap are above their limits, or without untrained models."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "At first the ratio to random heads alone counted, and every head of the first model passed although "
                "it shared little of its subspace. Half of the subspace must now be shared as well.",
            ),
            RuleChange(
                "2026-11-16",
                "The larger of a head's two sides was divided by the mean of one side of random heads, which put "
                "every untrained model above 1. Both are now the larger of two sides. The control was not measured "
                "but written down as 1; intervals were printed for three documents. Untrained models are part of the "
                "rule.",
            ),
            RuleChange(
                "2026-11-18",
                "The number of heads that lean decided without an interval: a planted model was supported with a "
                "median ratio of 2.000 [1.995, 2.004]. The whole interval of the median head's ratio must now pass 2, "
                "or stay below it.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "d48696e0cf02", 3),
            Rewording("2026-11-18", "80fca2c443ed", 3),
            Rewording("2026-11-18", "6c28e32aad51", 3),
            Rewording("2026-11-19", "7b9c3d243d89", 3),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def conclude(self, evidence: Evidence) -> Finding:
        layers = evidence.anatomy.layers
        overlaps = axis_overlaps(evidence, MODEL, range(layers), words=True)
        twins = {arm: axis_overlaps(evidence, arm, twin_layers(layers)) for arm in evidence.twins}
        untrained = evidence.over_twins(lambda arm: twins[arm].median)
        leaning = discoveries(overlaps.p) & (overlaps.ratio >= T.axes_factor)
        verdict, why = _verdict(leaning, overlaps, untrained, len(evidence.twins))
        control = Control(RANDOM, *untrained)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic(
                "overlap with the data's axes over that of random heads, median head", *overlaps.median
            ),
            n=leaning.size,
            controls=(
                Control("Gaussian heads", *overlaps.by_chance(evidence.seed)),
                *([control] if evidence.twins else []),
            ),
            reading=_reading(overlaps, leaning, untrained),
            headline=(
                f"W_QK's leading vectors overlap the data's axes {say(overlaps.median[0], '.2g')} times as much as "
                f"those of random heads, by {say(overlaps.shared[0], '.0%')} of their subspace"
            ),
            table=_table(evidence, overlaps, leaning),
            quantities=(
                head_map(
                    "overlap with the data's axes over that of random heads",
                    f"{RANK} leading singular vectors of W_QK, larger side, compared with {RANK} principal axes",
                    "times a random head's",
                    overlaps.ratio,
                    log=True,
                ),
            ),
            notes=(twin_note(evidence, len(twin_layers(layers))),),
        )


def _verdict(leaning: Flags, overlaps: AxisOverlaps, untrained: Interval, twins: int) -> tuple[Verdict, Why | None]:
    learned, shares = beats(overlaps.median, untrained, twins), above(overlaps.shared, T.axes_share)
    # Half of the heads have the ratio if the median head has it. Significance is a matter of each head by itself.
    many = all_of(above(overlaps.median, T.axes_factor), bool(leaning.mean() >= T.heads_many) or None)
    if leaning.mean() <= T.sites_few or learned is False:
        return "refuted", None
    if np.isnan(untrained[2]):
        return "undecided", Why.NO_CONTROL
    both = all_of(shares, many)
    if learned is None or both is None:
        return "undecided", missing_interval(*overlaps.median, *overlaps.shared)
    return ("supported" if both else "qualified"), None


def _reading(overlaps: AxisOverlaps, leaning: Flags, untrained: Interval) -> str:
    words = np.median(overlaps.words.max(0) / overlaps.null)
    query, key = np.median(overlaps.sides, axis=(1, 2))
    some = name_heads(leaning) if leaning.mean() < T.heads_many else f"all but {name_heads(~leaning)}"
    names = f" ({some})" if 0 < leaning.sum() < leaning.size else ""
    value, low, high = (say(end, ".2g") for end in overlaps.median)
    return (
        f"In the median head, the leading vectors of W_QK overlap the data's main axes {value} times ({low} to {high}) "
        f"as much as those of random heads; in an untrained model, {say(untrained[0], '.2g')} times. Heads that lean "
        f"to these axes: {leaning.sum()} of {leaning.size}{names}. The median head shares {say(query, '.2f')} of its "
        f"subspace with them on the query side and {say(key, '.2f')} on the key side (1 is all of it). With the axes "
        f"of the bare embeddings the ratio is {say(words, '.2g')}."
    )


def _table(evidence: Evidence, overlaps: AxisOverlaps, leaning: Flags) -> Table:
    shape = leaning.shape
    return head_table(
        evidence.anatomy,
        cells("query", "overlap of the query side with the axes of the activations", overlaps.sides[0]),
        cells("key", "overlap of the key side with the axes of the activations", overlaps.sides[1]),
        cells(
            "null", "overlap of Gaussian heads after the same norm, larger side", np.broadcast_to(overlaps.null, shape)
        ),
        cells("ratio", "overlap of the larger side over null", overlaps.ratio),
        cells(
            "p",
            "probability that a Gaussian head overlaps as much, larger side to larger side, normal approximation",
            overlaps.p,
        ),
        cells("leans", f"is it significant over all heads and at least {T.axes_factor:.0f} times null?", leaning),
        cells("query_words", "overlap of the query side with the axes of the token embeddings", overlaps.words[0]),
        cells("key_words", "overlap of the key side with the axes of the token embeddings", overlaps.words[1]),
    )
