"""Models that read images: ViT, DeiT, DINOv2 (with and without registers), DINOv3, CLIP's two towers, ConvNeXt."""

from dataclasses import replace
from typing import Any

from armillary.anatomy.families.family import SIZES, Family, Patches

_IMAGES = SIZES | set(
    "image_size patch_size num_channels qkv_bias encoder_stride pooler_output_size pooler_act".split()
)
_PATCHES = Patches(
    projection="embeddings.patch_embeddings.projection",
    own=("embeddings.cls_token",),
    positions="embeddings.position_embeddings",
)
VIT = Family(
    model_type="vit",
    norm="layernorm",
    blocks="layers",
    embed="",
    patches=_PATCHES,
    ln_final="layernorm",
    plain_head=False,
    ln1="layernorm_before",
    ln2="layernorm_after",
    attention="attention",
    query="attention.q_proj",
    key="attention.k_proj",
    value="attention.v_proj",
    output="attention.o_proj",
    attn_write="attention",
    mlp_write="mlp",
    mlp_in="mlp.fc1",
    mlp_out="mlp.fc2",
    activation="hidden_act",
    causal=lambda config: False,
    understood=_IMAGES,
)
DEIT = replace(
    VIT,
    model_type="deit",
    patches=replace(_PATCHES, own=("embeddings.cls_token", "embeddings.distillation_token")),
)
_GATED: dict[str, Any] = {"mlp_in": "mlp.up_proj", "mlp_gate": "mlp.gate_proj", "mlp_out": "mlp.down_proj"}
_BACKBONE = set("layerscale_value drop_path_rate out_features out_indices stage_names apply_layernorm".split())
DINOV2 = replace(
    VIT,
    model_type="dinov2",
    blocks="encoder.layer",
    ln1="norm1",
    ln2="norm2",
    attn_write="layer_scale1",
    attn_scale="layer_scale1.lambda1",
    mlp_write="layer_scale2",
    mlp_scale="layer_scale2.lambda1",
    of=lambda family, config: replace(family, **_GATED, activation="silu") if config.use_swiglu_ffn else family,
    understood=_IMAGES | _BACKBONE | set("mlp_ratio use_swiglu_ffn reshape_hidden_states use_mask_token".split()),
)
DINOV2_REGISTERS = replace(
    DINOV2,
    model_type="dinov2_with_registers",
    patches=replace(_PATCHES, registers="embeddings.register_tokens"),
    understood=DINOV2.understood | {"num_register_tokens"},
)
DINOV3 = replace(
    DINOV2,
    model_type="dinov3_vit",
    whole=True,
    blocks="model.layer",
    ln_final="norm",
    patches=Patches("embeddings.patch_embeddings", ("embeddings.cls_token",), "embeddings.register_tokens"),
    # Patches turn by their row and by their column, so that a score is no function of one offset.
    mixer="attention whose queries and keys turn in two dimensions",
    of=lambda family, config: (
        replace(family, **_GATED)
        if config.use_gated_mlp
        else replace(family, mlp_in="mlp.up_proj", mlp_out="mlp.down_proj")
    ),
    understood=_IMAGES
    | _BACKBONE
    | set(
        "rope_theta query_bias key_bias value_bias proj_bias mlp_bias use_gated_mlp num_register_tokens "
        "pos_embed_rescale pos_embed_shift pos_embed_jitter reshape_hidden_states return_class_token".split()
    ),
)
_CLIP = set("projection_dim logit_scale_init_value initializer_factor".split())
CLIP_VISION = replace(
    VIT,
    model_type="clip_vision_model",
    blocks="encoder.layers",
    patches=Patches("embeddings.patch_embedding", ("embeddings.class_embedding",), "", "embeddings.position_embedding"),
    ln_embed="pre_layrnorm",
    # A norm follows for the class token alone, behind the last state.
    ln_final=None,
    ln1="layer_norm1",
    ln2="layer_norm2",
    attention="self_attn",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    output="self_attn.out_proj",
    attn_write="self_attn",
    scale=lambda attention, config: float(attention.scale),
    understood=_IMAGES | _CLIP,
)
CLIP_TEXT = replace(
    CLIP_VISION,
    model_type="clip_text_model",
    embed="embeddings.token_embedding",
    positions="embeddings.position_embedding",
    patches=None,
    ln_embed=None,
    ln_final="final_layer_norm",
    causal=lambda config: True,
    understood=SIZES | _CLIP,
)


def _longest(config: Any) -> int:
    """The stage with most blocks."""
    return max(range(len(config.depths)), key=lambda stage: config.depths[stage])


class _StagesBefore:
    """Embedding, the stages before the longest one, and the layer that makes its stream smaller."""

    def __init__(self, inner: Any, config: Any) -> None:
        self.inner, self.stage = inner, _longest(config)

    def __call__(self, pixels: Any) -> Any:
        x = self.inner.embeddings(pixels)
        for before in self.inner.encoder.stages[: self.stage]:
            x = before(x)
        for layer in self.inner.encoder.stages[self.stage].downsampling_layer:
            x = layer(x)
        return x.flatten(2).transpose(1, 2)


# Stages differ in width and in the number of tokens: the longest is read, as a stream of its own.
CONVNEXT = replace(
    VIT,
    model_type="convnext",
    lacks="one of its stages alone",
    patches=Patches(
        "",
        front=_StagesBefore,
        side=lambda config: config.patch_size * 2 ** _longest(config),
    ),
    ln_final=None,
    ln1=None,
    ln2=None,
    # The norm stands inside the write, behind the convolution.
    ln1_post="layernorm",
    channels=False,
    mixer="a convolution, and a perceptron behind it",
    attention="dwconv",
    attn_write="drop_path",
    of=lambda family, config: replace(family, blocks=f"encoder.stages.{_longest(config)}.layers"),
    understood=_IMAGES | _BACKBONE | set("hidden_sizes depths num_stages layer_scale_init_value".split()),
)
FAMILIES = (CONVNEXT, VIT, DEIT, DINOV2, DINOV2_REGISTERS, DINOV3, CLIP_VISION, CLIP_TEXT)
