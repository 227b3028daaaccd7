"""Inputs that an attacker wrote by hand, and no generator: each is refused in a sentence, or said and harmless."""

import errno
import json
import os
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import torch
from command import check_sentence, refused, run, works
from fuzz.case import ESCAPES
from fuzz.shelf import copied
from safetensors.numpy import load_file, save_file

import armillary
from armillary.anatomy.loading import doubles
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.weights import check_permission
from armillary.cli.terminal.failures import friendly
from armillary.errors import ModelError, OutputError, TextError
from armillary.flow.media.sources import image_of, read_image
from armillary.flow.sources.text_files import standard_input
from armillary.probes.grid.bending.maps import Points
from armillary.probes.machinery.processes.jobs import _threads, cores
from armillary.probes.sphere.spectra.site_spectra import vanishing
from armillary.probes.stability.errors.manifold_scores import mahalanobis
from armillary.results.disk.files import write_whole

EVIL = "a\x1b[31mred\x07\u202eevil\u2066"
SHOWN = "a⟨1B⟩[31mred⟨07⟩⟨202E⟩evil⟨2066⟩"
CLAIMS = "sphere.radius,spectrum.two-zeros"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, a text, and a survey whose folder and model have names that are terminal escapes."""
    root = tmp_path_factory.mktemp("by-hand")
    for name in ("gpt2", "llama"):
        folders.model_folder(name, root / name)
    folders.text_file(root / "text.txt")
    copied(root / "gpt2", root / EVIL / "model")
    words = ("--text", root / "text.txt", "--tokens", 150, "--claims", CLAIMS, "--jobs", 1)
    works("survey", root / EVIL / "model", *words, "--out", root / EVIL / "out")
    return root


def resettled(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


# Names that are terminal escapes.

COMMANDS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "anatomy": lambda evil, out: ("anatomy", evil / "model"),
    "show": lambda evil, out: ("show", evil / "out"),
    "methods": lambda evil, out: ("show", evil / "out", "--methods"),
    "report": lambda evil, out: ("report", evil / "out", "--out", out / f"{EVIL}.html"),
    "figures": lambda evil, out: ("figures", evil / "out", "--out", out / EVIL, "--as", "svg"),
    "figure": lambda evil, out: ("figures", evil / "out", "sphere.radius", "--out", out / f"{EVIL}.svg"),
    "matrix": lambda evil, out: ("matrix", evil / "out", "--out", out / f"{EVIL}.csv"),
    "csv": lambda evil, out: ("matrix", named(evil), "--format", "csv"),
    "latex": lambda evil, out: ("matrix", named(evil), "--format", "latex"),
    "markdown": lambda evil, out: ("matrix", named(evil), "--format", "markdown"),
    "heads": lambda evil, out: ("heads", evil / "model", "--layer", 0, "--head", 0, "--out", out / EVIL),
    "travel": lambda evil, out: ("travel", evil / "model", f"two words {EVIL}", "--out", out / f"{EVIL}.html"),
    "compare": lambda evil, out: ("compare", evil / "out", evil / "out", "--out", out / EVIL),
}


def named(evil: Path) -> Path:
    """The survey in a folder that has an escape for its own name, by which a matrix calls it."""
    return copied(evil / "out", evil / EVIL) if not (evil / EVIL).exists() else evil / EVIL


@pytest.mark.parametrize("what", COMMANDS)
def test_a_name_with_escapes_reaches_no_terminal(home: Path, tmp_path: Path, what: str) -> None:
    result = run(*COMMANDS[what](home / EVIL, tmp_path))
    assert result.exit_code == 0, result.stderr
    assert not ESCAPES.search(result.output)
    if what not in ("heads", "methods", "travel", "latex"):
        assert SHOWN in re.sub(r"\\(?=\[)|\n", "", result.output)


def test_what_the_library_says_of_a_config_reaches_no_terminal(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It prints the whole config before it raises an error."""
    model = resettled(copied(home / "gpt2", tmp_path / "model"), sub_configs={}, note=EVIL)
    refused("could not be loaded .*sub_configs", "anatomy", model)
    assert "sub_configs" not in "".join(capfd.readouterr())


# Settings that no model has.


@pytest.mark.parametrize(
    ("rotation", "message"),
    [
        (
            {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0], "long_factor": [2.0],
             "original_max_position_embeddings": 16},
            "short_factor has 1 factors, and heads are rotated in 4 planes",
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
             "original_max_position_embeddings": 16},
            "low_freq_factor is 4.0, but must be less than high_freq_factor, which is 1.0",
        ),
    ],
)  # fmt: skip
def test_a_rotation_that_no_model_has(home: Path, tmp_path: Path, rotation: dict[str, Any], message: str) -> None:
    model = copied(home / "llama", tmp_path / "model")
    refused(message, "anatomy", resettled(model, rope_parameters={"rope_theta": 1e4, **rotation}))


def test_a_model_without_an_unembedding_says_so(home: Path, tmp_path: Path) -> None:
    """A class that is not known leaves the body alone."""
    model = resettled(copied(home / "gpt2", tmp_path / "model"), architectures=["GPT2Nothing"])
    assert "without an unembedding" in works("anatomy", model).stdout
    assert "tied to the unembedding" in works("anatomy", home / "gpt2").stdout


# What a failed run leaves.


def test_a_part_of_nothing_leaves_no_folder(home: Path, tmp_path: Path) -> None:
    words = ("survey", home / "gpt2", "--text", home / "text.txt", "--out", tmp_path / "out", "--shard", "1/2")
    refused("use at most as many shards", *words, "--claims", "sphere.radius")
    refused("these claims read no text", *words, "--claims", "heads.orthogonality")
    assert not (tmp_path / "out").exists()


# Versions of the library whose way from a name in a file to a weight is another.


@pytest.mark.parametrize("lost", ["function", "answer", "argument"])
def test_names_are_checked_where_the_library_changes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    from transformers import core_model_loading as inside

    model = load_model(str(home / "gpt2")).model
    names = list(load_file(home / "gpt2" / "model.safetensors"))
    assert doubles._library_names(model, model.state_dict()) is not None
    if lost == "function":
        monkeypatch.delattr(inside, "rename_source_key")
    elif lost == "answer":
        monkeypatch.setattr(inside, "rename_source_key", lambda name, *_: (name.upper(), None))
    else:
        monkeypatch.setattr(inside, "rename_source_key", lambda name: name)
    assert doubles._library_names(model, model.state_dict()) is None
    doubles.check_names(home, names, model)
    old, new = "transformer.h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.weight"
    with pytest.raises(ModelError, match=f"holds the weight {old} twice"):
        doubles.check_names(home, [*names, new], model)
    # Names of no weight: one that the library left out, and one that it reads as something that cannot be followed.
    doubles.check_names(home, [*names, "adapter.weight"], model, ["adapter.weight"])
    with pytest.raises(ModelError, match=r"ln_1.gamma under a name that transformers \S+ renames"):
        doubles.check_names(home, [*names, "transformer.h.0.ln_1.gamma"], model)


def test_text_reaches_the_terminal_in_one_place() -> None:
    """Rich prints the tables, whose cells the views have made harmless; all else goes through `cli/terminal`."""
    home = Path(armillary.__file__).parent / "cli"
    bare = re.compile(r"click\.(echo|secho|prompt|confirm)\(|\bprint\(")
    assert [path.name for path in home.glob("*.py") if bare.search(path.read_text("utf-8"))] == []
    assert len(list(home.glob("*.py"))) > 8


# Texts and tokenizers.


@pytest.mark.parametrize("text", ["a b\n---\n" * 500, "§ § §\n---\n" * 60])
def test_a_text_that_says_one_thing(home: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "text.txt").write_text(text, "utf-8")
    words = ("--claims", "sphere.radius", "--out", tmp_path / "out")
    refused("repeats one token .* behind the first", "survey", home / "gpt2", "--text", tmp_path / "text.txt", *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("factor", [0, 1])
def test_an_embedding_that_gives_all_words_one_vector(home: Path, tmp_path: Path, factor: int) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    name = "transformer.wte.weight"
    save_file({**weights, name: 0 * weights[name] + factor}, model / "model.safetensors", {"format": "pt"})
    refused("its embedding gives every word the same vector", "anatomy", model)


def test_where_no_direction_varies() -> None:
    """Estimates of points that are all alike: none, and no error."""
    alike, documents = torch.ones(12, 4).double(), np.arange(12)
    assert vanishing(np.zeros((4, 4)), np.zeros(4)) == 4
    assert not Points(alike, documents, 6).spread
    assert Points(alike + torch.eye(12, 4), documents, 6).spread
    assert mahalanobis(np.ones((12, 4)), np.ones((3, 4))).tolist() == [0, 0, 0]


def test_a_text_that_the_tokenizer_does_not_know_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("§ € ¥ a\n---\n§ € ¥ b\n---\n" * 60, "utf-8")
    words = ("--claims", "sphere.radius", "--tokens", 150, "--jobs", 1, "--out", tmp_path / "out")
    output = works("survey", home / "gpt2", "--text", tmp_path / "text.txt", *words).stdout
    assert "tokens are <unk>, the word for what the tokenizer does not know" in " ".join(output.split())


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["model"].update(merges=[["a"]]),
        lambda record: record["model"].update(type="Evil"),
        lambda record: record["model"]["vocab"].update(zzz=-1),
        lambda record: record.clear(),
    ],
)
def test_a_damaged_tokenizer_is_not_none(home: Path, tmp_path: Path, change: Callable[[Any], object]) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    record = json.loads((model / "tokenizer.json").read_text("utf-8"))
    change(record)
    (model / "tokenizer.json").write_text(json.dumps(record), "utf-8")
    refused(
        "tokenizer.json .* cannot be read as a tokenizer .* remove them to read the weights alone", "anatomy", model
    )
    (model / "tokenizer.json").unlink()
    works("anatomy", model)


def test_damaged_settings_of_a_tokenizer_are_not_none(home: Path, tmp_path: Path) -> None:
    model = copied(home / "gpt2", tmp_path / "model")
    (model / "tokenizer_config.json").write_text("[]")
    refused("the files next to it cannot be read as a tokenizer", "anatomy", model)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_gguf_with_a_number_that_is_none(tmp_path: Path, number: float) -> None:
    folders.gguf_file(tmp_path / "tiny.gguf")
    data, key = (tmp_path / "tiny.gguf").read_bytes(), b"llama.rope.freq_base"
    at = data.index(key) + len(key) + 4
    (tmp_path / "tiny.gguf").write_bytes(data[:at] + struct.pack("<f", number) + data[at + 4 :])
    refused(f"its metadata holds the number {number}", "anatomy", tmp_path / "tiny.gguf")


# What a disk says.


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "vocab.txt"])
def test_a_file_with_a_hole(home: Path, tmp_path: Path, name: str) -> None:
    """It takes no space on disk, and all memory if it is read."""
    model = copied(home / "gpt2", tmp_path / "model")
    (model / name).touch()
    os.truncate(model / name, 2**36)
    refused(f"{name} in .* has 64.0 GiB, too much for such a file", "anatomy", model)


@pytest.mark.parametrize("name", ["survey.json", "manifest.json", "tables/sphere.radius.csv"])
def test_a_result_with_a_hole(home: Path, tmp_path: Path, name: str) -> None:
    folder = copied(home / EVIL / "out", tmp_path / "survey")
    os.truncate(folder / name, 2**36)
    refused("it has 64.0 GiB, too much for such a file", "show", folder, "sphere.radius")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_what_a_disk_refuses_is_a_sentence_wherever_it_comes_up(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / EVIL))

    with pytest.raises(SystemExit) as ended:
        friendly(command)()
    output = capsys.readouterr().err
    assert ended.value.code == 2
    reason = re.escape(os.strerror(number))
    check_sentence(output, rf"{re.escape(SHOWN)} cannot be used \({reason}\); check the file and its folder")


def test_what_may_not_be_read_is_not_damaged(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with pytest.raises(ModelError, match=r"cannot be read \(Permission denied\); check its permissions"):
        check_permission(tmp_path, error)
    check_permission(tmp_path, ValueError("damaged"))


def test_a_full_disk_leaves_no_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(os, "fsync", full)
    for folder in ("made/on/the/way", "mine/too", "mine"):
        with pytest.raises(OutputError, match="the disk is full"):
            write_whole({tmp_path / folder / "file": "content"})
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_shard_of_billions(tmp_path: Path) -> None:
    facts = {"shard": [3, 10**11], "key": "x", "about": {}, "arms": {}, "lost": {}}
    (tmp_path / "one" / "shard").mkdir(parents=True)
    (tmp_path / "one" / "shard" / "shard.json").write_text(json.dumps(facts))
    output = refused("and 99999999979 more are missing", "merge", tmp_path / "one", "--out", tmp_path / "out")
    assert f"armillary: 1/{10**11}, 2/{10**11}, 4/{10**11}, " in output


# What a command is given to read and to write.


def test_a_study_is_not_overwritten_by_a_survey(home: Path, tmp_path: Path) -> None:
    """Both have a manifest.json."""
    study = copied(Path(armillary.__file__).parents[2] / "docs" / "lab" / "gate", tmp_path / "study")
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    words = ("survey", home / "gpt2", "--claims", "sphere.radius", "--text", home / "text.txt", "--out", study)
    refused("manifest.json does not belong to a survey", *words)
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before
    (study / "manifest.json").write_text('{"schema": 1')
    works(*words, "--tokens", 100, "--jobs", 1)


def test_standard_input_without_end_or_closed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    travel = ("travel", home / "gpt2", "-", "--out", tmp_path / "x.html")
    refused("standard input holds more than 16 MiB, too much for a sentence", *travel, input=b"a" * (2**24 + 1))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TextError, match="standard input is closed"):
        standard_input()


def test_a_number_of_threads_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    for asked in ("x", "-1", "0", "", "3.5", " , "):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert _threads() == cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert _threads() == 3


def test_a_full_disk_behind_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SystemExit) as ended:
        friendly(command)()
    assert ended.value.code == 2
    assert "what was to be read or printed cannot be used (No space left on device)" in capsys.readouterr().err


def test_a_column_of_plain_text(home: Path, tmp_path: Path) -> None:
    for text in (home / "text.txt", "-"):
        words = ("survey", home / "gpt2", "--text", text, "--column", "x", "--out", tmp_path / "out")
        refused("--column x was given, but .* has no columns", *words)


def test_what_a_library_says_in_several_lines_is_one(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    refused("text.parquet cannot be read", "survey", "--text", tmp_path / "text.parquet", "--out", tmp_path / "out")


# Images, and amounts.


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((9, 9, 3), 200, np.int64), "has the dtype int64; give uint8 or uint16, or floats from 0 to 1"),
        (np.full((9, 9, 3), 1j), "has the dtype complex128"),
        (np.zeros((9, 9, 3), "M8[s]"), r"has the dtype datetime64\[s\]"),
        (np.full((9, 9, 3), 200.0), "has values from 200 to 200; give floats from 0 to 1"),
        (np.full((9, 9, 3), -1e30), "has values from -1e[+]30"),
        (np.full((9, 9, 3), np.nan), "contains NaN or infinity"),
    ],
)
def test_an_array_whose_white_is_not_known(array: np.ndarray, message: str) -> None:
    with pytest.raises(TextError, match=message):
        image_of(array)


def test_sixteen_bits_are_not_white(tmp_path: Path) -> None:
    """PIL's conversion to eight bits makes all of them white."""
    image = pytest.importorskip("PIL.Image")
    deep = (np.arange(81, dtype=np.uint16) * 800).reshape(9, 9)
    image.fromarray(deep).save(tmp_path / "a.png")
    read = read_image(tmp_path / "a.png")
    assert np.allclose(read[..., 0], deep / 65535, atol=1e-6) and read.max() < 0.99
    assert np.allclose(image_of(np.full((9, 9), True))[..., 0], 1)
    with pytest.raises(TextError, match="the mode F, whose white level is unknown"):
        image_of(image.new("F", (9, 9), 200.0))


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "builtin:gpt", "--untrained"),
        ("calibrate", "builtin:gpt", "--planted"),
        ("calibrate", "builtin:gpt", "--seeds"),
        ("lab", "run", "gate", "--seeds"),
    ],
)
def test_an_amount_that_would_be_counted_without_end(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused("is more than any study needs; give at most 10000", *words, 10**30, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
