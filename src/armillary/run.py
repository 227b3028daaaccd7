"""From any model to verdicts: load, one pass per arm, conclude."""

import dataclasses
import platform
import re
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers

import armillary
from armillary.anatomy import Anatomy
from armillary.anatomy.facts import describe
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.weights import check_memory
from armillary.errors import ModelError, TextError
from armillary.flow.controls import random_twin
from armillary.flow.documents import Documents, from_any
from armillary.flow.laws import check
from armillary.flow.tokens import Corpus, encode
from armillary.probes import Probe, choose
from armillary.probes.instruments.heads_record import AttentionRecord
from armillary.probes.instruments.heads_watch import AttentionWatch
from armillary.probes.instruments.norm_record import NormRecord
from armillary.probes.instruments.words_record import TravelRecord
from armillary.probes.instruments.words_watch import TravelWatch
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Evidence
from armillary.probes.machinery.plan import make_plan
from armillary.probes.machinery.probe import Experimenter, judge
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.machinery.thresholds import THRESHOLDS
from armillary.results import Finding, Provenance, Survey, TextFacts, Times
from armillary.results.store import check_writable
from armillary.views.text.progress import Bar, progress_bar

DEFAULT_MODEL = "builtin:gpt"
DEFAULT_TOKENS = 2500
QUICK_TOKENS = 1000
SEED = 0


def load(
    source: Any,
    *,
    tokenizer: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    progress: bool = True,
) -> Anatomy:
    """The canonical form of a model, with every law checked and its error recorded.

    `source`: a live transformers model, a folder in the hub's layout, a .gguf file, a hub id, or a short name
    (`armillary models` lists them).
    """
    with progress_bar(progress) as bar:
        return _load(source, tokenizer, device, dtype, trust_remote_code, 1, bar)


def survey(
    model: Any = DEFAULT_MODEL,
    text: Any = None,
    *,
    tokens: int | None = None,
    claims: str = "all",
    quick: bool = False,
    device: str | None = None,
    dtype: str | None = None,
    out: str | Path | None = None,
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    seed: int = SEED,
    progress: bool = True,
    tell: Callable[[Survey], None] | None = None,
) -> Survey:
    """Measure claims on a model: `text` is a path, a string, a list of documents, or None for the built-in sample.

    `claims` lists ids, chapter letters or 'all'. `tokens` are 2500 unless given; `quick` reads fewer, and makes experiments
    on fewer documents: intervals are wider. With `out`, survey.json, tables/ and figures/ are written there. `tell`
    is called with the survey so far: first with the plan alone, then after each claim.
    """
    started = time.time()
    # What can be refused is refused before a model is loaded.
    probes = choose(claims)
    tokens = (QUICK_TOKENS if quick else DEFAULT_TOKENS) if tokens is None else tokens
    if tokens < 1:
        raise TextError(f"--tokens {tokens} leaves nothing to read; give at least 1, better 2000 or more.")
    if out is not None:
        check_writable(Path(out))
    documents = from_any(text)
    with progress_bar(progress) as bar:
        if isinstance(model, Anatomy):
            anatomy = model if model.laws else _lawful(model)
            anatomy = anatomy if tokenizer is None else dataclasses.replace(anatomy, tokenizer=tokenizer)
        else:
            anatomy = _load(model, tokenizer, device, dtype, trust_remote_code, 2, bar)
        corpus = _corpus(anatomy, documents, tokens, seed) if any(map(_reads, probes)) else None
        plan = make_plan(anatomy, corpus, probes, quick)
        made = _survey(anatomy, Evidence(anatomy, corpus, seed=seed), documents, (), tokens, Times(plan=plan))
        _tell(tell, made, bar)
        evidence = gather(anatomy, corpus, probes, seed, bar)
        seconds: dict[str, float] = {}
        for finding in _conclude(evidence, probes, quick, bar, seconds):
            made = dataclasses.replace(made, findings=(*made.findings, finding))
            _tell(tell, made, bar)
    begun = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    times = Times(begun, round(time.time() - started, 2), seconds, plan)
    made = _survey(anatomy, evidence, documents, made.findings, tokens, times)
    if out is not None:
        made.save(Path(out))
    return made


def _tell(tell: Callable[[Survey], None] | None, made: Survey, bar: Bar) -> None:
    if tell is not None:
        with bar.aside():
            tell(made)


def _reads(probe: Probe) -> bool:
    return bool(probe.instruments) or isinstance(probe, Experimenter)


def gather(anatomy: Anatomy, corpus: Corpus | None, probes: tuple[Probe, ...], seed: int, bar: Bar) -> Evidence:
    """What one pass per arm tells every probe."""
    instruments = {instrument for probe in probes for instrument in probe.instruments}
    _room(anatomy, instruments)
    twin = random_twin(anatomy, seed)
    if corpus is None or not instruments:
        return Evidence(anatomy, corpus, twin, seed=seed)
    bar.start("reading", 3 * corpus.tokens)
    arms = ((MODEL, anatomy, corpus), (RANDOM, twin, corpus), (SHUFFLED, anatomy, corpus.shuffled(seed)))
    records: dict[str, dict[str, NormRecord]] = {}
    attention: dict[str, AttentionRecord] = {}
    travel: dict[str, TravelRecord] = {}
    for arm, specimen, text in arms:
        bar.say(f"reading {corpus.tokens} tokens: {arm}")
        # No claim compares the spectrum of shuffled text, and covariances are the dearest part of a pass.
        wanted = instruments - {"spectra"} if arm == SHUFFLED else instruments
        heads = AttentionWatch(specimen, text, seed) if "attention" in instruments else None
        words = TravelWatch(specimen, text, seed) if "travel" in instruments else None
        records[arm] = observe(specimen, text, wanted, bar.advance, heads, words)
        attention |= {} if heads is None else {arm: heads.record}
        travel |= {} if words is None else {arm: words.record}
    return Evidence(anatomy, corpus, twin, records, attention, travel, seed)


def _room(anatomy: Anatomy, instruments: Collection[str]) -> None:
    """Refuse, before the long part, what will not fit: a second model, and d × d sums for every site."""
    twin = sum(p.numel() * p.element_size() for p in anatomy.model.parameters())
    # Two halves in two arms as strips, and one whole covariance each when they are decomposed.
    sums = 4 * 8 * anatomy.d**2 * len(anatomy.norms) if "spectra" in instruments else 0
    on_gpu = anatomy.device.type != "cpu"
    check_memory(twin, 1, 1, str(anatomy.device))
    check_memory(sums if on_gpu else twin + sums, 1, 1, "cpu")


def _load(
    source: Any, tokenizer: Any, device: str | None, dtype: str | None, trust: bool, copies: int, bar: Bar
) -> Anatomy:
    if source is None:
        raise ModelError("no model was given; pass a transformers model, a folder, a .gguf file or a name.")
    return _lawful(load_model(source, tokenizer, device, dtype, trust, copies, bar.bytes))


def _lawful(anatomy: Anatomy) -> Anatomy:
    return dataclasses.replace(anatomy, laws=check(anatomy))


def _corpus(anatomy: Anatomy, documents: Documents, tokens: int, seed: int) -> Corpus:
    if anatomy.tokenizer is None:
        raise TextError(
            f"{anatomy.name} came without a tokenizer, so text cannot be read; pass tokenizer=… (Python) or a folder that "
            "holds tokenizer.json."
        )
    corpus = encode(documents, anatomy.tokenizer, anatomy.context, tokens, seed)
    top = max(max(window.ids) for window in corpus.windows)
    if top >= anatomy.vocabulary:
        raise TextError(
            f"the tokenizer gives token {top}, but the model knows {anatomy.vocabulary}: they do not belong together; pass "
            "the model's own tokenizer."
        )
    return corpus


def _conclude(
    evidence: Evidence, probes: tuple[Probe, ...], quick: bool, bar: Bar, seconds: dict[str, float]
) -> Iterator[Finding]:
    """Finding by finding, with the time each took; experiments are made when their claim's turn comes."""
    bar.start("concluding", len(probes))
    caption = _caption(evidence)
    bench: Bench | None = None
    for probe in probes:
        began = time.perf_counter()
        bar.say(f"concluding: {probe.claim.id}")
        if isinstance(probe, Experimenter) and evidence.corpus is not None:
            if bench is None:
                bench = Bench(evidence.anatomy, evidence.corpus, evidence.twin, evidence.seed, quick)
                bench.prove()
            _experiment(probe, evidence, bench, bar)
        found = judge(probe, evidence)
        finding = dataclasses.replace(
            found,
            caption=caption,
            reading=_with_minus(found.reading),
            headline=_with_minus(found.headline),
            notes=tuple(map(_with_minus, found.notes)),
        )
        seconds[probe.claim.id] = round(time.perf_counter() - began, 2)
        yield finding
        bar.advance(1)


def _with_minus(text: str) -> str:
    """Negative numbers in prose as they are set everywhere else: "by -0.96" with a minus; "L1-2" and "1e-7" stay."""
    return re.sub(r"(?<![\w)])-(?=\d)", "−", text)


def _experiment(probe: Experimenter, evidence: Evidence, bench: Bench, bar: Bar) -> None:
    """A probe's own passes, told as they go; afterwards the model must be what it was."""
    claim, most, done = probe.claim.id, probe.passes(bench.anatomy), [0.0]

    def tick(tokens: int) -> None:
        done[0] += tokens / max(1, bench.text.tokens)
        bar.say(f"{claim}: {done[0]:.0f} of at most {most:.0f} passes")

    bench.tick = tick
    evidence.found[claim] = probe.experiment(bench)
    bench.prove()


def _caption(evidence: Evidence) -> str:
    anatomy, corpus = evidence.anatomy, evidence.corpus
    if corpus is None:
        return f"{anatomy.name} · weights only"
    return f"{anatomy.name} · {corpus.source} · {corpus.documents} documents, {corpus.tokens} tokens"


def _survey(
    anatomy: Anatomy,
    evidence: Evidence,
    documents: Documents,
    findings: tuple[Finding, ...],
    asked: int,
    times: Times,
) -> Survey:
    corpus = evidence.corpus
    text = TextFacts(documents.source)
    if corpus is not None:
        text = TextFacts(
            source=corpus.source,
            documents=corpus.documents,
            tokens=corpus.tokens,
            budget=asked,
            one_token_documents=corpus.one_token,
            documents_longer_than_context=corpus.longer,
            bootstrap_groups=corpus.groups,
            notes=tuple(corpus.notes),
        )
    return Survey(
        findings=findings,
        model=describe(anatomy),
        text=text,
        laws=anatomy.laws,
        provenance=Provenance(
            seed=evidence.seed,
            device=str(anatomy.device),
            dtype=str(anatomy.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            arms=tuple(evidence.arms),
            versions={
                "armillary": armillary.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "numpy": numpy.__version__,
            },
        ),
        thresholds=THRESHOLDS.as_dict(),
        times=times,
    )
