"""Which heads lean to a kind of token, and how much do the heads of a layer differ?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.patterns import PatternSums, measure_patterns, repeated, texts
from armillary.probes.instruments.roles import KINDS, MEANINGS, ROLES, name_roles
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, Evidence, Flags, Floats, Interval, T, discoveries, mean
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.tables import cells, head_table, line
from armillary.results import Quantity, Table


@dataclass(frozen=True, eq=False)
class KindScores:
    """Attention of every head by kind of token, in each arm."""

    states: Mapping[str, PatternSums]
    texts: int

    def sums(self, arm: str, name: str) -> Floats:
        """[document group, layer, head, (queries, sum)]."""
        return self.states[arm].of(name)

    def score(self, arm: str, name: str) -> Floats:
        """[layer, head]."""
        return mean(self.sums(arm, name).sum(0))

    def scores(self) -> dict[str, Floats]:
        """kind or content → [layer, head] of the model."""
        return {kind: self.score(MODEL, kind) for kind in ROLES}

    def best_random(self, kind: str) -> float:
        """The score of the best head at random initialisation."""
        scores = self.score(RANDOM, kind)
        return float(np.nanmax(scores)) if np.isfinite(scores).any() else 0.0

    def leaning(self) -> dict[str, Flags]:
        """kind → [layer, head]: a quarter or more, and significantly above the best random head."""
        significant = discoveries(np.stack([self._p_values(kind) for kind in KINDS]))
        return {
            kind: np.asarray(significant[i] & (np.nan_to_num(self.score(MODEL, kind)) >= T.role_leaning))
            for i, kind in enumerate(KINDS)
        }

    def _p_values(self, kind: str) -> Floats:
        """One-sided, over documents: that a head's score exceeds that of the best random head, the same for all."""
        from scipy.special import stdtr

        model, random = mean(self.sums(MODEL, kind)), mean(self.sums(RANDOM, kind))
        scores = self.score(RANDOM, kind)
        if not np.isfinite(scores).any():
            return np.ones(model.shape[1:])
        best = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
        apart = model - random[:, best[0], best[1]][:, None, None]
        known = np.isfinite(apart)
        count = known.sum(0)
        average = np.where(known, apart, 0).sum(0) / np.maximum(count, 1)
        power = (np.where(known, apart - average, 0) ** 2).sum(0) / np.maximum(count - 1, 1)
        t = average / np.sqrt(np.maximum(power / np.maximum(count, 1), 1e-24))
        return np.asarray(np.where(count > 2, stdtr(np.maximum(count - 1, 1), -t), 1.0))

    def share(self, evidence: Evidence, arm: str, common: list[str]) -> Interval:
        """The share of heads with a score of a quarter or more, above the best random head (of the twin itself: a
        quarter or more), for a kind that is not common; with its interval over documents."""
        kinds = [kind for kind in KINDS if kind not in common]
        stats = np.stack([self.sums(arm, kind) for kind in kinds], 1)
        best = [0.0 if arm == RANDOM else self.best_random(kind) for kind in kinds]
        least = np.maximum(T.role_leaning, best)[:, None, None]

        def statistic(drawn: Floats) -> Floats:
            return np.asarray((np.nan_to_num(mean(drawn)) >= least).any(-3).mean((-1, -2)), dtype=float)

        return evidence.interval(stats, statistic)

    def difference(self, evidence: Evidence, arm: str) -> Interval:
        """Of the median layer: total variation between two heads' patterns, mean over pairs."""
        return evidence.interval(self.sums(arm, "differs"), lambda s: np.median(mean(s).mean(-1), axis=-1))

    def table(self, evidence: Evidence, leaning: Mapping[str, Flags]) -> Table:
        scores = self.scores()
        strength = np.stack([np.where(leaning[kind], scores[kind], -1.0) for kind in KINDS])
        leans = np.where(strength.max(0) >= 0, np.array(KINDS)[strength.argmax(0)], "")
        differs = self.score(MODEL, "differs")
        return head_table(
            evidence.anatomy,
            cells("role", "the kind that takes half of its attention or more", name_roles(scores)),
            cells("leans", "strongest kind with a quarter or more, and above every random head", leans),
            *(cells(kind, meaning, scores[kind]) for kind, meaning in MEANINGS.items()),
            cells("entropy", "of attention, over ln(keys): 1 is uniform", self.score(MODEL, "entropy")),
            cells(
                "differs",
                "total variation from the patterns of the layer's other heads, mean",
                differs if differs.shape[1] > 1 else np.full_like(differs, np.nan),
            ),
        )

    def quantities(self, evidence: Evidence) -> tuple[Quantity, ...]:
        known = {kind: values for kind, values in self.scores().items() if np.isfinite(values).any()}
        stacked = np.stack(list(known.values()))
        layers = [f"L{i}" for i in range(stacked.shape[1])]
        kinds = Quantity(
            "what heads attend to",
            "share of attention by kind of token; content: the share that depends on the words",
            "share",
            ("kind", "layer", "head"),
            {"kind": list(known), "layer": layers, "head": [f"H{i}" for i in range(stacked.shape[2])]},
            stacked,
        )
        if stacked.shape[2] < 2:
            return (kinds,)
        by_layer = {
            arm: evidence.intervals(self.sums(arm, "differs"), lambda sums: mean(sums).mean(-1)) for arm in self.states
        }
        differences = line(
            "how much the heads of a layer differ",
            "total variation between two heads' patterns of the same query, mean over pairs",
            "share of attention",
            "layer",
            layers,
            by_layer.pop(MODEL),
            {arm: values[:, 0] for arm, values in by_layer.items()},
        )
        return kinds, differences


def kind_scores(bench: Bench, length_least: int) -> KindScores | None:
    """On texts of one length, in every arm; None where texts are shorter than `length_least`."""
    text = texts(bench.text, T.documents_least)
    if not text.windows or len(text.windows[0].ids) < length_least or bench.twin is None:
        return None
    return KindScores({arm: _measure(bench, arm) for arm in (MODEL, RANDOM, SHUFFLED)}, len(text.windows))


def _measure(bench: Bench, arm: str) -> PatternSums:
    side = bench.arm(arm)
    text, copies = texts(side.text, T.documents_least), None
    # Repeated random tokens have no order to shuffle.
    if arm != SHUFFLED:
        documents = [window.document for window in text.windows]
        copies = repeated(bench.corpus, documents, side.anatomy.context, bench.seed)
    return measure_patterns(side.anatomy, text, copies, bench.tick)
