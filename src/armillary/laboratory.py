"""Train a model on a text, and examine it: the laboratory with geometry callbacks and progress."""

import json
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model, locate, pick_device
from armillary.anatomy.loading.quiet import quiet
from armillary.errors import ArmillaryError, ModelError, TextError
from armillary.lab import data, exam
from armillary.lab.card import EXAM
from armillary.lab.checkpoint import RECIPE
from armillary.lab.forms import SCHEMA
from armillary.lab.log import evaluations, rows
from armillary.lab.ngram import KneserNey
from armillary.lab.recipe import recipe
from armillary.lab.required_words import NOUNS
from armillary.lab.study.end_states.state_folders import EndState, state_path, write_geometry
from armillary.lab.train import Trainer
from armillary.results.claim import Verdict
from armillary.results.numbers import interval_of
from armillary.results.store import write_whole
from armillary.training.snapshot import DivergedError
from armillary.views.text.progress import Bar, progress_bar

LOOK_ROWS, LOOK_WIDTH = 8, 128
SAMPLE = str(files("armillary.flow") / "sample")
# What the end states of a study are surveyed for: a few claims that one quick pass decides.
STATE_CLAIMS = "sphere.radius,sphere.direction,spectrum.dimension,cycle.isotropy,heads.specialise"
PROMPTS = ("The old man", "“I do not know,” said", "In the morning", "There was a time when")


def train(
    preset: str = "smoke",
    text: str | Path | None = None,
    out: str | Path = "run",
    *,
    heldout: str | Path | None = None,
    architecture: str = "gpt",
    device: str | None = None,
    progress: bool = True,
    **changes: Any,
) -> Path:
    """Train a small language model on a text (None: the built-in sample) into the folder `out`; resumes a killed run.

    `changes` are fields of the recipe: steps, seed, batch, rate, vocabulary, …
    """
    plan = recipe(preset, architecture, **changes)
    source = data.Text.of(SAMPLE if text is None else text, heldout)
    trainer = Trainer(plan, source, Path(out), pick_device(device))
    with progress_bar(progress) as bar:
        trainer.tick = bar.bytes
        trainer.watch = _Geometry(trainer)
        return trainer.run()


def summary(out: Path) -> str:
    """A finished run in three lines."""
    logged = evaluations(out)
    losses = [row["loss"] for row in rows(out) if "loss" in row]
    first, last = logged[0], logged[-1]
    return (
        f"{out}: {last['step']} steps, training loss {losses[0]:.3f} → {losses[-1]:.3f} nats per token\n"
        f"held-out text: {first['valid_bits_per_byte']:.3f} → {last['valid_bits_per_byte']:.3f} bits per byte\n"
        f"next: armillary survey {out}   ·   armillary lab exam {out}"
    )


def examine(
    model: str | Path,
    text: str | Path | None = None,
    *,
    training: str | Path | None = None,
    device: str | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Examine a causal language model on a text (None: its run's held-out text, else the built-in sample).

    `training`: the text it was trained on, for a Kneser–Ney 5-gram of that text in the model's own tokens as a
    baseline. If `model` is a run's folder, exam.json is written there.
    """
    for path in (text, training):
        if path is not None:
            data.check_source(str(path))
    with progress_bar(progress) as bar:
        anatomy = _writer(model, device, bar)
        bar.start("examining", 0)
        tokens, size, source = _exam_text(anatomy, model, text)
        context = min(anatomy.context, 512)
        if len(tokens) < 2 * context + 1:
            raise TextError(
                f"the exam needs two windows of {context} tokens, and the text has {len(tokens)} tokens; "
                "pass a longer --text."
            )
        network = anatomy.model
        measured = {
            "schema": SCHEMA,
            "text": source,
            "bits_per_byte": exam.bits_per_byte(network, tokens, size, context),
            "induction": _induction(exam.induction(network, anatomy.vocabulary, min(64, context // 2))),
            "lens": _lens(exam.lens(network, tokens, min(16, (len(tokens) - 1) // context), context)),
            "samples": exam.samples(network, anatomy.tokenizer, PROMPTS),
            "nouns_split": [noun for noun in NOUNS if len(_ids(anatomy, [" " + noun])[0]) > 1],
        }
        if training is not None:
            bar.start("counting n-grams", 0)
            counted, _ = _tokens(anatomy, training)
            measured["kneser_ney"] = KneserNey.fit(counted, anatomy.vocabulary).bits_per_byte(tokens, size)
    if (Path(model) / RECIPE).exists():
        write_whole({Path(model) / EXAM: json.dumps(measured, indent=2, ensure_ascii=False) + "\n"})
    return measured


def _writer(model: str | Path, device: str | None, bar: Bar) -> Anatomy:
    anatomy = load_model(str(model), device=device, progress=bar.bytes)
    if anatomy.W_U is None or not anatomy.causal:
        raise ModelError(
            f"{model} does not generate text, so there is nothing to examine; pass a causal language model."
        )
    if anatomy.tokenizer is None:
        raise ModelError(f"{model} came without a tokenizer, so it cannot read text; add its tokenizer.json.")
    return anatomy


def _exam_text(anatomy: Anatomy, model: str | Path, text: str | Path | None) -> tuple[np.ndarray, int, str]:
    """Tokens, bytes and name of the exam's text. A run trained on the sample must not be examined on it."""
    if text is None and (Path(model) / "tokens" / "valid.json").exists():
        stream = data.Stream(Path(model) / "tokens", "valid")
        return stream.window(0, len(stream)), stream.bytes, "the run's held-out text"
    name = "the built-in sample" if text is None else Path(text).name
    return *_tokens(anatomy, SAMPLE if text is None else text), name


def _tokens(anatomy: Anatomy, text: str | Path) -> tuple[np.ndarray, int]:
    """A whole text as one sequence of tokens, and its bytes."""
    ids: list[np.ndarray] = []
    size = 0
    # Hugging Face warns of lines longer than the context, although windows are cut later.
    with quiet():
        for row, read, _ in data.encoded(
            data.lines(Path(text)), partial(_ids, anatomy), anatomy.tokenizer.eos_token_id
        ):
            ids.append(np.array(row, dtype=np.int64))
            size += read
    if not size:
        raise TextError(f"{text} contains no text; pass a file with some words in it.")
    return np.concatenate(ids), size


def _ids(anatomy: Anatomy, texts: list[str]) -> list[list[int]]:
    return list(anatomy.tokenizer(texts, add_special_tokens=False)["input_ids"])


def _induction(induction: exam.Induction) -> dict[str, Any]:
    layer, head = induction.strongest
    return {
        "first": induction.first,
        "second": induction.second,
        "drop": {name: float(getattr(induction.drop, name)) for name in ("value", "low", "high")},
        "head": f"L{layer}H{head}",
        "score": float(induction.score[layer, head]),
        "control": float(induction.control[layer, head]),
    }


def _lens(lens: exam.LensExam) -> dict[str, Any]:
    return {"depths": list(lens.depths), "nats": lens.nats.value.tolist(), "kl": lens.kl.value.tolist()}


def training(model: str | Path) -> list[dict[str, Any]]:
    """The evaluations logged during training, of a run's folder or of a built-in model."""
    folder, _ = locate(str(model))
    logged = evaluations(folder)
    if not logged:
        raise ModelError(f"{model} has no log of its training; pass the folder of a run, or a built-in model.")
    return logged


def survey_states(folder: Path, report: Callable[[str], None] = lambda line: None) -> dict[str, EndState]:
    """Survey the kept end state of every arm of a study, and write geometry.json into its folder."""
    from armillary.lab.study.arm_training import StudyCorpus, build_arm
    from armillary.lab.study.arms import arms_of
    from armillary.lab.study.conclusions.outcome import outcome
    from armillary.lab.study.design import size_of
    from armillary.lab.study.end_states.state_geometry import ROWS, geometry, restore

    study = outcome(folder)
    size = size_of(study.name, study.manifest["size"]["name"])
    arms = [arm for arm in arms_of(study.name) if state_path(folder, arm.name).exists()]
    if not arms:
        raise ArmillaryError(
            f"{folder} contains no end states; each arm's first paired run writes one, so run the study here."
        )
    held_out, states = StudyCorpus(folder / "tokens", "cpu").valid, {}
    rows = min(ROWS, len(held_out) // size.context)
    windows = held_out[: rows * size.context].view(rows, size.context).long()
    for arm in arms:
        model = build_arm(arm, size, 0).eval()
        restore(model, state_path(folder, arm.name))
        claims, refused = _state_claims(model, folder)
        states[arm.name] = EndState(geometry(model, windows), claims, refused)
        report(f"surveyed {arm.name}" + (f": its geometry, but no claims ({refused})" if refused else ""))
    write_geometry(folder, states)
    return states


def _state_claims(model: Any, folder: Path) -> tuple[dict[str, tuple[Verdict, str]], str]:
    """Claim → verdict and number, or why the model cannot be surveyed."""
    from transformers import PreTrainedTokenizerFast

    from armillary.run import survey

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokens" / "bpe.json"), eos_token=data.END)
    try:
        with quiet():
            findings = survey(model, tokenizer=tokenizer, claims=STATE_CLAIMS, quick=True, device="cpu", progress=False)
    except (ArmillaryError, AttributeError) as error:
        # A part that no table describes lacks what the anatomy looks for.
        return {}, str(error).split(":")[0]
    return {finding.id: (finding.verdict, interval_of(finding.statistic)) for finding in findings}, ""


class _Geometry:
    """The geometry callback, created at the first evaluation on the start of the held-out text."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._callback: Any = None

    def __call__(self, step: int, model: Any) -> dict[str, float]:
        if self._callback is None:
            # Imported here: transformers' trainer takes seconds to import, and most commands of the lab never need it.
            from armillary.training.callback import GeometryCallback

            stream, width = self._trainer.valid, min(LOOK_WIDTH, self._trainer.recipe.context)
            rows = max(1, min(LOOK_ROWS, len(stream) // width))
            tokens = stream.window(0, rows * width)
            self._callback = GeometryCallback(tokens.reshape(-1, min(width, len(tokens))))
        try:
            return self._callback(step, model)
        except DivergedError as error:
            raise self._trainer.broken("the stream contains NaN or infinity", step) from error
