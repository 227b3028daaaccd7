"""Models for chapter F with a head that finds the word another one belongs to, or goes by loudness or place."""

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.documents import from_any
from armillary.flow.tokens import Corpus, encode
from armillary.probes.grid.language.templates import GROUPS, items
from armillary.probes.grid.language.word_lists import PLACES as PREPOSITIONS
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import generator, normal
from armillary.specimens.models.streams.sense_models import plain_tokenizer, split

SPOTS, CODE = 24, 96
D = SPOTS + 2 * CODE
PLACE, KEY, SEEK = slice(0, SPOTS), slice(SPOTS, SPOTS + CODE), slice(SPOTS + CODE, D)
"""Where the stream keeps a token's place, what the word is, and what it looks for."""


@cache
def item_words() -> tuple[str, ...]:
    return ("[UNK]", *dict.fromkeys(word for item in items() for order in item.orders for word in split(order)))


def _table(phenomena: Collection[str], loud: bool, seed: int) -> tuple[Tensor, Tensor | None]:
    """The words [word, d], and the code of persons, if a subject is looked for."""
    row = {word: i for i, word in enumerate(item_words())}
    table = torch.zeros(len(row), D)
    codes: dict[str, Tensor] = {}
    frame = _frame(seed)
    for item in (item for item in items() if item.phenomenon in phenomena):
        # Words of a list belong to their own pair; other relations are between kinds of words.
        kind = item.target if item.phenomenon in GROUPS["similarity and opposition"] else item.query
        name = "person" if item.phenomenon == "subject" else f"{item.phenomenon} {kind}"
        if name not in codes:
            codes[name] = frame[len(codes)]
        table[row[item.target], KEY] = table[row[item.target], KEY] + 6 * codes[name]
        table[row[item.query], SEEK] = 6 * codes[name]
    keys = table[:, KEY]
    keys[:] = normalize(keys, dim=1) * 6 * (keys.norm(dim=1, keepdim=True) > 0)
    if loud:
        table[:, KEY] += 6 * normalize(normal(len(row), CODE, stream=5, seed=seed), dim=1)
        table[:, SEEK] += 6 * normalize(normal(1, CODE, stream=6, seed=seed), dim=1)
    table[[row[word] for word in PREPOSITIONS], KEY] = 6 * _preposition(seed)
    return table, codes.get("person")


def _frame(seed: int) -> Tensor:
    """Orthonormal codes: more than there are relations."""
    return torch.linalg.qr(normal(CODE, CODE, stream=7, seed=seed))[0]


def _preposition(seed: int) -> Tensor:
    return _frame(seed)[-1]


def linguist(
    phenomena: Collection[str], sharp: float = 1.0, loud: bool = False, previous: bool = False, seed: int = 0
) -> Anatomy:
    """A head of the second layer resolves these phenomena: words that look for another have its code. To find a verb's
    subject, a head of the first layer takes the code away from persons that follow a preposition. `sharp` multiplies
    the scores of the second layer, `loud` words draw attention whatever is looked for; with `previous` the head goes by
    place instead."""
    table, person = _table(phenomena, loud, seed)
    model = blank_gpt2(len(table), D, 2, 2, SPOTS, tie_word_embeddings=False)
    spots, code = torch.eye(SPOTS), torch.eye(CODE)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(table)
        model.transformer.wpe.weight.zero_()
        model.transformer.wpe.weight[:, PLACE] = 6 * spots
        for block in model.transformer.h:
            block.mlp.c_proj.weight.zero_()
            block.attn.c_attn.weight.zero_()
            block.attn.c_proj.weight.zero_()
        first, second = (block.attn for block in model.transformer.h)
        if person is not None:
            # Two places back stands the preposition of a noun phrase.
            first.c_attn.weight[PLACE, :SPOTS] = 30 * spots.roll(-2, 1)
            first.c_attn.weight[PLACE, D : D + SPOTS] = spots
            first.c_attn.weight[KEY, 2 * D : 2 * D + 1] = _preposition(seed)[:, None]
            first.c_proj.weight[:1, KEY] = -4 * person
        if previous:
            second.c_attn.weight[PLACE, :SPOTS] = 30 * spots.roll(-1, 1)
            second.c_attn.weight[PLACE, D : D + SPOTS] = spots
        else:
            second.c_attn.weight[SEEK, :CODE] = 2 * sharp * code
            second.c_attn.weight[KEY, D : D + CODE] = code
    return replace(read(model, "planted"), tokenizer=plain_tokenizer(item_words()))


def item_text(anatomy: Anatomy, seed: int = 0) -> Corpus:
    """Forty of the items' sentences."""
    orders = [order for item in items() for order in item.orders]
    chosen = torch.randperm(len(orders), generator=generator(8, seed))[:40].tolist()
    return encode(from_any([orders[place] for place in chosen]), anatomy.tokenizer, anatomy.context, 100_000)
