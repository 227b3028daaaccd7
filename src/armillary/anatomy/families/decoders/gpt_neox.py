"""GPT-NeoX (Pythia): LayerNorm, partly rotary heads, q, k and v interleaved head by head, parallel sublayers."""

from armillary.anatomy.families.family import Family

FAMILY = Family(
    model_type="gpt_neox",
    norm="layernorm",
    blocks="layers",
    embed="embed_in",
    rotary="rotary_emb",
    ln_final="final_layer_norm",
    ln1="input_layernorm",
    ln2="post_attention_layernorm",
    attention="attention",
    fused="attention.query_key_value",
    layout="interleaved",
    output="attention.dense",
    attn_write="attention",
    mlp_write="mlp",
    mlp_in="mlp.dense_h_to_4h",
    mlp_out="mlp.dense_4h_to_h",
    activation="hidden_act",
    parallel=lambda config: bool(config.use_parallel_residual),
    understood=frozenset(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_act layer_norm_eps "
        "rope_parameters use_parallel_residual attention_bias is_decoder".split()
    ),
)
