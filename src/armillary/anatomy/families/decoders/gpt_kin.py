"""GPT-2's relatives: GPT-J and CodeGen (parallel sublayers, rotation by neighbours), GPT-Neo (windows in every other
layer, scores without scale), GPT-BigCode (one key/value head for all)."""

from dataclasses import replace
from math import sqrt
from typing import Any

from armillary.anatomy.families.decoders import gpt2
from armillary.anatomy.families.family import Family

_NAMES = frozenset(
    "n_embd n_head n_layer n_inner activation_function layer_norm_epsilon rotary_dim hidden_size num_heads num_layers "
    "intermediate_size attention_types attention_layers window_size multi_query scale_attn_weights "
    "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 attention_dropout num_key_value_heads".split()
)

GPTJ = replace(
    gpt2.FAMILY,
    model_type="gptj",
    positions="",
    ln2=None,
    fused="",
    layout="split",
    transposed=False,
    query="attn.q_proj",
    key="attn.k_proj",
    value="attn.v_proj",
    output="attn.out_proj",
    mlp_in="mlp.fc_in",
    mlp_out="mlp.fc_out",
    rotary="attn",
    rotary_in_block=True,
    rotary_reader="of_table",
    pairs="neighbours",
    scale=lambda attention, config: 1 / float(attention.scale_attn),
    parallel=lambda config: True,
    understood=_NAMES,
)
CODEGEN = replace(
    GPTJ,
    model_type="codegen",
    query="",
    key="",
    value="",
    fused="attn.qkv_proj",
    # Four runs of columns, one for each part of the machine that it was trained on.
    layout="q v k",
    runs=4,
    scale=lambda attention, config: 1 / sqrt(attention.head_dim),
)
GPT_NEO = replace(
    GPTJ,
    model_type="gpt_neo",
    positions="wpe",
    rotary="",
    ln2="ln_2",
    attention="attn.attention",
    query="attn.attention.q_proj",
    key="attn.attention.k_proj",
    value="attn.attention.v_proj",
    output="attn.attention.out_proj",
    mlp_in="mlp.c_fc",
    mlp_out="mlp.c_proj",
    scale=lambda attention, config: 1.0,
    parallel=lambda config: False,
    window=lambda attention, config: config.window_size if attention.attention_type == "local" else None,
    window_setting="window_size",
    window_built_in=True,
)


def _bigcode(family: Family, config: Any) -> Family:
    return family if config.multi_query else replace(family, layout="interleaved")


GPT_BIGCODE = replace(
    gpt2.FAMILY,
    model_type="gpt_bigcode",
    transposed=False,
    kv_heads=lambda config: 1 if config.multi_query else int(config.num_attention_heads),
    of=_bigcode,
    understood=_NAMES,
)
FAMILIES = (GPTJ, CODEGEN, GPT_NEO, GPT_BIGCODE)
