"""BERT: an encoder with LayerNorm after each write, learned positions, and a norm on the embeddings."""

from armillary.anatomy.families.family import Family

FAMILY = Family(
    model_type="bert",
    norm="layernorm",
    blocks="encoder.layer",
    embed="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    token_type="embeddings.token_type_embeddings",
    ln_embed="embeddings.LayerNorm",
    ln_final=None,
    plain_head=False,
    ln1="attention.output.LayerNorm",
    ln2="output.LayerNorm",
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    attn_write="attention.output.dense",
    mlp_write="output.dense",
    mlp_in="intermediate.dense",
    mlp_out="output.dense",
    activation="hidden_act",
    order=lambda config: "post",
    causal=lambda config: bool(config.is_decoder),
    understood=frozenset(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_act layer_norm_eps is_decoder "
        "add_cross_attention".split()
    ),
    unsupported=lambda config: "add_cross_attention" if config.add_cross_attention else "",
)
