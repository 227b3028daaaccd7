"""Do the tokens that a head promotes share a subject, and more so in deeper layers?"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import unreadable, vocabulary
from armillary.probes.attention.lexicon.themes.likeness import (
    DIRECTIONS,
    MOST_DIRECTIONS,
    RANDOM_DIRECTIONS,
    TOP,
    PromotedTokens,
    affordable_directions,
    promoted_tokens,
    rise,
    token_table,
)
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
)
from armillary.probes.attention.lexicon.themes.written_words import all_crowded, untrained_note
from armillary.probes.attention.lexicon.word_statistics import depth_line, shown_layers, thirds, twin_layers, twin_note
from armillary.probes.attention.spaces.decomposed_heads import tie_note, vo_ties
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, Interval, T
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.tables import cells, head_map, head_table
from armillary.probes.machinery.verdicts import above, missing_interval, weighed
from armillary.results import (
    Claim,
    Control,
    Finding,
    Part,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Verdict,
    Why,
    say,
)

DEEP, RISE = 0, 1
# The share of heads has few values. With 400 draws the end of its interval jumps from one to the next with the seed.
SHARE_DRAWS = 4000
NAMES = (
    "excess coherence of the heads of the last third of layers, mean",
    "rise of excess coherence from first to last layer",
)


@dataclass(frozen=True)
class Subjects:
    """How similar the tokens are that a head's strongest directions promote, by depth."""

    claim: ClassVar[Claim] = Claim(
        id="vo.subjects",
        chapter="B",
        kind="learned",
        statement="Deeper heads are subject-specific.",
        source="S0 S1",
        question=(
            "Every head writes some words most strongly. Are these words more alike than by chance (do they have a "
            "subject), and more so in later layers?"
        ),
        definition=(
            "Are the words that a head writes most strongly alike, and more so in later layers? Coherence is the mean "
            f"cosine between the embeddings of the {TOP} output tokens (made of letters) that a right singular vector "
            f"of W_VO promotes most: over a head's first {DIRECTIONS} vectors, weighted by singular value, without "
            "pairs of forms of one word. A vector has two ends; the one along which output tokens reach farther is "
            "read. Only weights are read.\n"
            f"{CROWDS}\n"
            "Embeddings are centred, and the hundredth of their principal axes with the most variance is removed: "
            "these axes encode how frequent a token is, and make rare tokens similar.\n"
            "Excess is coherence above chance, the larger of two: (a) random tokens of similar frequency. The token "
            f"number is the frequency rank, as in vocabularies built by merging. (b) {RANDOM_DIRECTIONS} random "
            f"directions (up to {MOST_DIRECTIONS} in small models) with the head's own energy over the axes of the "
            "output matrix, read in the same way. (b) is needed because any direction picks tokens that resemble each "
            "other, more so along axes with much energy: tokens are read with the same matrix by which they are "
            "compared.\n"
            "Two statistics: the mean excess of the heads of the last third of layers, and the rise of the excess "
            "from first to last layer by least squares.\n"
            "Intervals are a bootstrap over the directions of each head and the draws of its chance. All heads are "
            "measured, so heads are not resampled."
        ),
        control=(
            "random tokens of similar frequency; random directions with the head's own energy; random initialisation"
        ),
        rule=(
            f"A head has a subject if its excess is at least {T.subject_excess} and significant (at most "
            f"{T.false_discovery:.0%} false discoveries over heads, Benjamini–Hochberg). Two parts, both asserted by "
            "the source; the weaker decides. Comparisons use whole intervals.\n"
            "Part 1, heads of the last third have a subject.\n"
            "Supported if their mean excess is above that of untrained models, and the share of them with a subject "
            f"is at least {T.heads_many:.0%}.\n"
            f"Refuted if the share is at most {T.sites_few:.0%}, or if the mean excess is no larger than that of "
            "untrained models.\n"
            "Qualified if the mean excess is above that of untrained models, and the share is between "
            f"{T.sites_few:.0%} and {T.heads_many:.0%}; the reading names the heads.\n"
            "Undecided if an interval spans its limit: what untrained models reach for the mean excess, "
            f"{T.sites_few:.0%} or {T.heads_many:.0%} for the share.\n"
            "Part 2, more so than earlier heads.\n"
            "Supported if the rise is above 0 and above that of untrained models.\n"
            "Refuted if the rise is below 0, or if it is above 0 but no larger than that of untrained models.\n"
            "Undecided otherwise, with one exception: if the interval of the rise spans 0 and is within "
            f"±{T.subject_excess}, the share of the heads of the first third with a subject decides. Part 2 is then "
            f"refuted if this share is at most {T.sites_few:.0%}, qualified if it is above, and undecided if its "
            "interval spans that.\n"
            "Without untrained models both parts are undecided, unless one of these shares, or a rise below 0, "
            "settles them. The claim is undecided with one layer, without a tokenizer, with fewer than "
            f"{T.words_least} nouns that are single tokens, or with fewer than {T.words_least} trained tokens made of "
            "letters."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "Similarity was at first measured by embeddings that were only centred, and forms of one word "
                "counted. Axes that encode frequency and forms of one word are now left out; SmolLM2's slope changed "
                "its sign.",
            ),
            RuleChange(
                "2026-11-16",
                "Chance was random directions of the whole stream: heads that write along loud axes without meaning "
                "came out with a subject. It is now random directions with the head's own energy over the axes of "
                "the output matrix. The sign of a direction came from the words that it reads: topics behind random "
                "left vectors were lost. It now comes from the side that is written. Two questions, whether deep "
                "heads have subjects and whether more than early ones, are parts of their own; untrained models are "
                "part of the rule.",
            ),
            RuleChange(
                "2026-11-16",
                "The number of heads with a subject decided without an interval, so that a count at a limit turned "
                "with the seed. The interval of their share decides now, as in qk.subjects.",
            ),
            RuleChange(
                "2026-11-16",
                "Tokens that were hardly trained lie in one place and counted as a subject: 11 tokens made of letters "
                "in the built-in models, of 91 and 93 in all. They are now left out. Five of eight deep heads of "
                "builtin:gpt then have a subject, and whether that is surely half of them turned with the seed: small "
                "models now have more random directions, and the share's interval 4000 draws instead of 400.",
            ),
            RuleChange(
                "2026-11-18",
                "A share whose interval spans one half was called qualified, although it does not say whether many "
                "heads have a subject. It is undecided now, as everywhere else.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "5231eb63db6b", 5),
            Rewording("2026-11-18", "264f0b83412a", 5),
            Rewording("2026-11-18", "27ebee0dd432", 5),
            Rewording("2026-11-19", "0f0d24ff302d", 5),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = unreadable(self.claim, evidence, NOUNS, layers=2) or all_crowded(self.claim, evidence)
        if missing is not None:
            return missing
        layers = evidence.anatomy.layers
        randoms = affordable_directions(evidence)
        promoted, centred = promoted_tokens(evidence, MODEL, range(layers), centred=True, randoms=randoms)
        p = promoted.p(evidence.seed)
        discovered = discoveries(p)
        have = discovered & (promoted.excess >= T.subject_excess)
        twins = [promoted_tokens(evidence, arm, twin_layers(layers))[0] for arm in evidence.twins]
        *measured, share, early = _intervals(evidence, promoted, discovered, SHARE_DRAWS)
        untrained = [_intervals(evidence, twin) for twin in twins]
        deep, slope = (Compared.of(measured[i], [each[i] for each in untrained]) for i in (DEEP, RISE))
        parts = (_deep_part(deep, share, have), _rise_part(slope, early, promoted, have))
        last = have[thirds(layers)[1].start :]
        return Finding(
            claim=self.claim,
            **weighed(parts),
            limits=share_limits(parts[0], deep, share),
            statistic=Statistic(NAMES[RISE], *slope.model, "cosine"),
            n=promoted.coherence.size,
            controls=_controls(evidence, promoted, centred, slope.untrained),
            headline=(
                f"Heads with a subject: {last.sum()} of {last.size} in the last third, {have.sum()} of {have.size} in "
                f"all; from first to last layer coherence above chance changes by {say(slope.model[0], '+.2f')}"
            ),
            table=_table(evidence, promoted, centred, p, have),
            quantities=_maps(promoted),
            notes=(
                "The rise describes this model's layers; its interval covers the choice of directions, not of heads "
                "or layers.",
                untrained_note(evidence),
                tie_note(evidence, DIRECTIONS),
                twin_note(evidence, len(twin_layers(layers))),
            ),
            more_tables={f"subjects L{i}": token_table(evidence, promoted, i) for i in shown_layers(layers)},
        )


def _maps(promoted: PromotedTokens) -> tuple[Quantity, ...]:
    return (
        head_map(
            "coherence",
            "mean cosine between the top tokens of a head's directions",
            "cosine",
            promoted.head_coherence,
            {"the larger chance level": promoted.chances.max(-1)},
        ),
        depth_line(
            "excess coherence by depth",
            "coherence of promoted tokens above the larger chance level, mean over a layer's heads",
            "cosine",
            promoted.excess.mean(1),
            T.subject_excess,
        ),
    )


def _intervals(
    evidence: Evidence, promoted: PromotedTokens, discovered: Flags | None = None, draws: int = 400
) -> list[Interval]:
    """Of an arm's excess: the mean over the last third of layers, and the rise from first to last layer. Where it is
    known which heads are significant, also the shares of heads with a subject in the last and in the first third."""
    layers = evidence.anatomy.layers
    first, last = (np.isin(promoted.layers, third) for third in thirds(layers))
    statistics = [lambda excess: float(excess[last].mean()), rise(promoted.layers, layers - 1)]
    if discovered is not None:
        statistics.append(lambda excess: reach(excess[last], discovered[last], T.subject_excess))
        statistics.append(lambda excess: reach(excess[first], discovered[first], T.subject_excess))
    return promoted.intervals(statistics, evidence.seed, draws)


def _deep_part(deep: Compared, share: Interval, have: Flags) -> Part:
    verdict, why = share_verdict(deep, share)
    reading = (
        f"In the last third of layers, the mean cosine of a head's top tokens exceeds chance by {cosine(deep.model)}; "
        f"in an untrained model, by {cosine(deep.untrained)}. Heads with a subject there: "
        f"{among(have, thirds(len(have))[1])}, {percent(share)}.{open_share(deep, share)}"
    )
    return Part(
        "heads of the last third have a subject", verdict, reading, Statistic(NAMES[DEEP], *deep.model), why=why
    )


def _rise_part(slope: Compared, early: Interval, promoted: PromotedTokens, have: Flags) -> Part:
    verdict, why = rise_verdict(slope, early)
    _, low, high = slope.model
    trend = "rises" if low > 0 else "falls" if high < 0 else "neither clearly rises nor falls"
    first = thirds(len(have))[0]
    reading = (
        f"With depth this excess {trend}: from first to last layer it changes by {cosine(slope.model)}; in an "
        f"untrained model, by {cosine(slope.untrained)}. Heads with a subject in the first third: "
        f"{among(have, first)}, {percent(early)}. By chance the top tokens have a mean cosine of "
        f"{say(promoted.chances.max(-1).mean(), '.2f')}."
    )
    return Part("more so than earlier heads", verdict, reading, Statistic(NAMES[RISE], *slope.model), why=why)


def rise_verdict(slope: Compared, early: Interval) -> tuple[Verdict, Why | None]:
    """From the rise of the excess with depth, and the share of early heads with a subject."""
    _, low, high = slope.model
    rises, learned = above(slope.model, 0), slope.learned
    if rises is None and low > -T.subject_excess and high < T.subject_excess:
        if early[2] <= T.sites_few:
            return "refuted", None
        return ("qualified", None) if above(early, T.sites_few) else ("undecided", missing_interval(*early))
    if rises is False or (rises and learned is False):
        return "refuted", None
    if np.isnan(slope.untrained[2]):
        return "undecided", Why.NO_CONTROL
    return ("supported", None) if rises and learned else ("undecided", missing_interval(*slope.model))


def _controls(
    evidence: Evidence, promoted: PromotedTokens, centred: PromotedTokens, untrained: Interval
) -> tuple[Control, ...]:
    # A coherence of −1 for random directions is never the larger chance level.
    frequency = replace(promoted, random=np.full_like(promoted.random, -1.0))
    controls = [
        Control("over tokens of similar frequency alone", *_intervals(evidence, frequency)[RISE]),
        Control("embeddings centred only, forms counted", *_intervals(evidence, centred)[RISE]),
        Control(RANDOM, *untrained),
    ]
    return tuple(controls[: 3 if evidence.twins else 2])


def _table(evidence: Evidence, promoted: PromotedTokens, centred: PromotedTokens, p: Floats, have: Flags) -> Table:
    texts = vocabulary(evidence).texts
    spellings = np.array([text.strip().casefold() for text in texts], dtype=object)
    distinct = np.apply_along_axis(lambda ids: len(set(spellings[ids])), -1, promoted.tokens).mean(-1)
    tied = [sum(map(bool, labels[:DIRECTIONS])) for labels in vo_ties(evidence)]
    topics = promoted.topics.reshape(-1, promoted.topics.shape[-1])
    return head_table(
        evidence.anatomy,
        cells("coherence", f"mean cosine between different words among its top {TOP} tokens", promoted.head_coherence),
        cells(
            "chance_direction", "the same for random directions with the head's own energy", promoted.chances[..., 0]
        ),
        cells("chance_frequency", "the same for random tokens of similar frequency", promoted.chances[..., 1]),
        cells("excess", "coherence minus the larger of both", promoted.excess),
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
