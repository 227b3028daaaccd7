"""What does each part cost in a training step, beside LayerNorm and PyTorch's attention?

    python bench/parts.py [--parts norms,heads,scores,activations] [--size xs] [--seconds 240] [--out parts.json]

On a GPU the model is compiled and computes in bfloat16; on a CPU it runs as it is, at size cpu. Arms are built and
compiled one after the other until half of the seconds are spent, and those left are named. Then rounds go over all arms
in turn, so that a slow moment of the machine falls on all of them. Ratios are medians over rounds of an arm's time over
the reference's in the same round.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from armillary.lab.study.arm_training import ArmTrainer
from armillary.lab.study.arms import ACTIVATIONS, METRIC, NORMS, PLAIN, SOFT_HEADS
from armillary.lab.study.design import SIZES, Arm, Size

PARTS = {"norms": NORMS, "heads": SOFT_HEADS, "scores": METRIC, "activations": ACTIVATIONS}
RATE, WARM, LEAST_ROUNDS, MOST_ROUNDS = 1e-4, 3, 5, 40
NAMES_AND_RATES = (
    "name",
    "prediction",
    "tuned_as",
    "rates",
    "gain_rate",
    "norm_rate",
    "embedding_scale",
    "attention_scale",
)
REFERENCE = "layernorm, SDPA"


def chosen(parts: str) -> Iterator[tuple[str, Arm]]:
    """The plain model, then every arm of the parts that is another model."""
    yield REFERENCE, PLAIN
    seen = {_built(PLAIN)}
    for part in parts.split(","):
        if part not in PARTS:
            raise SystemExit(f"there is no part {part!r}; known: {', '.join(PARTS)}.")
        for arm in PARTS[part]:
            if _built(arm) not in seen:
                seen.add(_built(arm))
                yield f"{part}: {arm.name}", arm


def _built(arm: Arm) -> str:
    """What the model's computation depends on: everything but names and rates."""
    return repr({name: value for name, value in asdict(arm).items() if name not in NAMES_AND_RATES})


def stepper(arm: Arm, size: Size, device: str) -> tuple[ArmTrainer, Callable[[int], float]]:
    """A trainer, and a function that makes some steps and returns the seconds of each."""
    # Steps get their windows from here: no text is read.
    trainer = ArmTrainer(arm, size, None, device)  # type: ignore[arg-type]
    optimizer = trainer.optimizer(RATE)
    draws = torch.Generator().manual_seed(0)
    rows = torch.randint(0, size.vocabulary, (size.batch, size.context + 1), generator=draws).to(device)

    def steps(count: int) -> float:
        settle(device)
        began = time.perf_counter()
        for _ in range(count):
            trainer.step(rows, optimizer)
        settle(device)
        return (time.perf_counter() - began) / count

    return trainer, steps


def settle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def built(arms: list[tuple[str, Arm]], size: Size, device: str, until: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Steppers by name, and what is known of every arm so far: parameters, FLOPs, or why it is not timed."""
    ready: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for name, arm in arms:
        if time.perf_counter() > until and ready:
            facts[name] = {"left_out": "no time left to build it"}
            continue
        began = time.perf_counter()
        try:
            trainer, steps = stepper(arm, size, device)
            steps(WARM)
        except Exception as error:  # one arm that does not compile must not cost the others
            facts[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            continue
        ready[name] = steps
        facts[name] = {"parameters": trainer.parameters, "flops_per_token": trainer.flops}
        facts[name]["build_seconds"] = round(time.perf_counter() - began, 2)
        print(f"{name}: built in {facts[name]['build_seconds']} s", flush=True)
    return ready, facts


def timed(ready: dict[str, Any], until: float, count: int) -> dict[str, list[float]]:
    """Seconds per step of every arm in every round; each round begins with another arm."""
    names, found = list(ready), {name: [] for name in ready}
    for number in range(MOST_ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() > until:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(ready[name](count))
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--parts", default=",".join(PARTS))
    asked.add_argument("--only", default="", help="names of arms, separated by semicolons; all of the parts by default")
    asked.add_argument("--size", default=None, choices=SIZES)
    asked.add_argument("--seconds", type=float, default=240.0)
    asked.add_argument("--out", type=Path, default=Path("parts.json"))
    how = asked.parse_args()
    began = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = SIZES[how.size or ("xs" if device == "cuda" else "cpu")]
    only = set(filter(None, how.only.split(";")))
    arms = [(name, arm) for name, arm in chosen(how.parts) if not only or name == REFERENCE or arm.name in only]
    ready, facts = built(arms, size, device, began + how.seconds / 2)
    if REFERENCE not in ready:
        raise SystemExit(f"the reference cannot be timed: {facts[REFERENCE]}")
    found = timed(ready, began + how.seconds, 10 if device == "cuda" else 2)
    base = found[REFERENCE]
    for name, seconds in found.items():
        ratios = sorted(ours / theirs for ours, theirs in zip(seconds, base, strict=True))
        facts[name] |= {"step_ms": 1000 * median(seconds), "ratio": median(ratios), "rounds": len(seconds)}
        facts[name]["ratio_quartiles"] = [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]]
        print(f"{name:<36} {facts[name]['step_ms']:9.3f} ms  {facts[name]['ratio']:.3f} of the reference")
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    record = {"machine": machine, "torch": torch.__version__, "size": size.name, "compiled": device == "cuda"}
    record |= {"tokens_per_step": size.batch * size.context, "seconds": round(time.perf_counter() - began, 1)}
    how.out.write_text(json.dumps({**record, "arms": facts}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
