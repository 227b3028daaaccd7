"""What are the queries, keys, values and results of the sampled tokens in some layers? All heads' axes side by side."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named
from armillary.probes.instruments.samples import SampleWatch, TokenSamples
from armillary.probes.machinery import ARMS, View, spread_layers

if TYPE_CHECKING:
    import torch

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.measures.stacks import ReservoirStack

SPACES = ("q", "k", "v", "z")


def head_sites(anatomy: "Anatomy", layers: int) -> tuple[str, ...]:
    return tuple(f"L{layer}.{space}" for layer in spread_layers(anatomy, layers) for space in SPACES)


@dataclass(frozen=True)
class HeadSamples:
    """The instrument: `capacity` tokens in at most `layers` layers; q and k as they are before any rotation."""

    capacity: int = 512
    layers: int = 3
    name: str = "samples of heads"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "HeadSampleWatch":
        return HeadSampleWatch(anatomy, corpus, self.capacity, head_sites(anatomy, self.layers))

    def count(self, state: TokenSamples) -> tuple[int, str]:
        return min(reservoir.size for reservoir in state.rows.values()), "tokens after the first"

    def bytes(self, anatomy: "Anatomy") -> int:
        width = 2 * anatomy.k * (anatomy.n_heads + anatomy.n_kv_heads)
        return len(self.arms) * 4 * self.capacity * width * self.layers


class HeadSampleWatch(SampleWatch):
    def __init__(self, anatomy: "Anatomy", corpus: "Corpus", capacity: int, sites: tuple[str, ...]) -> None:
        from armillary.measures import Reservoir

        super().__init__(anatomy, corpus, capacity, sites)
        # Sites have different widths, so that they are not kept side by side.
        self.in_groups = False
        self._of_sites: tuple[TokenSamples, dict[str, ReservoirStack]] | None = None
        widths = {"q": anatomy.n_heads, "k": anatomy.n_kv_heads, "v": anatomy.n_kv_heads, "z": anatomy.n_heads}
        heads = {site: widths[site.rpartition(".")[2]] for site in sites}
        self.state = TokenSamples(Named({s: Reservoir.empty(capacity, n * anatomy.k, 4) for s, n in heads.items()}))

    def see(self, site: str, view: View) -> None:
        rows = view.value.flatten(0, 1).flatten(1)
        if not self.stacked:
            self.state.rows[site].include(rows, self._payload, self._rows, self._rank)
        else:
            self._stacks(rows.device)[site].put(rows.index_select(0, self._device_rows)[None], self._slots)

    def _stacks(self, device: "torch.device") -> "dict[str, ReservoirStack]":
        from armillary.measures.stacks import ReservoirStack

        if self._of_sites is None or self._of_sites[0] is not self.state:
            stacks = {site: ReservoirStack([reservoir], device) for site, reservoir in self.state.rows.items()}
            self._of_sites = self.state, stacks
        return self._of_sites[1]

    def settle(self, left: object) -> None:
        for stack in self._of_sites[1].values() if self._of_sites is not None else ():
            stack.note(self._payload, self._rank)


HEAD_SAMPLES = HeadSamples()
