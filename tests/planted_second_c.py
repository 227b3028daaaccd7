"""Models whose states are contextual or not, whose heads resolve language or not, or have regions of their own."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache

import torch
import transformers as tr
from planted import bench_of
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.documents import from_any
from armillary.flow.tokens import Corpus, Window, encode
from armillary.probes.grid.head_language import HeadLanguage
from armillary.probes.grid.head_regions import HeadRegions
from armillary.probes.grid.language.templates import GROUPS, PHENOMENA, items
from armillary.probes.grid.language.word_lists import PLACES as PREPOSITIONS
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.words.context import Context
from armillary.probes.words.senses.homographs import listed
from armillary.results import Finding
from armillary.specimens.models.draws import generator
from armillary.specimens.models.grid import gpt2
from armillary.specimens.models.texts import corpus

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


# Heads that resolve language.

PLACE, KEY, SEEK = slice(0, 24), slice(24, 88), slice(88, 152)
"""Where the stream of `linguist` keeps a token's place, what the word is, and what it looks for."""


@cache
def item_words() -> tuple[str, ...]:
    return ("[UNK]", *dict.fromkeys(word for item in items() for order in item.orders for word in split(order)))


def linguist(phenomena: Collection[str], sharp: float = 30.0, loud: bool = False, previous: bool = False) -> Anatomy:
    """A head of the second layer resolves these phenomena: words that look for another have its code. To find a verb's
    subject, a head of the first layer takes the code away from persons that follow a preposition. `loud` words draw
    attention whatever is looked for; with `previous` the head goes by place instead."""
    words = item_words()
    row = {word: i for i, word in enumerate(words)}
    table = torch.zeros(len(words), 152)
    codes: dict[str, Tensor] = {}
    for item in (item for item in items() if item.phenomenon in phenomena):
        person = item.phenomenon == "subject"
        # Words of a list belong to their own pair; other relations are between kinds of words.
        kind = item.target if item.phenomenon in GROUPS["similarity and opposition"] else item.query
        name = "person" if person else f"{item.phenomenon} {kind}"
        if name not in codes:
            codes[name] = torch.nn.functional.normalize(normal(64, seed=300 + len(codes)), dim=0)
        table[row[item.target], KEY] = table[row[item.target], KEY] + 6 * codes[name]
        table[row[item.query], SEEK] = 6 * codes[name]
    keys = table[:, KEY]
    keys[:] = torch.nn.functional.normalize(keys, dim=1) * 6 * (keys.norm(dim=1, keepdim=True) > 0)
    if loud:
        table[:, KEY] += 6 * torch.nn.functional.normalize(normal(len(words), 64, seed=5), dim=1)
        table[:, SEEK] += 6 * torch.nn.functional.normalize(normal(1, 64, seed=6), dim=1)
    config = tr.GPT2Config(
        n_embd=152,
        n_layer=2,
        n_head=2,
        vocab_size=len(words),
        n_positions=24,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        prepositions = [row[word] for word in PREPOSITIONS]
        table[prepositions, KEY] = 6 * torch.nn.functional.normalize(normal(64, seed=7), dim=0)
        model.transformer.wte.weight.copy_(table)
        model.transformer.wpe.weight.zero_()
        model.transformer.wpe.weight[:, PLACE] = 6 * torch.eye(24)
        for block in model.transformer.h:
            block.mlp.c_proj.weight.zero_()
            block.attn.c_attn.weight.zero_()
            block.attn.c_proj.weight.zero_()
        first, second = (block.attn for block in model.transformer.h)
        if "person" in codes:
            # Two places back stands the preposition of a noun phrase.
            first.c_attn.weight[PLACE, :24] = 30 * torch.eye(24).roll(-2, 1)
            first.c_attn.weight[PLACE, 152:176] = torch.eye(24)
            first.c_attn.weight[KEY, 304:305] = torch.nn.functional.normalize(normal(64, seed=7), dim=0)[:, None]
            first.c_proj.weight[:1, KEY] = -4 * codes["person"]
        if previous:
            second.c_attn.weight[PLACE, :24] = 30 * torch.eye(24).roll(-1, 1)
            second.c_attn.weight[PLACE, 152:176] = torch.eye(24)
        else:
            second.c_attn.weight[SEEK, :64] = sharp * torch.eye(64)
            second.c_attn.weight[KEY, 152:216] = torch.eye(64)
    return replace(read(model, "planted"), tokenizer=tokenizer(words))


def on_items(anatomy: Anatomy) -> Planted:
    texts = [order for item in items()[::5] for order in item.orders][:40]
    return anatomy, encode(from_any(texts), anatomy.tokenizer, anatomy.context, 100_000)


# Heads with regions of their own.

SPOT, AREA, REST = slice(0, 64), slice(64, 72), slice(72, 104)
"""Where the stream of `regional` keeps a token's place, its region, and everything else about it."""


def regional(areas: Sequence[Sequence[int]], layers: int = 2) -> Anatomy:
    """Words in eight regions; every head looks at its own token alone, and writes much in these regions, little in
    others. Heads without a region write what has nothing to do with it."""
    words = torch.zeros(64, 104)
    words[torch.arange(64), 64 + torch.arange(64) % 8] = 12.0
    words[:, REST] = normal(64, 32, seed=3)
    places = torch.zeros(64, 104)
    places[:, SPOT] = 6 * torch.eye(64)
    heads, k = len(areas), 104 // len(areas)

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        for head, own in enumerate(areas):
            first = k * head
            # A head narrower than the places tells them apart well enough by random codes.
            spots = torch.nn.functional.normalize(normal(64, k, seed=head), dim=1)
            W_Q[SPOT, first : first + k], W_K[SPOT, first : first + k] = 30 * spots, spots
            W_V[REST, first : first + k - 8] = 0.1 * normal(32, k - 8, seed=20 + head)
            for area in own:
                W_V[64 + area, first + k - 8 + area] = 0.5
            W_O[first : first + k, REST] = 0.05 * torch.linalg.qr(normal(32, 32, seed=40 + head))[0][:k]

    return gpt2(change, layers=layers, heads=heads, words=words, places=places)


def on_regions(areas: Sequence[Sequence[int]]) -> Planted:
    return regional(areas), corpus(24, 50, vocabulary=64)


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "context, the meaning of the words before": (Context, "supported", lambda: on_sentences(mixing(3.0, True))),
    "context, a little of it": (Context, "qualified", lambda: on_sentences(mixing(1.2, True))),
    "context, words without meaning": (Context, "refuted", lambda: on_sentences(mixing(3.0, False))),
    "context, the word alone": (Context, "refuted", lambda: on_sentences(mixing(0.0, True))),
    "language, all phenomena": (HeadLanguage, "supported", lambda: on_items(linguist(PHENOMENA))),
    "language, no subjects": (
        HeadLanguage,
        "qualified",
        lambda: on_items(linguist([name for name in PHENOMENA if name != "subject"])),
    ),
    "language, no anaphora": (HeadLanguage, "refuted", lambda: on_items(linguist(PHENOMENA[:5]))),
    "language, loud words": (HeadLanguage, "refuted", lambda: on_items(linguist((), loud=True))),
    "language, the word before": (HeadLanguage, "refuted", lambda: on_items(linguist((), previous=True))),
    "regions, each head its own": (HeadRegions, "supported", lambda: on_regions([(0, 1), (2, 3), (4, 5), (6, 7)])),
    "regions, one head of four": (HeadRegions, "qualified", lambda: on_regions([(0, 1, 2, 3), (), (), ()])),
    "regions, all heads the same": (HeadRegions, "refuted", lambda: on_regions([(0, 1, 2)] * 4)),
    "regions, none": (HeadRegions, "refuted", lambda: on_regions([()] * 4)),
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
