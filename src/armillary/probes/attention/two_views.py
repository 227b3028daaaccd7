"""Are per-head slices and one large matrix the same computation?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.heads import HEADS
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Floats
from armillary.probes.machinery.tables import cells, layer_table, line
from armillary.results import Claim, Control, Finding, Rewording, Statistic, Table, say


@dataclass(frozen=True)
class TwoViews:
    """Rebuilds the scores and results of a few windows in float64 from the folded matrices."""

    claim: ClassVar[Claim] = Claim(
        id="attention.two-views",
        chapter="B",
        statement="Per-head slices and one large matrix are the same computation.",
        source="S3",
        question=(
            "Attention can be computed head by head, or written with one matrix per head that takes whole token "
            "vectors. Do both give the same numbers in this model?"
        ),
        definition=(
            "The running model, which computes attention head by head, is compared with one large matrix per head, for "
            "a few windows of text. The scores of every head are rebuilt from its matrix W_QK. The heads' results, "
            "before W_O, are rebuilt from the attention of these scores and from W_VO. Both matrices are kept as their "
            "two factors, and have the norm's gain, shift and centring folded in, so that they act on directions. "
            "Biases, rotation, grouped heads, q/k-norm and soft cap are included. The rebuilt values are in float64.\n"
            "The statistic is the largest error divided by the largest value. For results it is also divided by the "
            "largest score, if that is above 1, because softmax amplifies the rounding of scores that much. It is not "
            "an average over a sample, so it has no interval."
        ),
        control="the same without the norm's gain and shift; random initialisation; shuffled text",
        rule=(
            "The largest error is compared with what rounding explains.\n"
            "Supported if no error exceeds 64 roundings of the model's dtype (8 in half precision).\n"
            "Refuted otherwise.\n"
            "The claim is exact by definition: the measurement tests this implementation and the model's rounding."
        ),
        kind="definition",
        rewordings=(
            Rewording("2026-11-18", "302a8cbce6c1", 0),
            Rewording("2026-11-18", "ec3e047ad15a", 0),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (HEADS,)
    needs_documents: ClassVar[bool] = False

    def conclude(self, evidence: Evidence) -> Finding:
        import torch

        from armillary.flow.laws import ROUNDINGS

        dtype, rows = evidence.anatomy.dtype, evidence[HEADS][MODEL]
        tolerance = ROUNDINGS[dtype] * torch.finfo(dtype).eps
        scores, results, bare = (rows.error(f"{what}_error") for what in ("scores", "results", "unfolded"))
        worst = _worst(evidence, MODEL)
        agree = bool(worst <= tolerance)
        where = f"L{int(np.argmax(np.maximum(scores, results)))}"
        unfolded = float(np.median(bare))
        return Finding(
            claim=self.claim,
            verdict="supported" if agree else "refuted",
            statistic=Statistic("largest relative error, scores and results", worst, worst, worst),
            n=len(scores) * evidence.anatomy.n_heads,
            controls=(
                Control("gain and shift left out", unfolded, unfolded, unfolded),
                Control(RANDOM, *evidence.over_twins(lambda arm: (_worst(evidence, arm),) * 3)),
                Control(SHUFFLED, *[_worst(evidence, SHUFFLED)] * 3),
            ),
            reading=(
                "W_QK and W_VO reproduce the scores and results of every head to a relative error of "
                f"{say(worst, '.1g')}. They must, by definition; what is left is rounding. Without the norm's gain and "
                f"shift the scores would be off by {say(unfolded, '.2g')}."
                if agree
                else f"Rebuilt scores or results differ by {say(worst, '.2g')} at {where}. Rounding explains only "
                f"{say(tolerance, '.1g')}, so the model computes something that its weights do not show."
            ),
            headline=f"Both views agree to {say(worst, '.1g')}"
            if agree
            else f"The two views differ by {say(worst, '.2g')} at {where}",
            table=_table(scores, results, bare, tolerance),
            quantities=(
                line(
                    "error of the scores",
                    "scores rebuilt from W_QK compared with the running model's: largest error over the largest score",
                    "relative error",
                    "layer",
                    [f"L{layer}" for layer in range(len(scores))],
                    scores,
                    controls={"gain and shift left out": bare, "heads' results": results},
                    theory={f"rounding: {tolerance:.0e}": np.full(len(scores), tolerance)},
                    logs=("value",),
                ),
            ),
        )


def _table(scores: Floats, results: Floats, bare: Floats, tolerance: float) -> Table:
    return layer_table(
        len(scores),
        cells("scores_error", "largest error of scores rebuilt from W_QK, divided by the largest score", scores),
        cells(
            "results_error",
            "largest error of the heads' results rebuilt from the pattern and W_VO, divided by the largest result "
            "and the largest score (softmax amplifies the rounding of scores)",
            results,
        ),
        cells("unfolded_error", "error of the scores if the norm's gain and shift were left out", bare),
        cells("tolerance", "error that rounding in the model's dtype explains", [tolerance] * len(scores)),
    )


def _worst(evidence: Evidence, arm: str) -> float:
    errors: Floats = np.maximum(*(evidence[HEADS][arm].error(name) for name in ("scores_error", "results_error")))
    return float(errors.max())
