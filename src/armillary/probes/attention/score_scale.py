"""Does the product of q and k grow with the head's width, and does 1/√k undo it?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.cosine import sampled_note
from armillary.probes.machinery.evidence import MODEL, Evidence, Flags, Floats
from armillary.probes.machinery.per_head import (
    by_share,
    grid,
    head_map,
    head_table,
    mean,
    means,
    median_head,
    name_heads,
    ratio,
    sums,
)
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Verdict

WIDTHS = (8, 16, 32, 64, 128, 256)
DRAWS, TOKENS = 24, 96
COLUMNS = (
    Column("head", "head"),
    Column("variance", "variance of a query's scores over its keys, mean over queries"),
    Column("variance_low", "its 95 % interval over documents, low end"),
    Column("variance_high", "its 95 % interval over documents, high end"),
    Column("variance_unscaled", "the same of q·k, without the factor 1/√k (and before any cap)"),
    Column("mean_score", "mean score over the keys a query sees"),
    Column("entropy", "entropy of the pattern over ln(keys): 1 is uniform"),
    Column("entropy_unscaled", "the same without 1/√k"),
)


@dataclass(frozen=True)
class Scale:
    """The exponent at random weights, and the variance of this model's scores."""

    claim: ClassVar[Claim] = Claim(
        id="attention.scale",
        chapter="B",
        statement="Unit variance makes Var(q·k) grow like the head's width k, and 1/√k undoes it.",
        source="S3",
        definition=(
            "At random weights: Var(q·k) for directions of this model's width through Gaussian W_Q and W_K of width "
            f"k = {WIDTHS[0]} … {WIDTHS[-1]}, and the exponent of its growth in k. On the model: the variance of a query's "
            "scores over its keys, per head, with and without 1/√k, and the pattern's entropy either way. The statistic is "
            "the variance with 1/√k in the median head."
        ),
        control="random weights, where the exponent is 1 by construction; random initialisation; shuffled text",
        rule=(
            f"Undone in a head when the variance lies between 1/{T.score_variance:.0f} and {T.score_variance:.0f}. Supported: "
            f"in ≥ {T.sites_most:.0%} of heads, the exponent being 1 ± {T.scale_exponent_within}. Refuted: in "
            f"≤ {T.sites_few:.0%} of heads, or another exponent. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("attention",)

    def conclude(self, evidence: Evidence) -> Finding:
        stats = _powers(evidence, MODEL)
        variance, low, high = grid(evidence, stats, _variance)
        undone = (variance >= 1 / T.score_variance) & (variance <= T.score_variance)
        law = random_law(evidence.anatomy.d, evidence.seed)
        exponent, error = _slope(law)
        lawful = abs(exponent - 1) <= T.scale_exponent_within
        verdict = by_share(undone) if lawful else "refuted"
        median = median_head(evidence, stats, _variance)
        record = evidence.attention[MODEL]
        unscaled = (record.sampled("product_power") / record.sampled("keys")).mean(-1)
        entropy = [mean(means(record, name).sum(0)) for name in ("entropy", "entropy_unscaled")]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("Var(score) over keys, median head", *median),
            n=record.queries,
            controls=(
                Control("random weights: exponent of Var(q·k) in k", exponent, exponent - error, exponent + error),
                *(
                    Control(arm, *median_head(evidence, _powers(evidence, arm), _variance))
                    for arm in evidence.controls()
                ),
            ),
            reading=_reading(verdict, variance, undone, exponent, entropy),
            headline=f"Scores have a variance of {median[0]:.2g} in the median head after 1/√k",
            table=head_table(
                evidence, COLUMNS, (variance, low, high, unscaled, record.sampled("mean_score").mean(-1), *entropy)
            ),
            quantities=(_law_quantity(law), *_maps(evidence, variance, entropy)),
            notes=(sampled_note(evidence),),
        )


def _powers(evidence: Evidence, arm: str) -> Floats:
    record = evidence.attention[arm]
    power = record.sampled("score_power") / record.sampled("keys")
    return sums(record, [np.ones_like(power), power])


def _variance(stats: Floats) -> Floats:
    return ratio(stats, 1, 0)


def random_law(d: int, seed: int) -> dict[int, Floats]:
    """Var(q·k) over pairs of directions for each width, one value a draw of Gaussian weights of variance 1/d."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    found = {}
    for k in WIDTHS:
        drawn = []
        for _ in range(DRAWS):
            z = torch.randn(TOKENS, d, generator=generator)
            q, keys = (z @ torch.randn(d, k, generator=generator) / d**0.5 for _ in range(2))
            products = (q @ keys.T).double()
            drawn.append(float(products[~torch.eye(TOKENS, dtype=torch.bool)].square().mean()))
        found[k] = np.array(drawn)
    return found


def _slope(law: dict[int, Floats]) -> tuple[float, float]:
    """Exponent of the growth in k, and 1.96 standard errors, from the draws' own spread."""
    x = np.log(np.array(WIDTHS, dtype=float))
    y = np.stack([np.log(law[k]) for k in WIDTHS], 1)
    slopes = np.array([np.polyfit(x, row, 1)[0] for row in y])
    return float(slopes.mean()), float(1.96 * slopes.std(ddof=1) / len(slopes) ** 0.5)


def _law_quantity(law: dict[int, Floats]) -> Quantity:
    values = np.array([law[k].mean() for k in WIDTHS])
    spread = np.array([1.96 * law[k].std(ddof=1) / len(law[k]) ** 0.5 for k in WIDTHS])
    return Quantity(
        "Var(q·k) at random weights",
        "directions of unit variance through Gaussian W_Q and W_K",
        "variance",
        ("head width k",),
        {"head width k": [float(k) for k in WIDTHS]},
        values,
        values - spread,
        values + spread,
        controls={"after 1/√k": values / np.array(WIDTHS)},
        theory={"k": np.array(WIDTHS, dtype=float)},
        logs=("head width k", "value"),
    )


def _maps(evidence: Evidence, variance: Floats, entropy: list[Floats]) -> tuple[Quantity, ...]:
    controls = {arm: _variance(_powers(evidence, arm).sum(0)) for arm in evidence.controls()}
    return (
        head_map(
            "Var(score)", "of a query's scores over its keys, with 1/√k", "variance", variance, controls, log=True
        ),
        head_map(
            "entropy of the pattern",
            "over ln(keys): 1 is uniform attention",
            "share of ln(keys)",
            entropy[0],
            {"without 1/√k": entropy[1]},
        ),
    )


def _reading(verdict: Verdict, variance: Floats, undone: Flags, exponent: float, entropy: list[Floats]) -> str:
    told = (
        f"At random weights Var(q·k) grows like k^{exponent:.2f}, by construction; after training {int(undone.sum())} of "
        f"{undone.size} heads have scores of a variance within a factor {T.score_variance:.0f} of one"
    )
    if verdict == "qualified":
        told += f" (not {name_heads(~undone)})"
    least, most = float(variance.min()), float(variance.max())
    return (
        f"{told}, from {least:.2g} to {most:.2g}: training sets its own temperature; entropy {np.median(entropy[0]):.2f} of "
        f"the largest in the median head, {np.median(entropy[1]):.2f} without 1/√k."
    )
