"""How few units of a feed-forward does a token match, and how few directions of the heads beside it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.keys.key_matches import (
    BATCH,
    KeyMatches,
    Matched,
    concentration,
    matched,
    random_rotations,
    signed,
)
from armillary.probes.attention.lexicon.keys.rebuilt_updates import largest_error, passed
from armillary.probes.attention.spaces.decomposed_heads import decomposed
from armillary.probes.filter.storing.folded_units import FoldedUnits, fold_units
from armillary.probes.instruments.samples import SAMPLES, SharedTokens
from armillary.probes.machinery import Evidence, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy.folded import FoldedForward

# Tokens whose concentration is measured; all sampled tokens give the covariance that rotated ones keep.
TOKENS = 192
# One rotation of a layer of 256 axes and 1024 units takes 5 ms. Student's distribution makes a p-value of few of them.
ROTATIONS, FEWEST, TWIN_ROTATIONS, WORK = 16, 4, 4, 1 << 25
FORWARD_BATCH = 4


@dataclass(frozen=True, eq=False)
class TokenMatches:
    """Matches of the same tokens in the feed-forwards [token, layer, 3] and in the heads [token, layer, head, 3]."""

    forward: KeyMatches
    heads: KeyMatches | None
    """Not asked of untrained models."""
    document: Ints
    """Of each token."""


def token_matches(evidence: Evidence, arm: str, layers: Sequence[int], heads: bool, rotations: int) -> TokenMatches:
    """Tokens of the text as the layers of an arm read them."""
    from armillary.anatomy.folded import mlp_norm, reading_norm

    anatomy = evidence.model(arm)
    forward = [mlp_norm(anatomy, layer)[0] for layer in layers]
    read = [reading_norm(anatomy, layer)[0] for layer in layers]
    tokens = evidence[SAMPLES][arm].shared(site for site in (*forward, *read) if site)
    units = [_units(evidence, arm, layer, tokens, rotations) for layer in layers]
    beside = None
    if heads:
        turns = random_rotations(evidence, BATCH, anatomy.k)
        each = [_heads(evidence, arm, layer, tokens, turns) for layer in layers]
        values = np.stack([np.stack([head.values for head in layer], 1) for layer in each], 1)
        beside = KeyMatches(values, np.array([[head.p for head in layer] for layer in each]))
    return TokenMatches(
        KeyMatches(np.stack([unit.values for unit in units], 1), np.array([unit.student_p for unit in units])),
        beside,
        tokens.document[:TOKENS],
    )


def _units(evidence: Evidence, arm: str, layer: int, tokens: SharedTokens, rotations: int) -> Matched:
    """Energy of a unit: the squared length of what it writes."""
    anatomy = evidence.model(arm)
    folded = fold_units(anatomy, layer)
    x = tokens.x[folded.site].to(anatomy.device).double()
    weights = folded.weights(x)
    return matched_units(evidence, folded, x, rotations, None if weights is None else folded.per_unit(weights))


def matched_units(
    evidence: Evidence, folded: FoldedUnits, x: "Tensor", rotations: int, weights: "Tensor | None" = None
) -> Matched:
    """Rows x [token, d] of the stream; `weights` [token, unit] are the router's, which rotations leave as they are."""
    import torch

    # The keys' span: nothing of a token outside it matters.
    power, axes = torch.linalg.eigh(folded.keys @ folded.keys.mT)
    span = signed(axes[:, power > len(axes) * torch.finfo(power.dtype).eps * power[-1]])
    keys, lengths = (span.mT @ folded.keys).float(), folded.values.norm(dim=1).float()
    count = max(FEWEST, min(rotations, WORK // keys.numel()))
    some = None if weights is None else weights[:TOKENS].float()
    measure = partial(unit_concentration, folded=folded, keys=keys, lengths=lengths, weights=some)
    turns = random_rotations(evidence, count, len(keys)).float()
    return matched(folded.norm.direction(x) @ span, measure, turns, TOKENS, None, FORWARD_BATCH)


def unit_concentration(
    coordinates: "Tensor", folded: FoldedUnits, keys: "Tensor", lengths: "Tensor", weights: "Tensor | None" = None
) -> "Tensor":
    """Σp² over units [token, …] for tokens with these coordinates [token, …, axis] in the span of the keys."""
    active = folded.activated(coordinates @ keys)
    if weights is not None:
        active = active * (weights if active.ndim == 2 else weights[:, None])
    return concentration(active, lengths)


def _heads(evidence: Evidence, arm: str, layer: int, tokens: SharedTokens, turns: "Tensor") -> list[Matched]:
    """The heads of a layer, by their left singular vectors, as in vo.store."""
    from armillary.anatomy.folded import reading_norm

    anatomy = evidence.model(arm)
    site, norm = reading_norm(anatomy, layer)
    svd = decomposed(evidence, arm)[layer].vo
    if norm is None:
        # No norm stands before this layer, so no sample was taken there.
        nothing = np.full((min(TOKENS, len(tokens)), 3), np.nan)
        return [Matched(nothing, np.nan, (np.full(2, np.nan), np.full(2, np.nan)))] * len(svd.values)
    z = norm.direction(tokens.x[site].to(anatomy.device).double())
    return [
        matched(z @ u, partial(concentration, values=s), turns, TOKENS)
        for u, s in zip(svd.left, svd.values, strict=True)
    ]


def forward_errors(evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int]) -> Floats:
    """[layer, (as claimed, keys and updates exchanged)]: largest error of rebuilt writes over the largest write.

    The running model reads every word alone.
    """
    import torch

    from armillary.anatomy.folded import mlp_norm

    anatomy = evidence.model(arm)
    seen = passed(anatomy, ids, [(mlp_norm(anatomy, layer)[0], f"L{layer}.mlp_out") for layer in layers])
    errors = []
    for layer in layers:
        folded, after = fold_units(anatomy, layer), anatomy.blocks[layer].ln2_post
        x, write = seen[folded.site][0], seen[f"L{layer}.mlp_out"][1]
        z, weights = folded.norm.direction(x), folded.weights(x)
        for exchanged in (False, True):
            parts = torch.stack([_rebuilt(part, z, exchanged) for part in folded.parts.values()])
            rebuilt = parts[0] if weights is None else (parts * weights.T[..., None]).sum(0)
            errors.append(largest_error(rebuilt if after is None else after(rebuilt), write))
    return np.reshape(errors, (len(layers), 2))


def _rebuilt(folded: "FoldedForward", z: "Tensor", exchanged: bool) -> "Tensor":
    """Σ over units of score · value. Exchanged: rows of W_out are the keys, those of W_in the values."""
    import torch

    own = folded.A if folded.A_up is None else folded.A_up
    keys, values = (folded.W_out.mT, own.mT) if exchanged else (own, folded.W_out)
    matches = z @ keys if folded.A_up is None else torch.cat([z @ folded.A, z @ keys], -1)
    written = folded.activated(matches) @ values
    return written if folded.b_out is None else written + folded.b_out
