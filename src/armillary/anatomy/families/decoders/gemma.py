"""Gemma, Gemma-2 and the text part of Gemma-3: RMSNorm with gain 1 + w, scaled embeddings; later ones have a norm
around each sublayer, soft caps or q/k-norms, and windows in most layers."""

from dataclasses import replace

from armillary.anatomy.families.decoders import llama
from armillary.anatomy.families.family import SIZES

GEMMA = replace(
    llama.FAMILY,
    model_type="gemma",
    activation="hidden_act",
    gain_offset=1.0,
    embed_scaled=True,
    understood=SIZES | {"hidden_activation", "attention_bias", "use_bidirectional_attention"},
    # The library's Gemma then hides later tokens or not, by the way in which attention is computed.
    unsupported=lambda config: (
        "use_bidirectional_attention" if getattr(config, "use_bidirectional_attention", None) else ""
    ),
)
GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    activation="hidden_activation",
    ln1_post="post_attention_layernorm",
    ln2="pre_feedforward_layernorm",
    ln2_post="post_feedforward_layernorm",
    attn_write="post_attention_layernorm",
    mlp_write="post_feedforward_layernorm",
    understood=GEMMA.understood
    | set("query_pre_attn_scalar sliding_window layer_types final_logit_softcapping attn_logit_softcapping".split()),
)
VAULTGEMMA = replace(
    GEMMA2,
    model_type="vaultgemma",
    ln1_post=None,
    ln2_post=None,
    attn_write="self_attn",
    mlp_write="mlp",
)
GEMMA3 = replace(
    GEMMA2,
    model_type="gemma3_text",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    understood=GEMMA2.understood | {"sliding_window_pattern", "_sliding_window_pattern"},
    at=lambda family, config, layer: replace(family, rotary_kind=config.layer_types[layer]),
)
FAMILIES = (GEMMA, GEMMA2, VAULTGEMMA, GEMMA3)
