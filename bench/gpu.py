"""What does the shared pass cost on a GPU, where does it wait for the device, and are its numbers those of float64?

    python bench/gpu.py [--out DIR] [--shapes gpt2,llama135,llama1b] [--windows 16,64,256] [--rounds 7] [--eager]
    python bench/gpu.py --profile | --host | --agree | --survey 1b

Random weights in bf16, windows of 1024 random tokens of documents of one half, base model without logits. The bare
eager forward pass and the passes with instruments take turns; ratios are of medians of wall time, the device awaited at
both ends. What an instrument does once per survey (folding weights) is timed apart, as `start`.

--profile counts, inside one pass, what PyTorch reports as a synchronisation, copies between device and host, and
kernels; and names the dearest ones. --agree compares each state with float64 sums over the same activations on the CPU,
and with the same pass of a float64 model there, for three families in float32 and bf16. --survey times a survey of all
claims on a shape with 50 000 tokens. Everything is written to DIR as it goes.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_parts import SETS, SHAPES, Prepared, bare, corpus, counted, model, survey_of, title
from gpu_reference import agreement
from stacks import Stacks

from armillary.anatomy.read import read
from armillary.flow.machine import recording
from armillary.flow.machine.batch_size import batch_tokens
from armillary.flow.machine.recording import Graphs, Recorder
from armillary.flow.tokens import Corpus
from armillary.probes.machinery.shared_pass import observe

# Of a work that is slow, fewer rounds are timed.
PATIENCE = 6.0


class Record:
    """What was found so far, on disk after every step."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.values = folder, dict[str, Any]()

    def note(self, name: str, value: Any) -> None:
        self.values[name] = value
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "gpu.json").write_text(json.dumps(self.values, indent=1, ensure_ascii=False))


def awaited(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: str) -> float:
    awaited(device)
    began = time.perf_counter()
    work()
    awaited(device)
    return time.perf_counter() - began


def race(
    works: dict[str, Callable[[], object]], renew: Callable[[], object], rounds: int, device: str
) -> dict[str, float]:
    """Median seconds of each, round by round in turn, after one round that warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            if number < 2 or sum(times[name]) < PATIENCE:
                renew()
                took = seconds(work, device)
                times[name] += [took] if number else []
    return {name: sorted(took)[len(took) // 2] for name, took in times.items()}


def table(given: argparse.Namespace, record: Record) -> None:
    chosen = {name: SETS[name] for name in given.sets.split(",")}
    print(f"{'shape':9s} {'windows':>7s} {'bare ms':>8s} " + " ".join(f"{name:>8s}" for name in chosen), flush=True)
    for shape in given.shapes.split(","):
        anatomy = read(model(shape, given.device, torch.bfloat16))
        for windows in map(int, given.windows.split(",")):
            row_of(given, record, shape, anatomy, windows, chosen)
        del anatomy
        if given.device == "cuda":
            torch.cuda.empty_cache()


def row_of(
    given: argparse.Namespace, record: Record, shape: str, anatomy: Any, windows: int, chosen: dict[str, Any]
) -> None:
    """One text: passes from the start to the end, recording included."""
    text = corpus(windows, given.width, given.batch or batch_tokens(anatomy))
    all_prepared: list[Prepared] = []
    notes: dict[str, list[str]] = {}
    starts, works = {}, {"bare": lambda a=anatomy, t=text: bare(a, t)}
    for name, instruments in chosen.items():
        prepared: list[Prepared] = []
        starts[name] = seconds(
            lambda a=anatomy, t=text, i=instruments, p=prepared: p.extend(Prepared(each, a, t) for each in i),
            given.device,
        )
        notes[name] = list[str]()
        works[name] = lambda a=anatomy, t=text, p=prepared, s=notes[name]: recorded_pass(a, t, p, s)
        all_prepared += prepared
    took = race(works, lambda p=all_prepared: [each.renew() for each in p], given.rounds, given.device)
    ratios = {name: took[name] / took["bare"] for name in chosen}
    batch = max(b.ids.numel() for b in text.batches())
    peak = torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else 0.0
    row = {"batch": batch, "seconds": took, "ratios": ratios, "start_seconds": starts, "peak_gib": peak}
    record.note(f"table {shape} {windows}", row)
    cells = " ".join(f"{ratios[name]:7.2f}×" for name in chosen)
    print(f"{shape:9s} {windows:7d} {1e3 * took['bare']:8.1f} {cells}", flush=True)
    cells = " ".join(f"{1e3 * starts[name]:6.0f}ms" for name in chosen)
    print(f"{'':9s} {batch:7d} {'start':>8s} {cells}   peak {peak:.1f} GiB", flush=True)
    for name, words in notes.items():
        print("".join(f"{'':18s}{name}: {each}\n" for each in words), end="", flush=True)


def recorded_pass(anatomy: Any, text: Corpus, prepared: list[Prepared], notes: list[str]) -> None:
    """A pass as a survey makes it, and what it says of its recording."""
    on_gpu = anatomy.device.type == "cuda"
    recorder = Recorder(Graphs(anatomy.device)) if on_gpu and text.batch_count() > recording.LEAST else None
    observe(anatomy, text, prepared, recorder=recorder)
    if recorder is not None:
        why = f" ({recorder.refused})" if recorder.refused else ""
        notes[:] = [f"{recorder.replayed} replayed, {1e3 * recorder.seconds:.0f} ms to record{why}"]


def profile(given: argparse.Namespace, record: Record) -> None:
    for shape in given.shapes.split(","):
        anatomy = read(model(shape, given.device, torch.bfloat16))
        text = corpus(int(given.windows.split(",")[0]), given.width, given.batch or batch_tokens(anatomy))
        all_prepared: list[Prepared] = []
        passes: dict[str, Callable[[], object]] = {"bare": lambda a=anatomy, t=text: bare(a, t)}
        for name in given.sets.split(","):
            prepared = [Prepared(each, anatomy, text) for each in SETS[name]]
            passes[name] = lambda a=anatomy, t=text, p=prepared: observe(a, t, p)
            all_prepared += prepared
        for name, work in passes.items():
            counts = counted(work, lambda p=all_prepared: [each.renew() for each in p])
            record.note(f"profile {shape} {name}", counts)
            numbers = ", ".join(f"{key} {value}" for key, value in counts.items() if not isinstance(value, dict))
            print(f"{shape} {name}: {numbers}", flush=True)
            for kind in ("waits", "dearest"):
                for place, number in list(counts[kind].items())[: given.lines]:
                    print(f"    {kind:8s} {number:>10} {place[:110]}", flush=True)


def host(given: argparse.Namespace) -> None:
    """Where the host spends its time in one pass."""
    import cProfile
    import pstats

    for shape in given.shapes.split(","):
        anatomy = read(model(shape, given.device, torch.bfloat16))
        text = corpus(int(given.windows.split(",")[0]), given.width, given.batch or batch_tokens(anatomy))
        for name in given.sets.split(","):
            prepared = [Prepared(each, anatomy, text) for each in SETS[name]]
            for _ in range(3):
                for each in prepared:
                    each.renew()
                profiler = cProfile.Profile()
                awaited(given.device)
                profiler.enable()
                observe(anatomy, text, prepared)
                awaited(given.device)
                profiler.disable()
            print(f"{shape} {name}, the third pass", flush=True)
            pstats.Stats(profiler).sort_stats("tottime").print_stats(given.lines)


def agree(given: argparse.Namespace, record: Record) -> None:
    # The reference runs on the CPU, by thousands of small operations: many threads would wait for each other.
    torch.set_num_threads(2)
    for family in ("gpt2", "llama", "bert"):
        for dtype in (torch.float32, torch.bfloat16):
            began = time.perf_counter()
            distances = agreement(family, given.device, dtype)
            print(f"{family} {dtype}: {time.perf_counter() - began:.1f} s", flush=True)
            record.note(f"agree {family} {dtype}", distances)
            for against, errors in distances.items():
                print(f"{family} {dtype} against {against}", flush=True)
                for instrument, fields in errors.items():
                    worst = sorted(fields.items(), key=lambda pair: -pair[1])[: given.lines]
                    print(f"  {instrument:12s} " + ", ".join(f"{n} {e:.1e}" for n, e in worst), flush=True)


def survey(given: argparse.Namespace, record: Record) -> None:
    # On disk every few seconds: a run that is stopped tells where it was.
    with Stacks(folder=given.out) as stacks:
        cost = survey_of(f"llama{given.survey}" if given.survey[0].isdigit() else given.survey, given)
    record.note(f"survey {given.survey}", cost)
    print(f"survey of {given.survey}: {cost['seconds']:.0f} s, peak {cost['peak_gib']:.1f} GiB", flush=True)
    for name, took in cost["dearest"].items():
        print(f"    {took:7.1f} s  {name}", flush=True)
    stacks.print(given.lines)
    for name, reason in cost["failed"].items():
        print(f"    failed {name}: {reason}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", default="gpt2,llama135,llama1b", help=", ".join(SHAPES))
    parser.add_argument("--sets", default=",".join(SETS), help="of instruments")
    parser.add_argument("--windows", default="16,64,256", help="of the text; several texts one after another")
    parser.add_argument("--eager", action="store_true", help="no batch is replayed")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, help="tokens in a batch; by default what the package chooses")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lines", type=int, default=12, help="how many places or fields to print")
    parser.add_argument("--tokens", type=int, default=50_000, help="of --survey")
    parser.add_argument("--claims", default="all", help="of --survey")
    parser.add_argument("--table", action="store_true", help="the default")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--host", action="store_true", help="where the host spends its time in a pass")
    parser.add_argument("--agree", action="store_true")
    parser.add_argument("--survey", metavar="1b|8b|SHAPE")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger(recording.__name__).setLevel(logging.INFO)
    if given.eager:
        recording.LEAST = 1 << 30
    record = Record(given.out)
    record.note("machine", title(given.device))
    print(title(given.device), flush=True)
    if given.table or not (given.profile or given.host or given.agree or given.survey):
        table(given, record)
    if given.profile:
        profile(given, record)
    if given.host:
        host(given)
    if given.agree:
        agree(given, record)
    if given.survey:
        survey(given, record)


if __name__ == "__main__":
    main()
