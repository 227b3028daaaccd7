"""What does `armillary compare` say of three real pairs? This file makes the models and writes the outputs.

    python docs/compare.py [WORK]        or `make docs-compare`

Base against fine-tuned, float32 against 4 bits, step against step; the outputs go into docs/compare.md, between two
marks. WORK keeps the models and the surveys (a temporary folder otherwise).
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, quants

import armillary
from armillary.flow.documents import sample
from armillary.flow.tokens import encode

PAGE = Path(__file__).parent / "compare.md"
BLOCK = re.compile(r"(<!-- compare (\S+) -->\n```\n)(.*?)(```\n<!-- end -->)", re.DOTALL)
STEPS, KEPT, RATE = 60, (15, 60), 3e-4
PAIRS = {
    "tuned": ("builtin:gpt", "tuned/step-60", "--quick"),
    "bits": ("builtin:llama", "bits/q4_0", "--claims", "A,B,H", "--quick"),
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
    """builtin:llama with every matrix of its blocks rounded to 4 bits as a Q4_0 GGUF does: 32 weights per scale."""
    model = armillary.load("builtin:llama", progress=False)
    kind = GGMLQuantizationType.Q4_0
    with torch.no_grad():
        for name, weight in model.model.named_parameters():
            if weight.ndim == 2 and ".layers." in name:
                rounded = quants.dequantize(quants.quantize(weight.numpy(), kind), kind)
                weight.copy_(torch.from_numpy(rounded))
    _saved(model, work / "bits/q4_0")


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
    kept = len(sys.argv) > 1
    work = Path(sys.argv[1] if kept else tempfile.mkdtemp()).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for folder, make in (("tuned", tune), ("bits", quantise)):
        if not (work / folder).exists():
            make(work)
    outputs = {name: printed(name, work) for name in PAIRS}
    text = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda m: f"{m[1]}{outputs[m[2]]}{m[4]}", text), "utf-8")
    if not kept:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
