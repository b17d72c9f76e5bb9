"""What one caller has a server hold in memory has a bound of its own, and others are served beside who is at it."""

import asyncio
import base64
import json
import random
import socket
from asyncio import Transport
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from keyplan.engine import Commit, Entry, MemoryEngine, Put
from keyplan.server import (
    Access,
    AnswerError,
    Caller,
    EdgeBounds,
    Excess,
    Full,
    JsonAnswer,
    ReadAllowance,
    Role,
    Service,
    ServiceContext,
    Token,
    allow_body,
    service_builders,
)
from keyplan.server.access import set_caller
from keyplan.server.holding import FREE_BYTES, HeldBytes, Holding
from keyplan.server.peers import Peer, set_peer
from keyplan.server.reading import READ_BYTES_MAX
from tests.servers.edge import EdgeServer
from tests.servers.jumping import JumpingLoop
from tests.servers.keyplan_server import KeyplanServer

MIB: Final = 1 << 20
LARGE: Final = 16 * MIB
"""Why: the system holds less than this of an answer, at both ends together."""

TOKENS: Final = {name: f"a-token-of-a-test-{name}" for name in ("ada", "bob")}
ACCESS: Final = Access([Token.of_text(Role.CLIENT, name, text) for name, text in TOKENS.items()])
BOUNDS: Final = EdgeBounds(held_bytes_max=8 * LARGE, held_bytes_per_caller_max=2 * LARGE, idle_seconds_max=600)


def scope_of(name: str) -> Scope:
    scope: Scope = {"client": ("192.0.2.7", 1), "server": ("192.0.2.1", 8210)}
    set_caller(scope, Caller(Role.CLIENT, name) if name else None)
    return scope


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def held_of(of_all: int, of_one: int) -> HeldBytes:
    return HeldBytes(EdgeBounds(held_bytes_max=of_all, held_bytes_per_caller_max=of_one))


# ---- counting ----------------------------------------------------------------------------------------------------------


def test_a_request_holds_what_it_takes_until_it_ends_and_nothing_behind_its_end() -> None:
    held = held_of(of_all=15, of_one=10)
    one, two, other = (held.begun(scope_of(name)) for name in ("ada", "ada", "bob"))
    assert one.take(6) is None
    assert two.take(5) == Excess(Full.OF_ONE, 10)
    assert other.take(10) == Excess(Full.OF_ALL, 15)
    assert (two.take(4), other.take(5)) == (None, None)
    with pytest.raises(
        AnswerError, match=r"10 bytes, as much as one caller may \(--held-bytes-per-caller\): take"
    ) as told:
        held.begun(scope_of("ada")).admit()
    assert (told.value.status, told.value.code) == (429, "too_much_held")
    other.admit()
    one.end()
    one.end()
    assert one.take(1) is not None, "a thread that reads on for a request that is over is stopped"
    held.begun(scope_of("ada")).admit()
    two.end()
    other.end()
    assert held.places.number == 0


def test_an_answer_takes_the_place_of_what_was_read_and_is_never_refused() -> None:
    held = held_of(of_all=100, of_one=10)
    holding = held.begun(scope_of("ada"))
    for number in (7, 30, 2, 0):
        holding.keep(number)
        assert held.places.taken_by("ada") == number
    holding.end()
    holding.keep(5)
    assert held.places.number == 0


def test_a_stream_holds_a_part_until_it_is_taken_and_nothing_while_it_waits_for_the_next() -> None:
    held, untaken = held_of(of_all=100, of_one=10), list[Callable[[], None]]()
    scope = scope_of("ada")
    set_peer(scope, Peer(Transport(), when_taken=untaken.append))
    holding = held.begun(scope)
    for number in (7, 8):
        holding.keep(number)
        holding.keep_until_taken()
    first, second = untaken
    first()
    assert held.places.taken_by("ada") == 8
    second()
    assert held.places.number == 0
    holding.end()
    assert held.places.number == 0


def test_who_has_no_token_is_counted_by_address_and_is_no_principal_of_that_name() -> None:
    held = held_of(of_all=100, of_one=10)
    assert held.begun(scope_of("")).who == held.begun(scope_of("local")).who == "@192.0.2.7"
    assert held.begun(scope_of("192.0.2.7")).who == "192.0.2.7"


def test_whatever_is_taken_kept_and_ended_in_whatever_order_nothing_is_left() -> None:
    held = held_of(of_all=300, of_one=100)
    holdings: list[Holding] = []
    chosen = random.Random(random.randrange(1 << 30))
    for _ in range(2_000):
        holdings.append(held.begun(scope_of(chosen.choice(["ada", "bob", "eve", ""]))))
        chosen.choice(holdings).take(chosen.randrange(60))
        chosen.choice(holdings).keep(chosen.randrange(90))
        holdings.pop(chosen.randrange(len(holdings))).end()
        assert held.places.number == sum(one.bytes for one in holdings)
    assert holdings == []
    assert held.places.number == 0


def test_a_body_waits_for_room_and_is_refused_when_none_comes() -> None:
    held = held_of(of_all=100, of_one=10)
    first, second = held.begun(scope_of("ada")), held.begun(scope_of("ada"))

    async def main() -> None:
        await first.take_when_there_is_room(10, 20.0)
        waiting = asyncio.create_task(second.take_when_there_is_room(4, 20.0))
        await asyncio.sleep(19.0)
        first.keep(6)
        await waiting
        with pytest.raises(AnswerError) as late:
            await held.begun(scope_of("ada")).take_when_there_is_room(4, 20.0)
        with pytest.raises(AnswerError) as never:
            await held.begun(scope_of("bob")).take_when_there_is_room(11, 1e9)
        assert [(one.value.status, one.value.headers) for one in (late, never)] == [(429, {"Retry-After": "1"})] * 2

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())
    assert held.places.taken_by("ada") == 10


def test_what_is_read_counts_for_the_caller_in_steps_and_the_first_of_it_does_not() -> None:
    held = held_of(of_all=100 * MIB, of_one=5 * MIB)
    entry = Entry(b"k", b"v" * (FREE_BYTES // 2), 1, 1, 1, 0)

    class RefusedError(Exception):
        pass

    def refusal(bytes_max: int, excess: Excess | None) -> Exception:
        return RefusedError(bytes_max, excess)

    holding = held.begun(scope_of("ada"))
    allowance = ReadAllowance(refusal)
    allowance.take(entry)
    assert holding.bytes == 0
    allowance.take(entry)
    assert holding.bytes == MIB
    allowance.take_bytes(3 * MIB)
    assert 3 * MIB <= holding.bytes <= 5 * MIB
    with pytest.raises(RefusedError) as told:
        allowance.take_bytes(3 * MIB)
    assert told.value.args == (READ_BYTES_MAX, Excess(Full.OF_ONE, 5 * MIB))
    holding.end()
    held.begun(scope_of("bob"))
    with pytest.raises(RefusedError) as told:
        ReadAllowance(refusal, bytes_max=MIB).take_bytes(MIB + 1)
    assert told.value.args == (MIB, None)


# ---- over sockets ------------------------------------------------------------------------------------------------------


def build(_context: ServiceContext) -> Service:
    async def large(_request: Request) -> Response:
        return Response(b"x" * LARGE)

    async def take(request: Request) -> Response:
        allow_body(request, LARGE)
        return JsonAnswer({"bytes": len(await request.body())})

    async def news() -> AsyncIterator[bytes]:
        yield b"x" * LARGE
        await asyncio.Event().wait()

    async def stream(_request: Request) -> Response:
        return StreamingResponse(news())

    routes = [Route("/large", large), Route("/stream", stream), Route("/take", take, methods=["POST"])]
    return Service("holding", routes)


def asked(server: EdgeServer, name: str, request: str, stack: ExitStack, *headers: str) -> socket.socket:
    opened = stack.enter_context(closing(server.connect()))
    lines = [f"{request} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKENS[name]}", *headers]
    opened.sendall("\r\n".join([*lines, "", ""]).encode())
    return opened


def status_of(opened: socket.socket) -> int:
    """Return the status of an answer, of which nothing is taken."""
    line = b""
    while b"\r\n" not in line:
        line = opened.recv(65_536, socket.MSG_PEEK)
        assert line
    return int(line.split()[1])


def rest(opened: socket.socket) -> bytes:
    heard = bytearray()
    while part := opened.recv(65_536):
        heard += part
    return bytes(heard)


def test_who_has_taken_all_of_streams_that_go_on_is_refused_nothing() -> None:
    with EdgeServer({"holding": build}, access=ACCESS, bounds=BOUNDS) as server, ExitStack() as stack:
        for _ in range(2):
            opened = asked(server, "ada", "GET /stream", stack)
            heard = b""
            # Why no length: a chunk has its end where the part has.
            while not heard.endswith(b"x\r\n"):
                heard = heard[-8:] + opened.recv(MIB)
        assert status_of(asked(server, "ada", "GET /large", stack, "Connection: close")) == 200


def test_who_takes_no_answers_is_refused_more_and_others_are_not() -> None:
    with EdgeServer({"holding": build}, access=ACCESS, bounds=BOUNDS) as server, ExitStack() as stack:
        unread = [asked(server, "ada", "GET /large", stack, "Connection: close") for _ in range(2)]
        assert [status_of(one) for one in unread] == [200, 200]
        refused = asked(server, "ada", "GET /large", stack, "Connection: close")
        assert status_of(refused) == 429
        error = json.loads(rest(refused).partition(b"\r\n\r\n")[2])["error"]
        assert (error["code"], error["detail"]) == ("too_much_held", {"bytes_max": 2 * LARGE})
        assert "32 MiB, as much as one caller may" in error["message"]
        assert len(rest(asked(server, "bob", "GET /large", stack, "Connection: close"))) > LARGE
        assert len(rest(unread[0])) > LARGE
        unread[1].close()
        # Why again and again: the server hears that it is closed in its own time.
        while status_of(asked(server, "ada", "GET /large", stack)) != 200:
            pass


def test_bodies_that_do_not_end_keep_their_senders_others_waiting_and_nobody_else() -> None:
    with EdgeServer({"holding": build}, access=ACCESS, bounds=BOUNDS) as server, ExitStack() as stack:
        declared = f"Content-Length: {LARGE}"
        halves = [asked(server, "ada", "POST /take", stack, declared, "Expect: 100-continue") for _ in range(2)]
        # Where the server says so, it has begun to read.
        assert [status_of(one) for one in halves] == [100, 100]
        waiting = asked(server, "ada", "POST /take", stack, declared, "Connection: close")
        other = asked(server, "bob", "POST /take", stack, declared, "Connection: close")
        other.sendall(b"x" * LARGE)
        assert f'{{"bytes":{LARGE}}}'.encode() in rest(other)
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        halves[0].close()
        waiting.settimeout(60)
        waiting.sendall(b"x" * LARGE)
        assert f'{{"bytes":{LARGE}}}'.encode() in rest(waiting)


@pytest.mark.parametrize(
    ("service", "path", "refused"),
    [
        ("etcd-v2", "/v2/keys/large?recursive=true", lambda body: (body["errorCode"], body["cause"])),
        ("etcd-v3", "/v3/kv/range", lambda body: (body["code"], body["error"])),
    ],
)
def test_what_is_read_for_too_much_is_refused_in_the_words_of_the_protocol(
    service: str, path: str, refused: Callable[[Any], tuple[int, str]]
) -> None:
    engine = MemoryEngine()
    engine.commit(Commit((), tuple(Put(b"/large/%d" % number, b"x" * (MIB // 4)) for number in range(8))))
    bounds = EdgeBounds(held_bytes_per_caller_max=MIB)
    with EdgeServer(service_builders([service]), engine=engine, bounds=bounds) as server:
        url = f"http://127.0.0.1:{server.port}{path}"
        asked = {"key": b64(b"/large/"), "range_end": b64(b"/large0")}
        answer = httpx.post(url, json=asked, trust_env=False) if "v3" in path else httpx.get(url, trust_env=False)
        code, why = refused(answer.json())
        assert (answer.status_code, code) in {(400, 210), (429, 8)}
        assert why.startswith("keyplan: your requests, and answers that you have not taken, hold 1 MiB, as much as one")
        if "v3" in path:
            assert len(httpx.post(url, json={"key": b64(b"/large/1")}, trust_env=False).json()["kvs"]) == 1


# ---- a process ---------------------------------------------------------------------------------------------------------

VALUES: Final = 16
READERS: Final = 24


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(
        "".join(f"client {name} sha256:{sha256(text.encode()).hexdigest()}\n" for name, text in TOKENS.items())
    )
    path.chmod(0o600)
    return path


@pytest.fixture
def server(tokens: Path) -> Iterator[KeyplanServer]:
    arguments = ("--app", "etcd-v3", "--tokens", str(tokens), "--held-bytes-per-caller", str(32 * MIB))
    with KeyplanServer("memory:", *arguments) as started:
        yield started


def memory_of(server: KeyplanServer) -> int:
    """Return the most memory that a server has had, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


@pytest.mark.slow
def test_the_memory_of_a_server_is_bounded_whoever_reads_no_answers(server: KeyplanServer) -> None:
    def call(name: str, what: str, message: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKENS[name]}"}
        return httpx.post(f"{server.url}/v3/kv/{what}", json=message, headers=headers, trust_env=False, timeout=60)

    for number in range(VALUES):
        value = b64(bytes([number]) * (MIB // 2))
        assert call("bob", "put", {"key": b64(b"/large/%02d" % number), "value": value}).status_code == 200
    before = memory_of(server)
    body = json.dumps({"key": b64(b"/large/"), "range_end": b64(b"/large0")})
    host = httpx.URL(server.url)
    head = ("POST /v3/kv/range HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKENS['ada']}")
    request = "\r\n".join([*head, f"Content-Length: {len(body)}", "", body])
    with ExitStack() as stack:
        statuses: list[int] = []
        for _ in range(READERS):
            opened = stack.enter_context(closing(socket.create_connection((host.host, host.port or 0), timeout=60)))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            opened.sendall(request.encode())
            statuses.append(status_of(opened))
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert len(call("bob", "range", json.loads(body)).json()["kvs"]) == VALUES
        refused = call("ada", "range", json.loads(body))
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        # An answer has 11 MiB: of all of them there would be 256.
        assert memory_of(server) - before < 160 * MIB
