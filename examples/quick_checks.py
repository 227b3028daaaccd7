"""Three quick checks of the geometry's foundations, first on paper, then in a model.

python examples/quick_checks.py
"""

import torch

import armillary
from armillary.anatomy import Norm
from armillary.flow.passages import passages, watched
from armillary.geometry.sphere import angle

gpt = armillary.load("builtin:gpt", progress=False)
embed, d, k = gpt.W_E.detach(), gpt.d, gpt.k
draw = torch.Generator().manual_seed(0)

print("1. What is the projection of [1, 2, 3] onto the plane perpendicular to [1, 1, 1]?")
x = torch.tensor([1.0, 2.0, 3.0])
z = Norm("layernorm", torch.ones(3), None, 0.0).direction(x)
print(f"   projection {(x - x.mean()).tolist()}; LayerNorm scales it to length √3: {z.norm():.4f}")
stream = watched(gpt, passages(gpt, documents=4), "L3.resid_pre")["L3.resid_pre"]
z = gpt.blocks[3].ln1.direction(stream)
off_plane = z.mean(-1).abs().max()
lengths = z.norm(dim=-1) / d**0.5
before = stream.norm(dim=-1) / d**0.5
print(f"   L3.ln1, {z[..., 0].numel()} tokens: largest |mean of z| below 1e-5: {bool(off_plane < 1e-5)}")
print(f"   length over √d: {lengths.min():.3f} to {lengths.max():.3f}; before the norm {before.min():.3f} to", end=" ")
print(f"{before.max():.3f}")

print("2. How many singular values of a 3 × 3 matrix of rank 2 are not zero?")
rank_2 = torch.randn(3, 2, generator=draw) @ torch.randn(2, 3, generator=draw)
print(f"   {int(torch.linalg.matrix_rank(rank_2))}: two pairs of key and value; the third direction is mapped to zero")
head = gpt.blocks[3].attention.head(0)
W_VO = (head.W_V @ head.W_O).detach()
left, values, _ = torch.linalg.svd(W_VO)
unseen = left[:, k:].T @ W_VO
print(f"   L3H0, W_VO {d} × {d}: {int((values > 1e-5 * values[0]).sum())} are not zero: {k} pairs; the {d - k} other")
print(f"   directions write nothing (share of W_VO's length below 1e-5: {bool(unseen.norm() < 1e-5 * values.norm())})")

print("3. What is the dot product of unit vectors at 0° and 90°?")
east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
print(f"   {float(east @ north):.0f}; of two directions at 45°: {float(east @ torch.tensor([0.5, 0.5]).sqrt()):.3f}")
pairs = torch.randint(len(embed), (2, 4000), generator=draw)
words = angle(embed[pairs[0]], embed[pairs[1]]).rad2deg()
centred = embed - embed.mean(0)
moved = angle(centred[pairs[0]], centred[pairs[1]]).rad2deg()
random = angle(*torch.randn(2, 4000, d, generator=draw)).rad2deg()
print(f"   two random words are {words.mean():.1f}° ± {words.std():.1f}° apart, about their mean {moved.mean():.1f}°")
print(f"   ± {moved.std():.1f}°; two random directions in {d} dimensions {random.mean():.1f}° ± {random.std():.1f}°")
