"""What do one layer's scores say of a few queries? Pure arithmetic on what the watch laid out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Attention
from armillary.flow.attention import capped


@dataclass(frozen=True, eq=False)
class Looked:
    """b windows with n sampled queries each and t keys: q [b, h, n, k], k [b, h, t, k] as they meet, z [b, t, d]."""

    attention: Attention
    q: Tensor
    k: Tensor
    z: Tensor
    result: Tensor
    """[b, n, h, k]: what each head gives at the sampled queries, before W_O."""
    query: Tensor
    """[b, n] positions."""
    sees: Tensor
    """[b, n, t]."""
    ids: Tensor
    """[b, t] tokens."""
    W_O: Tensor


def look(seen: Looked, lost: tuple[Tensor, Tensor, Tensor], fields: tuple[str, ...]) -> Tensor:
    """[b, n, h, fields]."""
    sees = seen.sees[:, None]
    products = seen.q @ seen.k.mT
    scores = capped(seen.attention, products)
    found = {
        "keys": sees.sum(-1).double().expand(products.shape[:3]),
        **_cosine(seen, products, scores, sees),
        "rho": _geodesic(seen, scores),
    }
    pattern = _softmax(scores, sees)
    level = capped(seen.attention, products * _levelled(seen, sees))
    found["variation"] = (pattern - _softmax(level, sees)).abs().sum(-1) / 2
    room = found["keys"].log().clamp_min(1e-9)
    found["entropy"] = _entropy(pattern) / room
    found["entropy_unscaled"] = _entropy(_softmax(products, sees)) / room
    found |= _roles(seen, pattern)
    null_query, null_key, null_value = lost
    found |= {"null_query": null_query, "null_key": null_key}
    found["null_value"] = (pattern * null_value[:, :, None]).sum(-1)
    written = torch.einsum("bnhk,hkd->bhnd", seen.result, seen.W_O.to(seen.result))
    found["update"] = written.norm(dim=-1)
    return torch.stack([found[name].double() for name in fields], -1).transpose(1, 2)


def _softmax(scores: Tensor, sees: Tensor) -> Tensor:
    return scores.double().masked_fill(~sees, -torch.inf).softmax(-1)


def _entropy(pattern: Tensor) -> Tensor:
    return -torch.xlogy(pattern, pattern).sum(-1)


def _centred(values: Tensor, sees: Tensor) -> Tensor:
    """Less the query's mean over the keys it sees, and 0 elsewhere."""
    inside = torch.where(sees, values.double(), 0.0)
    return torch.where(sees, inside - inside.sum(-1, keepdim=True) / sees.sum(-1, keepdim=True), 0.0)


def _cosine(seen: Looked, products: Tensor, scores: Tensor, sees: Tensor) -> dict[str, Tensor]:
    lengths = seen.q.norm(dim=-1)[..., None] * seen.k.norm(dim=-1)[..., None, :]
    score, cosine = _centred(scores, sees), _centred(products / lengths.clamp_min(1e-30), sees)
    return {
        "score_power": score.square().sum(-1),
        "product_power": _centred(products, sees).square().sum(-1),
        "cosine_power": cosine.square().sum(-1),
        "score_cosine": (score * cosine).sum(-1),
    }


def _levelled(seen: Looked, sees: Tensor) -> Tensor:
    """What brings every key to the mean length of those a query sees."""
    length = seen.k.norm(dim=-1)[:, :, None]
    mean = torch.where(sees, length, 0.0).sum(-1, keepdim=True) / sees.sum(-1, keepdim=True)
    return mean / length.clamp_min(1e-30)


def _geodesic(seen: Looked, scores: Tensor) -> Tensor:
    """Spearman's ρ of score and −angle over the other keys: at the token itself the angle is 0 by definition."""
    unit = torch.nn.functional.normalize(seen.z, dim=-1)
    rows = torch.arange(len(unit), device=unit.device)[:, None]
    cosines = unit[rows, seen.query] @ unit.mT
    others = seen.sees & (torch.arange(seen.sees.shape[-1], device=unit.device) != seen.query[..., None])
    # A falling function of the angle: −angle and the cosine have the same ranks.
    a, b = ranks(cosines, others)[:, None], ranks(scores, others[:, None].expand(scores.shape))
    others = others[:, None]
    a, b = _centred(a, others), _centred(b, others)
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt().clamp_min(1e-30)


def ranks(values: Tensor, among: Tensor) -> Tensor:
    """Ranks along the last axis among the chosen entries, ties at their middle; 0 elsewhere.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 9.0]), torch.tensor([True, True, True, False]))
    tensor([2.5000, 1.0000, 2.5000, 0.0000], dtype=torch.float64)
    """
    outside = values.masked_fill(~among, torch.inf).contiguous()
    ordered = outside.sort(-1).values
    low = torch.searchsorted(ordered, outside, right=False)
    high = torch.searchsorted(ordered, outside, right=True)
    return torch.where(among, (low + high + 1).double() / 2, 0.0)


def _roles(seen: Looked, pattern: Tensor) -> dict[str, Tensor]:
    place = torch.arange(seen.ids.shape[1], device=seen.ids.device)
    offset = seen.query[..., None] - place
    word = seen.ids.gather(1, seen.query)[..., None]
    same = (seen.ids[:, None] == word) & (offset > 0)
    after = torch.zeros_like(same)
    after[..., 1:] = same[..., :-1]
    after &= offset >= 0
    masks = {"first": place.expand_as(offset) == 0, "self": offset == 0, "previous": offset == 1}
    found = {
        name: (pattern * mask[:, None]).sum(-1) for name, mask in {**masks, "same": same, "induction": after}.items()
    }
    keys = seen.sees.sum(-1)
    for name, mask in (("same_keys", same), ("induction_keys", after)):
        found[name] = ((mask & seen.sees).sum(-1) / keys)[:, None].expand_as(found["self"])
    return found
