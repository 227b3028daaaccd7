"""Options that several commands share, and how they print JSON."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import say
from armillary.errors import ArmillaryError

# What could move a terminal's cursor or turn its text around, and halves of characters, which no terminal can show.
# JSON spells the controls below a space itself.
_TURNING = "\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[{_TURNING}]")
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f{_TURNING}]")
PATH = click.Path(path_type=Path)
LOADING: tuple[Callable[..., Any], ...] = (
    click.option("--device", metavar="D", help="cpu or cuda. [default: cuda if there is one]"),
    click.option("--dtype", metavar="T", help="float32, bfloat16 or float16. [default: float32]"),
    click.option("--trust-remote-code", is_flag=True, help="Run code that the model's folder contains."),
)


def complete_claims(context: Any, parameter: Any, begun: str) -> list[str]:
    """Claim ids for the shell; the last of a list that commas divide."""
    from armillary.probes import claims

    before, comma, last = begun.rpartition(",")
    return [f"{before}{comma}{claim.id}" for claim in claims() if claim.id.startswith(last)]


def complete_models(context: Any, parameter: Any, begun: str) -> list[Any]:
    """Names of models at hand, and files, for the shell."""
    from click.shell_completion import CompletionItem

    from armillary.anatomy.loading.catalogue import names

    known = [CompletionItem(name) for name in names() if name.startswith(begun)]
    return [*known, CompletionItem(begun, type="file")]


def loading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how a model is loaded."""
    for option in reversed(LOADING):
        command = option(command)
    return command


def forms(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how much of each claim the ledger prints."""
    brief = click.option("--brief", is_flag=True, help="One line per claim.")
    full = click.option("--full", is_flag=True, help="Everything about each claim: reading, parts, controls, rule.")
    return brief(full(command))


def form_of(brief: bool, full: bool) -> Any:
    """The ledger's form."""
    if brief and full:
        raise ArmillaryError("--brief and --full exclude each other; choose one.")
    return "brief" if brief else "full" if full else "standard"


def load(model: str, asked: dict[str, Any]) -> Any:
    """Load a model, or the default one, with its loading options taken out of `asked`."""
    from armillary import run

    how = {name: asked.pop(name) for name in ("device", "dtype", "trust_remote_code")}
    return run.load(model or run.DEFAULT_MODEL, **how)


def stored_survey(folder: Path) -> Any:
    """The survey in a folder; if a picture of it was changed since, or is missing, that is said."""
    from armillary.results.disk.folder_swap import changed
    from armillary.results.store import read_survey

    survey = read_survey(folder)
    home = folder.parent if folder.name == "survey.json" else folder
    if pictures := changed(home):
        more = f" and {len(pictures) - 1} more are" if len(pictures) > 1 else " is"
        note(f"{pictures[0]}{more} not part of this survey (SHA-256 differs), and not shown here; armillary survey "
             f"--resume {home} draws the pictures again.")  # fmt: skip
    return survey


def note(sentence: str) -> None:
    """A sentence beside the result, which does not depend on it."""
    say(f"armillary: {sentence}", err=True)


def echo_json(text: str) -> None:
    """As bytes: JSON is UTF-8 in any terminal. What could move its cursor or turn its text around is spelt \\u202e."""
    click.echo(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode(), nl=False)


def echo_table(text: str) -> None:
    """CSV, LaTeX or Markdown as bytes, UTF-8 in any terminal; a control character appears as its code.

    Line breaks within a cell stay: CSV has quotes around them.
    """
    click.echo(_CONTROLS.sub(lambda match: f"⟨{ord(match[0]):02X}⟩", text).encode(), nl=False)
