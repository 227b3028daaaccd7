"""How often is the instrument wrong? The ledger on untrained and planted models, and over seeds, budgets and texts."""

import hashlib
import platform
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

from armillary import __version__, run
from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import locate
from armillary.anatomy.loading.quiet import quiet
from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.flow.documents import Documents, from_path, sample
from armillary.flow.sources.spread import spread
from armillary.flow.tokens import encode
from armillary.probes import claims as list_claims
from armillary.probes.machinery import T
from armillary.probes.machinery.limits.thresholds import RULES_VERSION
from armillary.probes.machinery.processes.jobs import MODULES
from armillary.probes.machinery.processes.workers import on_one_thread, one_by_one, side_by_side
from armillary.results import Finding
from armillary.results.calibration import SAMPLE, Calibration, CalibrationRun, CalibrationStudy, Outcome, RunsFile, Task
from armillary.results.calibration.calibration_file import NAME, calibration_json
from armillary.results.calibration.counts import count_runs
from armillary.results.calibration.rate_tables import rates_table
from armillary.results.disk.files import read_json
from armillary.results.disk.folder_swap import LOCK
from armillary.results.disk.lock import locked
from armillary.results.store import check_writable, json_text, table_csv, write_whole
from armillary.specimens import planted
from armillary.specimens.planted.case import conclude
from armillary.specimens.untrained import SHAPES, tokenizer, untrained
from armillary.survey_states import check_dask
from armillary.views.text.papers.trust import trust_page

STUDY = "study.json"
MEASURING = ("anatomy", "edits", "flow", "geometry", "lab", "measures", "probes", "specimens")
CONTEXT = 1024

Tell = Callable[[int, int, float], None]
"""Called with the number of finished runs, of all runs, and the seconds left (NaN while nothing is known)."""


def calibrate(
    study: CalibrationStudy,
    out: Path,
    texts: Mapping[str, str] | None = None,
    workers: int = 1,
    tell: Tell | None = None,
    dask: str | None = None,
) -> tuple[Calibration, list[str]]:
    """Make the runs of a study that the folder `out` lacks, and write the results of all of them there.

    `texts` are the paths of the study's texts by name; 'sample' needs none. With several `workers`, each is a process
    with one thread; with `dask`, runs are made on that cluster, whose machines find the texts at the same paths. The
    second result names damaged lines of runs.jsonl.
    """
    cases = [case.planted for case in planted.CASES]
    tasks = study.tasks(cases)
    if not tasks:
        raise ArmillaryError("without untrained models, seeds and planted models there is nothing to run; add some.")
    paths = dict(texts or {})
    for model in study.models if study.seeds else ():
        locate(model)
    _check_texts(study, paths)
    with locked(check_writable(out)):
        claim_folder(out, study, paths)
        runs = RunsFile(out)
        work = partial(measure, study=study, texts=paths)
        with runs:
            _make(runs, tasks, work, workers, tell or (lambda done, total, left: None), dask)
        # Workers load code when they need it: what was edited meanwhile has been measured in part.
        digests = claim_folder(out, study, paths)
        kinds = {claim.id: claim.kind for claim in list_claims() if claim.id in study.claims}
        versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
        calibration = replace(
            count_runs(runs.finished(tasks), study, kinds, cases),
            rules_version=RULES_VERSION,
            rules={claim.id: claim.rule_digest for claim in list_claims() if claim.id in study.claims},
            date=datetime.now(UTC).date().isoformat(),
            versions={"armillary": __version__, "python": platform.python_version(), **versions},
            shapes=_shapes(study),
            texts={name: digests[name] for name in study.texts},
        )
        files = {"rates.csv": table_csv(rates_table(calibration)), "trust.md": trust_page(calibration)}
        write_whole({out / name: content for name, content in {**files, NAME: calibration_json(calibration)}.items()})
        return calibration, runs.damaged


def _check_texts(study: CalibrationStudy, texts: Mapping[str, str]) -> None:
    """Refuse a text on which no run could decide anything."""
    for name in study.texts if study.untrained or study.seeds else ():
        documents = _documents(name, texts)
        # Tokenizers differ by a few documents at most; the study's models need not be loaded for this.
        words, budget = tokenizer(next(iter(SHAPES))), study.tokens[0]
        count = encode(spread(documents, words, budget), words, CONTEXT, budget).documents
        if count < T.documents_least:
            raise TextError(
                f"{documents.source} gives {count} documents within {budget} tokens, and an interval needs "
                f"{T.documents_least}: no run on it could decide anything. Give more text, or larger --tokens."
            )


def claim_folder(out: Path, study: CalibrationStudy, texts: Mapping[str, str]) -> dict[str, str]:
    """Refuse a folder with something else in it. A study may grow there; what its finished runs depend on may not
    change. Returns the digests of its texts."""
    record = {
        "rules": RULES_VERSION,
        "armillary": __version__,
        "code": code_digest(),
        "claims": list(study.claims),
        "quick": study.quick,
        "device": study.device,
        "untrained": _shapes(study),
    }
    digests = {name: _digest("\f".join(_documents(name, texts).texts)) for name in study.texts}
    path = out / STUDY
    if path.exists():
        try:
            known = read_json(path)
            different = [name for name, value in record.items() if known[name] != value]
            earlier = dict(known["texts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OutputError(f"{path} is damaged ({error}); choose another folder.") from error
        different += [f"text {name!r}" for name in digests if earlier.get(name, digests[name]) != digests[name]]
        if different:
            raise OutputError(
                f"{out} holds another study: {', '.join(different)} changed since; choose another folder with --out."
            )
        digests = {**earlier, **digests}
    elif any(not entry.name.startswith(LOCK) for entry in out.iterdir()):
        raise OutputError(f"{out} holds files that are not a study's; choose a new folder with --out.")
    write_whole({path: json_text({**record, "texts": digests, "study": study.to_dict()})})
    return digests


def _shapes(study: CalibrationStudy) -> dict[str, dict[str, int]]:
    return {name: dict(SHAPES[name]) for name in study.architectures}


def code_digest() -> str:
    """Of the code that a verdict depends on: a change that forgot `RULES_VERSION` is noticed too."""
    root = Path(__file__).parent
    files = sorted(path for folder in MEASURING for path in (root / folder).rglob("*.py"))
    return _digest("\f".join(path.read_text("utf-8") for path in files))


def measure(task: Task, study: CalibrationStudy, texts: Mapping[str, str]) -> CalibrationRun:
    """One run; what it raises becomes its error."""
    began = time.perf_counter()
    try:
        findings = _PARTS[task.part](task, study, texts)
        claims, error = {finding.id: Outcome.of(finding) for finding in findings}, ""
    except Exception as raised:
        claims, error = {}, f"{type(raised).__name__}: {' '.join(str(raised).split()) or 'no message'}"
    return CalibrationRun(task, claims, round(time.perf_counter() - began, 2), error)


def _survey_untrained(task: Task, study: CalibrationStudy, texts: Mapping[str, str]) -> list[Finding]:
    model = untrained(task.subject, task.seed).to(study.device)
    return _survey(model, tokenizer(task.subject), task, study, texts)


def _survey_model(task: Task, study: CalibrationStudy, texts: Mapping[str, str]) -> list[Finding]:
    return _survey(_anatomy(task.subject, study.device), None, task, study, texts)


def _survey(
    model: object, words: object, task: Task, study: CalibrationStudy, texts: Mapping[str, str]
) -> list[Finding]:
    text, claims = _documents(task.text, texts), ",".join(study.claims)
    survey = partial(run.survey, model, text, tokenizer=words, claims=claims, quick=study.quick, progress=False)
    return list(survey(tokens=task.tokens, seed=task.seed))


def _plant(task: Task, study: CalibrationStudy, texts: Mapping[str, str]) -> list[Finding]:
    case = next(case for case in planted.CASES if case.planted.name == task.subject)
    # Planted text contains every token number, the padding's too, which Hugging Face warns of.
    with quiet():
        return [conclude(case, task.strength, task.seed)]


_PARTS = {"untrained": _survey_untrained, "seeds": _survey_model, "planted": _plant}


def _documents(name: str, texts: Mapping[str, str]) -> Documents:
    if name == SAMPLE:
        return sample()
    if name not in texts:
        raise TextError(f"the text {name!r} has no path; give one in `texts`, or name the text {SAMPLE!r}.")
    return from_path(texts[name])


@cache
def _anatomy(model: str, device: str) -> Anatomy:
    """Loaded once per process: a survey proves that it leaves the model as it was."""
    return run.load(model, device=device, progress=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _results(
    missing: Sequence[Task], work: Callable[[Task], CalibrationRun], workers: int, dask: str | None
) -> Generator[CalibrationRun, None, None]:
    if dask is not None:
        return _on_cluster(missing, work, dask)
    return one_by_one(missing, work) if workers == 1 else side_by_side(missing, work, workers, MODULES)


def _on_cluster(
    missing: Sequence[Task], work: Callable[[Task], CalibrationRun], dask: str
) -> Generator[CalibrationRun, None, None]:
    check_dask(dask)
    from armillary.probes.machinery.processes.cluster import cluster_of

    with cluster_of(dask) as cluster:
        yield from cluster.map(partial(on_one_thread, work), missing)


def _make(
    runs: RunsFile,
    tasks: Sequence[Task],
    work: Callable[[Task], CalibrationRun],
    workers: int,
    tell: Tell,
    dask: str | None,
) -> None:
    """Make and store the runs that are missing."""
    missing = runs.missing(tasks)
    done, began = len(tasks) - len(missing), time.monotonic()
    spent, left = 0.0, sum(task.weight for task in missing)
    tell(done, len(tasks), float("nan") if missing else 0.0)
    with closing(_results(missing, work, workers, dask)) as results:
        for finished in results:
            runs.add(finished)
            done, spent, left = done + 1, spent + finished.task.weight, left - finished.task.weight
            tell(done, len(tasks), (time.monotonic() - began) / spent * left)
