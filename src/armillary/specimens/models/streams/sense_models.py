"""Models for chapter C whose states hold the meaning of the words before, something without meaning, or nothing."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import transformers as tr
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.documents import from_any
from armillary.flow.tokens import Corpus, Window, encode
from armillary.probes.words.senses.homographs import listed
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import generator, normal

PLACES, CODES = 48, 64
COMMON = ("the", "and", "of", "in", "a", "to", "he", "she", ".", ",")


def plain_tokenizer(vocabulary: tuple[str, ...]) -> Any:
    """One token per word, in lower case; words that are not listed are unknown."""
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    model.normalizer = normalizers.Lowercase()
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return tr.PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]")


def split(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]+", text.lower())


@cache
def sense_words() -> tuple[str, ...]:
    return ("[UNK]", *dict.fromkeys(word for row in listed() for word in split(row.sentence)))


def _codes(meaning: bool, seed: int) -> Tensor:
    """[word, code] Gaussian; words that tell a sense share a code for it if they have a `meaning`."""
    words = sense_words()
    codes = normal(len(words), CODES, stream=1, seed=seed)
    if not meaning:
        return codes
    row = {word: i for i, word in enumerate(words)}
    senses: dict[tuple[str, int], int] = {}
    for sentence in listed():
        senses.setdefault((sentence.word, sentence.sense), len(senses))
    common = {*COMMON, *(sentence.word for sentence in listed())}
    for sentence in listed():
        code = normal(CODES, stream=100 + senses[sentence.word, sentence.sense], seed=seed)
        for word in set(split(sentence.sentence)) - common:
            codes[row[word]] += 2 * code
    return codes


def mixing(size: float, meaning: bool, nearest: bool = False, seed: int = 0, placed: bool = False) -> Anatomy:
    """Two layers that add the mean of the words before (or the nearest of them alone), `size` times; words that tell a
    sense share a code for it, or have no meaning at all. With `placed`, positions are as loud as words."""
    codes = _codes(meaning, seed)
    d = PLACES + CODES
    model = blank_gpt2(len(codes), d, 2, 1, 256, tie_word_embeddings=False)
    eye = torch.eye(d)
    sides = [torch.zeros(d, d), torch.zeros(d, d), eye.clone()]
    with torch.no_grad():
        model.transformer.wte.weight.copy_(torch.cat((torch.zeros(len(codes), PLACES), codes), 1))
        model.transformer.wpe.weight.zero_()
        if placed:
            length = float(codes.norm(dim=1).median())
            model.transformer.wpe.weight[:PLACES, :PLACES] = length * torch.eye(PLACES)
        if nearest:
            model.transformer.wpe.weight[:PLACES, :PLACES] = 4 * torch.eye(PLACES)
            sides[0][:PLACES, :PLACES] = 30 * torch.eye(PLACES).roll(-1, 1)
            sides[1][:PLACES, :PLACES] = torch.eye(PLACES)
            sides[2][:PLACES] = 0
        for block in model.transformer.h:
            block.mlp.c_proj.weight.zero_()
            block.attn.c_attn.weight.copy_(torch.cat(sides, 1))
            block.attn.c_proj.weight.copy_(size * eye)
    return replace(read(model, "planted"), tokenizer=plain_tokenizer(sense_words()))


def sense_text(anatomy: Anatomy, seed: int = 0) -> Corpus:
    """The sentences themselves in any order, sixteen to a document, so that words meet themselves in other ones."""
    order = torch.randperm(len(listed()), generator=generator(2, seed)).tolist()
    sentences = [listed()[place].sentence for place in order]
    texts = [" ".join(sentences[start::20]) for start in range(20)]
    return beginnings(encode(from_any(texts), anatomy.tokenizer, anatomy.context, 100_000), PLACES)


def beginnings(text: Corpus, length: int) -> Corpus:
    """The beginnings of the windows."""
    windows = tuple(Window(w.document, w.ids[:length], w.prefix) for w in text.windows)
    return replace(text, windows=windows, tokens=sum(len(w.ids) for w in windows))
