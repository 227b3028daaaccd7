"""Models on disk as users have them: tiny folders in the hub's layout, a tiny GGUF, and ways to spoil them."""

import hashlib
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers as tr
from filelock import FileLock
from safetensors.torch import load_file, save_file
from tiny import tiny
from tokenizers import Tokenizer, models, pre_tokenizers

from armillary.anatomy.loading.cache import Wheel
from armillary.flow.documents import sample
from armillary.specimens.models.perturbed import perturb

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
CONTEXT = 64
LETTERS = "etaoinshrdlcumwfgypbvk"


def once(shelf: Path, name: str, make: Callable[[Path], Any]) -> Path:
    """A thing on the shelf that all workers share, made by the first who asks."""
    path, marker = shelf / name, shelf / f"{name}.made"
    with FileLock(shelf / f"{name}.lock"):
        if not marker.exists():
            make(path)
            marker.touch()
    return path


def tokenizer(vocabulary: int = 97) -> tr.PreTrainedTokenizerFast:
    """Byte pairs one level deep: the package's own prose gives the commonest letters and pairs of letters.

    Counted here, not by a trainer: those break ties differently from run to run.
    """
    tokens, merges = _vocabulary(vocabulary)
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(merges), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


@cache
def _vocabulary(size: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Its tokens and its merges; counting takes longer than all else."""
    words = " ".join(sample().texts).split()
    letters = _commonest(Counter(letter for word in words for letter in word), 60)
    pairs = Counter(pair for word in words for pair in pairwise(word) if set(pair) <= set(letters))
    merges = _commonest(pairs, size - len(SPECIAL) - len(letters))
    return (*SPECIAL.values(), *letters, *("".join(pair) for pair in merges)), tuple(merges)


def _commonest(counts: Counter[Any], most: int) -> list[Any]:
    return sorted(counts, key=lambda key: (-counts[key], key))[:most]


def model_folder(name: str, folder: Path) -> Path:
    """A tiny model with its tokenizer: config.json, model.safetensors, tokenizer.json."""
    tiny(name).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def text_file(path: Path) -> Path:
    """Sixteen documents between separators: twelve longer than the context, two short, two of one token."""
    long = [text[:180] for text in list(sample().texts)[:12]]
    path.write_text("\n---\n".join([*long, "a short one", "e", "another short one", "t"]), "utf-8")
    return path


def spoilt(folder: Path, target: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(folder, target))


def change_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    return folder


def change_weights(folder: Path, **changes: Any) -> Path:
    """Weights replaced by name; None takes one away. Dots in names are written __."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    for name, value in changes.items():
        name = name.replace("__", ".")
        assert name in weights, sorted(weights)
        if value is None:
            del weights[name]
        else:
            weights[name] = value(weights[name])
    save_file(weights, path, metadata={"format": "pt"})
    return folder


_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GGUF_OUTSIDE = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}


GGUF_TOKENS = ["<unk>", "<s>", "</s>", *LETTERS, "th", "he"]


def gguf_weights() -> dict[str, torch.Tensor]:
    """The weights of a Llama of one layer, the same every time."""
    config = tr.LlamaConfig(
        vocab_size=len(GGUF_TOKENS),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return perturb(tr.LlamaForCausalLM(config)).state_dict()


def gguf_file(path: Path) -> None:
    """That Llama as llama.cpp would write it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    writer.add_feed_forward_length(24)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(4)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(GGUF_TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(GGUF_TOKENS)
    writer.add_token_types([3] * 3 + [1] * (len(GGUF_TOKENS) - 3))
    writer.add_token_merges(["t h", "h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in gguf_weights().items():
        module = name.removesuffix(".weight")
        if module in _GGUF_OUTSIDE:
            place = _GGUF_OUTSIDE[module]
        else:
            _, _, layer, part = module.split(".", 3)
            place = f"blk.{layer}.{_GGUF_NAMES[part]}"
        heads = {"q_proj": 4, "k_proj": 2}.get(module.rsplit(".", 1)[-1])
        writer.add_tensor(f"{place}.weight", _dealt(tensor.numpy(), heads) if heads else tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _dealt(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp pairs neighbouring coordinates for RoPE where Hugging Face pairs halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def gguf_header(path: Path) -> int:
    """Where the header ends and the weights begin."""
    return int(gguf.GGUFReader(path).data_offset)


def wheel_file(path: Path, name: str, inside: str, files: dict[str, bytes], sha256: str = "") -> Wheel:
    """A wheel that carries a model, and the entry that knows it."""
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)
    digest = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(name, "tiny-wheel", "1.0", inside, digest, 1, "a tiny one")


class Pip:
    """`subprocess.Popen` for a `pip download` that brings this file, or fails saying why."""

    def __init__(self, brings: Path | None, says: str = "") -> None:
        self.brings, self.says, self.commands = brings, says, []

    def __call__(self, command: list[str], **options: Any) -> "Pip":
        self.commands.append(command)
        if self.brings is not None:
            shutil.copy(self.brings, command[command.index("--dest") + 1])
        self.returncode = 0 if self.brings is not None else 1
        return self

    def communicate(self) -> tuple[None, str]:
        return None, self.says

    def poll(self) -> int:
        return self.returncode
