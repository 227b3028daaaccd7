"""Mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE, Mellum, OLMoE, GPT-OSS, DeepSeek-V2 and V3."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary.anatomy.families.decoders import llama, llama_kin
from armillary.anatomy.families.family import SIZES, Experts, Family

if TYPE_CHECKING:
    from torch import Tensor

PLAIN = Experts(router="mlp.gate", experts="mlp.experts")
SHARED = replace(PLAIN, shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")
NAMES = frozenset(
    "num_experts num_local_experts num_experts_per_tok norm_topk_prob moe_intermediate_size decoder_sparse_step "
    "mlp_only_layers shared_expert_intermediate_size sliding_window use_sliding_window max_window_layers layer_types "
    "attention_bias qkv_bias router_aux_loss_coef".split()
)


def sparse(table: Experts, family: Family, config: Any, layer: int) -> Family:
    """A layer of Qwen's kind: experts in every n-th layer, one dense layer elsewhere."""
    every, dense = int(config.decoder_sparse_step), list(config.mlp_only_layers or [])
    routed = layer not in dense and config.num_experts > 0 and (layer + 1) % every == 0
    return replace(family, experts=table) if routed else family


MIXTRAL = replace(
    llama.MISTRAL,
    model_type="mixtral",
    experts=replace(PLAIN, renormalised=lambda config: True),
    understood=SIZES | NAMES,
)
QWEN2_MOE = replace(
    llama.QWEN2,
    model_type="qwen2_moe",
    lacks="no dense hidden values (a mixture of experts)",
    at=lambda family, config, layer: sparse(SHARED, family, config, layer),
    understood=SIZES | NAMES,
)
QWEN3_MOE = replace(
    llama.QWEN3,
    model_type="qwen3_moe",
    lacks="no dense hidden values (a mixture of experts)",
    at=lambda family, config, layer: sparse(PLAIN, family, config, layer),
    understood=SIZES | NAMES,
)


def _mellum(family: Family, config: Any, layer: int) -> Family:
    """Windows, rotations and experts by layer."""
    experts = PLAIN if config.mlp_layer_types[layer] == "sparse" else None
    return replace(family, rotary_kind=config.layer_types[layer], experts=experts)


MELLUM = replace(QWEN3_MOE, model_type="mellum", at=_mellum, understood=SIZES | NAMES | {"mlp_layer_types"})
OLMOE = replace(
    llama.QWEN3,
    model_type="olmoe",
    qk_span="layer",
    experts=PLAIN,
    unsupported=lambda config: "clip_qkv" if config.clip_qkv is not None else "",
    understood=SIZES | NAMES | {"clip_qkv"},
)


def clamped_gate(alpha: float, limit: float, gate: "Tensor") -> "Tensor":
    """GPT-OSS's activation: large inputs of the gate are clamped."""
    gate = gate.clamp(max=limit)
    return gate * (gate * alpha).sigmoid()


def clamped_factor(limit: float, up: "Tensor") -> "Tensor":
    """GPT-OSS clamps the factor and adds one to it."""
    return up.clamp(-limit, limit) + 1


def _gpt_oss(family: Family, config: Any) -> Family:
    table = replace(
        PLAIN,
        router="mlp.router",
        transposed=True,
        interleaved=True,
        biased=True,
        score=lambda config: "softmax of the chosen",
        renormalised=lambda config: False,
        activation=partial(clamped_gate, float(config.swiglu_alpha), float(config.swiglu_limit)),
        factor=partial(clamped_factor, float(config.swiglu_limit)),
    )
    return replace(family, experts=table)


GPT_OSS = replace(
    llama.FAMILY,
    model_type="gpt_oss",
    lacks="no dense hidden values (a mixture of experts)",
    sinks="sinks",
    rotary_reader="called_once",
    of=_gpt_oss,
    understood=SIZES | NAMES | {"swiglu_limit", "swiglu_alpha", "initial_context_length"},
)
_LATENT = frozenset(
    "n_routed_experts n_shared_experts routed_scaling_factor kv_lora_rank q_lora_rank qk_rope_head_dim v_head_dim "
    "qk_nope_head_dim qk_head_dim n_group topk_group topk_method first_k_dense_replace norm_topk_prob scoring_func "
    "num_experts num_local_experts moe_layer_freq aux_loss_alpha seq_aux rope_interleave attention_bias "
    "mlp_bias".split()
)


def _deepseek(table: Experts, family: Family, config: Any, layer: int) -> Family:
    return family if layer < config.first_k_dense_replace else replace(family, experts=table)


_V2 = replace(
    PLAIN,
    shared="mlp.shared_experts",
    renormalised=lambda config: False,
    scale=lambda config: float(config.routed_scaling_factor),
    groups=lambda config: (1, 1) if config.topk_method == "greedy" else (config.n_group, config.topk_group),
)
_V3 = replace(
    _V2,
    score=lambda config: "sigmoid",
    renormalised=lambda config: bool(config.norm_topk_prob),
    groups=lambda config: (config.n_group, config.topk_group),
    group_by="two largest",
    correction="e_score_correction_bias",
)
DEEPSEEK_V2 = replace(
    llama.FAMILY,
    model_type="deepseek_v2",
    lacks="no dense hidden values (a mixture of experts)",
    mixer="multi-latent attention, which norms what its keys are made of",
    at=lambda family, config, layer: _deepseek(_V2, family, config, layer),
    understood=SIZES | NAMES | _LATENT,
)
DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    model_type="deepseek_v3",
    at=lambda family, config, layer: _deepseek(_V3, family, config, layer),
)
GLM4_MOE = replace(
    llama.QWEN3,
    model_type="glm4_moe",
    lacks="no dense hidden values (a mixture of experts)",
    at=lambda family, config, layer: _deepseek(_V3, family, config, layer),
    understood=SIZES | NAMES | _LATENT | {"use_qk_norm", "partial_rotary_factor"},
)
DOTS1 = replace(GLM4_MOE, model_type="dots1", understood=GLM4_MOE.understood | {"sliding_window", "layer_types"})
FLEX_OLMO = replace(
    llama_kin.OLMO2,
    model_type="flex_olmo",
    experts=PLAIN,
    understood=llama_kin.OLMO2.understood | NAMES,
)
FAMILIES = (MIXTRAL, QWEN2_MOE, QWEN3_MOE, MELLUM, OLMOE, GPT_OSS, DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE, DOTS1, FLEX_OLMO)
