"""The process that holds one model: it loads it, computes parts one after another, and can be told to stop.

Messages to the server are tuples: ('state', text), ('ready', facts), ('failed', text), and for a job with its number
('progress', job, text, done, total), ('result', job, value), ('refused', job, text), ('cancelled', job).
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from armillary.errors import ArmillaryError
from armillary.serve.blocks import encoded
from armillary.serve.room import Opened

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from armillary.anatomy import Anatomy


class CancelledError(Exception):
    """A visitor no longer wants what is being computed."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from: what `armillary.load` accepts, and how to load it. `live` models run in a thread."""

    source: Any
    options: Mapping[str, Any]
    live: bool = False
    label: str = ""
    """What visitors are shown instead of the model's path."""


def serve_process(connection: "Connection", cancelled: Any, source: Source) -> None:
    """The process's main function; Ctrl-C in the terminal is the server's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "fork" in multiprocessing.get_all_start_methods():
        # Numba, which UMAP imports, makes a lock. In a spawned process it would be a semaphore with a name, which is
        # left behind when the process is killed; under 'fork' the name is removed at once.
        multiprocessing.set_start_method("fork", force=True)
    # Three thousand modules are imported, and collections in between find nothing: a quarter of the time to load.
    gc.disable()
    serve_model(connection, cancelled, source)


def serve_model(connection: "Connection", cancelled: Any, source: Source) -> None:
    """Load, say what the model is, then answer until the server hangs up."""
    with contextlib.suppress(EOFError, BrokenPipeError, OSError):
        connection.send(("state", "loading the model"))
        try:
            opened = _opened(connection, source)
        except Exception as error:
            connection.send(("failed", message(error)))
            return
        if not source.live:
            # What is loaded now stays; collections to come need not look at it.
            gc.freeze()
            gc.enable()
        connection.send(("ready", facts(opened.anatomy)))
        while True:
            number, part, ask = connection.recv()
            _answer(connection, cancelled, opened, number, part, ask)


def _opened(connection: "Connection", source: Source) -> Opened:
    from armillary.anatomy import Anatomy

    if isinstance(source.source, Anatomy):
        return Opened(source.source, _silent)
    # Not `armillary.run`, which also imports what surveys need: the first sentence would wait a second longer.
    from armillary.anatomy.loading.load import load_model
    from armillary.flow.laws import check
    from armillary.flow.machine.memory import keep_pages

    if not source.live:
        keep_pages()
    anatomy = load_model(source.source, **source.options)
    return Opened(replace(anatomy, name=source.label or anatomy.name, laws=check(anatomy)), _silent)


def _silent(what: str, done: int, total: int) -> None:
    return None


def _answer(
    connection: "Connection", cancelled: Any, opened: Opened, number: int, part: tuple[str, str, bool], ask: Any
) -> None:
    from armillary.serve.rooms import room_named

    def progress(what: str, done: int, total: int) -> None:
        if cancelled.value == number:
            raise CancelledError
        connection.send(("progress", number, what, done, total))

    opened.progress = progress
    name, of, raw = part
    room_part = room_named(name).part(of)
    assert room_part is not None
    try:
        progress("computing", 0, 0)
        if raw:
            assert room_part.raw is not None
            value: Any = room_part.raw(opened, ask)
        else:
            value = encoded(room_part.show(opened, ask))
        connection.send(("result", number, value))
    except CancelledError:
        connection.send(("cancelled", number))
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:
        connection.send(("refused", number, message(error)))


def message(error: Exception) -> str:
    """What a visitor is told: our own sentences as they are; a mistake of ours with its name, and the terminal has
    the rest."""
    if isinstance(error, ArmillaryError):
        return str(error)
    traceback.print_exception(error)
    return f"this failed inside Armillary ({type(error).__name__}: {error}); the terminal shows where."


def facts(anatomy: "Anatomy") -> dict[str, Any]:
    """What the page's controls need to know of a model."""
    return {
        "name": anatomy.name,
        "layers": anatomy.layers,
        "heads": anatomy.n_heads,
        "width": anatomy.d,
        "norms": list(anatomy.norms),
        "context": anatomy.context,
        "family": anatomy.family,
        "words": anatomy.tokenizer is not None,
        "predicts": anatomy.W_U is not None and anatomy.causal,
    }
