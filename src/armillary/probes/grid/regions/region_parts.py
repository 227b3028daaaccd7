"""Does what heads do depend on the region, and do different heads have different regions?"""

from functools import cached_property

import numpy as np

from armillary.probes.grid.regions.readings import MEASURES
from armillary.probes.grid.regions.shares import (
    RANDOM_PARTITION,
    RegionPasses,
    alike,
    by_document,
    head_shares,
    median_share,
    region_heads,
    shares,
)
from armillary.probes.machinery import (
    MODEL,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    beats,
    missing_interval,
    name_sites,
)
from armillary.probes.machinery.verdicts import more_text
from armillary.results import Part, Statistic, Verdict, Why, say


class RegionShares:
    """Shares of the model, of untrained models and of random partitions."""

    def __init__(self, passes: RegionPasses, evidence: Evidence) -> None:
        self.passes, self.evidence, self.seed = passes, evidence, evidence.seed
        self.parts = passes.arms[MODEL]
        self.median = median_share(self.parts, self.seed)
        self.random = median_share(self.parts, self.seed, RANDOM_PARTITION)
        self.untrained: Interval = evidence.over_twins(lambda arm: median_share(passes.arms[arm], self.seed))
        self.heads: Flags = region_heads(self.parts, self.seed)
        self.alike = alike(self.parts, self.seed)

    @cached_property
    def by_head(self) -> Floats:
        """[layer, head]: mean of the measures."""
        return head_shares(by_document(self.parts).sum(0))

    @cached_property
    def by_measure(self) -> Floats:
        """[measure, layer, head]."""
        return np.moveaxis(shares(by_document(self.parts).sum(0)), -1, 0)

    @cached_property
    def names(self) -> list[str]:
        heads = self.heads.shape[1]
        return [f"L{layer}H{head}" for layer in self.passes.layers for head in range(heads)]


def region_parts(measured: RegionShares) -> tuple[Part, Part]:
    return _depends(measured), _different(measured)


def _depends(measured: RegionShares) -> Part:
    share, untrained = measured.median, measured.untrained
    learned = beats(share, untrained, len(measured.evidence.twins))
    sides = [above(share, T.regions_share), learned, above(share, measured.random[2])]
    verdict: Verdict = "undecided"
    if all(sides):
        verdict = "supported"
    elif sides[1] is False or sides[2] is False or (sides[0] is False and measured.heads.mean() <= T.sites_few):
        verdict = "refuted"
    elif sides == [False, True, True]:
        verdict = "qualified"
    why: Why | None = None
    if verdict == "undecided":
        why = Why.NO_CONTROL if np.isnan(untrained[2]) else missing_interval(*share, measured.random[2])
    which = [name for name, flag in zip(measured.names, measured.heads.ravel(), strict=True) if flag]
    named = f" ({name_sites(which)})" if 0 < len(which) < len(measured.names) else ""
    medians = zip(MEASURES, np.median(measured.by_measure, axis=(1, 2)), strict=True)
    each = ", ".join(f"{name} {say(value, '.0%')}" for name, value in medians)
    reading = (
        f"Regions explain {say(share[0], '.0%')} of the variance of what the median head does on other documents "
        f"({each}); untrained models {say(untrained[0], '.0%')}, random partitions {say(measured.random[0], '.0%')}. "
        f"Heads with {T.regions_share:.0%} or more: {len(which)} of {len(measured.names)}{named}."
    )
    name = "what heads do depends on the region"
    return Part(name, verdict, reading + more_text(why), Statistic("share, median head", *share), why=why)


def _different(measured: RegionShares) -> Part:
    name, agreement = "different heads, different regions", measured.alike
    if measured.heads.shape[1] < 2:
        reading = "A layer of this model has one head. A model with several would decide."
        return Part(name, "undecided", reading, why=Why.NOT_APPLICABLE)
    if np.isnan(agreement[0]):
        reading = "No head writes more in some regions on both halves, so there is nothing to compare."
        return Part(name, "undecided", reading, why=Why.UNDEFINED)
    side = above(agreement, T.regions_alike)
    why = missing_interval(*agreement) if side is None else None
    return Part(
        name,
        "undecided" if side is None else "refuted" if side else "supported",
        f"Two heads of a layer have an agreement of {say(agreement[0], '.2f')} on where they write much (1: the "
        f"same regions, 0: unrelated ones).{more_text(why)}",
        Statistic("agreement of two heads about regions, median layer", *agreement),
        why=why,
    )
