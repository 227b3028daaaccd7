"""How often does one more untrained model pass a part 'above untrained models'? By the rule, in at most 2.5 %.

    python bench/untrained_parts.py [MODELS] [WORKERS] [--text FILE …] [--json FILE]

Surveys untrained models of two architectures with seeds that no survey's twin has, and counts for every comparison with
untrained models how often the whole interval lies above their upper end. `docs/trust.md` counts whole claims, which
several parts decide; here each part stands alone, and learned claims that are supported or qualified are listed. Models
of odd pairs have another shape than the calibration's, each its own; texts are read in turn, the sample first. Forty
seconds of CPU time per model.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from armillary.results.calibration.wilson import wilson

MEANING, AIM = "above untrained models", 0.05


def shape_of(kind: str, number: int) -> dict[str, int]:
    """The calibration's shape, or one drawn by the model's number: 2 to 6 layers, heads of 8 to 24 axes.

    >>> shape_of("gpt", 0), shape_of("gpt", 2) == shape_of("gpt", 2)
    ({}, True)
    """
    import numpy as np

    if number // 2 % 2 == 0:
        return {}
    rng = np.random.default_rng([0x5A4E, number])
    heads = int(rng.choice([4, 6, 8]))
    width = heads * int(rng.choice([8, 12, 16, 24]))
    shape = {"layers": int(rng.integers(2, 7)), "width": width, "heads": heads}
    shape["feed_forward"] = width * int(rng.integers(2, 6))
    return shape | ({"kv_heads": heads // 2} if kind == "llama" else {})


def parts_of(number: int, texts: tuple[str, ...] = ("sample",)) -> list[tuple[str, str, bool]]:
    """(claim, part, does it pass?) for every comparison of one untrained model with its five twins; and (claim,
    verdict, True) for claims that are supported or qualified."""
    # One core per model: numerical libraries read this when they are loaded.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from armillary import run
    from armillary.flow.documents import from_path, sample
    from armillary.lab.model import build
    from armillary.lab.recipe import recipe
    from armillary.probes import claims
    from armillary.specimens.untrained import SHAPES, tokenizer, untrained_seed

    torch.set_num_threads(1)
    kind = list(SHAPES)[number % len(SHAPES)]
    learned = ",".join(claim.id for claim in claims() if claim.kind == "learned")
    # Numbers of the calibration's own untrained models begin at 0.
    settings = {**SHAPES[kind], **shape_of(kind, number), "dropout": 0.0, "seed": untrained_seed(kind, 5000 + number)}
    model = build(recipe("builtin", kind, **settings)).eval()
    text = texts[number // 4 % len(texts)]
    findings = run.survey(
        model,
        sample() if text == "sample" else from_path(text),
        tokenizer=tokenizer(kind),
        claims=learned,
        tokens=2500,
        seed=5000 + number,
        progress=False,
    )
    compared = []
    for finding in findings:
        if finding.verdict in ("supported", "qualified"):
            print(f"{finding.id} is {finding.verdict} on {kind} {settings}, {text}: {finding.reading}", flush=True)
            compared.append((finding.id, f"the claim is {finding.verdict}", True))
        for limit in finding.limits:
            if limit.meaning == MEANING:
                measured = finding.statistic if limit.measured is None else limit.measured
                compared.append((finding.id, limit.part, bool(measured.low > limit.value)))
    return compared


def rows(results: list[tuple[str, str, bool]]) -> Iterator[tuple[str, int, int, float, float]]:
    """Part, passes, models, and the ends of the interval of their share."""
    number: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for claim, part, passes in results:
        name = f"{claim}: {part}" if part else claim
        number[name] += 1
        passed[name] += passes
    for name in sorted(number):
        yield name, passed[name], number[name], *wilson(passed[name], number[name])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("models", nargs="?", type=int, default=120)
    options.add_argument("workers", nargs="?", type=int, default=os.cpu_count() or 1)
    options.add_argument("--text", action="append", default=[], help="a file beside the sample")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    results: list[tuple[str, str, bool]] = []
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        work = partial(parts_of, texts=("sample", *chosen.text))
        for done, compared in enumerate(pool.map(work, range(chosen.models)), 1):
            results += compared
            if chosen.json is not None:
                chosen.json.write_text(json.dumps({"models": done, "results": results}), "utf-8")
    for name, passed, number, low, high in rows(results):
        mark = "  more than 1 in 20" if low > AIM else ""
        print(f"{name:70} {passed:3} of {number:3}  [{low:.3f}, {high:.3f}]{mark}")


if __name__ == "__main__":
    main()
