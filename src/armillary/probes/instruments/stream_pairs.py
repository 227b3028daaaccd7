"""How does the stream before a block vary together with the stream after it? For either half of the documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.measures.state import Named
from armillary.probes.instruments.covariances import CovarianceSums
from armillary.probes.machinery import MODEL, TWINS, View, spread_layers
from armillary.probes.machinery.instrument import TokenWatch
from armillary.probes.machinery.layers import StreamState, stream_states

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Tokens
    from armillary.flow.tokens import Corpus

# The moments of a pair are as wide as two states: of a deep model some blocks stand for all.
BLOCKS = 5


def block_states(anatomy: "Anatomy") -> dict[str, tuple[StreamState, StreamState]]:
    """Block → the states before and after it, of blocks spread over the depth."""
    known = {state.name: state for state in stream_states(anatomy)}
    pairs = {}
    for layer in spread_layers(anatomy, BLOCKS):
        before = known.get(f"L{layer - 1}.resid_post" if layer else "L0.resid_pre")
        after = known.get(f"L{layer}.resid_post")
        if before is not None and after is not None:
            pairs[f"L{layer}"] = before, after
    return pairs


@dataclass(frozen=True)
class StreamPairs:
    """The instrument: per block the moments of [x before, x after] [2d], over tokens that are ordinary at both."""

    name: str = "stream pairs"
    arms: tuple[str, ...] = (MODEL, *TWINS)
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "PairWatch":
        return PairWatch(anatomy)

    def count(self, state: CovarianceSums) -> tuple[int, str]:
        counts = [even.count + state.odd[block].count for block, even in state.even.items()]
        return min(counts, default=0), "ordinary tokens"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 2 * 8 * (2 * anatomy.d) ** 2 // 2 * BLOCKS


class PairWatch(TokenWatch):
    recordable = True

    def __init__(self, anatomy: "Anatomy") -> None:
        from armillary.geometry.fused import batched
        from armillary.measures import Moments

        self._pairs = block_states(anatomy)
        self._at = {state.norm: state for pair in self._pairs.values() for state in pair}
        self.sites = tuple(self._at)
        self._seen: dict[str, tuple[Tensor, Tensor]] = {}
        # Massive tokens are left out, so that no entry is far from its column.
        even, odd = (Named.of(self._pairs, lambda: Moments.empty(2 * anatomy.d, even=True)) for _ in range(2))
        self.state = CovarianceSums(even, odd)
        self._counted = not batched(anatomy.device)

    def begin(self, tokens: "Tokens") -> None:
        super().begin(tokens)
        self._halves = [self.state.halves(block)[tokens.batch.fold] for block in self._pairs]
        self.special = not all(moments.settled for moments in self._halves)

    def see(self, site: str, view: View) -> None:
        import torch

        from armillary.flow.glimpse import ORDINARY

        state, glimpse, tokens = self._at[site], view.norm, self._tokens
        x = glimpse.output.to(glimpse.x.dtype) if state.output else glimpse.x
        self._seen[state.name] = x, (glimpse.kind != ORDINARY) | ~tokens.real
        for block, (before, after) in self._pairs.items():
            if after.name == state.name:
                (first, out), (second, left) = self._seen[before.name], self._seen[after.name]
                moments = self.state.halves(block)[tokens.batch.fold]
                moments.include(torch.cat((first, second), 1), out | left, consume=True, counted=self._counted)

    def end(self) -> None:
        self._seen.clear()

    def settle(self, left: object) -> None:
        for moments in self._halves if not self._counted else ():
            moments.offered(self._tokens.batch.ids.numel())


STREAM_PAIRS = StreamPairs()
