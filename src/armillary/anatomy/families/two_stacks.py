"""Stacks of models that have two: encoders and decoders of BART, mBART, Pegasus, Marian, T5, mT5, UMT5 and Whisper; and
ALBERT, whose layers share their weights.

An encoder is opened by itself. A decoder reads its encoder by cross attention, so it is opened with the whole model.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from armillary.anatomy.families import bert
from armillary.anatomy.families.family import SIZES, Cross, Family, Patches

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


def _decoder(encoder: Family, stem: str, **more: Any) -> Family:
    """The decoder's table: the encoder's, with cross attention. `stem` begins the names of the model's classes."""
    name = encoder.model_type.replace(".encoder", ".decoder")
    return replace(
        encoder,
        model_type=name,
        stack=lambda named, config: named in (f"{stem}Model", f"{stem}ForConditionalGeneration", f"{stem}MTModel"),
        whole=False,
        backbone="decoder",
        plain_head=True,
        causal=lambda config: True,
        **more,
    )


_BART: dict[str, Any] = {
    "cross": Cross(
        norm="encoder_attn_layer_norm",
        attention="encoder_attn",
        query="encoder_attn.q_proj",
        key="encoder_attn.k_proj",
        value="encoder_attn.v_proj",
        output="encoder_attn.out_proj",
    ),
    "heads": lambda config: int(config.decoder_attention_heads),
    "kv_heads": lambda config: int(config.decoder_attention_heads),
    "logit_bias": "final_logits_bias",
}
_FORWARD = "layer.2.DenseReluDense"
_T5: dict[str, Any] = {
    "ln2": "layer.2.layer_norm",
    "mlp_write": _FORWARD,
    "mlp_in": f"{_FORWARD}.wi",
    "mlp_out": f"{_FORWARD}.wo",
    "cross": Cross(
        norm="layer.1.layer_norm",
        attention="layer.1.EncDecAttention",
        query="layer.1.EncDecAttention.q",
        key="layer.1.EncDecAttention.k",
        value="layer.1.EncDecAttention.v",
        output="layer.1.EncDecAttention.o",
        # T5's texts begin with padding.
        start=lambda config: getattr(config, "decoder_start_token_id", None) or config.pad_token_id or 0,
    ),
    "bias": lambda inner, attention, config: replace(_relative(inner, attention, config), both_ways=False),
    "of": lambda family, config: _gated(family, config, False),
}


def _gated(family: Family, config: Any, scaled: bool) -> Family:
    """The table of one config: with a gate, and with logits of states that are `scaled` by their width."""
    gate: dict[str, Any] = {"mlp_in": f"{_FORWARD}.wi_1", "mlp_gate": f"{_FORWARD}.wi_0"} if config.is_gated_act else {}
    return replace(family, logit_scale=config.d_model**-0.5 if scaled else 1.0, **gate)


DECODERS = (
    _decoder(BART, "Bart", **_BART),
    _decoder(MBART, "MBart", **_BART),
    _decoder(PEGASUS, "Pegasus", **_BART),
    _decoder(MARIAN, "Marian", **_BART),
    _decoder(
        WHISPER,
        "Whisper",
        **{**_BART, "cross": replace(_BART["cross"], sound="max_source_positions"), "logit_bias": ""},
        embed="embed_tokens",
        positions="embed_positions",
        position_offset=0,
        patches=None,
    ),
    _decoder(T5, "T5", **_T5 | {"of": lambda family, config: _gated(family, config, config.scale_decoder_outputs)}),
    _decoder(MT5, "MT5", **_T5),
    _decoder(UMT5, "UMT5", **_T5 | {"of": lambda family, config: _gated(family, config, config.tie_word_embeddings)}),
)


def _unrolled(model: Any) -> Any:
    """An ALBERT with one module per layer, all of which hold the same parameters; the model itself stays as it is.

    The library calls one module once per layer, and a hook could not tell its layers apart.
    """
    inner = getattr(model, "base_model", model)
    layers, groups = model.config.num_hidden_layers, len(inner.encoder.albert_layer_groups)
    if groups == layers:
        return model
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copy = deepcopy(model, dict(shared))
    encoder = getattr(copy, "base_model", copy).encoder
    own = [encoder.albert_layer_groups[i * groups // layers] for i in range(layers)]
    encoder.albert_layer_groups = type(encoder.albert_layer_groups)(deepcopy(group, dict(shared)) for group in own)
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
FAMILIES = (BART, MBART, PEGASUS, MARIAN, WHISPER, T5, MT5, UMT5, ALBERT, *DECODERS)
