"""Who may ask? The guard stands before every route: Host, Origin, token and size are checked, headers are added.

The server listens on this machine, but any web page that a browser shows can send requests here. A page of another
origin is told apart by `Origin` and `Sec-Fetch-Site`; one that rebinds its own name to 127.0.0.1 by `Host`; and neither
knows the token.
"""

import hmac
import json
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 64 * 1024
"""Most bytes of a request."""
TOKEN_HEADER = b"x-armillary-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors {frames}"
)
FRAMES = "http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:"
"""Where notebooks run."""


class Guard:
    """ASGI middleware. Paths under /api need the token; what holds nothing of a visitor's does not."""

    def __init__(self, app: ASGIApp, token: str, hosts: Sequence[str], framed: bool = False) -> None:
        self._app, self._token, self._hosts = app, token, {host.lower() for host in hosts}
        headers = {
            "content-security-policy": POLICY.format(frames=FRAMES if framed else "'none'"),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), microphone=(), geolocation=()",
            "cross-origin-opener-policy": "same-origin",
        }
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        cacheable = any(scope["path"].startswith(start) for start in ("/static/", "/library/"))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                store = b"private, max-age=3600" if cacheable else b"no-store"
                message["headers"] = [*message["headers"], *self._headers, (b"cache-control", store)]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, _limited(receive), guarded)
            return
        status, text = refusal
        body = json.dumps({"error": text}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await guarded({"type": "http.response.start", "status": status, "headers": headers})
        await guarded({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason, if the request is not to be answered."""
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"host" and name in headers:
                return 400, "two Host headers were sent."
            headers[name] = value
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host not in self._hosts:
            return 403, "this address is not the server's own; open the one that armillary explore printed."
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in {f"http://{name}" for name in self._hosts}:
            return 403, "another website sent this request; it is not answered."
        if not scope["path"].startswith("/api/"):
            return None
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            return 403, "another website sent this request; it is not answered."
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, b""), self._token.encode()):
            return 403, "the token is missing or wrong; open the address that armillary explore printed."
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > BODY:
            return 413, f"the request is larger than {BODY // 1024} KiB; shorten the sentence."
        return None


def _limited(receive: Receive) -> Receive:
    """Stops reading a body that grows beyond the limit, whatever its headers say."""
    read = 0

    async def take() -> Message:
        nonlocal read
        message: Any = await receive()
        read += len(message.get("body", b""))
        if read > BODY:
            return {"type": "http.disconnect"}
        return message

    return take
