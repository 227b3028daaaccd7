"""Do the tokens that a head promotes share a subject, and more so in deeper layers?"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.decomposed_heads import tie_note, vo_ties
from armillary.probes.attention.lexicon.known_words import unreadable, vocabulary
from armillary.probes.attention.lexicon.likeness import DIRECTIONS, TOP, PromotedTokens, promoted_tokens, token_table
from armillary.probes.attention.lexicon.word_statistics import TWIN_LAYERS, depth_line, shown_layers, thirds
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T, name_heads
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.tables import cells, head_map, head_table
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Table, Verdict, say


@dataclass(frozen=True)
class Subjects:
    """How similar the tokens are that a head's strongest directions promote, by depth."""

    claim: ClassVar[Claim] = Claim(
        id="vo.subjects",
        chapter="B",
        statement="Deeper heads are subject-specific.",
        source="S0 S1",
        definition=(
            f"The first {DIRECTIONS} right singular vectors of each head's W_VO are compared with the output tokens "
            f"made of letters. Coherence is the mean cosine between the embeddings of their top {TOP} tokens, without "
            "pairs of forms of one word, weighted by singular value. Embeddings are centred, and the hundredth of "
            "their principal axes with the most variance is removed: these axes encode how frequent a token is, and "
            "make rarely trained tokens similar. Chance is computed in two ways: (a) random tokens of similar "
            "frequency, with the token number as frequency rank, as in vocabularies built by merging; (b) top tokens "
            "of random directions of the stream. Any direction picks tokens that resemble each other, because tokens "
            "are read with the matrix by which they are compared, so (b) is the stricter; the larger of both counts. "
            "The statistic is the slope of the excess from first to last layer. Only weights are read; the interval "
            "is a bootstrap over heads within layers and directions within heads."
        ),
        control="random tokens of similar frequency; random directions of the stream; random initialisation",
        rule=(
            f"A head has a subject if its excess is at least {T.subject_excess} and significant (Benjamini–Hochberg "
            f"over heads, {T.false_discovery:.0%}). Supported if at least {T.heads_many:.0%} of the heads of the last "
            f"third have one and the slope's interval lies above 0. Refuted if at most {T.sites_few:.0%} of them have "
            "one, or the interval lies below 0. Qualified otherwise: subjects that do not grow with depth, or in some "
            "heads only. Undecided with one layer, without a tokenizer, or with too few words that are single tokens."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "Similarity was at first measured by embeddings that were only centred, and forms of one word "
                "counted. Axes that encode frequency and forms of one word are now left out; SmolLM2's slope changed "
                "its sign.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS, layers=2)
        if missing is not None:
            return missing
        layers = evidence.anatomy.layers
        promoted, centred = promoted_tokens(evidence, MODEL, range(layers))
        p = promoted.p(evidence.seed)
        have = discoveries(p) & (promoted.excess >= T.subject_excess)
        slope, plain = _slope(evidence, promoted), _slope(evidence, centred)
        deep = have[thirds(layers)[1].start :]
        meaning = "coherence of promoted tokens above the larger chance level, mean over a layer's heads"
        return Finding(
            claim=self.claim,
            verdict=_verdict(deep, slope),
            statistic=Statistic("rise of excess coherence from first to last layer", *slope, "cosine"),
            n=promoted.coherence.size,
            controls=_controls(evidence, promoted, plain),
            reading=_reading(promoted, have, slope, plain),
            headline=(
                f"Heads with a subject: {deep.sum()} of {deep.size} in the last third, {have.sum()} of {have.size} in "
                f"all; from first to last layer coherence above chance changes by {say(slope[0], '+.2f')}"
            ),
            table=_table(evidence, promoted, centred, p, have),
            quantities=(
                head_map(
                    "coherence",
                    "mean cosine between the top tokens of a head's directions",
                    "cosine",
                    promoted.head_coherence,
                    {"the larger chance level": promoted.chances.max(-1)},
                ),
                depth_line(
                    evidence, "excess coherence by depth", meaning, "cosine", promoted.excess.T, T.subject_excess
                ),
            ),
            notes=_notes(evidence),
            more_tables={f"subjects L{i}": token_table(evidence, promoted, i) for i in shown_layers(layers)},
        )


def _slope(evidence: Evidence, promoted: PromotedTokens) -> Interval:
    return promoted.slope(evidence.seed, evidence.anatomy.layers - 1)


def _verdict(deep: Flags, slope: Interval) -> Verdict:
    share = float(deep.mean())
    if share <= T.sites_few or slope[2] < 0:
        return "refuted"
    return "supported" if share >= T.heads_many and slope[1] > 0 else "qualified"


def _controls(evidence: Evidence, promoted: PromotedTokens, plain: Interval) -> tuple[Control, ...]:
    # A coherence of −1 for random directions is never the larger chance level.
    frequency = replace(promoted, random=np.full(1, -1.0))
    controls = [
        Control("over tokens of similar frequency alone", *_slope(evidence, frequency)),
        Control("embeddings centred only, forms counted", *plain),
    ]
    if evidence.twin is not None:
        first, last = thirds(evidence.twin.layers)
        ends = sorted({*first[:TWIN_LAYERS], *last[-TWIN_LAYERS:]})
        controls.append(Control(RANDOM, *_slope(evidence, promoted_tokens(evidence, RANDOM, ends)[0])))
    return tuple(controls)


def _reading(promoted: PromotedTokens, have: Flags, slope: Interval, plain: Interval) -> str:
    first, last = thirds(len(have))
    early, deep = have[: first.stop], have[last.start :]
    trend = "rises" if slope[1] > 0 else "falls" if slope[2] < 0 else "neither rises nor falls"
    names = f" ({name_heads(have)})" if have.any() else ""
    excess = [say(promoted.excess[third.start : third.stop].mean(), "+.3f") for third in (first, last)]
    reading = (
        f"Heads with a subject, whose top tokens are more similar than those of a random direction: {deep.sum()} of "
        f"{deep.size} in the last third, {early.sum()} of {early.size} in the first{names}. With depth the excess "
        f"{trend}: from "
        f"{excess[0]} in the first third to {excess[1]} in the last. The top tokens of a random direction have a mean "
        f"cosine of {say(promoted.random.mean(), '.2f')}."
    )
    if plain[2] < 0 < slope[1]:
        reading += (
            f" By embeddings that are only centred the excess would fall ({say(plain[0], '+.2f')}): their largest axes "
            "separate frequent tokens from rarely trained ones."
        )
    return reading


def _table(evidence: Evidence, promoted: PromotedTokens, centred: PromotedTokens, p: Floats, have: Flags) -> Table:
    texts = vocabulary(evidence).texts
    spellings = np.array([text.strip().casefold() for text in texts], dtype=object)
    distinct = np.apply_along_axis(lambda ids: len(set(spellings[ids])), -1, promoted.tokens).mean(-1)
    tied = [sum(map(bool, labels[:DIRECTIONS])) for labels in vo_ties(evidence)]
    topics = promoted.topics.reshape(-1, promoted.topics.shape[-1])
    return head_table(
        evidence.anatomy,
        cells("coherence", f"mean cosine between different words among its top {TOP} tokens", promoted.head_coherence),
        cells("chance_direction", "the same for the top tokens of random directions", promoted.chances[..., 0]),
        cells("chance_frequency", "the same for random tokens of similar frequency", promoted.chances[..., 1]),
        cells("excess", "coherence less the larger of both", promoted.excess),
        cells(
            "excess_centred", "the same by embeddings that were only centred, forms of one word counted", centred.excess
        ),
        cells("p_value", "share of random directions, or of random tokens, that are as coherent: the larger", p),
        cells("subject", "is it significant after correcting for all heads, and excess large enough?", have),
        cells("distinct", f"different words among the top {TOP} tokens, ignoring case and space", distinct),
        cells("tied", f"how many of its first {DIRECTIONS} directions nearly tie with another", tied),
        cells(
            "topic token",
            "top token of the first direction that is most similar to the others",
            [texts[t[0]] for t in topics],
        ),
        cells("next topic token", "the second most similar one", [texts[t[-1]] for t in topics]),
    )


def _notes(evidence: Evidence) -> tuple[str, ...]:
    notes = [
        "The slope describes this model's layers; its interval covers the choice of heads and directions, not of "
        "layers.",
        tie_note(evidence, DIRECTIONS),
    ]
    if evidence.twin is not None and thirds(evidence.twin.layers)[0].stop > TWIN_LAYERS:
        notes.append(f"Of the random initialisation only {TWIN_LAYERS} layers at either end were measured.")
    return tuple(notes)
