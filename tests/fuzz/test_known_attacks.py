"""Inputs that once passed for sound: each is refused, or said, with a sentence."""

import hashlib
import json
import os
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import pytest
import runs
from command import refused, run, works
from fuzz.shelf import copied
from safetensors.numpy import load_file, save_file

from armillary import laboratory
from armillary.anatomy.loading.load import load_model
from armillary.errors import OutputError
from armillary.results.store import read_survey

CLAIMS = "sphere.radius,spectrum.two-zeros"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, a text, and a survey of one of them."""
    root = tmp_path_factory.mktemp("attacks")
    for name in ("gpt2", "bert", "llama"):
        folders.model_folder(name, root / name)
    folders.text_file(root / "text.txt")
    folders.gguf_file(root / "tiny.gguf")
    survey(root / "gpt2", root / "text.txt", root / "survey")
    return root


def survey(model: Path, text: Path, out: Path, *more: object) -> None:
    works("survey", model, "--text", text, "--tokens", "150", "--claims", CLAIMS, "--jobs", "1", "--out", out, *more)


def resettled(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


# Weights under two names.


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        ("gpt2", "transformer.h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.weight"),
        ("bert", "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"),
        ("llama", "model.layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
    ],
)
def test_a_weight_under_two_names(home: Path, tmp_path: Path, family: str, old: str, new: str) -> None:
    model = copied(home / family, tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    save_file({**weights, new: weights[old] * 2}, model / "model.safetensors", {"format": "pt"})
    refused(f"holds the weight {old} twice", "anatomy", model)


def in_two_files(model: Path, both: bool) -> Path:
    """The model's weights in two files with an index; one of them in both, or in the one that the index denies."""
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = sorted(weights)
    parts = [{name: weights[name] for name in names[at::2]} for at in (0, 1)]
    files = [f"model-0000{at}-of-00002.safetensors" for at in (1, 2)]
    index = {name: file for part, file in zip(parts, files, strict=True) for name in part}
    parts[1][names[0]] = weights[names[0]] * 2
    if not both:
        del parts[0][names[0]]
    for part, file in zip(parts, files, strict=True):
        save_file(part, model / file, {"format": "pt"})
    record = {"metadata": {"total_size": 1}, "weight_map": index}
    (model / "model.safetensors.index.json").write_text(json.dumps(record))
    return model


def test_a_weight_in_two_files(home: Path, tmp_path: Path) -> None:
    refused("holds the weight .* in model-00001.* and in model-00002", "anatomy",
            in_two_files(copied(home / "gpt2", tmp_path / "both"), True))  # fmt: skip
    refused("the index of .* says that the weight .* is in model-00001.*, and it is in model-00002", "anatomy",
            in_two_files(copied(home / "gpt2", tmp_path / "other"), False))  # fmt: skip


def test_a_header_that_names_a_weight_twice(home: Path, tmp_path: Path) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    path = model / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    name, entry = next((n, e) for n, e in json.loads(data[8 : 8 + length]).items() if n != "__metadata__")
    header = data[8 : 8 + length].rstrip()[:-1] + f",{json.dumps(name)}:{json.dumps(entry)}}}".encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    refused("twice", "anatomy", model)


def test_a_gguf_that_says_something_twice(home: Path, tmp_path: Path) -> None:
    data, path = (home / "tiny.gguf").read_bytes(), tmp_path / "tiny.gguf"
    path.write_bytes(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_k.weight"))
    refused("it holds the weight blk.0.attn_k.weight twice", "anatomy", path)
    path.write_bytes(data.replace(b"llama.context_length", b"llama.rope.freq_base"))
    refused("its metadata holds 'llama.rope.freq_base' twice", "anatomy", path)


def test_two_matrices_where_the_config_ties_them_are_said(home: Path, tmp_path: Path) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    more = {"lm_head.weight": weights["transformer.wte.weight"] * 2}
    save_file({**weights, **more}, model / "model.safetensors", {"format": "pt"})
    assert "tie_word_embeddings" in works("anatomy", model).stdout
    assert "tie_word_embeddings" not in works("anatomy", home / "gpt2").stdout
    assert load_model(str(model)).config_ignored == ("tie_word_embeddings",)


# Settings under two keys.


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt2", {"num_attention_heads": 2}, "n_head=4, and num_attention_heads=2"),
        ("gpt2", {"hidden_size": 64}, "n_embd=32, and hidden_size=64"),
        ("gpt2", {"num_hidden_layers": 2, "n_layer": 3}, "num_hidden_layers=2"),
        ("llama", {"rope_theta": 5.0}, "rope_parameters.rope_theta=.*, and rope_theta=5.0"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type='default', and rope_scaling"),
        ("llama", {"rope_parameters": {"rope_type": "default", "type": "linear", "rope_theta": 1e4}}, "rope_type"),
    ],
)
def test_a_setting_under_two_keys(home: Path, tmp_path: Path, family: str, changes: Any, message: str) -> None:
    refused(message, "anatomy", resettled(copied(home / family, tmp_path / "model"), **changes))


def test_a_setting_that_is_said_twice_and_alike(home: Path, tmp_path: Path) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    works("anatomy", resettled(model, num_attention_heads=4, hidden_size=32))


# What stands in a file's place.


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def kernel(path: Path) -> None:
    path.symlink_to("/proc/kmsg")


def nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("kind", [pipe, device, kernel, nowhere, Path.mkdir])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"])
def test_what_is_no_file_in_a_models_folder(
    home: Path, tmp_path: Path, name: str, kind: Callable[[Path], object]
) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    (model / name).unlink(missing_ok=True)
    kind(model / name)
    refused(f"{name} in .* is not a regular file", "anatomy", model)


def test_a_word_twice_in_a_tokenizer(home: Path, tmp_path: Path) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    path = model / "tokenizer.json"
    text = path.read_text("utf-8")
    at = text.index('"<pad>"', text.index('"vocab"'))
    path.write_text(f'{text[:at]}"<pad>": 3, {text[at:]}', "utf-8")
    refused("contains '<pad>' twice", "anatomy", model)


@pytest.mark.parametrize("option", ["--text", "--images", "--audio"])
def test_a_folder_of_the_kernel(home: Path, tmp_path: Path, option: str) -> None:
    refused("/proc is a system folder", "survey", home / "gpt2", option, "/proc", "--out", tmp_path / "out")


def test_a_pipe_among_texts(home: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("some words")
    pipe(texts / "b.txt")
    for words in (("survey", home / "gpt2", "--text", texts, "--out"), ("lab", "train", "--text", texts, "--out")):
        refused("b.txt is not a regular file", *words, tmp_path / "out")


@pytest.mark.parametrize("words", [("survey", ""), ("survey", "--out="), ("show", ""), ("survey", "x", "--text", "")])
def test_an_empty_word(words: tuple[str, ...]) -> None:
    refused("there is an empty word", *words)


# What libraries make of it.


def retokenized(model: Path, change: Callable[[Any], object]) -> Path:
    path = model / "tokenizer.json"
    record = json.loads(path.read_text("utf-8"))
    change(record)
    path.write_text(json.dumps(record), "utf-8")
    return model


BACKTRACKS = {"type": "Split", "pattern": {"Regex": "(a+|[a-z ]+)+$X"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["model"].update(dropout=0.5), "drops merges at random"),
        (lambda r: r["model"]["vocab"].update(e=r["model"]["vocab"]["t"]), "to two words, 'e' and 't'"),
        (lambda r: r.update(pre_tokenizer=BACKTRACKS), "a library gave up on a file that it read"),
    ],
)
def test_a_tokenizer_that_cannot_be_used(
    home: Path, tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    model = retokenized(copied(home / "gpt2", tmp_path / "model"), change)
    refused(message, "survey", model, "--text", home / "text.txt", "--claims", "sphere.radius", "--out", tmp_path / "o")


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"chunk_size_feed_forward": 8}, "own forward pass fails on a few tokens"),
        ("gpt2", {"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon is -1e-05"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": -1.0}}, "factor is -1.0"),
    ],
)
def test_a_config_that_no_model_has(home: Path, tmp_path: Path, family: str, changes: Any, message: str) -> None:
    refused(message, "anatomy", resettled(copied(home / family, tmp_path / "model"), **changes))


def test_a_share_of_rotated_axes_that_is_not_obeyed_is_said(home: Path, tmp_path: Path) -> None:
    rotation = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    model = resettled(copied(home / "llama", tmp_path / "model"), rope_parameters=rotation)
    assert "rope_parameters.partial_rotary_factor" in works("anatomy", model).stdout


def test_texts_that_say_nothing_or_something_twice(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("---\n" * 50)
    (tmp_path / "a.jsonl").write_text('{"text": "a", "text": "b"}\n')
    for name, message in (("a.txt", "holds no text"), ("a.jsonl", "contains 'text' twice")):
        words = ("--text", tmp_path / name, "--claims", "sphere.radius", "--out", tmp_path / "out")
        refused(message, "survey", home / "gpt2", *words)


def test_more_processes_than_a_machine_can_start(home: Path, tmp_path: Path) -> None:
    words = ("survey", home / "gpt2", "--claims", "sphere.radius", "--out", tmp_path / "out", "--dask", "local:99999")
    refused("asks for more than", *words)


def test_a_page_of_a_model_that_is_not_there() -> None:
    refused("there is no model at ./nowhere", "explore", "./nowhere")


# Stored results.


def resign(folder: Path, name: str, content: str) -> None:
    """A file of a result written anew by somebody, hash and all."""
    (folder / name).write_text(content, "utf-8")
    listed = json.loads((folder / "manifest.json").read_text())
    listed["files"][name] = hashlib.sha256(content.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(listed))


def first(record: Any) -> Any:
    return record["claims"][0]


IMPOSSIBLE: dict[str, tuple[Callable[[Any], object], str]] = {
    "value": (lambda r: first(r)["statistic"].update(value=1e6, low=0.1, high=0.2), "far from its interval"),
    "degrees": (lambda r: first(r)["statistic"].update(unit="degrees", value=400, low=400, high=400), "cannot be"),
    "limit": (lambda r: first(r).update(verdict="supported", why=None, limits=[LIMIT]), "is not above its limit"),
    "part": (lambda r: first(r).update(limits=[{**LIMIT, "part": "x"}]), "decides the part 'x', which is not there"),
    "heads": (lambda r: r["model"].update(heads=4, kv_heads=3), "4 heads cannot share so many"),
    "width": (lambda r: r["model"].update(d=0), "model.d is 0"),
    "hash": (lambda r: r["model"].update(checksum="nonsense"), "which is not a hash"),
    "documents": (lambda r: r["text"].update(documents=10**6), "and there are 150 tokens"),
    "longer": (lambda r: r["text"].update(documents_longer_than_context=999), "documents"),
    "date": (lambda r: r["times"].update(started="yesterday"), "which is not a time"),
    "plan": (lambda r: r["times"]["plan"].update(seconds=-1.0), "below 0"),
    "law": (lambda r: r["laws"].append(r["laws"][0]), "is there twice"),
    "loss": (lambda r: r["loss"]["nats"].append(1.0), "lists of different lengths"),
    "probability": (lambda r: r["loss"]["nats"].__setitem__(0, -1.0), "which no probability gives"),
    "arms": (lambda r: r["provenance"].update(arms=["model", "model"]), "twice"),
}
LIMIT = {"value": 1e9, "side": "above", "meaning": "x", "decides": "supported", "part": "", "measured": None}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_impossible_value_with_a_fresh_hash(home: Path, tmp_path: Path, what: str) -> None:
    change, message = IMPOSSIBLE[what]
    folder = copied(home / "survey", tmp_path / "survey")
    record = json.loads((folder / "survey.json").read_text())
    change(record)
    resign(folder, "survey.json", json.dumps(record))
    refused(message, "show", folder)


@pytest.mark.parametrize("command", ["show", "report", "figures"])
def test_a_changed_picture_is_said(home: Path, tmp_path: Path, command: str) -> None:
    folder = copied(home / "survey", tmp_path / "survey")
    more = {"report": ("--out", tmp_path / "x.html"), "figures": ("--out", tmp_path / "x", "--as", "svg")}
    assert "not part of this survey" not in works(command, folder, *more.get(command, ())).stderr
    (folder / "report.html").write_text("<p>all claims are supported</p>")
    (folder / "figures" / "sphere.radius.html").unlink()
    errors = run(command, folder, *more.get(command, ())).stderr
    assert "figures/sphere.radius.html and 1 more are not part of this survey" in errors
    works("survey", "--resume", folder)
    assert works(command, folder, *more.get(command, ())).stderr == ""


def test_a_survey_that_is_interrupted_leaves_the_one_before(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings belong to the result: until a claim is decided, the folder holds the earlier survey with its own."""
    folder = copied(home / "survey", tmp_path / "survey")
    before = (folder / "survey.json").read_bytes(), (folder / "settings.json").read_bytes()
    words = ("survey", home / "gpt2", "--text", home / "text.txt", "--tokens", "120", "--claims", "sphere.plane",
             "--jobs", "1", "--out", folder)  # fmt: skip

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("armillary.run.text_loss", interrupt)
        result = run(*words)
    assert result.exit_code == 130
    assert result.stderr.endswith("interrupted; no claim was decided; armillary survey --resume DIR continues it.\n")
    assert ((folder / "survey.json").read_bytes(), (folder / "settings.json").read_bytes()) == before
    assert [finding.id for finding in read_survey(folder)] == CLAIMS.split(",")
    works("survey", "--resume", folder)
    assert [finding.id for finding in read_survey(folder)] == ["sphere.plane"]
    assert json.loads((folder / "settings.json").read_text())["claims"] == "sphere.plane"
    assert not (folder / "pass").exists()


def test_settings_that_somebody_changed(home: Path, tmp_path: Path) -> None:
    folder = copied(home / "survey", tmp_path / "survey")
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**settings, "tokens": 100}))
    refused("settings.json cannot be read .*SHA-256 differs", "survey", "--resume", folder)
    resign(folder, "settings.json", json.dumps({**settings, "tokens": "many"}))
    refused("tokens is 'many', not a whole number", "survey", "--resume", folder)
    resign(folder, "settings.json", json.dumps({**settings, "claims": None}))
    refused("claims is None, not text", "survey", "--resume", folder)


# The laboratory.


def test_a_study_whose_prediction_is_a_terminal_escape(tmp_path: Path) -> None:
    study = copied(Path(__file__).parents[2] / "docs" / "lab" / "gate", tmp_path / "study")
    sound = works("lab", "show", study).stdout
    record = json.loads((study / "manifest.json").read_text())
    arm = next(iter(record["arms"].values()))
    before, arm["prediction"] = arm["prediction"], "a\x00b\x1b[31m"
    (study / "manifest.json").write_text(json.dumps(record))
    shown = works("lab", "show", study).stdout
    assert "a⟨00⟩b⟨1B⟩[31m" in shown and before[:20] in sound and before[:20] not in shown


def test_training_on_a_finished_run_that_was_damaged(tmp_path: Path) -> None:
    prose, out = runs.prose(tmp_path / "prose.txt"), tmp_path / "run"

    def train() -> None:
        laboratory.train("smoke", str(prose), out, progress=False, device="cpu", **runs.SMALL)

    train()
    train()
    for name in ("model.safetensors", "log.jsonl", "config.json", "tokenizer.json"):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content[:-20])
        with pytest.raises(OutputError, match=rf"{name} is not what this run wrote"):
            train()
        (out / name).unlink()
        with pytest.raises(OutputError, match=rf"{name} cannot be read"):
            train()
        (out / name).write_bytes(content)
    train()
    # A run of an earlier version has no hashes.
    (out / "finished.json").unlink()
    train()
    lines = (out / "log.jsonl").read_text().splitlines(keepends=True)
    (out / "log.jsonl").write_text("".join(lines[:-4]))
    with pytest.raises(OutputError, match=r"log.jsonl ends at step \d+ of \d+, and the run is finished"):
        train()


@pytest.fixture(autouse=True)
def no_wait() -> Any:
    """A test that waits is ended, on the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits without end"))
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
