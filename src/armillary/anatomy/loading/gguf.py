"""Read a .gguf file, and convert it to a folder that loads in a second."""

import json
import math
import mmap
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from armillary.anatomy.families import family_of
from armillary.anatomy.loading.quiet import quiet
from armillary.anatomy.loading.weights import check_calls
from armillary.anatomy.read import check_config
from armillary.errors import ModelError

VERSIONS = (2, 3)
# Value types of the metadata: how each is packed. 8 is a string, 9 an array.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
DIMENSIONS = 4
# How GGUF names the architectures that transformers reads and a table understands, and how transformers names them.
ARCHITECTURES = {
    **{name: name for name in ("bloom", "falcon", "gemma2", "gpt2", "lfm2", "llama", "mamba", "mistral", "nemotron")},
    **{name: name for name in ("phi3", "qwen2", "qwen3", "stablelm", "starcoder2")},
    "gemma3": "gemma3_text",
    "gpt-oss": "gpt_oss",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
}


def check_gguf(path: Path) -> int:
    """Refuse a file that is not a whole GGUF; return how many weights it holds.

    The whole header is walked here, with every length held against the file's size: the readers that come after
    believe what a damaged length says, and never come back.
    """
    lacking = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if lacking:
        raise ModelError(f"a .gguf file needs {' and '.join(lacking)}: pip install 'armillary[gguf]'.")
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            if magic != b"GGUF":
                raise ModelError(
                    f"{path} is not a GGUF file (it starts with {magic!r}); it may be damaged: fetch it again."
                )
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Header(data)
                weights = header.weights()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} is cut short or damaged ({error}); fetch it again.") from error
    if header.architecture not in ARCHITECTURES:
        raise ModelError(
            f"{path} holds a model of the architecture {header.architecture[:40]!r} (read from GGUF are "
            f"{', '.join(sorted(ARCHITECTURES))}); convert it to safetensors, pass its folder from the hub, or, if it "
            "is damaged, fetch it again."
        )
    return weights


class _Header:
    """A GGUF's header, read once from front to back."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 4
        self.architecture = ""

    def weights(self) -> int:
        version, tensors, pairs = self._number("I"), self._number("Q"), self._number("Q")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, known are {VERSIONS[0]} and {VERSIONS[1]}")
        metadata = {}
        for _ in range(pairs):
            key = self._text()
            if key in metadata:
                raise ValueError(f"its metadata holds {key[:80]!r} twice")
            metadata[key] = self._value(self._number("I"))
        self.architecture = str(metadata.get("general.architecture", ""))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"its alignment is {alignment!r}, which is not a power of two")
        total = end = last = 0
        names = set[str]()
        for _ in range(tensors):
            name, shape, size, offset = self._tensor()
            # The format puts tensors one after the other, each on its boundary; any other offset is damage.
            if offset != end:
                raise ValueError(f"{name} is listed at {offset:,}, but belongs at {end:,}")
            if name in names:
                raise ValueError(f"it holds the weight {name} twice")
            names.add(name)
            last, end = offset + size, -(-(offset + size) // alignment) * alignment
            total += math.prod(shape)
        start = -(-self.at // alignment) * alignment
        if not total:
            raise ValueError("it contains no weights")
        if start + last > len(self.data):
            raise ValueError(f"its header promises {start + last:,} bytes, the file has {len(self.data):,}")
        return total

    def _take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError("it ends within its header")
        self.at += size
        return self.data[self.at - size : self.at]

    def _number(self, packed: str) -> Any:
        return struct.unpack(f"<{packed}", self._take(struct.calcsize(f"<{packed}")))[0]

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        """A number or string; an array is skipped."""
        if kind in NUMBERS:
            number = self._number(NUMBERS[kind])
            if not math.isfinite(number):
                raise ValueError(f"its metadata holds the number {number}")
            return number
        if kind == STRING:
            return self._text()
        if kind != ARRAY:
            raise ValueError(f"its metadata holds a value of unknown type {kind}")
        inner, length = self._number("I"), self._number("Q")
        if inner in NUMBERS:
            self._take(length * struct.calcsize(f"<{NUMBERS[inner]}"))
        elif inner == STRING:
            for _ in range(length):
                self._text()
        else:
            raise ValueError(f"its metadata holds an array of unknown type {inner}")
        return None

    def _tensor(self) -> tuple[str, list[int], int, int]:
        """(name, shape, bytes, offset) of the next entry in the table of tensors."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        name, dimensions = self._text(), self._number("I")
        if dimensions > DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = [self._number("Q") for _ in range(dimensions)]
        kind, offset = self._number("I"), self._number("Q")
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        if math.prod(shape[:1]) % block:
            raise ValueError(f"the rows of {name} are not whole blocks of {block}")
        return name, shape, math.prod(shape) // block * size, offset


def load_gguf(path: Path, dtype: torch.dtype, weights: int) -> tuple[Any, Any]:
    """(model, tokenizer) from a GGUF file by Hugging Face's own reader, weights dequantised."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    try:
        config = AutoConfig.from_pretrained(**where)
        check_config(config, family_of(config.model_type))
        shapes = check_calls(path, AutoModelForCausalLM.from_config, config, weights)
        model, info = AutoModelForCausalLM.from_pretrained(
            **where, config=config, dtype=dtype, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(**where)
    except ModelError:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    # Hugging Face fills a missing weight with noise, and keeps a tensor of the wrong shape as it is.
    wrong = [name for name, tensor in model.state_dict().items() if tuple(tensor.shape) != shapes.get(name)]
    lacking = sorted({*info["missing_keys"], *wrong})
    if lacking:
        raise ModelError(
            f"{path} lacks the weight {lacking[0]} ({len(lacking)} in all) in the shape that its metadata calls for; "
            "it may be damaged or one part of a split file: fetch it again, whole."
        )
    return model, tokenizer


def _damaged(path: Path, error: Exception) -> ModelError:
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return ModelError(
        f"{path} could not be read as GGUF ({type(error).__name__}: {first}); it may be damaged or of an architecture "
        "that transformers does not read: fetch it again, or convert it to safetensors."
    )


def convert(path: Path, folder: Path) -> None:
    """Write a GGUF model as a folder in the hub's layout: config, safetensors, tokenizer."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with quiet():
        model, tokenizer = load_gguf(path, torch.float32, check_gguf(path))
    # A model loaded from GGUF refuses save_pretrained, though its tensors are ordinary ones.
    tied = set(model._tied_weights_keys or {}) if model.config.tie_word_embeddings else set()
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    try:
        save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk, in its words
        raise OSError(str(error)) from error
    config = json.loads(model.config.to_json_string(use_diff=False))
    config.pop("quantization_config", None)
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tokenizer.save_pretrained(str(folder))
