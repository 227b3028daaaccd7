"""Which heads lean to a kind of token, and how much do the heads of a layer differ?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.instruments.head_parts.roles import KINDS, MEANINGS, ROLES, SPECIALITIES, name_roles
from armillary.probes.instruments.patterns import PatternSums, measure_patterns, repeated, texts
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, TWINS, Evidence, Flags, Floats, Interval, T, mean, once
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.tables import cells, head_table, line
from armillary.results import Quantity, Table


@dataclass(frozen=True, eq=False)
class KindScores:
    """Attention of every head by kind of token, in each arm."""

    states: Mapping[str, PatternSums]
    texts: int

    def sums(self, arm: str, name: str) -> Floats:
        """[document group, layer, head, (queries, sum)]. Repeated random tokens have no order to shuffle: induction is
        measured once."""
        return self.states[MODEL if (arm, name) == (SHUFFLED, "induction") else arm].of(name)

    def score(self, arm: str, name: str) -> Floats:
        """[layer, head]."""
        return mean(self.sums(arm, name).sum(0))

    def scores(self) -> dict[str, Floats]:
        """kind or content → [layer, head] of the model."""
        return {kind: self.score(MODEL, kind) for kind in ROLES}

    def leaning(self) -> dict[str, Flags]:
        """kind → [layer, head]: a quarter or more of the attention."""
        return {kind: np.asarray(np.nan_to_num(self.score(MODEL, kind)) >= T.role_leaning) for kind in KINDS}

    def _special(self, arms: Sequence[str], common: tuple[str, ...]) -> Floats:
        """[document group, arm, kind, layer, head, (queries, sum)] of the kinds that can be a speciality."""
        kinds = [kind for kind in SPECIALITIES if kind not in common]
        return np.stack([np.stack([self.sums(arm, kind) for kind in kinds], 1) for arm in arms], 1)

    def share(self, evidence: Evidence, arm: str, common: tuple[str, ...]) -> Interval:
        """The share of heads with a speciality, with its interval over documents."""
        return evidence.interval(self._special([arm], common), lambda drawn: _share(drawn)[:, 0])

    def beyond_shuffled(self, evidence: Evidence, common: tuple[str, ...]) -> Interval:
        """The share on text less that on shuffled text, document by document."""
        return evidence.interval(
            self._special([MODEL, SHUFFLED], common), lambda drawn: _share(drawn)[:, 0] - _share(drawn)[:, 1]
        )

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
            cells("leans", "strongest kind with a quarter of its attention or more", leans),
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
        model, shuffled = by_layer[MODEL], by_layer[SHUFFLED][:, 0]
        twins = np.mean([by_layer[arm][:, 0] for arm in TWINS if arm in by_layer], axis=0)
        differences = line(
            "how much the heads of a layer differ",
            "total variation between two heads' patterns of the same query, mean over pairs",
            "share of attention",
            "layer",
            layers,
            model,
            {RANDOM: twins, SHUFFLED: shuffled},
        )
        return kinds, differences


@once
def kind_scores(bench: Bench, length_least: int) -> KindScores | None:
    """On texts of one length, in every arm; None where texts are shorter than `length_least`."""
    text = texts(bench.text, T.documents_least)
    if not text.windows or len(text.windows[0].ids) < length_least or not bench.twins:
        return None
    return KindScores({arm: _measure(bench, arm) for arm in (MODEL, *bench.twins, SHUFFLED)}, len(text.windows))


def _share(drawn: Floats) -> Floats:
    """[draw, arm] from sums [draw, arm, kind, layer, head, (queries, sum)]."""
    return np.asarray((np.nan_to_num(mean(drawn)) >= T.role_leaning).any(-3).mean((-1, -2)), dtype=float)


def _measure(bench: Bench, arm: str) -> PatternSums:
    side = bench.arm(arm)
    text, copies = texts(side.text, T.documents_least), None
    # Repeated random tokens have no order to shuffle, and images and clips cannot be repeated within their size.
    if arm != SHUFFLED and not bench.corpus.whole:
        documents = [window.document for window in text.windows]
        copies = repeated(bench.corpus, documents, side.anatomy.context, bench.seed)
    return measure_patterns(side.anatomy, text, copies, bench.tick)
