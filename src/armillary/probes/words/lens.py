"""What would a word say if the model stopped here? The logit lens, with the state's own length normed away."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.evidence import RANDOM, Evidence, Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from armillary.anatomy import Anatomy

# Rows of logits in memory at once: 64 MB of float32.
_NUMBERS = 1 << 24


@dataclass(frozen=True, eq=False)
class Lens:
    """For sampled tokens and every state [token, state]: how far what the state says is from what the model says.

    kl     Kullback–Leibler divergence, in nats, of the final distribution from the state's
    rank   of the model's final prediction among the state's (0 is first)
    loss   nats of the true next word
    """

    kl: Floats
    rank: Floats
    loss: Floats
    document: NDArray[np.int64]


def logits(anatomy: "Anatomy", x: "Tensor") -> "Tensor":
    """What the model says from a state [..., d] of its stream: final norm, unembedding, bias, cap."""
    import torch

    assert anatomy.W_U is not None
    x = x.to(anatomy.device)
    y = x if anatomy.ln_final is None else anatomy.ln_final(x)
    out = y @ anatomy.W_U.to(y)
    if anatomy.b_U is not None:
        out = out + anatomy.b_U.to(y)
    return out if anatomy.logit_softcap is None else anatomy.logit_softcap * torch.tanh(out / anatomy.logit_softcap)


def lens(evidence: Evidence, arm: str) -> Lens | None:
    """Every sampled token's states through the lens; None for a model that says no next word. Worked out once."""
    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None
    if not reads(anatomy):
        return None
    key = ("lens", arm)
    if key not in evidence.kept:
        evidence.kept[key] = look(anatomy, *evidence.travel[arm].sampled())
    return evidence.kept[key]


def reads(anatomy: "Anatomy") -> bool:
    """Does the model read its last state as the next word?"""
    return anatomy.causal and anatomy.W_U is not None


def look(anatomy: "Anatomy", states: "Tensor", places: NDArray[np.int64]) -> Lens:
    """States [token, state, d] through the lens; `places` as `TravelRecord.sampled` gives them."""
    import torch

    count, steps, _ = states.shape
    found = {name: np.zeros((count, steps)) for name in ("kl", "rank", "loss")}
    following = torch.from_numpy(places[:, 3])
    size = max(1, _NUMBERS // (steps * anatomy.vocabulary))
    for start in range(0, count, size):
        rows = slice(start, start + size)
        # All states of a few tokens in one product: the vocabulary is read once for all layers.
        said = logits(anatomy, states[rows].flatten(0, 1)).log_softmax(-1).reshape(-1, steps, anatomy.vocabulary)
        for name, values in _measures(said, following[rows].to(said.device)).items():
            found[name][rows] = values.double().cpu().numpy()
    return Lens(found["kl"], found["rank"], found["loss"], places[:, 0])


def _measures(said: "torch.Tensor", following: "torch.Tensor") -> dict[str, "torch.Tensor"]:
    """From log-probabilities [token, state, v], which are used up: every further copy of them costs as much as a look."""
    steps, last = said.shape[1], said[:, -1]
    crossed = (said @ last.exp()[:, :, None])[..., 0]
    best = said.gather(-1, last.argmax(-1)[:, None, None].expand(-1, steps, 1))
    loss = -said.gather(-1, following[:, None, None].expand(-1, steps, 1))[..., 0]
    # As numbers, in place: torch sums flags five times slower.
    rank = said.gt_(best).sum(-1)
    return {"kl": (crossed[:, -1:] - crossed).clamp_min(0), "rank": rank, "loss": loss}


def over_documents(evidence: Evidence, values: Floats, document: NDArray[np.int64]) -> tuple[float, float, float]:
    """Mean over sampled tokens, resampled by documents."""
    stats = np.zeros((int(document.max(initial=0)) + 1, 2))
    np.add.at(stats, document, np.stack([np.ones_like(values), values], 1))
    return evidence.interval(stats[stats[:, 0] > 0], lambda s: s[..., 1] / np.maximum(s[..., 0], 1e-300))
