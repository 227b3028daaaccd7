"""Tiny models off their defaults: gains of 1 and biases of 0 would hide mistakes."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tr
from torch import nn

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
NARROW = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
VOCABULARY = 97


def gpt2(**more: Any) -> nn.Module:
    settings = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    return tr.GPT2LMHeadModel(tr.GPT2Config(**{**settings, **SPECIAL, **more}))


def llama(**more: Any) -> nn.Module:
    return tr.LlamaForCausalLM(tr.LlamaConfig(**{**NARROW, **SPECIAL, **more}))


def bert(**more: Any) -> nn.Module:
    settings = {**SMALL, "intermediate_size": 48, "max_position_embeddings": 64, **SPECIAL}
    return tr.BertForMaskedLM(tr.BertConfig(**{**settings, **more}))


def gemma2() -> nn.Module:
    return tr.Gemma2ForCausalLM(
        tr.Gemma2Config(
            **NARROW,
            **SPECIAL,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=4,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        )
    )


def perturb(model: nn.Module, seed: int = 0, size: float = 0.3) -> nn.Module:
    """Move every parameter away from its default, gains and biases most of all."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = size if parameter.ndim == 1 else 0.15
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def perturbed(make: Callable[[], nn.Module], seed: int = 0, size: float = 0.3) -> nn.Module:
    """One perturbed model, the same for the same maker and seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return perturb(make(), seed, size)
