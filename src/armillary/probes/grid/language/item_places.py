"""Which items can a tokenizer show, and where do their words stand?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.anatomy import Anatomy
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow.tokens import Corpus, Window
from armillary.probes.grid.language.templates import Item, items


@dataclass(frozen=True)
class ReadItem:
    """An item as a model reads it: two windows in which target and distractor exchange their places."""

    item: Item
    windows: tuple[Window, Window]
    places: tuple[int, int]
    """Of the target in the first window, which is the distractor's in the second, and the other way round."""
    query: int


def readable(anatomy: Anatomy, corpus: Corpus) -> list[ReadItem]:
    """The items whose three words are single tokens that stand where they should, in pairs.

    What the tokenizer puts around a text is taken from the corpus.
    """
    if anatomy.tokenizer is None:
        return []
    texts = [text.strip().casefold() for text in Vocabulary.of(anatomy).texts]
    read = [_read(anatomy, texts, item, number, corpus.windows[0]) for number, item in enumerate(items())]
    entries = [entry for entry in read if entry is not None]
    count = Counter((entry.item.phenomenon, entry.item.pair) for entry in entries)
    return [entry for entry in entries if count[entry.item.phenomenon, entry.item.pair] == 2]


def _read(anatomy: Anatomy, texts: Sequence[str], item: Item, number: int, example: Window) -> ReadItem | None:
    before, after = example.ids[: example.prefix], example.ids[len(example.ids) - example.suffix :]
    words = (item.target, item.distractor, item.query)
    windows, places = [], []
    for order in item.orders:
        ids = list(anatomy.tokenizer(order, add_special_tokens=False)["input_ids"])
        if getattr(anatomy.tokenizer, "unk_token_id", None) in ids or max(ids, default=0) >= anatomy.vocabulary:
            return None
        at = [[t for t, token in enumerate(ids) if texts[token] == word] for word in words]
        if any(len(hits) != 1 for hits in at) or len(ids) + len(before) + len(after) > anatomy.context:
            return None
        windows.append(Window(number, (*before, *ids, *after), len(before), len(after)))
        places.append([len(before) + hits[0] for hits in at])
    (target, distractor, query), (later, earlier, again) = places
    if (target, distractor, query) != (earlier, later, again):
        return None
    return ReadItem(item, (windows[0], windows[1]), (target, distractor), query)
