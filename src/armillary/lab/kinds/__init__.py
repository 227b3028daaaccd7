"""Small models of other kinds than transformers, for comparison: an MLP-Mixer and a stack of LSTM layers.

They are models in Hugging Face's sense (a config, safetensors, `AutoModel`), because whatever is measured here is
measured on such models. Importing this package teaches transformers to load them.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageClassification

from armillary.lab.kinds.mixer import MixerConfig, MixerForImageClassification, MixerModel
from armillary.lab.kinds.recurrent import RecurrentConfig, RecurrentForCausalLM, RecurrentModel

AutoConfig.register("armillary_mixer", MixerConfig, exist_ok=True)
AutoModel.register(MixerConfig, MixerModel, exist_ok=True)
AutoModelForImageClassification.register(MixerConfig, MixerForImageClassification, exist_ok=True)
AutoConfig.register("armillary_lstm", RecurrentConfig, exist_ok=True)
AutoModel.register(RecurrentConfig, RecurrentModel, exist_ok=True)
AutoModelForCausalLM.register(RecurrentConfig, RecurrentForCausalLM, exist_ok=True)

__all__ = [
    "MixerConfig",
    "MixerForImageClassification",
    "MixerModel",
    "RecurrentConfig",
    "RecurrentForCausalLM",
    "RecurrentModel",
]
