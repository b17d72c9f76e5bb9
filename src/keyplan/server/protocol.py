"""HTTP/1.1 as uvicorn reads it, with the bounds that it lacks: of heads, of idle and slow connections, and of their number.

Requests that a client sends without waiting for answers stay bytes until it is their turn. The bounds of a body that somebody
reads are the gate's. An answer is sent in one piece: uvicorn writes its head and its body one after the other, each a call of
the system. And a request comes with who is at the other end of its connection.
"""

import asyncio
import fcntl
import json
import sys
import termios
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, cast

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from keyplan.server.bounds import BODY_BYTES_PER_SECOND_MIN, HEADER_BYTES_MAX
from keyplan.server.connections import Connections
from keyplan.server.peers import Line, Peer, Receiver, set_peer, set_whole
from keyplan.server.proxies import address_of

__all__ = ["BoundedProtocol", "GatheringTransport"]

_GATHERED_BYTES_MAX: Final = 64 << 10
"""Why: as much as asyncio holds before it lets the writer wait."""

_REST_BYTES_MAX: Final = 64 << 10
"""Of a body that nobody reads, as it was refused. Why any: a client that sends it before it looks should see the refusal."""


_PARSED_BYTES_MAX: Final = 4 << 10
"""Of what has come, parsed at once. Why so little: a request of 18 bytes becomes 2 KB. A body of 64 MiB takes 18 ms more."""

_INT_BYTES: Final = 4
"""Of a number of the kernel's, which is in the machine's own order."""


class _Stage(Enum):
    """What comes next on a connection."""

    HEAD = auto()
    """A request's head, or the rest of it. So it begins."""
    BODY = auto()
    NOTHING = auto()
    """A request is there, and another one may come."""


class GatheringTransport(asyncio.Transport):
    """A transport that sends all that is written in one turn of the event loop at the turn's end, at once.

    It can be told to require that the client takes what is written: BODY_BYTES_PER_SECOND_MIN, or all there is, in each stretch
    of `unread_seconds_max`. How long the whole takes has no bound.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, unread_seconds_max: float = 60.0
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._unread_seconds_max = unread_seconds_max
        self._parts: list[bytes | bytearray | memoryview] = []
        self._part_bytes = 0
        self._written_bytes = 0
        self._progress_timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self._when_taken: list[Callable[[], None]] = []

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Send with what else is written in this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._part_bytes += len(data)
        self._written_bytes += len(data)
        # Why not all at the turn's end: an answer that is made without waiting has no such end, and is to be made to wait.
        if self._part_bytes > _GATHERED_BYTES_MAX:
            self._flush()

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview]") -> None:
        """Send all of them with what else is written in this turn."""
        for data in list_of_data:
            self.write(data)

    def _flush(self) -> None:
        parts, self._parts, self._part_bytes = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.writelines(parts)

    def close(self) -> None:
        """Send what was written, then close; close all the same when the client does not take it."""
        self._flush()
        self._transport.close()
        self.require_progress()

    def abort(self) -> None:
        """Close at once, without what was written."""
        self._parts, self._part_bytes = [], 0
        self._transport.abort()

    def unread_bytes(self) -> int:
        """Return how much of what was written the client has not taken, with what the system holds, where it tells."""
        return self.get_write_buffer_size() + _unread_in_system(self.get_extra_info("socket"))

    def require_progress(self) -> None:
        """Cut the connection when the client takes too little, from now on until all is taken."""
        if self._progress_timer is not None:
            return
        unread, seconds = self.unread_bytes(), self._unread_seconds_max
        if unread:
            due = self._written_bytes - unread + min(unread, int(seconds * BODY_BYTES_PER_SECOND_MIN))
            self._progress_timer = self._loop.call_later(seconds, self._look_at_progress, due)

    def _look_at_progress(self, due: int) -> None:
        self._progress_timer = None
        if self._written_bytes - self.unread_bytes() < due:
            self.abort()
        else:
            self.require_progress()

    def set_full(self, *, is_full: bool) -> None:
        """Know whether more waits to be taken than the event loop holds for a client, or no more."""
        self._is_full = is_full
        if not is_full:
            calls, self._when_taken = self._when_taken, []
            for call in calls:
                call()

    def when_taken(self, call: Callable[[], None]) -> None:
        """Call once the client has taken what was written, but for what the event loop holds for each, or is gone."""
        if self._is_full:
            self._when_taken.append(call)
        else:
            call()

    def forget(self) -> None:
        """Require nothing more: the connection is gone."""
        self.set_full(is_full=False)
        if self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None

    def is_closing(self) -> bool:
        """Tell whether nothing more is sent."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the client to take them."""
        return self._transport.get_write_buffer_size() + self._part_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the system knows of the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take nothing from the client for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._transport.resume_reading()


class _Reading(FlowControl):
    """Whether a connection is read: not while what has come waits to be parsed, whoever would go on."""

    def __init__(self, transport: asyncio.Transport, *, has_unparsed: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._has_unparsed = has_unparsed

    def resume_reading(self) -> None:
        """Read on, unless there is enough already."""
        if not self._has_unparsed():
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is no HTTP, or too much of it, is answered in the form of every other failure, and closed.

    While the client is waited for, there is a time by which it must have sent: a head, the next request, the rest of a body
    that nobody reads. While the server is at work there is none. What is written, the transport requires the client to take.
    """

    _written: GatheringTransport

    def __init__(self, *given: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._connections = connections
        self._bounds = connections.bounds
        self._stage = _Stage.HEAD
        self._head_bytes = 0
        self._head_began = False
        self._rest_bytes = 0
        self._unparsed = memoryview(b"")
        self._part_bytes = 0
        self._place: str | None = None
        self._is_upgradable = False
        """Whether the last request asks for another protocol: nothing behind it is HTTP."""
        self._came_behind = False
        """Whether anything came behind such a request."""
        self._receiver: Receiver | None = None
        """Who has the connection in place of HTTP."""
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Rings when the client is late, or earlier. Why kept while nobody waits: each request would make one and end it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Begin to wait for the first request's head, unless there are too many connections."""
        unread = self._bounds.unread_seconds_max
        self._written = GatheringTransport(transport, self.loop, unread_seconds_max=unread)
        # Why said: over TLS, event loops hold eight times as much before they let the writer wait.
        transport.set_write_buffer_limits(high=_GATHERED_BYTES_MAX)
        super().connection_made(self._written)
        self.flow = _Reading(self._written, has_unparsed=lambda: bool(self._unparsed or self.pipeline))
        self._peer = Peer(self._written, when_taken=self._written.when_taken, hand_over=self._hand_over)
        self._place = self._connections.place_of(self._ends(), self._peer)
        if self._connections.enter(self._place):
            self._wait(self._bounds.head_seconds_max)
        else:
            self._refuse(503, "too_many_connections", "there are too many connections already: close some, or wait")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._place is not None:
            self._connections.leave(self._place)
        super().connection_lost(exc)
        # Why last: uvicorn closes once more.
        self._written.forget()
        if self._receiver is not None:
            self._receiver.lost()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._receiver is not None:
            self._receiver.received(data)
            return
        if self._is_upgradable:
            self._came_behind = True
            return
        self._unparsed = memoryview(b"".join((self._unparsed, data)) if self._unparsed else data)
        self._parse()

    def _parse(self) -> None:
        """Parse what has come until a whole request waits behind the one that is answered; leave the rest, and read no more."""
        while self._unparsed and not self.pipeline and not self.transport.is_closing():
            part, self._unparsed = self._unparsed[:_PARSED_BYTES_MAX], self._unparsed[_PARSED_BYTES_MAX:]
            self._parse_part(part)
        if self._unparsed:
            self.flow.pause_reading()

    def _parse_part(self, data: memoryview) -> None:
        """Parse, and count what belongs to a head that is not complete, or to a body that nobody reads."""
        self._head_began = False
        self._part_bytes = len(data)
        super().data_received(data)  # type: ignore[arg-type]  # the parser takes any buffer
        if self.transport.is_closing():
            return
        if self._stage is _Stage.HEAD and not self._head_began:
            # Invariant: the part in which the head begins is not counted, as it may hold the end of another request's body; it
            # has a bound of its own, the size of the loop's reads.
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self._refuse(431, "headers_too_large", "the request's headers are too large")
                return
        elif self._stage is _Stage.BODY and self.cycle.response_complete:
            self._rest_bytes += len(data)
            if self._rest_bytes > _REST_BYTES_MAX:
                self.transport.close()
                return
        # Why here: most heads come whole, and are not waited for.
        if self._stage is _Stage.HEAD and self._due_at is None:
            self._wait(self._bounds.head_seconds_max)

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        set_peer(cast("Scope", self.scope), self._peer)
        self._head_began = True
        self._head_bytes = self._rest_bytes = 0
        if self._stage is not _Stage.HEAD:
            self._stage = _Stage.HEAD
            self._stop_waiting()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stage = _Stage.BODY
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is there."""
        self._stage = _Stage.NOTHING
        set_whole(cast("Scope", self.scope))
        super().on_message_complete()
        if self.cycle.response_complete:
            self._wait(self._bounds.idle_seconds_max)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, or for the rest of this one, or of the next one's head."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._parse()
        # Why once more: uvicorn did so while the next request still waited.
        self.flow.resume_reading()
        if not self.cycle.response_complete or self.transport.is_closing():
            return
        if self._stage is not _Stage.HEAD:
            # Why not uvicorn's timer: any byte ends it, also one that begins no request.
            self._wait(self._bounds.idle_seconds_max)
        elif self._due_at is None:
            # Trap: a head that was late while another request was answered was let be, and is not to be waited for without end.
            self._wait(self._bounds.head_seconds_max)

    def pause_writing(self) -> None:
        """Let the application wait for the client, and see that it takes what is written."""
        super().pause_writing()
        self._written.set_full(is_full=True)
        self._written.require_progress()
        if self._receiver is not None:
            self._receiver.set_full(is_full=True)

    def resume_writing(self) -> None:
        """Let the application go on: the client has taken nearly all."""
        super().resume_writing()
        self._written.set_full(is_full=False)
        if self._receiver is not None:
            self._receiver.set_full(is_full=False)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, "bad_request", "this is not HTTP/1.1")

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if no other protocol had been asked for, and close: uvicorn drops what came behind the request.

        Called while it handles what the parser has raised, which tells how much belongs to the request.
        """
        raised = sys.exception()
        self._is_upgradable = True
        self._came_behind = bool(self._unparsed) or raised is None or raised.args[0] < self._part_bytes
        self._unparsed = memoryview(b"")
        if self.cycle is not None:
            self.cycle.keep_alive = False

    # ---- pieces ----------------------------------------------------------------------------------------------------------

    def _hand_over(self, receiver: Receiver) -> Line | None:
        """Have another take what comes from now on; the request that is answered lasts as long as the connection.

        Returns None for a connection that stays HTTP's; see `Peer.hand_over`.

        Whoever calls this answers it with 101, and bounds what comes: none of the bounds here is for anything but HTTP.
        """
        if not self._is_upgradable or self._came_behind:
            return None
        self._receiver = receiver
        receiver.opened(self._written)
        self._stop_waiting()
        # Why said: uvicorn would send the head of a body in chunks, and this answer has none.
        self.cycle.chunked_encoding = False
        return self._written

    def _ends(self) -> Scope:
        return {"client": self.client, "server": self.server}

    def _wait(self, seconds: float) -> None:
        self._due_at = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due_at:
            self._ring_at(self._due_at)

    def _stop_waiting(self) -> None:
        self._due_at = None

    def _ring_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(moment, self._rung, moment)

    def _rung(self, moment: float) -> None:
        """Look whether the client is late: it may have sent since, and be waited for again."""
        self._timer = None
        if self._due_at is None:
            return
        # Why not the time now: a loop may ring a timer a little before it.
        if self._due_at > moment:
            self._ring_at(self._due_at)
        else:
            self._due_at = None
            self._is_late()

    def _is_late(self) -> None:
        # Trap: uvicorn's cycle is None before the first request, whatever its type says.
        if not getattr(self.cycle, "response_complete", True) or self.transport.is_closing():
            return
        if self._stage is _Stage.NOTHING and self._written.unread_bytes():
            # Why: who is still taking an answer over a slow link is not idle, and asks the next thing right behind it.
            self._written.require_progress()
            self._wait(self._bounds.idle_seconds_max)
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        error: dict[str, Any] = {"error": {"code": code, "message": message, "detail": {}}}
        body = json.dumps(error).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        address = address_of(self._ends())
        facts = {"status": status, "client": address, "reason": code, "why": message}
        self._connections.refusals.tell(address, code, facts)


def _unread_in_system(opened: Any) -> int:
    """How many bytes the system holds that the other end of a connection has not taken; 0 where it does not tell.

    Why it counts: of a slow link the system holds megabytes, and takes more only when a third of them is gone.
    """
    if opened is None:
        return 0
    try:
        told = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, bytes(_INT_BYTES))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(told, sys.byteorder, signed=True)
