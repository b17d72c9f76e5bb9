"""A router that forwards connections itself, for machines without HAProxy: one thread with an event loop, a listener per port.

Its connections end with it. HAProxy's live on when the router is gone, and it carries more.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Event, Thread
from typing import Any, Final

from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.router_routes import Leader, Route

__all__ = ["Forwarder"]

_CONNECT_SECONDS_MAX: Final = 4.0
_PIECE_BYTES_MAX: Final = 65_536
_STOP_SECONDS_MAX: Final = 5.0


class _Port:
    """One public port: its listener, where it leads, and the connections that go there."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.leader: Leader | None = None
        self.server: asyncio.Server | None = None
        self.sessions: set[asyncio.Task[None]] = set()

    async def open(self, bind: str) -> None:
        self.server = await asyncio.start_server(self._accepted, bind, self.port, limit=_PIECE_BYTES_MAX)

    def lead(self, leader: Leader | None) -> None:
        """Lead elsewhere: connections with another leader are cut, so that nobody goes on with one that was demoted."""
        if leader != self.leader:
            self.leader = leader
            self.cut()

    def cut(self) -> None:
        for session in self.sessions:
            session.cancel()

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        self.cut()
        await asyncio.gather(*self.sessions, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.sessions.add(task)
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            # Why abort: the client must learn of the cut now, without what lies in buffers.
            writer.transport.abort()
        finally:
            self.sessions.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        leader = self.leader
        if leader is None:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                beyond = await asyncio.open_connection(leader.host.strip("[]"), leader.port, limit=_PIECE_BYTES_MAX)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        both = [asyncio.create_task(_pump(reader, beyond[1])), asyncio.create_task(_pump(beyond[0], writer))]
        try:
            await asyncio.gather(*both)
        finally:
            for task in both:
                task.cancel()
            beyond[1].transport.abort()
            writer.close()


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

    def apply(self, routes: Sequence[Route]) -> None:
        """Make the ports lead where the routes say; return when they do.

        Raises OSError when a port cannot be listened on; the others lead where they should then, too.
        """
        self._call(self._apply(routes))

    async def _apply(self, routes: Sequence[Route]) -> None:
        wanted = {route.port: route.leader for route in routes}
        for port in self._ports.keys() - wanted.keys():
            await self._ports.pop(port).close()
        problem: OSError | None = None
        for port, leader in wanted.items():
            if port not in self._ports:
                fresh = _Port(port)
                try:
                    await fresh.open(self._bind)
                except OSError as error:
                    LOGGER.error("port %d cannot be listened on: %s", port, error.strerror)
                    problem = error
                    continue
                self._ports[port] = fresh
            self._ports[port].lead(leader)
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
