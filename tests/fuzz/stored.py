"""Spoilt results: stored surveys and the files of the laboratory."""

import contextlib
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import click
import runs
from click.testing import Result
from fuzz.case import Case, same_output
from fuzz.mutate import spelt, spoil_bytes, spoil_entry, spoil_json, spoil_json_file
from fuzz.shelf import Shelf, copied

from armillary import laboratory
from armillary.cli.terminal.failures import friendly
from armillary.results.store import READS, SCHEMA

SHOWN = (("--json",), ("--json",), ("--full",), ("--brief",), ("sphere.radius",), ("--format", "latex"), ("--methods",))


def survey(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    """Spoilt by accident, so that its hash no longer fits; or written anew by somebody, hash and all."""
    folder = copied(shelf.survey, place / "survey")
    path = folder / "survey.json"
    match rng.random():
        case chance if chance < 0.4:
            return _signed(rng, folder, shelf)
        case chance if chance < 0.45:
            return _picture(rng, folder, shelf)
        case chance if chance < 0.5:
            return _settings(rng, folder)
    if rng.random() < 0.4:
        path = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".csv", ".json")))
    if path.suffix == ".csv" or rng.random() < 0.2:
        if rng.random() < 0.4:
            what = spoil_entry(rng, path)
        else:
            data, what = spoil_bytes(rng, path.read_bytes())
            path.write_bytes(data)
    else:
        what = spoil_json_file(rng, path)
    return _command(rng, f"{path.name}: {what}", folder, shelf)


def _picture(rng: random.Random, folder: Path, shelf: Shelf) -> Case:
    """A report or a figure that is not the survey's is said; what is shown is the survey."""
    path = rng.choice(sorted(p for p in folder.rglob("*") if p.suffix in (".html", ".js")))
    if rng.random() < 0.3:
        what = spoil_entry(rng, path)
    else:
        path.write_bytes(rng.choice((b"", b"<p>all is well</p>", path.read_bytes() + b" ")))
        what = f"another {path.name}"

    def compare(now: Result, then: Result) -> str:
        noticed = "is not part of this survey" in now.stderr
        return same_output(folder, shelf.survey)(now, then) if noticed else "it was not said"

    return Case(what, ("show", folder), ("show", shelf.survey), compare)


def _settings(rng: random.Random, folder: Path) -> Case:
    """The settings of a stopped survey, written anew, hash and all, or not."""
    path = folder / "settings.json"
    what = spoil_json_file(rng, path)
    with contextlib.suppress(ValueError, AttributeError, TypeError, LookupError, RecursionError):
        record = json.loads(path.read_text("utf-8"))
        # More processes take longer, rightly.
        path.write_text(json.dumps({**record, "jobs": min(record["jobs"], 1)}), "utf-8")
    if rng.random() < 0.5:
        _resign(folder, path)
    return Case(f"resumed: {what}", ("survey", "--resume", folder), ())


def _resign(folder: Path, path: Path) -> None:
    listed = json.loads((folder / "manifest.json").read_text("utf-8"))
    listed["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(listed), "utf-8")


def _command(rng: random.Random, what: str, folder: Path, shelf: Shelf) -> Case:
    match rng.random():
        case chance if chance < 0.75:
            how = rng.choice(SHOWN)
            return Case(what, ("show", folder, *how), ("show", shelf.survey, *how), same_output(folder, shelf.survey))
        case chance if chance < 0.85:
            page, sound = folder.parent / "page.html", shelf.root / "page.html"
            return Case(what, ("report", folder, "--out", page), ("report", shelf.survey, "--out", sound),
                        lambda now, then: _same_page(page, sound))  # fmt: skip
        case _:
            args = ("compare", shelf.survey, folder, "--json")
            return Case(what, args, ("compare", shelf.survey, shelf.survey, "--json"), _compared)


def _same_page(page: Path, sound: Path) -> str:
    return "" if page.read_text("utf-8") == sound.read_text("utf-8") else "another page"


def _compared(now: Result, then: Result) -> str:
    """Two surveys of the same are the same; only the folder's name differs."""
    drop = ("a", "b", "folders", "names")
    ours, theirs = ({k: v for k, v in json.loads(r.stdout).items() if k not in drop} for r in (now, then))
    return "" if ours == theirs else "another comparison"


def _signed(rng: random.Random, folder: Path, shelf: Shelf) -> Case:
    """Valid or refused: what is shown is what the file says."""
    path = folder / "survey.json"
    record = json.loads(path.read_text("utf-8"))
    changes = []
    for _ in range(rng.choice((1, 1, 2))):
        record, what = spoil_json(rng, record)
        changes.append(what)
        if not isinstance(record, dict):
            break
    content = spelt(record)
    path.write_text(content, "utf-8")
    _resign(folder, path)
    what = f"signed: {'; '.join(changes)}"
    if rng.random() < 0.7:
        return Case(what, ("show", folder, "--json"), ("show", shelf.survey, "--json"),
                    lambda now, then: _faithful(now, content))  # fmt: skip
    how = rng.choice((("show", folder, "--full"), ("report", folder, "--out", folder.parent / "page.html")))
    return Case(what, how, ("show", shelf.survey, "--full"))


def _faithful(now: Result, content: str) -> str:
    """Nothing that the file says is dropped or changed on its way to the screen."""
    try:
        stored, shown = json.loads(content), json.loads(now.stdout)
        if type(stored["schema"]) is int and stored["schema"] in READS and shown["schema"] == SCHEMA:
            # Whatever version wrote it, a survey is shown in the form of this one (docs/report.md).
            stored["schema"] = SCHEMA
        return _difference(stored, shown)
    except (ValueError, RecursionError) as error:
        return f"accepted what is no JSON ({error})"


def _difference(stored: Any, shown: Any, at: str = "") -> str:
    if isinstance(stored, dict) and isinstance(shown, dict):
        # A field that is not recorded has its default.
        entries = [(key, stored.get(key), shown.get(key)) for key in stored]
    elif isinstance(stored, list) and isinstance(shown, list) and len(stored) == len(shown):
        entries = [(key, *pair) for key, pair in enumerate(zip(stored, shown, strict=True))]
    else:
        same = stored == shown or (stored != stored and shown is None)
        return "" if same else f"{at}: {str(stored)[:60]} is shown as {str(shown)[:60]}"
    return next((difference for key, a, b in entries if (difference := _difference(a, b, f"{at}.{key}"))), "")


def lab(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    """Files of a run or a study, and the commands that read them."""
    if rng.random() < 0.3:
        return _study(rng, place, shelf)
    if rng.random() < 0.35:
        return _resumed(rng, place, shelf)
    run = copied(shelf.run, place / "run")
    command = rng.choice(("plot", "card"))
    names = {"plot": ("log.jsonl",), "card": ("exam.json", "recipe.json", "log.jsonl")}[command]
    path = run / rng.choice(names)
    what = f"{command}: {_spoil(rng, path)}"
    if command == "card":
        return Case(what, ("lab", "card", run), ("lab", "card", shelf.run))
    table = place / "x.csv"
    return Case(what, ("lab", "plot", run, "--out", table), ("lab", "plot", shelf.run, "--out", shelf.root / "x.csv"))


def _spoil(rng: random.Random, path: Path) -> str:
    if rng.random() < 0.12:
        return spoil_entry(rng, path)
    if path.suffix == ".json":
        return spoil_json_file(rng, path)
    if path.suffix != ".jsonl" or rng.random() < 0.3:
        data, what = spoil_bytes(rng, path.read_bytes())
        path.write_bytes(data)
        return f"{path.name}: {what}"
    lines = path.read_text("utf-8").splitlines()
    at = rng.randrange(len(lines))
    match rng.choice(("change", "change", "double", "drop", "swap")):
        case "change":
            record, what = spoil_json(rng, json.loads(lines[at]))
            lines[at] = spelt(record)
        case "double":
            lines.insert(at, lines[at])
            what = "doubled"
        case "drop":
            del lines[at]
            what = "dropped"
        case _:
            lines.reverse()
            what = "in reverse"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return f"{path.name} line {at}: {what}"


def _study(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    folder = copied(shelf.study, place / "study")
    path = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".json", ".jsonl")))
    what = f"study: {_spoil(rng, path)}"
    return Case(what, ("lab", "show", folder), ("lab", "show", shelf.study))


@click.command()
@click.argument("out", type=Path)
@click.argument("text", type=Path)
@friendly
def resume(out: Path, text: Path) -> None:
    laboratory.train("smoke", str(text), out, progress=False, device="cpu", **runs.SMALL)


def _resumed(rng: random.Random, place: Path, shelf: Shelf) -> Case:
    """A killed run goes on to the same log and model, or is refused; one that is finished is what it was."""
    run = copied(shelf.run if rng.random() < 0.3 else shelf.stopped, place / "run")
    path = rng.choice(sorted(p for p in run.rglob("*") if p.is_file() and "steps" not in p.parts))
    what = f"resumed: {_spoil(rng, path)}"
    return Case(what, (run, shelf.prose), ("show", shelf.survey), lambda now, then: _same_run(run, shelf.run),
                command=resume)  # fmt: skip


def _same_run(run: Path, sound: Path) -> str:
    ours, theirs = runs.outcome(run), runs.outcome(sound)
    return "" if ours == theirs else f"another run: {[name for name in theirs if ours.get(name) != theirs[name]]}"
