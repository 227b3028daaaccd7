"""Models for chapter C: one that moves every token to the next word, and words that differ by length or direction."""

from collections.abc import Sequence

import torch
import transformers as tr
from torch import Tensor
from torch.nn.functional import normalize

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.bag import CONTEXT, D
from armillary.specimens.models.draws import normal

SIZE, LAYERS = 40, 6


def mover(step: float = 0.5) -> Anatomy:
    """Every block moves a token towards the next word, t + 1, along the great circle between them."""
    return stepper([(-0.5 * step / LAYERS, step / LAYERS)] * LAYERS)


def leaver(*steps: float, leave: float = -0.3, loud: float = 10.0) -> Anatomy:
    """The first block takes a token from its own word to the opposite; then each block takes a step towards the next
    word. The unembedding is loud, so that repeating the own word costs tens of nats."""
    return stepper([(leave, 0.0), *((0.0, step) for step in steps)], loud)


def stepper(steps: Sequence[tuple[float, float]], loud: float = 1.0) -> Anatomy:
    """Each block adds so much of a token's own word and of the next, t + 1.

    Words are read out of the first half of the stream. The second half remembers which word this is; the final norm's
    gain hides it.
    """
    config = tr.GPTNeoXConfig(
        hidden_size=2 * SIZE,
        num_hidden_layers=len(steps),
        num_attention_heads=2,
        intermediate_size=SIZE,
        vocab_size=SIZE,
        max_position_embeddings=CONTEXT,
        hidden_act="relu",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = tr.GPTNeoXForCausalLM(config).eval()
    eye = torch.eye(SIZE)
    with torch.no_grad():
        model.gpt_neox.embed_in.weight.copy_(torch.cat((eye, 3 * eye), 1))
        model.lm_head.weight.copy_(torch.cat((loud * eye, 0 * eye), 1))
        model.gpt_neox.final_layer_norm.weight[SIZE:] = 0
        for layer, (own, following) in zip(model.gpt_neox.layers, steps, strict=True):
            layer.attention.dense.weight.zero_()
            layer.attention.dense.bias.zero_()
            layer.mlp.dense_h_to_4h.weight.copy_(torch.cat((0 * eye, eye), 1))
            layer.mlp.dense_h_to_4h.bias.fill_(-2.0)
            # Only the remembered word's unit is active.
            write = following * eye.roll(1, 0) + own * eye
            layer.mlp.dense_4h_to_h.weight.copy_(torch.cat((write, 0 * eye), 0))
            layer.mlp.dense_4h_to_h.bias.zero_()
    return read(model, "mover")


def words_on_a_ray(seed: int = 0) -> Tensor:
    """Words in one direction that differ only in length."""
    ray = normal(1, D, stream=8, seed=seed)
    return ray * torch.linspace(1, 9, 60)[:, None] + 0.02 * normal(60, D, stream=9, seed=seed)


def words_of_one_length(seed: int = 0) -> Tensor:
    points = normal(300, D, stream=3, seed=seed)
    return 4 * normalize(points - points.mean(1, keepdim=True), dim=1)


def in_three_dimensions(seed: int = 0) -> Tensor:
    frame = normal(D, D, stream=5, seed=seed)
    frame = torch.linalg.qr(frame - frame.mean(0))[0].T[:3]
    return 4 * normalize(normal(400, 3, stream=6, seed=seed), dim=1) @ frame
