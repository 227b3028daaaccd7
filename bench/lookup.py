"""Can overlapping heads win at all? Accuracy on a lookup task by kind of heads, over seeds.

    python bench/lookup.py [SEEDS]

Writes a table to standard output. docs/lab.md shows it.
"""

import sys
from statistics import fmean

import torch

from armillary.lab.study.small_tasks.lookup_task import LookupTask

ARMS = {
    "ordinary heads": ("block", None),
    "triangular": ("triangular", None),
    "raised sine": ("raised sine", None),
    "learned membership": ("learned", None),
    "free": ("free", None),
    "talking heads": ("mixing", "mixing"),
    "collaborative": ("free", "block"),
    "random membership": ("random", None),
}


def main(seeds: int) -> None:
    torch.set_num_threads(1)
    task = LookupTask()
    k = task.width // task.heads
    print(f"| {task.heads} heads of width {k} | right answers, mean of {seeds} | lowest | highest |")
    print("|---|---|---|---|")
    for name, (membership, results) in ARMS.items():
        accuracies = [task.accuracy(membership, results, seed) for seed in range(seeds)]
        print(f"| {name} | {fmean(accuracies):.3f} | {min(accuracies):.3f} | {max(accuracies):.3f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
