"""Encoders: RoBERTa and its relatives, ELECTRA, DistilBERT, MPNet, DeBERTa-v2, ESM, ModernBERT, EuroBERT, NomicBERT."""

from dataclasses import replace
from typing import Any

from armillary.anatomy.families import bert
from armillary.anatomy.families.decoders import llama
from armillary.anatomy.families.family import SIZES, Family


def _after_padding(family: Family, config: Any) -> Family:
    """Positions are counted from the row after the padding token's."""
    return replace(family, position_offset=int(config.pad_token_id) + 1)


_ROBERTA = replace(bert.FAMILY, of=_after_padding)
ROBERTA, XLM_ROBERTA, CAMEMBERT, DATA2VEC = (
    replace(_ROBERTA, model_type=model_type) for model_type in ("roberta", "xlm-roberta", "camembert", "data2vec-text")
)
PRE_NORM = replace(
    _ROBERTA,
    model_type="roberta-prelayernorm",
    ln_final="LayerNorm",
    ln1="attention.LayerNorm",
    ln2="intermediate.LayerNorm",
    order=lambda config: "pre",
)
XLM_ROBERTA_XL = replace(
    PRE_NORM,
    model_type="xlm-roberta-xl",
    ln_embed=None,
    ln_final="encoder.LayerNorm",
    ln1="attention.self_attn_layer_norm",
    ln2="LayerNorm",
)
ELECTRA = replace(
    bert.FAMILY,
    model_type="electra",
    understood=bert.FAMILY.understood | {"embedding_size"},
    of=lambda family, config: (
        family
        if config.embedding_size == config.hidden_size
        else replace(family, projected="embeddings_project", start="embeddings_project")
    ),
)
DISTILBERT = replace(
    bert.FAMILY,
    model_type="distilbert",
    blocks="transformer.layer",
    token_type="",
    ln1="sa_layer_norm",
    ln2="output_layer_norm",
    attention="attention",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    attn_write="attention.out_lin",
    mlp_write="ffn.lin2",
    mlp_in="ffn.lin1",
    mlp_out="ffn.lin2",
    activation="activation",
    causal=lambda config: False,
    unsupported=lambda config: "",
    understood=frozenset("dim hidden_dim n_layers n_heads activation sinusoidal_pos_embds".split()),
)


def _mpnet_bias(inner: Any, attention: Any, config: Any) -> Any:
    from armillary.anatomy.positions.score_bias import Buckets

    return Buckets(inner.encoder.relative_attention_bias.weight.detach(), farthest=128)


MPNET = replace(
    bert.FAMILY,
    model_type="mpnet",
    token_type="",
    # The library's model counts from padding token 1, whatever `pad_token_id` says.
    position_offset=2,
    ln1="attention.LayerNorm",
    attention="attention.attn",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    output="attention.attn.o",
    attn_write="attention.attn.o",
    scale=lambda attention, config: float(attention.attention_head_size) ** -0.5,
    bias=_mpnet_bias,
    causal=lambda config: False,
    unsupported=lambda config: "",
    understood=SIZES | {"relative_attention_num_buckets"},
)


def _deberta(family: Family, config: Any) -> Family:
    return family if config.position_biased_input else replace(family, positions="")


DEBERTA = replace(
    bert.FAMILY,
    model_type="deberta-v2",
    token_type="",
    mixer="disentangled attention, whose scores join contents and positions",
    of=_deberta,
    causal=lambda config: False,
    unsupported=lambda config: (
        "conv_kernel_size"
        if getattr(config, "conv_kernel_size", 0)
        else "type_vocab_size"
        if config.type_vocab_size
        else "embedding_size"
        if getattr(config, "embedding_size", config.hidden_size) != config.hidden_size
        else ""
    ),
    understood=SIZES
    | set(
        "relative_attention max_relative_positions position_biased_input pos_att_type share_att_key norm_rel_ebd "
        "position_buckets embedding_size conv_kernel_size legacy pooler_hidden_size pooler_dropout "
        "pooler_hidden_act".split()
    ),
)


def _esm(family: Family, config: Any) -> Family:
    if config.token_dropout:
        # Embeddings are shrunk to what they were on average in training, where 12 % of the tokens were masked out.
        family = replace(family, embed_scale=1 - 0.15 * 0.8)
    if config.emb_layer_norm_before:
        family = replace(family, ln_embed="embeddings.layer_norm")
    if config.position_embedding_type == "rotary":
        return replace(family, positions="", rotary="rotary_embeddings")
    return _after_padding(family, config)


ESM = replace(
    bert.FAMILY,
    model_type="esm",
    token_type="",
    ln_embed=None,
    ln_final="encoder.emb_layer_norm_after",
    ln1="attention.LayerNorm",
    ln2="LayerNorm",
    activation="gelu",
    scale=lambda attention, config: float(attention.attention_head_size) ** -0.5,
    order=lambda config: "pre",
    of=_esm,
    understood=SIZES
    | set("position_embedding_type emb_layer_norm_before token_dropout is_folding_model is_decoder".split()),
    unsupported=lambda config: "add_cross_attention" if config.add_cross_attention else "",
)
MODERNBERT = Family(
    model_type="modernbert",
    norm="layernorm",
    blocks="layers",
    embed="embeddings.tok_embeddings",
    rotary="rotary_emb",
    ln_embed="embeddings.norm",
    ln_final="final_norm",
    plain_head=False,
    ln1="attn_norm",
    ln2="mlp_norm",
    attention="attn",
    fused="attn.Wqkv",
    layout="concatenated",
    output="attn.Wo",
    attn_write="attn",
    gate_up="mlp.Wi",
    mlp_write="mlp",
    mlp_out="mlp.Wo",
    activation="hidden_activation",
    scale=lambda attention, config: float(attention.head_dim) ** -0.5,
    causal=lambda config: False,
    at=lambda family, config, layer: replace(family, rotary_kind=config.layer_types[layer]),
    understood=SIZES
    | set(
        "hidden_activation norm_eps norm_bias attention_bias mlp_bias local_attention layer_types "
        "global_attn_every_n_layers decoder_bias classifier_bias deterministic_flash_attn sparse_prediction "
        "sparse_pred_ignore_index reference_compile global_rope_theta local_rope_theta sliding_window".split()
    ),
)
EUROBERT = replace(
    llama.FAMILY,
    model_type="eurobert",
    plain_head=True,
    causal=lambda config: False,
    understood=llama.FAMILY.understood | {"attention_bias", "mlp_bias"},
)
NOMIC = replace(
    EUROBERT,
    model_type="nomic_bert",
    norm="layernorm",
    embed="embeddings.word_embeddings",
    token_type="embeddings.token_type_embeddings",
    ln_embed="embeddings.LayerNorm",
    ln_final=None,
    plain_head=False,
    ln1="post_attention_layernorm",
    ln2="post_mlp_layernorm",
    order=lambda config: "post",
    understood=SIZES,
)
FAMILIES = (
    *(ROBERTA, XLM_ROBERTA, CAMEMBERT, DATA2VEC, PRE_NORM, XLM_ROBERTA_XL, ELECTRA, DISTILBERT, MPNET, DEBERTA, ESM),
    *(MODERNBERT, EUROBERT, NOMIC),
)
