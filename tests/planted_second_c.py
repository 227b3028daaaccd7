"""Models whose states are contextual or not, with sense or without."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
import transformers as tr
from planted import bench_of, generator
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.documents import from_any
from armillary.flow.tokens import Corpus, Window, encode
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.words.context import Context
from armillary.probes.words.senses.homographs import listed
from armillary.results import Finding

PLACES, CODES = 48, 64
Planted = tuple[Anatomy, Corpus]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def tokenizer(vocabulary: tuple[str, ...]) -> tr.PreTrainedTokenizerFast:
    """One token per word, in lower case; words that are not listed are unknown."""
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    model.normalizer = normalizers.Lowercase()
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return tr.PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]")


def split(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]+", text.lower())


# Contextual states.


@cache
def sense_words() -> tuple[str, ...]:
    return ("[UNK]", *dict.fromkeys(word for row in listed() for word in split(row.sentence)))


def sense_text() -> list[str]:
    """The sentences themselves, sixteen to a document, so that every word meets itself in other documents."""
    sentences = [row.sentence for row in listed()]
    return [" ".join(sentences[start::20]) for start in range(20)]


def mixing(size: float, meaning: bool, nearest: bool = False) -> Anatomy:
    """Two layers that add the mean of the words before (or the nearest of them alone), `size` times; words that tell a
    sense share a code for it, or have no meaning at all."""
    words = sense_words()
    d = PLACES + CODES
    table = torch.cat((torch.zeros(len(words), PLACES), normal(len(words), CODES, seed=1)), 1)
    if meaning:
        row, senses = {word: i for i, word in enumerate(words)}, {}
        for sentence in listed():
            senses.setdefault((sentence.word, sentence.sense), len(senses))
        common = {"the", "and", "of", "in", "a", "to", "he", "she", ".", ",", *(sentence.word for sentence in listed())}
        for sentence in listed():
            code = normal(CODES, seed=100 + senses[sentence.word, sentence.sense])
            for word in set(split(sentence.sentence)) - common:
                table[row[word], PLACES:] += 2 * code
    config = tr.GPT2Config(
        n_embd=d,
        n_layer=2,
        n_head=1,
        vocab_size=len(words),
        n_positions=256,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    eye = torch.eye(d)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(table)
        model.transformer.wpe.weight.zero_()
        for block in model.transformer.h:
            sides = [torch.zeros(d, d), torch.zeros(d, d), eye.clone()]
            if nearest:
                model.transformer.wpe.weight[:PLACES, :PLACES] = 4 * torch.eye(PLACES)
                sides[0][:PLACES, :PLACES] = 30 * torch.eye(PLACES).roll(-1, 1)
                sides[1][:PLACES, :PLACES] = torch.eye(PLACES)
                sides[2][:PLACES] = 0
            block.mlp.c_proj.weight.zero_()
            block.attn.c_attn.weight.copy_(torch.cat(sides, 1))
            block.attn.c_proj.weight.copy_(size * eye)
    return replace(read(model, "planted"), tokenizer=tokenizer(words))


def short(text: Corpus, length: int) -> Corpus:
    """The beginnings of the windows."""
    windows = tuple(Window(w.document, w.ids[:length], w.prefix) for w in text.windows)
    return replace(text, windows=windows, tokens=sum(len(w.ids) for w in windows))


def on_sentences(anatomy: Anatomy) -> Planted:
    return anatomy, short(encode(from_any(sense_text()), anatomy.tokenizer, anatomy.context, 100_000), PLACES)


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "context, the meaning of the words before": (Context, "supported", lambda: on_sentences(mixing(3.0, True))),
    "context, a little of it": (Context, "qualified", lambda: on_sentences(mixing(1.2, True))),
    "context, words without meaning": (Context, "refuted", lambda: on_sentences(mixing(3.0, False))),
    "context, the word alone": (Context, "refuted", lambda: on_sentences(mixing(0.0, True))),
}


def tried(probe: type, anatomy: Anatomy, text: Corpus) -> Finding:
    """What a survey concludes about one claim."""
    evidence = gather(anatomy, text, probe().instruments)
    return judge(probe(), evidence, bench_of(evidence))


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    probe, _, make = CASES[case]
    return tried(probe, *make())
