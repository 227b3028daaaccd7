"""Which Hugging Face class, in which shape, does a recipe ask for?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from armillary.lab.recipe import Recipe

UNMASKED = "armillary_unmasked"


def build(recipe: Recipe, end: int = 0) -> Any:
    """A causal language model at random initialisation, the same for a seed on every machine; the global
    random state stays as it was. `end` is the token between documents."""
    import transformers as tr

    shared = {"vocab_size": recipe.vocabulary, "bos_token_id": end, "eos_token_id": end, "tie_word_embeddings": True}
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed the caller's GPU as well.
        torch.default_generator.manual_seed(recipe.seed)
        if recipe.architecture == "gpt":
            config = tr.GPT2Config(
                **shared,
                n_positions=recipe.context,
                n_embd=recipe.width,
                n_layer=recipe.layers,
                n_head=recipe.heads,
                n_inner=recipe.feed_forward,
                resid_pdrop=recipe.dropout,
                embd_pdrop=recipe.dropout,
                attn_pdrop=0.0,
            )
            return tr.GPT2LMHeadModel(config)
        model = tr.LlamaForCausalLM(
            tr.LlamaConfig(
                **shared,
                max_position_embeddings=recipe.context,
                hidden_size=recipe.width,
                num_hidden_layers=recipe.layers,
                num_attention_heads=recipe.heads,
                num_key_value_heads=recipe.kv_heads,
                intermediate_size=recipe.feed_forward,
            )
        )
    if recipe.dropout:
        _drop_writes(model, recipe.dropout)
    return model


def _drop_writes(model: Any, share: float) -> None:
    """Dropout where a GPT-2 has it: on what the embedding and each sublayer write to the stream.

    Hugging Face's Llama has none to configure. Hooks leave its class, its weights' names and its config alone, so
    what is saved is a plain Llama.
    """

    def drop(module: nn.Module, args: Any, written: Tensor) -> Tensor:
        return functional.dropout(written, share, module.training)

    layers = model.model.layers
    writers = [model.model.embed_tokens, *(layer.self_attn.o_proj for layer in layers)]
    for writer in [*writers, *(layer.mlp.down_proj for layer in layers)]:
        writer.register_forward_hook(drop)


@contextmanager
def unmasked(model: Any) -> Iterator[None]:
    """Attention that is told it is causal instead of being handed a mask that says so; for rows without padding.

    While it is compiled, Hugging Face always makes the mask (on torch before 2.14), and PyTorch's fastest kernel
    takes none. An attention registered without a mask of its own is given none.
    """
    import transformers as tr
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    tr.AttentionInterface.register(UNMASKED, sdpa_attention_forward)
    before = model.config._attn_implementation
    model.config._attn_implementation = UNMASKED
    try:
        yield
    finally:
        model.config._attn_implementation = before
