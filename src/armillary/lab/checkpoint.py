"""Files of a run: a model that loads like any other, and a checkpoint from which training resumes exactly.

Everything is safetensors and JSON, written to a temporary file and renamed: a full disk or a kill leaves the old files.
"""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from armillary.anatomy.loading.weights import check_folder, read_config
from armillary.errors import OutputError
from armillary.lab.data import END
from armillary.lab.forms import DONE, SCHEMA, read_form
from armillary.lab.log import LOG, rows
from armillary.lab.recipe import Recipe
from armillary.results.disk.files import PART, read_bytes, sha256, strict_json, write_whole
from armillary.results.disk.folder_swap import LOCK

CHECKPOINT = "checkpoint.safetensors"
RECIPE = "recipe.json"
MODEL = "model.safetensors"
FINISHED = "finished.json"
"""The SHA-256 of a finished run's files; runs of earlier versions lack it."""
MOMENTS = ("exp_avg", "exp_avg_sq")


def write_model(folder: Path, model: Any, bpe: Any, dtype: torch.dtype = torch.float16) -> None:
    """Write a folder in the hub's layout: config.json, model.safetensors, the tokenizer."""
    config = {**model.config.to_diff_dict(), "architectures": [type(model).__name__], "dtype": str(dtype)[6:]}
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "model_max_length": model.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
    }
    weights = {name: tensor.to(dtype).cpu().contiguous() for name, tensor in _weights(model).items()}
    write_whole(
        {
            folder / "config.json": json.dumps(config, indent=2) + "\n",
            folder / "tokenizer.json": bpe.to_str() + "\n",
            folder / "tokenizer_config.json": json.dumps(words, indent=2) + "\n",
            folder / MODEL: save(weights, {"format": "pt"}),
        }
    )


def write_finished(out: Path) -> None:
    """Say that a run is at its end, and what its files are."""
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", MODEL, RECIPE, LOG)
    hashes = {name: sha256(read_bytes(out / name, most=None)) for name in names}
    write_whole({out / FINISHED: json.dumps({"schema": SCHEMA, "files": hashes}, indent=2) + "\n"})


def is_finished(out: Path, steps: int) -> bool:
    """Does this folder contain a finished run? An error where it does, and a file is not what that run wrote."""
    advice = "restore it, or delete that folder and train again"
    if os.path.lexists(out / FINISHED):
        for name, digest in read_form(out / FINISHED, DONE, advice)["files"].items():
            path = out / Path(name).name
            try:
                same = sha256(read_bytes(path, most=None)) == digest
            except OSError as error:
                raise OutputError(f"{path} cannot be read ({error.strerror}); {advice}.") from error
            if not same:
                raise OutputError(f"{path} is not what this run wrote (its SHA-256 differs); {advice}.")
        return True
    if not os.path.lexists(out / MODEL) or os.path.lexists(out / CHECKPOINT):
        return False
    # A run of an earlier version: its model is whole, and its log goes to the end.
    read_config(out)
    check_folder(out)
    if (last := max((row["step"] for row in rows(out)), default=0)) != steps:
        raise OutputError(f"{out / LOG} ends at step {last} of {steps}, and the run is finished; {advice}.")
    return True


def write_checkpoint(out: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, log: str = "") -> None:
    """Write everything the next step depends on: weights and AdamW's moments in float32, and the random state.

    With their hash, and with that of the log so far: a checkpoint or a log that was changed is refused.
    """
    tensors = {f"model.{name}": tensor for name, tensor in _weights(model).items()}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        tensors |= {f"{moment}.{name}": state[moment] for moment in MOMENTS if moment in state}
    tensors["random.cpu"] = torch.get_rng_state()
    device = _device(model)
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    facts = {"schema": str(SCHEMA), "step": str(step), "log": log, "sha256": _sha256(plain)}
    write_whole({out / CHECKPOINT: save(plain, facts)})


def _sha256(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_checkpoint(out: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, str]:
    """Restore the state of a stopped run; returns the number of steps done, and the hash of its log so far."""
    path = out / CHECKPOINT
    try:
        content = read_bytes(path, most=None)
        (length,) = struct.unpack("<Q", content[:8])
        facts = strict_json(content[8 : 8 + length])["__metadata__"]
        step, tensors = int(facts["step"]), load(content)
        if facts.get("schema", str(SCHEMA)) != str(SCHEMA):
            raise ValueError(f"its schema is {facts['schema']}, this version reads {SCHEMA}")
        if facts.get("sha256", _sha256(tensors)) != _sha256(tensors):
            raise ValueError("it is not what was written: its SHA-256 differs")
        # Not strict, because tied weights are stored under one name; missing names raise a KeyError here.
        model.load_state_dict({name: tensors[f"model.{name}"] for name in _weights(model)}, strict=False)
        for name, parameter in model.named_parameters():
            state = {moment: tensors[f"{moment}.{name}"].to(parameter.device) for moment in MOMENTS}
            # The fused AdamW keeps its step count on the device, the other one on the CPU.
            where = parameter.device if optimizer.defaults.get("fused") else "cpu"
            optimizer.state[parameter] = {"step": torch.tensor(float(step), device=where), **state}
        torch.set_rng_state(tensors["random.cpu"])
        if _device(model).type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], _device(model))
        return step, facts.get("log", "")
    except Exception as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{path} cannot be read ({why}); delete it to start again, or choose another --out."
        ) from error


def claim_folder(out: Path, recipe: Recipe, text_sha256: str, device: str) -> bool:
    """Claim `out` for this run, or check that it belongs to it; returns whether there is a checkpoint."""
    path = out / RECIPE
    # Another kind of device rounds and draws random numbers differently: resuming there would be another run.
    settings = {"schema": SCHEMA, "recipe": recipe.to_dict(), "text": text_sha256, "device": device.split(":")[0]}
    there = (
        {name for name in os.listdir(out) if not (PART.fullmatch(name) or name.startswith(LOCK))}
        if out.exists()
        else set()
    )
    if there and RECIPE not in there:
        raise OutputError(f"{out} is not empty and contains no run of this program; choose another --out.")
    stored = _read(path) if there else None
    if isinstance(stored, dict):
        stored = {"schema": SCHEMA, **stored}
    # A run that was refused before its first step left nothing worth protecting.
    if stored != settings and there & {LOG, CHECKPOINT, MODEL}:
        raise OutputError(
            f"{out} contains another run ({_difference(settings, stored)}); choose another --out, or delete "
            "that folder."
        )
    if stored != settings:
        write_whole({path: json.dumps(settings, indent=2) + "\n"})
    # Temporary files are removed only now, when the folder is known to belong to this run.
    for part in [file for file in out.rglob(".*.part") if PART.fullmatch(file.name)]:
        part.unlink(missing_ok=True)
    return CHECKPOINT in there


def _read(path: Path) -> Any:
    try:
        return strict_json(read_bytes(path))
    except (OSError, ValueError):
        return None


def _difference(settings: dict[str, Any], stored: Any) -> str:
    if not isinstance(stored, dict) or not isinstance(stored.get("recipe"), dict):
        return "its recipe.json cannot be read"
    recipe, stored_recipe = settings["recipe"], stored["recipe"]
    for name in recipe:
        if recipe[name] != stored_recipe.get(name):
            return f"{name} {stored_recipe.get(name)!r} there, {recipe[name]!r} here"
    if stored.get("device") != settings["device"]:
        return f"device {stored.get('device')!r} there, {settings['device']!r} here"
    return "of another text"


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Each weight once, under the first of its names: safetensors refuses tied weights, which share memory."""
    first: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tensor.detach()))
    return dict(first.values())


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
