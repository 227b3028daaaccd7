"""Does W_QK bring related words together and keep unrelated ones apart?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.lexicon.known_words import (
    discoveries,
    exceed,
    folded,
    keys,
    queries,
    resampled,
    spelling,
    undecided,
    vocabulary,
    wordless,
)
from armillary.probes.attention.lexicon.related_nouns import REPAIRINGS, Pairing, pairings_of, placed, related_pairs
from armillary.probes.attention.weights import head_names
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import head_map, name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

COLUMNS = (
    Column("head", "attention head"),
    Column("auc", "chance that a related pair scores above an unrelated one, z_i W_QK z_j, mean of both orders"),
    Column("low", "lower end of its 95 % interval over pairs"),
    Column("high", "upper end"),
    Column("auc_before", "the same for the cosine of the two directions, before W_QK"),
    Column("auc_centred", "AUC after, each word's own mean score over all words taken away"),
    Column("p_value", "share of random re-pairings that reach this AUC"),
    Column("separates", "significant after correcting for all heads, and AUC large enough"),
    Column("opposes", "significantly below one half: related words are kept apart"),
)
KINDS = (
    Column("relation", "kind of relation"),
    Column("pairs", "pairs of single tokens measured"),
    Column("dropped", "listed pairs with a word that is no single token here"),
    Column("auc_before", "AUC of the cosine of directions, first layer"),
    Column("auc_median_head", "AUC after W_QK, median head"),
    Column("auc_best_head", "largest AUC of any head"),
    Column("best_head", "that head"),
    Column("separating", "heads that separate this relation (significant, AUC large enough)"),
)


@dataclass(frozen=True, eq=False)
class _Measured:
    """Per pair and head the share of unrelated pairs it scores above, and the same mean for every re-pairing."""

    after: Floats  # [pair, layer, head]
    centred: Floats
    before: Floats  # [pair, layer]
    stored: Floats  # [pair]: embeddings as stored, dot product
    null: Floats  # [draw, layer, head]
    kinds: dict[str, Floats]  # relation → [draw, layer, head]
    of: tuple[str, ...]  # relation of each pair


@dataclass(frozen=True)
class Related:
    """AUC of related against re-paired nouns, per head, before and after W_QK."""

    claim: ClassVar[Claim] = Claim(
        id="qk.related",
        chapter="B",
        statement="W_QK brings related terms together and keeps unrelated ones apart.",
        source="S0",
        definition=(
            "Related noun pairs of a committed list (synonym, antonym, part, kind, association) against the same words "
            f"re-paired at random within their kind, {REPAIRINGS} times, never within two listed steps: every word is as "
            "frequent on both sides. AUC, averaged over kinds by pairs, of the cosine of directions z before, and of "
            "z_i W_QK z_j (mean of both orders, biases left out, offset Δ = 0 under RoPE) after, per head, with the norm "
            "before that layer folded in. Weights only: the interval is a bootstrap over pairs."
        ),
        control="the cosine before W_QK; random re-pairings in the place of the related pairs; random initialisation",
        rule=(
            f"A head separates: AUC ≥ {T.related_auc}, and significant against re-pairings (Benjamini–Hochberg over "
            f"heads, {T.false_discovery:.0%}). Supported: ≥ {T.heads_many:.0%} of heads do, and the median head's AUC lies "
            f"above the AUC before, by its interval. Refuted: ≤ {T.sites_few:.0%} of heads do. Qualified otherwise. "
            f"Undecided below {T.words_least} pairs of single tokens."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = wordless(self.claim, evidence)
        if missing is not None:
            return missing
        words, pairings = pairings_of(evidence, related_pairs())
        n = sum(len(p.first) for p in pairings)
        if n < T.words_least:
            needs = (
                f"Only {n} of {len(related_pairs())} related pairs are single tokens here, and {T.words_least} are the "
                "least; a vocabulary of whole English nouns is needed."
            )
            return undecided(self.claim, evidence, needs, n)
        found = measure(evidence, MODEL, words, pairings)
        twin = None if evidence.twin is None else measure(evidence, RANDOM, words, pairings)
        auc, p = found.after.mean(0), exceed(found.after.mean(0), found.null)
        separates = discoveries(p) & (auc >= T.related_auc)
        opposes = discoveries(exceed(-auc, -found.null)) & (auc < 0.5)
        middle = _median_head(evidence, found.after)
        gain = resampled(_both(found), _gain, evidence)
        verdict = _verdict(separates, gain)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("AUC of related against unrelated nouns after W_QK, median head", *middle),
            n=n,
            controls=_controls(evidence, found, twin),
            reading=_reading(found, separates, opposes, gain),
            headline=(
                f"{int(separates.sum())} of {separates.size} heads separate related from unrelated nouns; the median "
                f"head's AUC is {middle[0]:.2f}, before W_QK it is {found.before.mean():.2f}"
            ),
            table=Table.of(COLUMNS, _rows(evidence, found, p, separates, opposes)),
            quantities=_quantities(evidence, found, twin),
            notes=_notes(evidence, words, n),
            more_tables={"relations": Table.of(KINDS, _kind_rows(evidence, found, pairings))},
        )


def measure(evidence: Evidence, arm: str, words: dict[str, int], pairings: Sequence[Pairing]) -> _Measured:
    import torch

    tokens = vocabulary(evidence, arm)
    ids = torch.tensor(list(words.values()), device=tokens.anatomy.device)
    after, centred, before = [], [], []
    for layer in range(tokens.anatomy.layers):
        z = tokens.directions(layer, ids)
        each = folded(evidence, arm, layer)
        scores = (queries(each, z) @ keys(each, z).mT).cpu().numpy()
        scores = (scores + scores.swapaxes(1, 2)) / 2
        after.append(placed(scores, pairings, null=True))
        rows = scores.mean(2, keepdims=True)
        centred.append(placed(scores - rows - rows.swapaxes(1, 2), pairings)[0])
        before.append(placed(z.cosine(z).cpu().numpy()[None], pairings)[0])
    stored = tokens.embedded(ids)
    null = {p.kind: np.stack([a[1][p.kind] for a in after], 1) for p in pairings}
    sizes = [len(p.first) for p in pairings]
    return _Measured(
        after=np.stack([a[0] for a in after], 1),
        centred=np.stack(centred, 1),
        before=np.stack(before, 1)[..., 0],
        stored=placed(stored.dot(stored).cpu().numpy()[None], pairings)[0][:, 0],
        null=np.average(list(null.values()), axis=0, weights=sizes),
        kinds=null,
        of=tuple(p.kind for p in pairings for _ in p.first),
    )


def _median_head(evidence: Evidence, places: Floats) -> tuple[float, float, float]:
    return resampled(places, lambda mean: np.median(mean.reshape(len(mean), -1), axis=1), evidence)


def _both(found: _Measured) -> Floats:
    """[pair, layer, head or before]."""
    return np.concatenate([found.after, found.before[..., None]], -1)


def _gain(mean: Floats) -> Floats:
    return np.median(mean[..., :-1].reshape(len(mean), -1), axis=1) - mean[..., -1].mean(1)


def _verdict(separates: Flags, gain: tuple[float, float, float]) -> Verdict:
    share = float(separates.mean())
    if share >= T.heads_many and gain[1] > 0:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def _controls(evidence: Evidence, found: _Measured, twin: _Measured | None) -> tuple[Control, ...]:
    before = resampled(found.before, lambda mean: mean.mean(1), evidence)
    stored = resampled(found.stored[:, None], lambda mean: mean[:, 0], evidence)
    turned = np.median(found.null.reshape(len(found.null), -1), axis=1)
    low, high = np.quantile(turned, [0.025, 0.975])
    made = [
        Control("before W_QK: cosine of directions", *before),
        Control("before W_QK: dot product of embeddings", *stored),
        Control("random re-pairings", float(turned.mean()), float(low), float(high)),
    ]
    if twin is not None:
        made.append(Control(RANDOM, *_median_head(evidence, twin.after)))
    return tuple(made)


def _reading(found: _Measured, separates: Flags, opposes: Flags, gain: tuple[float, float, float]) -> str:
    which = f" ({name_heads(separates)})" if 0 < separates.sum() < separates.size else ""
    said = f"{int(separates.sum())} of {separates.size} heads separate related nouns from unrelated ones{which}"
    if opposes.any():
        said += f"; {int(opposes.sum())} set them apart instead ({name_heads(opposes)})"
    best = np.unravel_index(found.after.mean(0).argmax(), found.after.shape[1:])
    said += f"; best L{best[0]}H{best[1]} with AUC {found.after.mean(0).max():.2f}. "
    interval = f"{gain[0]:+.2f}, interval {gain[1]:+.2f} to {gain[2]:+.2f}"
    if gain[1] > 0:
        return said + f"The median head separates better than the embeddings alone ({interval} of AUC)."
    worse = "worse than" if gain[2] < 0 else "no better than"
    return said + f"The median head separates {worse} the embeddings before any head ({interval} of AUC)."


def _rows(
    evidence: Evidence, found: _Measured, p: Floats, separates: Flags, opposes: Flags
) -> list[dict[str, str | float | bool]]:
    from armillary.geometry.resample import bootstrap

    flat = found.after.reshape(len(found.after), -1)
    spread = bootstrap(flat, lambda summed: summed / len(flat), seed=evidence.seed)
    before = np.repeat(found.before.mean(0), evidence.anatomy.n_heads)
    return [
        {
            "head": name,
            "auc": float(spread.value[i]),
            "low": float(spread.low[i]),
            "high": float(spread.high[i]),
            "auc_before": float(before[i]),
            "auc_centred": float(found.centred.mean(0).flat[i]),
            "p_value": float(p.flat[i]),
            "separates": bool(separates.flat[i]),
            "opposes": bool(opposes.flat[i]),
        }
        for i, name in enumerate(head_names(evidence.anatomy))
    ]


def _kind_rows(
    evidence: Evidence, found: _Measured, pairings: Sequence[Pairing]
) -> list[dict[str, str | int | float | bool]]:
    rows: list[dict[str, str | int | float | bool]] = []
    for one in pairings:
        mine = np.array([kind == one.kind for kind in found.of])
        auc = found.after[mine].mean(0)
        passed = discoveries(exceed(auc, found.kinds[one.kind])) & (auc >= T.related_auc)
        rows.append(
            {
                "relation": one.kind,
                "pairs": int(mine.sum()),
                "dropped": sum(pair.kind == one.kind for pair in related_pairs()) - int(mine.sum()),
                "auc_before": float(found.before[mine].mean(0)[0]),
                "auc_median_head": float(np.median(auc)),
                "auc_best_head": float(auc.max()),
                "best_head": head_names(evidence.anatomy)[int(auc.argmax())],
                "separating": int(passed.sum()),
            }
        )
    return rows


def _quantities(evidence: Evidence, found: _Measured, twin: _Measured | None) -> tuple[Quantity, ...]:
    auc = found.after.mean(0)
    control = {} if twin is None else {RANDOM: twin.after.mean(0)}
    layers = [f"L{layer}" for layer in range(evidence.anatomy.layers)]
    lines = {"before W_QK": found.before.mean(0)} | {name: np.median(each, 1) for name, each in control.items()}
    return (
        head_map("AUC after W_QK", "related nouns against the same nouns re-paired", "AUC", auc, control),
        Quantity(
            "AUC by depth",
            "related nouns against the same nouns re-paired, median head of each layer",
            "AUC",
            ("layer",),
            {"layer": layers},
            np.median(auc, 1),
            controls=lines,
            theory={"no separation: ½": np.full(len(layers), 0.5)},
        ),
    )


def _notes(evidence: Evidence, words: dict[str, int], n: int) -> tuple[str, ...]:
    notes = [
        f"{n} of {len(related_pairs())} listed pairs, of {len(words)} words, are measured, {spelling(evidence, words)}.",
        "Words enter as bare embeddings at every depth, as S0 reads them; what the stream has become by then is not seen.",
    ]
    if evidence.anatomy.positions.kind == "rotary":
        notes.append("Under RoPE the form depends on the offset: these are scores at Δ = 0.")
    return tuple(notes)
