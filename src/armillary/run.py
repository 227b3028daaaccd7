"""From any model to verdicts: load, one pass per arm, conclude."""

import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers

import armillary
from armillary.anatomy import Anatomy
from armillary.anatomy.encoder import hearing
from armillary.anatomy.facts import describe
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.steps import find_checkpoints
from armillary.errors import ArmillaryError, ModelError, TextError
from armillary.flow.documents import Documents, from_any
from armillary.flow.laws import check
from armillary.flow.machine.batch_size import batch_tokens
from armillary.flow.media.corpus import budget_of, home_of, media_corpus, spectrum, suited
from armillary.flow.media.sample import sample_sound
from armillary.flow.media.sources import Media, media_of
from armillary.flow.sources.spread import spread
from armillary.flow.tokens import Corpus, check_varied, encode
from armillary.growing_survey import GrowingSurvey
from armillary.probes import AnyProbe, choose
from armillary.probes.instruments.covariances import ENOUGH, share
from armillary.probes.machinery.bench import Bench, text_loss
from armillary.probes.machinery.conclude import Conclusion, begin, conclude, crew_of
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.limits.applicability import applicable
from armillary.probes.machinery.limits.thresholds import RULES_VERSION, THRESHOLDS
from armillary.probes.machinery.plan import expected_costs, make_plan
from armillary.probes.machinery.probe import reads_text
from armillary.probes.machinery.processes.jobs import MODULES, jobs_for, prepare_jobs
from armillary.probes.machinery.processes.shards import forget_shard
from armillary.results import Provenance, Survey, TextFacts
from armillary.results.disk.files import check_writable, not_left_empty
from armillary.results.disk.folder_swap import check_own
from armillary.results.disk.lock import locked
from armillary.results.disk.resume import decided, forget_pass, keep_settings
from armillary.results.store import read_survey
from armillary.survey_states import Loader, StateSource
from armillary.views.save import save_survey
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
    part: str = "",
) -> Anatomy:
    """The canonical form of a model, with every law checked and its error recorded.

    `source`: a live transformers model, a folder in the hub's layout, a .gguf file, a hub id, or a short name
    (`armillary models` lists them). `part` is 'encoder' or 'decoder', or a tower, of a model that has several.
    """
    with progress_bar(progress) as bar:
        return _load(source, tokenizer, device, dtype, trust_remote_code, 1, bar, part)


def survey(
    model: Any = DEFAULT_MODEL,
    text: Any = None,
    *,
    column: str = "",
    tokens: int | None = None,
    claims: str = "all",
    quick: bool = False,
    device: str | None = None,
    dtype: str | None = None,
    out: str | Path | None = None,
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    seed: int = SEED,
    steps: bool = False,
    progress: bool = True,
    debug: bool = False,
    jobs: int | None = 1,
    resume: bool = False,
    shard: str | None = None,
    shards: Sequence[str | Path] = (),
    dask: str | None = None,
    tell: Callable[[Survey], None] | None = None,
) -> Survey:
    """Measure claims on a model: `text` is a path, a string, a list of documents, a datasets or pandas object, or None
    for the built-in sample. For a model of images or sound it is a folder, a list of arrays, or a table of those.

    `column` names the text of a table. `claims` lists ids, chapter letters or 'all'. `tokens` are 2500 unless given;
    `quick` reads fewer, and runs experiments on fewer documents: intervals are wider. With `out`, survey.json, tables/
    and figures/ are written there; survey.json grows with every claim that is decided. With `resume`, the survey
    interrupted in `out` continues: what is decided or read there is not measured again. A claim whose probe raises is
    reported as `failed`; `debug` keeps the traceback in the survey's notes. With `steps`, `model` is the folder of a
    training run: its last checkpoint is surveyed, and claims about training read all of them. With several `jobs`,
    claims are decided in processes of their own (a script then needs `if __name__ == "__main__":`); None means as many
    as cores, memory and model allow. `tell` is called with the survey so far: first with the plan alone, then after
    each claim, in the order of the claims.

    Many machines: `shard` ("2/8") reads one part of the text, leaves its states in `out` and decides nothing; `shards`
    are the folders of all parts, from which claims are decided. `dask` reads the text on a cluster: the address of its
    scheduler, or "local:4" for four processes here.
    """
    started = time.time()
    # What can be refused is refused before a model is loaded.
    probes = choose(claims)
    _check_tokens(tokens)
    _check_jobs(jobs, resume, out)
    reading = StateSource.of(shard, shards, dask, out)
    folder = None if out is None else Path(out)
    with (
        not_left_empty(folder),
        nullcontext() if folder is None else locked(check_writable(folder)),
        progress_bar(progress) as bar,
    ):
        if folder is not None:
            check_own(folder)
        given = media_of(text, column) or from_any(text, column)
        if reading.shard is None:
            prepare_jobs(jobs, device, probes)
        checkpoints = find_checkpoints(model) if steps else None
        source = model if checkpoints is None else checkpoints.last
        anatomy = _anatomy(source, tokenizer, device, dtype, trust_remote_code, bar)
        anatomy = dataclasses.replace(anatomy, checkpoints=checkpoints) if checkpoints else anatomy
        probes = tuple(applicable(probe, anatomy) for probe in probes)
        documents = suited(anatomy, given, chosen=text is not None)
        if tokens is None:
            plain = QUICK_TOKENS if quick else DEFAULT_TOKENS
            tokens = plain if anatomy.signal is None else budget_of(anatomy, quick)
        corpus: Corpus | None = None
        if any(map(reads_text, probes)):
            anatomy, corpus = corpus_of(anatomy, documents, tokens, seed)
        reading.check(corpus, probes)
        begun = _survey(anatomy, corpus, documents, tokens, seed)
        known = _decided(folder, begun, probes, resume)
        growing = GrowingSurvey(
            begun, probes, _caption(anatomy, corpus), started, out, debug, tell, bar, known, goes_on=resume
        )
        loader = _loader(source, anatomy, trust_remote_code)
        evidence_of = partial(reading.gather, anatomy, corpus, probes, seed, bar, loader)
        if reading.shard is not None:
            growing.begin(make_plan(anatomy, corpus, (), quick))
            reading.leave(evidence_of(), _asked(begun, probes), probes)
        elif len(known) < len(probes) or folder is None:
            _measure(growing, anatomy, corpus, quick, jobs, evidence_of)
        else:
            growing.restore(read_survey(folder))
        if folder is not None:
            _save(growing.result, folder, reading, resume)
    return growing.result


def _check_tokens(tokens: int | None) -> None:
    if tokens is not None and tokens < 1:
        raise TextError(f"--tokens {tokens} leaves nothing to read; give at least 1, better 2000 or more.")


def _check_jobs(jobs: int | None, resume: bool, out: str | Path | None) -> None:
    if jobs is not None and jobs < 1:
        raise ArmillaryError(f"--jobs {jobs} leaves no process to run; give at least 1.")
    if resume and out is None:
        raise ArmillaryError("resume=True continues a survey in a folder; pass the folder as out=….")


def _save(survey: Survey, folder: Path, reading: StateSource, goes_on: bool) -> None:
    if reading.shard is None:
        save_survey(survey, folder, goes_on)
    else:
        keep_settings(folder)
    forget_pass(folder)


def _measure(
    growing: GrowingSurvey,
    anatomy: Anatomy,
    corpus: Corpus | None,
    quick: bool,
    jobs: int | None,
    evidence_of: Callable[[], Evidence],
) -> None:
    """Decide the claims that are not decided yet."""
    bar = growing.bar
    left = [probe for probe in growing.probes if probe.claim.id not in growing.decided]
    number = jobs_for(anatomy, left) if jobs is None else min(jobs, len(left))
    plan = make_plan(anatomy, corpus, left, quick, number)
    growing.begin(plan)
    reading, growing.costs = expected_costs(plan, anatomy, left)
    bar.expect({"reading": reading, "concluding": sum(growing.costs.values())})
    with crew_of(number, MODULES) as crew:
        # Also for claims that are decided: which states a pass leaves must not depend on that.
        evidence = evidence_of()
        begun = begin(crew, evidence, left, quick, asked=jobs is not None)
        loss = None if corpus is None else text_loss(Bench(anatomy, corpus, quick=quick))
        growing.watched(evidence.arms, loss)
        bar.start("concluding", sum(growing.costs.values()))
        conclusions = conclude(evidence, left, quick, growing.doing, begun)
        # `conclude` frees what no claim still to come reads.
        del evidence
        for conclusion in conclusions:
            growing.add(conclusion)


def _decided(folder: Path | None, now: Survey, probes: Sequence[AnyProbe], resume: bool) -> dict[str, Conclusion]:
    """What a stopped survey left; one that begins anew forgets it."""
    if folder is None:
        return {}
    if not resume:
        forget_pass(folder)
        forget_shard(folder)
        return {}
    findings, seconds = decided(folder, now, {probe.claim.id: probe.claim for probe in probes})
    return {name: Conclusion(finding, seconds.get(name, 0.0)) for name, finding in findings.items()}


def _anatomy(model: Any, tokenizer: Any, device: str | None, dtype: str | None, trust: bool, bar: Bar) -> Anatomy:
    """The model with its laws checked; a survey needs room for a random twin beside it."""
    if not isinstance(model, Anatomy):
        return _load(model, tokenizer, device, dtype, trust, 2, bar)
    anatomy = model if model.laws else _lawful(model)
    return anatomy if tokenizer is None else dataclasses.replace(anatomy, tokenizer=tokenizer)


def _loader(source: Any, anatomy: Anatomy, trust: bool) -> Loader | None:
    """How workers load a model that has a name or a path."""
    if not isinstance(source, str | Path):
        return None
    there = str(Path(source).resolve()) if Path(source).exists() else str(source)
    dtype, facts = str(anatomy.dtype).removeprefix("torch."), describe(anatomy)
    return Loader(there, dtype, trust, facts.checksum, anatomy.device.type)


def _asked(begun: Survey, probes: Sequence[AnyProbe]) -> dict[str, Any]:
    """What shards of one survey have in common, by the names under which a difference is reported."""
    how = begun.provenance
    return {
        "model": [begun.model.name, begun.model.checksum],
        # What was drawn of it follows from the seed.
        "text": {**begun.text.to_dict(), "checksum": ""},
        "claims": [probe.claim.id for probe in probes],
        "seed": how.seed,
        "dtype": how.dtype,
        "device": how.device.split(":")[0],
        "versions": dict(how.versions),
    }


def _load(
    source: Any,
    tokenizer: Any,
    device: str | None,
    dtype: str | None,
    trust: bool,
    copies: int,
    bar: Bar,
    part: str = "",
) -> Anatomy:
    if source is None:
        raise ModelError("no model was given; pass a transformers model, a folder, a .gguf file or a name.")
    return _lawful(load_model(source, tokenizer, device, dtype, trust, copies, bar.bytes, part))


def _lawful(anatomy: Anatomy) -> Anatomy:
    if anatomy.context < 2:
        raise ModelError(f"{anatomy.name} reads {anatomy.context} token at a time, so there is nothing to attend to.")
    try:
        return dataclasses.replace(anatomy, laws=check(anatomy))
    except (ArmillaryError, MemoryError):
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        if "memory" in first:
            raise
        raise ModelError(
            f"{anatomy.name} could not be run on a few tokens ({type(error).__name__}: {first}); check config.json, "
            "or fetch the model again."
        ) from error


def corpus_of(anatomy: Anatomy, documents: Documents | Media, tokens: int, seed: int) -> tuple[Anatomy, Corpus]:
    """What is read, as tokens of this model; images and clips bring the model a table of their patches."""
    if isinstance(documents, Media):
        return media_corpus(anatomy, documents, tokens)
    if anatomy.encoder is not None and anatomy.encoder.sound is not None:
        anatomy = hearing(anatomy, spectrum(sample_sound(), anatomy.encoder.sound, home_of(anatomy)))
    return anatomy, text_of(anatomy, documents, tokens, seed)


def text_of(anatomy: Anatomy, documents: Documents, tokens: int, seed: int) -> Corpus:
    """The documents as tokens of this model, as many as the budget allows."""
    if anatomy.tokenizer is None:
        raise TextError(
            f"{anatomy.name} has no tokenizer, so text cannot be read; pass tokenizer=… (Python) or a folder that "
            "contains tokenizer.json."
        )
    start = None if anatomy.encoder is None else anatomy.encoder.start
    corpus = encode(
        spread(documents, anatomy.tokenizer, tokens, seed), anatomy.tokenizer, anatomy.context, tokens, seed, start
    )
    top = max(max(window.ids) for window in corpus.windows)
    if top >= anatomy.vocabulary:
        raise TextError(
            f"the tokenizer gives token {top}, but the model knows {anatomy.vocabulary}: they do not belong together; "
            "pass the model's own tokenizer."
        )
    check_varied(corpus, anatomy.tokenizer)
    notes, read = corpus.notes, share(anatomy, corpus)
    if anatomy.encoder is not None:
        beside = "the same tokens" if anatomy.encoder.sound is None else "one built-in clip of sound"
        notes = (*notes, f"the encoder is given {beside}, for every document")
    if read < 1:
        notes = (*notes, f"covariances read a seeded {read:.2g} of the tokens: {ENOUGH} per dimension are enough")
    return dataclasses.replace(corpus, batch=batch_tokens(anatomy), notes=notes)


def _caption(anatomy: Anatomy, corpus: Corpus | None) -> str:
    if corpus is None:
        return f"{anatomy.name} · weights only"
    return f"{anatomy.name} · {corpus.source} · {corpus.documents} documents, {corpus.tokens} tokens"


def _survey(anatomy: Anatomy, corpus: Corpus | None, documents: Documents | Media, asked: int, seed: int) -> Survey:
    """A survey without findings."""
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
            checksum=corpus.checksum,
        )
    return Survey(
        findings=(),
        model=describe(anatomy),
        text=text,
        laws=anatomy.laws,
        provenance=Provenance(
            seed=seed,
            device=str(anatomy.device),
            dtype=str(anatomy.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            rules_version=RULES_VERSION,
            versions={
                "armillary": armillary.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "numpy": numpy.__version__,
            },
        ),
        thresholds=THRESHOLDS.as_dict(),
    )
