"""Does q·k grow with the head's width, and does the factor 1/√k undo it?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.sampled_queries import median_head, sampling_note
from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, AnyInstrument, Evidence, Flags, Floats, T, by_share, mean, name_heads
from armillary.probes.machinery.tables import cells, head_map, head_table, interval_cells, line
from armillary.results import Claim, Control, Finding, Quantity, Statistic, Table, Verdict, say

WIDTHS = (8, 16, 32, 64, 128, 256)
DRAWS, TOKENS = 24, 96


@dataclass(frozen=True)
class ScoreScale:
    """The exponent of Var(q·k) in k at random weights, and the variance of this model's scores."""

    claim: ClassVar[Claim] = Claim(
        id="attention.scale",
        chapter="B",
        statement="With inputs of unit variance, Var(q·k) grows in proportion to the head's width k; 1/√k undoes it.",
        source="S3",
        definition=(
            "At random weights: directions of this model's width pass through Gaussian W_Q and W_K of width k = "
            f"{WIDTHS[0]} … {WIDTHS[-1]}, and the exponent of the growth of Var(q·k) in k is fitted. On the model: the "
            "variance of a query's scores over its keys, per head, and the entropy of its attention pattern, each "
            "with and without 1/√k. The statistic is the variance with 1/√k in the median head."
        ),
        control="random weights, where the exponent is 1 by construction; random initialisation; shuffled text",
        rule=(
            f"1/√k undoes the growth in a head if the variance of its scores lies between 1/{T.score_variance:.0f} and "
            f"{T.score_variance:.0f}. Supported if that holds in at least {T.sites_most:.0%} of heads and the exponent "
            f"is 1 ± {T.scale_exponent_within}. Refuted if it holds in at most {T.sites_few:.0%} of heads, or the "
            "exponent differs from 1 by more. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)

    def conclude(self, evidence: Evidence) -> Finding:
        rows, stats = evidence[HEADS][MODEL], _variances(evidence, MODEL)
        variance, median = evidence.intervals(stats), median_head(evidence, stats)
        in_range = (variance[..., 0] >= 1 / T.score_variance) & (variance[..., 0] <= T.score_variance)
        growth = random_growth(evidence.anatomy.d, evidence.seed)
        exponent, error = _exponent(growth)
        lawful = abs(exponent - 1) <= T.scale_exponent_within
        verdict = by_share(in_range) if lawful else "refuted"
        entropy, unscaled = (mean(rows.means(name).sum(0)) for name in ("entropy", "entropy_unscaled"))
        arms = {arm: _variances(evidence, arm) for arm in evidence.controls(HEADS)}
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Var(score) over keys, median head", *median),
            n=rows.queries,
            controls=(
                Control("random weights: exponent of Var(q·k) in k", exponent, exponent - error, exponent + error),
                *(Control(arm, *median_head(evidence, sums)) for arm, sums in arms.items()),
            ),
            reading=_reading(verdict, variance[..., 0], in_range, exponent, entropy, unscaled),
            headline=f"After 1/√k the scores of a query have a variance of {median[0]:.2g} in the median head",
            table=_table(evidence, variance, entropy, unscaled),
            quantities=(
                _growth_line(growth),
                head_map(
                    "Var(score)",
                    "variance of a query's scores over its keys, with 1/√k",
                    "variance",
                    variance[..., 0],
                    {arm: mean(sums.sum(0)) for arm, sums in arms.items()},
                    log=True,
                ),
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


def _variances(evidence: Evidence, arm: str) -> Floats:
    rows = evidence[HEADS][arm]
    variance = rows.sampled("score_power") / rows.sampled("keys")
    return rows.sums(np.ones_like(variance), variance)


def random_growth(d: int, seed: int) -> dict[int, Floats]:
    """Var(q·k) over pairs of directions for each width, one value per draw of Gaussian weights of variance 1/d."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    variances = {}
    for k in WIDTHS:
        draws = []
        for _ in range(DRAWS):
            z = torch.randn(TOKENS, d, generator=generator)
            q, keys = (z @ torch.randn(d, k, generator=generator) / d**0.5 for _ in range(2))
            products = (q @ keys.T).double()
            draws.append(float(products[~torch.eye(TOKENS, dtype=torch.bool)].square().mean()))
        variances[k] = np.array(draws)
    return variances


def _exponent(growth: dict[int, Floats]) -> tuple[float, float]:
    """Exponent of the growth in k, and 1.96 standard errors over draws."""
    x = np.log(np.array(WIDTHS, dtype=float))
    y = np.stack([np.log(growth[k]) for k in WIDTHS], 1)
    slopes = np.array([np.polyfit(x, row, 1)[0] for row in y])
    return float(slopes.mean()), float(1.96 * slopes.std(ddof=1) / len(slopes) ** 0.5)


def _growth_line(growth: dict[int, Floats]) -> Quantity:
    values = np.array([growth[k].mean() for k in WIDTHS])
    error = np.array([1.96 * growth[k].std(ddof=1) / len(growth[k]) ** 0.5 for k in WIDTHS])
    return line(
        "Var(q·k) at random weights",
        "directions of unit variance through Gaussian W_Q and W_K",
        "variance",
        "head width k",
        [float(k) for k in WIDTHS],
        np.stack([values, values - error, values + error], -1),
        controls={"after 1/√k": values / np.array(WIDTHS)},
        theory={"k": np.array(WIDTHS, dtype=float)},
        logs=("head width k", "value"),
    )


def _table(evidence: Evidence, variance: Floats, entropy: Floats, unscaled: Floats) -> Table:
    rows = evidence[HEADS][MODEL]
    products = (rows.sampled("product_power") / rows.sampled("keys")).mean(-1)
    return head_table(
        evidence.anatomy,
        interval_cells("variance", "variance of a query's scores over its keys, mean over queries", variance),
        cells("variance_unscaled", "the same of q·k, without 1/√k and before any soft cap", products),
        cells("mean_score", "mean score over the keys that a query sees", rows.sampled("mean_score").mean(-1)),
        cells("entropy", "entropy of the pattern divided by ln(keys): 1 is uniform", entropy),
        cells("entropy_unscaled", "the same without 1/√k", unscaled),
    )


def _reading(
    verdict: Verdict, variance: Floats, in_range: Flags, exponent: float, entropy: Floats, unscaled: Floats
) -> str:
    exceptions = f" (not in {name_heads(~in_range)})" if verdict == "qualified" else ""
    return (
        f"The variance of scores lies within a factor of {T.score_variance:.0f} of 1 in {in_range.sum()} of "
        f"{in_range.size} heads{exceptions}; it ranges from {variance.min():.2g} to {variance.max():.2g}. At "
        f"random weights Var(q·k) grows like k^{say(exponent, '.2f')}, by construction: 1/√k sets the starting "
        f"temperature, and training moves it. Attention has {np.median(entropy):.2f} of the largest possible entropy "
        f"in the median head, {np.median(unscaled):.2f} without 1/√k."
    )
