"""OPT: LayerNorm before (or, in one size, after) each sublayer, learned positions offset by two, ReLU."""

from armillary.anatomy.families.family import Family

FAMILY = Family(
    model_type="opt",
    norm="layernorm",
    backbone="decoder",
    blocks="layers",
    embed="embed_tokens",
    positions="embed_positions",
    position_offset=2,
    ln_final="final_layer_norm",
    ln1="self_attn_layer_norm",
    ln2="final_layer_norm",
    attention="self_attn",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    output="self_attn.out_proj",
    attn_write="self_attn",
    mlp_write="fc2",
    mlp_in="fc1",
    mlp_out="fc2",
    activation="activation_function",
    order=lambda config: "pre" if config.do_layer_norm_before else "post",
    # OPT-350m embeds in fewer dimensions and projects up: its stream does not start at its embeddings.
    unsupported=lambda config: "word_embed_proj_dim" if config.word_embed_proj_dim != config.hidden_size else "",
    understood=frozenset(
        "hidden_size ffn_dim num_hidden_layers num_attention_heads activation_function do_layer_norm_before "
        "_remove_final_layer_norm word_embed_proj_dim enable_bias".split()
    ),
)
