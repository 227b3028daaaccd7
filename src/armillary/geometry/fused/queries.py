"""What do the scores of a query over its keys say? All their sums, entropies and ranks in one read of each row.

The kernel's form of `probes.instruments.head_scores`: the same numbers, without twenty arrays of the scores' size.
"""

import torch
from torch import Tensor

from armillary.geometry.fused.row_statistics import block

PATTERN = ("entropy", "null_value", "variation", "variation_later")
STATISTICS = (
    *PATTERN,
    "entropy_unscaled",
    "entropy_bare",
    "mean_score",
    "score_power",
    "score_power_later",
    "along_power",
    "along_power_later",
    "score_along",
    "score_along_later",
)
"""As `head_scores` defines them; powers of q·k over key lengths, not of cosines, and entropies in nats."""
# Keys of a query that fit into the registers of a program.
MOST_KEYS = 4096
# Added to a score it comes last.
HIDDEN = 1e30


def query_statistics(
    products: Tensor, bare: Tensor | None, lengths: Tensor, unseen: Tensor, sees: Tensor, scale: float
) -> dict[str, Tensor]:
    """Each [b, h, n], but for correlations, of products q·k [b, h, n, t], those of bare queries (None where all are 0),
    key lengths and null shares of values [b, h, t], and visible keys [b, n, t]."""
    from armillary.geometry.fused.query_kernels import pattern_kernel, power_kernel

    b, h, n, t = products.shape
    rows, products, sees, lengths = b * h * n, products.contiguous(), sees.to(torch.int8), lengths.contiguous()
    out = torch.empty(len(STATISTICS), b, h, n, device=products.device)
    sizes = (rows, h, n, t, scale)
    options = {"T": block(t), "num_warps": 4 if t <= 1024 else 8}
    pattern_kernel[(rows,)](products, lengths, unseen.contiguous(), sees, out, *sizes, **options)
    biased = products if bare is None else bare.contiguous()
    options |= {"BIASED": bare is not None}
    power_kernel[(rows,)](products, biased, lengths, sees, out[len(PATTERN) :], *sizes, **options)
    return dict(zip(STATISTICS, out, strict=True))


def correlations(scores: Tensor, others: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Spearman's ρ [b, h, n] of scores [b, h, n, t] and of ranks of nearness [b, n, t], over the keys that `others`
    [b, n, t] marks by 1; and without position 0."""
    from armillary.geometry.fused.query_kernels import rank_kernel

    b, h, n, t = scores.shape
    ordered, order = torch.where(others[:, None] > 0, scores, HIDDEN).sort(-1)
    out = torch.empty(2, b, h, n, device=scores.device)
    count = others.sum(-1).to(torch.int32).contiguous()
    options = {"T": block(t), "J": 4, "num_warps": 4 if t <= 1024 else 8}
    rank_kernel[(b * h * n,)](ordered, order, near.contiguous(), count, out, b * h * n, h, n, t, **options)
    return out[0], out[1]
