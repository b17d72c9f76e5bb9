"""A router that forwards connections itself, for machines without HAProxy: one thread with an event loop, a listener per port.

Its connections end with it. HAProxy's live on when the router is gone, and it carries more.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route

__all__ = ["Forwarder"]

_CONNECT_SECONDS_MAX: Final = 4.0
_PIECE_BYTES_MAX: Final = 65_536
_STOP_SECONDS_MAX: Final = 5.0


class _Port:
    """One public port: its listener, where it leads, and the connections that go there."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.server: asyncio.Server | None = None
        self._places: deque[Leader] = deque()
        self._sessions: dict[asyncio.Task[None], Leader | None] = {}

    async def open(self, bind: str) -> None:
        self.server = await asyncio.start_server(self._accepted, bind, self.port, limit=_PIECE_BYTES_MAX)

    def lead(self, places: Sequence[Leader]) -> None:
        """Lead there from now on, by turns: connections elsewhere are cut, so that nobody goes on with one that was demoted."""
        if set(places) != set(self._places):
            self._places = deque(places)
            self.cut(kept=set(places))

    def cut(self, *, kept: Collection[Leader] = ()) -> None:
        for session, place in self._sessions.items():
            if place not in kept:
                session.cancel()

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        self.cut()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions[task] = None
        try:
            await self._forward(task, reader, writer)
        except asyncio.CancelledError:
            # Why abort: the client must learn of the cut now, without what lies in buffers.
            writer.transport.abort()
        finally:
            del self._sessions[task]

    async def _forward(
        self, task: "asyncio.Task[None]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        beyond = await self._connected(task)
        if beyond is None:
            writer.transport.abort()
            return
        both = [asyncio.create_task(_pump(reader, beyond[1])), asyncio.create_task(_pump(beyond[0], writer))]
        try:
            await asyncio.gather(*both)
        finally:
            for each in both:
                each.cancel()
            beyond[1].transport.abort()
            writer.close()

    async def _connected(self, task: "asyncio.Task[None]") -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the place whose turn it is, or to the next one that takes a connection; None: nobody does."""
        self._places.rotate(-1)
        for place in tuple(reversed(self._places)):
            if place not in self._places:
                continue  # Why: it was taken away while another one was tried.
            # Invariant: noted before the connection is made, so that a change meanwhile cuts this one as well.
            self._sessions[task] = place
            try:
                async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                    return await asyncio.open_connection(place.host.strip("[]"), place.port, limit=_PIECE_BYTES_MAX)
            except (OSError, TimeoutError):
                continue
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until the one side ends, and tell the other side that it has."""
    try:
        while piece := await reader.read(_PIECE_BYTES_MAX):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


class Forwarder:
    """Leads each port where the routes say. Close it when done."""

    def __init__(self, *, bind: str = "127.0.0.1") -> None:
        self._bind = bind
        self._ports: dict[int, _Port] = {}
        self._loop = asyncio.new_event_loop()
        self._is_up = Event()
        self._thread = Thread(target=self._run, name="router", daemon=True)
        self._thread.start()
        self._is_up.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._is_up.set)
        self._loop.run_forever()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        """Make the ports lead where the routes say; return when they do.

        Raises OSError when a port cannot be listened on; the others lead where they should then, too.
        """
        wanted = {route.port: (route.leader,) if route.leader is not None else () for route in routes}
        self._call(self._apply({**wanted, **{reads.port: reads.following for reads in replicas}}))

    async def _apply(self, wanted: Mapping[int, Sequence[Leader]]) -> None:
        for port in self._ports.keys() - wanted.keys():
            await self._ports.pop(port).close()
        problem: OSError | None = None
        for port, places in wanted.items():
            if port not in self._ports:
                fresh = _Port(port)
                try:
                    await fresh.open(self._bind)
                except OSError as error:
                    LOGGER.error("port %d cannot be listened on: %s", port, error.strerror)
                    problem = error
                    continue
                self._ports[port] = fresh
            self._ports[port].lead(places)
        if problem is not None:
            raise problem

    def stop(self) -> None:
        """End all listeners and connections."""
        if not self._thread.is_alive():
            return
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS_MAX)

    async def _close(self) -> None:
        for port in list(self._ports):
            await self._ports.pop(port).close()
