"""What does the shared pass cost on a GPU, where does it wait for the device, and are its numbers the CPU's?

    python bench/gpu.py [--rounds 7]

GPT-2-small shape at random weights, 16 × 1024 tokens. For every instrument: time of the watched pass over the bare one
(medians, CUDA events), the places in our code at which PyTorch reports a synchronisation, and the largest relative
difference of its state from the same pass on the CPU (float32).
"""

import argparse
import collections
import json
import statistics
import traceback
import warnings

import torch
import transformers as tr

from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery.shared_pass import observe

INSTRUMENTS = (LENGTHS, COVARIANCES, SAMPLES, HEADS, WORDS)


def corpus(windows: int = 16, width: int = 1024) -> Corpus:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50257, (windows, width), generator=draw).tolist()
    return Corpus(
        tuple(Window(i, tuple(row)) for i, row in enumerate(ids)), "random tokens", windows, windows * width, ()
    )


def model(dtype: torch.dtype) -> tr.GPT2LMHeadModel:
    torch.manual_seed(0)
    return tr.GPT2LMHeadModel(tr.GPT2Config()).eval().to("cuda", dtype)


def bare(anatomy, text: Corpus) -> None:
    with still(anatomy.model):
        for batch in text.batches():
            run(anatomy, batch.ids, batch.mask)


def seconds(work, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return statistics.median(times)


def waits(work) -> dict[str, int]:
    """Our line → how often PyTorch reported a synchronisation there."""
    places: collections.Counter[str] = collections.Counter()

    def note(message, category, filename, lineno, file=None, line=None) -> None:
        ours = [frame for frame in traceback.extract_stack() if "armillary" in frame.filename]
        if "synchroniz" in str(message) and ours:
            places[f"{ours[-1].filename.split('armillary/')[-1]}:{ours[-1].lineno} {ours[-1].line}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return dict(places.most_common(12))


def differences(gpu, cpu) -> dict[str, float]:
    """Field → largest difference over the field's largest magnitude; rows that moved with rounding are skipped."""
    worst: dict[str, float] = {}
    theirs = cpu.arrays()
    for name, array in gpu.arrays().items():
        other, field = theirs[name].double(), name.split("/")[0] + "/" + name.split("/")[-1]
        if array.shape == other.shape and array.numel() and "strip" not in name:
            size = float(other.abs().max().clamp_min(1e-30))
            worst[field] = max(worst.get(field, 0.0), float((array.double() - other).abs().max()) / size)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    text, results = corpus(), {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for dtype in (torch.float32, torch.bfloat16):
        anatomy = read(model(dtype))
        bare(anatomy, text)
        alone = seconds(lambda anatomy=anatomy: bare(anatomy, text), given.rounds)
        rows = {"bare_s": alone}
        for chosen in (*((i,) for i in INSTRUMENTS), INSTRUMENTS):
            name = "+".join(i.name for i in chosen)
            observe(anatomy, text, chosen)
            took = seconds(lambda anatomy=anatomy, chosen=chosen: observe(anatomy, text, chosen), given.rounds)
            rows[name] = {"ratio": took / alone}
            if len(chosen) == 1:
                rows[name]["waits"] = waits(lambda anatomy=anatomy, chosen=chosen: observe(anatomy, text, chosen))
        results[str(dtype)] = rows
    anatomy, short = read(model(torch.float32)), corpus(8, 256)
    on_gpu = observe(anatomy, short, INSTRUMENTS)
    on_cpu = observe(read(anatomy.model.cpu()), short, INSTRUMENTS)
    results["difference_from_cpu"] = {i.name: differences(on_gpu[i], on_cpu[i]) for i in INSTRUMENTS}
    print(json.dumps(results, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
