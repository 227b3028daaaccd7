"""A language model whose layers mix tokens by an LSTM (Hochreiter and Schmidhuber 1997), in a transformer's block."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

from armillary.lab.kinds.mixer import Perceptron


class RecurrentConfig(PreTrainedConfig):
    model_type = "armillary_lstm"

    def __init__(
        self,
        vocab_size: int = 8192,
        hidden_size: int = 192,
        num_hidden_layers: int = 4,
        intermediate_size: int = 768,
        max_position_embeddings: int = 512,
        layer_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        tie_word_embeddings: bool = True,
        **more: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.intermediate_size, self.max_position_embeddings = intermediate_size, max_position_embeddings
        self.layer_norm_eps, self.initializer_range = layer_norm_eps, initializer_range
        super().__init__(tie_word_embeddings=tie_word_embeddings, **more)


class RecurrentMixing(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.lstm(x)[0]
        return out


class RecurrentLayer(nn.Module):
    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mixing = RecurrentMixing(config.hidden_size)
        self.ln2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = Perceptron(config.hidden_size, config.intermediate_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states + self.mixing(self.ln1(hidden_states))
        return hidden_states + self.mlp(self.ln2(hidden_states))


class RecurrentPreTrainedModel(PreTrainedModel):
    config_class = RecurrentConfig
    base_model_prefix = "model"


class RecurrentModel(RecurrentPreTrainedModel):
    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(RecurrentLayer(config) for _ in range(config.num_hidden_layers))
        self.ln_final = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> BaseModelOutput:
        # Padding stands behind the text, where a recurrence that runs forwards never reads it.
        hidden_states = self.embed(input_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return BaseModelOutput(last_hidden_state=self.ln_final(hidden_states))


class RecurrentForCausalLM(RecurrentPreTrainedModel):
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed.weight"}

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.model = RecurrentModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> CausalLMOutput:
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids).last_hidden_state))
