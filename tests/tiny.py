"""Tiny models of every family, perturbed: default gains of 1 and biases of 0 would hide mistakes."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tr
from torch import nn

_SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_LLAMA = {**_SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _gpt2(**more: Any) -> nn.Module:
    settings = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    return tr.GPT2LMHeadModel(tr.GPT2Config(**{**settings, **_SPECIAL, **more}))


def _opt(**more: Any) -> nn.Module:
    settings = {**_SMALL, "ffn_dim": 48, "max_position_embeddings": 64, **_SPECIAL}
    return tr.OPTForCausalLM(tr.OPTConfig(**{**settings, **more}))


def _neox(**more: Any) -> nn.Module:
    settings = {**_SMALL, "intermediate_size": 48, "max_position_embeddings": 64, **_SPECIAL}
    return tr.GPTNeoXForCausalLM(tr.GPTNeoXConfig(**{**settings, **more}))


def _bert(**more: Any) -> nn.Module:
    settings = {**_SMALL, "intermediate_size": 48, "max_position_embeddings": 64, **_SPECIAL}
    return tr.BertForMaskedLM(tr.BertConfig(**{**settings, **more}))


def _llama(**more: Any) -> nn.Module:
    return tr.LlamaForCausalLM(tr.LlamaConfig(**{**_LLAMA, **_SPECIAL, **more}))


def _longrope() -> nn.Module:
    rope = {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0] * 4}
    config = tr.Phi3Config(**_LLAMA, **_SPECIAL, original_max_position_embeddings=16, rope_parameters=rope)
    model = tr.Phi3ForCausalLM(config)
    # At its first pass the library's rotary module gets one attribute more; tests compare models before and after.
    model(input_ids=torch.tensor([[3]]))
    return model


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": _gpt2,
    "gpt2-layer-scaled": lambda: _gpt2(scale_attn_by_inverse_layer_idx=True),
    "llama": _llama,
    "llama-biased-untied": lambda: _llama(attention_bias=True, mlp_bias=True, head_dim=16),
    "llama-yarn": lambda: _llama(
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    ),
    "mistral": lambda: tr.MistralForCausalLM(tr.MistralConfig(**_LLAMA, **_SPECIAL, sliding_window=5)),
    "qwen2": lambda: tr.Qwen2ForCausalLM(
        tr.Qwen2Config(**_LLAMA, **_SPECIAL, use_sliding_window=True, sliding_window=4, max_window_layers=2)
    ),
    "qwen3": lambda: tr.Qwen3ForCausalLM(tr.Qwen3Config(**_LLAMA, **_SPECIAL, head_dim=16)),
    "phi": lambda: tr.PhiForCausalLM(tr.PhiConfig(**_LLAMA, **_SPECIAL, qk_layernorm=True)),
    "phi3": lambda: tr.Phi3ForCausalLM(
        tr.Phi3Config(**_LLAMA, **_SPECIAL, sliding_window=5, partial_rotary_factor=0.5)
    ),
    "phi3-longrope": _longrope,
    "gpt_neox": _neox,
    "gpt_neox-sequential": lambda: _neox(use_parallel_residual=False),
    "gemma2": lambda: tr.Gemma2ForCausalLM(
        tr.Gemma2Config(
            **_LLAMA,
            **_SPECIAL,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=4,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        )
    ),
    "opt": _opt,
    "opt-post": lambda: _opt(do_layer_norm_before=False),
    "bert": _bert,
    "bert-decoder": lambda: tr.BertLMHeadModel(
        tr.BertConfig(**_SMALL, intermediate_size=48, max_position_embeddings=64, is_decoder=True, **_SPECIAL)
    ),
}


def perturb(model: nn.Module, seed: int = 0, size: float = 0.3) -> nn.Module:
    """Move every parameter away from its default, gains and biases most of all."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = size if parameter.ndim == 1 else 0.15
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def tiny(name: str, seed: int = 0) -> nn.Module:
    """One tiny perturbed model, the same for the same name and seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return perturb(MAKERS[name](), seed)
