"""Is what attention writes for a word the sum over keys and updates that the singular vectors of W_VO define?"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.spaces.decomposed_heads import LayerHeads, decomposed
from armillary.probes.machinery import Evidence, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.capture import Watcher


def rebuilding_errors(evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int]) -> Floats:
    """[layer, (as claimed, keys and updates exchanged)]: largest error of rebuilt writes over the largest write.

    The running model reads every word alone, so that each head attends to that word only.
    """
    from armillary.anatomy.folded import reading_norm

    anatomy = vocabulary(evidence, arm).anatomy
    seen, errors = passed(anatomy, ids, [(_read_at(anatomy, layer), f"L{layer}.attn_out") for layer in layers]), []
    for layer in layers:
        norm = reading_norm(anatomy, layer)[1]
        (x, _), (_, write) = seen[_read_at(anatomy, layer)], seen[f"L{layer}.attn_out"]
        z = x if norm is None else norm.direction(x)
        heads, after = decomposed(evidence, arm)[layer], anatomy.blocks[layer].ln1_post
        for exchanged in (False, True):
            rebuilt = _rebuilt(heads, z, exchanged)
            rebuilt = rebuilt if after is None else after(rebuilt)
            errors.append(largest_error(rebuilt, write))
    return np.reshape(errors, (len(layers), 2))


def largest_error(rebuilt: "Tensor", write: "Tensor") -> float:
    """Relative to the largest write. A layer that writes nothing is rebuilt without error if nothing is rebuilt."""
    return float((rebuilt - write).abs().max() / write.abs().max().clamp_min(1e-300))


def _rebuilt(heads: LayerHeads, z: "Tensor", exchanged: bool) -> "Tensor":
    """Σ over heads and directions of σ (z · key) update, and the part that does not depend on z."""
    folded, svd = heads.folded, heads.vo
    keys, updates = (svd.right, svd.left) if exchanged else (svd.left, svd.right)
    written = ((z @ keys * svd.values[:, None]) @ updates.mT).sum(0)
    constant = (folded.a_V[:, None] @ folded.W_O).sum((0, 1))
    return written + constant + (0 if folded.b_O is None else folded.b_O)


def _read_at(anatomy: "Anatomy", layer: int) -> str:
    """The site of the norm that a layer's attention reads; the stream itself where none stands before it."""
    from armillary.anatomy.folded import reading_norm

    return reading_norm(anatomy, layer)[0] or f"L{layer}.resid_pre"


def passed(anatomy: "Anatomy", ids: Ints, places: Iterable[Iterable[str]]) -> "dict[str, tuple[Tensor, Tensor]]":
    """What the modules at these sites received and gave for every word alone [word, …], in float64."""
    import torch

    from armillary.flow.capture import run, still, watching

    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(site: str) -> "Watcher":
        def watch(given: "Tensor | None", value: "Tensor") -> None:
            received = value if given is None else given
            seen[site] = (received.detach().flatten(0, -2).double(), value.detach().flatten(0, -2).double())

        return watch

    sites = {site: keep(site) for several in places for site in several}
    with still(anatomy.model), watching(anatomy, sites):
        run(anatomy, torch.from_numpy(ids)[:, None])
    return seen
