"""What does the shared pass cost beside the bare forward pass, chapter by chapter?

    python bench/overhead.py [--rounds 21] [--chapter C]

GPT-2-small shape at random weights, 8 × 256 tokens, base model without logits. Bare and watched passes alternate;
ratios are of medians of CPU time, all under the allocator setting that `armillary survey` uses. The bare pass is
Hugging Face's own; on AMD the shared pass multiplies by a faster library, so its ratio to a bare pass by that library
is told, too. Chapter A is the pass with its three instruments over the bare one. B (heads) and C (words) are what each
adds to A's pass, as a share of the bare one, round by round, and S is what the samples of writes, of heads and of
positions add together; what an instrument does once per survey is not counted. A difference of two long passes varies
by several per cent on a shared machine, so each instrument's own calls are timed too; that does not see what they push
out of the caches. The logit lens of C looks at a sample whose size grows with the text, so it is timed apart, against
ten such batches; and C once more on the built-in model at the survey's own budget, where that sample is smallest.
Memory is the peak above the bare pass, at 1× and 10× tokens, each in a process of its own. With --chapter only that
chapter is timed, and no memory.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers as tr

import armillary
from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.documents import from_any
from armillary.flow.machine.memory import keep_pages
from armillary.flow.tokens import Corpus, Window, encode
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.head_samples import HEAD_SAMPLES
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.position_samples import POSITION_SAMPLES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.words import WORDS, room
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.words.lens import look
from armillary.run import DEFAULT_TOKENS

SPHERE = (LENGTHS, COVARIANCES, SAMPLES)
ADDED = {
    "B": ("heads", (HEADS,)),
    "C": ("words", (WORDS,)),
    "S": ("samples", (WRITE_SAMPLES, HEAD_SAMPLES, POSITION_SAMPLES)),
}


class Prepared:
    """An instrument whose watch is started beforehand, so that preparing it is not timed. Counts its calls' CPU
    time."""

    overwrites = False

    def __init__(self, instrument, anatomy, text: Corpus) -> None:
        self._watch, self.spent = instrument.start(anatomy, text, 0), 0.0
        self.sites, self.state = self._watch.sites, self._watch.state

    def start(self, anatomy, corpus, seed):
        return self

    def begin(self, tokens) -> None:
        self._timed(self._watch.begin, tokens)

    def see(self, site, view) -> None:
        self._timed(self._watch.see, site, view)

    def end(self) -> None:
        self._timed(self._watch.end)

    def _timed(self, call, *args) -> None:
        began = time.process_time()
        call(*args)
        self.spent += time.process_time() - began


@dataclass
class Took:
    """Seconds of each round."""

    cpu: list[float]
    wall: list[float]


def corpus(batches: int, rows: int = 8, width: int = 256) -> Corpus:
    """`batches` batches of whole windows, one document each, all in one half so that a batch stays a batch."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50257, (batches * rows, width), generator=draw).tolist()
    windows = tuple(Window(2 * i, tuple(row)) for i, row in enumerate(ids))
    return Corpus(windows, "random tokens", 2 * len(windows), len(windows) * width, ())


def model() -> tr.GPT2LMHeadModel:
    torch.manual_seed(0)
    return tr.GPT2LMHeadModel(tr.GPT2Config()).eval()


def bare(anatomy, text: Corpus, own: bool = True) -> None:
    """The forward pass alone, by PyTorch's own products or by those of the shared pass."""
    with torch.no_grad() if own else still(anatomy.model):
        for batch in text.batches():
            run(anatomy, batch.ids, batch.mask)


def race(rounds: int, works: dict) -> dict[str, Took]:
    """Every work in turn, round by round; the lens takes seconds and gives the same time each round."""
    times = {name: Took([], []) for name in works}
    for index in range(rounds):
        for name, work in works.items():
            if name != "lens" or index < 3:
                wall, spent = time.perf_counter(), time.process_time()
                work()
                times[name].cpu.append(time.process_time() - spent)
                times[name].wall.append(time.perf_counter() - wall)
    return times


def timed(anatomy, text: Corpus, rounds: int, chapters: str, scale: int = 1) -> dict[str, float]:
    """Shares of the bare pass; the lens is that of a text `scale` times as long."""
    bare(anatomy, text)
    observe(anatomy, text, SPHERE)
    works = {
        "bare": lambda: bare(anatomy, text),
        "same library": lambda: bare(anatomy, text, own=False),
        "A": lambda: observe(anatomy, text, SPHERE),
    }
    added = {
        chapter: [Prepared(instrument, anatomy, text) for instrument in ADDED[chapter][1]]
        for chapter in chapters
        if chapter in ADDED
    }
    if "B" in added:
        # Rebuilding two windows in float64 is a proof of constant cost, too; eight windows would overstate it.
        added["B"][0]._watch._rebuilt.clear()
    for chapter, prepared in added.items():
        works[chapter] = lambda prepared=prepared: observe(anatomy, text, (*SPHERE, *prepared))
    if "C" in added:
        sampled = torch.randn(room(anatomy, scale * text.tokens), len(added["C"][0].sites), anatomy.d)
        places = torch.zeros(len(sampled), 4, dtype=torch.long).numpy()
        works["lens"] = lambda: look(anatomy, sampled, places)
    times = race(rounds, works)
    middle = {name: statistics.median(took.cpu) for name, took in times.items()}
    wall = {name: statistics.median(took.wall) for name, took in times.items()}
    shares = {
        "bare_cpu_s": middle["bare"],
        "ratio_of_A": middle["A"] / middle["bare"],
        "ratio_of_A_by_the_same_library": middle["A"] / middle["same library"],
        "wall_ratio_of_A": wall["A"] / wall["bare"],
    }
    for chapter, prepared in added.items():
        name, took = ADDED[chapter][0], zip(times["bare"].cpu, times["A"].cpu, times[chapter].cpu, strict=True)
        shares[f"share_of_{name}"] = statistics.median((c - a) / b for b, a, c in took)
        shares[f"share_of_calls_for_{name}"] = sum(each.spent for each in prepared) / rounds / middle["bare"]
    if "lens" in middle:
        shares["share_of_lens"] = middle["lens"] / (scale * middle["bare"])
    return shares


def default(rounds: int) -> dict[str, float]:
    """Chapter C on the built-in model and text at the survey's own budget."""
    anatomy = armillary.load("builtin:gpt", device="cpu", progress=False)
    text = encode(from_any(None), anatomy.tokenizer, anatomy.context, DEFAULT_TOKENS)
    return {f"default_{name}": share for name, share in timed(anatomy, text, rounds, "C").items()}


def peak(kind: str, batches: int) -> float:
    """Peak resident memory in MB of one pass in a process of its own; the middle of three, because they vary."""
    code = [sys.executable, __file__, "--peak", kind, "--batches", str(batches)]
    runs = (subprocess.run(code, check=True, capture_output=True, text=True).stdout for _ in range(3))
    return statistics.median(map(float, runs))


def measure_peak(kind: str, batches: int) -> float:
    anatomy, text = read(model()), corpus(batches)
    # Building a model peaks higher than running it: forget that peak (Linux), then read the pass's own.
    Path("/proc/self/clear_refs").write_text("5")
    if kind == "bare":
        bare(anatomy, text)
    else:
        observe(anatomy, text, SPHERE)
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--chapter", choices=["A", "B", "C", "S"])
    parser.add_argument("--peak", choices=["bare", "watched"])
    parser.add_argument("--batches", type=int, default=1)
    given = parser.parse_args()
    if given.peak:
        print(measure_peak(given.peak, given.batches))
        return
    keep_pages()
    shares = timed(read(model()), corpus(1), given.rounds, given.chapter or "BCS", 10)
    if given.chapter in (None, "C"):
        shares |= default(given.rounds)
    for batches in () if given.chapter else (1, 10):
        above = peak("watched", batches) - peak("bare", batches)
        shares[f"peak_above_bare_mb_{batches * 2048}_tokens"] = above
    print(json.dumps(shares, indent=2))


if __name__ == "__main__":
    main()
