"""How are heads watched as a batch passes? q, k, v and results come from the model's own modules; scores from q and k."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.folded import Folded, fold, reading_norm
from armillary.anatomy.read import projected
from armillary.flow.attention import capped, placed, rotation, visible
from armillary.flow.tokens import Batch, Corpus
from armillary.probes.attention.record import FIELDS, KEYS_LEAST, AttentionRecord, LayerRecord, Sampling
from armillary.probes.attention.statistics import Looked, look

# Rebuilding scores in float64 is a proof, not a statistic: a few windows prove it.
PROOFS = 2


@dataclass(frozen=True, eq=False)
class Blind:
    """What turns q, k or v into the share of |z|² that the head's matrix sees: constants and k × k inverses."""

    constant: Tensor
    inverse: Tensor
    matrix: Tensor | None = None
    """The projection itself, where the model rounds so much that taking the constant away would leave noise."""

    def share(self, projection: Tensor, z: Tensor) -> Tensor:
        """[b, h, t] that is lost: `projection` [b, t, h, k] of z [b, t, d]."""
        power = z.square().sum(-1)
        bare = projection.double() - self.constant
        if self.matrix is not None:
            bare = torch.einsum("btd,hdk->bthk", z, self.matrix.to(z))
        seen = torch.einsum("bthk,hkl,bthl->bht", bare, self.inverse, bare)
        return (1 - seen / power[:, None].clamp_min(1e-300)).clamp(0, 1)


def blinds(folded: Folded, rounded: bool = False) -> tuple[Blind, Blind, Blind]:
    """For queries and keys of W_QK and for values of W_VO. z A = q − a, so the part of z in A's span has the squared
    length (q − a)(AᵀA)⁻¹(q − a)ᵀ: no vector of width d is needed. Where the other factor has lost dimensions, what it
    no longer reads is null as well."""
    sides = ((folded.A_Q, folded.A_K), (folded.A_K, folded.A_Q), (folded.A_V, folded.W_O.mT))
    made = []
    for (side, other), constant in zip(sides, (folded.a_Q, folded.a_K, folded.a_V), strict=True):
        reach = _reach(other)
        inverse = torch.linalg.pinv(reach @ side.mT @ side @ reach, hermitian=True)
        made.append(Blind(constant, inverse, side.float() if rounded else None))
    return made[0], made[1], made[2]


def _reach(factor: Tensor) -> Tensor:
    """The projector [h, k, k] on what a factor [h, d, k] does not send to zero."""
    values, vectors = torch.linalg.eigh(factor.mT @ factor)
    alive = values > 1e-12 * values.amax(-1, keepdim=True)
    return (vectors * alive[..., None, :]) @ vectors.mT


class AttentionWatch:
    """Fills an `AttentionRecord`: `begin` before each batch, the watchers while it passes."""

    def __init__(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> None:
        self.anatomy, self.sampling = anatomy, Sampling.of(corpus, seed)
        self.record = AttentionRecord.empty(corpus.groups, anatomy.layers, anatomy.n_heads, self.sampling.rate)
        self._proofs = 0
        self._sides: dict[str, Tensor] = {}
        folds = (fold(anatomy, layer) for layer in range(anatomy.layers))
        half = torch.finfo(anatomy.dtype).bits < 32
        self._blinds = [blinds(folded, half) for folded in folds]

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
        self._prove = range(len(places)) if self._proofs < PROOFS else range(0)
        self._prove = self._prove[: PROOFS - self._proofs]
        self._proofs += len(self._prove)
        if rows:
            pairs = [(window.document, t) for window, p in zip(windows, places, strict=True) for t in p]
            self.record.places.append(torch.tensor(pairs))

    @property
    def watchers(self) -> dict[str, Callable[[Tensor | None, Tensor], None]]:
        made: dict[str, Callable[[Tensor | None, Tensor], None]] = {}
        for layer in range(self.anatomy.layers):
            site, _ = reading_norm(self.anatomy, layer)
            made |= {} if not site else {site: self._see_direction(layer)}
            made |= {
                f"L{layer}.q": self._see(layer, "q"),
                f"L{layer}.k": self._see(layer, "k"),
                f"L{layer}.v": self._see(layer, "v"),
                f"L{layer}.z": self._see_results(layer),
            }
        return made

    def _see_direction(self, layer: int) -> Callable[[Tensor | None, Tensor], None]:
        _, norm = reading_norm(self.anatomy, layer)
        assert norm is not None

        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "a norm takes a tensor"
            self._z = norm.direction(x.reshape(*self._real.shape, -1)[self._rows].double())

        return watch

    def _see(self, layer: int, side: str) -> Callable[[Tensor | None, Tensor], None]:
        # Where no norm stands before attention, its own input is what is folded.
        raw = side == "q" and not reading_norm(self.anatomy, layer)[0]

        def watch(x: Tensor | None, y: Tensor) -> None:
            if raw:
                assert x is not None, "a projection takes a tensor"
                self._z = x[self._rows].double()
            self._sides[side] = projected(self.anatomy, f"L{layer}.{side}", y).float()

        return watch

    def _see_results(self, layer: int) -> Callable[[Tensor | None, Tensor], None]:
        attention, record = self.anatomy.blocks[layer].attention, self.record.layers[layer]

        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "the output projection takes the heads' results"
            q, k = placed(attention, self._sides["q"], self._sides["k"], self._turn)
            self._exact(record, attention, q, k)
            if len(self._rows):
                result = x.reshape(*self._real.shape, -1, self.anatomy.k)[self._rows].float()
                seen = self._looked(layer, attention, q[self._rows], k[self._rows], result)
                rows = look(seen, self._lost(layer), FIELDS)
                record.rows.append(rows[self._kept].float().cpu())
                for row in self._prove:
                    self._proof(layer, seen, row)

        return watch

    def _exact(self, record: LayerRecord, attention: Attention, q: Tensor, k: Tensor) -> None:
        """Over all tokens: a sum over keys is a difference of running sums, so no score need be written out."""
        real = self._real
        keys = k * real[:, :, None, None]
        count = real.float()
        if self.anatomy.causal:
            keys, count = keys.cumsum(1), count.cumsum(1)
            if attention.window is not None and attention.window < keys.shape[1]:
                keys[:, attention.window :] = keys[:, attention.window :] - keys[:, : -attention.window].clone()
                count[:, attention.window :] = count[:, attention.window :] - count[:, : -attention.window].clone()
        else:
            keys, count = keys.sum(1, keepdim=True), count.sum(1, keepdim=True)
        mean = (q * keys).sum(-1) * attention.scale / count[..., None]
        columns = torch.cat((q.norm(dim=-1), k.norm(dim=-1), mean), -1)
        chosen = real.clone()
        chosen[:, 0] = False
        record.exact.include(self._group[chosen.reshape(-1).cpu()], columns[chosen])

    def _looked(self, layer: int, attention: Attention, q: Tensor, k: Tensor, result: Tensor) -> Looked:
        b, t = k.shape[:2]
        rows = torch.arange(b, device=k.device)[:, None]
        sees = visible(attention, t, self.anatomy.causal, k.device)[self._query] & self._real[self._rows][:, None]
        return Looked(
            attention=attention,
            q=q[rows, self._query].transpose(1, 2),
            k=k.transpose(1, 2),
            z=self._z,
            result=result[rows, self._query],
            query=self._query,
            sees=sees,
            ids=self._ids,
            W_O=attention.W_O,
        )

    def _lost(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Null shares: of queries and keys at the sampled tokens [b, h, q], of values at all tokens [b, h, t]."""
        group = self.anatomy.blocks[layer].attention.group
        for_query, for_key, for_value = self._blinds[layer]
        q, k, v = (self._sides[side][self._rows] for side in "qkv")
        k, v = (side.repeat_interleave(group, 2) for side in (k, v))
        index = self._query[:, None].expand(-1, q.shape[2], -1)
        null_query, null_key = (
            blind.share(side, self._z).gather(2, index) for blind, side in ((for_query, q), (for_key, k))
        )
        return null_query, null_key, for_value.share(v, self._z)

    def _proof(self, layer: int, seen: Looked, row: int) -> None:
        """Scores and results of one window's queries from the folded matrices, in float64, against the model's."""
        record, attention = self.record.layers[layer], seen.attention
        folded = fold(self.anatomy, layer)
        z, query, sees = self._z[row], seen.query[row], seen.sees[row]
        theirs = capped(attention, seen.q[row].double() @ seen.k[row].double().mT)

        def scores(q: Tensor, k: Tensor) -> Tensor:
            q, k = placed(attention, q.transpose(0, 1)[None], k.transpose(0, 1)[None], self._turn)
            return capped(attention, torch.einsum("ihk,jhk->hij", q[0, query], k[0]))

        ours = scores(z @ folded.A_Q + folded.a_Q[:, None], z @ folded.A_K + folded.a_K[:, None])
        bare = scores(z @ attention.W_Q.double(), z @ attention.W_K.double().repeat_interleave(attention.group, 0))
        values = z @ folded.A_V + folded.a_V[:, None]
        results = (ours.masked_fill(~sees, -torch.inf).softmax(-1) @ values).transpose(0, 1)
        record.scores_error = max(record.scores_error, _error(ours[:, sees], theirs[:, sees]))
        record.unfolded_error = max(record.unfolded_error, _error(bare[:, sees], theirs[:, sees]))
        # The model rounds a score to a share of its size, and softmax turns that into the same share of an attention.
        size = max(1.0, float(theirs[:, sees].abs().max()))
        record.results_error = max(record.results_error, _error(results, seen.result[row]) / size)


def _error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-30))


__all__ = ["KEYS_LEAST", "AttentionWatch"]
