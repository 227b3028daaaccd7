"""The routes: the page and its scripts, the rooms' list, a model's facts, a part as a stream of events, an export."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from armillary import __version__
from armillary.errors import ArmillaryError, nearest
from armillary.serve import patience
from armillary.serve.blocks import encoded
from armillary.serve.fields import clean
from armillary.serve.library import Library
from armillary.serve.model_process import message
from armillary.serve.room import MODELS, Room, RoomPart
from armillary.serve.rooms import ROOMS
from armillary.serve.worker import BusyError, Key, Worker
from armillary.views.text.quoting import show_text

LOADED = 2
"""Most models in memory at once."""
KEPT = 64 << 20
"""Bytes of results that are remembered."""
LOOK = 0.5
"""Seconds between looks whether a browser still listens."""

PACKAGE = files("armillary")
# Scripts and styles by the name that the page asks for; nothing else is served.
STATIC = {
    "explore.css": PACKAGE / "serve" / "static" / "explore.css",
    "explore.js": PACKAGE / "serve" / "static" / "explore.js",
    "controls.js": PACKAGE / "serve" / "static" / "controls.js",
    "parts.js": PACKAGE / "serve" / "static" / "parts.js",
    "render.js": PACKAGE / "serve" / "static" / "render.js",
    "figures.js": PACKAGE / "views" / "report" / "figures.js",
    "tables.js": PACKAGE / "views" / "report" / "tables.js",
    "travel.js": PACKAGE / "views" / "travel" / "travel.js",
    "travel.css": PACKAGE / "views" / "travel" / "travel.css",
    "report.css": PACKAGE / "views" / "report" / "report.css",
}
TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html"}


class Server:
    """The state behind the routes: workers by model, and results that were computed before."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.workers: dict[str, Worker] = {}
        self._results: OrderedDict[Key, bytes] = OrderedDict()
        self._held = 0

    def worker(self, name: str) -> Worker:
        """The worker of a model; the one that was used longest ago makes room for it."""
        if name not in self.library.models:
            raise ArmillaryError(f"there is no model {name!r} here; {nearest(name, self.library.models)}")
        if name not in self.workers:
            self.workers[name] = Worker(name, self.library.models[name])
        worker = self.workers[name]
        others = [w for w in self.workers.values() if w.alive and w is not worker]
        if not worker.alive and len(others) >= LOADED:
            idle = [w for w in others if not w.busy]
            if not idle:
                raise BusyError(f"{LOADED} models are busy; {name} can be loaded when one of them is done.")
            min(idle, key=lambda w: w.used).stop()
        return worker

    def launch_first(self) -> list[Worker]:
        """Begin to load the first model; its worker, where there is a model."""
        first = [self.worker(name) for name in [*self.library.models][:1]]
        for worker in first:
            worker.launch()
        return first

    def remembered(self, key: Key) -> bytes | None:
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def remember(self, key: Key, value: bytes) -> None:
        if key in self._results or len(value) > KEPT // 4:
            return
        self._results[key] = value
        self._held += len(value)
        while self._held > KEPT:
            self._held -= len(self._results.popitem(last=False)[1])

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop("the server stops")

    async def events(self, room: Room, part: RoomPart, given: Mapping[str, Any]) -> AsyncIterator[tuple[Any, ...]]:
        """What happens until a part is there: ('state' | 'progress' | 'restarted' | 'result' | 'refused', …)."""
        ask = room.asked(part, given)
        if part.by == "library":
            key: Key = ("", room.name, part.name, json.dumps(ask, sort_keys=True))
            shown = self.remembered(key)
            if shown is None:
                shown = await asyncio.to_thread(lambda: encoded(part.show(self.library, ask)))
                self.remember(key, shown)
            yield ("result", shown)
            return
        names = [clean(MODELS, {k: v for k, v in given.items() if k in ("model", "second")})[part.model]]
        if part.by == "pair":
            names = [
                clean(MODELS, {k: v for k, v in given.items() if k in ("model", "second")})[k.name] for k in MODELS
            ]
        key = (*names, room.name, part.name, json.dumps(ask, sort_keys=True))
        before = self.remembered(key)
        if before is not None:
            yield ("result", before)
            return
        values = []
        for name in names:
            async for event in self._asked(name, (room.name, part.name, part.by == "pair"), ask):
                if event[0] != "result":
                    yield event
                    if event[0] == "refused":
                        return
                else:
                    values.append(event[1])
        result = values[0]
        if part.by == "pair":
            result = await asyncio.to_thread(lambda: encoded(part.show(values, ask)))
        self.remember(key, result)
        yield ("result", result)

    async def _asked(self, name: str, part: tuple[str, str, bool], ask: Any) -> AsyncIterator[tuple[Any, ...]]:
        worker = self.worker(name)
        job, queue = worker.submit((name, part, json.dumps(ask, sort_keys=True)), part, ask)
        try:
            while True:
                event = await queue.get()
                if event[0] == "cancelled":
                    event = ("refused", "another visitor stopped this; ask again.")
                yield event
                if event[0] in ("result", "refused"):
                    return
        finally:
            worker.leave(job, queue)


# ---- routes ----------------------------------------------------------------------------------------------------


def make_app(library: Library) -> Starlette:
    """The application without its guard; `armillary.serve.start` puts the guard before it."""
    server = Server(library)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        # The first model is loaded while the page is opened.
        for worker in server.launch_first():
            worker.start()
        yield
        server.stop()

    routes = [
        Route("/", _page),
        Route("/static/{name}", _static),
        Route("/library/plotly.min.js", _plotly),
        Route("/api/rooms", _rooms),
        Route("/api/model", _model, methods=["POST"]),
        Route("/api/part", _part, methods=["POST"]),
        Route("/api/export", _export, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=life)
    app.state.server = server
    return app


async def _page(request: Request) -> Response:
    return _file("index.html", PACKAGE / "serve" / "static" / "index.html")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "base.css":
        from armillary.views.page import page_style

        return Response(page_style(), media_type="text/css")
    return _file(name, STATIC[name]) if name in STATIC else Response("not here", 404)


def _file(name: str, path: Any) -> Response:
    return Response(path.read_bytes(), media_type=TYPES[name.rpartition(".")[2]])


async def _plotly(request: Request) -> Response:
    from plotly.offline import get_plotlyjs

    return Response(get_plotlyjs(), media_type="text/javascript")


async def _rooms(request: Request) -> Response:
    from armillary.views.report.report import themes

    library: Library = request.app.state.server.library
    return JSONResponse({
        "version": __version__,
        "rooms": [room.record() for room in ROOMS if room.offered(library)],
        "models": list(library.models),
        "surveys": list(library.surveys),
        "studies": list(library.studies),
        "trainings": list(library.trainings),
        "common": themes(),
    })  # fmt: skip


async def _model(request: Request) -> Response:
    """A model's facts, or why it has none; waits until it is loaded."""
    try:
        given = await _body(request)
        worker = request.app.state.server.worker(str(given.get("model", "")))
    except ArmillaryError as error:
        return _refused(error, 400)
    try:
        return JSONResponse(await worker.known())
    except ArmillaryError as error:
        # The request was right; the model cannot be loaded.
        return _refused(error, 200)


def _refused(error: ArmillaryError, status: int) -> Response:
    """A sentence that may quote what was sent: control characters and halves of characters appear as codes."""
    return JSONResponse({"error": show_text(str(error))}, status)


async def _part(request: Request) -> Response:
    """A part as server-sent events; the last is its result or the reason why there is none."""
    try:
        given = await _body(request)
        room, part = _found(given)
        fields = given.get("fields", {})
        if not isinstance(fields, dict):
            raise ArmillaryError("`fields` must be an object.")
        room.asked(part, fields)
    except ArmillaryError as error:
        return _refused(error, 400)
    events = request.app.state.server.events(room, part, fields)
    return StreamingResponse(_stream(events, request), media_type="text/event-stream")


async def _export(request: Request) -> Response:
    """A room with everything it shows as one HTML file."""
    from armillary.serve.export import exported

    try:
        given = await _body(request)
        room, _ = _found({**given, "part": None})
        page = await exported(request.app.state.server, room, given.get("fields", {}))
    except ArmillaryError as error:
        return _refused(error, 400)
    headers = {"content-disposition": f'attachment; filename="armillary-{room.name}.html"'}
    return Response(page, media_type="text/html", headers=headers)


def _found(given: Mapping[str, Any]) -> tuple[Room, RoomPart]:
    rooms = {room.name: room for room in ROOMS}
    name, of = given.get("room"), given.get("part")
    if not isinstance(name, str) or name not in rooms:
        raise ArmillaryError(f"there is no room {name!r}; {nearest(str(name), rooms)}")
    room = rooms[str(name)]
    part = room.parts[0] if of is None else room.part(str(of))
    if part is None:
        raise ArmillaryError(f"{room.title} has no part {of!r}; {nearest(str(of), [p.name for p in room.parts])}")
    return room, part


async def _body(request: Request) -> dict[str, Any]:
    try:
        given = json.loads(await asyncio.wait_for(request.body(), patience.SECONDS))
    except TimeoutError:
        raise ArmillaryError(
            f"the request did not arrive whole within {patience.SECONDS:g} seconds; send it again."
        ) from None
    except ClientDisconnect:
        raise ArmillaryError("the request is larger than allowed; shorten the sentence.") from None
    except (ValueError, RecursionError):
        raise ArmillaryError("the request is not JSON.") from None
    if not isinstance(given, dict):
        raise ArmillaryError("the request must be a JSON object.")
    return given


async def _stream(events: AsyncIterator[tuple[Any, ...]], request: Request) -> AsyncIterator[bytes]:
    """Events as lines of text, until the last one is sent or the browser goes away."""
    following: Any = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({following}, timeout=LOOK)
            if not done:
                if await request.is_disconnected():
                    return
                continue
            try:
                kind, *rest = following.result()
            except StopAsyncIteration:
                return
            except Exception as error:
                kind, rest = "refused", [message(error)]
            following = None
            yield _event(kind, rest)
            if kind in ("result", "refused"):
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


def _event(kind: str, rest: list[Any]) -> bytes:
    if kind == "result":
        return b"event: result\ndata: " + rest[0] + b"\n\n"
    record = {"text": show_text(rest[0])} | ({"done": rest[1], "total": rest[2]} if kind == "progress" else {})
    return f"event: {kind}\ndata: {json.dumps(record)}\n\n".encode()
