"""Phi-1, Phi-1.5, Phi-2: one LayerNorm for both sublayers, which run in parallel; partly rotary heads."""

from armillary.anatomy.families.family import Family

FAMILY = Family(
    model_type="phi",
    norm="layernorm",
    blocks="layers",
    embed="embed_tokens",
    rotary="rotary_emb",
    ln_final="final_layernorm",
    ln1="input_layernorm",
    ln2=None,
    attention="self_attn",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    output="self_attn.dense",
    attn_write="self_attn",
    mlp_write="mlp",
    mlp_in="mlp.fc1",
    mlp_out="mlp.fc2",
    activation="hidden_act",
    parallel=lambda config: True,
    understood=frozenset(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act "
        "layer_norm_eps rope_parameters qk_layernorm partial_rotary_factor head_dim".split()
    ),
)
