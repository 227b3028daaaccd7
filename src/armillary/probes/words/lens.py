"""The logit lens: what would the model predict from an earlier state?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.probes.instruments.words import WORDS, room
from armillary.probes.machinery import MODEL, Evidence, Floats, cells, once, table, undecided
from armillary.results import Claim, Finding, Why

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

# Logits in memory at once: 64 MB of float32.
_LOGITS = 1 << 24


@dataclass(frozen=True, eq=False)
class Lens:
    """Readings of sampled tokens, each [token, state].

    kl     Kullback–Leibler divergence of the model's final distribution from the state's, in nats
    rank   rank of the model's final prediction in the state's distribution (0 is first)
    loss   loss of the true next token under the state's distribution, in nats
    """

    kl: Floats
    rank: Floats
    loss: Floats
    document: NDArray[np.int64]


def reads(anatomy: "Anatomy") -> bool:
    """Does the model predict a next token from its last state?"""
    return anatomy.causal and anatomy.W_U is not None


def no_prediction(claim: Claim, evidence: Evidence) -> Finding:
    """The finding of a claim about predictions for a model that makes none."""
    reading = "This model predicts no next token. Load one with a language-model head."
    states = table(cells("state", "state of the stream", evidence[WORDS][MODEL].names))
    return undecided(claim, Why.NOT_APPLICABLE, reading, states)


def logits(anatomy: "Anatomy", x: "Tensor") -> "Tensor":
    """The model's logits from a state [..., d] of its stream: final norm, unembedding, bias, soft cap."""
    x = x.to(anatomy.device)
    y = x if anatomy.ln_final is None else anatomy.ln_final(x)
    return anatomy.logits(y)


@once
def lens(evidence: Evidence, arm: str) -> Lens:
    """All states of an arm's sampled tokens through the lens, as many as the pass can pay for."""
    states, places = evidence[WORDS][arm].sampled()
    read = room(evidence.anatomy, evidence.tokens)
    return look(evidence.model(arm), states[:read], places[:read])


def look(anatomy: "Anatomy", states: "Tensor", places: NDArray[np.int64]) -> Lens:
    """States [token, state, d] through the lens; `places` as `WordSums.sampled` returns them."""
    import torch

    count, steps, _ = states.shape
    arrays = {name: np.zeros((count, steps)) for name in ("kl", "rank", "loss")}
    following = torch.from_numpy(places[:, 3])
    size = max(1, _LOGITS // (steps * anatomy.vocabulary))
    for start in range(0, count, size):
        rows = slice(start, start + size)
        # All states of a few tokens in one product: the vocabulary is read once for all layers.
        scores = logits(anatomy, states[rows].flatten(0, 1)).log_softmax(-1).reshape(-1, steps, anatomy.vocabulary)
        for name, values in _measures(scores, following[rows].to(scores.device)).items():
            arrays[name][rows] = values.double().cpu().numpy()
    return Lens(arrays["kl"], arrays["rank"], arrays["loss"], places[:, 0])


def _measures(scores: "Tensor", following: "Tensor") -> dict[str, "Tensor"]:
    """From log-probabilities [token, state, v], which are overwritten: a copy would cost as much as the product."""
    steps, last = scores.shape[1], scores[:, -1]
    crossed = (scores @ last.exp()[:, :, None])[..., 0]
    best = scores.gather(-1, last.argmax(-1)[:, None, None].expand(-1, steps, 1))
    loss = -scores.gather(-1, following[:, None, None].expand(-1, steps, 1))[..., 0]
    # In place and as numbers: torch sums flags five times slower.
    rank = scores.gt_(best).sum(-1)
    return {"kl": (crossed[:, -1:] - crossed).clamp_min(0), "rank": rank, "loss": loss}


def document_sums(values: Floats, document: NDArray[np.int64]) -> Floats:
    """[document, …, (count, sum)] of sampled tokens' values [token, …]."""
    stats = np.zeros((int(document.max(initial=0)) + 1, *values.shape[1:], 2))
    np.add.at(stats, document, np.stack([np.ones_like(values), values], -1))
    return stats


def over_documents(evidence: Evidence, values: Floats, document: NDArray[np.int64]) -> Floats:
    """[…, (value, low, high)] of the mean over sampled tokens [token, …]."""
    return evidence.intervals(document_sums(values, document))
