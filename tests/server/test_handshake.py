"""Connections count among those of their address from their accept on, and end, whatever becomes of their TLS handshake."""

import asyncio
import contextlib
import os
import random
import resource
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count, islice
from typing import Any, Final

import pytest
import uvloop

from keyplan.server import EdgeBounds, RefusalLog, TrustedProxies
from keyplan.server.connections import Connections
from keyplan.server.handshake import HandshakeProtocol
from tests.servers.authority import Authority
from tests.servers.edge import EdgeServer

ASKED: Final = b"hello"
FAR_SECONDS: Final = 3_600
RESET: Final = (1).to_bytes(4, sys.byteorder) + bytes(4)
"""To linger for no time: the connection is reset when it is closed."""
LOOPS: Final[Mapping[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


class Echo(asyncio.Protocol):
    """Sends back what comes, and counts itself, as the server's protocol does."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._transport = transport
        assert self._connections.enter("")

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave("")


class ByHand:
    """TLS over a connection, of which a test says what is sent when."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._come, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._reader = reader
        self.writer = writer
        self.tls = context.wrap_bio(self._come, self._going, server_hostname="127.0.0.1")

    async def shake_hands(self) -> None:
        """Come to the end of the handshake, of which the last part is not sent."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send()
                await self.hear()
            else:
                return

    def send(self) -> None:
        self.writer.write(self._going.read())

    async def hear(self) -> None:
        part = await self._reader.read(65_536)
        assert part
        self._come.write(part)


class Listening:
    """A server of Echo over TLS for a block, and ways to reach it."""

    def __init__(
        self, authority: Authority, *, head_seconds_max: float = FAR_SECONDS, connections: int | None = None
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate("server"), authority.key("server"))
        self._trusting = ssl.create_default_context(cafile=authority.ca)
        bounds = EdgeBounds(head_seconds_max=head_seconds_max, connections_per_address_max=connections)
        self.refused: list[Mapping[str, Any]] = []
        self.connections = Connections(
            bounds, TrustedProxies(), RefusalLog(lambda _message, facts: self.refused.append(facts))
        )
        self.open_protocols: set[HandshakeProtocol] = set()

    async def __aenter__(self) -> "Listening":
        def made() -> asyncio.Protocol:
            return HandshakeProtocol(
                lambda: Echo(self.connections),
                context=self._context,
                connections=self.connections,
                open_protocols=self.open_protocols,
            )

        self._server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()

    async def silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def number_is(self, number: int) -> None:
        # Why again and again: the server hears of the end of a connection in its own time.
        while self.connections.number != number:  # noqa: ASYNC110  # Why: nobody tells of it.
            await asyncio.sleep(0.001)

    # ---- what clients do ---------------------------------------------------------------------------------------------

    async def echoes(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._trusting)
        writer.write(ASKED)
        assert await reader.readexactly(len(ASKED)) == ASKED
        writer.close()

    async def echoes_what_comes_with_the_end_of_the_handshake(self) -> None:
        by_hand = await self._by_hand(self._trusting)
        await by_hand.shake_hands()
        by_hand.tls.write(ASKED)
        by_hand.send()
        while True:
            try:
                assert by_hand.tls.read() == ASKED
                break
            except ssl.SSLWantReadError:
                await by_hand.hear()
        by_hand.writer.close()

    async def does_not_trust(self) -> None:
        by_hand = await self._by_hand(ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            await by_hand.shake_hands()
        # Why by hand: asyncio keeps what TLS has to say of it to itself.
        by_hand.send()
        by_hand.writer.close()

    async def _by_hand(self, context: ssl.SSLContext) -> "ByHand":
        return ByHand(context, *await self.silent())

    async def leaves_with_the_end_of_the_handshake(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._trusting)
        writer.transport.abort()

    async def leaves_in_silence(self) -> None:
        _, writer = await self.silent()
        writer.close()

    async def leaves_with_half_a_hello(self) -> None:
        _, writer = await self.silent()
        writer.write(self._half_hello())
        writer.close()

    async def resets_with_half_a_hello(self) -> None:
        _, writer = await self.silent()
        opened = writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.write(self._half_hello())
        writer.transport.abort()

    async def speaks_no_tls(self) -> None:
        reader, writer = await self.silent()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in await reader.read()
        writer.close()

    def _half_hello(self) -> bytes:
        going = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            self._trusting.wrap_bio(ssl.MemoryBIO(), going, server_hostname="127.0.0.1").do_handshake()
        hello = going.read()
        return hello[: len(hello) // 2]

    def connected(self) -> socket.socket:
        """Return a connection of which the server has not heard: its loop has had no turn."""
        return socket.create_connection(("127.0.0.1", self._port))

    async def stands_in_silence(self) -> asyncio.StreamWriter:
        return (await self.silent())[1]

    async def stands_with_half_a_hello(self) -> asyncio.StreamWriter:
        writer = await self.stands_in_silence()
        writer.write(self._half_hello())
        return writer


@contextlib.contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """Let this process open so many descriptors more for a block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    *_, last = islice((at for at in count() if not _is_open(at)), number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    async def bounded(test: Awaitable[None]) -> None:
        await asyncio.wait_for(test, 60)

    def run_on_loop(test: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(bounded(test))

    return run_on_loop


def test_what_is_half_open_counts_among_the_connections_of_its_address(
    authority: Authority, run: Callable[[Awaitable[None]], None]
) -> None:
    async def main() -> None:
        async with Listening(authority, connections=2) as listening:
            await listening.echoes()
            half_open = [await listening.stands_in_silence() for _ in range(2)]
            await listening.number_is(2)
            with pytest.raises(OSError):
                await listening.echoes()
            assert [facts["reason"] for facts in listening.refused] == ["too_many_connections"]
            for writer in half_open:
                writer.close()
            await listening.number_is(0)
            await listening.echoes()

    run(main())


def test_who_is_too_slow_is_cut_and_who_cannot_do_tls_has_a_line(
    authority: Authority, run: Callable[[Awaitable[None]], None]
) -> None:
    async def main() -> None:
        async with Listening(authority, head_seconds_max=0.1) as listening:
            reader, writer = await listening.silent()
            assert await reader.read() == b""
            writer.close()
            assert listening.refused == []
        async with Listening(authority) as listening:
            await listening.speaks_no_tls()
            await listening.does_not_trust()
            await listening.number_is(0)
            told = [(facts["reason"], facts["client"], facts["why"]) for facts in listening.refused]
            assert [one[:2] for one in told] == [("tls_failed", "127.0.0.1")] * 2
            assert "HTTP_REQUEST" in told[0][2]
            assert "UNKNOWN_CA" in told[1][2]

    run(main())


def test_whatever_the_ends_no_connection_counts_after_them(
    authority: Authority, run: Callable[[Awaitable[None]], None]
) -> None:
    async def main() -> None:
        async with Listening(authority) as listening:
            ends = [
                listening.echoes,
                listening.echoes_what_comes_with_the_end_of_the_handshake,
                listening.leaves_with_the_end_of_the_handshake,
                listening.leaves_in_silence,
                listening.leaves_with_half_a_hello,
                listening.resets_with_half_a_hello,
                listening.speaks_no_tls,
                listening.does_not_trust,
                listening.stands_in_silence,
                listening.stands_with_half_a_hello,
            ]
            each = 4
            mixed = ends * each
            random.shuffle(mixed)
            stand = [one for one in await asyncio.gather(*(end() for end in mixed)) if one is not None]
            await listening.number_is(2 * each)
            assert len(listening.open_protocols) == len(stand) == 2 * each
            for protocol in list(listening.open_protocols):
                protocol.shutdown()
            await listening.number_is(0)
            assert listening.open_protocols == set()
            for writer in stand:
                writer.close()

    run(main())


def test_who_has_the_last_descriptors_is_counted_no_more_and_has_a_line(authority: Authority) -> None:
    async def main() -> None:
        async with Listening(authority) as listening:
            await listening.echoes()
            await listening.number_is(0)
            with contextlib.ExitStack() as stack:
                at_once = [stack.enter_context(contextlib.closing(listening.connected())) for _ in range(20)]
                stack.enter_context(descriptors_left(len(at_once)))
                while len(listening.refused) < len(at_once):  # noqa: ASYNC110  # Why: nobody tells of it.
                    await asyncio.sleep(0.001)
                assert {facts["reason"] for facts in listening.refused} == {"no_descriptor"}
                assert listening.connections.number == 0
                assert listening.open_protocols == set()
            await listening.echoes()

    # Why this loop: it accepts all that wait in one turn, and uvloop one.
    with asyncio.Runner(loop_factory=LOOPS["asyncio"]) as runner:
        runner.run(asyncio.wait_for(main(), 60))


def test_who_is_told_to_stop_in_the_turn_of_its_accept_is_counted_no_more(
    authority: Authority, run: Callable[[Awaitable[None]], None]
) -> None:
    async def main() -> None:
        async with Listening(authority) as listening:
            with contextlib.closing(listening.connected()):
                while not listening.open_protocols:  # noqa: ASYNC110  # Why: nobody tells of it.
                    await asyncio.sleep(0)
                # Why it is the turn: connections are made before this test has its part of one, and tasks begin in the next.
                listening.open_protocols.pop().shutdown()
                await listening.number_is(0)

    run(main())


def test_a_server_that_stops_waits_for_no_handshake(authority: Authority) -> None:
    with contextlib.ExitStack() as stack:
        with EdgeServer({}, authority=authority, grace_seconds=FAR_SECONDS) as server:
            silent = stack.enter_context(contextlib.closing(server.connect()))
            while not server.connections:
                threading.Event().wait(0.01)
        assert silent.recv(1) == b""
