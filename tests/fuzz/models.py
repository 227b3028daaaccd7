"""Spoilt models: configs, safetensors, GGUF files and tokenizers."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import folders
import numpy as np
from fuzz.case import Case, own_identity, same_output
from fuzz.mutate import spelt, spoil_bytes, spoil_entry, spoil_json, spoil_json_file
from fuzz.shelf import MODELS, Shelf, copied
from safetensors.numpy import load_file, save_file

READ = ("--tokens", "150", "--claims", "sphere.radius", "--jobs", "1", "--json")
TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "U64", "F4", "", 7)


def _read(rng: random.Random, what: str, model: Path, sound: Path, place: Path, shelf: Shelf, share: float) -> Case:
    """A survey of one claim, or, for the rest, the anatomy: four times as fast."""
    if rng.random() < share:
        out, text = place / "out", ("--text", shelf.text)
        return Case(
            what, ("survey", model, *text, *READ, "--out", out),
            ("survey", sound, *text, *READ, "--out", shelf.root / "sound"), own_identity, out=out,
        )  # fmt: skip
    # It describes the model that it was given: a difference is a description.
    return Case(what, ("anatomy", model, "--json"), ("anatomy", sound, "--json"))


# Keys that name the same setting, by family, with a value that no sound config of the shelf has.
SYNONYMS = {
    "gpt2": {"hidden_size": 48, "num_attention_heads": 2, "num_hidden_layers": 7, "max_position_embeddings": 9},
    "llama": {"rope_theta": 7.5, "rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "gpt_neox": {"rotary_pct": 0.9, "rotary_emb_base": 7, "rope_theta": 7.5},
}


def _doubled(what: str, model: Path) -> Case:
    """Something is said twice, and not alike: it must not pass."""
    return Case(what, ("anatomy", model, "--json"), ("anatomy", model, "--json"), lambda now, then: "it was accepted")


def _twice(rng: random.Random, model: Path, family: str) -> Case:
    """One setting under two keys, or one weight under two names or in two files."""
    path, known = model / "model.safetensors", SYNONYMS.get(family, {})
    if known and rng.random() < 0.4:
        key = rng.choice(list(known))
        record = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**record, key: known[key]}))
        return _doubled(f"{family}/{key} is said a second time", model)
    weights = load_file(path)
    # A name without its model's prefix is a second name; one without another beginning is none.
    prefixes = ("transformer.", "model.", "bert.", "gpt_neox.")
    name = rng.choice([name for name in sorted(weights) if name.startswith(prefixes) and name.count(".") > 2])
    if rng.random() < 0.5:
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        weights[old if old != name else name.split(".", 1)[1]] = weights[name] * 2
        save_file(weights, path, {"format": "pt"})
        return _doubled(f"{family}/{name} has a second name", model)
    names = sorted(weights)
    files = {f"model-0000{at + 1}-of-00002.safetensors": names[at::2] for at in (0, 1)}
    path.unlink()
    for file, part in files.items():
        more = {} if name in part else {name: weights[name] * 2}
        save_file({**{each: weights[each] for each in part}, **more}, model / file, {"format": "pt"})
    index = {each: file for file, part in files.items() for each in part}
    record = {"metadata": {"total_size": 1}, "weight_map": index}
    (model / "model.safetensors.index.json").write_text(json.dumps(record))
    return _doubled(f"{family}/{name} is in two files", model)


def config(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    sound = shelf.model(rng.choice(MODELS))
    model = copied(sound, place / "model")
    path = model / "config.json"
    if rng.random() < 0.1:
        return _twice(rng, model, sound.name)
    match rng.random():
        case chance if chance < 0.05:
            what = spoil_entry(rng, path)
        case chance if chance < 0.12:
            other = shelf.model(rng.choice(MODELS)) / "config.json"
            record = {**json.loads(path.read_text()), "model_type": json.loads(other.read_text())["model_type"]}
            path.write_text(json.dumps(record))
            what = f"{sound.name} with the model_type of {other.parent.name}"
        case chance if chance < 0.2:
            added = rng.choice(("n_heads", "return_dict", "auto_map", "quantization_config", "pruned_heads", "dtype"))
            record = {**json.loads(path.read_text()), added: rng.choice((False, True, 1, -1, "x", {}, {"x": 1}, []))}
            path.write_text(json.dumps(record))
            what = f"{added}: {record[added]!r}"
        case _:
            what = spoil_json_file(rng, path)
    return _read(rng, f"{sound.name}/{what}", model, sound, place, shelf, 0.4)


def safetensors(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    sound = shelf.model(rng.choice(MODELS))
    model = copied(sound, place / "model")
    path = model / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    match rng.choice(("entry", "bytes", "header bytes", "header", "header", "type", "value", "names", "beside")):
        case "entry":
            what = spoil_entry(rng, path)
        case "bytes":
            data, what = spoil_bytes(rng, data)
            path.write_bytes(data)
        case "header bytes":
            data, what = spoil_bytes(rng, data, 8 + length)
            path.write_bytes(data)
        case "header":
            header, what = spoil_json(rng, header)
            path.write_bytes(_file(header, body))
        case "value":
            at = rng.randrange(len(body) // 4) * 4
            value = rng.choice((np.nan, np.inf, 0.0, 1e30, -1.0))
            path.write_bytes(_file(header, body[:at] + struct.pack("<f", value) + body[at + 4 :]))
            what = f"{value} at byte {at} of the weights"
        case "type":
            name = rng.choice([name for name in header if name != "__metadata__"])
            header[name]["dtype"] = rng.choice(TYPES)
            path.write_bytes(_file(header, body))
            what = f"{name} is {header[name]['dtype']}"
        case "names":
            what = _renamed(rng, header)
            path.write_bytes(_file(header, body))
        case _:
            what = _beside(rng, model, data)
    return _read(rng, f"{sound.name}/{what}", model, sound, place, shelf, 0.3)


def _file(header: Any, body: bytes) -> bytes:
    text = spelt(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + body


def _renamed(rng: random.Random, header: dict[str, Any]) -> str:
    """Two weights exchanged, one under another name, or one more."""
    names = [name for name in header if name != "__metadata__"]
    first, second = rng.sample(names, 2)
    match rng.choice(("exchanged", "renamed", "added")):
        case "exchanged":
            header[first], header[second] = header[second], header[first]
            return f"{first} and {second} exchanged"
        case "renamed":
            header[rng.choice(("x", f"{first}s", "\x1b[31m", "a" * 5000, ""))] = header.pop(first)
            return f"{first} renamed"
        case _:
            header[rng.choice(("more.weight", "h.9.attn.c_attn.weight", "lm_head.bias"))] = header[first]
            return "one weight more"


def _beside(rng: random.Random, model: Path, data: bytes) -> str:
    """A second file in the folder."""
    match rng.choice(("index", "twin", "adapter", "pickle", "part")):
        case "index":
            name = rng.choice(("model.safetensors", "../../x", "\x1b[2J", "nowhere.safetensors", ""))
            record = rng.choice(({"weight_map": {"a": name}}, {"weight_map": [name]}, [], {"weight_map": {"a": 7}}))
            (model / "model.safetensors.index.json").write_text(json.dumps(record))
            return f"an index: {record}"
        case "twin":
            (model / "model-00002-of-00002.safetensors").write_bytes(data)
            return "its weights a second time"
        case "adapter":
            (model / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "x"}')
            (model / "adapter_model.safetensors").write_bytes(data)
            return "an adapter beside it"
        case "pickle":
            (model / "model.safetensors").rename(model / "pytorch_model.bin")
            return "a pickle"
        case _:
            (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
            return "the first part of two"


def gguf(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    path, end = copied(shelf.gguf, place / "tiny.gguf"), folders.gguf_header(shelf.gguf)
    if rng.random() < 0.05:
        what = spoil_entry(rng, path)
    else:
        data, changes = path.read_bytes(), []
        for _ in range(rng.choice((1, 1, 2))):
            data, change = spoil_bytes(rng, data, None if rng.random() < 0.2 else end)
            changes.append(change)
        path.write_bytes(data)
        what = "; ".join(changes)
    return _read(rng, what, path, shelf.gguf, place, shelf, 0.4)


def tokenizer(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    sound = shelf.model(rng.choice(("gpt2", "llama")))
    model = copied(sound, place / "model")
    path = model / rng.choice(("tokenizer.json", "tokenizer.json", "tokenizer_config.json"))
    if rng.random() < 0.1:
        path = model / rng.choice((path.name, "generation_config.json", "chat_template.jinja", "vocab.txt"))
        what = spoil_entry(rng, path)
    elif path.name == "tokenizer.json" and rng.random() < 0.05:
        text = path.read_text("utf-8")
        at = text.index('"<unk>"', text.index('"vocab"'))
        path.write_text(f'{text[:at]}"<unk>": 5, {text[at:]}', "utf-8")
        return _doubled("a word of the tokenizer twice", model)
    else:
        what = spoil_json_file(rng, path)
    if rng.random() < 0.7:
        return _read(rng, what, model, sound, place, shelf, 1)
    # The anatomy reads no tokenizer.
    return Case(what, ("anatomy", model), ("anatomy", sound), same_output(model, sound))
