"""How errors are reported on a terminal."""

import errno
import io
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from armillary.errors import ArmillaryError

DEBUG = "ARMILLARY_DEBUG"
USER, BUG, INTERRUPTED = 2, 1, 130
PANIC = "PanicException"
# What a disk refuses, wherever it comes up.
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.EIO, errno.ELOOP, errno.ENOSPC, errno.EDQUOT,
            errno.EMFILE, errno.ENFILE, errno.EBADF)  # fmt: skip
NUL = "a path contains NUL or half of a character, which no file's name can; check the names given."
TOO_LONG = "a path is longer than any file's can be; check the names given."


def friendly(
    command: Callable[..., Any],
    *,
    interrupted: str | Callable[[list[Path]], str] = "",
    smaller: str = "use a smaller model or fewer --tokens",
) -> Callable[..., Any]:
    """Report what a user can fix as one sentence with exit code 2, without a traceback; what nobody foresaw, as one
    sentence with exit code 1 that says where the traceback is.

    `interrupted` says what is on disk after Ctrl-C, of the files that were written, if any was; `smaller` what to do
    when memory is full.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before = len(_files())
        try:
            return command(*args, **kwargs)
        except ArmillaryError as error:
            tell(str(error), USER)
        except KeyboardInterrupt:
            tell(f"interrupted; {_written(interrupted, before)}.", INTERRUPTED)
        except click.ClickException:
            raise
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _reader_has_gone():
                raise  # click ends the command without a word, as programs do before `head`
            # torch reports full memory as a RuntimeError.
            full = ("out of memory", "can't allocate memory")
            if isinstance(error, MemoryError) or any(words in str(error) for words in full):
                tell(f"out of memory; {smaller}.", USER)
            if _is_name(error):
                tell(NUL, USER)
            if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
                tell(TOO_LONG, USER)
            if isinstance(error, OSError) and error.errno in REFUSALS:
                place = "what was to be read or printed" if error.filename is None else error.filename
                tell(f"{place} cannot be used ({error.strerror}); check the file and its folder.", USER)
            if os.environ.get(DEBUG) or kwargs.get("debug"):
                raise
            tell(unforeseen(error), BUG)
        except BaseException as error:
            # What a library in Rust raises where it gives up, past everything that catches an Exception.
            if type(error).__name__ != PANIC or os.environ.get(DEBUG) or kwargs.get("debug"):
                raise
            tell(
                f"a library gave up on a file that it read ({_first(error)}); check the tokenizer and the weights.",
                USER,
            )

    return wrapped


def _reader_has_gone() -> bool:
    """Does nobody read standard output any more? A pipe to a process of ours would be another matter."""
    try:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        return bool(pipe.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def _is_name(error: Exception) -> bool:
    """Is it about a path that no file can have?"""
    return "embedded null" in str(error) or (isinstance(error, UnicodeEncodeError) and "surrogates" in str(error))


def _written(interrupted: str | Callable[[list[Path]], str], before: int) -> str:
    """What is on disk: nothing of this command, what the command says, or the last file and how many there are."""
    new = _files()[before:]
    if not new:
        return "nothing was written"
    message = interrupted(new) if callable(interrupted) else interrupted
    return message or f"{len(new)} file{'s' * (len(new) > 1)} had been written, the last of them {new[-1]}"


def _files() -> list[Any]:
    """What this process has written; a command that wrote nothing may not even have loaded who writes."""
    writer = sys.modules.get("armillary.results.disk.files")
    return [] if writer is None else list(writer.WRITTEN)


def say(text: str, err: bool = False, nl: bool = True) -> None:
    """Print text. Names in it may come from a file: nothing in them moves the cursor or turns the line around."""
    click.echo(harmless(text), err=err, nl=nl)


def tell(message: str, code: int) -> NoReturn:
    """One sentence on stderr, and the end."""
    say(f"armillary: {message}", err=True)
    sys.exit(code)


def harmless(message: str) -> str:
    """The message with control and bidirectional characters shown as codes; its own line breaks stay."""
    from armillary.views.text.quoting import show_text

    lines = [(line, line.strip(" ")) for line in message.split("\n")]
    return "\n".join(line.replace(words, show_text(words)) if words else "" for line, words in lines)


def unforeseen(error: Exception) -> str:
    """A sentence about an error that has no message of its own, with the file that holds its traceback."""
    what = f"this should not happen ({type(error).__name__}: {_first(error)})"
    try:
        handle, path = tempfile.mkstemp(prefix="armillary-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{what}; set {DEBUG}=1 to see the traceback."
    return f"{what}; please report it with the details in {path}."


def check_words(words: Sequence[str]) -> None:
    """Refuse an empty word, as a shell makes of a variable that is not set: as a path it would be the folder that one
    is in, and as a model the default one."""
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if not word or (word.startswith("--") and equals and not value):
            place = option or before
            where = f"after {place}" if place.startswith("-") else "among what was given"
            tell(f"there is an empty word {where}; give a name or a path, or leave it out.", USER)
        before = word


class Commands(click.Group):
    """The commands, with usage errors made harmless: an option or a name can carry terminal escapes as well."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, whole; click would cut it at the edge."""
        rows = [(name, command.get_short_help_str(1000)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(self, *args: Any, **more: Any) -> Any:
        alone = more.pop("standalone_mode", True)
        run: Callable[..., Any] = partial(super().main, standalone_mode=False)
        if not alone:
            return run(*args, **more)
        given = args[0] if args else more.get("args")
        check_words(sys.argv[1:] if given is None else given)
        try:
            code = run(*args, **more)
        except click.ClickException as error:
            message = io.StringIO()
            error.show(file=message)
            say(message.getvalue(), err=True, nl=False)
            sys.exit(error.exit_code)
        except click.Abort:
            tell("interrupted.", INTERRUPTED)
        except ValueError as error:
            if not _is_name(error):
                raise
            tell(NUL, USER)
        sys.exit(code if isinstance(code, int) else 0)
