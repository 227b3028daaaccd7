"""Which of the hundred nouns are single tokens of a vocabulary, and which had to be left out?"""

from collections.abc import Mapping
from dataclasses import dataclass

from armillary.anatomy.vocabulary import Vocabulary
from armillary.errors import WordError
from armillary.lab.required_words import NOUNS
from armillary.results import Column, Table

COLUMNS = (
    Column("noun", "noun of the COCA list, by frequency"),
    Column("token_word", "the token that stands for it; empty where it is several"),
    Column("token_id", "its number in the vocabulary"),
    Column("pieces", "the tokens it falls into, where it was left out"),
)


@dataclass(frozen=True)
class Nouns:
    """Noun → its token, those that were left out with the pieces they fall into, and how they are spelt."""

    ids: Mapping[str, int]
    split: Mapping[str, tuple[str, ...]]
    spaced: bool
    asked_bare: bool

    def table(self, vocabulary: Vocabulary) -> Table:
        rows = []
        for noun in NOUNS:
            number = self.ids.get(noun)
            word = "" if number is None else vocabulary.texts[number]
            rows.append((noun, word, number, " ".join(map(repr, self.split.get(noun, ())))))
        return Table(COLUMNS, tuple(rows))

    def said(self) -> str:
        """How many, how spelt, and which were left out."""
        how = "with the space before them" if self.spaced else "as bare strings"
        if not self.spaced and not self.asked_bare:
            how += " (this vocabulary has no tokens that begin with a space)"
        left = ", ".join(f"{noun} ({' · '.join(map(repr, pieces))})" for noun, pieces in self.split.items())
        told = f"{len(self.ids)} of the {len(NOUNS)} nouns are single tokens here, {how}"
        return f"{told}; left out: {left}." if left else f"{told}."


def find_nouns(vocabulary: Vocabulary, bare: bool = False) -> Nouns:
    index: dict[str, int] = {}
    for number, text in enumerate(vocabulary.texts):
        if vocabulary.shown[number]:
            index.setdefault(text, number)
    spaced = not bare and any(text.startswith(" ") for text in index)
    spelt = {noun: f" {noun}" if spaced else noun for noun in NOUNS}
    ids = {noun: index[text] for noun, text in spelt.items() if text in index}
    if not ids:
        raise WordError(
            f"none of the {len(NOUNS)} nouns is a single token of {vocabulary.anatomy.name}, so their keys and values cannot "
            "be read; armillary heads reads singular vectors without them."
        )
    split = {}
    for noun, text in spelt.items():
        if noun not in ids:
            pieces = vocabulary.anatomy.tokenizer(text, add_special_tokens=False)["input_ids"]
            split[noun] = tuple(vocabulary.texts[i] if i < len(vocabulary) else f"#{i}" for i in pieces)
    return Nouns(ids, split, spaced, bare)
