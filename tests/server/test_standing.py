"""A stream ends when its caller is not who they were: whatever streams, however they were known, and however it ended."""

import asyncio
import getpass
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from keyplan.engine import SYSTEM_CLOCK, Commit, MemoryEngine, Put
from keyplan.server import JsonAnswer, PolicyAccess, Service, ServiceContext, etcd_v2, etcd_v3, explorer
from tests.server.etcd_v3.json_client import b64
from tests.servers.authority import Authority
from tests.servers.edge import EdgeServer

TOKEN: Final = "the-token-of-a-test-0123456789abcdef"
OTHER: Final = "another-token-of-a-test-0123456789ab"
EVERYTHING: Final = 'read = ["everything"]\nwrite = ["everything"]\n'


def sum_of(token: str, until: datetime | None = None) -> str:
    end = f" until {until:%Y-%m-%dT%H:%M:%SZ}" if until else ""
    return f'"sha256:{sha256(token.encode()).hexdigest()}{end}"'


def known_by(tokens: str, grants: str = EVERYTHING, *, name: str = "ada") -> str:
    return f"[principals.{name}]\ntokens = [{tokens}]\n{grants}"


ADA: Final = known_by(sum_of(TOKEN))


polling = threading.Event()


def careless(_context: ServiceContext) -> Service:
    """A service that streams, and waits, and never asks who is there."""

    async def lines(_request: Request) -> Response:
        async def endless() -> AsyncIterator[str]:
            yield "first\n"
            await asyncio.Event().wait()

        return StreamingResponse(endless())

    async def busy(_request: Request) -> Response:
        async def endless() -> AsyncIterator[str]:
            while True:
                yield "more\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(endless())

    async def poll(_request: Request) -> Response:
        polling.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    async def work(request: Request) -> Response:
        await request.body()
        begun.set()
        await go_on.wait()
        return JsonAnswer({"done": True})

    begun, go_on = asyncio.Event(), asyncio.Event()

    async def begin(_request: Request) -> Response:
        await begun.wait()
        return JsonAnswer({})

    async def end(_request: Request) -> Response:
        go_on.set()
        return JsonAnswer({})

    routes = [
        Route("/lines", lines),
        Route("/busy", busy),
        Route("/poll", poll),
        Route("/work", work, methods=["POST"]),
        Route("/begun", begin),
        Route("/end", end),
    ]
    return Service("careless", routes)


BUILDERS: Final = {
    "careless": careless,
    "etcd-v2": etcd_v2.build,
    "etcd-v3": etcd_v3.build,
    "explorer": explorer.build,
}


@dataclass
class File:
    """The access file."""

    path: Path

    def write(self, text: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(self.path)


@pytest.fixture
def file(tmp_path: Path) -> File:
    found = File(tmp_path / "access.toml")
    found.write(ADA)
    return found


@pytest.fixture
def server(file: File) -> Iterator[EdgeServer]:
    engine = MemoryEngine()
    engine.commit(Commit((), (Put(b"/a", b"1"),)))
    with engine, EdgeServer(BUILDERS, engine=engine, access=PolicyAccess.of_file(file.path)) as served:
        yield served


def asked(server: EdgeServer, request: str, body: str = "", *, token: str | None = TOKEN) -> socket.socket:
    """Send a request, and return its connection once an answer has begun to come."""
    opened = server.connect()
    opened.sendall(text_of(request, body, token))
    return opened


def text_of(request: str, body: str, token: str | None) -> bytes:
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def asked_when_known(server: EdgeServer, request: str, body: str = "", *, begin: bytes) -> socket.socket:
    """Ask with the other token until the server has seen that the file has it; return the connection when `begin` has come."""
    while True:
        opened = asked(server, request, body, token=OTHER)
        heard = opened.recv(65_536)
        if heard.startswith(b"HTTP/1.1 200"):
            until(opened, begin, heard)
            return opened
        opened.close()
        assert heard.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401")), heard


def until(opened: socket.socket, text: bytes, before: bytes = b"") -> bytes:
    """Read until a text has come."""
    heard = bytearray(before)
    while text not in heard:
        part = opened.recv(65_536)
        assert part, bytes(heard)
        heard += part
    return bytes(heard)


def rest(opened: socket.socket) -> bytes:
    """Read until the connection is closed."""
    heard = bytearray()
    while part := opened.recv(65_536):
        heard += part
    return bytes(heard)


WATCH: Final = f'{{"create_request": {{"key": "{b64("/a")}"}}}}'

STREAMS: Final = {
    "a-service-that-never-looks": ("GET /lines", "", b"first"),
    "one-that-always-sends": ("GET /busy", "", b"more"),
    "etcd-v3-watch": ("POST /v3/watch", WATCH, b'"created":true'),
    "etcd-v2-wait": ("GET /v2/keys/a?wait=true", "", b"200 OK"),
    "etcd-v2-stream": ("GET /v2/keys/?wait=true&recursive=true&stream=true", "", b"200 OK"),
    "explorer": ("GET /explore/in/-/changes", "", b"event: open"),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_is_cut_when_its_principal_is_gone(server: EdgeServer, file: File, stream: str) -> None:
    request, body, begin = STREAMS[stream]
    with closing(asked(server, request, body)) as opened:
        until(opened, begin)
        file.write(known_by(sum_of(OTHER), name="other"))
        # Cut: what ends with the last chunk would be taken for whole.
        assert not rest(opened).endswith(b"0\r\n\r\n")
    with closing(asked(server, request, body)) as opened:
        assert opened.recv(64).startswith((b"HTTP/1.1 401", b"HTTP/1.1 400"))


ENDS: Final = {
    "revoked": known_by(""),
    "rotated-away": known_by(sum_of(OTHER)),
    "of-another": known_by(sum_of(TOKEN), name="eve"),
    "without-its-grant": known_by(sum_of(TOKEN), 'read = ["everything"]\n'),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_stream_ends_however_its_caller_does(server: EdgeServer, file: File, end: str) -> None:
    with closing(asked(server, "GET /lines")) as opened:
        until(opened, b"first")
        file.write(ENDS[end])
        assert not rest(opened).endswith(b"0\r\n\r\n")


CONFINED: Final = {name: STREAMS[name] for name in ("etcd-v3-watch", "etcd-v2-wait", "etcd-v2-stream", "explorer")}


@pytest.mark.parametrize("stream", CONFINED)
def test_a_stream_of_a_part_of_the_store_ends_when_the_part_is_taken_away(
    server: EdgeServer, file: File, stream: str
) -> None:
    request, body, begin = CONFINED[stream]
    file.write(known_by(sum_of(OTHER), 'read = ["prefix:/"]\n', name="eve"))
    with closing(asked_when_known(server, request, body, begin=begin)) as opened:
        file.write(known_by(sum_of(OTHER), 'read = ["prefix:/b"]\n', name="eve"))
        # Cut, or ended in the words of the protocol, whichever sees it first.
        ended = rest(opened)
        assert not ended.endswith(b"0\r\n\r\n") or b'"canceled":true' in ended or b"event: failed" in ended


class ClockAhead:
    """The system's clock, whose time of day can be put forward."""

    seconds = 0.0

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + self.seconds

    def epoch(self) -> bytes:
        return SYSTEM_CLOCK.epoch()


def test_a_stream_ends_when_its_token_does(file: File) -> None:
    clock = ClockAhead()
    file.write(known_by(sum_of(TOKEN, datetime.now(UTC) + timedelta(hours=1))))
    access = PolicyAccess.of_file(file.path, clock=clock)
    with EdgeServer(BUILDERS, access=access) as server, closing(asked(server, "GET /lines")) as opened:
        until(opened, b"first")
        clock.seconds = 3_600
        assert not rest(opened).endswith(b"0\r\n\r\n")


def test_a_stream_goes_on_when_the_file_changes_otherwise(server: EdgeServer, file: File) -> None:
    with closing(asked(server, "POST /v3/watch", WATCH)) as watched, closing(asked(server, "GET /lines")) as lines:
        until(watched, b'"created":true')
        until(lines, b"first")
        # Rotated, with the old one counting on, one grant more, and others in other lines.
        rotated = f"{sum_of(OTHER)}, {sum_of(TOKEN)}"
        file.write("# changed\n" + known_by(rotated, 'audit = ["everything"]\n' + EVERYTHING))
        with closing(asked_when_known(server, "GET /lines", begin=b"first")) as other:
            file.write(known_by(sum_of(TOKEN)))
            rest(other)  # By then the server has seen both states.
        server.engine.commit(Commit((), (Put(b"/a", b"2"),)))
        until(watched, b'"events"')
        lines.setblocking(False)
        with pytest.raises(BlockingIOError):  # It is open, and nothing more has come.
            lines.recv(1)


def test_a_read_that_waits_is_answered_that_its_caller_is_gone(server: EdgeServer, file: File) -> None:
    polling.clear()
    with closing(asked(server, "GET /poll")) as opened:
        assert polling.wait(60)
        file.write(known_by(sum_of(OTHER)))
        heard = until(opened, b"}}")
    assert heard.startswith(b"HTTP/1.1 401")
    assert b'"code":"access_ended"' in heard


def test_what_may_have_been_carried_out_is_answered(server: EdgeServer, file: File) -> None:
    polling.clear()
    with closing(asked(server, "POST /work")) as opened, closing(asked(server, "GET /poll")) as polled:
        with closing(asked(server, "GET /begun")) as begun:
            until(begun, b"{}")
        assert polling.wait(60)
        file.write(known_by(sum_of(OTHER)))
        until(polled, b"access_ended")
        with closing(asked(server, "GET /end", token=OTHER)) as end:
            until(end, b"{}")
        assert until(opened, b"}").startswith(b"HTTP/1.1 200")


def test_a_stream_that_is_cut_has_one_line_in_the_log(
    server: EdgeServer, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), closing(asked(server, "GET /lines?secret=swordfish")) as opened:
        until(opened, b"first")
        file.write(known_by(sum_of(OTHER)))
        rest(opened)
        with closing(asked(server, "GET /nothing", token=OTHER)) as after:
            until(after, b"not found")
    told = [record for record in caplog.records if record.name == "keyplan.server"]
    facts = [record.facts for record in told if getattr(record, "facts", {}).get("path") == "/lines"]  # type: ignore[attr-defined]
    assert [(one["caller"], one["method"], one["status"], one["reason"]) for one in facts] == [
        ("ada", "GET", 200, "access_ended")
    ]
    assert "swordfish" not in str([vars(record) for record in told])
    assert not [record for record in caplog.records if record.exc_info]


# ---- known otherwise ---------------------------------------------------------------------------------------------------


def test_a_stream_over_a_unix_socket_ends_when_its_user_is_nobody(file: File, tmp_path: Path) -> None:
    file.write(f'[principals.ada]\nusers = ["{getpass.getuser()}"]\n{EVERYTHING}')
    access = PolicyAccess.of_file(file.path)
    with (
        EdgeServer(BUILDERS, access=access, path=tmp_path / "s") as server,
        closing(asked(server, "GET /lines", token=None)) as opened,
    ):
        until(opened, b"first")
        file.write(f'[principals.ada]\nusers = ["somebody-else"]\n{EVERYTHING}')
        assert not rest(opened).endswith(b"0\r\n\r\n")


def test_a_stream_over_tls_ends_when_its_certificate_is_nobodys(file: File, authority: Authority) -> None:
    file.write(f'[principals.ada]\ncertificates = ["subject:CN=client"]\n{EVERYTHING}')
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(authority.certificate("client"), authority.key("client"))
    with (
        EdgeServer(BUILDERS, access=PolicyAccess.of_file(file.path), authority=authority) as server,
        context.wrap_socket(server.connect(), server_hostname="localhost") as opened,
    ):
        opened.sendall(text_of("GET /lines", "", None))
        until(opened, b"first")
        file.write(f'[principals.ada]\ncertificates = ["subject:CN=another"]\n{EVERYTHING}')
        assert not rest(opened).endswith(b"0\r\n\r\n")
