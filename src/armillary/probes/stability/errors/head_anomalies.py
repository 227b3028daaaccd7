"""How unusual is what the heads do at a token? Entropy, attention to the first token and length of the write."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher
from armillary.probes.machinery import Floats, spread_layers
from armillary.probes.stability.errors.error_prediction import HEAD_SCORES, ranked

LAYERS = 4


class HeadReadings:
    """What heads do at every token of one batch: [b, t, head] of each quantity and layer."""

    def __init__(self, anatomy: Anatomy) -> None:
        self._anatomy, self._layers = anatomy, spread_layers(anatomy, LAYERS)
        self._values: dict[str, list[Tensor]] = {name: [] for name in HEAD_SCORES}

    def watchers(self) -> dict[str, Watcher]:
        patterns = {f"L{layer}.pattern": self._pattern for layer in self._layers}
        return patterns | {f"L{layer}.z": self._writer(layer) for layer in self._layers}

    def _pattern(self, given: Tensor | None, value: Tensor) -> None:
        pattern = value.detach().float()
        keys = (pattern > 0).sum(-1).clamp_min(2)
        # As a share of the largest entropy: otherwise it only says how many keys there are.
        entropy = torch.special.entr(pattern).sum(-1) / keys.log()
        self._values[HEAD_SCORES[0]].append(entropy.transpose(1, 2))
        self._values[HEAD_SCORES[1]].append(pattern[..., 0].transpose(1, 2))

    def _writer(self, layer: int) -> Watcher:
        W_O = self._anatomy.blocks[layer].attention.W_O.float()
        gram = W_O @ W_O.transpose(1, 2)

        def watch(given: Tensor | None, value: Tensor) -> None:
            z = value.detach().float()
            squared = torch.einsum("bthk,hkl,bthl->bth", z, gram.to(z), z)
            self._values[HEAD_SCORES[2]].append(squared.clamp_min(1e-30).log() / 2)

        return watch

    def rows(self, chosen: Tensor) -> dict[str, Tensor]:
        """quantity → [n, layers · heads] of the tokens that `chosen` [b, t] marks."""
        return {name: torch.cat(parts, -1)[chosen.to(parts[0].device)] for name, parts in self._values.items()}


def anomalies(readings: Mapping[str, Floats], fold: Floats) -> dict[tuple[str, str], Floats]:
    """('heads', quantity) → the root mean square over heads of a token's z-scores, as ranks within its half.

    Mean and spread of each head come from the other half of the documents. The sign does not count: unusual is unusual.
    """
    return {("heads", name): _anomaly(values, fold) for name, values in readings.items()}


def _anomaly(values: Floats, fold: Floats) -> Floats:
    ranks = np.zeros(len(values))
    for half in (0, 1):
        held_out = fold == half
        if held_out.any() and (~held_out).sum() > 1:
            spread = values[~held_out].std(0)
            z = (values[held_out] - values[~held_out].mean(0)) / np.where(spread > 0, spread, 1)
            ranks[held_out] = ranked(np.square(z).mean(1))
    return ranks
