"""`armillary lab` as a user meets it: a model from a text in one command, and one sentence where there can be none."""

import json
import logging
import math
import re
import subprocess
import sys
from typing import Any

import folders
import pytest
from command import check_sentence, refused, run, works
from runs import fill_disk, log, prose

import armillary
from armillary import laboratory
from armillary.flow.laws import LAWS
from armillary.lab.checkpoint import CHECKPOINT
from armillary.lab.train import Trainer

QUICK = ("--steps", 6, "--batch", 4, "--vocabulary", 300)
SHOWN = re.compile(
    r"(?P<out>\S+): (?P<steps>\d+) steps, training loss (?P<first>[\d.]+) → (?P<last>[\d.]+) nats per token\n"
    r"held-out text: (?P<before>[\d.]+) → (?P<after>[\d.]+) bits per byte\n"
    r"next: armillary survey (?P=out)   ·   armillary lab exam (?P=out)\n"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return prose(tmp_path_factory.mktemp("text") / "prose.txt", 16)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The preset as it stands, on the built-in text: (folder, what was printed, what its exam printed)."""
    out = tmp_path_factory.mktemp("smoke") / "run"
    printed = works("lab", "train", "--preset", "smoke", "--out", out).stdout
    return out, printed, works("lab", "exam", out).stdout


# What works.


def test_the_smoke_preset(smoke):
    out, printed, _ = smoke
    shown = SHOWN.fullmatch(printed)
    assert shown and shown["out"] == str(out) and shown["steps"] == "200"
    assert float(shown["first"]) == pytest.approx(math.log(1024), abs=0.15), "an untrained model knows nothing"
    assert float(shown["last"]) < 5.6
    assert float(shown["after"]) < 3.0 < 3.5 < float(shown["before"])
    names = {"config.json", "log.jsonl", "model.safetensors", "recipe.json", "steps", "tokenizer.json", "tokens"}
    assert names < {path.name for path in out.iterdir()}
    looks = [row for row in log(out) if "valid_bits_per_byte" in row]
    assert [row["step"] for row in looks] == [0, 1, 2, 4, 8, 9, 16, 20, 32, 43, 50, 93, 100, 150, 200]
    for row in looks:
        assert {"length/L0.ln1", "effective_rank/ln_final", "attention_entropy/L1H3"} < set(row["geometry"])
    lengths = [row["geometry"]["length/ln_final"] for row in looks]
    assert lengths[-1] > 2 * lengths[0], "the stream grows as it learns"
    assert len(armillary.load(str(out), progress=False).laws) == len(LAWS)


def test_the_training_is_drawn(smoke, tmp_path):
    out, _, _ = smoke
    page = tmp_path / "training.html"
    assert works("lab", "plot", out, "--out", page).stdout == f"{page}\n"
    assert "bits per byte" in page.read_text("utf-8")
    works("lab", "plot", "--out", tmp_path / "builtin.csv")
    assert "effective_rank/ln_final" in (tmp_path / "builtin.csv").read_text("utf-8")
    refused("has no log of its training; pass the folder of a run", "lab", "plot", tmp_path, "--out", page)
    refused("choose one of .html .csv .svg .pdf .png", "lab", "plot", "--out", tmp_path / "x.gif")


def test_the_exam(smoke):
    out, _, printed = smoke
    exam = json.loads((out / "exam.json").read_text("utf-8"))
    assert re.search(rf"bits per byte, the run's held-out text +{exam['bits_per_byte']:.4f}\n", printed)
    assert exam["bits_per_byte"] < 3.1
    assert exam["lens"]["depths"] == ["L0.resid_pre", "L0.resid_post", "L1.resid_post"]
    assert exam["lens"]["nats"][-1] < exam["lens"]["nats"][0]
    assert len(exam["samples"]) == len(laboratory.PROMPTS) and all(
        text.startswith(prompt) for text, prompt in zip(exam["samples"], laboratory.PROMPTS, strict=True)
    )
    assert {"education", "woman"} & set(exam["nouns_split"]) and "time" not in exam["nouns_split"]


def test_the_card(smoke, monkeypatch):
    out, _, _ = smoke
    exam = json.loads((out / "exam.json").read_text("utf-8"))
    wild = {**exam, "samples": ["line\n\x1b[31mred\rover\u2028\u202e", *exam["samples"]]}
    (out / "exam.json").write_text(json.dumps(wild), "utf-8")
    try:
        assert works("lab", "card", out, "--title", "Tiny", "--about", "Own prose.").stdout == f"{out / 'card.md'}\n"
    finally:
        (out / "exam.json").write_text(json.dumps(exam), "utf-8")
    card = (out / "card.md").read_text("utf-8")
    assert card.startswith("# Tiny\n\nOwn prose.\n\n## Shape and recipe\n")
    assert "| width | 64 |" in card and "| 200 | 2." in card and "| bits per byte, the run's held-out text | 2." in card
    assert "> line\n> ⟨1B⟩[31mred␍over⟨2028⟩⟨202E⟩\n" in card
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", card)


def test_a_quick_run_with_everything_said(text, tmp_path):
    command = ("lab", "train", "--text", text, "--heldout", text, "--out", tmp_path / "run", *QUICK)
    more = ("--architecture", "llama", "--rate", 0.01, "--seed", 5, "--device", "cpu")
    shown = SHOWN.fullmatch(works(*command, *more).stdout)
    assert shown and shown["steps"] == "6"
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())["recipe"]
    wanted = {"architecture": "llama", "steps": 6, "batch": 4, "vocabulary": 300, "rate": 0.01, "seed": 5}
    assert wanted.items() <= recipe.items()
    assert works(*command, *more).stdout == shown[0], "a finished run is not trained again"


def test_the_exam_beside_an_n_gram(text, tmp_path):
    works("lab", "train", "--text", text, "--out", tmp_path / "run", *QUICK)
    exam = json.loads(works("lab", "exam", tmp_path / "run", "--text", text, "--training", text, "--json").stdout)
    assert exam == json.loads((tmp_path / "run" / "exam.json").read_text("utf-8"))
    assert exam["kneser_ney"] < exam["bits_per_byte"], "the n-gram knows this very text, the model hardly any"


def test_a_bar_is_shown_on_a_terminal_and_only_there(text, tmp_path, monkeypatch):
    """Standard output holds the summary alone."""
    command = ["lab", "train", "--text", text, *QUICK, "--out"]
    plain = works(*command, tmp_path / "plain")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.delenv("ARMILLARY_PROGRESS")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    shown = run(*command, tmp_path / "shown")
    assert shown.exit_code == 0
    assert SHOWN.fullmatch(shown.stdout.replace("shown", "plain")) and "step" not in plain.stderr
    assert re.search(r"step 6: loss \d", shown.stderr)


def test_help_and_refusals_are_light(tmp_path):
    code = (
        "import sys; sys.argv = ['armillary', *sys.argv[1:]]\n"
        "from armillary.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    for args, end in (
        (["--help"], "0 False"),
        (["train", "--help"], "0 False"),
        (["train", "--out", str(tmp_path), "--preset", "smok"], "2 False"),
        (["train", "--out", str(tmp_path), "--text", "nowhere"], "2 False"),
    ):
        done = subprocess.run([sys.executable, "-c", code, "lab", *args], check=False, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == end, done.stderr


# What cannot work.


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--preset", "smok"], "there is no preset 'smok'; did you mean 'smoke'"),
        (["--architecture", "lama"], "there is no architecture 'lama'; did you mean 'llama'"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--batch", "-1"], "batch must be at least 1, got -1"),
        (["--vocabulary", "100"], "vocabulary must lie between 257 and 65536, got 100"),
        (["--vocabulary", "60000"], r"the text supports only \d+ tokens; pass more text, or ask for a vocabulary of"),
        (["--batch", "9999"], "too small for one batch: 9999 windows .*; pass more text or a smaller --batch"),
        (["--rate", "nan"], "rate must lie between"),
        (["--seed", "-1"], "seed must lie between"),
        (["--device", "tpu"], "--device tpu is not supported; use cpu or cuda"),
        (["--text", ""], "there is an empty word after --text"),
        (["--text", "nowhere.txt"], "there is no text at nowhere.txt; pass a file"),
        (["--heldout", "nowhere.txt"], "there is no text at nowhere.txt; pass a file"),
    ],
    ids=str,
)
def test_refusals(text, tmp_path, args, message):
    given = () if "--text" in args else ("--text", text)
    refused(message, "lab", "train", "--out", tmp_path / "run", *given, *args)
    # The folder is still free for the command put right.
    works("lab", "train", "--out", tmp_path / "run", "--text", text, *QUICK, "--steps", 1)


def test_texts_that_are_none(tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"caf\xe9\n" * 100)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "bad.txt.xz").write_bytes(b"no xz")
    command = ("lab", "train", "--out", tmp_path / "run", "--text")
    refused("line 1 of .*bytes.txt is not UTF-8 .*; convert the file", *command, tmp_path / "bytes.txt")
    refused("empty.txt contains no text; pass a file", *command, tmp_path / "empty.txt")
    refused("bad.txt.xz cannot be read .*; check the file", *command, tmp_path / "bad.txt.xz")


def test_a_folder_that_is_anothers(text, tmp_path):
    command = ("lab", "train", "--text", text, "--out", tmp_path / "run", *QUICK)
    works(*command)
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    refused(r"contains another run \(seed 0 there, 1 here\); choose another --out", *command, "--seed", 1)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    (tmp_path / "file").write_text("mine")
    refused("a file stands where a folder should be", "lab", "train", "--text", text, "--out", tmp_path / "file")
    refused("is not empty and contains no run of this program", "lab", "train", "--text", text, "--out", tmp_path)


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    real = Trainer._update

    def update(self: Trainer) -> Any:
        if self.step == step:
            raise error
        return real(self)

    monkeypatch.setattr(Trainer, "_update", update)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; the same command resumes from the run's last checkpoint"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), 2, "out of memory; use a smaller --batch"),
    ],
    ids=str,
)
def test_an_end_from_outside(text, tmp_path, monkeypatch, error, code, message):
    command = ("lab", "train", "--text", text, "--out", tmp_path / "run", *QUICK)
    with monkeypatch.context() as patch:
        at_step(patch, 4, error)
        result = run(*command)
    assert result.exit_code == code and result.stdout == ""
    check_sentence(result.stderr, message)
    works(*command)


def test_a_loss_that_is_no_number_and_a_full_disk(text, tmp_path, monkeypatch):
    command = ("lab", "train", "--text", text, "--out", tmp_path / "run", *QUICK)
    real = Trainer._loss
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_loss", lambda self, rows: real(self, rows) * (math.nan if self.step == 3 else 1.0))
        refused(r"the loss is nan .* at step 4; the stream grew most at \S+, .* with a lower --rate", *command)
    with monkeypatch.context() as patch:
        fill_disk(patch, "." + CHECKPOINT)
        refused("checkpoint.safetensors cannot be written: the disk is full; free some space", *command)
    works(*command)


# Exams and cards that cannot be.


@pytest.fixture
def gpt2(tmp_path):
    return folders.model_folder("gpt2", tmp_path / "gpt2")


def test_an_exam_is_quiet_and_its_samples_are_inert(gpt2, text, monkeypatch):
    config = gpt2 / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": 64}))
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr("armillary.lab.exam.samples", lambda *args: ["one\ntwo\x1b[2J\x07\r\u202ethree"])
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        printed = works("lab", "exam", gpt2, "--text", text).stdout
        assert printed.endswith("\none\ntwo⟨1B⟩[2J⟨07⟩␍⟨202E⟩three\n")
        assert not records
        folders.tr.AutoTokenizer.from_pretrained(gpt2).encode("the " * 100)
        assert "longer than the specified maximum" in records[0].getMessage(), "control: it would have been said"
    finally:
        logger.removeHandler(handler)


def test_exams_that_cannot_be_taken(gpt2, text, tmp_path):
    bert = folders.model_folder("bert", tmp_path / "bert")
    refused(
        "bert does not generate text, so there is nothing to examine; pass a causal",
        "lab",
        "exam",
        bert,
        "--text",
        text,
    )
    (tmp_path / "short.txt").write_text("a few words")
    refused(
        r"two windows of 64 tokens, and the text has \d+ tokens; pass a longer --text",
        *("lab", "exam", gpt2, "--text", tmp_path / "short.txt"),
    )
    refused("there is no text at nowhere", "lab", "exam", gpt2, "--training", "nowhere")
    refused("there is no model at ./nowhere", "lab", "exam", "./nowhere")
    for path in gpt2.glob("tokenizer*"):
        path.unlink()
    refused("gpt2 came without a tokenizer, .*; add its tokenizer.json", "lab", "exam", gpt2, "--text", text)


def test_a_card_needs_a_run_and_its_exam(text, tmp_path):
    refused("recipe.json cannot be read .*; run armillary lab train first", "lab", "card", tmp_path)
    works("lab", "train", "--text", text, "--out", tmp_path / "run", *QUICK)
    refused("exam.json cannot be read .*; run armillary lab exam first", "lab", "card", tmp_path / "run")
