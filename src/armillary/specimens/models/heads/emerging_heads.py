"""Training runs for chapter F: heads that gain a role where the gradient asks for it, where it does not, or nowhere."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.steps import find_checkpoints
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import generator, normal

WORDS, CONTEXT, HEADS, COPYING, CODE, STEPS = 60, 64, 4, 2, 64, 4
D = HEADS * CODE
PLACE, WORD, BEFORE, GUESS = (slice(CODE * i, CODE * (i + 1)) for i in range(4))
"""Where the stream keeps a token's place, its word, the word before it, and what is guessed to come next."""


def useful(seed: int = 0) -> Tensor:
    """[copying layer, head]: how much of what a head writes is the word that it looks at, from a tenth to nine."""
    shares = torch.linspace(0.1, 0.9, COPYING * HEADS).reshape(HEADS, COPYING).T
    return torch.stack([row[torch.randperm(HEADS, generator=generator(80 + i, seed))] for i, row in enumerate(shares)])


def copier(sharpness: Tensor, seed: int = 0) -> Any:
    """Layer 0 looks one token back. Each head of the later layers looks for what followed the same word, as sharply as
    told [layer, head]; useful heads write the word they find, the others mostly noise. So the loss on repeated words
    sends its gradient to useful heads, that on other words to the others."""
    model = blank_gpt2(WORDS, D, 1 + COPYING, HEADS, CONTEXT, n_inner=8, tie_word_embeddings=False)
    codes, shares = torch.eye(CODE), useful(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for norm in (model.transformer.ln_f, *(n for b in model.transformer.h for n in (b.ln_1, b.ln_2))):
            norm.weight.fill_(1.0)
        model.transformer.wte.weight[:, WORD] = 6 * codes[:WORDS]
        model.transformer.wpe.weight[:, PLACE] = 6 * codes
        model.lm_head.weight[:, GUESS] = codes[:WORDS]
        first, *others = (block.attn for block in model.transformer.h)
        first.c_attn.weight[PLACE, :CODE] = 3 * codes.roll(-1, 1)
        first.c_attn.weight[PLACE, D : D + CODE] = codes
        first.c_attn.weight[WORD, 2 * D : 2 * D + CODE] = codes
        first.c_proj.weight[:CODE, BEFORE] = codes
        for layer, attention in enumerate(others):
            for head in range(HEADS):
                q, k, v = (slice(side * D + CODE * head, side * D + CODE * (head + 1)) for side in range(3))
                attention.c_attn.weight[WORD, q] = float(sharpness[layer, head]) * codes
                attention.c_attn.weight[BEFORE, k] = codes
                attention.c_attn.weight[WORD, v] = codes
                noise = normal(CODE, CODE, stream=HEADS * layer + head, seed=seed) / CODE**0.5
                share = float(shares[layer, head])
                attention.c_proj.weight[q, GUESS] = 0.2 * (share * codes + (1 - share) * noise)
    return model


def sharpening(towards: Tensor, seed: int = 0) -> list[Any]:
    """Heads that look for repeated words more sharply from checkpoint to checkpoint, each by its own amount."""
    return [copier(0.3 * step * towards, seed) for step in range(STEPS)]


def following(share: float = 1.0, seed: int = 0) -> list[Any]:
    """A head gains of the role as much as it is useful, for a share of the gain; the rest goes by chance."""
    chance = torch.rand(COPYING, HEADS, generator=generator(90, seed))
    return sharpening(share * useful(seed) + (1 - share) * chance, seed)


def fleeing(seed: int = 0) -> list[Any]:
    """The less useful a head is, the more of the role it gains."""
    return sharpening(1 - useful(seed), seed)


def resting(seed: int = 0) -> list[Any]:
    """Nothing changes from checkpoint to checkpoint."""
    return sharpening(torch.zeros(COPYING, HEADS), seed)


def run_folder(folder: Path, models: Sequence[Any]) -> Path:
    """Models as the checkpoints of one run, in the layout of Hugging Face's Trainer."""
    for number, model in enumerate(models):
        model.save_pretrained(folder / f"checkpoint-{100 * number}")
    return folder


def trained(models: Sequence[Any]) -> Anatomy:
    """The last of these checkpoints, with all of them in a folder that lasts as long as its model."""
    folder = Path(tempfile.mkdtemp(prefix="armillary-"))
    try:
        checkpoints = find_checkpoints(run_folder(folder, models))
        anatomy = load_model(checkpoints.last)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(anatomy.model, shutil.rmtree, folder, ignore_errors=True)
    return replace(anatomy, checkpoints=checkpoints)
