"""One pass: how do all probes that need no edit see the same forward pass?"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.glimpse import Glimpse, Tokens, Workspace
from armillary.flow.tokens import Corpus
from armillary.measures.reservoir import priority
from armillary.probes.instruments.heads_watch import AttentionWatch
from armillary.probes.instruments.norm_record import SAMPLE, NormRecord
from armillary.probes.instruments.words_watch import TravelWatch
from armillary.probes.machinery.probe import Instrument


def observe(
    anatomy: Anatomy,
    corpus: Corpus,
    instruments: Iterable[Instrument],
    tick: Callable[[int], None] = lambda tokens: None,
    attention: AttentionWatch | None = None,
    travel: TravelWatch | None = None,
) -> dict[str, NormRecord]:
    """Read the corpus once, without logits, reducing at every norm site as the batch passes it; in the same pass
    `attention` watches the heads and `travel` follows the words."""
    wanted = frozenset(instruments)
    records = {site: NormRecord(corpus.groups, norm, wanted) for site, norm in anatomy.norms.items()}
    current: list[Tokens] = []
    space = Workspace()
    bar = _bar(corpus) if "sample" in wanted else None

    def watcher(site: str, record: NormRecord) -> Callable[[Tensor | None, Tensor], None]:
        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "a norm takes a tensor"
            glimpse = Glimpse(record.norm, x, y, current[-1], space)
            if travel is not None:
                travel.see(site, glimpse)
            # Last: the record uses z up.
            record.include(glimpse)

        return watch

    watchers = {site: watcher(site, record) for site, record in records.items()}
    for site, more in {} if attention is None else attention.watchers.items():
        watchers[site] = _both(watchers[site], more) if site in watchers else more
    with still(anatomy.model), watching(anatomy, watchers):
        for batch in corpus.batches():
            for watch in (attention, travel):
                if watch is not None:
                    watch.begin(batch)
            current[:] = [_offer(Tokens.of(batch, corpus.groups, anatomy.device), bar)]
            run(anatomy, batch.ids, batch.mask)
            tick(batch.tokens)
    return records


def _both(first: Watcher, second: Watcher) -> Watcher:
    def watch(x: Tensor | None, y: Tensor) -> None:
        first(x, y)
        second(x, y)

    return watch


def _bar(corpus: Corpus) -> int:
    """The priority below which a token will be in every site's sample: the corpus is known, so nobody need be evicted."""
    places = [(w.document, t) for w in corpus.windows for t in range(1, len(w.ids))]
    if len(places) <= SAMPLE:
        return torch.iinfo(torch.int64).max
    return int(priority(0, torch.tensor(places)).kthvalue(SAMPLE).values)


def _offer(tokens: Tokens, bar: int | None) -> Tokens:
    if bar is None:
        return tokens
    rank = priority(0, tokens.places.cpu())
    chosen = rank <= bar
    return replace(tokens, offered=tokens.later[chosen.to(tokens.later.device)], rank=rank[chosen])
