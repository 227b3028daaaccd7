"""What does a step of an arm cost, and who is ahead at equal cost?

FLOPs are counted, not estimated: those of every matrix product of one window, forward and backward. Norms and
activations have no products and are left out. At equal cost, the dearer of two arms is read from its curve at the step
where the cheaper one's whole training is paid for. Its learning rate has not fallen to the end by then, so its loss
there is an upper bound of what a training of that length would reach.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from armillary.lab.study.conclusions.paired_runs import PairedComparison, PairedContrast, Row, contrasts


def flops_per_token(model: Any, context: int) -> int:
    """Of training: forward and backward over one window, in matrix products."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    window = torch.zeros(1, context, dtype=torch.long)
    # Fused attention has kernels of its own on every device; as plain products it is counted the same everywhere.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = model(input_ids=window, use_cache=False).logits
        torch.autograd.backward(logits.float().sum())
    model.zero_grad(set_to_none=True)
    return round(counter.get_total_flops() / context)


def median_cost(rows: Sequence[Row], arm: str, cost: str) -> float:
    """The arm's cost, the median of its runs; NaN where none has recorded it."""
    known = [row[cost] for row in rows if row["arm"] == arm and row.get(cost)]
    return median(known) if known else math.nan


def at_share(curve: Sequence[Sequence[Any]], share: float) -> float | None:
    """The loss at this share of the steps, on straight lines between looks; None before the first.

    >>> at_share([[10, 5.0], [20, 4.0]], 0.75), at_share([[10, 5.0], [20, 4.0]], 0.25)
    (4.5, None)
    """
    step = share * curve[-1][0]
    for (first, before), (last, after) in pairwise(curve):
        if first <= step <= last and before is not None and after is not None:
            return float(before + (after - before) * (step - first) / (last - first))
    return None


def at_equal(rows: Sequence[Row], reference: str, cost: str) -> list[PairedComparison]:
    """Every arm against the reference, both at the cost of the cheaper one's whole training."""
    base = median_cost(rows, reference, cost)
    arms = dict.fromkeys(row["arm"] for row in rows if row["arm"] != reference and not row["tuning"])
    ratios = {arm: median_cost(rows, arm, cost) / base for arm in arms}
    known = {arm: ratio for arm, ratio in ratios.items() if math.isfinite(ratio)}
    shortened: list[Row] = []
    for arm, ratio in known.items():
        shares = {arm: min(1.0, 1 / ratio), reference: min(1.0, ratio)}
        for row in rows:
            if row["arm"] in shares and not row["tuning"]:
                name = arm if row["arm"] == arm else _partner(arm)
                loss = None if row["diverged"] else at_share(row["curve"], shares[row["arm"]])
                if loss is None and not row["diverged"]:
                    continue  # before the first look
                shortened.append({"arm": name, "seed": row["seed"], "tuning": False, "loss": loss})
    return contrasts(shortened, [PairedContrast(arm, arm, _partner(arm)) for arm in known])


def _partner(arm: str) -> str:
    return f"the reference of {arm}"


def by_best(rows: Sequence[Row], reference: str) -> list[PairedComparison]:
    """Every arm against the reference by its best checkpoint: scarce text is learned by heart, and ends worse."""
    value: Callable[[Row], float | None] = lambda row: row["best"]  # noqa: E731
    arms = dict.fromkeys(row["arm"] for row in rows if row["arm"] != reference and not row["tuning"])
    return contrasts(rows, [PairedContrast(arm, arm, reference, value) for arm in arms])
