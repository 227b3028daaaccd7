"""How is a .gguf file read, and turned into a folder that loads in a second?"""

import json
from pathlib import Path
from typing import Any

import torch

from armillary.errors import ModelError


def check_gguf(path: Path) -> int:
    """Refuse a file that is no whole GGUF; answer how many weights it holds."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file (it starts with {magic!r}); it may be damaged: fetch it again.")
    import gguf

    try:
        reader = gguf.GGUFReader(path)
        weights = sum(int(tensor.n_elements) for tensor in reader.tensors)
        bad = [t.name for t in reader.tensors if int(t.data_offset) + int(t.n_bytes) > path.stat().st_size]
    except Exception as error:
        raise _damaged(path, error) from error
    if bad or not weights:
        raise ModelError(f"{path} is cut short ({bad[0] if bad else 'no tensors'} is missing data); fetch it again.")
    return weights


def load_gguf(path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """(model, tokenizer) from a GGUF file by Hugging Face's own reader, weights dequantised."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    try:
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=dtype)
        tokenizer = AutoTokenizer.from_pretrained(**where)
    except ModelError:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    return model, tokenizer


def _damaged(path: Path, error: Exception) -> ModelError:
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return ModelError(
        f"{path} could not be read as GGUF ({type(error).__name__}: {first}); it may be damaged or of an architecture "
        "that transformers does not read: fetch it again, or convert it to safetensors."
    )


def convert(path: Path, folder: Path) -> None:
    """Write a GGUF model as a folder in the hub's layout: config, safetensors, tokenizer."""
    from safetensors.torch import save_file

    check_gguf(path)
    model, tokenizer = load_gguf(path, torch.float32)
    # A model loaded from GGUF refuses save_pretrained; its tensors are ordinary ones all the same.
    tied = set(model._tied_weights_keys or {}) if model.config.tie_word_embeddings else set()
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    config.pop("quantization_config", None)
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tokenizer.save_pretrained(str(folder))
