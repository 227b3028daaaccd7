"""Does depth change the scale: are states correlated over longer and longer stretches of text?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Floats, T, spread_layers
from armillary.probes.machinery.intervals import Interval
from armillary.probes.machinery.verdicts import missing_interval, undecided
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.correlation_length import CorrelationResult
    from armillary.probes.machinery.bench import Bench

LAYERS, LENGTH, LENGTH_LEAST = 8, 128, 16
Growth = Mapping[str, Interval]


@dataclass(frozen=True)
class Coarse:
    """Correlation of states by token distance, at each state of the stream."""

    claim: ClassVar[Claim] = Claim(
        id="flow.coarse",
        chapter="F",
        statement="Depth is a renormalisation flow: states are correlated over longer distances, layer by layer.",
        source="S3",
        definition=(
            "C(Δ) is the correlation of directions of the stream Δ tokens apart in a document, minus the mean of all "
            "documents at the same position; first tokens are left out; Δ goes up to half a window and at most 32. P, "
            "the mean of C over the farthest quarter of distances, is what the whole document shares (its subject, for "
            "example) and is not a length. The integrated length is ½ + Σ (C(Δ) − P)/(1 − P) over the nearer "
            "distances. The statistic is the length after the last block divided by that before the first. Whether "
            "depth is isomorphic to a renormalisation group cannot be measured: the verdict is about the growth of the "
            "length."
        ),
        control="random initialisation; shuffled text, where growth can only come from the model's averaging",
        rule=(
            f"Supported if the ratio's interval lies above {T.flow_growth} and above the ratio at random "
            f"initialisation, and the rank correlation of length and depth is at least {T.flow_order}. Refuted if the "
            f"interval lies below {T.flow_growth}. Qualified if the length grows that much, but not in order or not "
            "more than at random initialisation. Undecided otherwise."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The length leaves out what the whole document shares; with it, shuffled text had nearly the same "
                "length. On builtin:gpt qualified became supported.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 5.0

    def experiment(self, bench: "Bench") -> "CorrelationResult | None":
        from armillary.probes.grid.correlation_length import CorrelationResult, centred_states, state_correlations
        from armillary.probes.instruments.patterns import texts

        sites = sites_of(bench.anatomy)
        first = max(1, bench.corpus.windows[0].prefix)
        arms, count, tokens = {}, 0, 0
        for arm in (MODEL, RANDOM, SHUFFLED):
            side = bench.arm(arm)
            windows = texts(side.corpus, T.documents_least, LENGTH).windows
            if len(windows) < 2 or len(windows[0].ids) < LENGTH_LEAST:
                return None
            ids, documents = np.array([w.ids for w in windows]), np.array([w.document for w in windows])
            states = centred_states(side.anatomy, ids, sites, first, bench.tick)
            arms[arm] = state_correlations(states, documents, bench.corpus.groups)
            count, tokens = ids.shape
        return CorrelationResult(sites, arms, count, tokens)

    def conclude(self, evidence: Evidence, result: "CorrelationResult | None") -> Finding:
        from armillary.probes.grid.correlation_length import correlation_lines, correlation_table, growth, length

        if result is None:
            reading = f"Fewer than two documents have {LENGTH_LEAST} tokens. Give more text, or longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        ratios = {arm: evidence.interval(states.products, growth) for arm, states in result.arms.items()}
        lengths = evidence.intervals(result.arms[MODEL].products, length)
        order = _rank_correlation(lengths[:, 0])
        verdict = _verdict(ratios, order)
        first, last = (say(lengths[at, 0], ".2g") for at in (0, -1))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*ratios[MODEL]) if verdict == "undecided" else None,
            statistic=Statistic("correlation length after the last block, over that before the first", *ratios[MODEL]),
            n=result.texts * result.tokens,
            controls=tuple(Control(arm, *ratios[arm]) for arm in (RANDOM, SHUFFLED)),
            reading=_reading(result, lengths[:, 0], ratios, order),
            headline=f"States are correlated over {first} tokens before the first block and {last} after the last",
            table=correlation_table(result, lengths),
            quantities=correlation_lines(result, lengths),
            notes=(f"{result.texts} documents of {result.tokens} tokens",),
        )


def sites_of(anatomy: "Anatomy") -> tuple[str, ...]:
    """The stream before the first block, and after blocks spread over the depth."""
    return ("L0.resid_pre", *(f"L{layer}.resid_post" for layer in spread_layers(anatomy, LAYERS)))


def _rank_correlation(lengths: Floats) -> float:
    """Of length and depth; 0 where all lengths are equal."""
    from scipy.stats import rankdata

    if np.ptp(lengths) <= 1e-9:
        return 0.0
    return float(np.corrcoef(rankdata(lengths), np.arange(len(lengths)))[0, 1])


def _verdict(ratios: Growth, order: float) -> Verdict:
    _, low, high = ratios[MODEL]
    if high < T.flow_growth:
        return "refuted"
    if np.isnan(low) or low <= T.flow_growth:
        return "undecided"
    return "supported" if order >= T.flow_order and low > ratios[RANDOM][0] else "qualified"


def _reading(result: "CorrelationResult", lengths: Floats, ratios: Growth, order: float) -> str:
    longest = int(np.argmax(lengths))
    ratio = {arm: say(value[0], ".2g") for arm, value in ratios.items()}
    text = (
        f"The correlation length goes from {say(lengths[0], '.2g')} to {say(lengths[-1], '.2g')} tokens, by a factor "
        f"of {ratio[MODEL]} (at random initialisation {ratio[RANDOM]}, on shuffled text {ratio[SHUFFLED]}). It is "
        f"longest at {result.sites[longest]} with {say(lengths[longest], '.2g')}. Its rank correlation with depth is "
        f"{say(order, '.2f')}."
    )
    grows = ratios[MODEL][1] > T.flow_growth
    if grows and ratios[RANDOM][0] >= ratios[MODEL][1]:
        text += " Random heads average over their keys and lengthen it as much: growth alone does not show training."
    elif grows and ratios[SHUFFLED][2] >= ratios[MODEL][0]:
        text += " Shuffled words show as much growth: it comes from the model's averaging, not from scales of the text."
    first, last = (say(result.shared(MODEL)[at], ".2g") for at in (0, -1))
    return (
        f"{text} What the whole document shares goes from {first} to {last} of the variance (at random initialisation "
        f"to {say(result.shared(RANDOM)[-1], '.2g')}). Whether this is 'isomorphic to a renormalisation group' cannot "
        "be measured."
    )
