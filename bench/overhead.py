"""What does the one pass cost beside the bare forward pass, chapter by chapter?

    python bench/overhead.py [--rounds 21] [--chapter C]

GPT-2-small shape at random weights, 8 × 256 tokens, base model without logits. Bare and watched passes alternate; ratios
are of medians of CPU time, all under the allocator setting that `armillary survey` runs with. Chapter A is the pass with
its instruments over the bare one; B (heads) and C (words) are what each adds to A's pass, as a share of the bare one, round by
round. A difference of two long passes wanders by several per cent on a shared machine: C's own calls are timed too, which does
not see what they push out of the caches, and counts lengths that A would else have taken. The logit lens of C looks at a
sample whose size goes with the text, so it is timed apart, against ten such batches; and C once more on the built-in model
at the survey's own budget, where that sample is at its floor. Memory is the peak above the bare pass, at 1× and 10× tokens,
each in a process of its own. With --chapter only that chapter is timed, and no memory: C takes two minutes on two cores.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers as tr

import armillary
from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.documents import from_any
from armillary.flow.memory import keep_pages
from armillary.flow.tokens import Corpus, Window, encode
from armillary.probes.instruments.heads_watch import AttentionWatch
from armillary.probes.instruments.words_record import room
from armillary.probes.instruments.words_watch import TravelWatch
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.words.lens import look
from armillary.run import DEFAULT_TOKENS

INSTRUMENTS = ("lengths", "spectra", "sample")


def corpus(batches: int, rows: int = 8, width: int = 256) -> Corpus:
    """`batches` batches of whole windows, one document each, all in one half so that a batch stays a batch."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50257, (batches * rows, width), generator=draw).tolist()
    windows = tuple(Window(2 * i, tuple(row)) for i, row in enumerate(ids))
    return Corpus(windows, "random tokens", 2 * len(windows), len(windows) * width, ())


def model() -> tr.GPT2LMHeadModel:
    torch.manual_seed(0)
    return tr.GPT2LMHeadModel(tr.GPT2Config()).eval()


def bare(anatomy, text: Corpus) -> None:
    with still(anatomy.model):
        for batch in text.batches():
            run(anatomy, batch.ids, batch.mask)


class Timed(TravelWatch):
    """Counts the CPU time of its own calls."""

    spent = 0.0

    def begin(self, batch) -> None:
        start = time.process_time()
        super().begin(batch)
        self.spent += time.process_time() - start

    def see(self, site, glimpse) -> None:
        start = time.process_time()
        super().see(site, glimpse)
        self.spent += time.process_time() - start


def cpu(work) -> tuple[float, float]:
    wall, spent = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - spent, time.perf_counter() - wall


def race(rounds: int, works: dict) -> dict[str, list[tuple[float, float]]]:
    """Each work's CPU and wall seconds, round by round; the lens takes seconds and says the same each time."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for index in range(rounds):
        for name, work in works.items():
            if name == "calls":
                times[name].append((work.spent, 0.0))
                work.spent = 0.0
            elif name != "lens" or index < 3:
                times[name].append(cpu(work))
    return times


def passes(anatomy, text: Corpus, chapter: str | None, scale: int = 1) -> dict:
    """The bare pass, the watched ones that were asked for, and the lens of a text `scale` times as long."""
    bare(anatomy, text)
    observe(anatomy, text, INSTRUMENTS)
    works = {"bare": lambda: bare(anatomy, text), "A": lambda: observe(anatomy, text, INSTRUMENTS)}
    if chapter in (None, "B"):
        heads = AttentionWatch(anatomy, text, 0)
        works["AB"] = lambda: observe(anatomy, text, INSTRUMENTS, attention=heads)
    if chapter in (None, "C"):
        words = Timed(anatomy, text, 0)
        sampled = torch.randn(room(anatomy, scale * text.tokens), len(words.states), anatomy.d)
        places = torch.zeros(len(sampled), 4, dtype=torch.long).numpy()
        works["AC"] = lambda: observe(anatomy, text, INSTRUMENTS, travel=words)
        works["calls"] = words
        works["lens"] = lambda: look(anatomy, sampled, places)
    return works


def share(times: dict[str, list[tuple[float, float]]], name: str, clock: int = 0) -> float:
    """What a chapter adds to chapter A's pass over the bare one, round by round: the median."""
    rounds = zip(times["bare"], times["A"], times[name], strict=True)
    return statistics.median((c[clock] - a[clock]) / b[clock] for b, a, c in rounds)


def ratio(rounds: int, chapter: str | None) -> dict[str, float]:
    keep_pages()
    times = race(rounds, passes(read(model()), corpus(1), chapter, 10))
    spent, wall = ({name: statistics.median(t[i] for t in found) for name, found in times.items()} for i in (0, 1))
    each = [b[0] / a[0] for a, b in zip(times["bare"], times["A"], strict=True)]
    made = {
        "bare_cpu_s": spent["bare"],
        "watched_cpu_s": spent["A"],
        "ratio_of_medians": spent["A"] / spent["bare"],
        "median_of_ratios": statistics.median(each),
        "wall_ratio": wall["A"] / wall["bare"],
    }
    for name, what in (("AB", "heads"), ("AC", "words")):
        if name in spent:
            made |= {f"share_of_{what}": share(times, name), f"wall_share_of_{what}": share(times, name, 1)}
    if "lens" in spent:
        made["share_of_calls_for_words"] = spent["calls"] / spent["bare"]
        made["share_of_lens_at_20480_tokens"] = spent["lens"] / (10 * spent["bare"])
        made |= default(rounds)
    return made


def default(rounds: int) -> dict[str, float]:
    """Chapter C on the built-in model and text, at the survey's own budget: there the lens is at its floor."""
    anatomy = armillary.load("builtin:gpt", device="cpu", progress=False)
    text = encode(from_any(None), anatomy.tokenizer, anatomy.context, DEFAULT_TOKENS)
    times = race(rounds, passes(anatomy, text, "C"))
    spent = {name: statistics.median(took[0] for took in found) for name, found in times.items()}
    made = {"default_share_of_words": share(times, "AC")}
    return made | {f"default_share_of_{name}": spent[name] / spent["bare"] for name in ("calls", "lens")}


def peak(kind: str, batches: int) -> float:
    """Peak resident memory in MB of one pass in a process of its own; the bare pass alone varies by 200, so the middle of three."""
    code = [sys.executable, __file__, "--peak", kind, "--batches", str(batches)]
    runs = (subprocess.run(code, check=True, capture_output=True, text=True).stdout for _ in range(3))
    return statistics.median(float(said) for said in runs)


def _peak(kind: str, batches: int) -> float:
    anatomy, text = read(model()), corpus(batches)
    # Building a model peaks higher than running it: forget that peak (Linux), then read the pass's own.
    Path("/proc/self/clear_refs").write_text("5")
    if kind == "bare":
        bare(anatomy, text)
    else:
        observe(anatomy, text, INSTRUMENTS)
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--chapter", choices=["A", "B", "C"])
    parser.add_argument("--peak", choices=["bare", "watched"])
    parser.add_argument("--batches", type=int, default=1)
    given = parser.parse_args()
    if given.peak:
        print(_peak(given.peak, given.batches))
        return
    found = ratio(given.rounds, given.chapter)
    for batches in () if given.chapter else (1, 10):
        above = peak("watched", batches) - peak("bare", batches)
        found[f"peak_above_bare_mb_{batches * 2048}_tokens"] = above
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
