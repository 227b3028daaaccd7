"""One pass: how do all probes that need no edit see the same forward pass?"""

from collections.abc import Callable, Iterable

from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import run, still, watching
from armillary.flow.glimpse import Glimpse, Tokens
from armillary.flow.tokens import Corpus
from armillary.probes.probe import Instrument
from armillary.probes.record import NormRecord


def observe(
    anatomy: Anatomy,
    corpus: Corpus,
    instruments: Iterable[Instrument],
    tick: Callable[[int], None] = lambda tokens: None,
) -> dict[str, NormRecord]:
    """Read the corpus once, without logits, reducing at every norm site as the batch passes it."""
    wanted = frozenset(instruments)
    records = {site: NormRecord(corpus.groups, norm, wanted) for site, norm in anatomy.norms.items()}
    current: list[Tokens] = []

    def watcher(record: NormRecord) -> Callable[[Tensor | None, Tensor], None]:
        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "a norm takes a tensor"
            record.include(Glimpse(record.norm, x, y, current[-1]))

        return watch

    watchers = {site: watcher(record) for site, record in records.items()}
    with still(anatomy.model), watching(anatomy, watchers):
        for batch in corpus.batches():
            current[:] = [Tokens.of(batch, corpus.groups, anatomy.device)]
            run(anatomy, batch.ids, batch.mask)
            tick(batch.tokens)
    return records
