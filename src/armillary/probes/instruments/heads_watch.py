"""How are heads watched as a batch passes? q, k, v and results come from the model's own modules; scores from q and k."""

from collections.abc import Callable

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import fold, reading_norm
from armillary.anatomy.norm import Norm
from armillary.flow.attention import rotation, turned, visible
from armillary.flow.tokens import Batch, Corpus
from armillary.probes.instruments.head_nullspaces import senses
from armillary.probes.instruments.head_rebuilding import Proof
from armillary.probes.instruments.head_scores import Looked, look
from armillary.probes.instruments.heads_record import FIELDS, KEYS_LEAST, AttentionRecord, Sampling

# Rebuilding scores in float64 is a proof, not a statistic: a few windows prove it.
PROOFS = 2


class AttentionWatch:
    """Fills an `AttentionRecord`: `begin` before each batch, the watchers while it passes."""

    def __init__(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> None:
        self.anatomy, self.sampling = anatomy, Sampling.of(corpus, seed)
        self.record = AttentionRecord.empty(corpus.groups, anatomy.layers, anatomy.n_heads, self.sampling.rate)
        self._proofs = 0
        self._sides: dict[str, Tensor] = {}
        half = torch.finfo(anatomy.dtype).bits < 32
        self._senses = [senses(fold(anatomy, layer), half) for layer in range(anatomy.layers)]

    def begin(self, batch: Batch) -> None:
        device = self.anatomy.device
        self._real = batch.mask.to(device)
        self._group = (batch.documents % self.record.groups)[:, None].expand(batch.mask.shape).reshape(-1)
        self._turn = rotation(self.anatomy, batch.ids.shape[1])
        rows = [i for i, window in enumerate(batch.windows) if window in self.sampling.chosen]
        self._rows = torch.tensor(rows, dtype=torch.long, device=device)
        windows = [batch.windows[i] for i in rows]
        places = [self.sampling.chosen[w] for w in windows]
        most = max(map(len, places), default=0)
        # Windows with fewer queries repeat their last one; the copies are dropped when rows are kept.
        self._query = torch.tensor([[*p, *[p[-1]] * (most - len(p))] for p in places], device=device).long()
        self._kept = torch.tensor([[True] * len(p) + [False] * (most - len(p)) for p in places], device=device).bool()
        self._ids = batch.ids.to(device)[self._rows]
        self._prove = [(i, len(windows[i].ids)) for i in range(min(len(rows), PROOFS - self._proofs))]
        self._proofs += len(self._prove)
        if rows:
            pairs = [(window.document, t) for window, p in zip(windows, places, strict=True) for t in p]
            self.record.places.append(torch.tensor(pairs))

    @property
    def watchers(self) -> dict[str, Callable[[Tensor | None, Tensor], None]]:
        made: dict[str, Callable[[Tensor | None, Tensor], None]] = {}
        for layer in range(self.anatomy.layers):
            site, _ = reading_norm(self.anatomy, layer)
            made |= {} if not site else {site: self._see_stream}
            made |= {
                f"L{layer}.q": self._see(layer, "q"),
                f"L{layer}.k": self._see(layer, "k"),
                f"L{layer}.v": self._see(layer, "v"),
                f"L{layer}.z": self._see_results(layer),
            }
        return made

    def _see_stream(self, x: Tensor | None, y: Tensor) -> None:
        assert x is not None, "a norm takes a tensor"
        self._x = x.reshape(*self._real.shape, -1)[self._rows]

    def _see(self, layer: int, side: str) -> Callable[[Tensor | None, Tensor], None]:
        # Where no norm stands before attention, its own input is what is folded.
        raw = side == "q" and not reading_norm(self.anatomy, layer)[0]

        def watch(x: Tensor | None, y: Tensor) -> None:
            if raw:
                self._see_stream(x, y)
            self._sides[side] = y.float()

        return watch

    def _see_results(self, layer: int) -> Callable[[Tensor | None, Tensor], None]:
        record = self.record.layers[layer]

        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "the output projection takes the heads' results"
            self._exact(layer)
            if len(self._rows):
                result = x.reshape(*self._real.shape, -1, self.anatomy.k)
                record.rows.append(self._sampled(layer, result)[self._kept].cpu())
                if self._prove:
                    self._proof(layer, result)

        return watch

    def _exact(self, layer: int) -> None:
        """Lengths at all tokens; a rotation leaves them as they are (YaRN's factor apart, which no spread notices)."""
        attention = self.anatomy.blocks[layer].attention
        q = turned(attention.q_norm, self._sides["q"], None).norm(dim=-1)
        k = turned(attention.k_norm, self._sides["k"], None).norm(dim=-1)
        columns = torch.cat((q, k.repeat_interleave(attention.group, -1)), -1)
        chosen = self._real.clone()
        chosen[:, 0] = False
        self.record.layers[layer].exact.include(self._group[chosen.reshape(-1).cpu()], columns[chosen])

    def _sampled(self, layer: int, result: Tensor) -> Tensor:
        """[b, n, h, FIELDS] for the sampled queries of the sampled windows."""
        attention, sense = self.anatomy.blocks[layer].attention, self._senses[layer]
        at = (self._rows[:, None], self._query)
        q, k = self._sides["q"][at], self._sides["k"][at]
        keys, values = self._sides["k"][self._rows], self._sides["v"][self._rows]
        z = _direction(reading_norm(self.anatomy, layer)[1], self._x.float())
        asked = z[torch.arange(len(z), device=z.device)[:, None], self._query]
        turn = None if self._turn is None else (self._turn[0][0, self._query], self._turn[1][0, self._query])
        sees = visible(attention, z.shape[1], self.anatomy.causal, z.device)[self._query]
        seen = Looked(
            attention=attention,
            q=turned(attention.q_norm, q, turn).transpose(1, 2),
            k=turned(attention.k_norm, keys, self._turn).repeat_interleave(attention.group, 2).transpose(1, 2),
            z=z,
            update=(result[at].float().transpose(1, 2) @ sense.writes.to(z)).norm(dim=-1),
            query=self._query,
            sees=sees & self._real[self._rows][:, None],
            ids=self._ids,
        )
        lost = (
            sense.query.share(q, asked),
            sense.key.share(k, asked),
            sense.value.share(values, z),
        )
        return look(seen, lost, FIELDS)

    def _proof(self, layer: int, result: Tensor) -> None:
        folded = fold(self.anatomy, layer)
        for i, t in self._prove:
            z = _direction(folded.norm, self._x[i, :t].double())
            q, k = (self._sides[side][self._rows[i], :t] for side in "qk")
            proof = Proof(z, q, k, result[self._rows[i], :t], self._turn, self.anatomy.causal)
            proof.against(folded, self.record.layers[layer])


def _direction(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm.direction(x)


__all__ = ["KEYS_LEAST", "AttentionWatch"]
