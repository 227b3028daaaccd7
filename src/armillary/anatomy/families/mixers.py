"""Models that mix tokens by other means than attention, in all layers or in some: Mamba, Mamba-2, RWKV, RecurrentGemma,
Jamba, LFM2, Qwen3-Next. What such a layer reads and writes is known; heads it has none."""

from dataclasses import replace
from typing import Any

from armillary.anatomy.families.decoders import gemma, llama
from armillary.anatomy.families.experts import NAMES, PLAIN, SHARED, sparse
from armillary.anatomy.families.family import SIZES, Family

_STATES = frozenset(
    "state_size expand conv_kernel use_bias use_conv_bias hidden_act residual_in_fp32 time_step_rank time_step_min "
    "time_step_max time_step_floor time_step_limit time_step_scale time_step_init_scheme rescale_prenorm_residual "
    "use_mambapy num_heads head_dim n_groups chunk_size rms_norm use_associative_scan".split()
)
MAMBA = replace(
    llama.FAMILY,
    model_type="mamba",
    embed="embeddings",
    rotary="",
    ln_final="norm_f",
    ln1="norm",
    ln2=None,
    channels=False,
    mixer="a state-space layer",
    attention="mixer",
    attn_write="mixer",
    understood=SIZES | _STATES | {"layer_norm_epsilon", "intermediate_size"},
)
MAMBA2 = replace(MAMBA, model_type="mamba2")
FALCON_MAMBA = replace(
    MAMBA, model_type="falcon_mamba", understood=MAMBA.understood | {"mixer_rms_eps", "use_falcon_mambapy"}
)
RWKV = replace(
    MAMBA,
    model_type="rwkv",
    norm="layernorm",
    blocks="blocks",
    start="blocks.0.pre_ln",
    ln_embed="blocks.0.pre_ln",
    ln_final="ln_out",
    ln1="ln1",
    ln2="ln2",
    channels=True,
    mixer="a linear recurrence (RWKV)",
    opaque_channels="a feed-forward layer that also reads the token before",
    attention="attention",
    attn_write="attention",
    mlp_write="feed_forward",
    # In evaluation the library halves the stream every so many blocks, so that it is no sum of writes any more.
    unsupported=lambda config: "rescale_every" if 0 < config.rescale_every <= config.num_hidden_layers else "",
    understood=SIZES | {"layer_norm_epsilon", "attention_hidden_size", "rescale_every", "context_length"},
)


def _bfloat16_root(width: int) -> float:
    """√d as the library stores it, rounded to bfloat16."""
    import torch

    return float(torch.tensor(width**0.5, dtype=torch.bfloat16))


RECURRENT_GEMMA = replace(
    gemma.GEMMA,
    model_type="recurrent_gemma",
    embed_scaled=False,
    rotary="",
    ln_final="final_norm",
    ln1="temporal_pre_norm",
    ln2="channel_pre_norm",
    attention="temporal_block",
    attn_write="temporal_block",
    mlp_write="mlp_block",
    mlp_in="mlp_block.up_proj",
    mlp_gate="mlp_block.gate_proj",
    mlp_out="mlp_block.down_proj",
    activation="hidden_activation",
    logit_softcap="logits_soft_cap",
    mixer="a linear recurrence, or local attention among recurrent layers",
    causal=lambda config: True,
    of=lambda family, config: replace(family, embed_scale=_bfloat16_root(config.hidden_size)),
    understood=SIZES
    | set(
        "lru_width attention_window_size conv1d_width logits_soft_cap hidden_activation block_types attention_bias "
        "partial_rotary_factor w_init_variance_scale final_w_init_variance_scale layers_block_type".split()
    ),
)


def _jamba(family: Family, config: Any, layer: int) -> Family:
    if config.layers_num_experts[layer] > 1:
        table = replace(
            PLAIN, router="feed_forward.router", experts="feed_forward.experts", renormalised=lambda config: False
        )
        family = replace(family, experts=table)
    if config.layers_block_type[layer] == "attention":
        return family
    return replace(family, mixer="a state-space layer", attention="mamba", attn_write="mamba")


JAMBA = replace(
    llama.FAMILY,
    model_type="jamba",
    lacks="no heads (state-space layers), no dense hidden values (a mixture of experts)",
    rotary="",
    ln_final="final_layernorm",
    ln2="pre_ff_layernorm",
    mlp_write="feed_forward",
    mlp_in="feed_forward.up_proj",
    mlp_gate="feed_forward.gate_proj",
    mlp_out="feed_forward.down_proj",
    at=_jamba,
    understood=SIZES
    | NAMES
    | set(
        "attn_layer_period attn_layer_offset expert_layer_period expert_layer_offset use_mamba_kernels mamba_d_state "
        "mamba_d_conv mamba_expand mamba_dt_rank mamba_conv_bias mamba_proj_bias num_logits_to_keep "
        "layers_block_type layers_num_experts".split()
    ),
)


def _lfm2(family: Family, config: Any, layer: int) -> Family:
    if config.layer_types[layer] == "full_attention":
        return family
    return replace(family, mixer="a short convolution", attention="conv", attn_write="conv")


LFM2 = replace(
    llama.FAMILY,
    model_type="lfm2",
    lacks="no heads (short convolutions)",
    ln_final="embedding_norm",
    ln1="operator_norm",
    ln2="ffn_norm",
    output="self_attn.out_proj",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    mlp_write="feed_forward",
    mlp_in="feed_forward.w3",
    mlp_gate="feed_forward.w1",
    mlp_out="feed_forward.w2",
    activation="silu",
    at=_lfm2,
    understood=SIZES
    | set(
        "norm_eps conv_bias conv_L_cache block_multiple_of block_ffn_dim_multiplier block_auto_adjust_ff_dim "
        "full_attn_idxs layer_types tie_embedding".split()
    ),
)


def _qwen3_next(family: Family, config: Any, layer: int) -> Family:
    family = sparse(SHARED, family, config, layer)
    if config.layer_types[layer] == "full_attention":
        return replace(family, mixer="attention whose results are gated")
    return replace(family, mixer="a gated delta rule", attention="linear_attn", attn_write="linear_attn")


QWEN3_NEXT = replace(
    llama.FAMILY,
    model_type="qwen3_next",
    lacks="no heads (gated delta rule, gated attention), no dense hidden values (a mixture of experts)",
    gain_offset=1.0,
    at=_qwen3_next,
    understood=SIZES
    | NAMES
    | set(
        "partial_rotary_factor linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads "
        "linear_num_value_heads full_attention_interval".split()
    ),
)
FAMILIES = (MAMBA, MAMBA2, FALCON_MAMBA, RWKV, RECURRENT_GEMMA, JAMBA, LFM2, QWEN3_NEXT)
