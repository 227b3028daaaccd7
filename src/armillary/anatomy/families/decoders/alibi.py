"""Models that know positions by a bias of their scores (ALiBi): BLOOM, MPT; and Falcon, which rotates or does so."""

from dataclasses import replace
from typing import Any

from armillary.anatomy.families.family import Family


def _slopes(inner: Any, attention: Any, config: Any) -> Any:
    from armillary.anatomy.positions.score_bias import Slopes, alibi_slopes

    return Slopes(alibi_slopes(config.num_attention_heads).to(next(inner.parameters()).device))


def _mpt_slopes(inner: Any, attention: Any, config: Any) -> Any:
    from armillary.anatomy.positions.score_bias import Slopes, next_power_slopes

    # The library's model takes 8 for ALiBi's steepest slope, whatever `alibi_bias_max` says.
    return Slopes(next_power_slopes(config.num_attention_heads).to(next(inner.parameters()).device))


BLOOM = Family(
    model_type="bloom",
    norm="layernorm",
    blocks="h",
    embed="word_embeddings",
    ln_embed="word_embeddings_layernorm",
    ln_final="ln_f",
    ln1="input_layernorm",
    ln2="post_attention_layernorm",
    attention="self_attention",
    fused="self_attention.query_key_value",
    layout="interleaved",
    output="self_attention.dense",
    # Attention and feed-forward modules give the stream itself: they add what they were given.
    attn_write="self_attention.dense",
    mlp_write="mlp.dense_4h_to_h",
    mlp_in="mlp.dense_h_to_4h",
    mlp_out="mlp.dense_4h_to_h",
    activation="gelu_pytorch_tanh",
    bias=_slopes,
    scale=lambda attention, config: float(attention.inv_norm_factor),
    unsupported=lambda config: (
        "apply_residual_connection_post_layernorm" if config.apply_residual_connection_post_layernorm else ""
    ),
    understood=frozenset(
        "n_head n_layer hidden_size layer_norm_epsilon slow_but_exact apply_residual_connection_post_layernorm".split()
    ),
)


def _mpt_unsupported(config: Any) -> str:
    own = config.attn_config
    strange = own.clip_qkv is not None or own.qk_ln or own.prefix_lm or not own.alibi or config.logit_scale is not None
    return "attn_config" if strange and config.logit_scale is None else "logit_scale" if strange else ""


MPT = replace(
    BLOOM,
    model_type="mpt",
    blocks="blocks",
    embed="wte",
    ln_embed=None,
    ln_final="norm_f",
    ln1="norm_1",
    ln2="norm_2",
    attention="attn",
    fused="attn.Wqkv",
    layout="concatenated",
    output="attn.out_proj",
    attn_write="attn.out_proj",
    mlp_write="ffn.down_proj",
    mlp_in="ffn.up_proj",
    mlp_out="ffn.down_proj",
    activation="gelu",
    bias=_mpt_slopes,
    scale=lambda attention, config: float(attention.softmax_scale),
    unsupported=_mpt_unsupported,
    understood=frozenset("n_heads n_layers d_model layer_norm_epsilon attn_config logit_scale max_seq_len".split()),
)


def _falcon(family: Family, config: Any) -> Family:
    if config.alibi:
        family = replace(family, rotary="", mixer="attention with a bias that is rounded to bfloat16")
    if config.new_decoder_architecture or not config.multi_query:
        family = replace(family, layout="interleaved")
    if config.parallel_attn or config.new_decoder_architecture:
        two = config.new_decoder_architecture and config.num_ln_in_parallel_attn != 1
        return replace(family, ln1="ln_attn", ln2="ln_mlp") if two else replace(family, ln2=None)
    return family


def _falcon_kv_heads(config: Any) -> int:
    if config.new_decoder_architecture:
        return int(config.num_kv_heads)
    return 1 if config.multi_query else int(config.num_attention_heads)


FALCON = replace(
    BLOOM,
    model_type="falcon",
    ln_embed=None,
    rotary="rotary_emb",
    bias=None,
    layout="concatenated",
    activation="activation",
    of=_falcon,
    kv_heads=_falcon_kv_heads,
    parallel=lambda config: bool(config.parallel_attn or config.new_decoder_architecture),
    unsupported=lambda config: "",
    understood=frozenset(
        "hidden_size num_hidden_layers num_attention_heads num_kv_heads layer_norm_epsilon multi_query bias "
        "new_decoder_architecture parallel_attn alibi activation ffn_hidden_size rope_parameters "
        "num_ln_in_parallel_attn".split()
    ),
)
FAMILIES = (BLOOM, MPT, FALCON)
