"""A connection before its TLS handshake is over: it counts from its accept on, and has the time of a head."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from keyplan.server.connections import Connections
from keyplan.server.peers import Peer
from keyplan.server.proxies import address_of

__all__ = ["HandshakeProtocol"]


class HandshakeProtocol(asyncio.Protocol):
    """One connection from its accept until its TLS handshake is over; then what `make_protocol` makes has it, and counts it.

    Until then it stands in `open_protocols`, where whoever stops the server finds it. A handshake that fails has a line in the
    log of refusals, with what TLS says; one that was too slow, or whose client left, has none.

    Why not the event loop's own way: it tells nobody of a connection before that, and lets a handshake last for a minute.
    """

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext,
        connections: Connections,
        open_protocols: set[Any],
    ) -> None:
        self._make_protocol = make_protocol
        self._context = context
        self._connections = connections
        self._open_protocols = open_protocols
        self._is_counted = False
        self._accepted: socket.socket | None = None
        """The connection, until the event loop has it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Begin the handshake, unless there are too many connections."""
        ends: Scope = {"client": get_remote_addr(transport), "server": get_local_addr(transport)}
        self._address = address_of(ends)
        self._place = self._connections.place_of(ends, Peer(transport))
        if self._connections.enter(self._place):
            self._is_counted = True
            self._begin(transport)
        else:
            self._connections.leave(self._place)
            # Why without an answer: who has no TLS yet could not read it.
            self._refuse("too_many_connections", "there are too many connections already: close some, or wait")
        # Why, and a descriptor of its own above: uvloop reads as soon as this method returns, before start_tls could begin. Of
        # a transport that is closed here no loop reads.
        transport.abort()

    def shutdown(self) -> None:
        """Close: the server stops, and nothing was asked here. uvicorn calls it, as it does on its own protocols."""
        self._task.cancel()
        if self._accepted is not None:
            # Why here: a task that is cancelled before its first turn does nothing, also not at its end.
            self._accepted.close()
            self._leave()

    def _begin(self, transport: asyncio.Transport) -> None:
        try:
            self._accepted = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError as error:
            # Why it comes to that: asyncio accepts all that wait in one turn, before any of them has its second descriptor.
            self._leave()
            self._refuse("no_descriptor", f"the server has no descriptor left for it: {error.strerror}")
            return
        self._open_protocols.add(self)
        # Why kept: the loop has no hold on a task.
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    async def _shake_hands(self) -> None:
        accepted, self._accepted = self._accepted, None
        assert accepted is not None, "it is what this was begun for"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _HandingOver(self._hand_over),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._connections.bounds.head_seconds_max,
            )
        except ssl.SSLError as error:
            self._refuse("tls_failed", str(error))
        except OSError:
            pass  # It was too slow, or is gone.
        finally:
            self._leave()

    def _hand_over(self, transport: asyncio.Transport) -> None:
        protocol = self._make_protocol()
        transport.set_protocol(protocol)
        # Invariant: no turn of the loop lies between this and the next protocol's own count.
        self._leave()
        protocol.connection_made(transport)

    def _leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._connections.leave(self._place)
            self._open_protocols.discard(self)

    def _refuse(self, reason: str, why: str) -> None:
        facts = {"status": None, "client": self._address, "reason": reason, "why": why}
        self._connections.refusals.tell(self._address, reason, facts)


class _HandingOver(asyncio.Protocol):
    """Hands a connection over in the moment that its handshake is over, before anything is read from it."""

    def __init__(self, hand_over: Callable[[asyncio.Transport], None]) -> None:
        self._hand_over = hand_over

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._hand_over(transport)
