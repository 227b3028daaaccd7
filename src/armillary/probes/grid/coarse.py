"""Does depth change the scale: are states correlated over longer and longer stretches of text?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    beats,
    by_side,
    missing_interval,
    spread_layers,
    undecided,
    weighed,
)
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.coarsening.correlation_length import CorrelationResult
    from armillary.probes.grid.coarsening.flow_steps import FlowSteps
    from armillary.probes.machinery.bench import Bench

LAYERS, LENGTH, LENGTH_LEAST = 8, 128, 16
# Blocks whose steps are looked at one by one, and shuffles of every document: one shuffle is as noisy as the text.
BLOCKS, SHUFFLES = 3, 4


@dataclass(frozen=True)
class Coarse:
    """Correlation of states by token distance, at each state of the stream."""

    claim: ClassVar[Claim] = Claim(
        id="flow.coarse",
        chapter="F",
        statement="Depth is a renormalisation flow: states are correlated over longer distances, layer by layer.",
        source="S3",
        question="Are the states of tokens in a document alike over longer distances in later layers?",
        definition=(
            "The correlation length is how many tokens apart two states of a document are still alike. The statistic "
            "is the ratio of this length after the last block to that before the first.\n"
            "C(Δ) is the correlation of directions of the stream Δ tokens apart in a document, with the mean of all "
            "documents at the same position subtracted. First tokens are left out. Δ goes up to half a window and at "
            "most 32. P is the mean of C over the farthest quarter of distances: what the whole document shares, for "
            "example its subject. It does not count as length.\n"
            "The length is ½ + Σ (C(Δ) − P)/(1 − P) over the nearer distances. States without any correlation have a "
            "length of ½ token. This is not a lower bound: an estimate from few documents can lie below it, and so "
            "can the truth where near tokens are less alike than far ones, for example because a word is seldom "
            "repeated at once. In the ratio, a length below ¼ counts as ¼.\n"
            "Whether depth is isomorphic to a renormalisation group cannot be measured: the verdict is about the "
            "length."
        ),
        control=(
            "random initialisation (all twins); the same words shuffled within their documents, four times: there, a "
            "length can only come from the model's averaging. Text and shuffled text are compared by the tokens that "
            "depth adds to the length, because a sliding mean adds about as many to words in any order, as long as "
            "they are nearly uncorrelated"
        ),
        rule=(
            "Two parts; the weaker decides. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, the length grows layer by layer.\n"
            f"Supported if the ratio lies above {T.flow_growth}, and the rank correlation of length and depth above "
            f"{T.flow_order}.\n"
            f"Refuted if the ratio lies below {T.flow_growth}.\n"
            f"Qualified if the ratio lies above {T.flow_growth}, but the rank correlation below {T.flow_order}.\n"
            "Part 2, by training, from the text.\n"
            f"Supported if the ratio lies above that of an untrained model, and depth adds at least {T.flow_text} "
            "tokens more to the length on text than on shuffled text.\n"
            "Refuted if the ratio is no larger than untrained models reach, or if depth adds fewer than "
            f"{T.flow_text} tokens more on text.\n"
            "Part 3 is ours and decides nothing: norms lengthen the correlations by a larger factor than sublayers "
            "do.\n"
            "Every part is undecided where an interval spans its limit."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-15",
                "The length leaves out what the whole document shares; with it, shuffled text had nearly the same "
                "length. On builtin:gpt qualified became supported.",
            ),
            RuleChange(
                "2026-11-16",
                "Shuffled text and several untrained models decide, with their intervals. Growth on builtin:gpt had "
                "been supported although shuffled words showed as much, and so had that of one untrained model in "
                "eight.",
            ),
            RuleChange(
                "2026-11-18",
                "The definition calls ½ token what states without correlation have, where it had called it the floor: "
                "a survey had printed 0.41 beside it. Nothing is measured or decided otherwise.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "3464bc904af3", 3),
            Rewording("2026-11-18", "391868a3b54e", 3),
            Rewording("2026-11-19", "68604238368f", 3),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.plan import arms_of

        return 1.7 * (arms_of(anatomy) + SHUFFLES)

    def experiment(self, bench: "Bench") -> "tuple[CorrelationResult, FlowSteps] | None":
        from armillary.probes.grid.coarsening.correlation_length import (
            CorrelationResult,
            averaged,
            centred_states,
            state_correlations,
        )
        from armillary.probes.grid.coarsening.flow_steps import FlowSteps, depth_steps, measure_steps
        from armillary.probes.instruments.patterns import texts

        sites, groups = sites_of(bench.anatomy), bench.corpus.groups
        first = max(1, bench.corpus.windows[0].prefix)
        corpora = {SHUFFLED: [bench.corpus.shuffled(bench.seed + 1000 * n) for n in range(SHUFFLES)]}
        arms = {}
        for arm in (*bench.twins, SHUFFLED, MODEL):
            measured = []
            for corpus in corpora.get(arm, [bench.corpus]):
                windows = texts(corpus, T.documents_least, LENGTH).windows
                if len(windows) < 2 or len(windows[0].ids) < LENGTH_LEAST:
                    return None
                ids, documents = np.array([w.ids for w in windows]), np.array([w.document for w in windows])
                states = centred_states(bench.arm(arm).anatomy, ids, sites, first, bench.tick)
                measured.append(state_correlations(states, documents, groups))
            arms[arm] = averaged(measured)
        steps = measure_steps(bench.anatomy, ids, documents, groups, spread_layers(bench.anatomy, BLOCKS), first)
        bench.tick(ids.size)
        return CorrelationResult(sites, arms, *ids.shape), FlowSteps(*steps, *depth_steps(states))

    def conclude(self, evidence: Evidence, result: "tuple[CorrelationResult, FlowSteps] | None") -> Finding:
        from armillary.probes.grid.coarsening.correlation_length import (
            correlation_lines,
            correlation_table,
            growth,
            length,
        )

        if result is None:
            reading = f"Fewer than two documents have {LENGTH_LEAST} tokens. Give more text, or longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        states, steps = result

        def ratio(arm: str) -> Interval:
            return evidence.interval(states.arms[arm].products, growth)

        ratios = {MODEL: ratio(MODEL), RANDOM: evidence.over_twins(ratio), SHUFFLED: ratio(SHUFFLED)}
        lengths = evidence.intervals(states.arms[MODEL].products, length)
        parts = (_grows(evidence, states, ratios), _learned(evidence, states, ratios), _norms(evidence, steps))
        first, last = (say(lengths[at, 0], ".2g") for at in (0, -1))
        return Finding(
            claim=self.claim,
            **weighed(parts, _reading(states, steps, lengths[:, 0], parts)),
            statistic=Statistic("correlation length after the last block, over that before the first", *ratios[MODEL]),
            n=states.texts * states.tokens,
            controls=tuple(Control(arm, *ratios[arm]) for arm in (RANDOM, SHUFFLED)),
            headline=f"States are correlated over {first} tokens before the first block and {last} after the last",
            table=correlation_table(states, lengths),
            quantities=(*correlation_lines(states, lengths), steps.depth_line(("input", *states.sites[1:]))),
            notes=(f"{states.texts} documents of {states.tokens} tokens",),
            more_tables={
                "steps": steps.table(evidence.intervals(steps.products, length)),
                "depth": steps.depth_table(states.sites),
            },
        )


def sites_of(anatomy: "Anatomy") -> tuple[str, ...]:
    """The stream before the first block, and after blocks spread over the depth."""
    return ("L0.resid_pre", *(f"L{layer}.resid_post" for layer in spread_layers(anatomy, LAYERS)))


def rank_correlation(lengths: Floats) -> Floats:
    """Of length and depth [..., state]; 0 where all lengths are equal."""
    from scipy.stats import rankdata

    ranks = rankdata(lengths, axis=-1) - (lengths.shape[-1] + 1) / 2
    depth = np.arange(lengths.shape[-1]) - (lengths.shape[-1] - 1) / 2
    size = np.sqrt((ranks**2).sum(-1) * (depth**2).sum())
    known = (np.ptp(lengths, axis=-1) > 1e-9) & (size > 0)
    return np.asarray(np.where(known, (ranks * depth).sum(-1) / np.maximum(size, 1e-12), 0.0))


def _grows(evidence: Evidence, states: "CorrelationResult", ratios: dict[str, Interval]) -> Part:
    from armillary.probes.grid.coarsening.correlation_length import length

    order = evidence.interval(states.arms[MODEL].products, lambda drawn: rank_correlation(length(drawn)))
    grows, ordered = above(ratios[MODEL], T.flow_growth), above(order, T.flow_order)
    verdict: Verdict = "undecided"
    if grows is False:
        verdict = "refuted"
    elif grows and ordered is not None:
        verdict = "supported" if ordered else "qualified"
    where = "" if grows is not True or ordered else ": it is longer at the end, but does not always grow on the way"
    return Part(
        "the length grows layer by layer",
        verdict,
        f"The length changes by a factor of {say(ratios[MODEL][0], '.2g')}; its rank correlation with depth is "
        f"{say(order[0], '.2f')} [{say(order[1], '.2f')}, {say(order[2], '.2f')}]{where}.",
        Statistic("last length over first", *ratios[MODEL]),
        why=missing_interval(*ratios[MODEL], *order) if verdict == "undecided" else None,
    )


def _learned(evidence: Evidence, states: "CorrelationResult", ratios: dict[str, Interval]) -> Part:
    from armillary.probes.grid.coarsening.correlation_length import added

    both = np.stack([states.arms[arm].products for arm in (MODEL, SHUFFLED)], 1)
    excess = evidence.interval(both, lambda drawn: added(drawn[:, 0]) - added(drawn[:, 1]))
    trained, textual = beats(ratios[MODEL], ratios[RANDOM], len(evidence.twins)), above(excess, T.flow_text)
    verdict: Verdict = "supported" if trained and textual else "undecided"
    text = (
        f"At random initialisation the factor is {say(ratios[RANDOM][0], '.2g')}, at most "
        f"{say(ratios[RANDOM][2], '.2g')}; on text depth adds {say(excess[0], '+.2f')} [{say(excess[1], '+.2f')}, "
        f"{say(excess[2], '+.2f')}] tokens more to the length than on shuffled words"
    )
    if trained is False:
        verdict, text = "refuted", f"{text}. Untrained models show as much growth"
    if textual is False:
        verdict, text = "refuted", f"{text}. Shuffled words show as much growth: it comes from averaging, not from text"
    return Part(
        "by training, from the text",
        verdict,
        f"{text}.",
        Statistic("tokens added by depth, on text less on shuffled text", *excess, unit="tokens"),
        why=missing_interval(*ratios[MODEL], *excess) if verdict == "undecided" else None,
    )


def _norms(evidence: Evidence, steps: "FlowSteps") -> Part:
    lead = evidence.interval(steps.products, steps.norms_lead)
    norm, attention, feed_forward = steps.factors(steps.products.sum(0))
    side = above(lead, 1.0)
    return Part(
        "norms coarsen more than sublayers",
        by_side(side),
        f"One norm changes the length by a factor of {say(norm, '.2f')}, attention by {say(attention, '.2f')}, a "
        f"feed-forward by {say(feed_forward, '.2f')}. S3 calls norms 'coarse-graining or regularization operators', so "
        "this part decides nothing.",
        Statistic("factor of a norm over that of a sublayer", *lead),
        asserted=False,
        why=missing_interval(*lead) if side is None else None,
    )


def _reading(states: "CorrelationResult", steps: "FlowSteps", lengths: Floats, parts: tuple[Part, ...]) -> str:
    longest = int(np.argmax(lengths))
    first, last = (say(states.shared(MODEL)[at], ".2g") for at in (0, -1))
    return (
        f"The correlation length goes from {say(lengths[0], '.2g')} to {say(lengths[-1], '.2g')} tokens (½: no "
        f"correlation). It is longest at {states.sites[longest]} with {say(lengths[longest], '.2g')}. "
        f"{parts[0].reading} {parts[1].reading} What the whole document shares goes from {first} to {last} of the "
        f"variance. A fixed point would need steps that vanish: the covariance moves by "
        f"{say(steps.distance[0], '.2f')} at first and by {say(steps.distance[-1], '.2f')} at last (Bures distance). "
        "Whether this is 'isomorphic to a renormalisation group' cannot be measured."
    )
