"""Llama, Mistral, Qwen2, Qwen3, SmolLM: RMSNorm, rotary positions, grouped heads, a gated feed-forward."""

from dataclasses import replace

from armillary.anatomy.families.family import Family

_SHARED = frozenset(
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act "
    "rms_norm_eps rope_parameters".split()
)
_WINDOWS = frozenset("sliding_window use_sliding_window max_window_layers layer_types".split())

FAMILY = Family(
    model_type="llama",
    norm="rmsnorm",
    blocks="layers",
    embed="embed_tokens",
    rotary="rotary_emb",
    ln_final="norm",
    ln1="input_layernorm",
    ln2="post_attention_layernorm",
    attention="self_attn",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    output="self_attn.o_proj",
    attn_write="self_attn",
    mlp_write="mlp",
    mlp_in="mlp.up_proj",
    mlp_gate="mlp.gate_proj",
    mlp_out="mlp.down_proj",
    activation="hidden_act",
    understood=_SHARED | {"attention_bias", "mlp_bias"},
)
MISTRAL = replace(
    FAMILY,
    model_type="mistral",
    # The window is laid into the mask that all layers share; no attention module knows it.
    window=lambda attention, config: config.sliding_window,
    understood=_SHARED | {"sliding_window"},
)
QWEN2 = replace(FAMILY, model_type="qwen2", understood=_SHARED | _WINDOWS)
QWEN3 = replace(
    FAMILY,
    model_type="qwen3",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    understood=_SHARED | _WINDOWS | {"attention_bias"},
)
