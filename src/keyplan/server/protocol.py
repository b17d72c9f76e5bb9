"""HTTP/1.1 as uvicorn reads it, with two bounds that it lacks: how large a request's head is, and how long it may take.

An answer is sent in one piece: uvicorn writes its head and its body one after the other, each a call of the system. And a
request comes with who is at the other end of its connection.
"""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from keyplan.server.gate import HEADER_BYTES_MAX
from keyplan.server.peers import Peer, set_peer

__all__ = ["HEAD_SECONDS_MAX", "BoundedProtocol", "GatheringTransport"]

HEAD_SECONDS_MAX: Final = 20.0
"""Why: a client that sends its headers byte by byte would hold a connection for ever."""


class GatheringTransport(asyncio.Transport):
    """A transport that sends all that is written in one turn of the event loop at the turn's end, at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes | bytearray | memoryview] = []

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Send with what else is written in this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview]") -> None:
        """Send all of them with what else is written in this turn."""
        for data in list_of_data:
            self.write(data)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.writelines(parts)

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, without what was written."""
        self._parts = []
        self._transport.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more is sent."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the system knows of the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take nothing from the client for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._transport.resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is no HTTP, or too much of it, is answered in the form of every other failure, and closed."""

    _head_bytes = 0
    _is_in_head = True
    _head_began = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Begin to wait for the first request's head."""
        super().connection_made(GatheringTransport(transport, self.loop))
        self._peer = Peer(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and count what belongs to a head that is not complete."""
        self._head_began = False
        super().data_received(data)
        if self._is_in_head and not self._head_began and not self.transport.is_closing():
            # Invariant: the part in which the head begins is not counted, as it may hold the end of another request's body; it
            # has a bound of its own, the size of the loop's reads.
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self._refuse(431, "headers_too_large", "the request's headers are too large")

    def on_message_begin(self) -> None:
        """Begin to count and to wait."""
        super().on_message_begin()
        set_peer(cast("Scope", self.scope), self._peer)
        self._is_in_head = self._head_began = True
        self._head_bytes = 0
        if self._head_timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, "bad_request", "this is not HTTP/1.1")

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        # Trap: uvicorn's cycle is None before the first request, whatever its type says.
        if getattr(self.cycle, "response_complete", True) and not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        error: dict[str, Any] = {"error": {"code": code, "message": message, "detail": {}}}
        body = json.dumps(error).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
