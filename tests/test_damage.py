"""Files that are not what they should be are refused by name, and results carry what tells them apart."""

import csv
import hashlib
import io
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import pytest
import torch
from command import refused, run, works

import armillary
from armillary.cli.terminal import failures
from armillary.errors import ModelError, OutputError, TextError
from armillary.flow.documents import from_any
from armillary.lab import forms
from armillary.lab.log import evaluations
from armillary.lab.recipe import recipe
from armillary.results import Column, Survey, Table
from armillary.results.disk.files import strict_json
from armillary.results.disk.folder_swap import JOURNAL, MANIFEST
from armillary.results.store import read_survey, table_csv, write_survey
from armillary.views.report import report as reporting

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))


@pytest.fixture(scope="module")
def survey() -> Survey:
    survey: Survey = SYNTHETIC["synthetic_survey"]()
    return survey


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.model_folder("gpt2", tmp_path_factory.mktemp("model") / "gpt2")


def changed(folder: Path, change: Any) -> None:
    """survey.json by another hand, with a manifest that fits."""
    record = json.loads((folder / "survey.json").read_text("utf-8"))
    change(record)
    (folder / "survey.json").write_text(json.dumps(record), "utf-8")
    listed = json.loads((folder / MANIFEST).read_text("utf-8"))
    listed["files"]["survey.json"] = hashlib.sha256((folder / "survey.json").read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(listed), "utf-8")


# Stored surveys.


def double(record: dict[str, Any]) -> None:
    record["claims"].append(record["claims"][0])


def lose(record: dict[str, Any]) -> None:
    record["times"]["claims"] = {claim["id"]: 1.0 for claim in record["claims"]}
    del record["claims"][1]


IMPOSSIBLE = [
    (double, r"it contains the claim sphere\.radius twice"),
    (lose, r"the claim sphere\.plane is missing"),
    (lambda r: r["claims"][0].update(n=-1), r"claims\[0\]\.n is -1, not a whole number of at least 0"),
    (lambda r: r["claims"][0].update(n=True), r"claims\[0\]\.n is True"),
    (lambda r: r["claims"][0].update(chapter="Z"), r"claims\[0\]\.chapter is 'Z', not one of A, B"),
    (lambda r: r["claims"][0]["statistic"].update(low=2, high=1), r"statistic has an interval from 2 to 1"),
    (lambda r: r["claims"][0]["statistic"].update(value="1"), r"statistic\.value is '1', not a finite number"),
    (lambda r: r["claims"][0].update(verdict="undecided"), "has the verdict 'undecided' and the reason None"),
    (lambda r: r["claims"][0].pop("rule"), r"claims\[0\]\.rule is missing"),
    (lambda r: r["model"].update(layer=3), r"model\.layer is unknown here"),
    (lambda r: r["model"].update(layers=-3), r"model\.layers is -3"),
    (lambda r: r["model"].update(config_ignored="abc"), r"model\.config_ignored is 'abc', not a list"),
    (lambda r: r["laws"][0].update(error=-1), r"laws\[0\]\.error is -1, not between 0"),
    (lambda r: r.update(thresholds=[1]), r"thresholds is \[1\], not an object"),
    (lambda r: r["claims"][0]["quantities"][0].update(values=[[1]]), "has shape"),
    (lambda r: r["claims"][0]["columns"].pop(), "first line names"),
]


@pytest.mark.parametrize(("change", "message"), IMPOSSIBLE)
def test_what_no_survey_can_say_is_refused(survey: Survey, tmp_path: Path, change: Any, message: str) -> None:
    write_survey(survey, tmp_path)
    changed(tmp_path, lambda record: None)
    assert len(read_survey(tmp_path)) == len(survey)
    changed(tmp_path, change)
    with pytest.raises(OutputError, match=message):
        read_survey(tmp_path)


def test_every_file_of_a_result_is_listed_with_its_hash(survey: Survey, tmp_path: Path) -> None:
    survey.save(tmp_path)
    listed = json.loads((tmp_path / MANIFEST).read_text("utf-8"))["files"]
    there = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del there[MANIFEST]
    assert listed == {name: hashlib.sha256(content).hexdigest() for name, content in there.items()}
    works("report", tmp_path)
    again = json.loads((tmp_path / MANIFEST).read_text("utf-8"))["files"]
    assert again["report.html"] == hashlib.sha256((tmp_path / "report.html").read_bytes()).hexdigest()


def test_one_changed_digit_is_noticed(survey: Survey, tmp_path: Path) -> None:
    path = write_survey(survey, tmp_path)
    sound = path.read_text("utf-8")
    assert sound.count('"value": 0.') > 3
    path.write_text(sound.replace('"value": 0.', '"value": 1.', 1), "utf-8")
    refused("does not match manifest.json", "show", tmp_path)
    path.write_text(sound, "utf-8")
    works("show", tmp_path)
    (tmp_path / MANIFEST).write_text('{"schema": 1, "files": {"../../x": "0"}}')
    refused(r"manifest\.json is damaged", "show", tmp_path)


def test_a_result_takes_its_own_files_with_it_and_no_others(survey: Survey, tmp_path: Path) -> None:
    survey.save(tmp_path)
    mine = [tmp_path / "figures" / "mine.html", tmp_path / "notes.txt"]
    for path in mine:
        path.write_text("mine")
    few = replace(survey, findings=survey.findings[:1])
    write_survey(few, tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["figures/mine.html", MANIFEST, "notes.txt", "survey.json", "tables/sphere.radius.csv"]


def test_a_journal_of_unknown_origin_is_not_obeyed(survey: Survey, tmp_path: Path) -> None:
    """Reading a folder that somebody sent renames and removes nothing, in it or elsewhere."""
    folder, other = tmp_path / "sent", tmp_path / "mine.txt"
    survey.save(folder)
    other.write_text("mine")
    for record in ({"files": {}, "gone": ["../mine.txt"]}, {"files": {"survey.json": "../mine.txt"}, "gone": []}):
        (folder / JOURNAL).write_text(json.dumps(record))
        assert len(read_survey(folder)) == len(survey)
        write_survey(survey, folder)
        assert other.read_text() == "mine"


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5_000, b"\xff{}", "", "{"])
def test_json_by_the_book(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json(text)
    assert strict_json('{"a": [1, null]}') == {"a": [1, None]}


# Cells that spreadsheets would run.


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-x", "@sum", "\tx", "\r=1", "'", "'=1", "plain", "1e5"])
def test_formulas_are_text_and_come_back(survey: Survey, tmp_path: Path, cell: str) -> None:
    table = Table((Column("token", "as it is"), Column("x", "a number")), ((cell, -1.5), ("a", 2.0)))
    _, first_row, _ = csv.reader(io.StringIO(table_csv(table), newline=""))
    assert not first_row[0].startswith(("=", "+", "-", "@", "\t", "\r"))
    first = replace(survey.findings[0], table=table)
    write_survey(replace(survey, findings=(first,)), tmp_path)
    assert read_survey(tmp_path).findings[0].table == table
    assert "-1.5" in table_csv(table) and "'-1.5" not in table_csv(table)


# Models.


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.int32])
@pytest.mark.parametrize("name", ["transformer__h__0__attn__c_attn__weight", "transformer__wpe__weight"])
def test_numbers_that_are_no_weights_are_refused(gpt2: Path, tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    folder = folders.change_weights(folders.spoilt(gpt2, tmp_path / "m"), **{name: lambda w: w.to(dtype)})
    refused("names no quantization_config that says how to unpack it", "anatomy", folder)


def test_an_adapter_beside_a_model_is_refused(gpt2: Path, tmp_path: Path) -> None:
    folder = folders.spoilt(gpt2, tmp_path / "m")
    works("anatomy", folder)
    (folder / "adapter_config.json").write_text("{}")
    refused("holds a model and an adapter", "anatomy", folder)


def test_what_a_config_does_not_call_for_is_said_in_the_first_lines(gpt2: Path, tmp_path: Path) -> None:
    folder = folders.change_config(folders.spoilt(gpt2, tmp_path / "m"), n_heads=7)
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "more.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    output = works("anatomy", folder).stdout
    shown = works("survey", folder, "--claims", "sphere.radius", "--tokens", 150, "--out", tmp_path / "out").stdout
    for text in (output, shown):
        first = text[: text.index("sphere.radius")] if "sphere.radius" in text else text
        assert "n_heads" in first and "more.weight" in first


@pytest.mark.parametrize("size", [0, -1])
def test_a_model_of_no_heads_is_refused(gpt2: Path, tmp_path: Path, size: int) -> None:
    folder = folders.change_config(folders.spoilt(gpt2, tmp_path / "m"), n_head=size)
    refused(f"num_attention_heads is {size}, but must be at least 1", "anatomy", folder)


def test_the_class_and_the_kind_must_agree(gpt2: Path, tmp_path: Path) -> None:
    folder = folders.change_config(folders.spoilt(gpt2, tmp_path / "m"), architectures=["LlamaForCausalLM"])
    refused("which belong to different architectures", "anatomy", folder)


def test_a_model_that_names_no_outputs(gpt2: Path, tmp_path: Path) -> None:
    folder = folders.change_config(folders.spoilt(gpt2, tmp_path / "m"), return_dict=False)
    works("anatomy", folder)
    live = armillary.load(str(gpt2), progress=False).model
    live.config.return_dict = False
    try:
        with pytest.raises(ModelError, match="return_dict=False"):
            armillary.load(live, progress=False)
    finally:
        live.config.return_dict = True


def test_every_weight_and_the_config_count(gpt2: Path, tmp_path: Path) -> None:
    """One weight that the fingerprint does not look at, and one setting, are another model."""

    def nudge(weight: torch.Tensor) -> torch.Tensor:
        weight = weight.clone()
        weight.view(-1)[1] += 1e-3
        return weight

    facts = [armillary.load(str(gpt2), progress=False).provenance]
    other = folders.change_weights(folders.spoilt(gpt2, tmp_path / "w"), transformer__wte__weight=nudge)
    facts.append(armillary.load(str(other), progress=False).provenance)
    other = folders.change_config(folders.spoilt(gpt2, tmp_path / "c"), layer_norm_epsilon=1e-3)
    facts.append(armillary.load(str(other), progress=False).provenance)
    assert len({fact["fingerprint"] for fact in facts}) == 1
    assert len({fact["checksum"] for fact in facts}) == 3
    assert armillary.load(str(gpt2), progress=False).provenance == facts[0]


def test_half_a_character_is_named() -> None:
    with pytest.raises(TextError, match=r"text 2 of those given holds half of a character \(U\+D800"):
        from_any(["whole", "half \ud800"])
    assert from_any(["whole", "\U0001f600"]).texts


# Files of the laboratory.

EXAM = json.loads((Path(armillary.__file__).parent / "builtin" / "gpt" / "exam.json").read_text("utf-8"))
RECIPE = json.loads((Path(armillary.__file__).parent / "builtin" / "gpt" / "recipe.json").read_text("utf-8"))


def test_what_this_program_wrote_has_its_form(tmp_path: Path) -> None:
    forms.EXAM(EXAM, "")
    forms.RECIPE(RECIPE, "")
    works("lab", "plot", "builtin:gpt", "--out", tmp_path / "x.csv")
    for study in sorted((Path(__file__).parents[1] / "docs" / "lab").glob("*/manifest.json")):
        works("lab", "show", study.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits_per_byte": -1}, "bits_per_byte is -1"),
        ({"lens": {"depths": ["a"], "nats": [], "kl": [1.0]}}, "lists of different lengths under lens"),
        ({"induction": None}, "induction is None, not an object"),
        ({"schema": 2}, "schema is 2, not schema 1, which this version reads"),
        ({"sample": []}, "sample is unknown here"),
    ],
)
def test_an_exam_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forms.EXAM({**EXAM, **change}, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"heads": 3}, "must divide"), ({"layers": "7"}, "layers is '7'"), ({"rates": 1}, "rates is unknown"),
     ({"dropout": True}, "dropout is True"), ({"steps": 10**30}, "steps is 1000")],
)  # fmt: skip
def test_a_recipe_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forms.RECIPE({**RECIPE, "recipe": {**RECIPE["recipe"], **change}}, "")


STEP = {"step": 1, "loss": 5.0, "norm": 1.0, "rate": 0.1}
LOOK = {"step": 0, "valid_bits_per_byte": 3.0, "seconds": 0.1, "geometry": {"a": None}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([LOOK, STEP, STEP], r"line 3 .* \(step 1 comes after step 1\)"),
        ([{**STEP, "step": 2}, STEP], r"line 2 .* \(step 1 comes after step 2\)"),
        ([{**STEP, "loss": None}], "loss is None"),
        ([{**LOOK, "valid_bits_per_byte": -3}], "valid_bits_per_byte is -3"),
        ([7], "7, not an object"),
    ],
)
def test_a_log_that_cannot_be(rows: list[Any], message: str) -> None:
    forms.check_rows(Path("log.jsonl"), [LOOK, STEP, {**LOOK, "step": 1}, {**STEP, "step": 2}])
    with pytest.raises(OutputError, match=message):
        forms.check_rows(Path("log.jsonl"), rows)


@pytest.mark.parametrize("version", [2, True, 1.0, "1"])
def test_a_run_of_another_version_is_refused(tmp_path: Path, version: object) -> None:
    """A recipe by its own schema, and the log beside it."""
    (tmp_path / "log.jsonl").write_text(json.dumps(LOOK) + "\n")
    assert evaluations(tmp_path) == [LOOK]
    (tmp_path / "recipe.json").write_text(json.dumps({"schema": version}))
    with pytest.raises(OutputError, match=r"recipe\.json has schema .*, this version reads 1, so the log"):
        evaluations(tmp_path)
    with pytest.raises(ValueError, match=r"schema is .*, not schema 1, which this version reads"):
        forms.RECIPE({"schema": version, "recipe": recipe("smoke").to_dict(), "text": "", "device": "cpu"}, "")


# What is said after Ctrl-C.


def test_an_interrupt_tells_what_is_on_disk(survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    survey.save(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("armillary.results.store.read_survey", interrupt)
        result = run("report", tmp_path)
        assert (result.exit_code, result.stderr) == (
            failures.INTERRUPTED,
            "armillary: interrupted; nothing was written.\n",
        )
    real = reporting.save_report

    def late(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(reporting, "save_report", late)
    errors = run("report", tmp_path).stderr
    assert errors == f"armillary: interrupted; 1 file had been written, the last of them {tmp_path / 'report.html'}.\n"


def test_a_reader_that_goes_ends_the_command_quietly():
    """As before `head`: no traceback, no report of an error; a broken pipe to a process of ours is one."""
    code = (
        "import os, sys; from armillary.cli.terminal.failures import friendly\n"
        "def command():\n"
        "    while True:\n"
        "        os.write(1, b'a line' * 1000)\n"
        "try:\n"
        "    friendly(command)()\n"
        "except BrokenPipeError:\n"
        "    os._exit(7)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 7 and process.stderr.read() == b""

    @failures.friendly
    def of_our_own():
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SystemExit) as ended:
        of_our_own()
    assert ended.value.code == failures.BUG


def test_the_list_of_commands_cuts_no_sentence():
    listed = works("--help").output.split("Commands:")[1]
    assert "..." not in listed and max(map(len, listed.splitlines())) <= 80
