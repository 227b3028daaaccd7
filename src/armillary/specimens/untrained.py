"""What must not be found? Small models at random initialisation, which have learned nothing."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from armillary.anatomy.loading.catalogue import shipped, tokenizer_home
from armillary.anatomy.loading.quiet import quiet
from armillary.lab.model import build
from armillary.lab.recipe import recipe

# The built-in models made small: their tokenizers and vocabulary stay, so that text and word lists can be read, and
# sixteen heads in four layers leave room for claims about heads and depth. A survey takes about a minute of one core.
SHAPES: Mapping[str, Mapping[str, int]] = {
    "gpt": {"layers": 4, "width": 96, "heads": 4, "feed_forward": 384},
    "llama": {"layers": 4, "width": 96, "heads": 4, "kv_heads": 2, "feed_forward": 256},
}
# Tells these seeds from those of a survey's untrained twins and of everything else.
_STREAM = 0xCA11B


def untrained_seed(architecture: str, number: int) -> int:
    """The seed of one untrained model's weights."""
    stream = [_STREAM, list(SHAPES).index(architecture), number]
    return int(np.random.SeedSequence(stream).generate_state(1, np.uint64)[0] >> 1)


def untrained(architecture: str, number: int, times: float = 1.0) -> Any:
    """A causal language model at Hugging Face's own random initialisation; each number is another one.

    With `times`, all its matrices are so many times as large. Large weights are not learned either, although attention
    is sharp and blocks write much.
    """
    settings = {**SHAPES[architecture], "dropout": 0.0, "seed": untrained_seed(architecture, number)}
    model = build(recipe("builtin", architecture, **settings)).eval()
    if times != 1:
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.data.mul_(times)
    return model


@cache
def tokenizer(architecture: str) -> Any:
    """That of the built-in model of this architecture."""
    from transformers import AutoTokenizer

    with quiet():
        return AutoTokenizer.from_pretrained(str(tokenizer_home(shipped()[architecture])), local_files_only=True)
