"""Do early layers look words up: does a noun's query find the noun, its forms or its relatives among the keys?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import (
    by_depth,
    discoveries,
    exceed,
    folded,
    keys,
    marks,
    queries,
    resampled,
    shown_layers,
    spelling,
    spheres,
    thirds,
    token_cells,
    token_columns,
    undecided,
    vocabulary,
    whole,
    wordless,
)
from armillary.probes.attention.lexicon.related_nouns import related
from armillary.probes.attention.weights import head_names
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats, Ints
from armillary.probes.machinery.per_head import head_map, name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.results.table import Cell

TOP, PERMUTATIONS = 5, 999
TWIN_LAYERS = 2  # of either end: all layers of a random model are alike
Range = tuple[float, float, float]
COLUMNS = (
    Column("head", "attention head"),
    Column("clarity", f"share of nouns with itself, a form of it or a related noun among the top {TOP} keys"),
    Column("chance", "the same with every noun's keys credited to other nouns, none of them related"),
    Column("excess", "clarity less chance"),
    Column("itself", "share of nouns with the very token among the top keys"),
    Column("form", "share with another form: plural, -ed, -ing, other case or space"),
    Column("relative", "share with a related noun of the list, or a form of it"),
    Column("clarity_biased", "clarity where the query's bias takes part, as in the running model"),
    Column("p_value", "share of permuted queries that reach this clarity"),
    Column("clear", "significant after correcting for all heads, and excess large enough"),
)
KEYS = (
    Column("noun", "the query"),
    Column("head", "attention head"),
    *token_columns("key", "token whose key the query likes best, z W_QK zᵀ without biases", TOP),
    Column("found", "what is among them: itself, form, relative, or none"),
)


@dataclass(frozen=True, eq=False)
class _Looked:
    """What the top keys of every noun [noun] hold, by layer and head."""

    keys: Ints  # [layer, head, noun, top]
    hits: Flags  # [layer, head, noun, credited noun]
    kinds: Flags  # [layer, head, noun, (itself, form, relative)]
    biased: Flags  # [layer, head, noun]
    excess: Floats  # [noun, layer, head]


@dataclass(frozen=True)
class Lookup:
    """Top keys of frequent nouns under every head's W_QK, and how many of them are the noun's own kin."""

    spaced: bool = True
    """Nouns as tokens with a leading space where there are such; False prefers bare tokens."""

    claim: ClassVar[Claim] = Claim(
        id="qk.lookup",
        chapter="B",
        statement="Early layers show clear query–key patterns.",
        source="S0 S1",
        definition=(
            f"For the hundred most frequent nouns of COCA the top {TOP} keys among all printable tokens, by z W_QK zᵀ with "
            "that layer's norm folded in (biases in a column of their own; Δ = 0 under RoPE), z the token's embedding on "
            "the sphere. Clarity: the share of nouns that find themselves, a form of theirs by spelling (plural, -ed, "
            "-ing, other case or space) or a noun that our list of relations pairs with them. Excess: clarity less that of "
            "the same keys credited to other, unrelated nouns. Statistic: mean excess of the first third of layers less "
            "that of the last. Weights only: the interval is a bootstrap over nouns."
        ),
        control="permuted queries (keys credited to other nouns); random initialisation",
        rule=(
            f"Early clear: excess ≥ {T.lookup_clear} over the first third, its interval above 0. Supported: early clear and "
            "clearer than deep (the difference's interval above 0). Refuted: no early excess (its interval reaches below "
            f"{T.lookup_nothing} and not up to {T.lookup_clear}), or deep layers are clearer (interval below 0). Qualified "
            "otherwise: clear at either end alike, or too small to be clear; the reading names the early heads that are. "
            f"Undecided below {T.words_least} nouns that are single tokens, or with one layer."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = wordless(self.claim, evidence, NOUNS)
        if missing is None and evidence.anatomy.layers < 2:
            missing = undecided(self.claim, evidence, "One layer has no depth; a deeper model is needed.")
        if missing is not None:
            return missing
        nouns = whole(evidence, NOUNS, self.spaced)
        found = look(evidence, MODEL, nouns, range(evidence.anatomy.layers))
        difference = resampled(found.excess, _difference, evidence)
        early, deep = (resampled(found.excess, _mean_of(third), evidence) for third in thirds(evidence.anatomy.layers))
        permuted = _permuted(evidence, found.hits)
        p = exceed(found.hits.diagonal(axis1=-2, axis2=-1).mean(-1), permuted)
        clear = discoveries(p) & (found.excess.mean(0) >= T.lookup_clear)
        return Finding(
            claim=self.claim,
            verdict=_verdict(early, difference),
            statistic=Statistic("excess clarity, first third less last third of layers", *difference),
            n=len(nouns),
            controls=_controls(evidence, found, permuted, nouns),
            reading=_reading(early, deep, difference, found, clear),
            headline=(
                f"Beyond chance {early[0]:.0%} of nouns find themselves or their kin in early heads, "
                f"{deep[0]:.0%} in deep ones"
            ),
            table=Table.of(COLUMNS, _rows(evidence, found, p, clear)),
            quantities=_quantities(evidence, found),
            notes=_notes(evidence, nouns),
            more_tables={
                f"top keys L{layer}": Table.of(KEYS, _key_rows(evidence, found, nouns, layer))
                for layer in shown_layers(evidence.anatomy.layers)
            },
        )


def look(evidence: Evidence, arm: str, nouns: dict[str, int], layers: Sequence[int]) -> _Looked:
    """The top keys of the nouns in the given layers, and what they hold."""
    own = marks(evidence, [[noun] for noun in nouns])
    kin = marks(evidence, [sorted(related().get(noun, ())) for noun in nouns])
    ids = np.array(list(nouns.values()))
    keys, biased = _top_keys(evidence, arm, ids, layers)
    every = np.arange(len(ids))
    itself = (keys == ids[:, None]).any(-1)
    others = own[every[:, None], keys] & (keys != ids[:, None])
    kinds = np.stack([itself, others.any(-1), kin[every[:, None], keys].any(-1)], -1)
    theirs = own | kin
    hits = np.asarray(theirs.T[keys].any(-2))
    unrelated = ~theirs[:, ids].T & ~np.eye(len(ids), dtype=bool)
    chance = (hits & unrelated).sum(-1) / unrelated.sum(-1)
    excess = np.moveaxis(hits[..., every, every] - chance, -1, 0)
    return _Looked(keys, hits, kinds, np.asarray(theirs[every[:, None], biased].any(-1)), excess)


def _top_keys(evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int]) -> tuple[Ints, Ints]:
    """[layer, head, noun, top] by the bilinear form alone, and with the query's bias."""
    import torch

    from armillary.geometry.readout import top_tokens

    shown = np.flatnonzero(vocabulary(evidence, arm).shown)
    places = np.searchsorted(shown, ids)
    plain, biased = [], []
    for layer, z in zip(layers, spheres(evidence, arm, layers, shown), strict=True):
        each = folded(evidence, arm, layer)
        nouns = z[places]
        without, with_ = queries(each, nouns), queries(each, nouns, biased=True)
        same = bool((without == with_).all())
        for head in range(len(without)):
            if head % each.attention.group == 0:  # the heads of a group share their keys
                key = keys(each, z, head)
            asked = without[head] if same else torch.cat([without[head], with_[head]])
            best = shown[top_tokens(asked, key, TOP).ids.cpu().numpy()]
            plain.append(best[: len(ids)])
            biased.append(best[-len(ids) :])
    shape = (len(layers), -1, len(ids), TOP)
    return np.reshape(plain, shape), np.reshape(biased, shape)


def _mean_of(layers: Sequence[int]) -> Callable[[Floats], Floats]:
    return lambda mean: mean[:, list(layers)].mean((1, 2))


def _difference(mean: Floats) -> Floats:
    """Early less deep, of means [draw, layer, head]."""
    early, deep = thirds(mean.shape[1])
    return _mean_of(early)(mean) - _mean_of(deep)(mean)


def _permuted(evidence: Evidence, hits: Flags) -> Floats:
    """[permutation, layer, head]: clarity where every noun's keys are credited to another noun at random."""
    n = hits.shape[-1]
    draw = np.random.default_rng(evidence.seed)
    return np.stack([hits[..., np.arange(n), draw.permutation(n)].mean(-1) for _ in range(PERMUTATIONS)])


def _verdict(early: Range, difference: Range) -> Verdict:
    if difference[2] < 0 or (early[1] < T.lookup_nothing and early[2] < T.lookup_clear):
        return "refuted"
    clear = early[0] >= T.lookup_clear and early[1] > 0
    return "supported" if clear and difference[1] > 0 else "qualified"


def _controls(evidence: Evidence, found: _Looked, permuted: Floats, nouns: dict[str, int]) -> tuple[Control, ...]:
    chance = found.hits.diagonal(axis1=-2, axis2=-1).mean(-1) - found.excess.mean(0)
    turned = _difference(permuted - chance)
    low, high = np.quantile(turned, [0.025, 0.975])
    made = [Control("permuted queries", float(turned.mean()), float(low), float(high))]
    if evidence.twin is not None:
        ends = [i for third in thirds(evidence.twin.layers) for i in third[:TWIN_LAYERS]]
        made.append(Control(RANDOM, *resampled(look(evidence, RANDOM, nouns, ends).excess, _halves, evidence)))
    return tuple(made)


def _halves(mean: Floats) -> Floats:
    middle = mean.shape[1] // 2
    return mean[:, :middle].mean((1, 2)) - mean[:, middle:].mean((1, 2))


def _reading(early: Range, deep: Range, difference: Range, found: _Looked, clear: Flags) -> str:
    which = "clearer than" if difference[1] > 0 else "less clear than" if difference[2] < 0 else "no clearer than"
    first, last = thirds(len(clear))
    some = int(clear[: first.stop].sum())
    named = f" ({name_heads(clear[: first.stop])})" if some else ""
    return (
        f"Beyond chance {early[0]:.1%} ({early[1]:.1%} to {early[2]:.1%}) of nouns find themselves or their kin in the first "
        f"third of layers, where {some} of {clear[: first.stop].size} heads are clear{named}, and {deep[0]:.1%} in the last, "
        f"where {int(clear[last.start :].sum())} of {clear[last.start :].size} are: early layers are {which} deep ones. S0 calls layer 0 both clear and "
        f"without pattern: here {int(clear[0].sum())} of its {clear.shape[1]} heads are clear, and its excess is "
        f"{found.excess[:, 0].mean():.1%}."
    )


def _rows(evidence: Evidence, found: _Looked, p: Floats, clear: Flags) -> list[dict[str, "Cell"]]:
    own = found.hits.diagonal(axis1=-2, axis2=-1).mean(-1).reshape(-1)
    excess = found.excess.mean(0).reshape(-1)
    kinds = found.kinds.mean(2).reshape(-1, 3)
    return [
        {
            "head": name,
            "clarity": float(own[i]),
            "chance": float(own[i] - excess[i]),
            "excess": float(excess[i]),
            "itself": float(kinds[i, 0]),
            "form": float(kinds[i, 1]),
            "relative": float(kinds[i, 2]),
            "clarity_biased": float(found.biased.mean(-1).flat[i]),
            "p_value": float(p.flat[i]),
            "clear": bool(clear.flat[i]),
        }
        for i, name in enumerate(head_names(evidence.anatomy))
    ]


def _key_rows(evidence: Evidence, found: _Looked, nouns: dict[str, int], layer: int) -> list[dict[str, "Cell"]]:
    texts = vocabulary(evidence).texts
    names = np.array(["itself", "form", "relative"])
    return [
        {
            "noun": texts[token],
            "head": f"L{layer}H{head}",
            **token_cells(evidence, "key", found.keys[layer, head, i]),
            "found": ", ".join(names[found.kinds[layer, head, i]]) or "none",
        }
        for i, token in enumerate(nouns.values())
        for head in range(found.keys.shape[1])
    ]


def _quantities(evidence: Evidence, found: _Looked) -> tuple[Quantity, ...]:
    own = found.hits.diagonal(axis1=-2, axis2=-1).mean(-1)
    chance = {"permuted queries": own - found.excess.mean(0)}
    meaning = "clarity less that of permuted queries, mean over a layer's heads"
    return (
        head_map("clarity", "nouns that find themselves or their kin among the top keys", "share", own, chance),
        by_depth(evidence, "excess clarity by depth", meaning, "share", found.excess.mean(2), T.lookup_clear),
    )


def _notes(evidence: Evidence, nouns: dict[str, int]) -> tuple[str, ...]:
    notes = [
        f"{len(nouns)} of {len(NOUNS)} nouns are single tokens here, {spelling(evidence, nouns)}.",
        "Deep layers never see bare embeddings: a low clarity there may only say that the stream has left them.",
    ]
    if evidence.anatomy.positions.kind == "rotary":
        notes.append("Under RoPE scores depend on the offset: these are at Δ = 0.")
    if evidence.twin is not None and thirds(evidence.twin.layers)[0].stop > TWIN_LAYERS:
        notes.append(
            f"Of the random initialisation the first {TWIN_LAYERS} layers of either third were measured: all are alike."
        )
    return tuple(notes)
