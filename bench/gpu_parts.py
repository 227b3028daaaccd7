"""What is measured on a GPU, and by what? Shapes, sets of instruments, counts of waiting, a survey."""

import argparse
import collections
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tr

import armillary
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.measures import Reservoir, Rows
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.heads import HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.words import WORDS

SPHERE = (LENGTHS, COVARIANCES, SAMPLES)
SETS: dict[str, tuple[Any, ...]] = {
    "lengths": (LENGTHS,),
    "A": SPHERE,
    "A+B": (*SPHERE, HEADS),
    "A+C": (*SPHERE, WORDS),
    "A+B+C": (*SPHERE, HEADS, WORDS),
}


def llama(d: int, m: int, layers: int, heads: int, groups: int, words: int) -> Callable[[], Any]:
    def make() -> Any:
        config = tr.LlamaConfig(
            hidden_size=d,
            intermediate_size=m,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=groups,
            vocab_size=words,
            use_cache=False,
        )
        return tr.LlamaForCausalLM(config)

    return make


SHAPES: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tr.GPT2LMHeadModel(tr.GPT2Config(use_cache=False)),
    "llama135": llama(576, 1536, 30, 9, 3, 49152),
    "llama1b": llama(2048, 8192, 16, 32, 8, 128256),
    "llama8b": llama(4096, 14336, 32, 32, 8, 128256),
    "tiny": llama(64, 128, 2, 4, 2, 8192),
}
WORDS_AT_MOST = 2048
"""Random tokens are below it, so that every shape knows them."""


class Prepared:
    """An instrument whose watch is started beforehand: what it does once per survey is timed apart."""

    def __init__(self, instrument: Any, anatomy: Any, text: Corpus) -> None:
        self._watch, self.overwrites = instrument.start(anatomy, text, 0), instrument.overwrites
        if instrument is HEADS:
            # Two windows are rebuilt in float64 once per survey: a proof of constant cost, and no part of the pass.
            self._watch._rebuilt.clear()

    def start(self, anatomy: Any, text: Corpus, seed: int) -> Any:
        return self._watch

    def renew(self) -> None:
        """Empty what has a capacity, so that the same text can be read again; sums stay on the device and go on."""
        for measure in self._watch.state._measures().values():
            for each in measure.values() if isinstance(measure, dict) else (measure,):
                if isinstance(each, Reservoir):
                    each.size = each.seen = 0
                elif isinstance(each, Rows):
                    each._batches.clear()


def title(device: str) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}, transformers {tr.__version__}"


def model(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Random weights, made where they are used: a billion random numbers take a CPU many seconds."""
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(dtype)
        try:
            return SHAPES[shape]().eval()
        finally:
            torch.set_default_dtype(torch.float32)


def corpus(windows: int = 16, width: int = 1024, batch: int | None = None) -> Corpus:
    """Random windows, one document each, all in one half, so that they can share a batch."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS_AT_MOST, (windows, width), generator=draw).tolist()
    rows = tuple(Window(2 * i, tuple(row)) for i, row in enumerate(ids))
    return Corpus(rows, "random tokens", 2 * windows, windows * width, (), batch=batch)


def bare(anatomy: Any, text: Corpus) -> None:
    with still(anatomy.model):
        for batch in text.batches():
            run(anatomy, batch.ids, batch.mask)


def counted(work: Callable[[], object], renew: Callable[[], object]) -> dict[str, Any]:
    """Synchronisations that PyTorch reports, copies, kernels, busy time and the dearest kernels of one run."""
    from torch.profiler import ProfilerActivity, profile

    work()
    renew()
    places = _waits(work)
    renew()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        began = time.perf_counter()
        work()
        host = time.perf_counter() - began
        torch.cuda.synchronize()
    events = profiler.key_averages()
    device = [
        e for e in events if "cuda" in str(e.device_type).lower() and not e.key.startswith(("aten::", "Activity"))
    ]
    busy: collections.Counter[str] = collections.Counter()
    for event in device:
        busy[event.key] += float(getattr(event, "self_device_time_total", 0.0))

    def number(*parts: str) -> int:
        return sum(e.count for e in events if all(part in e.key for part in parts))

    return {
        "waits reported": sum(places.values()),
        "copies to host": number("Memcpy DtoH"),
        "copies to device": number("Memcpy HtoD"),
        "stream waits": number("cudaStreamSynchronize") + number("cudaEventSynchronize"),
        "kernels": number("cudaLaunchKernel") + number("cuLaunchKernel"),
        "host ms": round(1e3 * host, 1),
        "device ms": round(sum(busy.values()) / 1e3, 2),
        "waits": places,
        "dearest": {
            f"{key[:150]} × {sum(e.count for e in device if e.key == key)}": f"{spent / 1e3:.2f} ms"
            for key, spent in busy.most_common(40)
        },
    }


def _waits(work: Callable[[], object]) -> dict[str, int]:
    """Our line → how often PyTorch reported a synchronisation there."""
    places: collections.Counter[str] = collections.Counter()

    def note(message: Any, *rest: Any, **others: Any) -> None:
        ours = [frame for frame in traceback.extract_stack() if "src/armillary" in frame.filename]
        if "synchroniz" in str(message):
            at = ours[-1] if ours else None
            places["not ours" if at is None else f"{at.filename.split('armillary/')[-1]}:{at.lineno} {at.line}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return dict(places.most_common())


def programs(tokens: int) -> list[str]:
    """Of this repository the beginning of each file, as a document; for many tokens all files of two large packages."""
    root = Path(__file__).resolve().parents[1]
    if tokens <= 200_000:
        return [file.read_text()[:3000] for file in sorted([*root.glob("docs/*.md"), *root.glob("src/**/*.py")])]
    folders = [Path(package.__file__).parent for package in (tr, torch)]
    return [file.read_text(errors="replace") for folder in folders for file in sorted(folder.rglob("*.py"))]


def survey_of(shape: str, given: argparse.Namespace) -> dict[str, Any]:
    """A survey of a shape at random weights, or of a model of the package, on programs."""
    tokenizer = armillary.load("builtin:gpt", device="cpu", progress=False).tokenizer
    texts, began = programs(given.tokens), time.time()
    last: list[Any] = [began, 0]

    def tell(survey: Any) -> None:
        if not survey.findings:
            print(f"    {time.time() - began:7.1f} s  planned", flush=True)
        if len(survey.findings) > last[1]:
            finding = survey.findings[-1]
            failed = finding.why is not None and finding.why.value == "failed"
            more = f": {finding.reading[:300]}" if failed else ""
            print(f"    {time.time() - began:7.1f} s  {finding.id} {finding.verdict}{more}", flush=True)
            for note in survey.notes if failed else ():
                print(note[-2500:], flush=True)
        last[1] = len(survey.findings)

    live: Any = shape if ":" in shape else model(shape, given.device, torch.bfloat16)
    survey = armillary.survey(
        live,
        texts,
        tokenizer=None if ":" in shape else tokenizer,
        device=given.device if ":" in shape else None,
        tokens=given.tokens,
        claims=given.claims,
        progress=False,
        tell=tell,
        debug=True,
    )
    claims = dict(sorted(survey.times.claims.items(), key=lambda pair: -pair[1]))
    return {
        "seconds": time.time() - began,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else 0.0,
        "tokens": survey.text.tokens,
        "verdicts": {finding.id: str(finding.verdict) for finding in survey.findings},
        "failed": {f.id: f.reading[:300] for f in survey.findings if f.why is not None and f.why.value == "failed"},
        "notes": list(survey.notes),
        "dearest": dict(list(claims.items())[:25]),
    }
