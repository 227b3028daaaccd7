"""Does what a head writes have a subject, and more so in deeper layers?"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import (
    by_depth,
    discoveries,
    exceed,
    shown_layers,
    thirds,
    token_cells,
    token_columns,
    undecided,
    vocabulary,
    wordless,
)
from armillary.probes.attention.lexicon.likeness import DIRECTIONS, TOP, Read, read_subjects
from armillary.probes.attention.ties import TIE_COLUMN, all_ties, caveat
from armillary.probes.attention.weights import head_names
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import head_map, name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.results.table import Cell

DRAWS = 999
TWIN_LAYERS = 2  # of either end: all layers of a random model are alike
Range = tuple[float, float, float]
COLUMNS = (
    Column("head", "attention head"),
    Column("coherence", f"mean cosine between different words among the top {TOP} tokens of its right vectors"),
    Column("chance_direction", "the same for the top tokens of random directions of the stream"),
    Column("chance_frequency", "the same for random tokens of like frequency (by token number)"),
    Column("excess", "coherence less the larger of both"),
    Column("excess_centred", "the same by embeddings that were centred only, forms of one word counted"),
    Column("p_value", "share of as many random directions, or random tokens, that are as coherent: the larger"),
    Column("subject", "significant after correcting for all heads, and excess large enough"),
    Column("distinct", f"different words among the top {TOP} tokens, case and space apart, mean over directions"),
    Column("tied", f"of its first {DIRECTIONS} directions, those whose singular values nearly tie with another's"),
    Column("topic token", "the top token of the first direction that is most like the others"),
    Column("next topic token", "the next one"),
)
TOKENS = (
    Column("head", "attention head"),
    Column("direction", "number of the right singular vector of W_VO, strongest first"),
    Column("value", "its singular value"),
    TIE_COLUMN,
    Column("coherence", "mean cosine between different words among its top tokens"),
    *token_columns("token", "token farthest along it, sign by the data", TOP),
)


@dataclass(frozen=True)
class Subjects:
    """How alike the tokens are that a head's strongest directions promote, by depth."""

    claim: ClassVar[Claim] = Claim(
        id="vo.subjects",
        chapter="B",
        statement="Deeper heads are subject-specific.",
        source="S0 S1",
        definition=(
            f"Right singular vectors of W_VO, the first {DIRECTIONS} of each head, read against the output tokens that are "
            f"letters: coherence is the mean cosine between the embeddings of their top {TOP} tokens, forms of one word left "
            "out, weighted by singular value. Embeddings are centred and lose the hundredth of their principal axes with "
            "most variance: those tell how frequent a token is, and by them tokens that training hardly saw are alike. By "
            "chance: (a) random tokens of like frequency, the token number standing for its rank, as it does in vocabularies "
            "built by merging; (b) top tokens of random directions of the stream. Tokens are read with the matrix whose "
            "likeness is then measured, so any direction picks tokens that resemble each other: (b) is the harder and the "
            "honest one, and the larger of both counts. Statistic: slope of the excess from first to last layer. Weights "
            "only: the interval is a bootstrap over heads within layers and directions within heads."
        ),
        control="random tokens of like frequency; random directions of the stream; random initialisation",
        rule=(
            f"A head has a subject: excess ≥ {T.subject_excess}, and significant (Benjamini–Hochberg over heads, "
            f"{T.false_discovery:.0%}). Supported: ≥ {T.heads_many:.0%} of the heads of the last third do, and the slope's "
            f"interval lies above 0. Refuted: ≤ {T.sites_few:.0%} of them do, or the interval lies below 0. Qualified "
            "otherwise: subjects that do not grow with depth, or in some heads only. Undecided with one layer, or without "
            "a vocabulary."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = wordless(self.claim, evidence, NOUNS)
        if missing is None and evidence.anatomy.layers < 2:
            missing = undecided(self.claim, evidence, "One layer has no depth; a deeper model is needed.")
        if missing is not None:
            return missing
        read = read_subjects(evidence, MODEL, range(evidence.anatomy.layers))
        p = _p_values(evidence, read)
        have = discoveries(p) & (read.excess >= T.subject_excess)
        rise = slope(evidence, read)
        plain = None if read.plain is None else slope(evidence, read.plain)
        deep = have[thirds(len(have))[1].start :]
        return Finding(
            claim=self.claim,
            verdict=_verdict(deep, rise),
            statistic=Statistic("rise of excess coherence from first to last layer", *rise, "cosine"),
            n=read.coherence.size,
            controls=_controls(evidence, read, plain),
            reading=_reading(read, have, rise, plain),
            headline=(
                f"{int(deep.sum())} of {deep.size} deep heads have a subject, {int(have.sum())} of {have.size} in all; from "
                f"first to last layer their tokens' likeness changes by {rise[0]:+.2f}"
            ),
            table=Table.of(COLUMNS, _rows(evidence, read, p, have)),
            quantities=_quantities(evidence, read),
            notes=_notes(evidence),
            more_tables={
                f"subjects L{layer}": Table.of(TOKENS, _token_rows(evidence, read, layer))
                for layer in shown_layers(evidence.anatomy.layers)
            },
        )


def _p_values(evidence: Evidence, read: Read) -> Floats:
    """[layer, head]: against as many random directions, and as many lists of tokens of like frequency."""
    draw = np.random.default_rng(evidence.seed)
    found = []
    for pool in (read.random, read.matched.reshape(-1)):
        null = draw.choice(pool, (DRAWS, DIRECTIONS))[:, : read.coherence.shape[-1]]
        found.append(exceed(read.found, np.einsum("lhr,nr->nlh", read.weights, null)))
    return np.maximum(*found)


def slope(evidence: Evidence, read: Read, draws: int = 400) -> Range:
    """Rise of the mean excess over the whole depth, by least squares over layers, with its interval."""
    last = vocabulary(evidence).anatomy.layers - 1
    depth = np.array(read.layers) / last
    fit = (depth - depth.mean()) / np.square(depth - depth.mean()).sum()
    excess = read.coherence - read.chances.max(-1)[..., None]
    layers, heads, size = excess.shape
    draw = np.random.default_rng(evidence.seed)
    risen = []
    for _ in range(draws):
        which = (np.arange(layers)[:, None, None], draw.integers(heads, size=(layers, heads))[..., None])
        picked = (*which, draw.integers(size, size=(layers, heads, size)))
        weight = read.weights[picked]
        risen.append(fit @ ((weight * excess[picked]).sum(-1) / weight.sum(-1)).mean(1))
    low, high = np.quantile(risen, [0.025, 0.975])
    return float(fit @ read.excess.mean(1)), float(low), float(high)


def _verdict(deep: Flags, rise: Range) -> Verdict:
    share = float(deep.mean())
    if share <= T.sites_few or rise[2] < 0:
        return "refuted"
    return "supported" if share >= T.heads_many and rise[1] > 0 else "qualified"


def _controls(evidence: Evidence, read: Read, plain: Range | None) -> tuple[Control, ...]:
    easier = replace(read, random=np.full(1, -1.0))
    made = [Control("over tokens of like frequency alone", *slope(evidence, easier))]
    if plain is not None:
        made.append(Control("embeddings centred only, forms counted", *plain))
    if evidence.twin is not None:
        first, last = thirds(evidence.twin.layers)
        ends = sorted({*first[:TWIN_LAYERS], *last[-TWIN_LAYERS:]})
        made.append(Control(RANDOM, *slope(evidence, read_subjects(evidence, RANDOM, ends))))
    return tuple(made)


def _reading(read: Read, have: Flags, rise: Range, plain: Range | None) -> str:
    first, last = thirds(len(have))
    early, deep = have[: first.stop], have[last.start :]
    which = "rises" if rise[1] > 0 else "falls" if rise[2] < 0 else "neither rises nor falls"
    named = f" ({name_heads(have)})" if have.any() else ""
    other = ""
    if plain is not None and plain[2] < 0 < rise[1]:
        other = (
            f" By embeddings that are only centred it would fall ({plain[0]:+.2f}): there the few largest axes decide, which "
            "set frequent tokens apart from those that training hardly saw."
        )
    return (
        f"{int(deep.sum())} of {deep.size} heads of the last third promote tokens that are more alike than those of a random "
        f"direction, {int(early.sum())} of {early.size} of the first{named}; over depth the excess {which} (from "
        f"{read.excess[: first.stop].mean():+.3f} to {read.excess[last.start :].mean():+.3f}, a random direction's tokens "
        f"having a mean cosine of {read.random.mean():.2f}).{other}"
    )


def _rows(evidence: Evidence, read: Read, p: Floats, have: Flags) -> list[dict[str, "Cell"]]:
    texts = vocabulary(evidence).texts
    spelt = [
        [len({texts[t].strip().casefold() for t in one}) for one in head]
        for head in read.tokens.reshape(-1, *read.tokens.shape[2:])
    ]
    chance, tied = read.chances.reshape(-1, 2), all_ties(evidence)
    plain = read.excess if read.plain is None else read.plain.excess
    topics = read.topics.reshape(-1, read.topics.shape[-1])
    return [
        {
            "head": name,
            "coherence": float(read.found.flat[i]),
            "chance_direction": float(chance[i, 0]),
            "chance_frequency": float(chance[i, 1]),
            "excess": float(read.excess.flat[i]),
            "excess_centred": float(plain.flat[i]),
            "p_value": float(p.flat[i]),
            "subject": bool(have.flat[i]),
            "distinct": float(np.mean(spelt[i])),
            "tied": sum(map(bool, tied[i][:DIRECTIONS])),
            "topic token": texts[topics[i, 0]],
            "next topic token": texts[topics[i, -1]],
        }
        for i, name in enumerate(head_names(evidence.anatomy))
    ]


def _token_rows(evidence: Evidence, read: Read, layer: int) -> list[dict[str, "Cell"]]:
    heads, size = read.coherence.shape[1:]
    tied = all_ties(evidence)[layer * heads :]
    return [
        {
            "head": f"L{layer}H{head}",
            "direction": i + 1,
            "value": float(read.values[layer, head, i]),
            "tie": tied[head][i],
            "coherence": float(read.coherence[layer, head, i]),
            **token_cells(evidence, "token", read.tokens[layer, head, i]),
        }
        for head in range(heads)
        for i in range(size)
    ]


def _quantities(evidence: Evidence, read: Read) -> tuple[Quantity, ...]:
    chance = {"the harder chance": read.chances.max(-1)}
    each = np.moveaxis(read.excess, 1, 0)
    meaning = "mean over a layer's heads of the likeness of promoted tokens less the harder chance"
    return (
        head_map(
            "coherence", "mean cosine between the top tokens of a head's directions", "cosine", read.found, chance
        ),
        by_depth(evidence, "excess coherence by depth", meaning, "cosine", each, T.subject_excess),
    )


def _notes(evidence: Evidence) -> tuple[str, ...]:
    notes = [
        "The slope describes this model's layers; its interval knows of other heads and directions, not of other layers.",
        caveat(evidence, DIRECTIONS),
    ]
    if evidence.twin is not None and thirds(evidence.twin.layers)[0].stop > TWIN_LAYERS:
        notes.append(f"Of the random initialisation {TWIN_LAYERS} layers of either end were measured: all are alike.")
    return tuple(notes)
