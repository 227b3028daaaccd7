"""Can a Symmetriser learn a norm, and what does a model lose whose norms it replaces?

    python bench/mimic.py [SEEDS]

Writes two tables to standard output, which docs/lab/mimic.md shows: errors of Symmetrisers that began at random and
learned LayerNorm on Gaussian vectors, and losses of the built-in models with learned Symmetrisers in place of norms.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import armillary
from armillary.flow.passages import losses, passages
from armillary.lab.parts.mimic import (
    Lessons,
    Target,
    errors,
    gaussian,
    imitate,
    mimicked,
    mimics,
    rows_of,
    standard,
    states_of,
    teach,
    transferred,
)
from armillary.lab.parts.swap import swap
from armillary.lab.parts.symmetriser import Symmetriser, operations
from armillary.results.numbers import interval

BLOCKS, EPS, ROWS = 8, 1e-5, 4000
KINDS: dict[str, dict[str, Any]] = {
    "none": {"messages": "none"},
    "ring": {"messages": "ring"},
    "ring, 4 rounds": {"messages": "ring", "rounds": 4},
    "ring, misaligned": {"messages": "ring", "aligned": False},
    "subset": {"messages": "subset"},
    "all": {"messages": "all"},
    "learned": {"messages": "learned"},
}
IN_MODELS = ("none", "ring", "ring, misaligned", "subset", "all", "learned")
MODELS = ("builtin:gpt", "builtin:llama")
LAYERWISE = Lessons(steps=120)
TUNING = Lessons(steps=40, rate=1e-2)


class Unreduced(Symmetriser):
    """The control: the same recurrence without range reduction."""

    def inverse_root(self, variance: Tensor) -> Tensor:
        y = self.start[0] + self.start[1] * variance
        for a, b in self.newton:
            y = y * (a - b * variance * y.square())
        return y


def with_interval(values: list[float], factors: bool = False) -> str:
    """Mean and its 95 % t interval over seeds; of logarithms, if seeds differ by `factors`."""
    numbers = np.array(values)
    if not np.isfinite(numbers).all():
        return f"not finite in {int((~np.isfinite(numbers)).sum())} of {len(numbers)}"
    numbers = np.log(numbers) if factors else numbers
    half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers) if len(numbers) > 1 else np.nan
    ends = np.array([numbers.mean(), numbers.mean() - half, numbers.mean() + half])
    value, low, high = np.exp(ends) if factors else ends
    return interval(float(value), float(low), float(high))


def tests_of(width: int, real: Tensor) -> dict[str, Tensor]:
    """Rows to be tested on, none of which was trained on."""
    draws = torch.Generator().manual_seed(10**6)
    plain = gaussian(width)(ROWS, draws)
    massive = plain.clone()
    massive[:, 7] *= 1000
    tails = torch.from_numpy(np.random.default_rng(0).standard_t(2, (ROWS, width))).float()
    lessons = Lessons()
    return {
        "Gaussian, six decades": lessons.scaled(plain, draws),
        "eighteen decades": Lessons(decades=18.0).scaled(plain, draws),
        "heavy tails": lessons.scaled(tails, draws),
        "one massive axis": lessons.scaled(massive, draws),
        "a model's states": lessons.scaled(rows_of(real)(ROWS, draws), draws),
    }


def learned_on_gaussians(seeds: int, real: Tensor) -> None:
    width = real.shape[1]
    tests, target = tests_of(width, real), standard(True, EPS)
    print(f"| messages of {BLOCKS} blocks | " + " | ".join(tests) + " | width 64 | parameters | operations |")
    print("|---" * (len(tests) + 4) + "|")
    narrow = gaussian(64)(ROWS, torch.Generator().manual_seed(10**6))
    for name, kind in KINDS.items():
        rows: list[list[float]] = [[] for _ in range(len(tests) + 1)]
        for seed in range(seeds):
            norm = mimicked(width, seed=seed, blocks=BLOCKS, **kind)
            small = Symmetriser(64, BLOCKS, **kind)
            small.adopt(norm)
            for column_errors, (student, test) in zip(
                rows, [*((norm, test) for test in tests.values()), (small, narrow)], strict=True
            ):
                column_errors.append(mean_error(student, target, test))
        learns = sum(p.numel() for p in norm.learned().values())
        cells = [with_interval(column_errors, factors=True) for column_errors in rows]
        print(f"| {name} | " + " | ".join(cells) + f" | {learns} + {2 * width} | {operations(norm)} |", flush=True)
    print(
        f"| all, no range reduction | {with_interval([unreduced(width, seed, tests) for seed in range(seeds)])} |"
        + " |" * 7
    )
    print(f"| LayerNorm itself | 0 |{' |' * len(tests)} {2 * width} | {5 * width} |\n", flush=True)


def unreduced(width: int, seed: int, tests: Mapping[str, Tensor]) -> float:
    norm, target = Unreduced(width, BLOCKS), standard(True, EPS)
    imitate({"": norm}, {"": target}, {"": gaussian(width)}, seed=seed)
    return mean_error(norm, target, next(iter(tests.values())))


def mean_error(norm: Target, target: Target, rows: Tensor) -> float:
    with torch.no_grad():
        return float(errors(norm, target, rows).mean())


def in_models(seeds: int) -> None:
    """Each model with the norms it learned, with those of the other model, and with those learned on Gaussians."""
    loaded = {name: armillary.load(name, progress=False) for name in MODELS}
    texts = {name: passages(anatomy, documents=48, tokens=64) for name, anatomy in loaded.items()}
    heads = ("model", "messages", "not learned", "own states", "own, shared", "Gaussian", "the other model's", "tuned")
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for kind in IN_MODELS:
        settings = {"blocks": BLOCKS, **KINDS[kind]}
        costs: dict[str, dict[str, list[float]]] = {name: {column: [] for column in heads[3:]} for name in MODELS}
        for seed in range(seeds):
            learned = {n: mimics(a, texts[n][::2], lessons=LAYERWISE, seed=seed, **settings) for n, a in loaded.items()}
            for name, other in (MODELS, MODELS[::-1]):
                by_column = one_seed(loaded[name], texts[name], learned[name], learned[other], seed, settings)
                for column, cost in by_column.items():
                    costs[name][column].append(cost)
        for name, anatomy in loaded.items():
            plain = norm_settings(anatomy, settings)
            exact = extra(anatomy, texts[name][1::2], norm="symmetriser", **plain)
            cells = [f"{exact:.2g}", *(with_interval(values) for values in costs[name].values())]
            print(f"| {name} | {kind} | " + " | ".join(cells) + " |", flush=True)


def one_seed(anatomy: Any, text: Tensor, own: Any, others: Any, seed: int, settings: Any) -> dict[str, float]:
    learn, judge = text[::2], text[1::2]
    shared = mimics(anatomy, learn, shared=True, lessons=LAYERWISE, seed=seed, **settings)
    plain = norm_settings(anatomy, settings)
    chip = mimicked(anatomy.d, seed=seed, **plain)
    moved, tuned = (transferred(others, anatomy, **settings) for _ in range(2))
    teach(tuned, anatomy, states_of(anatomy, learn), TUNING, seed)
    universal = transferred({"": chip}, anatomy, **settings)
    columns = {"own states": own, "own, shared": shared, "Gaussian": universal}
    columns |= {"the other model's": moved, "tuned": tuned}
    return {column: extra(anatomy, judge, norm=norms) for column, norms in columns.items()}


def norm_settings(anatomy: Any, settings: Any) -> dict[str, Any]:
    own = next(iter(anatomy.norms.values()))
    return {**settings, "eps": own.eps, "centred": own.kind == "layernorm"}


def extra(anatomy: Any, ids: Tensor, **parts: Any) -> float:
    """What the swap costs, in nats per token of a text that no norm was learned on."""
    before = losses(anatomy, ids)
    with swap(anatomy.model, **parts):
        after = losses(anatomy, ids)
    return float((after - before).mean())


def main(seeds: int) -> None:
    torch.set_num_threads(1)
    anatomy = armillary.load("builtin:gpt", progress=False)
    states = states_of(anatomy, passages(anatomy, documents=24))
    learned_on_gaussians(seeds, torch.cat([rows[::4] for rows in states.values()]))
    in_models(seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
