"""Tiny models of every family, perturbed: default gains of 1 and biases of 0 would hide mistakes."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tr
from torch import nn

from armillary.specimens.models.perturbed import NARROW, SMALL, SPECIAL, bert, gemma2, gpt2, llama, perturbed


def _opt(**more: Any) -> nn.Module:
    settings = {**SMALL, "ffn_dim": 48, "max_position_embeddings": 64, **SPECIAL}
    return tr.OPTForCausalLM(tr.OPTConfig(**{**settings, **more}))


def _neox(**more: Any) -> nn.Module:
    settings = {**SMALL, "intermediate_size": 48, "max_position_embeddings": 64, **SPECIAL}
    return tr.GPTNeoXForCausalLM(tr.GPTNeoXConfig(**{**settings, **more}))


def _longrope() -> nn.Module:
    rope = {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0] * 4}
    config = tr.Phi3Config(**NARROW, **SPECIAL, original_max_position_embeddings=16, rope_parameters=rope)
    model = tr.Phi3ForCausalLM(config)
    # At its first pass the library's rotary module gets one attribute more; tests compare models before and after.
    model(input_ids=torch.tensor([[3]]))
    return model


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2,
    "gpt2-layer-scaled": lambda: gpt2(scale_attn_by_inverse_layer_idx=True),
    "llama": llama,
    "llama-biased-untied": lambda: llama(attention_bias=True, mlp_bias=True, head_dim=16),
    "llama-yarn": lambda: llama(
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    ),
    "mistral": lambda: tr.MistralForCausalLM(tr.MistralConfig(**NARROW, **SPECIAL, sliding_window=5)),
    "qwen2": lambda: tr.Qwen2ForCausalLM(
        tr.Qwen2Config(**NARROW, **SPECIAL, use_sliding_window=True, sliding_window=4, max_window_layers=2)
    ),
    "qwen3": lambda: tr.Qwen3ForCausalLM(tr.Qwen3Config(**NARROW, **SPECIAL, head_dim=16)),
    "phi": lambda: tr.PhiForCausalLM(tr.PhiConfig(**NARROW, **SPECIAL, qk_layernorm=True)),
    "phi3": lambda: tr.Phi3ForCausalLM(tr.Phi3Config(**NARROW, **SPECIAL, sliding_window=5, partial_rotary_factor=0.5)),
    "phi3-longrope": _longrope,
    "gpt_neox": _neox,
    "gpt_neox-sequential": lambda: _neox(use_parallel_residual=False),
    "gemma2": gemma2,
    "opt": _opt,
    "opt-post": lambda: _opt(do_layer_norm_before=False),
    "bert": bert,
    "bert-decoder": lambda: tr.BertLMHeadModel(
        tr.BertConfig(**SMALL, intermediate_size=48, max_position_embeddings=64, is_decoder=True, **SPECIAL)
    ),
}


def tiny(name: str, seed: int = 0) -> nn.Module:
    """One tiny perturbed model, the same for the same name and seed."""
    return perturbed(MAKERS[name], seed)
