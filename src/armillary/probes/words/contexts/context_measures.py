"""What do a word's states in different contexts show, in every arm and at every depth?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.edits import edited
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, NAN3, SHUFFLED, Evidence, Floats, Interval, T, mean, over_twins
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.intervals import counted, interval, intervals, ratio, triple
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.words.contexts.adjacent_words import Predicted, predicted
from armillary.probes.words.contexts.self_similarity import (
    SampledStates,
    SelfSimilarity,
    same_tokens,
    sampled_states,
    self_similarity,
)
from armillary.probes.words.refinement import falling
from armillary.probes.words.senses.clusters import OFF, SenseScores, sense_scores, silence

SITES = 7


def depth_sites(norms: Sequence[str]) -> tuple[str, ...]:
    """At most seven norm sites, evenly spread over the depth, the first and the last among them.

    >>> depth_sites([f"n{i}" for i in range(13)])
    ('n0', 'n2', 'n4', 'n6', 'n8', 'n10', 'n12')
    """
    return tuple(norms[i] for i in sorted({round(step * (len(norms) - 1) / (SITES - 1)) for step in range(SITES)}))


@dataclass(frozen=True, eq=False)
class ContextPasses:
    """What the probe's own passes left: self-similarity of the same tokens with attention on and off, and states in
    sentences of two senses."""

    on: SelfSimilarity
    off: SelfSimilarity
    senses: SenseScores


def context_passes(bench: Bench) -> ContextPasses:
    anatomy, sites = bench.anatomy, depth_sites(list(bench.anatomy.norms))
    on = sampled_states(anatomy, observe(anatomy, bench.text, [SAMPLES], tick=bench.tick)[SAMPLES], sites)
    with edited(anatomy, *silence(anatomy)):
        off = sampled_states(anatomy, observe(anatomy, bench.text, [SAMPLES], tick=bench.tick)[SAMPLES], sites)
    on, off = same_tokens(on, off)
    groups = bench.corpus.groups
    return ContextPasses(self_similarity(on, groups), self_similarity(off, groups), sense_scores(bench, sites))


class ContextMeasures:
    """Numbers of every arm; those that decide are means over the later half of the sites."""

    def __init__(self, evidence: Evidence, passes: ContextPasses) -> None:
        assert evidence.corpus is not None
        self.evidence, self.passes, self.text = evidence, passes, evidence.corpus
        self.sites = depth_sites(evidence.sites)
        self.later = slice(len(self.sites) // 2, None)

    # Self-similarity.

    @cached_property
    def _states(self) -> dict[str, SampledStates]:
        arms = [MODEL, *self.evidence.twins, SHUFFLED]
        return {arm: sampled_states(self.evidence.model(arm), self.evidence[SAMPLES][arm], self.sites) for arm in arms}

    @cached_property
    def _similar(self) -> dict[str, SelfSimilarity]:
        arms = {arm: self_similarity(states, self.text.groups) for arm, states in self._states.items()}
        return arms | {OFF: self.passes.off}

    @property
    def partners(self) -> int:
        return self._similar[MODEL].tokens

    @property
    def enough(self) -> bool:
        return self.partners >= T.tokens_least

    @cached_property
    def _draws(self) -> dict[str, Floats]:
        return {arm: self._similar[arm].draws(self.evidence.seed) for arm in (MODEL, SHUFFLED, OFF)}

    def own_share(self, arm: str = MODEL) -> Interval:
        draws = self._draws[arm][:, self.later].mean(1)
        return self._similar[arm].interval(draws)

    def own_lost(self) -> Interval:
        """The own share with attention off less that with attention on, of the same tokens in the same draws of
        documents."""
        on, off = self.passes.on, self.passes.off
        more = off.draws(self.evidence.seed) - on.draws(self.evidence.seed)
        return on.interval(more[:, self.later].mean(1))

    def own_by_site(self, arm: str = MODEL) -> Floats:
        """[site, (value, low, high)] of an arm."""
        return self._similar[arm].intervals(self._draws[arm])

    def own_twins(self) -> Floats:
        """[site]: mean over untrained models."""
        twins = [self._similar[arm] for arm in self.evidence.twins]
        return np.mean([similar.own_shares(similar.present[None])[0] for similar in twins], axis=0)

    def cosines(self) -> Floats:
        """[site, (same word, different words)]: means."""
        return self._similar[MODEL].cosines()

    def falls(self) -> Interval:
        """The part of the own share's movement over the sites that goes down."""
        draws = self._draws[MODEL]
        return self._similar[MODEL].interval(falling(np.stack([np.ones_like(draws), draws], -1)))

    # Neighbours.

    @cached_property
    def _predicted(self) -> dict[str, Predicted]:
        return {
            arm: predicted(
                self.evidence.model(arm),
                states,
                self.text.shuffled(self.evidence.seed) if arm == SHUFFLED else self.text,
                self.evidence.seed,
                arm == MODEL,
            )
            for arm, states in self._states.items()
        }

    def neighbours(self, arm: str = MODEL, trial: int = 0) -> Interval:
        """Share of the variance within words; `trial` 1 takes the neighbours of another occurrence."""
        sums = self._predicted[arm].sums[:, self.later, trial].sum(1)
        return interval(sums, lambda s: ratio(s, 1, 0), self.evidence.seed) if self._predicted[arm].tokens else NAN3

    def neighbours_twins(self) -> Interval:
        return triple(over_twins([self.neighbours(arm) for arm in self.evidence.twins]))

    def neighbours_by_site(self, arm: str) -> Floats:
        """[site, (value, low, high)]."""
        return intervals(self._predicted[arm].sums[:, :, 0], lambda sums: ratio(sums, 1, 0), self.evidence.seed)

    # Senses.

    def sense(self, arm: str = MODEL) -> Interval:
        """Mean over words; NaN where the words are too few."""
        scores = self.passes.senses.arms.get(arm)
        if scores is None or len(scores) < T.context_words:
            return NAN3
        return interval(counted(scores[:, self.later].mean(1)), mean, self.evidence.seed)

    def sense_by_site(self) -> Floats:
        """[site, (value, low, high)] of the model."""
        return intervals(counted(self.passes.senses.arms[MODEL]), mean, self.evidence.seed)

    @property
    def sense_arms(self) -> list[str]:
        """The untrained models that read the sentences."""
        return [arm for arm in self.evidence.twins if arm in self.passes.senses.arms]

    def sense_twins(self) -> Interval:
        return triple(over_twins([self.sense(arm) for arm in self.sense_arms]))
