"""Which arms of several studies does a piece of GPU time finish? `python bench/piece.py --out DIR STUDY[/SIZE]:ARM …`

Workers take arms from one list, in order, so that no GPU waits for the last arm of a study. Text is read once; every
study keeps its own folder under --out and goes on from the runs in --known, where runs of the same model are taken
over. A kill loses the runs under way and nothing else. `--mps` shares the GPU through NVIDIA's MPS where that works.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from armillary.lab import data
from armillary.lab.study.arms import arms_of
from armillary.lab.study.queue import MANIFEST, RUNS, Study

BEGAN = time.time()
PROBE = "import torch; x = torch.ones(64, 64, device='cuda'); print(float((x @ x).sum()))"


def say(line: str) -> None:
    print(f"{time.time() - BEGAN:6.1f} s  {line}", flush=True)


def worker(tasks: Any, index: int) -> None:
    """Imports while the text is read, then trains arms until there are none."""
    import torch

    import armillary.lab.study.arm_training  # noqa: F401

    torch.set_num_threads(1)
    while (task := tasks.get()) is not None:
        environment, study, arm = task
        os.environ.update(environment)
        study.report = lambda line: say(f"[{index}] {line}")
        try:
            study.run_arm(arm)
        except Exception:
            say(f"[{index}] {study.name}:{arm.name} failed\n{traceback.format_exc()}")
    say(f"[{index}] nothing left")


def shared_gpu() -> dict[str, str]:
    """What makes a process use MPS; empty where it does not start or does not compute."""
    folder = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps-log"}
    for path in folder.values():
        Path(path).mkdir(exist_ok=True)
    environment = {**os.environ, **folder}
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, timeout=15, check=True)
        subprocess.run([sys.executable, "-c", PROBE], env=environment, timeout=45, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"no MPS: {error}")
        subprocess.run("echo quit | nvidia-cuda-mps-control", shell=True, env=environment, timeout=15, check=False)
        return {}
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+", help="study:arm, study/size:arm or study:arm@seeds, in order")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, default=Path("docs/lab"))
    parser.add_argument("--text")
    parser.add_argument("--heldout")
    parser.add_argument("--tokens", type=Path, help="in place of both: a tar of the tokens of an earlier piece")
    parser.add_argument("--size", default="xs", help="of studies that name none")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--tokenizer", type=Path, help="a bpe.json that was trained on the same text before")
    parser.add_argument("--after", type=Path, help="a file that must exist before the first arm")
    parser.add_argument("--survey", action="store_true", help="at the end, survey the end states that were kept")
    asked = parser.parse_args()
    context = get_context("spawn")
    tasks: Any = context.Queue()
    workers = [context.Process(target=worker, args=(tasks, index), daemon=True) for index in range(asked.jobs)]
    for process in workers:
        process.start()
    environment = shared_gpu() if asked.mps else {}
    text = unpacked(asked.tokens, asked.out) if asked.tokens else data.Text.of(asked.text, asked.heldout)
    if asked.tokenizer is not None:
        data.train_tokenizer = lambda text, vocabulary: Tokenizer.from_file(str(asked.tokenizer))
    say(f"text read, {text.size} bytes")
    studies: dict[tuple[str, str], Study] = {}
    wanted = []
    for study, size, name, seeds in (parts(arm, asked) for arm in asked.arms):
        if (study, size) not in studies:
            studies[study, size] = prepared(study, size, text, asked)
        chosen = replace(studies[study, size], seeds=seeds, shared=asked.jobs > 1)
        wanted.append((environment, chosen, next(arm for arm in arms_of(study) if arm.name == name)))
    say(f"tokens are ready, {digest(asked.out / 'tokens')}")
    while asked.after is not None and not asked.after.exists():
        time.sleep(0.5)
    for task in [*wanted, *(None for _ in workers)]:
        tasks.put(task)
    for process in workers:
        process.join()
    for study in studies.values() if asked.survey else ():
        survey_kept(study)


def parts(arm: str, asked: argparse.Namespace) -> tuple[str, str, str, int]:
    """Study, size, arm and seeds of 'norms/xs-scarce:sphere@8'."""
    study, _, name = arm.partition(":")
    study, _, size = study.partition("/")
    name, _, seeds = name.partition("@")
    return study, size or asked.size, name, int(seeds or asked.seeds)


def survey_kept(study: Study) -> None:
    """The geometry of the end states of a study, beside its runs."""
    from armillary.laboratory import survey_states

    try:
        survey_states(study.out, say)
    except Exception:
        say(f"{study.out.name}: end states were not surveyed\n{traceback.format_exc()}")


def unpacked(archive: Path, out: Path) -> data.Text:
    """A text that was cut before: its tokens are put where a study looks for them, and nothing is read."""
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(out, filter="data")
    done = json.loads((out / "tokens" / "done.json").read_text("utf-8"))
    return data.Text(Path("unread"), None, 0, done["sha256"])


def digest(tokens: Path) -> str:
    """Whether two machines cut the text alike."""
    digests = hashlib.sha256()
    for path in sorted(tokens.glob("*.u16")):
        digests.update(path.read_bytes())
    return digests.hexdigest()[:16]


def prepared(name: str, size: str, text: data.Text, asked: argparse.Namespace) -> Study:
    """The study's folder with the runs that it has, and tokens that all studies share."""
    from armillary.lab.study.arm_training import recipe_of

    folder = name if size == "xs" else f"{name}-{size}"
    out, tokens = asked.out / folder, asked.out / "tokens"
    out.mkdir(parents=True, exist_ok=True)
    for file in (MANIFEST, RUNS):
        if (asked.known / folder / file).exists() and not (out / file).exists():
            shutil.copy(asked.known / folder / file, out / file)
    study = Study(name, size, text, out, asked.seeds, asked.device, say, (asked.known,))
    study._claim()
    data.prepare(recipe_of(study.shape, 0), text, tokens)
    if not (out / "tokens").exists():
        (out / "tokens").symlink_to(tokens.resolve())
    return study


if __name__ == "__main__":
    main()
