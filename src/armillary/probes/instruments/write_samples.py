"""What do attention and the feed-forward write for the sampled tokens? The same tokens at every write."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.probes.instruments.samples import SampleWatch, TokenSamples
from armillary.probes.machinery import ARMS, View

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus

WRITES = ("attn_out", "mlp_out")


@dataclass(frozen=True)
class WriteSamples:
    """The instrument: `capacity` tokens per write, the first of those that `SAMPLES` keeps at every norm."""

    capacity: int = 512
    name: str = "samples of writes"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "WriteWatch":
        sites = tuple(f"L{layer}.{write}" for layer in range(anatomy.layers) for write in WRITES)
        sites = tuple(site for site in sites if site in anatomy.sites)
        return WriteWatch(anatomy, corpus, self.capacity, sites)

    def count(self, state: TokenSamples) -> tuple[int, str]:
        return min(reservoir.size for reservoir in state.rows.values()), "tokens after the first"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * self.capacity * anatomy.d * len(WRITES) * anatomy.layers


class WriteWatch(SampleWatch):
    def see(self, site: str, view: View) -> None:
        rows = view.value.reshape(-1, view.value.shape[-1])
        if not self.in_groups:
            self.state.rows[site].include(rows, self._payload, self._rows, self._rank)
        else:
            self._room(rows)[self._order[site]] = rows.index_select(0, self._device_rows)


WRITE_SAMPLES = WriteSamples()
