"""Check that weights on disk are whole, safe to read and small enough, before anything is loaded, without torch."""

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from armillary.errors import ModelError
from armillary.results.disk.files import LARGEST, is_readable, read_bytes, strict_json

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
CONVERT = (
    "convert it to safetensors: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW) on a machine where "
    "you trust the file"
)
GIB = 1 << 30
# Classes that a model may tell apart.
LABELS = 1_000_000
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    check_entries(folder)
    if not path.is_file() and (folder / "adapter_config.json").is_file():
        raise ModelError(_adapter(folder))
    if not path.is_file():
        raise ModelError(f"the folder {folder} has no config.json: it is not a model in Hugging Face's layout.")
    if adapter := sorted(name for name in os.listdir(folder) if name.startswith(("adapter_config.", "adapter_model."))):
        raise ModelError(
            f"{folder} holds a model and an adapter ({adapter[0]}), so it is not clear which is meant; "
            "move the adapter to a folder of its own, or merge it and save the result."
        )
    try:
        config = strict_json(read_bytes(path))
    except (OSError, ValueError) as error:
        check_permission(path, error)
        why = getattr(error, "strerror", None) or error
        raise ModelError(f"{path} is not readable JSON ({why}); fetch the model again.") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelError(
            f"{path} names no model_type, so its architecture is unknown; add it or fetch the model again."
        )
    labels = config.get("num_labels")
    if isinstance(labels, int) and labels > LABELS:
        raise ModelError(
            f"{path} asks for {labels:.3g} num_labels, and the library makes a name for each; correct it, or fetch the "
            "model again."
        )
    packed = config.get("quantization_config")
    method = packed.get("quant_method", "bitsandbytes") if packed and isinstance(packed, dict) else packed
    if method and method != "gguf":
        raise ModelError(
            f"config attribute quantization_config says the weights are quantised by {method!r} and cannot be read; "
            "pass the unquantised model, or a GGUF of it (GGUF is unpacked on loading)."
        )
    return config


# What the library opens in a model's folder, with more than is listed anywhere; code only if it is allowed to.
OPENED = (".json", ".safetensors", ".model", ".txt", ".jinja", ".py", ".spm", ".bpe", ".vocab")


def check_entries(folder: Path) -> None:
    """Refuse a pipe, a device, a folder or a dangling link where the library would open a file: it waits, or takes the
    file for absent and does not say so."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise ModelError(f"{folder} cannot be read ({error.strerror}); check its permissions.") from error
    for name in names:
        if name.endswith(OPENED) and not is_readable(folder / name):
            raise ModelError(
                f"{name} in {folder} is not a regular file, or a link that leads nowhere; fetch the model again."
            )
        if name.endswith(OPENED) and not name.endswith(".safetensors"):
            size = os.stat(folder / name).st_size
            if size > LARGEST:
                raise ModelError(
                    f"{name} in {folder} has {size / GIB:.1f} GiB, too much for such a file; fetch the model again."
                )


def check_permission(path: Path, error: Exception) -> None:
    """What may not be read is not damaged."""
    if isinstance(error, PermissionError):
        raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error


def _adapter(folder: Path) -> str:
    try:
        base = strict_json(read_bytes(folder / "adapter_config.json")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        base = None
    loaded = f"AutoModelForCausalLM.from_pretrained({base!r})" if base else "the model it was trained on"
    return (
        f"{folder} is an adapter (PEFT) of {base or 'a model that it does not name'}, and no model of its own; "
        f"merge it first: armillary.load(PeftModel.from_pretrained({loaded}, {str(folder)!r})) in Python, or save what "
        "merge_and_unload() gives, and pass that folder."
    )


# How safetensors names the types of numbers that are weights as they stand.
FLOATS = ("F64", "F32", "F16", "BF16")
# Masks and counters that old checkpoints carry as whole numbers; the library makes its own.
COUNTED = ("position_ids", "token_type_ids", "num_batches_tracked", "attn.bias", "attention.bias", "masked_bias")


def check_types(folder: Path) -> None:
    """Refuse weights of whole, complex or 8-bit numbers without a scheme: without its scales a number means nothing."""
    for file in _weight_files(folder):
        for name, entry in _safetensors_header(file).items():
            if entry.get("dtype") not in FLOATS and not name.endswith(COUNTED):
                raise ModelError(
                    f"{file} holds the weight {name} as {entry.get('dtype')}, and config.json names no "
                    "quantization_config that says how to unpack it; pass the unquantised model, or a GGUF of it."
                )


def check_folder(folder: Path) -> int:
    """Refuse pickles and broken files; return how many weights the safetensors hold."""
    return sum(map(math.prod, weight_shapes(folder).values()))


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every weight that a folder's safetensors hold, from their headers alone; each in one file."""
    shapes: dict[str, tuple[int, ...]] = {}
    homes: dict[str, str] = {}
    for file in _weight_files(folder):
        for name, shape in _safetensors_shapes(file).items():
            if name in homes:
                raise ModelError(
                    f"{folder} holds the weight {name} in {homes[name]} and in {file.name}, so it is not clear which "
                    "is meant; remove one, or fetch the model again."
                )
            homes[name], shapes[name] = file.name, shape
    for name, home in _index(folder).items():
        if homes and homes.get(name, home) != home and home in homes.values():
            raise ModelError(
                f"the index of {folder} says that the weight {name} is in {home}, and it is in {homes[name]}; fetch "
                "the model again."
            )
    return shapes


State = tuple[tuple[str, int, int, int], ...]


def state_of(path: Path) -> State:
    """Changes when a weight file is written to or replaced."""
    files = _weight_files(path) if path.is_dir() else [path]
    states = [(file, os.stat(file)) for file in files]
    return tuple((file.name, state.st_ino, state.st_size, state.st_mtime_ns) for file, state in states)


def check_unchanged(path: Path, before: State) -> None:
    """Weights are copied while they are read; what another process writes meanwhile would be a model of two halves."""
    try:
        same = state_of(path) == before
    except (ModelError, OSError):
        same = False
    if not same:
        raise ModelError(f"the weights of {path} changed while they were read; wait until they are written.")


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
        if pickled:
            raise ModelError(
                f"{folder} holds its weights as {pickled[0]}, a pickle, which can run code when opened; {CONVERT}."
            )
        raise ModelError(f"the folder {folder} holds no .safetensors file, so no weights; fetch the model again.")
    if os.path.lexists(folder / INDEX):
        named = set(_index(folder).values())
        missing = sorted(named - {file.name for file in files})
        if missing:
            raise ModelError(f"{folder} lacks {missing[0]}, which its index names; fetch the model again.")
        files = [file for file in files if file.name in named]
    # Where both are there, the library reads the single file and not the parts.
    single = folder / SINGLE
    return [single] if single.is_file() else files


def _index(folder: Path) -> dict[str, str]:
    """Which file each weight is in, as the folder's index says; nothing without one."""
    index = folder / INDEX
    if not os.path.lexists(index):
        return {}
    try:
        return {str(name): str(file) for name, file in strict_json(read_bytes(index))["weight_map"].items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ModelError(f"{index} is not a readable index of weights ({error}); fetch the model again.") from error


def unread_files(folder: Path) -> list[str]:
    """Files of weights that lie in the folder and are not the model's."""
    read = {file.name for file in _weight_files(folder)}
    return sorted(file.name for file in folder.glob("*.safetensors") if file.name not in read)


def _safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in one file, from its header alone, checked against the file's size."""
    return {name: tuple(map(int, entry["shape"])) for name, entry in _safetensors_header(path).items()}


def _safetensors_header(path: Path) -> dict[str, dict[str, Any]]:
    """What a file says of each of its weights, checked against the file's size."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size - 8, 100_000_000):
                raise ValueError("its header is longer than the file")
            header = strict_json(stream.read(length))
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        entries = {str(name): {**entry, "shape": [int(n) for n in entry["shape"]]} for name, entry in header.items()}
    except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError, RecursionError,
            OverflowError) as error:  # fmt: skip
        check_permission(path, error)
        raise ModelError(f"{path} is not a whole safetensors file ({error}); fetch it again.") from error
    if 8 + length + end != size:
        raise ModelError(
            f"{path} is cut short or damaged: its header promises {8 + length + end:,} bytes, the file has {size:,}; "
            "fetch it again."
        )
    return entries


def check_calls(path: Path, build: Callable[[Any], Any], config: Any, weights: int) -> dict[str, tuple[int, ...]]:
    """Refuse a config that calls for far more than the file holds, before memory is allocated; return all shapes.

    What is missing in the end is named by the loader; but it makes room for what the config says first, and a config
    of another size, or with a damaged number, says gigabytes.
    """
    import torch

    # No layer is smaller than this, and a million of them take minutes to build even without memory.
    sizes = config.get_text_config()
    layers, width = (getattr(sizes, name, None) for name in ("num_hidden_layers", "hidden_size"))
    called, shapes = (layers or 0) * (width or 0) ** 2 // 4, {}
    if called <= weights:
        with torch.device("meta"):
            model = build(config)
        called = sum(parameter.numel() for parameter in model.parameters()) // 2
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if called > weights:
        raise ModelError(
            f"the configuration of {path} calls for more than {called:,} weights, but there are {weights:,}: they do "
            "not belong together; fetch the model again."
        )
    return shapes


def check_memory(weights: int, bytes_each: int, copies: int, device: str) -> None:
    """Refuse, with both numbers, a model that cannot fit."""
    needed = weights * bytes_each * copies
    free = free_memory(device)
    if needed > free:
        arms = " (the model and its random-initialisation control)" if copies > 1 else ""
        raise ModelError(
            f"this model needs {_gib(needed)} GiB{arms} and {_gib(free)} GiB is free on {device}; use a smaller "
            "model, --dtype bfloat16, or a machine with more memory."
        )


def _gib(size: int) -> str:
    """
    >>> _gib(3 * GIB // 2), _gib(250_000)
    ('1.5', '0.0002')
    """
    return f"{size / GIB:.1f}" if size >= GIB // 10 else f"{size / GIB:.1g}"


def free_memory(device: str) -> int:
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
