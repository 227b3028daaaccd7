"""How is one batch after another read? The host prepares, the device works, the host counts.

On a GPU the device's work for batches of one shape is the same, and is recorded: `flow.machine.recording`.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from armillary.anatomy import Anatomy
from armillary.flow.capture import run
from armillary.flow.glimpse import Tokens
from armillary.flow.machine import recording
from armillary.flow.machine.feed import FixedFeed
from armillary.flow.machine.recording import Graphs, Recorder
from armillary.flow.tokens import Batch, Corpus
from armillary.probes.machinery.instrument import Watch
from armillary.probes.machinery.passes.pass_sites import PassSites

# What is sent to the device for a batch: a dozen numbers per token, and the samples.
BYTES_PER_TOKEN, BYTES_OF_SAMPLES = 192, 1 << 20


class BatchReader:
    """Reads batches of a text with all watches of a pass."""

    def __init__(
        self,
        anatomy: Anatomy,
        corpus: Corpus,
        watches: Sequence[Watch[Any]],
        parts: Sequence[Collection[int]],
        recorder: Recorder | None = None,
    ) -> None:
        self._anatomy, self._corpus, self._watches = anatomy, corpus, watches
        self.sites = PassSites(anatomy, list(watches))
        wanted = {number for part in parts for number in part}
        self._shapes = {n: shape for n, shape in enumerate(_shapes(corpus)) if n in wanted}
        self._to_come = Counter(self._shapes.values())
        self.recorder = (recorder or self._recorder()) if self._recordable() else None
        size = BYTES_PER_TOKEN * max((rows * width for rows, width, _ in self._to_come), default=0) + BYTES_OF_SAMPLES
        self._feed = None if self.recorder is None else FixedFeed(anatomy.device, size)

    def _recordable(self) -> bool:
        """Do all watches keep host and device apart, does the model read nothing but the tokens, and does nobody edit
        it? An edit may count batches in Python, which does not run when work is replayed."""
        anatomy = self._anatomy
        if anatomy.signal is not None or anatomy.encoder is not None:
            return False
        edited = any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in anatomy.model.modules())
        return not edited and all(getattr(watch, "recordable", False) for watch in self._watches)

    def _recorder(self) -> Recorder | None:
        """Where some shape occurs often enough."""
        anatomy = self._anatomy
        if anatomy.device.type != "cuda":
            return None
        return Recorder(Graphs(anatomy.device)) if max(self._to_come.values(), default=0) > recording.LEAST else None

    def read(self, batch: Batch, counting: bool) -> None:
        """`counting`: the batch is read for what it shows, not only for what is typical."""
        if self._feed is not None:
            self._feed.begin()
        tokens = Tokens.of(batch, self._corpus.groups, self._anatomy.device, self._feed)
        watches = self._watches if counting else ()
        for watch in watches:
            watch.begin(tokens)
        if self._feed is not None:
            self._feed.send()

        def work() -> list[Any]:
            return self._work(tokens, watches, counting)

        if self.recorder is None:
            left = work()
        else:
            left = self.recorder(self._key(tokens, watches), work, self._repeats(batch, watches))
        for watch, leaves in zip(watches, left, strict=True):
            settle = getattr(watch, "settle", None)
            if settle is not None:
                settle(leaves)

    def _work(self, tokens: Tokens, watches: Sequence[Watch[Any]], counting: bool) -> list[Any]:
        """The device's part."""
        self.sites.counting = counting
        self.sites.begin(tokens)
        for watch in watches:
            prepare = getattr(watch, "prepare", None)
            if prepare is not None:
                prepare()
        ids = tokens.batch.ids if self.recorder is None else tokens.ids
        run(self._anatomy, ids, None if tokens.whole else tokens.batch.mask)
        self.sites.end()
        return [watch.end() for watch in watches]

    def _key(self, tokens: Tokens, watches: Sequence[Watch[Any]]) -> Hashable | None:
        """What the device's work depends on, beside the numbers that were sent; None where it cannot be repeated."""
        assert self._feed is not None
        if not (watches and tokens.whole and self._feed.complete):
            return None
        return tuple(self._feed.shapes), tokens.batch.fold, tuple(getattr(watch, "key", ()) for watch in watches)

    def _repeats(self, batch: Batch, watches: Sequence[Watch[Any]]) -> int:
        """How many batches of this shape there are from this one on; 0 where this one is special."""
        if not watches:
            return 0
        shape = self._shapes[batch.number]
        self._to_come[shape] -= 1
        special = not self.sites.settled or any(getattr(watch, "special", False) for watch in watches)
        return 0 if special else self._to_come[shape] + 1


def _shapes(corpus: Corpus) -> list[tuple[int, int, int]]:
    """Windows, width and half of every batch."""
    batches = corpus.batched_windows()
    return [(len(windows), len(windows[0].ids), windows[0].document % 2) for windows in batches]
