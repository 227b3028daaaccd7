"""An MLP-Mixer (Tolstikhin et al. 2021, arXiv:2105.01601): one perceptron mixes patches, one mixes channels."""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, ImageClassifierOutput


class MixerConfig(PreTrainedConfig):
    model_type = "armillary_mixer"

    def __init__(
        self,
        hidden_size: int = 128,
        num_hidden_layers: int = 8,
        intermediate_size: int = 512,
        token_size: int = 64,
        image_size: int = 32,
        patch_size: int = 4,
        num_channels: int = 3,
        layer_norm_eps: float = 1e-6,
        initializer_range: float = 0.02,
        **more: Any,
    ) -> None:
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.intermediate_size, self.token_size = intermediate_size, token_size
        self.image_size, self.patch_size, self.num_channels = image_size, patch_size, num_channels
        self.layer_norm_eps, self.initializer_range = layer_norm_eps, initializer_range
        super().__init__(**more)


class Perceptron(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class TokenMixing(nn.Module):
    """A perceptron over the patches, the same for every channel."""

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.mlp = Perceptron((config.image_size // config.patch_size) ** 2, config.token_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mlp(x.transpose(1, 2)).transpose(1, 2)
        return out


class MixerLayer(nn.Module):
    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mixing = TokenMixing(config)
        self.ln2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = Perceptron(config.hidden_size, config.intermediate_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states + self.mixing(self.ln1(hidden_states))
        return hidden_states + self.mlp(self.ln2(hidden_states))


class MixerPreTrainedModel(PreTrainedModel):
    config_class = MixerConfig
    base_model_prefix = "mixer"
    main_input_name = "pixel_values"


class MixerModel(MixerPreTrainedModel):
    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        size, width = config.patch_size, config.hidden_size
        self.patches = nn.Conv2d(config.num_channels, width, size, size)
        self.layers = nn.ModuleList(MixerLayer(config) for _ in range(config.num_hidden_layers))
        self.ln_final = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.post_init()

    def forward(self, pixel_values: Tensor, **more: Any) -> BaseModelOutput:
        hidden_states = self.patches(pixel_values).flatten(2).transpose(1, 2)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return BaseModelOutput(last_hidden_state=self.ln_final(hidden_states))


class MixerForImageClassification(MixerPreTrainedModel):
    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        self.mixer = MixerModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, pixel_values: Tensor, **more: Any) -> ImageClassifierOutput:
        state = self.mixer(pixel_values).last_hidden_state
        return ImageClassifierOutput(logits=self.classifier(state.mean(1)))
