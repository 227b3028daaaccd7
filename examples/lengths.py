"""How are lengths and angles spread in a model, beside what theory says of independent coordinates?

Four checks: the spread of lengths that the measured covariance predicts; how rare extreme lengths are, beside the
sub-Gaussian bound; how much of the cloud lies deep inside, beside (1 − ε)^d; and how straight arccos is over the angles
that occur.

python examples/lengths.py
"""

import numpy as np
import torch

import armillary
from armillary.flow.passages import passages, watched
from armillary.geometry.resample import bootstrap

gpt = armillary.load("builtin:gpt", progress=False)
d, sites = gpt.d, tuple(f"L{i}.resid_post" for i in range(gpt.layers))
seen = watched(gpt, passages(gpt, documents=24), *sites)
draw = torch.Generator().manual_seed(0)


def spread(lengths: torch.Tensor) -> str:
    """Standard deviation over mean, with its interval over documents."""
    sums = np.stack([np.full(len(lengths), lengths.shape[1]), lengths.sum(1), lengths.square().sum(1)], 1)
    spread = bootstrap(sums, lambda s: np.sqrt(s[:, 2] / s[:, 0] / (s[:, 1] / s[:, 0]) ** 2 - 1))
    return f"{spread.value:.3f} [{spread.low:.3f}, {spread.high:.3f}]"


def predicted(x: torch.Tensor) -> float:
    """The spread of |x| for a Gaussian with the mean and covariance of x; 1/√(2·PR) where the mean is zero."""
    mean, cov = x.mean(0), torch.cov(x.T)
    variance = 2 * cov.square().sum() + 4 * mean @ cov @ mean
    return float(variance.sqrt() / (cov.trace() + mean @ mean) / 2)


print(f"1. Spread of lengths. Independent coordinates: 1/√(2d) = {1 / (2 * d) ** 0.5:.3f}")
print("               measured              1/√(2·PR)  Gaussian with this mean and covariance")
far, ratios = {}, []
for site in sites:
    x = seen[site][:, 1:].double()  # first tokens are apart
    rows = x.flatten(0, 1)
    cov = torch.cov(rows.T)
    ratio = float(cov.trace() ** 2 / cov.square().sum())
    ratios.append(ratio)
    print(f"   {site}  {spread(x.norm(dim=-1))}  {1 / (2 * ratio) ** 0.5:.3f}      {predicted(rows):.3f}")
    far[site] = rows.norm(dim=-1) / rows.norm(dim=-1).median()

share = torch.cat(list(far.values()))
normal = torch.randn(20_000, d, generator=draw).norm(dim=1) / d**0.5
print("2. Tokens farther than ε from the median length, and the bound 2·exp(−nε²/2) for n = d and for")
print(f"   n = {min(ratios):.0f}, the smallest participation ratio (PR) of a layer")
for epsilon in (0.1, 0.2, 0.3, 0.5):
    bounds = " and ".join(f"{min(1.0, 2 * np.exp(-n * epsilon**2 / 2)):.1e}" for n in (d, min(ratios)))
    measured, drawn = (float(((r - 1).abs() > epsilon).double().mean()) for r in (share, normal))
    print(f"   ε = {epsilon}: {measured:.4f}; independent coordinates {drawn:.4f}; bounds {bounds}")
print("3. Tokens shorter than (1 − ε) times the 99th percentile, and (1 − ε)^d, the inner part of a ball")
for epsilon in (0.1, 0.3, 0.5):
    inside = [float((r < (1 - epsilon) * r.quantile(0.99)).double().mean()) for r in far.values()]
    print(f"   ε = {epsilon}: {np.mean(inside):.3f}; ball {(1 - epsilon) ** d:.1e}")

print("4. How well does a straight line in the cosine give the angle? R², and its largest error")
z = torch.nn.functional.normalize(gpt.ln_final.direction(seen[sites[-1]][:, 1:].flatten(0, 1)).double(), dim=-1)
pairs = torch.randint(len(z), (2, 20_000), generator=draw)
occurring = (z[pairs[0]] * z[pairs[1]]).sum(-1)[pairs[0] != pairs[1]].clamp(-1, 1)
for what, cosine in {"angles at ln_final": occurring, "all cosines, −1 to 1": torch.linspace(-1, 1, 20_001)}.items():
    angle = cosine.double().arccos().rad2deg()
    slope, offset = np.polyfit(cosine.double(), angle, 1)
    rest = angle - (slope * cosine.double() + offset)
    low, high = angle.quantile(torch.tensor([0.005, 0.995], dtype=torch.float64))
    r2 = 1 - float(rest.var() / angle.var())
    print(f"   {what:20} {low:.0f}° to {high:.0f}°: R² {r2:.4f}, largest error {rest.abs().max():.1f}°")
