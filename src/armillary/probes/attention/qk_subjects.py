"""Do the singular vectors of W_QK have a meaning? Do tokens along each share a subject, and are both sides related?"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import unreadable
from armillary.probes.attention.lexicon.themes.likeness import (
    DIRECTIONS,
    MOST_DIRECTIONS,
    RANDOM_DIRECTIONS,
    TOP,
    PromotedTokens,
    Side,
    affordable_directions,
    promoted_tokens,
)
from armillary.probes.attention.lexicon.themes.paired_sides import PairedSides, paired_sides
from armillary.probes.attention.lexicon.themes.side_tables import pair_table, side_lines, side_table
from armillary.probes.attention.lexicon.themes.subject_parts import (
    CROWDS,
    Compared,
    among,
    cosine,
    open_share,
    percent,
    reach,
    share_limits,
    share_verdict,
    with_value,
)
from armillary.probes.attention.lexicon.themes.written_words import all_crowded, untrained_note
from armillary.probes.attention.lexicon.word_statistics import shown_layers, twin_layers, twin_note
from armillary.probes.attention.spaces.decomposed_heads import tie_note
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.verdicts import name_heads, weighed
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, say

SIDES: dict[Side, str] = {"queries": "query side", "keys": "key side"}
EXCESS = "excess coherence of the top tokens of a head's vectors, mean over heads"
RELATED = "relatedness of both sides above re-paired directions, mean over heads and relations"
# Of an untrained model no p-value is asked: fewer random directions, and fewer draws, tell its chance level.
TWIN_DIRECTIONS, CONTROL_DRAWS = 16, 100
# As in vo.subjects: the share of heads has few values.
SHARE_DRAWS = 4000


@dataclass(frozen=True)
class QuerySubjects:
    """How similar the tokens are along the singular vectors of W_QK, and how related those of both sides."""

    claim: ClassVar[Claim] = Claim(
        id="qk.subjects",
        chapter="B",
        kind="learned",
        statement="The singular vectors of W_QK have a meaning: the tokens along each of them share a subject.",
        source="S0 R",
        question=(
            "A head's query–key matrix has preferred directions. Are the words that lie farthest along such a "
            "direction about one subject?"
        ),
        definition=(
            "Are the words along a singular vector of W_QK about one subject? The source asks how these vectors "
            "relate to the semantic structure of the data; the statement is ours. Left vectors are the query side, "
            "right vectors the key side, with the layer's norm folded in, without biases and at offset Δ = 0 under "
            "RoPE. Only weights are read.\n"
            f"Coherence is that of vo.subjects: the mean cosine between the embeddings of the {TOP} tokens (made of "
            f"letters) that lie farthest along a vector, over a head's first {DIRECTIONS} vectors, weighted by "
            "singular value. Pairs of forms of one word are left out, and so are the axes that encode frequency. "
            "Tokens are read as directions z at the layer's norm.\n"
            f"{CROWDS}\n"
            "Excess is coherence above the larger of two kinds of chance: random tokens of similar frequency; and "
            f"random directions with the head's own energy over the axes of the tokens (at least {RANDOM_DIRECTIONS}, "
            f"in a small model up to {MOST_DIRECTIONS // 2}). The statistic is the mean excess over heads, on the side "
            "where it is smaller.\n"
            "Relatedness, ours: tokens at one end of a left vector attend to those at the same end of its right "
            "vector. For each pair of vectors three relations are measured. Part of speech: the share of pairs of a "
            "query and a key token that are the same part of speech (by lists and endings). Spelling: the share of "
            "pairs that have the same case and either both begin a word or both do not. Related nouns: over listed "
            "pairs, the correlation of one noun's coordinate along the left vector with the other's along the right "
            "one. Chance is the same head with its right vectors, and their signs, re-paired at random.\n"
            "Intervals are a bootstrap over the directions of each head."
        ),
        control=(
            "random tokens of similar frequency; random directions with the head's own energy; re-paired directions; "
            "random initialisation"
        ),
        rule=(
            f"A head has a subject on a side if its excess there is at least {T.subject_excess} and significant (at "
            f"most {T.false_discovery:.0%} false discoveries over heads, Benjamini–Hochberg). Two numbers are compared "
            "with their whole intervals: the mean excess, and the share of heads with a subject.\n"
            "Parts 1 and 2, the query side and the key side; the weaker decides:\n"
            "Supported if the mean excess is above that of untrained models, and the share is at least "
            f"{T.heads_many:.0%}.\n"
            f"Refuted if the share is at most {T.sites_few:.0%}, or if the mean excess is no larger than that of "
            "untrained models.\n"
            "Qualified if the mean excess is above that of untrained models, and the share is between "
            f"{T.sites_few:.0%} and {T.heads_many:.0%}; the reading names the heads.\n"
            "Undecided if an interval spans its limit: what untrained models reach for the mean excess, "
            f"{T.sites_few:.0%} or {T.heads_many:.0%} for the share. Also undecided without untrained models, unless "
            f"the share refutes. The claim is undecided without a tokenizer, with fewer than {T.words_least} nouns "
            f"that are single tokens, or with fewer than {T.words_least} trained tokens made of letters.\n"
            "Part 3 is ours and decides nothing: both sides of a head are related if one relation is at least "
            f"{T.paired_excess} above re-paired directions and significant (at most {T.false_discovery:.0%} false "
            "discoveries over heads and relations, Benjamini–Hochberg). Its verdict follows the same rule."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "At first the number of heads with a subject decided without an interval. Of the "
                "built-in model half of the heads have one, and the verdict turned with the seed. Half is now reached "
                "only if the whole interval of the share reaches it.",
            ),
            RuleChange(
                "2026-11-16",
                "Part 3 drew 999 re-pairings and 400 samples of directions: which heads were significant turned with "
                "the seed, and in builtin:llama the part's verdict with it. It draws 9999 and 2000.",
            ),
            RuleChange(
                "2026-11-16",
                "Tokens that were hardly trained lie in one place and counted as a subject, as in vo.subjects. They "
                "are now left out.",
            ),
            RuleChange(
                "2026-11-18",
                "A share whose interval spans one half was called qualified. It is undecided now, as everywhere else. "
                "The share's interval has 4000 draws instead of 400, as in vo.subjects.",
            ),
            RuleChange(
                "2026-11-18",
                "Each head was compared with 64 random directions, few enough that its excess differed by 0.006 "
                "between seeds: 12 to 20 of 32 heads of builtin:llama were significant, and the claim came out "
                "qualified five times of ten, undecided five times. In a small model it is compared with up to 512. "
                "The interval of the share contains the share itself, which had lain beside it.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "ce089b28fef8", 5),
            Rewording("2026-11-18", "e225887f40d0", 5),
            Rewording("2026-11-18", "1d069e1a0a1e", 5),
            Rewording("2026-11-19", "b45bc8437b08", 5),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS) or all_crowded(self.claim, evidence)
        if missing is not None:
            return missing
        layers = evidence.anatomy.layers
        sides = _sides(evidence)
        paired = paired_sides(evidence, MODEL, range(layers))
        p = paired.p(evidence.seed)
        related = discoveries(p) & (paired.head_excess >= T.paired_excess)
        relation = _related(evidence, paired, discoveries(p))
        parts = (*(_part(side, sides[side]) for side in SIDES), _relation(paired, related, *relation))
        weaker = min(sides, key=lambda side: sides[side].mean.model[0])
        mean = sides[weaker].mean
        have = {side: each.have for side, each in sides.items()}
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic(f"{EXCESS}, {SIDES[weaker]}", *mean.model, "cosine"),
            n=have["queries"].size,
            controls=_controls(evidence, sides[weaker]),
            headline=(
                f"Heads with a subject: {have['queries'].sum()} of {have['queries'].size} on the query side, "
                f"{have['keys'].sum()} on the key side; heads with related sides: {related.any(-1).sum()}"
            ),
            table=side_table(evidence, {s: (e.tokens, e.p, e.have) for s, e in sides.items()}, paired, p, related),
            quantities=side_lines({s: e.tokens for s, e in sides.items()}, paired, mean.untrained),
            notes=_notes(evidence),
            limits=tuple(
                limit
                for part, each in zip(parts, sides.values(), strict=False)
                for limit in share_limits(part, each.mean, each.share)
            ),
            more_tables={f"pairs L{i}": pair_table(evidence, paired, i) for i in shown_layers(layers)},
        )


@dataclass(frozen=True, eq=False)
class _SideTokens:
    """One side of all heads: its top tokens, which heads have a subject, and the mean excess."""

    tokens: PromotedTokens
    p: Floats
    have: Flags
    mean: Compared
    share: Interval


def _few(layers: int) -> list[int]:
    """The layers of a twin that are measured, the first and the last: all are alike."""
    some = twin_layers(layers)
    return sorted({some[0], some[-1]})


def _sides(evidence: Evidence) -> dict[Side, _SideTokens]:
    layers, seed, names = evidence.anatomy.layers, evidence.seed, tuple(SIDES)
    # Two sides are read, each with half of the directions that one side of W_VO is compared with.
    randoms = max(RANDOM_DIRECTIONS, affordable_directions(evidence) // len(names))
    own = promoted_tokens(evidence, MODEL, range(layers), sides=names, randoms=randoms)
    twins = [
        promoted_tokens(evidence, arm, _few(layers), sides=names, randoms=TWIN_DIRECTIONS) for arm in evidence.twins
    ]
    return {
        side: _side(tokens, [twin[i].intervals((_mean,), seed, CONTROL_DRAWS)[0] for twin in twins], seed)
        for i, (side, tokens) in enumerate(zip(names, own, strict=True))
    }


def _side(tokens: PromotedTokens, untrained: list[Interval], seed: int) -> _SideTokens:
    p = tokens.p(seed)
    discovered = discoveries(p)
    (mean,) = tokens.intervals((_mean,), seed)
    (share,) = tokens.intervals((lambda excess: reach(excess, discovered, T.subject_excess),), seed, SHARE_DRAWS)
    have = discovered & (tokens.excess >= T.subject_excess)
    return _SideTokens(tokens, p, have, Compared.of(mean, untrained), with_value(share))


def _mean(excess: Floats) -> float:
    return float(excess.mean())


def _related(evidence: Evidence, paired: PairedSides, discovered: Flags) -> tuple[Compared, Interval]:
    """Mean relatedness beside untrained models, and the share of heads with related sides."""
    some, seed = _few(evidence.anatomy.layers), evidence.seed
    twins = [paired_sides(evidence, arm, some).intervals((_mean,), seed, CONTROL_DRAWS)[0] for arm in evidence.twins]
    mean, share = paired.intervals((_mean, lambda excess: reach(excess, discovered, T.paired_excess)), seed)
    return Compared.of(mean, twins), share


def _part(side: Side, each: _SideTokens) -> Part:
    verdict, why = share_verdict(each.mean, each.share)
    reading = (
        f"On the {SIDES[side]}, the mean cosine of the top tokens of a head's vectors exceeds chance by "
        f"{cosine(each.mean.model)}; in an untrained model, by {cosine(each.mean.untrained)}. Heads with a subject "
        f"there: {among(each.have, range(len(each.have)))}, {percent(each.share)}."
        f"{open_share(each.mean, each.share)}"
    )
    name = f"{SIDES[side]}: tokens along a vector share a subject"
    return Part(name, verdict, reading, Statistic(f"{EXCESS}, {SIDES[side]}", *each.mean.model, "cosine"), why=why)


def _relation(paired: PairedSides, related: Flags, mean: Compared, share: Interval) -> Part:
    heads: Flags = np.any(related, axis=-1)
    verdict, why = share_verdict(mean, share)
    excess = paired.head_excess.mean((0, 1))
    each = ", ".join(
        f"{say(excess[i], '+.3f')} by {name} (heads: {related[..., i].sum()})"
        for i, name in enumerate(paired.relations)
    )
    names = f" ({name_heads(heads)})" if 0 < heads.sum() < heads.size else ""
    reading = (
        f"Averaged over relations, tokens on both sides of a vector are more related than with re-paired vectors by "
        f"{cosine(mean.model)}; in an untrained model, by {cosine(mean.untrained)}. Separately: {each}. Heads with "
        f"related sides: {heads.sum()} of {heads.size}{names}, {percent(share)}."
    )
    return Part("both sides are related", verdict, reading, Statistic(RELATED, *mean.model), asserted=False, why=why)


def _controls(evidence: Evidence, side: _SideTokens) -> tuple[Control, ...]:
    # A coherence of −1 for random directions is never the larger chance level.
    frequency = replace(side.tokens, random=np.full_like(side.tokens.random, -1.0))
    control = Control(
        "over tokens of similar frequency alone", *frequency.intervals((_mean,), evidence.seed, CONTROL_DRAWS)[0]
    )
    return (control, *([Control(RANDOM, *side.mean.untrained)] if evidence.twins else []))


def _notes(evidence: Evidence) -> tuple[str, ...]:
    notes = [
        "The interval covers the choice of directions, not of heads or layers: all of them are measured.",
        untrained_note(evidence),
        tie_note(evidence, DIRECTIONS, qk=True),
        twin_note(evidence, len(_few(evidence.anatomy.layers))),
    ]
    if evidence.anatomy.positions.kind == "rotary":
        notes.append("Under RoPE scores depend on the offset; these vectors are those of W_QK at Δ = 0.")
    return tuple(notes)
