"""Which Hugging Face class, in which shape, does a recipe ask for?"""

from typing import Any

import torch

from armillary.lab.recipe import Recipe


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
        return tr.LlamaForCausalLM(
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
