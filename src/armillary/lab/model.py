"""Build the Hugging Face model that a recipe describes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from armillary.lab.recipe import Recipe

UNMASKED = "armillary_unmasked"


def build(recipe: Recipe, end: int = 0) -> Any:
    """A causal language model at random initialisation, the same for a seed on every machine.

    The global random state is not changed. `end` is the token between documents.
    """
    import transformers as tr

    shared = {"vocab_size": recipe.vocabulary, "bos_token_id": end, "eos_token_id": end, "tie_word_embeddings": True}
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the caller's GPU.
        torch.default_generator.manual_seed(recipe.seed)
        if recipe.architecture == "gpt":
            config = tr.GPT2Config(
                **shared,
                n_positions=recipe.context,
                n_embd=recipe.width,
                n_layer=recipe.layers,
                n_head=recipe.heads,
                n_inner=recipe.feed_forward,
                # GPT-2's own function, computed by one kernel in place of eight: a sixth of a pass on a CPU.
                activation_function="gelu_pytorch_tanh",
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
    """Dropout as in GPT-2: on what the embedding and each sublayer write to the stream.

    Hugging Face's Llama has no such setting. Hooks do not change its class, weight names or config, so the saved model
    is a plain Llama.
    """

    def drop(module: nn.Module, args: Any, written: Tensor) -> Tensor:
        return functional.dropout(written, share, module.training)

    layers = model.model.layers
    writers = [model.model.embed_tokens, *(layer.self_attn.o_proj for layer in layers)]
    for writer in [*writers, *(layer.mlp.down_proj for layer in layers)]:
        writer.register_forward_hook(drop)


@contextmanager
def unmasked(model: Any) -> Iterator[None]:
    """Causal attention without an explicit mask, for rows without padding.

    Under torch.compile, Hugging Face always builds a mask (before torch 2.14), and PyTorch's fastest kernel accepts
    none. An attention function registered without a mask function gets none.
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
