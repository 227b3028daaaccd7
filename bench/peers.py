"""What does it cost to look at every norm of a model, beside the tools that people use for it?

    python bench/peers.py [--rounds 5] [--peers /tmp/peers/bin/python]

GPT-2-small's shape at random weights, 8 × 256 tokens, one thread, no logits; the tools take turns, each in a process of
its own. Times are medians of processor time. Memory is the peak of the first look above the process with its model
loaded. What each does:

  bare HF          the forward pass alone: what everything is measured by
  hidden states    `output_hidden_states=True`: the stream between blocks, none of the norms' outputs, nothing summed up
  TransformerLens  `run_with_cache`: every activation and attention pattern kept, nothing summed up
  nnsight          input and output of every norm saved, nothing summed up
  armillary A      lengths, covariances and samples of every norm, summed up; nothing per token is kept
  armillary A+B+C  heads and words as well

TransformerLens and nnsight run in an environment of their own, which must not bring another torch:

    python3 -m venv /tmp/peers
    /tmp/peers/bin/pip install -c constraints.txt torch==2.13.0 transformers transformer-lens nnsight

Those that are missing there are left out, and said to be.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tr

ROWS, LENGTH = 8, 256
TOKENIZER = Path(__file__).parent.parent / "src" / "armillary" / "builtin" / "gpt"
OURS = {"armillary A": "A", "armillary A+B+C": "A,B,C"}
PEERS = ("TransformerLens", "nnsight")
TOOLS = ("bare HF", "hidden states", *PEERS, *OURS)


def model() -> Any:
    torch.manual_seed(0)
    config = tr.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    return tr.GPT2LMHeadModel(config).eval()


def tokens() -> torch.Tensor:
    return torch.randint(0, 50257, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def work_of(tool: str) -> Callable[[], object]:
    """One look at the text, with everything prepared."""
    ids = tokens()
    if tool in OURS:
        return _ours(OURS[tool], ids)
    if tool == "TransformerLens":
        from transformer_lens.model_bridge import TransformerBridge

        # It wants a tokenizer, which is not used: any will do, without a network.
        words = tr.AutoTokenizer.from_pretrained(TOKENIZER)
        lens = TransformerBridge.boot_transformers("gpt2", hf_model=model(), tokenizer=words, device="cpu")
        # Up to the last block: logits are left out.
        return lambda: lens.run_with_cache(ids, stop_at_layer=12)
    base = model()
    if tool == "nnsight":
        return _nnsight(base, ids)
    return lambda: base.transformer(ids, output_hidden_states=tool == "hidden states")


def _nnsight(base: Any, ids: torch.Tensor) -> Callable[[], object]:
    from nnsight import NNsight

    traced = NNsight(base.transformer)

    def look() -> object:
        saved = []
        with traced.trace(ids):
            for block in traced.h:
                for norm in (block.ln_1, block.ln_2):
                    saved.append(norm.input.save())
                    saved.append(norm.output.save())
        return saved

    return look


def _ours(chapters: str, ids: torch.Tensor) -> Callable[[], object]:
    from armillary.anatomy.read import read
    from armillary.flow.machine.memory import keep_pages
    from armillary.flow.tokens import Corpus, Window
    from armillary.probes import choose
    from armillary.probes.machinery.shared_pass import observe

    keep_pages()
    anatomy = read(model(), "GPT-2-small's shape")
    windows = tuple(Window(number, tuple(row)) for number, row in enumerate(ids.tolist()))
    text = Corpus(windows, "random tokens", ROWS, ids.numel(), ())
    instruments = list(dict.fromkeys(i for probe in choose(chapters) for i in probe.instruments))
    return lambda: observe(anatomy, text, instruments)


def serve(tool: str) -> None:
    """A tool's process: for every line it looks once and prints seconds and the peak of memory."""
    torch.set_num_threads(1)
    with torch.no_grad():
        look = work_of(tool)
        print("ready", flush=True)
        for _ in sys.stdin:
            # From here on the peak is counted anew.
            Path("/proc/self/clear_refs").write_text("5")
            before, began = kilobytes("VmRSS"), time.process_time()
            look()
            spent = time.process_time() - began
            peak = kilobytes("VmHWM") - before
            print(json.dumps({"seconds": spent, "megabytes": peak / 1024}), flush=True)


def kilobytes(name: str) -> int:
    """Of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def started(tool: str, python: str) -> subprocess.Popen[str] | None:
    """The process of a tool; None if it cannot be had."""
    command = [python, __file__, "--serve", tool]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.strip() == "ready":
            return process
    reason = (process.stderr.read().strip().splitlines() or ["no message"])[-1]
    print(f"{tool} is left out: {reason}")
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path("/tmp/peers/bin/python"))
    parser.add_argument("--serve", choices=TOOLS)
    asked = parser.parse_args()
    if asked.serve:
        return serve(asked.serve)
    processes: dict[str, subprocess.Popen[str]] = {}
    for tool in TOOLS:
        if tool in PEERS and not asked.peers.exists():
            print(f"{tool} is left out: there is no {asked.peers}")
        elif process := started(tool, str(asked.peers) if tool in PEERS else sys.executable):
            processes[tool] = process
    by_tool: dict[str, list[dict[str, float]]] = {tool: [] for tool in processes}
    for _ in range(asked.rounds + 1):
        for tool, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            print("look", file=process.stdin, flush=True)
            record = json.loads(process.stdout.readline())
            by_tool[tool].append(record)
    # The first round warms up, and memory that is kept for the next one does not show in later ones.
    seconds = {
        tool: statistics.median(record["seconds"] for record in records[1:]) for tool, records in by_tool.items()
    }
    for tool, records in by_tool.items():
        times = f"{seconds[tool]:6.2f} s of processor time, {seconds[tool] / seconds['bare HF']:5.2f} of bare"
        print(f"{tool:17s} {times}, {records[0]['megabytes']:6.0f} MB")
    for process in processes.values():
        process.terminate()


if __name__ == "__main__":
    main()
