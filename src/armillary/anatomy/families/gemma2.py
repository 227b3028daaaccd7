"""Gemma-2: RMSNorm with gain 1 + w around each sublayer, soft caps, scaled embeddings, alternating windows."""

from dataclasses import replace

from armillary.anatomy.families import llama

FAMILY = replace(
    llama.FAMILY,
    model_type="gemma2",
    ln1_post="post_attention_layernorm",
    ln2="pre_feedforward_layernorm",
    ln2_post="post_feedforward_layernorm",
    attn_write="post_attention_layernorm",
    mlp_write="post_feedforward_layernorm",
    activation="hidden_activation",
    gain_offset=1.0,
    embed_scaled=True,
    causal=lambda config: not config.use_bidirectional_attention,
    understood=frozenset(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "hidden_activation rms_norm_eps rope_parameters query_pre_attn_scalar sliding_window layer_types "
        "final_logit_softcapping attn_logit_softcapping attention_bias use_bidirectional_attention".split()
    ),
)
