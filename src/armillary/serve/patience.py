"""How long does the server wait for a request? A visitor that begins one and never ends it must not keep others out."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0
"""Until the first line and the headers of a request, and then its body, have arrived."""


class PatientProtocol(H11Protocol):
    """uvicorn's own protocol; a connection on which no request arrives is closed."""

    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Begin to wait for a request, go on waiting for it, or stop because it is there."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self.waiting is None:
            self.waiting = self.loop.call_later(SECONDS, self._give_up)

    def _stop(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def _give_up(self) -> None:
        self.waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
