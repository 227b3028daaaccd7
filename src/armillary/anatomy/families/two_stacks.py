"""Stacks of models that have two: the encoders of BART, mBART, Pegasus, Marian, T5, mT5, UMT5 and Whisper, each opened
by itself; and ALBERT, whose layers share their weights.

A decoder reads its encoder by cross attention, which is not understood yet.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from armillary.anatomy.families import bert
from armillary.anatomy.families.family import SIZES, Family, Patches

_ENCODER = frozenset(
    "d_model encoder_layers encoder_attention_heads encoder_ffn_dim encoder_layerdrop activation_function "
    "scale_embedding decoder_layers decoder_attention_heads decoder_ffn_dim decoder_layerdrop activation_dropout "
    "forced_eos_token_id forced_bos_token_id normalize_before normalize_embedding share_encoder_decoder_embeddings "
    "decoder_vocab_size static_position_embeddings num_beams is_decoder".split()
)
BART = Family(
    model_type="bart.encoder",
    stack=lambda name, config: name == "BartEncoder",
    whole=True,
    norm="layernorm",
    blocks="layers",
    embed="embed_tokens",
    embed_scaled=True,
    positions="embed_positions",
    position_offset=2,
    ln_embed="layernorm_embedding",
    ln_final=None,
    plain_head=False,
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
    heads=lambda config: int(config.encoder_attention_heads),
    kv_heads=lambda config: int(config.encoder_attention_heads),
    order=lambda config: "post",
    causal=lambda config: False,
    understood=_ENCODER,
)
MBART = replace(
    BART,
    model_type="mbart.encoder",
    stack=lambda name, config: name == "MBartEncoder",
    ln_final="layer_norm",
    order=lambda config: "pre",
)
PEGASUS = replace(
    MBART,
    model_type="pegasus.encoder",
    stack=lambda name, config: name == "PegasusEncoder",
    embed_scaled=False,
    of=lambda family, config: replace(family, embed_scale=config.d_model**0.5 if config.scale_embedding else 1.0),
    position_offset=0,
    ln_embed=None,
)
MARIAN = replace(
    PEGASUS,
    model_type="marian.encoder",
    stack=lambda name, config: name == "MarianEncoder",
    ln_final=None,
    order=lambda config: "post",
)
WHISPER = replace(
    MBART,
    model_type="whisper.encoder",
    stack=lambda name, config: name == "WhisperEncoder",
    embed="",
    embed_scaled=False,
    positions="",
    patches=Patches("conv1 conv2", positions="embed_positions", sense="sound", argument="input_features"),
    ln_embed=None,
    understood=_ENCODER
    | set(
        "num_mel_bins max_source_positions max_target_positions begin_suppress_tokens suppress_tokens "
        "median_filter_width apply_spec_augment mask_time_prob mask_feature_prob use_weighted_layer_sum "
        "classifier_proj_size forced_decoder_ids lang_ids alignment_heads max_length".split()
    ),
)


def _relative(inner: Any, attention: Any, config: Any) -> Any:
    """What distances add to scores: the first layer's, unless the layer has its own."""
    from armillary.anatomy.positions.score_bias import Buckets

    first = inner.block[0].layer[0].SelfAttention
    table = getattr(attention, "relative_attention_bias", first.relative_attention_bias)
    return Buckets(table.weight.detach(), farthest=int(config.relative_attention_max_distance))


T5 = Family(
    model_type="t5.encoder",
    stack=lambda name, config: name == "T5Stack" and not config.is_decoder,
    whole=True,
    norm="rmsnorm",
    blocks="block",
    embed="embed_tokens",
    ln_final="final_layer_norm",
    plain_head=False,
    ln1="layer.0.layer_norm",
    ln2="layer.1.layer_norm",
    attention="layer.0.SelfAttention",
    pattern_output=2,
    query="layer.0.SelfAttention.q",
    key="layer.0.SelfAttention.k",
    value="layer.0.SelfAttention.v",
    output="layer.0.SelfAttention.o",
    attn_write="layer.0.SelfAttention",
    mlp_write="layer.1.DenseReluDense",
    mlp_in="layer.1.DenseReluDense.wi",
    mlp_out="layer.1.DenseReluDense.wo",
    activation="dense_act_fn",
    bias=_relative,
    of=lambda family, config: (
        replace(family, mlp_in="layer.1.DenseReluDense.wi_1", mlp_gate="layer.1.DenseReluDense.wi_0")
        if config.is_gated_act
        else family
    ),
    heads=lambda config: int(config.num_heads),
    kv_heads=lambda config: int(config.num_heads),
    causal=lambda config: False,
    understood=frozenset(
        "d_model d_kv d_ff num_layers num_decoder_layers num_heads relative_attention_num_buckets is_decoder "
        "relative_attention_max_distance dropout_rate layer_norm_epsilon initializer_factor feed_forward_proj "
        "is_gated_act dense_act_fn scale_decoder_outputs".split()
    ),
)
MT5 = replace(T5, model_type="mt5.encoder", stack=lambda name, config: name == "MT5Stack" and not config.is_decoder)
UMT5 = replace(
    T5,
    model_type="umt5.encoder",
    stack=lambda name, config: name == "UMT5Stack" and not config.is_decoder,
    pattern_output=1,
)


def _unrolled(model: Any) -> Any:
    """An ALBERT with one module per layer, all of which hold the same parameters; the model itself stays as it is.

    The library calls one module once per layer, and a hook could not tell its layers apart.
    """
    inner = getattr(model, "base_model", model)
    layers, groups = model.config.num_hidden_layers, len(inner.encoder.albert_layer_groups)
    if groups == layers:
        return model
    kept = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copy = deepcopy(model, dict(kept))
    encoder = getattr(copy, "base_model", copy).encoder
    own = [encoder.albert_layer_groups[i * groups // layers] for i in range(layers)]
    encoder.albert_layer_groups = type(encoder.albert_layer_groups)(deepcopy(group, dict(kept)) for group in own)
    encoder.config = deepcopy(model.config)
    encoder.config.num_hidden_groups = layers
    return copy


_LAYER = "albert_layers.0"
ALBERT = replace(
    bert.FAMILY,
    model_type="albert",
    prepared=_unrolled,
    blocks="encoder.albert_layer_groups",
    projected="encoder.embedding_hidden_mapping_in",
    start="encoder.embedding_hidden_mapping_in",
    ln1=f"{_LAYER}.attention.LayerNorm",
    ln2=f"{_LAYER}.full_layer_layer_norm",
    attention=f"{_LAYER}.attention",
    query=f"{_LAYER}.attention.query",
    key=f"{_LAYER}.attention.key",
    value=f"{_LAYER}.attention.value",
    output=f"{_LAYER}.attention.dense",
    attn_write=f"{_LAYER}.attention.dense",
    mlp_write=f"{_LAYER}.ffn_output",
    mlp_in=f"{_LAYER}.ffn",
    mlp_out=f"{_LAYER}.ffn_output",
    causal=lambda config: False,
    understood=SIZES | {"embedding_size", "num_hidden_groups", "inner_group_num", "classifier_dropout_prob"},
    unsupported=lambda config: "inner_group_num" if config.inner_group_num != 1 else "",
)
FAMILIES = (BART, MBART, PEGASUS, MARIAN, WHISPER, T5, MT5, UMT5, ALBERT)
