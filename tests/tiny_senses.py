"""Configurations of tiny models that read images or sound."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tr
from torch import nn

from armillary.lab import kinds
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
_CONVNEXT = {"hidden_sizes": [16, 24], "depths": [1, 3], "num_stages": 2, "image_size": 48, "patch_size": 4}
CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "convnext": _of("ConvNextForImageClassification", _CONVNEXT),
    "convnext-isotropic": _of(
        "ConvNextModel", {}, hidden_sizes=[32], depths=[3], num_stages=1, image_size=24, patch_size=4, num_channels=1
    ),
}
OWN: dict[str, Callable[[], nn.Module]] = {
    "armillary_mixer": lambda: kinds.MixerForImageClassification(
        kinds.MixerConfig(hidden_size=32, num_hidden_layers=3, intermediate_size=48, token_size=20, image_size=24)
    ),
    "armillary_lstm": lambda: kinds.RecurrentForCausalLM(
        kinds.RecurrentConfig(vocab_size=97, hidden_size=32, num_hidden_layers=3, intermediate_size=48)
    ),
}
TOWERS: dict[str, Callable[[], nn.Module]] = {
    "clip_text_model": _of("CLIPTextModel", _TEXT, max_position_embeddings=64),
}
_BART: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 1,
    "encoder_ffn_dim": 48,
    **SPECIAL,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    # Whisper's and Marian's defaults are tokens of their own large vocabularies.
    "decoder_start_token_id": 2,
    "activation_function": "relu",
}
_T5: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 48,
    "num_layers": 3,
    "num_heads": 4,
    **SPECIAL,
}
_ALBERT: dict[str, Any] = {**SMALL, **SPECIAL, "intermediate_size": 48, "max_position_embeddings": 64}


LONG_CLIPS: dict[str, Any] = {**_BART, "num_mel_bins": 12, "max_source_positions": 300}
# Models of two stacks, by the part that is read.
WHOLE: dict[str, Callable[[], nn.Module]] = {
    "bart.encoder": _of("BartModel", _BART),
    "mbart.encoder": _of("MBartModel", _BART),
    "pegasus.encoder": _of("PegasusModel", _BART),
    "marian.encoder": _of("MarianModel", _BART),
    "t5.encoder": _of("T5Model", _T5),
    "t5.encoder-gated": _of("T5EncoderModel", _T5, feed_forward_proj="gated-gelu", relative_attention_max_distance=30),
    "mt5.encoder": _of("MT5Model", _T5),
    "umt5.encoder": _of("UMT5Model", _T5),
    "whisper.encoder": _of("WhisperModel", _BART, num_mel_bins=12, max_source_positions=30),
}


def _biased(make: Callable[[], Any]) -> Callable[[], nn.Module]:
    """Hugging Face starts the bias of logits at 0, which would hide that it is forgotten."""

    def build() -> nn.Module:
        model = make()
        model.final_logits_bias.copy_(torch.linspace(-1, 1, 97)[None])
        return model

    return build


# Decoders are read with their whole model.
DECODERS: dict[str, Callable[[], nn.Module]] = {
    "bart.decoder": _biased(_of("BartForConditionalGeneration", {**_BART, "decoder_layers": 3})),
    "bart.decoder-headless": _of("BartModel", {**_BART, "decoder_layers": 3}),
    "mbart.decoder": _of("MBartForConditionalGeneration", {**_BART, "decoder_layers": 3}),
    "pegasus.decoder": _of("PegasusForConditionalGeneration", {**_BART, "decoder_layers": 3}),
    "marian.decoder": _of("MarianMTModel", {**_BART, "decoder_layers": 3}),
    "t5.decoder": _of("T5ForConditionalGeneration", _T5, num_decoder_layers=3),
    "t5.decoder-gated": _of(
        "T5ForConditionalGeneration", _T5, feed_forward_proj="gated-gelu", relative_attention_max_distance=30,
        scale_decoder_outputs=False, tie_word_embeddings=False,
    ),
    "mt5.decoder": _of("MT5ForConditionalGeneration", _T5),
    "umt5.decoder": _of("UMT5ForConditionalGeneration", _T5),
    "whisper.decoder": _of(
        "WhisperForConditionalGeneration", {**_BART, "decoder_layers": 3}, num_mel_bins=12, max_source_positions=30
    ),
}  # fmt: skip


def _encoder(make: Callable[[], Any]) -> Callable[[], nn.Module]:
    return lambda: make().get_encoder()


STACKS: dict[str, Callable[[], nn.Module]] = {
    **{name: _encoder(make) for name, make in WHOLE.items()},
    "albert": _of("AlbertForMaskedLM", _ALBERT, embedding_size=16),
    "albert-groups": _of("AlbertModel", _ALBERT, embedding_size=32, num_hidden_groups=3),
    "electra-narrow": _of("ElectraForMaskedLM", _ALBERT, embedding_size=16),
}
SENSES = {**VISION, **CONVOLUTIONS, **OWN, **TOWERS, **STACKS, **DECODERS}
