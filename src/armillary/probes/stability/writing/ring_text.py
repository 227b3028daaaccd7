"""The survey's text as a ring of tokens, read by a window that slides by half: what real text looks like."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Corpus
from armillary.probes.machinery.bench import BATCH, Bench


@dataclass(frozen=True, eq=False)
class TokenSeries:
    """Tokens as they were read or written: their ids [series, t], the prediction's entropy [series, t], and what the
    norms got [series, t, d]. NaN where a row has overflowed."""

    ids: Tensor
    entropy: Tensor
    states: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Ring:
    """Every token of the text once, read with half a window before it; and the typical 1/σ of every norm."""

    read: TokenSeries
    """One series: the whole ring."""
    scales: dict[str, float]

    @property
    def ids(self) -> Tensor:
        return self.read.ids[0]

    def stretch(self, start: int, length: int) -> Tensor:
        """So many tokens from a place on, or before it where `length` is negative."""
        places = torch.arange(min(0, length), max(0, length)) + start
        return self.ids[places % len(self.ids)]


def ring_ids(corpus: Corpus, half: int) -> Tensor:
    """All tokens of the text end to end, without what the tokenizer added, as many as fill half windows."""
    text = [token for w in corpus.windows for token in w.ids[w.prefix : len(w.ids) - w.suffix]]
    return torch.tensor(text[: len(text) // half * half])


def read_ring(bench: Bench, half: int, sites: Sequence[str]) -> Ring:
    """Read the ring in windows of two halves; only the second half of each is kept."""
    anatomy, ids = bench.anatomy, ring_ids(bench.corpus, half)
    blocks = ids.reshape(-1, half)
    windows = torch.cat((blocks.roll(1, 0), blocks), 1)
    inverse = dict.fromkeys(anatomy.norms, 0.0)
    states: dict[str, list[Tensor]] = {site: [] for site in sites}
    entropy: list[Tensor] = []
    for rows in torch.split(windows, max(1, BATCH // (2 * half))):
        current: dict[str, Tensor] = {}
        with still(anatomy.model), watching(anatomy, {s: _keeping(current, s) for s in anatomy.norms}):
            logits = run(anatomy, rows, logits=True)[:, half:]
        entropy.append(entropy_of(logits.float()).flatten().cpu())
        for site, x in current.items():
            inverse[site] += float(_inverse(anatomy.norms[site], x[:, half:]).sum())
        for site in sites:
            states[site].append(current[site][:, half:].flatten(0, 1).float().cpu())
        bench.tick(rows.numel())
    read = TokenSeries(
        ids[None], torch.cat(entropy)[None], {site: torch.cat(each)[None] for site, each in states.items()}
    )
    return Ring(read, {site: total / ids.numel() for site, total in inverse.items()})


def _keeping(current: dict[str, Tensor], site: str) -> Watcher:
    def see(given: Tensor | None, value: Tensor) -> None:
        assert given is not None, "a norm takes a tensor"
        current[site] = given.detach()

    return see


def _inverse(norm: Norm, x: Tensor) -> Tensor:
    return torch.rsqrt(norm.power(x) + norm.eps)


def entropy_of(logits: Tensor) -> Tensor:
    """In nats, over the last axis."""
    scores = logits.log_softmax(-1)
    return -(scores.exp() * scores).sum(-1)


def sites_of(anatomy: Anatomy) -> tuple[str, ...]:
    """An early norm, one in the middle, and the last."""
    names = list(anatomy.norms)
    return tuple(dict.fromkeys((names[min(1, len(names) - 1)], names[len(names) // 2], names[-1])))
