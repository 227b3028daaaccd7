"""How often does one more untrained model pass a part 'above untrained models'? By the rule, in at most 2.5 %.

    python bench/untrained_parts.py [MODELS] [WORKERS] [--json FILE]

Surveys untrained models of two architectures with seeds that no survey's twin has, and counts for every comparison with
untrained models how often the whole interval lies above their upper end. `docs/trust.md` counts whole claims, which
several parts decide; here each part stands alone. Forty seconds of CPU time per model.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from armillary.results.calibration.wilson import wilson

MEANING, AIM = "above untrained models", 0.05


def parts_of(number: int) -> list[tuple[str, str, bool]]:
    """(claim, part, does it pass?) for every comparison of one untrained model with its five twins."""
    # One core per model: numerical libraries read this when they are loaded.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from armillary import run
    from armillary.probes import claims
    from armillary.specimens.untrained import SHAPES, tokenizer, untrained

    torch.set_num_threads(1)
    kind = list(SHAPES)[number % len(SHAPES)]
    learned = ",".join(claim.id for claim in claims() if claim.kind == "learned")
    # Numbers of the calibration's own untrained models begin at 0.
    model = untrained(kind, 5000 + number)
    findings = run.survey(
        model, tokenizer=tokenizer(kind), claims=learned, tokens=2500, seed=5000 + number, progress=False
    )
    compared = []
    for finding in findings:
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
    for name in number:
        yield name, passed[name], number[name], *wilson(passed[name], number[name])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("models", nargs="?", type=int, default=120)
    options.add_argument("workers", nargs="?", type=int, default=os.cpu_count() or 1)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    results: list[tuple[str, str, bool]] = []
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        for done, compared in enumerate(pool.map(parts_of, range(chosen.models)), 1):
            results += compared
            if chosen.json is not None:
                chosen.json.write_text(json.dumps({"models": done, "results": results}), "utf-8")
    for name, passed, number, low, high in rows(results):
        mark = "  more than 1 in 20" if low > AIM else ""
        print(f"{name:70} {passed:3} of {number:3}  [{low:.3f}, {high:.3f}]{mark}")


if __name__ == "__main__":
    main()
