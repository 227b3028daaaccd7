"""Llama's block with small changes: Arcee, Seed-OSS, Ministral, StableLM, StarCoder2, Nemotron, SmolLM3, Ernie 4.5,
Helium, Granite, GLM, GLM-4, EXAONE 4."""

from dataclasses import replace
from typing import Any

from armillary.anatomy.families.decoders import llama
from armillary.anatomy.families.family import SIZES, Family

_BLOCK = replace(llama.FAMILY, understood=SIZES)
_WINDOWS = frozenset("sliding_window layer_types sliding_window_pattern use_sliding_window".split())


def _kin(model_type: str, more: str = "", base: Family = _BLOCK, **changes: Any) -> Family:
    """The table of a relative, with the config attributes that it adds."""
    return replace(base, model_type=model_type, understood=base.understood | set(more.split()), **changes)


ARCEE = _kin("arcee", "attention_bias mlp_bias", mlp_gate="")
SEED_OSS = _kin("seed_oss", "attention_bias attention_out_bias mlp_bias")
MINISTRAL = _kin("ministral", "sliding_window layer_types")
MINISTRAL3 = _kin("ministral3", "sliding_window")
CWM = _kin("cwm", base=MINISTRAL)
JAIS2 = _kin("jais2", "attention_bias mlp_bias", norm="layernorm", mlp_gate="")
APERTUS = _kin(
    "apertus",
    "attention_bias mlp_bias",
    ln1="attention_layernorm",
    ln2="feedforward_layernorm",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    mlp_gate="",
)
STABLELM = _kin(
    "stablelm",
    "use_qkv_bias qk_layernorm use_parallel_residual partial_rotary_factor",
    norm="layernorm",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    parallel=lambda config: bool(config.use_parallel_residual),
    of=lambda family, config: replace(family, ln2=None) if config.use_parallel_residual else family,
)
STARCODER2 = _kin(
    "starcoder2",
    "norm_epsilon use_bias sliding_window",
    norm="layernorm",
    mlp_gate="",
    mlp_in="mlp.c_fc",
    mlp_out="mlp.c_proj",
    window=lambda attention, config: config.sliding_window,
)
NEMOTRON = _kin(
    "nemotron",
    "norm_eps attention_bias mlp_bias partial_rotary_factor",
    norm="layernorm",
    gain_offset=1.0,
    mlp_gate="",
)
SMOLLM3 = _kin(
    "smollm3",
    "sliding_window use_sliding_window layer_types no_rope_layers no_rope_layer_interval attention_bias mlp_bias",
    at=lambda family, config, layer: family if config.no_rope_layers[layer] else replace(family, rotary=""),
)
ERNIE4_5 = _kin("ernie4_5", "use_bias", pairs="neighbours")
HELIUM = _kin("helium", "attention_bias mlp_bias", pairs="neighbours")
GRANITE = _kin(
    "granite",
    "embedding_multiplier residual_multiplier logits_scaling attention_multiplier attention_bias mlp_bias",
    of=lambda family, config: replace(
        family,
        embed_scale=float(config.embedding_multiplier),
        write_scale=float(config.residual_multiplier),
        logit_scale=1 / float(config.logits_scaling),
    ),
)
HYPERCLOVAX = _kin(
    "hyperclovax",
    "use_post_norm",
    GRANITE,
    # Granite divides its logits by what this one multiplies them with.
    of=lambda family, config: replace(
        family,
        embed_scale=float(config.embedding_multiplier),
        write_scale=float(config.residual_multiplier),
        logit_scale=float(config.logits_scaling),
    ),
    unsupported=lambda config: "use_post_norm" if config.use_post_norm else "",
)
GLM = _kin(
    "glm",
    "attention_bias partial_rotary_factor",
    pairs="neighbours",
    mlp_in="",
    mlp_gate="",
    gate_up="mlp.gate_up_proj",
)
GLM4 = _kin(
    "glm4",
    base=GLM,
    ln1_post="post_self_attn_layernorm",
    ln2_post="post_mlp_layernorm",
    attn_write="post_self_attn_layernorm",
    mlp_write="post_mlp_layernorm",
)
ON_WRITES = _kin(
    "",
    ln1=None,
    ln2=None,
    ln1_post="post_attention_layernorm",
    ln2_post="post_feedforward_layernorm",
    attn_write="post_attention_layernorm",
    mlp_write="post_feedforward_layernorm",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
)
EXAONE4 = _kin(
    "exaone4",
    " ".join(_WINDOWS),
    ON_WRITES,
    window=lambda attention, config: config.sliding_window if attention.is_sliding else None,
    # Where a model has windows, layers without one do not rotate.
    at=lambda family, config, layer: (
        family
        if config.sliding_window is None or config.layer_types[layer] == "sliding_attention"
        else replace(family, rotary="")
    ),
)
OLMO = _kin(
    "olmo",
    "attention_bias clip_qkv",
    norm="layernorm",
    norm_eps=1e-5,
    unsupported=lambda config: "clip_qkv" if config.clip_qkv is not None else "",
)
OLMO2 = _kin("olmo2", "attention_bias", ON_WRITES, qk_span="layer")
OLMO3 = _kin(
    "olmo3",
    "attention_bias sliding_window layer_types",
    ON_WRITES,
    qk_span="layer",
    at=lambda family, config, layer: replace(family, rotary_kind=config.layer_types[layer]),
)
COHERE = _kin(
    "cohere",
    "logit_scale use_qk_norm attention_bias",
    norm="layernorm",
    ln2=None,
    parallel=lambda config: True,
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    pairs="neighbours",
    rotary_reader="called_neighbours",
    of=lambda family, config: replace(family, logit_scale=float(config.logit_scale)),
)
COHERE2 = _kin(
    "cohere2",
    "sliding_window layer_types sliding_window_pattern",
    COHERE,
    at=lambda family, config, layer: (
        family if config.layer_types[layer] == "sliding_attention" else replace(family, rotary="")
    ),
)
PERSIMMON = _kin(
    "persimmon",
    "qk_layernorm partial_rotary_factor",
    norm="layernorm",
    ln_final="final_layernorm",
    query="",
    key="",
    value="",
    fused="self_attn.query_key_value",
    layout="interleaved",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    output="self_attn.dense",
    mlp_gate="",
    mlp_in="mlp.dense_h_to_4h",
    mlp_out="mlp.dense_4h_to_h",
)
HUNYUAN = _kin(
    "hunyuan_v1_dense",
    "attention_bias mlp_bias",
    # Normed after their rotation, queries and keys give scores that depend on more than their distance.
    mixer="attention with q/k-norms behind the rotation",
)
FAMILIES = (
    *(ARCEE, SEED_OSS, MINISTRAL, STABLELM, STARCODER2, NEMOTRON, SMOLLM3, ERNIE4_5, HELIUM, GRANITE, GLM, GLM4),
    *(EXAONE4, OLMO, OLMO2, OLMO3, COHERE, COHERE2, PERSIMMON, HUNYUAN),
    *(MINISTRAL3, CWM, JAIS2, APERTUS, HYPERCLOVAX),
)
