"""Words as heads see them: their directions at each layer's norm, and their queries and keys."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.spaces.decomposed_heads import decomposed
from armillary.probes.machinery import TWINS, Evidence, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy.folded import Folded
    from armillary.anatomy.space import Vectors
    from armillary.geometry.factored import SVD

# Words whose keys are computed at a time.
BLOCK = 1 << 16


def folded(evidence: Evidence, arm: str, layer: int) -> "Folded":
    """A layer's heads on directions. Those of twins are not cached, and need no singular vectors."""
    from armillary.anatomy.folded import fold

    return fold(evidence.model(arm), layer) if arm in TWINS else decomposed(evidence)[layer].folded


def word_directions(evidence: Evidence, arm: str, layers: Sequence[int], ids: Ints) -> Iterator["Vectors"]:
    """For each layer the tokens' directions at the norm that it reads, float32.

    A direction depends only on the norm's kind and ε, which most models share: it is recomputed where they differ.
    """
    import torch

    from armillary.anatomy.folded import reading_norm
    from armillary.anatomy.space import RAW, Space, Vectors

    tokens = vocabulary(evidence, arm)
    rows = torch.from_numpy(ids).to(tokens.anatomy.device)
    last: tuple[object, Tensor] | None = None
    for layer in layers:
        site, norm = reading_norm(tokens.anatomy, layer)
        settings = (norm.kind, norm.eps) if norm is not None else ()
        if last is None or last[0] != settings:
            last = (settings, tokens.directions(layer, rows, torch.float32).values)
        yield Vectors(last[1], RAW if norm is None else Space("direction", site))


def oriented(evidence: Evidence, arm: str, layer: int, ids: Ints) -> "SVD":
    """The singular vectors of W_VO, each pair with the sign for which these words reach farthest."""
    words = next(word_directions(evidence, arm, [layer], ids)).values
    return decomposed(evidence, arm)[layer].vo.oriented(words)


def queries(layer: "Folded", z: "Vectors", biased: bool = False) -> "Tensor":
    """[h, n, k] in the dtype of z, rotated by Δ = 0 and scaled, so that queries @ keysᵀ = z W_QK zᵀ.

    `biased` adds the query's bias, which contributes a different amount for every key. q/k-norms divide by each token's
    own length.
    """
    query = layer.queries(z, biased=biased)
    return query @ layer.turn(0).to(query) * layer.attention.scale


def keys(layer: "Folded", z: "Vectors", head: int | None = None) -> "Tensor":
    """[h, n, k], or of one head [n, k]; without the keys' bias, which adds the same to all keys of a query.

    Words are taken some at a time: a key norm makes several copies of all keys, of a large vocabulary gigabytes.
    """
    import torch

    blocks = [z[start : start + BLOCK] for start in range(0, len(z.values), BLOCK)]
    each = [layer.keys(block, head, biased=False) for block in blocks]
    return each[0] if len(each) == 1 else torch.cat(each, -2)
