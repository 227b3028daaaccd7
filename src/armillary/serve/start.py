"""Start the server: find a port, print the address with its token, open a browser, stop cleanly."""

import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armillary.errors import ArmillaryError
from armillary.serve.library import Library

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT, TRIED = 8765, 50


def check_installed() -> None:
    """Refuse, before anything is loaded, if the extra is missing."""
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ArmillaryError(
            f"armillary explore needs {' and '.join(missing)}, which are not installed: pip install "
            "'armillary[explore]'."
        )


def check_host(host: str, allow_remote: bool) -> str:
    """What serving on this address means; other addresses than this machine's own must be allowed."""
    if host in LOOPBACK:
        return ""
    if not allow_remote:
        raise ArmillaryError(
            f"--host {host} would let other machines connect; add --allow-remote to allow this, or leave out --host."
        )
    return (
        f"Serving on {host}: whoever can reach this machine and knows the token can run the model, read the surveys "
        "that were given, and use this machine's time. Nothing is encrypted: token and text are sent in plain text."
    )


def bound(host: str, port: int, announce: Callable[[str], None]) -> socket.socket:
    """A listening socket on the port, or on the next free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, min(port + TRIED, 65536)) if port else [0]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            # Bound but not listening, two servers may share a port: listen at once.
            listener.listen(128)
        except PermissionError:
            listener.close()
            raise ArmillaryError(f"port {number} needs administrator rights; choose one above 1023.") from None
        except OSError as error:
            listener.close()
            if isinstance(error, socket.gaierror) or error.errno == 99:
                raise ArmillaryError(f"{host} is not an address of this machine; leave out --host.") from None
            continue
        if port and number != port:
            announce(f"Port {port} is in use; port {number} is taken instead.")
        return listener
    raise ArmillaryError(f"ports {port} to {min(port + TRIED, 65536) - 1} are all in use; choose another with --port.")


@dataclass(frozen=True, eq=False)
class PageServer:
    """A server that is ready to run, and its address."""

    server: Any
    listener: socket.socket
    address: str
    app: Any

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self.server.run(sockets=[self.listener])


def make_site(
    library: Library,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str = "",
    framed: bool = False,
    announce: Callable[[str], None] = print,
) -> PageServer:
    """The server on its socket; `framed` lets notebooks on this machine show it."""
    check_installed()
    import uvicorn

    from armillary.serve.app import make_app
    from armillary.serve.guard import Guard
    from armillary.serve.patience import PatientProtocol

    listener = bound(host, port, announce)
    app = make_app(library)
    # The first model loads in its own process while this one gets ready.
    app.state.server.launch_first()
    _warm()
    number = listener.getsockname()[1]
    names = {host, *(LOOPBACK if host in LOOPBACK else (socket.gethostname(),))} - {"0.0.0.0", "::"}
    if host in ("0.0.0.0", "::"):
        names |= {*LOOPBACK, *_addresses()}
    hosts = [f"[{name}]:{number}" if ":" in name else f"{name}:{number}" for name in names]
    token = token or secrets.token_urlsafe(24)

    def _stopping(base: Any) -> Any:
        """Workers end first: requests that wait for them would hold the server up."""

        class Stopping(base):
            async def shutdown(self, sockets: Any = None) -> None:
                # A busy machine may not end requests within two seconds; that they are cut off then concerns nobody.
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
                app.state.server.stop()
                await super().shutdown(sockets)

            def handle_exit(self, sig: int, frame: Any) -> None:
                # Stopping takes two seconds at most; another Ctrl-C would only cut it short with a traceback.
                if not self.should_exit:
                    super().handle_exit(sig, frame)

        return Stopping

    guarded = Guard(app, token, hosts, framed)
    config = uvicorn.Config(
        guarded, log_level="warning", access_log=False, timeout_graceful_shutdown=2, limit_concurrency=200,
        timeout_keep_alive=30, server_header=False, ws="none", http=PatientProtocol,
        h11_max_incomplete_event_size=32 * 1024,
    )  # fmt: skip
    shown = "127.0.0.1" if host in ("0.0.0.0", "localhost") else f"[{host}]" if ":" in host else host
    return PageServer(_stopping(uvicorn.Server)(config), listener, f"http://{shown}:{number}/?token={token}", app)


def _warm() -> None:
    """Import what the first page needs before its address is printed: the first visitor should not wait for it."""
    from plotly.offline import get_plotlyjs

    import armillary.views.report.claims
    import armillary.views.report.report  # noqa: F401

    get_plotlyjs()


def _addresses() -> set[str]:
    """The addresses of this machine that its own name resolves to."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def open_browser(site: PageServer) -> None:
    """Open the page once the server answers; in a thread, because a browser may block."""
    threading.Thread(target=webbrowser.open, args=(site.address,), daemon=True).start()


@dataclass(frozen=True, eq=False)
class Explorer:
    """A running server in a notebook: it draws itself as a frame with the page in it."""

    address: str
    site: PageServer
    thread: threading.Thread
    height: int = 900

    def stop(self) -> None:
        """End the server and its models."""
        self.site.server.should_exit = True
        self.thread.join(10)

    def __repr__(self) -> str:
        return f"armillary.explore at {self.address}"

    def _repr_html_(self) -> str:
        from html import escape

        where = escape(self.address, quote=True)
        return (
            f'<iframe src="{where}" title="Armillary" style="width:100%;height:{self.height}px;border:0"></iframe>'
            f'<p><a href="{where}" target="_blank" rel="noopener">Open in a window of its own</a></p>'
        )


def explore(
    model: Any = "builtin:gpt", *, survey: Any = None, port: int = 0, tokenizer: Any = None, height: int = 900
) -> Explorer:
    """Show the rooms of a model in a notebook's frame; returns at once.

    `model`: a name, a folder, a loaded anatomy or a live model. `survey`: what `armillary.survey` gave, or its folder.
    """
    from armillary.serve.library import BUILTIN
    from armillary.serve.model_process import Source

    options = {} if tokenizer is None else {"tokenizer": tokenizer}
    live = not isinstance(model, str)
    name = model if isinstance(model, str) else str(getattr(model, "name", "") or "this model")
    sources = {name[-60:]: Source(model, options, live=live)} | {b: Source(b, {}) for b in BUILTIN if b != name}
    library = Library(models=sources, surveys={} if survey is None else _named(survey))
    site = make_site(library, port=port, framed=True)
    # Signals belong to the notebook.
    site.server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=site.run, daemon=True, name="armillary explore")
    thread.start()
    return Explorer(site.address, site, thread, height)


def _named(survey: Any) -> dict[str, Any]:
    from armillary.results import Survey
    from armillary.results.store import read_survey

    opened = survey if isinstance(survey, Survey) else read_survey(survey)
    return {opened.model.name[-60:] or "survey": opened}
