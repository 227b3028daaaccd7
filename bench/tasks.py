"""Do norms alone solve what a linear map cannot? `python bench/tasks.py [SEEDS]`: XOR, parity of three bits, a circle.

Networks of two layers of width 16, with and without norm and activation; share of right answers, mean and range over
seeds, beside the most that any linear map can reach.
"""

import sys

from armillary.lab.study.small_tasks.norm_tasks import TASKS, Lesson, Network

KINDS = {
    "gelu, norm": Network("layernorm", "gelu"),
    "gelu, no norm": Network("constant", "gelu"),
    "identity, norm": Network("layernorm", "identity"),
    "identity, RMSNorm": Network("rmsnorm", "identity"),
    "identity, DyT": Network("dyt", "identity"),
    "identity, no norm": Network("constant", "identity"),
}


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    print("| network | " + " | ".join(f"{task} (linear: {best:.3f} at most)" for task, (_, _, best) in TASKS.items()))
    for name, network in KINDS.items():
        cells = []
        for task in TASKS:
            accuracies = [Lesson().accuracy(task, network, seed) for seed in range(seeds)]
            cells.append(f"{sum(accuracies) / seeds:.3f} ({min(accuracies):.3f} to {max(accuracies):.3f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
