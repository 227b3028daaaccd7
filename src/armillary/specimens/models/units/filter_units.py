"""Feed-forwards for chapter E: units that detect one word each, that are always on, or that write from below zero."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.bag import CONTEXT, VOCABULARY
from armillary.specimens.models.blank_gpt2 import blank_gpt2
from armillary.specimens.models.draws import normal, number

WORDS, WIDTH = 60, 64


def forward(
    embedding: Tensor,
    W_in: Tensor,
    b_in: Tensor,
    W_out: Tensor | None = None,
    activation: str = "gelu_new",
    layers: int = 2,
) -> Anatomy:
    """Layers with the same W_in and no attention; only the last writes, and only if W_out is given."""
    model = blank_gpt2(
        len(embedding), embedding.shape[1], layers, 2, CONTEXT, n_inner=W_in.shape[1], activation_function=activation
    )
    with torch.no_grad():
        model.transformer.wte.weight.copy_(embedding)
        model.transformer.wpe.weight.zero_()
        for block in model.transformer.h:
            for projection in (block.attn.c_proj, block.mlp.c_proj):
                projection.weight.zero_()
                projection.bias.zero_()
            block.mlp.c_fc.weight.copy_(W_in)
            block.mlp.c_fc.bias.copy_(b_in)
        if W_out is not None:
            model.transformer.h[-1].mlp.c_proj.weight.copy_(W_out)
    return read(model, "planted")


def frame(seed: int = 0) -> Tensor:
    """One direction per word: orthonormal, and unchanged by LayerNorm's centring."""
    drawn = normal(WIDTH, WORDS, stream=2, seed=seed)
    return torch.linalg.qr(drawn - drawn.mean(0))[0].T


def finders(high: float, low: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """W_in and b_in of one unit per word, at `high` on its own word and at `low` on others."""
    return frame(seed).T * (high - low) / WIDTH**0.5, torch.full((WORDS,), float(low))


def nexts(size: float, seed: int = 0) -> Tensor:
    """W_out that predicts from each word the next one in the chain."""
    return size * frame(seed).roll(-1, 0)


def selector(activation: str = "relu", share: float = 1.0, seed: int = 0) -> Anatomy:
    """One unit per word, which alone is on and predicts the next; which units can be removed depends on the word.

    That is so for a share of the units; the others are random directions, on for every second word.
    """
    W_in, b_in = finders(4, -4, seed)
    random = 4 * normal(WIDTH, WORDS, stream=4, seed=seed) / WIDTH**0.5
    finds = torch.arange(WORDS) < share * WORDS
    return forward(frame(seed), torch.where(finds, W_in, random), b_in * finds, nexts(2, seed), activation)


def filtering(activation: str = "relu", share: float = 1.0, seed: int = 0) -> Anatomy:
    """What is discarded says where a token stands and nothing of words, and W_out does not look there.

    One unit per word is on for its word, and a little below zero for others; 120 units are far below zero, of which a
    share reads the place and the others read the word; 60 are always on. Only the first write.
    """
    words = frame(seed)
    spare = torch.linalg.svd(torch.cat((words, torch.ones(1, WIDTH) / WIDTH**0.5)))[2][WORDS + 1 :]
    places = normalize(normal(CONTEXT, len(spare), stream=7, seed=seed), dim=1) @ spare
    # Word and place are of length 1: a state is √2 times as long as a word alone.
    found_in, found_b = finders(4, -0.2, seed)
    reads = [side.T @ normal(len(side), 2 * WORDS, stream=8, seed=seed) for side in (spare, words)]
    below_in = torch.where(torch.arange(2 * WORDS) < share * 2 * WORDS, *reads) * (2 / WIDTH) ** 0.5
    W_in = torch.cat((2**0.5 * found_in, below_in, torch.zeros(WIDTH, WORDS)), 1)
    b_in = torch.cat((found_b, torch.full((2 * WORDS,), -5.0), torch.ones(WORDS)))
    W_out = torch.cat((nexts(2, seed), torch.zeros(3 * WORDS, WIDTH)))
    model: Any = forward(words, W_in, b_in, W_out, activation).model
    with torch.no_grad():
        model.transformer.wpe.weight.copy_(places)
    return read(model, "planted")


def steady(seed: int = 0) -> Anatomy:
    """Every word is detected by a unit that is always on; as many are always off, and W_out ignores those."""
    W_in, b_in = finders(9, 5, seed)
    off_in, off_b = finders(-5, -9, seed)
    W_out = torch.cat((nexts(2, seed), 0 * frame(seed)))
    return forward(frame(seed), torch.cat((W_in, off_in), 1), torch.cat((b_in, off_b)), W_out)


def whisperer(seed: int = 0) -> Anatomy:
    """The next word is predicted from below zero, where GELU is −0.17; as many units above zero write nothing."""
    W_in, b_in = finders(-0.75, -6, seed)
    loud_in, loud_b = finders(2, 1, seed)
    W_out = torch.cat((nexts(-50, seed), 0 * frame(seed)))
    return forward(frame(seed), torch.cat((W_in, loud_in), 1), torch.cat((b_in, loud_b)), W_out)


def skewed(
    sign: float, shift: float = 0.0, width: int = 32, activation: str = "relu", share: float = 1.0, seed: int = 0
) -> Anatomy:
    """Units that each read one coordinate of words, mostly a little to one side and sometimes far to the other.

    sign 1: mostly below zero, rarely far above, as in a filter; −1: the opposite. That is so for a share of the
    coordinates; the others are Gaussian around zero, of the same variance.
    """
    rng = np.random.default_rng(number(3, seed))
    near = -rng.uniform(0, 2, (VOCABULARY, width))
    far = rng.uniform(3, 6, (VOCABULARY, width))
    values = torch.from_numpy(np.where(rng.random(near.shape) < 0.1, far, near) * sign).float()
    plain = values.std() * normal(VOCABULARY, width, stream=4, seed=seed)
    values = torch.where(torch.arange(width) < share * width, values, plain)
    # Undo LayerNorm's centring and division.
    back = values.std(1, correction=0).mean()
    return forward(values, back * torch.eye(width), torch.full((width,), shift) + values.mean(), None, activation)


def plain(activation: str = "relu", shift: float = 0.0, units: int = 128, seed: int = 0, size: float = 1.0) -> Anatomy:
    """Random directions of Gaussian words; at size 1 a unit has variance 1."""
    words = normal(VOCABULARY, WIDTH, stream=5, seed=seed)
    W_in = size * normal(WIDTH, units, stream=6, seed=seed) / WIDTH**0.5
    return forward(words, W_in, torch.full((units,), shift), None, activation)
