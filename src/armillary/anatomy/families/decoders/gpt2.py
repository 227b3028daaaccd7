"""GPT-2: LayerNorm before each sublayer, learned positions, one Conv1D for q, k and v."""

from armillary.anatomy.families.family import Family

FAMILY = Family(
    model_type="gpt2",
    norm="layernorm",
    blocks="h",
    embed="wte",
    positions="wpe",
    ln_final="ln_f",
    ln1="ln_1",
    ln2="ln_2",
    attention="attn",
    fused="attn.c_attn",
    layout="concatenated",
    transposed=True,
    output="attn.c_proj",
    attn_write="attn",
    mlp_write="mlp",
    mlp_in="mlp.c_fc",
    mlp_out="mlp.c_proj",
    activation="activation_function",
    understood=frozenset(
        "n_embd n_head n_layer n_inner activation_function layer_norm_epsilon scale_attn_weights "
        "scale_attn_by_inverse_layer_idx".split()
    ),
)
