"""What do heads attend to? Attention of every head by kind of token, on texts of one length.

The only place where attention patterns are measured: `heads.specialise`, the atlas of heads and the training monitor
read it. The model attends eagerly meanwhile, because faster attention never writes a pattern out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.measures.state import Named, State
from armillary.probes.machinery import MODEL, Floats, Ints, View

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Tokens
    from armillary.flow.tokens import Corpus, Window
    from armillary.measures import Rows, Totals

FIELDS = ("previous", "next", "first", "self", "same", "induction", "entropy", "differs")
"""Attention to the token before, after, to the first token, to itself, to the same word elsewhere, to what followed the
same token earlier (on repeated tokens); entropy over ln(keys); total variation from the layer's other heads."""
# A query of fewer keys has little choice; a window must hold as many queries again.
FIRST_QUERY, LENGTH_LEAST, LENGTH = 8, 16, 64
# Patterns of these many queries are kept, to compare one text's with the others'.
COMPARED = 16
REPEATED = 24


@dataclass
class PatternSums(State):
    """[document group, FIELDS, layer, head, (queries, sum)], and per layer a few patterns of every text."""

    groups: int
    sums: "Totals"
    patterns: "Named[Rows]"
    """Per layer [text, head, place, key]."""
    documents: "Rows"

    def of(self, field: str) -> Floats:
        """[document group, layer, head, (queries, sum)] of one field, or of 'content'."""
        return self._content() if field == "content" else np.asarray(self.sums.additive()[:, FIELDS.index(field)])

    def _content(self) -> Floats:
        """Total variation between a text's pattern and the mean of the other texts' at the same places, summed over
        queries. What depends on places alone is the same in all texts."""
        index = self.documents.joined().numpy().astype(int).reshape(-1) % self.groups
        layers = []
        for rows in self.patterns.values():
            patterns = rows.joined()
            others = (patterns.sum(0, keepdim=True) - patterns) / max(1, len(patterns) - 1)
            moved = (patterns - others).abs().sum(-1).double().sum(-1).numpy() / 2
            counts = np.full_like(moved, patterns.shape[2] * (len(patterns) > 1))
            sums = np.zeros((self.groups, patterns.shape[1], 2))
            np.add.at(sums, index, np.stack([counts, moved], -1))
            layers.append(sums)
        return np.stack(layers, 1)


@dataclass(frozen=True)
class Patterns:
    """The instrument. With `repeated_from` the texts are tokens repeated once from that place on, and only induction is
    measured; else all other fields are, at queries from `first_query` on."""

    first_query: int = FIRST_QUERY
    compared: int = COMPARED
    repeated_from: int | None = None
    name: str = "patterns"
    arms: tuple[str, ...] = (MODEL,)
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "PatternWatch":
        return PatternWatch(self, anatomy, corpus)

    def count(self, state: PatternSums) -> tuple[int, str]:
        return len(state.documents), "texts of one length"

    def bytes(self, anatomy: "Anatomy") -> int:
        return 0


class PatternWatch:
    def __init__(self, settings: Patterns, anatomy: "Anatomy", corpus: "Corpus") -> None:
        import torch

        from armillary.flow.attention import visible
        from armillary.measures import Rows, Totals

        lengths = {len(window.ids) for window in corpus.windows}
        if len(lengths) != 1:
            raise ValueError(f"patterns are compared on texts of one length; these have {sorted(lengths)} tokens")
        self._length = lengths.pop()
        self._settings, self._anatomy = settings, anatomy
        layers = [f"L{layer}" for layer in range(anatomy.layers)]
        self.sites = [f"{layer}.pattern" for layer in layers]
        self._places = np.unique(np.linspace(FIRST_QUERY, self._length - 1, settings.compared).astype(int)).tolist()
        shape = (anatomy.n_heads, len(self._places), self._length)
        self.state = PatternSums(
            corpus.groups,
            Totals(corpus.groups, (len(FIELDS), anatomy.layers, anatomy.n_heads, 2)),
            Named.of(layers, lambda: Rows(shape)),
            Rows((), torch.int64),
        )
        self._sees = [visible(b.attention, self._length, anatomy.causal, anatomy.device) for b in anatomy.blocks]

    def begin(self, tokens: "Tokens") -> None:
        import torch

        batch = tokens.batch
        self._ids = tokens.token.reshape(batch.ids.shape)
        self._index = batch.documents % self.state.groups
        shape = (len(batch.ids), *self.state.sums.sum.shape[1:])
        self._sums = torch.zeros(shape, dtype=torch.float64, device=tokens.device)
        self.state.documents.include(batch.documents)

    def see(self, site: str, view: View) -> None:
        layer = self.sites.index(site)
        pattern = view.value.float()
        for field, (count, total) in self._fields(pattern, layer).items():
            self._sums[:, FIELDS.index(field), layer, :, 0] = count
            self._sums[:, FIELDS.index(field), layer, :, 1] = total
        if self._settings.compared:
            self.state.patterns[f"L{layer}"].include(pattern[:, :, self._places])

    def end(self) -> None:
        self.state.sums.include(self._index, self._sums)

    def _fields(self, pattern: "Tensor", layer: int) -> "dict[str, tuple[Tensor | float, Tensor]]":
        from armillary.flow.attention import copied

        start = self._settings.repeated_from
        if start is None:
            return fields_of(pattern, self._sees[layer], self._ids, self._settings.first_query, self._anatomy.causal)
        attention = copied(pattern, start, (self._length - start) // 2)
        return {"induction": (attention.shape[-1], attention.double().sum(-1))}


def fields_of(
    pattern: "Tensor", sees: "Tensor", ids: "Tensor", first_query: int, causal: bool
) -> "dict[str, tuple[Tensor | float, Tensor]]":
    """field → queries counted and sums over them [text, head], of patterns [text, head, t, t]."""
    import torch

    length = pattern.shape[-1]
    late = torch.arange(first_query, length, device=pattern.device)
    others = ~torch.eye(length, dtype=torch.bool, device=pattern.device)
    same = ((ids[:, :, None] == ids[:, None]) & sees & others)[:, late]
    has = same.any(-1)
    rows = pattern[:, :, late]
    at = {
        "previous": pattern[:, :, late, (late - 1).clamp_min(0)],
        "first": pattern[:, :, late, 0],
        "self": pattern[:, :, late, late],
        "entropy": torch.special.entr(rows.double()).sum(-1) / sees.sum(-1)[late].clamp_min(2).log(),
        "differs": _differences(rows),
    }
    fields: dict[str, tuple[Tensor | float, Tensor]] = {
        name: (float(len(late)), value.double().sum(-1)) for name, value in at.items()
    }
    if not causal:
        before = late[:-1]
        fields["next"] = (float(len(before)), pattern[:, :, before, before + 1].double().sum(-1))
    attention = (rows * same[:, None]).sum(-1) * has[:, None]
    fields["same"] = (has.sum(-1).double()[:, None], attention.double().sum(-1))
    return fields


def _differences(rows: "Tensor") -> "Tensor":
    """[text, head, query]: total variation between a head's pattern and those of the layer's other heads, mean."""
    import torch

    heads = rows.shape[1]
    apart = [(rows - rows[:, head : head + 1]).abs().sum(-1).sum(1) / 2 for head in range(heads)]
    return torch.stack(apart, 1) / max(1, heads - 1)


def texts(corpus: "Corpus", least: int, longest: int = LENGTH) -> "Corpus":
    """The beginnings of documents, all of one length: as long as leaves three quarters of them, or `least`."""
    first: dict[int, Window] = {}
    for window in corpus.windows:
        first.setdefault(window.document, window)
    lengths = sorted((len(window.ids) for window in first.values()), reverse=True)
    longest = max(lengths, default=0) if corpus.whole else longest
    length = min(longest, lengths[min(len(lengths) - 1, max(least, 3 * len(lengths) // 4) - 1)]) if lengths else 0
    chosen = [replace(w, ids=w.ids[:length], suffix=0) for w in first.values() if len(w.ids) >= length > 0]
    return replace(corpus, windows=tuple(chosen), tokens=length * len(chosen))


def repeated(corpus: "Corpus", documents: Sequence[int] | Ints, context: int, seed: int) -> "Corpus":
    """For each document different tokens of the text in random order, then the same once more, after what the tokenizer
    puts first. Tokens that occur in the text are ordinary ones: none is special, none is unknown to the model."""
    windows = corpus.windows
    bodies = [window.ids[window.prefix : len(window.ids) - window.suffix] for window in windows]
    known = np.array(sorted({token for body in bodies for token in body}), dtype=np.int64)
    before = windows[0].ids[: windows[0].prefix]
    length = min(REPEATED, len(known), (context - len(before)) // 2)
    rng = np.random.default_rng([seed, 53])
    drawn = [tuple(rng.choice(known, length, replace=False).tolist()) for _ in documents]
    copies = [
        replace(windows[0], document=int(document), ids=(*before, *row, *row), suffix=0)
        for document, row in zip(documents, drawn, strict=True)
    ]
    return replace(corpus, windows=tuple(copies), tokens=sum(len(w.ids) for w in copies))


def measure_patterns(
    anatomy: "Anatomy",
    text: "Corpus",
    again: "Corpus | None" = None,
    tick: "Callable[[int], None]" = lambda tokens: None,
) -> PatternSums:
    """All fields on texts of one length; with `again`, tokens repeated once, induction too."""
    from armillary.probes.machinery.shared_pass import observe

    on_text = Patterns()
    state: PatternSums = observe(anatomy, text, [on_text], tick=tick)[on_text]
    prefix = again.windows[0].prefix if again is not None and again.windows else 0
    if again is not None and again.windows and len(again.windows[0].ids) - prefix >= 4:
        on_copies = Patterns(compared=0, repeated_from=prefix)
        copies: PatternSums = observe(anatomy, again, [on_copies], tick=tick)[on_copies]
        state.sums = state.sums + copies.sums
    return state
