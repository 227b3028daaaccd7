"""How errors are reported on a terminal."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from armillary.errors import ArmillaryError


def friendly(
    command: Callable[..., Any],
    *,
    interrupted: str = "nothing was written",
    smaller: str = "use a smaller model or fewer --tokens",
) -> Callable[..., Any]:
    """Report what a user can fix as one sentence with exit code 2, without a traceback.

    `interrupted` says what is on disk after Ctrl-C, and `smaller` what to do when memory is full.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except ArmillaryError as error:
            click.echo(f"armillary: {error}", err=True)
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            # torch reports full memory as a RuntimeError; any other RuntimeError is a bug and keeps its traceback.
            full = ("out of memory", "can't allocate memory")
            if isinstance(error, RuntimeError) and not any(words in str(error) for words in full):
                raise
            click.echo(f"armillary: out of memory; {smaller}.", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            click.echo(f"armillary: interrupted; {interrupted}.", err=True)
            sys.exit(130)

    return wrapped
