"""Where are experiments made? On one evaluation text, beside one baseline, with as few passes as decide the question.

Claims that need interventions cost forward passes. All of them use the same seeded text and share the unedited model's
losses. `Bench.compare` is a group-sequential design: documents come in `LOOKS` parts. After each part the rule is asked
whether it can decide. Every look takes its interval at 1 − 0.05/LOOKS: by Bonferroni the chance that any look misleads
stays below 5 % however early the experiment stops.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, edited
from armillary.edits.late_start import keeping, resuming, unchanged_blocks
from armillary.errors import ModelError
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch, Corpus, Window
from armillary.probes.machinery.instrument import MODEL, SHUFFLED, TWINS
from armillary.probes.machinery.intervals import Floats, Interval, interval
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.probes.machinery.memo import Memo
from armillary.results import TextLoss

TOKENS, DOCUMENTS = 1536, 24
QUICK_TOKENS, QUICK_DOCUMENTS = 480, 12
LOOKS = 3
# The ends of an interval at a look's stricter level lie far out.
DRAWS = 4000
# Logits are as wide as the vocabulary: a batch of these many tokens keeps them to a hundred megabytes at 50 000 words,
# and fewer tokens do at more.
BATCH, LOGITS = 512, 512 * 51200
# What all blocks gave for a batch is kept up to this size: 35 MB for 30 layers of width 576.
KEPT_BYTES = 64 << 20

LossStatistic = Callable[[Floats, Floats], Floats]
"""From summed losses [draws, 1 + trials] (the unedited model first) and token counts [draws] to one value per draw."""


class ModelChangedError(ModelError):
    """An experiment left the model other than it was."""


@dataclass(frozen=True, eq=False)
class Trials:
    """What some edits cost: loss sums [1 + trials, groups], the unedited model first, and token counts [groups]."""

    names: tuple[str, ...]
    loss: Floats
    count: Floats
    looks: int
    """After how many parts of the documents the rule could decide."""
    level: float
    """At which every interval must be taken, so that looking several times does not count as several chances."""
    seed: int

    @property
    def documents(self) -> int:
        return int((self.count > 0).sum())

    def interval(self, statistic: LossStatistic) -> Interval:
        """A statistic of the losses with its interval over documents; NaN ends where documents are too few."""
        rows = np.concatenate([self.count[None], self.loss]).T[self.count > 0]
        return interval(rows, lambda sums: statistic(sums[:, 1:], sums[:, 0]), self.seed, DRAWS, self.level)

    def cost(self, name: str) -> Interval:
        """Nats per token that one trial costs, with its interval."""
        row = 1 + self.names.index(name)
        return self.interval(lambda loss, count: (loss[:, row] - loss[:, 0]) / np.maximum(count, 1e-300))

    def beside(self, name: str, other: str) -> Interval:
        """Nats per token that one trial costs more than another, document by document."""
        row, other_row = 1 + self.names.index(name), 1 + self.names.index(other)
        return self.interval(lambda loss, count: (loss[:, row] - loss[:, other_row]) / np.maximum(count, 1e-300))


@dataclass(eq=False)
class Bench:
    """A model, the text it is tried on, and what earlier experiments computed there."""

    anatomy: Anatomy
    corpus: Corpus
    """All that the survey reads; an experiment that needs long windows takes them here."""
    untrained: Sequence[Anatomy] = ()
    """The same architecture at random initialisation, several times."""
    seed: int = 0
    quick: bool = False
    tick: Callable[[int], None] = lambda tokens: None
    memo: Memo = field(default_factory=Memo)
    """What `once` keeps."""
    _arms: dict[str, "Bench"] = field(default_factory=dict)
    _baseline: dict[int, tuple[Batch, Floats]] = field(default_factory=dict)
    """id of a batch → that batch (so that the id stays its own) and the unedited model's [row, (count, loss)]."""
    _outputs: dict[int, tuple[Batch, dict[int, Any]]] = field(default_factory=dict)
    """id of a batch → that batch, and what its first blocks gave: `resuming` fills it in."""
    _first: Tensor | None = None

    def __post_init__(self) -> None:
        tokens, documents = (QUICK_TOKENS, QUICK_DOCUMENTS) if self.quick else (TOKENS, DOCUMENTS)
        self.text = self.corpus.thinned(tokens, documents)

    @property
    def twins(self) -> list[str]:
        """The arms of the untrained twins."""
        return list(TWINS[: len(self.untrained)])

    @property
    def scored(self) -> bool:
        """Does the model predict a next token, so that an edit can cost something?"""
        return self.anatomy.causal and self.anatomy.W_U is not None

    def arm(self, name: str) -> "Bench":
        """The same bench with an untrained twin, or with shuffled text."""
        if name == MODEL:
            return self
        if name not in self._arms:
            if name in TWINS and getattr(self.untrained, "one_at_a_time", False):
                # The bench of an arm holds its model; of large twins only one is held.
                self._arms = {arm: bench for arm, bench in self._arms.items() if arm not in TWINS}
            model = self.untrained[TWINS.index(name)] if name in TWINS else self.anatomy
            text = self.corpus.shuffled(self.seed) if name == SHUFFLED else self.corpus
            self._arms[name] = Bench(model, text, (), self.seed, self.quick, lambda tokens: self.tick(tokens))
        return self._arms[name]

    def batches(self, windows: Sequence[Window] | None = None) -> list[Batch]:
        """The evaluation text, or the windows given, in batches small enough for logits."""
        text = self.text if windows is None else Corpus(tuple(windows), "", self.corpus.documents, 0, ())
        return list(text.batches(max(1, min(BATCH, LOGITS // self.anatomy.vocabulary))))

    def groups(self, batch: Batch) -> Tensor:
        """The bootstrap group of each row."""
        return self.corpus.group(batch.documents)

    def token_losses(self, batch: Batch, *edits: Edit, outputs: dict[int, Any] | None = None) -> Tensor:
        """Next-token loss [b, t] in float64 on the CPU, 0 where no token follows; `outputs` is this batch's own."""
        with still(self.anatomy.model), self._resumed(batch, edits, outputs), edited(self.anatomy, *edits):
            logits = run(self.anatomy, batch.ids, batch.mask, logits=True).float()
        self.tick(batch.tokens)
        target = batch.following.to(logits.device)
        # Flat rows: cross entropy over a transposed vocabulary axis is several times slower.
        rows = max(1, LOGITS // logits.shape[-1])
        sides = (logits.flatten(0, 1), target.clamp_min(0).flatten())
        pairs = zip(*(torch.split(side, rows) for side in sides), strict=True)
        nll = torch.cat([torch.nn.functional.cross_entropy(some, wanted, reduction="none") for some, wanted in pairs])
        return (nll.reshape(target.shape).double() * (target >= 0)).cpu()

    def _resumed(
        self, batch: Batch, edits: Sequence[Edit], outputs: dict[int, Any] | None
    ) -> AbstractContextManager[None]:
        """Start where edits change something; a pass without edits keeps what later ones start from."""
        if outputs is None:
            return nullcontext()
        size = batch.ids.numel() * self.anatomy.d * torch.finfo(self.anatomy.dtype).bits // 8 * self.anatomy.layers
        if not edits and size <= KEPT_BYTES:
            return keeping(self.anatomy, outputs)
        return resuming(self.anatomy, unchanged_blocks(edits), outputs)

    def losses(self, batches: Sequence[Batch], *edits: Edit) -> Floats:
        """[groups, (count, loss)] over batches; the unedited model's are computed once."""
        sums = np.zeros((self.corpus.groups, 2))
        for batch in batches:
            rows = None if edits else self._baseline.get(id(batch), (batch, None))[1]
            if rows is None:
                counts = (batch.following >= 0).sum(1).double()
                outputs = self._outputs.setdefault(id(batch), (batch, {}))[1]
                rows = torch.stack((counts, self.token_losses(batch, *edits, outputs=outputs).sum(1)), 1).numpy()
            if not edits:
                self._baseline[id(batch)] = (batch, rows)
            np.add.at(sums, self.groups(batch).numpy(), rows)
        return sums

    def compare(
        self, trials: Mapping[str, tuple[Edit, ...]], decided: Callable[[Trials], bool] | None = None
    ) -> Trials:
        """What each trial's edits cost, reading no more documents than `decided` asks for; without it, all of them, and
        then there is but one look."""
        loss = np.zeros((1 + len(trials), self.corpus.groups))
        count = np.zeros(self.corpus.groups)
        for look, batches in enumerate(self.instalments, 1):
            for row, edits in enumerate([(), *trials.values()]):
                more = self.losses(batches, *edits)
                loss[row] += more[:, 1]
                count += more[:, 0] if row == 0 else 0
            level = 0.95 if decided is None else 1 - 0.05 / LOOKS
            result = Trials(tuple(trials), loss.copy(), count.copy(), look, level, self.seed)
            if decided is not None and result.documents >= T.documents_least and decided(result):
                break
        return result

    @cached_property
    def instalments(self) -> list[list[Batch]]:
        """The evaluation text in LOOKS parts of about equally many documents."""
        windows = sorted(self.text.windows, key=lambda w: w.document)
        # A first part with fewer documents than an interval needs could decide nothing.
        first = min(len(windows), max(T.documents_least, round(len(windows) / LOOKS)))
        cuts = [0, *(first + round((len(windows) - first) * i / (LOOKS - 1)) for i in range(LOOKS))]
        return [self.batches(windows[a:b]) for a, b in pairwise(cuts) if b > a]

    def states(self, batch: Batch, sites: Sequence[str], *edits: Edit) -> dict[str, Tensor]:
        """The values of these sites, each token's in one row [b, t, width]."""
        states: dict[str, Tensor] = {}

        def keep(site: str) -> Watcher:
            def watch(given: Tensor | None, value: Tensor) -> None:
                states[site] = value.detach().clone()

            return watch

        with (
            still(self.anatomy.model),
            edited(self.anatomy, *edits),
            watching(self.anatomy, {s: keep(s) for s in sites}),
        ):
            last = run(self.anatomy, batch.ids, batch.mask)
        self.tick(batch.tokens)
        return {site: value.reshape(*last.shape[:2], -1) for site, value in states.items()}

    def prove(self) -> None:
        """The model is what it was when the bench was set up, bit for bit; called after every experiment."""
        batch = self.batches(self.text.windows[:1])[0]
        with still(self.anatomy.model):
            now = run(self.anatomy, batch.ids, batch.mask)
        if self._first is None:
            self._first = now
        if not torch.equal(now, self._first):
            raise ModelChangedError(
                "an experiment changed the model: its output is no longer bit for bit what it was. This is a bug."
            )


def text_loss(bench: Bench) -> TextLoss | None:
    """What the unedited model loses: tokens, bytes and nats of every document (group of documents).

    None for a model that predicts no next token.
    """
    if not bench.scored:
        return None
    sums = bench.losses(bench.batches())
    sizes, digest, tokenizer = [0] * len(sums), hashlib.sha256(), bench.anatomy.tokenizer
    for window in sorted(bench.text.windows, key=lambda w: w.document):
        # The first token of a window is not predicted.
        ids = list(window.ids[max(1, window.prefix) : len(window.ids) - window.suffix])
        read = b"" if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=True).encode()
        sizes[window.document % bench.corpus.groups] += len(read)
        digest.update(read if read else repr(ids).encode())
    rows = [(int(count), size, float(nats)) for (count, nats), size in zip(sums, sizes, strict=True) if count]
    tokens, lengths, losses = zip(*rows, strict=True) if rows else ((), (), ())
    return TextLoss(tokens, lengths, losses, digest.hexdigest()[:16])
