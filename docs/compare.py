"""What does `armillary compare` say of three real pairs? This file makes the models and writes the outputs.

    python docs/compare.py [WORK]        or `make docs-compare`

Base against fine-tuned, float32 against a 4-bit GGUF, step against step; the outputs go into docs/compare.md,
between two marks. WORK keeps the models and the surveys (a temporary folder otherwise).
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quants

import armillary
from armillary.flow.documents import sample
from armillary.flow.tokens import encode

PAGE = Path(__file__).parent / "compare.md"
BLOCK = re.compile(r"(<!-- compare (\S+) -->\n```\n)(.*?)(```\n<!-- end -->)", re.DOTALL)
STEPS, KEPT, RATE = 60, (15, 60), 3e-4
PAIRS = {
    "tuned": ("builtin:gpt", "tuned/step-60", "--quick"),
    "bits": ("builtin:llama", "bits/q4_0.gguf", "--claims", "A,B,H", "--quick"),
    "steps": ("tuned/step-15", "tuned/step-60", "--claims", "A,C", "--quick"),
}


def tune(work: Path) -> None:
    """builtin:gpt trained further on the recipes, letters and manuals of the sample; two checkpoints are kept."""
    model = armillary.load("builtin:gpt", progress=False)
    texts = [text for text in sample().texts if len(text) > 400][:30]
    corpus = encode(type(sample())("tuning", tuple(texts)), model.tokenizer, model.context, 20_000)
    optimiser = torch.optim.AdamW(model.model.parameters(), RATE)
    batches = list(corpus.batches(1024))
    torch.manual_seed(0)
    model.model.train()
    for step in range(1, STEPS + 1):
        batch = batches[step % len(batches)]
        labels = batch.ids.masked_fill(~batch.mask, -100)
        loss = model.model(input_ids=batch.ids, attention_mask=batch.mask.long(), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step in KEPT:
            _saved(model, work / f"tuned/step-{step}")


def quantise(work: Path) -> None:
    """builtin:llama as a GGUF file: matrices of the blocks in 4 bits (Q4_0: 32 weights per scale), the rest in float32.

    The file is what llama.cpp would read; the command reads it as it reads any GGUF.
    """
    model = armillary.load("builtin:llama", progress=False)
    work = work / "bits"
    work.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(work / "q4_0.gguf", "llama")
    _describe(writer, model.model.config, json.loads(model.tokenizer.backend_tokenizer.to_str()))
    config = model.model.config
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.model.named_parameters():
        values = weight.detach().float().numpy()
        part = name.split(".")[-2]
        if part in heads:
            # llama.cpp pairs neighbouring coordinates for RoPE where Hugging Face pairs halves.
            halves = values.reshape(heads[part], 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        kind = GGMLQuantizationType.Q4_0 if values.ndim == 2 and ".layers." in name else GGMLQuantizationType.F32
        place = names.get_name(name, try_suffixes=(".weight",))
        writer.add_tensor(place, quants.quantize(values, kind), raw_dtype=kind)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()


def _describe(writer: GGUFWriter, config: Any, tokenizer: Any) -> None:
    """The header: sizes, and the tokenizer's words and merges."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    words = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {entry["content"] for entry in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([3 if word in special else 1 for word in words])
    writer.add_token_merges(
        [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    )
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_add_bos_token(False)


def _saved(model: Any, folder: Path) -> None:
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def printed(name: str, work: Path) -> str:
    """What the command prints for a pair."""
    a, b, *options = PAIRS[name]
    command = [sys.executable, "-m", "armillary", "compare", a, b, *options, "--out", f"surveys/{name}"]
    done = subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main() -> None:
    torch.set_num_threads(1)
    named = len(sys.argv) > 1
    work = Path(sys.argv[1] if named else tempfile.mkdtemp()).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for folder, make in (("tuned", tune), ("bits", quantise)):
        if not (work / folder).exists():
            make(work)
    outputs = {name: printed(name, work) for name in PAIRS}
    text = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda m: f"{m[1]}{outputs[m[2]]}{m[4]}", text), "utf-8")
    if not named:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
