"""Does q·k grow with the head's width because of the norm, and does the factor 1/√k undo it?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.scores.sampled_queries import (
    by_sure_share,
    control_maps,
    median_controls,
    median_head,
    sampling_note,
)
from armillary.probes.attention.scores.stream_scale import (
    WIDTHS,
    StreamScales,
    away,
    growth_line,
    logarithm,
    near,
    random_exponent,
    random_growth,
    scales_of,
)
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Floats, Interval, T, mean, name_heads
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells
from armillary.probes.machinery.verdicts import above, missing_interval, name_sites, weighed
from armillary.results import Claim, Finding, Part, Rewording, RuleChange, Statistic, Table, say

EXPONENT = "exponent of Var(q·k) in the number of axes, median head"


@dataclass(frozen=True)
class ScoreScale:
    """Var(q·k)/k behind Gaussian weights, with the norm and without it, and the growth in the model's own heads."""

    claim: ClassVar[Claim] = Claim(
        id="attention.scale",
        chapter="B",
        statement="Because the norm gives unit variance, Var(q·k) grows in proportion to the head's width k; 1/√k "
        "undoes it.",
        source="S3",
        question=(
            "The dot product of a query and a key varies more the more axes they have, so attention divides it by √k "
            "for k axes. Is that the right factor for this model's own queries and keys?"
        ),
        definition=(
            "How fast the variance of q·k grows with the head's width k, measured in three ways.\n"
            "(1) With the norm: the model's own directions z, as attention reads them, pass through Gaussian W_Q and "
            "W_K with entries of variance 1/d, where d is the width of the model. Var(q·k)/k is then the mean of "
            f"|z|²/d, squared; 1 is unit variance. Draws of such q and k for widths k = {WIDTHS[0]} … {WIDTHS[-1]} "
            "give the exponent of the growth in k.\n"
            "(2) Without the norm: the same with the stream x in place of z, so that Var(q·k)/k is the mean of "
            "|x|²/d, squared.\n"
            "(3) In the model's own heads: how Var(q·k) over a query's keys grows as random axes of the head's space "
            "are added one by one. The exponent is 1 + ln(V/A)/ln k, where V is the variance with all k axes and A is "
            "k times the variance with one axis. If it is 1, axes vary independently, and 1/√k undoes the growth. If "
            "it is larger, axes vary together, and scores grow faster.\n"
            "The statistic is the median head's exponent."
        ),
        control="the stream without the norm (part 2); random initialisation; shuffled text",
        rule=(
            "Three parts about how Var(q·k) grows with the width k; the weakest decides. Every comparison uses the "
            "whole interval.\n"
            "Part 1, with the norm, Var(q·k) = k.\n"
            f"Supported if Var(q·k)/k is within a factor of {T.scale_unit} of 1 in at least {T.sites_most:.0%} of "
            f"layers, and the exponent of random draws is 1 ± {T.scale_exponent_within}.\n"
            f"Refuted if Var(q·k)/k is within that factor in at most {T.sites_few:.0%} of layers, or if the exponent "
            f"is outside 1 ± {T.scale_exponent_within}.\n"
            "Qualified in between.\n"
            "Part 2, without the norm Var(q·k)/k follows the stream's length.\n"
            f"Supported if Var(q·k)/k without the norm differs from 1 by more than a factor of {T.scale_norm:g} in at "
            f"least {T.sites_most:.0%} of layers.\n"
            f"Refuted if this holds in at most {T.sites_few:.0%} of layers: there the stream has unit variance by "
            "itself.\n"
            "Qualified in between.\n"
            "Part 3, 1/√k undoes the growth in the model's heads.\n"
            f"Supported if the exponent is 1 ± {T.scale_exponent_within} in at least {T.sites_most:.0%} of heads.\n"
            f"Refuted if this holds in at most {T.sites_few:.0%} of heads.\n"
            "Qualified in between.\n"
            "Each part is undecided if layers or heads whose interval spans a limit could change its verdict, or if "
            "intervals are missing. Part 3 is also undecided if the scores of half of the heads or more do not vary; "
            "if fewer do not vary, they are left out.\n"
            "A part of our own decides nothing: whether scores have a variance near 1. It depends on the size of the "
            "weights, which the source does not mention."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "The rule had asked for a variance of scores within a factor of ten of 1. Untrained models, on which "
                "the law holds exactly, were all refuted because their weights are small. It now tests what the norm "
                "does and whether 1/√k undoes the growth with k.",
            ),
            RuleChange(
                "2026-11-18",
                "The exponent of random draws refuted by its value alone; across its limit it leaves part 1 open now, "
                "as this rule's text says. Six models have 0.99 to 1.01, so that no verdict of theirs changed.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "1bb9e3d51a24", 2),
            Rewording("2026-11-18", "2b92e6b2ac63", 2),
            Rewording("2026-11-19", "3670c7fd0448", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS, SAMPLES)

    def conclude(self, evidence: Evidence) -> Finding:
        rows, stats = evidence[HEADS][MODEL], _powers(evidence, MODEL)
        grows = _exponent(evidence.anatomy.k)
        exponent, median = evidence.intervals(stats, grows), median_head(evidence, stats, grows)
        variances = _variances(evidence, MODEL)
        variance = evidence.intervals(variances)
        scales, growth = scales_of(evidence), random_growth(evidence)
        parts = (
            _with_norm(scales, growth),
            _without_norm(scales),
            _in_heads(exponent, median),
            _unit_scores(variance, median_head(evidence, variances)),
        )
        entropy, unscaled = (mean(rows.means(name).sum(0)) for name in ("entropy", "entropy_unscaled"))
        return Finding(
            claim=self.claim,
            **weighed(
                parts,
                " ".join(f"{part.reading}." for part in parts) + f" Attention has {np.median(entropy):.2f} of the "
                f"largest possible entropy in the median head, {np.median(unscaled):.2f} without 1/√k.",
                more=True,
            ),
            statistic=Statistic(EXPONENT, *median),
            n=rows.queries,
            controls=median_controls(evidence, lambda arm: _powers(evidence, arm), grows),
            headline=f"Var(q·k) grows like k^{say(median[0], '.2f')} in the median head; 1/√k undoes k^1",
            table=_table(evidence, exponent, variance, entropy, unscaled),
            quantities=(
                head_map(
                    "exponent of Var(q·k) in the number of axes",
                    "1: axes vary independently, and 1/√k undoes the growth",
                    "exponent",
                    exponent[..., 0],
                    control_maps(evidence, lambda arm: _powers(evidence, arm), grows),
                ),
                scales.line(),
                growth_line(growth),
                head_map(
                    "entropy of the pattern",
                    "entropy of attention divided by ln(keys): 1 is uniform attention",
                    "share of ln(keys)",
                    entropy,
                    {"without 1/√k": unscaled},
                ),
            ),
            notes=(sampling_note(evidence),),
        )


def _powers(evidence: Evidence, arm: str) -> Floats:
    """[group, layer, head, (V, A)]: sums over queries of both variances over keys."""
    rows = evidence[HEADS][arm]
    keys = rows.sampled("keys")
    return rows.sums(rows.sampled("product_power") / keys, rows.sampled("axis_power") / keys)


def _exponent(k: int) -> Callable[[Floats], Floats]:
    def exponent(stats: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            value = 1 + np.log(stats[..., 0] / stats[..., 1]) / np.log(float(k))
        # A head of one axis, or one whose scores do not vary, has no growth.
        return np.where(np.isfinite(value), value, np.nan)

    return exponent


def _variances(evidence: Evidence, arm: str) -> Floats:
    rows = evidence[HEADS][arm]
    variance = rows.sampled("score_power") / rows.sampled("keys")
    return rows.sums(np.ones_like(variance), variance)


def _with_norm(scales: StreamScales, growth: dict[int, Floats]) -> Part:
    exponent, error = random_exponent(growth)
    verdict, why = by_sure_share(near(logarithm(scales.normed), 0.0), -np.log(T.scale_unit))
    measured = (exponent, exponent - error, exponent + error)
    below, beyond = (above(measured, 1 + end * T.scale_exponent_within) for end in (-1, 1))
    if below is False or beyond:
        verdict, why = "refuted", None
    elif (below is None or beyond is None) and verdict != "refuted":
        verdict, why = "undecided", missing_interval(*measured)
    low, high = scales.range(scales.normed)
    reading = (
        f"With the norm and Gaussian weights, Var(q·k)/k is {low} to {high} over layers (the law: 1), and Var(q·k) "
        f"grows like k^{say(exponent, '.2f')}"
    )
    statistic = Statistic("exponent of Var(q·k) in k, Gaussian weights", *measured)
    return Part("with the norm, Var(q·k) = k", verdict, reading, statistic, why=why)


def _without_norm(scales: StreamScales) -> Part:
    distances = away(logarithm(scales.bare), 0.0)
    verdict, why = by_sure_share(distances, np.log(T.scale_norm))
    same = [layer for layer, low in zip(scales.layers, distances[:, 1], strict=True) if not low > np.log(T.scale_norm)]
    near_one = f"; it is near 1 anyway in {name_sites(same)}" if same and verdict != "refuted" else ""
    low, high = scales.range(scales.bare)
    reading = f"Without the norm Var(q·k)/k would be {low} to {high}, the squared mean square of the stream{near_one}"
    return Part("without the norm it follows the stream's length", verdict, reading, why=why)


def _in_heads(exponent: Floats, median: Interval) -> Part:
    verdict, why = by_sure_share(near(exponent, 1.0), -T.scale_exponent_within)
    inside = near(exponent, 1.0)[..., 1] > -T.scale_exponent_within
    where = f" ({name_heads(inside)})" if verdict == "qualified" else ""
    defined = exponent[..., 0][np.isfinite(exponent[..., 0])]
    extent = f"{defined.min():.2f} to {defined.max():.2f}" if len(defined) else "undefined"
    reading = (
        f"In the model's own heads Var(q·k) grows like k^{say(median[0], '.2f')} (median; {extent}): 1/√k undoes the "
        f"growth in {inside.sum()} of {inside.size} heads{where}"
    )
    return Part("1/√k undoes the growth in the model's heads", verdict, reading, Statistic(EXPONENT, *median), why=why)


def _unit_scores(variance: Floats, median: Interval) -> Part:
    verdict, why = by_sure_share(near(logarithm(variance), 0.0), -np.log(T.score_variance))
    reading = f"The variance of scores over a query's keys is {say(median[0], '.2g')} in the median head"
    statistic = Statistic("Var(score) over keys, median head", *median)
    return Part("scores have a variance near 1", verdict, reading, statistic, asserted=False, why=why)


def _table(evidence: Evidence, exponent: Floats, variance: Floats, entropy: Floats, unscaled: Floats) -> Table:
    rows = evidence[HEADS][MODEL]
    products = (rows.sampled("product_power") / rows.sampled("keys")).mean(-1)
    return head_table(
        evidence.anatomy,
        interval_cells("exponent", "exponent of Var(q·k) over a query's keys in the number of random axes", exponent),
        interval_cells("variance", "variance of a query's scores over its keys, mean over queries", variance),
        cells("variance_unscaled", "the same of q·k, without 1/√k and before any soft cap", products),
        cells("mean_score", "mean score over the keys that a query sees", rows.sampled("mean_score").mean(-1)),
        cells("entropy", "entropy of the pattern divided by ln(keys): 1 is uniform", entropy),
        cells("entropy_unscaled", "the same without 1/√k", unscaled),
    )
