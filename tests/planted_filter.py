"""Known feed-forwards: units that detect one word each, that are always on, or that write from below zero."""

import numpy as np
import torch
import transformers as tr
from planted import CONTEXT, VOCABULARY, generator
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read

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
    config = tr.GPT2Config(
        n_embd=embedding.shape[1],
        n_inner=W_in.shape[1],
        n_layer=layers,
        n_head=2,
        vocab_size=len(embedding),
        n_positions=CONTEXT,
        activation_function=activation,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
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


def frame() -> Tensor:
    """One direction per word: orthonormal, and unchanged by LayerNorm's centring."""
    drawn = torch.randn(WIDTH, WORDS, generator=generator(2))
    return torch.linalg.qr(drawn - drawn.mean(0))[0].T


def finders(high: float, low: float) -> tuple[Tensor, Tensor]:
    """W_in and b_in of one unit per word, at `high` on its own word and at `low` on others."""
    return frame().T * (high - low) / WIDTH**0.5, torch.full((WORDS,), float(low))


def nexts(size: float) -> Tensor:
    """W_out that predicts from each word the next one in the chain."""
    return size * frame().roll(-1, 0)


def selector(activation: str = "relu") -> Anatomy:
    """One unit per word, which alone is on and predicts the next; which units can be removed depends on the word."""
    return forward(frame(), *finders(4, -4), nexts(2), activation)


def filtering(activation: str = "relu") -> Anatomy:
    """What is discarded says where a token stands and nothing of words, and W_out does not look there.

    One unit per word is on for its word, and a little below zero for others; 120 units far below zero read the place;
    60 are always on. Only the first write.
    """
    spare = torch.linalg.svd(torch.cat((frame(), torch.ones(1, WIDTH) / WIDTH**0.5)))[2][WORDS + 1 :]
    places = torch.nn.functional.normalize(torch.randn(CONTEXT, len(spare), generator=generator(7)), dim=1) @ spare
    # Word and place are of length 1: a state is √2 times as long as a word alone.
    found_in, found_b = finders(4, -0.2)
    place_in = spare.T @ torch.randn(len(spare), 2 * WORDS, generator=generator(8)) * (2 / WIDTH) ** 0.5
    W_in = torch.cat((2**0.5 * found_in, place_in, torch.zeros(WIDTH, WORDS)), 1)
    b_in = torch.cat((found_b, torch.full((2 * WORDS,), -5.0), torch.ones(WORDS)))
    W_out = torch.cat((nexts(2), torch.zeros(3 * WORDS, WIDTH)))
    anatomy = forward(frame(), W_in, b_in, W_out, activation)
    with torch.no_grad():
        anatomy.model.transformer.wpe.weight.copy_(places)
    return read(anatomy.model, "planted")


def steady() -> Anatomy:
    """Every word is detected by a unit that is always on; as many are always off, and W_out ignores those."""
    W_in, b_in = finders(9, 5)
    off_in, off_b = finders(-5, -9)
    W_out = torch.cat((nexts(2), 0 * frame()))
    return forward(frame(), torch.cat((W_in, off_in), 1), torch.cat((b_in, off_b)), W_out)


def whisperer() -> Anatomy:
    """The next word is predicted from below zero, where GELU is −0.17; as many units above zero write nothing."""
    W_in, b_in = finders(-0.75, -6)
    loud_in, loud_b = finders(2, 1)
    W_out = torch.cat((nexts(-50), 0 * frame()))
    return forward(frame(), torch.cat((W_in, loud_in), 1), torch.cat((b_in, loud_b)), W_out)


def skewed(sign: float, shift: float = 0.0, width: int = 32, activation: str = "relu") -> Anatomy:
    """Units that each read one coordinate of words, mostly a little to one side and sometimes far to the other.

    sign 1: mostly below zero, rarely far above, as in a filter; −1: the opposite.
    """
    rng = np.random.default_rng(3)
    near = -rng.uniform(0, 2, (VOCABULARY, width))
    far = rng.uniform(3, 6, (VOCABULARY, width))
    values = torch.from_numpy(np.where(rng.random(near.shape) < 0.1, far, near) * sign).float()
    # Undo LayerNorm's centring and division.
    back = values.std(1, correction=0).mean()
    return forward(values, back * torch.eye(width), torch.full((width,), shift) + values.mean(), None, activation)


def plain(activation: str = "relu", shift: float = 0.0, units: int = 128) -> Anatomy:
    """Random directions of Gaussian words."""
    words = torch.randn(VOCABULARY, WIDTH, generator=generator(5))
    W_in = torch.randn(WIDTH, units, generator=generator(6)) / WIDTH**0.5
    return forward(words, W_in, torch.full((units,), shift), None, activation)
