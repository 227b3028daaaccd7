"""The command `armillary explore`: rooms in a browser."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_models, loading


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_models)
@click.option("--survey", "surveys", type=PATH, multiple=True, metavar="DIR",
              help="A stored survey for the ledger; repeat it for more.")  # fmt: skip
@click.option("--study", "studies", type=PATH, multiple=True, metavar="DIR",
              help="A study of the laboratory; repeat it for more.")  # fmt: skip
@click.option("--training", "runs", type=PATH, multiple=True, metavar="DIR",
              help="The folder of a training run; repeat it for more. Built-in models include theirs.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, metavar="P",
              help="The port; if it is in use, the next free one; 0: any free one.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="The address to serve on.")
@click.option("--allow-remote", is_flag=True, help="Let other machines connect; needed with any other --host.")
@loading
@partial(friendly, interrupted="the server has stopped", smaller="use a smaller model or a smaller --dtype")
def explore(
    models: tuple[str, ...], surveys: tuple[Path, ...], studies: tuple[Path, ...], runs: tuple[Path, ...],
    port: int, no_browser: bool, host: str, allow_remote: bool, **options: Any,
) -> None:  # fmt: skip
    """Look at MODEL in a browser: type a sentence, click a head, edit, compare.

    \b
    armillary explore                                  both built-in models
    armillary explore ./my-model --survey result/      a model of your own, with its stored survey
    armillary explore smollm2 builtin:gpt              the first opens; both can be chosen

    The page is served on this machine only, from files of this package; its address contains a token. Ctrl-C stops it.
    """
    from armillary.serve.start import check_host, check_installed, make_site, open_browser

    check_installed()
    warning = check_host(host, allow_remote)
    from armillary.serve.library import gather

    library = gather(models, surveys, studies, runs, options)
    site = make_site(library, host, port, announce=lambda line: say(line, err=True))
    if warning:
        say(warning, err=True)
    say(f"Armillary is at {site.address}\nCtrl-C stops it.")
    if not no_browser:
        open_browser(site)
    # Ctrl-C is how a server is meant to end.
    with contextlib.suppress(KeyboardInterrupt):
        site.run()
    say("Stopped.", err=True)
