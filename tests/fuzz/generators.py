"""All generators, and how a number becomes a case."""

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fuzz.case import Case, Outcome, Runner
from fuzz.models import config, gguf, safetensors, tokenizer
from fuzz.options import options
from fuzz.shelf import Shelf
from fuzz.stored import lab, survey
from fuzz.texts import text

GENERATORS: tuple[Callable[[random.Random, Path, Shelf], Case], ...] = (
    config,
    safetensors,
    gguf,
    tokenizer,
    text,
    survey,
    lab,
    options,
)


def outcomes(numbers: Iterable[int], seed: int, shelf: Shelf, work: Path, runner: Runner) -> Iterator[Outcome]:
    """Every case depends on the seed and its number alone."""
    for number in numbers:
        generator = GENERATORS[number % len(GENERATORS)]
        place = work / f"case{number}"
        place.mkdir(parents=True)
        case = generator(random.Random(f"{seed} {number}"), place, shelf)
        yield runner(number, generator.__name__, case)
        shutil.rmtree(place, ignore_errors=True)


def table(outcomes: Iterable[Outcome], kinds: tuple[str, ...]) -> str:
    """How many of each kind, by generator."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        row = counts.setdefault(outcome.generator, dict.fromkeys(kinds, 0))
        row[outcome.kind] = row.get(outcome.kind, 0) + 1
    counts["all"] = {kind: sum(row.get(kind, 0) for row in counts.values()) for kind in kinds}
    head = f"{'':<12}" + "".join(f"{kind:>11}" for kind in kinds) + f"{'total':>11}"
    lines = [
        f"{name:<12}" + "".join(f"{row.get(kind, 0):>11}" for kind in kinds) + f"{sum(row.values()):>11}"
        for name, row in counts.items()
    ]
    return "\n".join([head, *lines])
