"""Are per-head slices and one big matrix the same computation?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, Evidence
from armillary.probes.machinery.probe import Instrument
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table

COLUMNS = (
    Column("layer", "layer"),
    Column("scores_error", "scores rebuilt from W_QK on directions: largest difference over the largest score"),
    Column(
        "results_error",
        "heads' results likewise, from the pattern and W_VO, per unit of the largest score (softmax magnifies its rounding)",
    ),
    Column("unfolded_error", "the scores' error if the norm's gain and shift were left out"),
    Column("tolerance", "what rounding of the model's dtype explains"),
)


@dataclass(frozen=True)
class TwoViews:
    """Scores and results of a few windows, rebuilt in float64 from the folded matrices."""

    claim: ClassVar[Claim] = Claim(
        id="attention.two-views",
        chapter="B",
        statement="Per-head slices and one big matrix are the same computation.",
        source="S3",
        definition=(
            "For a few windows of text, the scores of every head are rebuilt from its W_QK and the heads' results from the "
            "pattern and W_VO, both folded with the norm's gain, shift and centring so that they act on directions (biases, "
            "rotation, grouped heads, q/k-norm and soft cap included), in float64; they are compared with what the "
            "running model's own modules give. The statistic is the largest error, relative to the largest value (and, for "
            "results, to the largest score: softmax turns its rounding into a share of attention). Not a sample of "
            "anything, so no interval."
        ),
        control="the same with the norm's gain and shift left out; random initialisation; shuffled text",
        rule=(
            "Supported: no error beyond 64 roundings of float32 (8 of a half-precision dtype). Refuted otherwise. Exact by "
            "definition: what is measured is our instrument and this model's rounding."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("attention",)

    def conclude(self, evidence: Evidence) -> Finding:
        import torch

        from armillary.flow.laws import ROUNDINGS

        layers = evidence.attention[MODEL].layers
        dtype = evidence.anatomy.dtype
        # Below float32 the model rounds what it hands on, and so do its q and k.
        tolerance = ROUNDINGS[dtype] * torch.finfo(dtype).eps
        errors = {arm: max(_errors(evidence, arm)) for arm in evidence.attention}
        worst = errors[MODEL]
        rows: list[dict[str, Any]] = [
            {
                "layer": f"L{i}",
                "scores_error": layer.scores_error,
                "results_error": layer.results_error,
                "unfolded_error": layer.unfolded_error,
                "tolerance": tolerance,
            }
            for i, layer in enumerate(layers)
        ]
        bare = float(np.median([layer.unfolded_error for layer in layers]))
        fine = bool(worst <= tolerance)
        exact = "exact by definition; what is measured is this model's deviation"
        where = max(rows, key=lambda row: max(row["scores_error"], row["results_error"]))["layer"]
        reading = (
            f"W_QK and W_VO on directions give every head's scores and results to {worst:.1g} ({exact}); without the norm's "
            f"gain and shift the scores would be off by {bare:.2g}."
            if fine
            else f"Rebuilt scores or results differ by {worst:.2g} at {where}, and rounding explains {tolerance:.1g}: the "
            "model does something that its weights do not say."
        )
        headline = f"Both views agree to {worst:.1g}" if fine else f"The two views differ by {worst:.2g} at {where}"
        return Finding(
            claim=self.claim,
            verdict="supported" if fine else "refuted",
            statistic=Statistic("largest relative error, scores and results", worst, worst, worst),
            n=len(layers) * evidence.anatomy.n_heads,
            controls=(
                Control("gain and shift left out", bare, bare, bare),
                *(Control(arm, errors[arm], errors[arm], errors[arm]) for arm in evidence.controls() if arm in errors),
            ),
            reading=reading,
            headline=headline,
            table=Table.of(COLUMNS, rows),
            quantities=(_quantity(rows, tolerance),),
        )


def _errors(evidence: Evidence, arm: str) -> list[float]:
    return [max(layer.scores_error, layer.results_error) for layer in evidence.attention[arm].layers]


def _quantity(rows: list[dict[str, Any]], tolerance: float) -> Quantity:
    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows], dtype=float)

    return Quantity(
        "error of the scores",
        "scores rebuilt from W_QK on directions against the running model's, largest difference over the largest score",
        "relative error",
        ("layer",),
        {"layer": [str(row["layer"]) for row in rows]},
        column("scores_error"),
        controls={"gain and shift left out": column("unfolded_error"), "heads' results": column("results_error")},
        theory={f"rounding: {tolerance:.0e}": np.full(len(rows), tolerance)},
        logs=("value",),
    )
