"""The time to wrap a model that is already loaded, laws included.

    python bench/wrap.py [--rounds 9]

A 12-layer GPT-2 of width 768 with its head, random weights; wall time, median.
"""

import argparse
import json
import statistics
import time

import torch
import transformers as tr

import armillary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    model = tr.GPT2LMHeadModel(tr.GPT2Config()).eval()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        armillary.load(model, progress=False)
        times.append(time.perf_counter() - start)
    print(json.dumps({"first_s": times[0], "median_s": statistics.median(times), "worst_s": max(times)}, indent=2))


if __name__ == "__main__":
    main()
