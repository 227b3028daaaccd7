"""A server in this process: a tiny model in a thread, behind its guard, spoken to as a browser would."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from armillary.serve.app import make_app
from armillary.serve.guard import Guard
from armillary.serve.library import Library
from armillary.serve.model_process import Source

HOST, TOKEN = "127.0.0.1:8765", "a-token"


def library(models: Mapping[str, Any], **more: Any) -> Library:
    """Loaded anatomies by name; each runs in a thread of its own."""
    return Library(models={name: Source(anatomy, {}, live=True) for name, anatomy in models.items()}, **more)


class Visitor:
    """Sends what the page's script sends."""

    def __init__(self, client: TestClient, app: Any) -> None:
        self.client, self.server = client, app.state.server

    def post(self, path: str, body: Any, **headers: str) -> Any:
        given = {"x-armillary-token": TOKEN, "content-type": "application/json", **headers}
        # Escaped, so that half a character can be sent.
        return self.client.post(path, content=json.dumps(body), headers=given)

    def events(self, room: str, part: str, **fields: Any) -> list[tuple[str, Any]]:
        answer = self.post("/api/part", {"room": room, "part": part, "fields": fields})
        if answer.status_code != 200:
            return [("refused", {"text": answer.json()["error"]})]
        assert answer.headers["content-type"].startswith("text/event-stream")
        pairs = [event.split("\n") for event in answer.text.split("\n\n") if event]
        return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in pairs]

    def blocks(self, room: str, part: str, **fields: Any) -> list[dict[str, Any]]:
        kind, data = self.events(room, part, **fields)[-1]
        assert kind == "result", data
        return data["blocks"]

    def refusal(self, room: str, part: str, **fields: Any) -> str:
        kind, data = self.events(room, part, **fields)[-1]
        assert kind == "refused", "it was answered"
        return data["text"]


@contextmanager
def visiting(shown: Library, framed: bool = False) -> Iterator[Visitor]:
    app = make_app(shown)
    with TestClient(Guard(app, TOKEN, [HOST], framed), base_url=f"http://{HOST}") as client:
        yield Visitor(client, app)
