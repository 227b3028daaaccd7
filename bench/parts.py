"""What does each part cost, beside LayerNorm and PyTorch's attention?

    python bench/parts.py [--sizes xs,s] [--jobs 8] [--seconds 85] [--out parts.json]

Forward and backward of the part alone, on as many tokens as a training step has: on a GPU compiled, attention in
bfloat16 and norms in float32, as they are in training; on a CPU as it is, at size smoke. Compiling is the slow half, so
parts are shared out to processes, which build side by side. What is not built after two thirds of the seconds is
left out and named. Then one process at a time has the GPU: it times each of its parts and the reference in turn, by
events of the GPU, behind work that keeps it busy until all is launched, and with its cache filled by other data; ratios
are medians over rounds. A step of the plain model is built and timed too: what a part adds to a step is (its time − the
reference's) × how often the model has it. Alone, a part cannot be fused with its neighbours, so the share of a step is
too large for parts that are plain arithmetic.
"""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import BrokenBarrierError
from typing import Any

import torch
from torch import Tensor, nn

from armillary.lab.parts import Membership, MembershipAttention, ScoredAttention, new_norm
from armillary.lab.study.arm_training import ArmTrainer, allow_compiling
from armillary.lab.study.arms import PLAIN
from armillary.lab.study.design import SIZES, Size

ROUNDS, WARM, BUILD = 11, 3, 2 / 3
# Calls that are launched at once, and the GPU's clock cycles of doing nothing before them: about 15 ms.
CALLS, IDLE = 3, 30_000_000
# Larger than the cache of the GPU, 50 MB.
CACHE = 1 << 28
NORM, HEADS = "norm", "heads"
LAYERNORM, SDPA, STEP = "LayerNorm", "SDPA", "step"
NORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rmsnorm": ("rmsnorm", {}),
    "sphere": ("sphere", {}),
    "dyt": ("dyt", {}),
    "derf": ("derf", {}),
    "per-head": ("per-head", {"blocks": 0}),
    "subset": ("subset", {"share": 0.25}),
    "symmetriser ring": ("symmetriser", {"messages": "ring", "blocks": 0}),
    "symmetriser learned": ("symmetriser", {"messages": "learned", "blocks": 0}),
}
MEMBERSHIPS = ("block", "triangular", "learned", "mixing")
SCORES = ("cosine", "distance", "angle")
Call = Callable[[], None]


@dataclass(frozen=True)
class Part:
    """One part at one size; the kind says which reference it is compared with."""

    kind: str
    name: str
    size: str

    @property
    def reference(self) -> "Part":
        return Part(self.kind, LAYERNORM if self.kind == NORM else SDPA, self.size)

    @property
    def label(self) -> str:
        return f"{self.kind}: {self.name}, {self.size}"


class Sdpa(nn.Module):
    """PyTorch's own attention of q, k, v [b, t, d]."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        split = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        return nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(-2)


def module(part: Part, size: Size) -> nn.Module:
    if part.kind == NORM:
        if part.name == LAYERNORM:
            return nn.LayerNorm(size.width)
        name, settings = NORMS[part.name]
        return new_norm(name, size.width, **settings | ({"blocks": size.heads} if "blocks" in settings else {}))
    if part.name == SDPA:
        return Sdpa(size.heads)
    if part.name in SCORES:
        return ScoredAttention(part.name, size.heads, size.width)  # type: ignore[arg-type]
    return MembershipAttention(Membership(part.name, size.heads, size.width))


def call_of(part: Part, device: str) -> Call:
    """Forward and backward of a part, or a whole step of the plain model."""
    size, half = SIZES[part.size], device == "cuda"
    draws = torch.Generator().manual_seed(0)
    if part.name == STEP:
        # Steps get their windows from here: no text is read.
        trainer = ArmTrainer(PLAIN, size, None, device)  # type: ignore[arg-type]
        rows = torch.randint(0, size.vocabulary, (size.batch, size.context + 1), generator=draws).to(device)
        optimizer = trainer.optimizer(1e-4)
        return lambda: trainer.step(rows, optimizer)
    built = module(part, size).to(device)
    dtype = torch.bfloat16 if half and part.kind == HEADS else torch.float32
    inputs = [
        torch.randn(size.batch, size.context, size.width, generator=draws).to(device, dtype).requires_grad_()
        for _ in range(1 if part.kind == NORM else 3)
    ]
    back = torch.randn(size.batch, size.context, size.width, generator=draws).to(device, dtype)
    wanted = [*inputs, *built.parameters()]
    forward = torch.compile(built, dynamic=False) if half else built

    def call() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            out = forward(*inputs)
        torch.autograd.grad(out, wanted, back.to(out.dtype))

    return call


def milliseconds(call: Call, device: str) -> float:
    if device != "cuda":
        began = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - began)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(CALLS)]
    other = torch.empty(CACHE, dtype=torch.uint8, device=device)
    torch.cuda._sleep(IDLE)
    for start, end in events:
        other.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return median(float(start.elapsed_time(end)) for start, end in events)


def build(parts: Sequence[Part], device: str, until: float) -> tuple[dict[Part, Call], dict[str, Any]]:
    """Each part with its reference, warm; and why a part is missing."""
    ready: dict[Part, Call] = {}
    facts: dict[str, Any] = {}
    for part in parts:
        for wanted in dict.fromkeys((part.reference, part)) if part.name != STEP else (part,):
            if wanted in ready:
                continue
            if time.time() > until:
                facts[part.label] = {"left_out": "no time left to build it"}
                break
            began = time.time()
            try:
                call = call_of(wanted, device)
                for _ in range(WARM):
                    call()
                settle(device)
            except Exception as error:  # one part that does not compile must not cost the others
                facts[part.label] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
                break
            ready[wanted] = call
            print(f"{wanted.label}: built in {time.time() - began:.1f} s", flush=True)
    return ready, facts


def timed(part: Part, ready: dict[Part, Call], device: str, rounds: int) -> dict[str, Any]:
    """Medians over rounds in which part and reference take turns."""
    calls = [ready[part]] if part.name == STEP else [ready[part], ready[part.reference]]
    rows = [[milliseconds(call, device) for call in calls] for _ in range(rounds)]
    facts: dict[str, Any] = {"ms": median(row[0] for row in rows), "rounds": rounds}
    if part.name != STEP:
        ratios = sorted(ours / theirs for ours, theirs in rows)
        facts |= {"reference_ms": median(row[1] for row in rows), "ratio": median(ratios)}
        facts["ratio_quartiles"] = [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]]
    return facts


def settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def worker(parts: Sequence[Part], device: str, until: float, rounds: int, built: Any, alone: Any, answers: Any) -> None:
    """Builds its parts beside the other workers, waits for them, and times alone."""
    torch.set_num_threads(1)
    facts: dict[str, Any] = {}
    ready: dict[Part, Call] = {}
    try:
        if device == "cuda":
            allow_compiling()
        ready, facts = build(parts, device, until)
    finally:
        # Without a worker that died, the others go on.
        with contextlib.suppress(BrokenBarrierError):
            built.wait()
    with alone:
        for part in parts:
            if part.label not in facts:
                facts[part.label] = timed(part, ready, device, rounds)
    answers.put(facts)


def chosen(sizes: Sequence[str]) -> list[Part]:
    """The step first, because it takes longest to compile."""
    steps = [Part(STEP, STEP, sizes[0])]
    norms = [Part(NORM, name, size) for size in sizes for name in NORMS]
    heads = [Part(HEADS, name, size) for size in sizes for name in (*MEMBERSHIPS, *SCORES)]
    return [*steps, *norms, *heads]


def shared_out(parts: Sequence[Part], jobs: int) -> list[list[Part]]:
    """The step has a worker of its own; a worker's other parts have few references."""
    if jobs == 1:
        return [list(parts)]
    others, count = parts[1:], max(1, jobs - 1)
    each = -(-len(others) // count)
    return [[parts[0]], *(list(others[i : i + each]) for i in range(0, len(others), each))]


def with_shares(facts: dict[str, Any], parts: Sequence[Part]) -> None:
    """What a part adds to a step of the plain model, as a share of that step."""
    step = next((part for part in parts if part.name == STEP), None)
    whole = facts.get(step.label, {}).get("ms") if step else None
    for part in parts:
        fact = facts[part.label]
        if step and whole and part.size == step.size and "reference_ms" in fact:
            layers = SIZES[part.size].layers
            times = 2 * layers + 1 if part.kind == NORM else layers
            fact["added_share_of_step"] = times * (fact["ms"] - fact["reference_ms"]) / whole


def shown(facts: dict[str, Any], parts: Sequence[Part]) -> None:
    for part in parts:
        fact = facts[part.label]
        if "ms" not in fact:
            print(f"{part.label:<40} {fact}")
            continue
        ratio = f"{fact['ratio']:7.2f} × {part.reference.name}" if "ratio" in fact else ""
        share = f"{100 * fact['added_share_of_step']:+7.1f} % of a step" if "added_share_of_step" in fact else ""
        print(f"{part.label:<40} {fact['ms']:9.3f} ms {ratio} {share}")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", default=None, help="the first one's step is timed, too")
    asked.add_argument("--only", default="", help="names of parts, separated by semicolons")
    asked.add_argument("--jobs", type=int, default=8)
    asked.add_argument("--rounds", type=int, default=ROUNDS)
    asked.add_argument("--seconds", type=float, default=85.0)
    asked.add_argument("--out", type=Path, default=Path("parts.json"))
    how = asked.parse_args()
    began = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = (how.sizes or ("xs,s" if device == "cuda" else "smoke")).split(",")
    if wrong := [name for name in sizes if name not in SIZES]:
        raise SystemExit(f"there is no size {wrong[0]!r}; known: {', '.join(SIZES)}.")
    only = set(filter(None, how.only.split(";")))
    parts = [part for part in chosen(sizes) if not only or part.name in only or part.name == STEP]
    # Small graphs: a pool of compiling processes in every process would take longer to start than it saves.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    facts = measured(parts, device, began + BUILD * how.seconds, how)
    with_shares(facts, parts)
    shown(facts, parts)
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    record = {"machine": machine, "torch": torch.__version__, "compiled": device == "cuda"}
    record |= {"seconds": round(time.time() - began, 1)}
    how.out.write_text(json.dumps({**record, "parts": facts}, indent=1) + "\n", "utf-8")


def measured(parts: Sequence[Part], device: str, until: float, how: argparse.Namespace) -> dict[str, Any]:
    """Facts of all parts by label; those of a worker that died say so."""
    context = get_context("spawn")
    tasks = shared_out(parts, how.jobs)
    alone, answers = context.Lock(), context.Queue()
    built = context.Barrier(len(tasks), timeout=max(5.0, how.seconds))
    workers = [
        context.Process(target=worker, args=(task, device, until, how.rounds, built, alone, answers)) for task in tasks
    ]
    for process in workers:
        process.start()
    facts: dict[str, Any] = {}
    while any(process.is_alive() for process in workers) or not answers.empty():
        if answers.empty():
            time.sleep(0.05)
            continue
        facts |= answers.get()
    return {part.label: facts.get(part.label, {"error": "its process ended"}) for part in parts}


if __name__ == "__main__":
    main()
