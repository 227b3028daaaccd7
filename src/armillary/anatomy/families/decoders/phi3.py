"""Phi-3 (and Phi-3.5, Phi-4): Llama's block with one projection for q, k and v, and one for gate and up."""

from dataclasses import replace

from armillary.anatomy.families.decoders import llama

FAMILY = replace(
    llama.MISTRAL,
    model_type="phi3",
    query="",
    key="",
    value="",
    fused="self_attn.qkv_proj",
    layout="concatenated",
    mlp_in="",
    mlp_gate="",
    gate_up="mlp.gate_up_proj",
    understood=llama.MISTRAL.understood | {"original_max_position_embeddings", "partial_rotary_factor"},
)
