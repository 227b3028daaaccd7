"""How many queries, keys and writes of a head lie in its null space?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.probes.attention.scores.sampled_queries import by_sure_share, median_head
from armillary.probes.instruments.heads import HEADS, KEYS_LEAST
from armillary.probes.machinery import MODEL, Evidence, Flags, Floats, Interval, T, above, all_of, beats, reached_by
from armillary.probes.machinery.verdicts import missing_interval, name_heads
from armillary.results import Part, Statistic, Verdict, Why, say

UNSEEN = "share of queries that a head hardly sees and that attend to all keys equally"


def _pooled(evidence: Evidence, arm: str, flags: Floats, counted: Floats) -> Interval:
    """The share of counted (token, head) pairs [layer, head, query] that are flagged, over all heads."""
    sums = evidence[HEADS][arm].sums(counted, flags * counted).sum((1, 2))
    return evidence.interval(sums)


def unseen_share(evidence: Evidence, arm: str, permuted: bool = False) -> Interval:
    rows = evidence[HEADS][arm]
    null, entropy = rows.sampled("null_query"), rows.sampled("entropy")
    if permuted:
        null = null[..., np.random.default_rng(evidence.seed).permutation(rows.queries)]
    flags = (null >= T.null_share) & (entropy >= T.uniform_entropy)
    return _pooled(evidence, arm, flags.astype(float), np.ones_like(null))


def bare_part(evidence: Evidence) -> Part:
    stats = evidence[HEADS][MODEL].means("entropy_bare")
    each, median = evidence.intervals(stats), median_head(evidence, stats)
    verdict, why = by_sure_share(each, T.uniform_entropy)
    holds = each[..., 1] > T.uniform_entropy
    where = f" (not in {name_heads(~holds)})" if verdict == "qualified" else ""
    reading = (
        f"Without its visible part a query attends to all keys equally in {holds.sum()} of {holds.size} heads{where}; "
        f"in the median head it has {say(median[0], '.2f')} of the largest entropy, and the rest is due to biases"
    )
    statistic = Statistic("entropy of a query without its visible part, median head", *median)
    return Part("a query without its visible part attends equally", verdict, reading, statistic, why=why)


def existence(
    name: str, statistic: str, what: str, share: Interval, twins: Interval, number: int, chance: Interval | None = None
) -> Part:
    """Are there as many as `null_exist`, and by as many more than in untrained models and by chance?"""
    exist, beyond = above(share, T.null_exist), beats(share, twins, number, T.null_exist)
    reached = [float(reached_by(twins, number))]
    if chance is not None:
        beyond = all_of(beyond, above(share, chance[2] + T.null_exist))
        reached.append(chance[2])
    if share[2] <= max(reached) + T.null_exist:
        # All tokens of the model and of its controls: an interval without width does not lie below.
        beyond = False
    verdict: Verdict = "supported" if beyond else "qualified"
    why: Why | None = None
    if np.isnan(share[0]):
        verdict, why = "undecided", Why.UNDEFINED
    elif exist is False:
        verdict = "refuted"
    elif exist is None or beyond is None:
        verdict, why = "undecided", missing_interval(*share, *twins)
    reading = f"{say(share[0] * 100, '.2g')}% of {what} (untrained: {say(twins[0] * 100, '.2g')}%)"
    if verdict == "qualified":
        reading += ", which is no more than in an untrained model or by chance"
    return Part(name, verdict, reading, Statistic(statistic, *share), why=why)


def key_part(evidence: Evidence) -> Part:
    def share(arm: str) -> Interval:
        rows = evidence[HEADS][arm]
        spread, counted = rows.sampled("key_spread"), rows.sampled("key_queries") >= KEYS_LEAST
        typical = _medians(spread, counted)
        flags = (rows.sampled("null_key") >= T.null_share) & (spread <= T.uniform_key * typical)
        return _pooled(evidence, arm, flags.astype(float), (counted & (typical > 0)).astype(float))

    name = "share of keys that a head hardly sees and that all queries score equally"
    return existence(
        "there are such keys",
        name,
        "keys are hardly seen and get the same score from all queries",
        share(MODEL),
        evidence.over_twins(share),
        len(evidence.twins),
    )


def _medians(values: Floats, counted: Flags) -> Floats:
    """The median of each row's counted values [layer, head, 1]; 0 where none is."""
    heads = [row[chosen] for row, chosen in zip(_rows(values), _rows(counted), strict=True)]
    medians = np.array([np.median(row) if len(row) else 0.0 for row in heads])
    return medians.reshape(*values.shape[:-1], 1)


def _rows(values: NDArray[Any]) -> NDArray[Any]:
    return values.reshape(-1, values.shape[-1])


def write_part(evidence: Evidence) -> Part:
    def share(arm: str) -> Interval:
        update = evidence[HEADS][arm].sampled("update")
        typical = np.median(update, axis=-1, keepdims=True)
        flags = update < T.null_write * typical
        return _pooled(evidence, arm, flags.astype(float), np.broadcast_to(typical > 0, update.shape).astype(float))

    part = existence(
        "heads write nothing for some tokens",
        "share of tokens for which a head writes less than 1 % of its median",
        "(token, head) pairs have a write below 1% of the head's median",
        share(MODEL),
        evidence.over_twins(share),
        len(evidence.twins),
    )
    return Part(part.name, part.verdict, part.reading, part.statistic, asserted=False, why=part.why)
