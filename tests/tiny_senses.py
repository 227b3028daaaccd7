"""Configurations of tiny models that read images or sound."""

from collections.abc import Callable
from typing import Any

import transformers as tr
from torch import nn

from armillary.specimens.models.perturbed import SMALL, SPECIAL

_VIT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 24,
    "patch_size": 4,
    "num_labels": 5,
}
_DINO = {key: value for key, value in _VIT.items() if key != "intermediate_size"}
_TEXT = {**SMALL, "intermediate_size": 48, **SPECIAL}


def _of(name: str, base: dict[str, Any] = _VIT, **more: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model: Any = getattr(tr, name)
        return model(model.config_class(**{**base, **more}))

    return make


VISION: dict[str, Callable[[], nn.Module]] = {
    "vit": _of("ViTForImageClassification"),
    "vit-plain": _of("ViTModel", qkv_bias=False, num_channels=1),
    "deit": _of("DeiTForImageClassificationWithTeacher"),
    "dinov2": _of("Dinov2Model", _DINO, mlp_ratio=2, layerscale_value=0.3),
    "dinov2-swiglu": _of("Dinov2Model", _DINO, mlp_ratio=2, use_swiglu_ffn=True),
    "dinov2_with_registers": _of("Dinov2WithRegistersModel", _DINO, mlp_ratio=2, num_register_tokens=3),
    "dinov3_vit": _of("DINOv3ViTModel", num_register_tokens=3),
    "dinov3_vit-gated": _of("DINOv3ViTModel", use_gated_mlp=True, key_bias=True),
    "clip_vision_model": _of("CLIPVisionModel"),
}
TOWERS: dict[str, Callable[[], nn.Module]] = {
    "clip_text_model": _of("CLIPTextModel", _TEXT, max_position_embeddings=64),
}
SENSES = {**VISION, **TOWERS}
