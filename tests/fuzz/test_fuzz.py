"""Whatever is wrong with an input, it ends in one sentence or in a result that says what it measured."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fuzz.campaign import campaign
from fuzz.case import KINDS, Case, Runner
from fuzz.generators import GENERATORS, outcomes, table
from fuzz.shelf import Shelf, stocked
from fuzz.stored import _faithful

from armillary.results.store import SCHEMA

SEED = 21
FAST, SLOW = 300, 10_000
FINE = ("clean", "success")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return stocked(tmp_path_factory.mktemp("fuzz") / "shelf")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing asks the hub, and what is written to a relative path stays here."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def test_three_hundred_cases_end_well(shelf: Shelf, tmp_path: Path) -> None:
    results = list(outcomes(range(FAST), SEED, shelf, tmp_path / "work", Runner()))
    bad = [outcome for outcome in results if outcome.kind not in FINE]
    assert not bad, "\n\n".join(f"{o.number} {o.generator} {o.kind}: {o.what}\n{o.detail[-800:]}" for o in bad)
    # Both ends are met by every generator: a generator whose cases are all refused at the door tests nothing.
    for generator in GENERATORS:
        kinds = {outcome.kind for outcome in results if outcome.generator == generator.__name__}
        assert kinds == set(FINE), f"{generator.__name__}\n{table(results, KINDS)}"


@pytest.mark.slow
def test_ten_thousand_cases_end_well(tmp_path: Path) -> None:
    results = campaign(0, SLOW, SEED + 1, tmp_path / "found.jsonl")
    print(table(results.values(), KINDS))
    bad = [outcome for outcome in results.values() if outcome.kind not in FINE]
    assert not bad, "\n\n".join(f"{o.number} {o.generator} {o.kind}: {o.what}\n{o.detail[-800:]}" for o in bad)


# The judge must see each kind of failure.


def test_a_traceback_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.results.store.read_survey", lambda folder: 1 / 0)
    assert Runner()(0, "x", Case("", ("show", "."), ())).kind == "traceback"


def test_escapes_past_python_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code writes to the terminal itself, where click's runner does not look."""
    monkeypatch.setattr("armillary.results.store.read_survey", lambda folder: os.write(1, b"\x1b[31mred"))
    outcome = Runner()(0, "x", Case("", ("show", "."), ()))
    assert (outcome.kind, outcome.detail) == ("silent", "'\\x1b' reached the terminal past Python")


def test_a_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.results.store.read_survey", lambda folder: time.sleep(60))
    assert Runner(seconds=0.2)(0, "x", Case("", ("show", "."), ())).kind == "wait"


def test_other_numbers_for_the_same_model_are_seen(shelf: Shelf, tmp_path: Path) -> None:
    """A survey without its model's checksum cannot be told from the one of the sound model: bits of a weight that the
    fingerprint does not look at were changed."""
    from fuzz import models

    def changed(rng: random.Random) -> Case:
        path = tmp_path / "model" / "model.safetensors"
        data = bytearray((shelf.model("gpt2") / "model.safetensors").read_bytes())
        if not path.parent.exists():
            models.copied(shelf.model("gpt2"), path.parent)
        at = len(data) - 4 * 1000
        data[at : at + 4] = b"\x00\x00\x80\x40"
        path.write_bytes(bytes(data))
        return models._read(rng, "a weight", path.parent, shelf.model("gpt2"), tmp_path, shelf, 1)

    assert Runner()(0, "x", changed(random.Random(0))).kind == "success"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("armillary.anatomy.loading.load.checksum", lambda model: "")
        outcome = Runner()(0, "x", changed(random.Random(0)))
    assert (outcome.kind, outcome.detail) == ("silent", "other numbers for the same model and text")


def test_an_older_schema_is_shown_in_the_form_of_this_one_and_nothing_else_differs() -> None:
    def shown(**changes: object) -> str:
        stored = {"schema": 2, "notes": ["x"]}
        output = json.dumps({**stored, "schema": SCHEMA, **changes})
        stream = output.encode()
        return _faithful(Result(CliRunner(), stream, b"", stream, None, 0, None), json.dumps(stored))

    assert shown() == ""
    assert shown(schema=1) == ".schema: 2 is shown as 1"
    assert shown(notes=["y"]) == ".notes.0: x is shown as y"


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    """The campaign goes on after a case that takes its process down."""
    log = tmp_path / "found.jsonl"
    log.write_text('{"begun": 3}\n', "utf-8")
    results = campaign(0, 4, SEED, log)
    assert (results[3].kind, results[3].what) == ("traceback", "the process died")


def test_a_case_depends_on_its_number_alone(shelf: Shelf, tmp_path: Path) -> None:
    """So that a case that fails can be run again by itself, also in a process that hashes strings otherwise."""
    code = (
        "import sys; from pathlib import Path; from fuzz.test_fuzz import first_changes; from fuzz.shelf import Shelf\n"
        "print(first_changes(Shelf(Path(sys.argv[1])), Path(sys.argv[2])))"
    )
    here = first_changes(shelf, tmp_path / "here")
    where = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code, str(shelf.root), str(tmp_path / "there")]
    there = subprocess.run(words, capture_output=True, text=True, check=True, env=where).stdout
    assert there == f"{here}\n"
    assert len(set(here)) > 8


def first_changes(shelf: Shelf, place: Path) -> list[bytes]:
    """What the first cases do."""
    cases = []
    for number in range(16):
        (place / str(number)).mkdir(parents=True)
        make = GENERATORS[number % len(GENERATORS)]
        cases.append(
            make(random.Random(f"{SEED} {number}"), place / str(number), shelf).what.encode("utf-8", "replace")
        )
    return cases
