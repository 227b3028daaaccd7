"""Does W_QK bring related words together and keep unrelated ones apart?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.lexicon.known_words import too_few, unreadable, word_notes
from armillary.probes.attention.lexicon.related_nouns import (
    REPAIRINGS,
    Pairing,
    RelationScores,
    pairings_of,
    related_pairs,
    relation_scores,
)
from armillary.probes.attention.lexicon.word_statistics import median_over_heads, word_interval, word_intervals
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T, name_heads
from armillary.probes.machinery.intervals import discoveries, p_values
from armillary.probes.machinery.tables import cells, head_map, head_table, line, table
from armillary.probes.machinery.verdicts import largest_head
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, say


@dataclass(frozen=True)
class Related:
    """AUC of related against re-paired nouns, per head, before and after W_QK."""

    claim: ClassVar[Claim] = Claim(
        id="qk.related",
        chapter="B",
        statement="W_QK brings related terms together and keeps unrelated ones apart.",
        source="S0",
        definition=(
            "Related pairs of nouns come from a fixed list (synonym, antonym, part, kind, association). Unrelated "
            f"pairs are the same words re-paired at random within their kind, {REPAIRINGS} times, never with a word "
            "within two steps of the list; so every word is as frequent on both sides. AUC is the probability that a "
            "related pair scores above an unrelated one, averaged over kinds by their numbers of pairs. Before W_QK "
            "the score is the cosine of the directions z. After it, per head, it is z_i W_QK z_j, the mean of both "
            "orders, with the layer's norm folded in, without biases and at offset Δ = 0 under RoPE. Only weights are "
            "read; the interval is a bootstrap over pairs."
        ),
        control="the cosine before W_QK; random re-pairings in place of the related pairs; random initialisation",
        rule=(
            f"A head separates if its AUC is at least {T.related_auc} and significant against re-pairings "
            f"(Benjamini–Hochberg over heads, {T.false_discovery:.0%}). Supported if at least {T.heads_many:.0%} of "
            "heads separate and the median head's AUC exceeds the AUC before W_QK, with the whole interval of the "
            f"difference above 0. Refuted if at most {T.sites_few:.0%} of heads separate. Qualified otherwise. "
            f"Undecided with fewer than {T.words_least} pairs of single tokens, or without a tokenizer."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence)
        if missing is not None:
            return missing
        words, pairings = pairings_of(evidence, related_pairs())
        n = sum(len(pairing.first) for pairing in pairings)
        if n < T.words_least:
            return too_few(self.claim, evidence, n, len(related_pairs()), "pairs of related nouns")
        ids = list(words.values())
        scores = relation_scores(evidence, MODEL, ids, pairings)
        twin = None if evidence.twin is None else relation_scores(evidence, RANDOM, ids, pairings)
        auc, p = scores.auc, p_values(scores.auc, scores.null_auc)
        separates = discoveries(p) & (auc >= T.related_auc)
        opposes = discoveries(p_values(-auc, -scores.null_auc)) & (auc < 0.5)
        median = word_interval(evidence, scores.after, median_over_heads)
        both = np.concatenate([scores.after, scores.before[..., None]], -1)
        gain = word_interval(evidence, both, _gain)
        return Finding(
            claim=self.claim,
            verdict=_verdict(separates, gain),
            statistic=Statistic("AUC of related against unrelated nouns after W_QK, median head", *median),
            n=n,
            controls=_controls(evidence, scores, twin),
            reading=_reading(auc, separates, opposes, gain),
            headline=(
                f"Related and unrelated nouns are separated by {separates.sum()} of {separates.size} heads; the median "
                f"head's AUC is {median[0]:.2f}, before W_QK it is {scores.before.mean():.2f}"
            ),
            table=_table(evidence, scores, p, separates, opposes),
            quantities=_quantities(scores, twin),
            notes=tuple(word_notes(evidence, words, f"{n} of {len(related_pairs())} listed pairs", offsets=True)),
            more_tables={"relations": _relations(scores, pairings)},
        )


def _gain(means: Floats) -> Floats:
    """The median head's AUC less the mean AUC before, of means [draw, layer, (heads…, before)]."""
    return median_over_heads(means[..., :-1]) - means[..., -1].mean(1)


def _verdict(separates: Flags, gain: Interval) -> Verdict:
    share = float(separates.mean())
    if share >= T.heads_many and gain[1] > 0:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def _controls(evidence: Evidence, scores: RelationScores, twin: RelationScores | None) -> tuple[Control, ...]:
    before = word_interval(evidence, scores.before, lambda means: means.mean(1))
    stored = word_interval(evidence, scores.stored, lambda means: means)
    repaired = median_over_heads(scores.null_auc)
    controls = [
        Control("before W_QK: cosine of directions", *before),
        Control("before W_QK: dot product of embeddings", *stored),
        Control("random re-pairings", float(repaired.mean()), *np.quantile(repaired, [0.025, 0.975]).tolist()),
    ]
    if twin is not None:
        controls.append(Control(RANDOM, *word_interval(evidence, twin.after, median_over_heads)))
    return tuple(controls)


def _reading(auc: Floats, separates: Flags, opposes: Flags, gain: Interval) -> str:
    names = f" ({name_heads(separates)})" if 0 < separates.sum() < separates.size else ""
    parts = [
        f"Related and unrelated nouns are separated by {separates.sum()} of {separates.size} heads{names}; the best "
        f"is {largest_head(auc)} with AUC {auc.max():.2f}."
    ]
    if opposes.any():
        lower = f"{opposes.sum()} of {opposes.size} heads ({name_heads(opposes)})"
        parts.append(f"Related nouns score lower than unrelated ones in {lower}.")
    than = "better than" if gain[1] > 0 else "worse than" if gain[2] < 0 else "no better than"
    value, low, high = (say(end, "+.2f") for end in gain)
    parts.append(
        f"The median head separates {than} the embeddings alone: its AUC differs by {value} ({low} to {high})."
    )
    return " ".join(parts)


def _table(evidence: Evidence, scores: RelationScores, p: Floats, separates: Flags, opposes: Flags) -> Table:
    auc, low, high = np.moveaxis(word_intervals(evidence, scores.after), -1, 0)
    before = np.repeat(scores.before.mean(0), evidence.anatomy.n_heads)
    return head_table(
        evidence.anatomy,
        cells("auc", "probability that a related pair scores above an unrelated one, by z_i W_QK z_j", auc),
        cells("low", "its 95 % interval over pairs, low end", low),
        cells("high", "its 95 % interval over pairs, high end", high),
        cells("auc_before", "the same for the cosine of the two directions, before W_QK", before),
        cells("auc_centred", "auc after removing each word's mean score over all words", scores.centred.mean(0)),
        cells("p_value", "share of random re-pairings that reach this auc", p),
        cells("separates", "is it significant after correcting for all heads, and auc large enough?", separates),
        cells("opposes", "is it significantly below one half: related words score lower?", opposes),
    )


def _relations(scores: RelationScores, pairings: Sequence[Pairing]) -> Table:
    listed = [pair.kind for pair in related_pairs()]
    kinds = [pairing.kind for pairing in pairings]
    members = [np.array([kind == name for kind in scores.kinds]) for name in kinds]
    dropped = [listed.count(kind) - scores.kinds.count(kind) for kind in kinds]
    before = [scores.before[rows].mean(0)[0] for rows in members]
    aucs = [scores.after[rows].mean(0) for rows in members]
    passed = [discoveries(p_values(a, scores.null[k])) & (a >= T.related_auc) for k, a in zip(kinds, aucs, strict=True)]
    return table(
        cells("relation", "kind of relation", kinds),
        cells("pairs", "pairs of single tokens measured", [scores.kinds.count(kind) for kind in kinds]),
        cells("dropped", "listed pairs with a word that is not a single token here", dropped),
        cells("auc_before", "AUC of the cosine of directions, first layer", before),
        cells("auc_median_head", "AUC after W_QK, median head", [np.median(auc) for auc in aucs]),
        cells("auc_best_head", "largest AUC of any head", [auc.max() for auc in aucs]),
        cells("best_head", "the head with the largest AUC", [largest_head(auc) for auc in aucs]),
        cells("separating", "heads that separate this relation", [int(flags.sum()) for flags in passed]),
    )


def _quantities(scores: RelationScores, twin: RelationScores | None) -> tuple[Quantity, ...]:
    arms = {} if twin is None else {RANDOM: twin.auc}
    layers = [f"L{layer}" for layer in range(len(scores.auc))]
    return (
        head_map("AUC after W_QK", "related nouns against the same nouns re-paired", "AUC", scores.auc, arms),
        line(
            "AUC by depth",
            "related nouns against the same nouns re-paired, median head of each layer",
            "AUC",
            "layer",
            layers,
            np.median(scores.auc, 1),
            controls={"before W_QK": scores.before.mean(0), **{arm: np.median(auc, 1) for arm, auc in arms.items()}},
            theory={"no separation: ½": np.full(len(layers), 0.5)},
        ),
    )
