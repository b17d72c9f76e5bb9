"""Frames among neighbours who keep to nothing, and clients that are interrupted in the middle of one."""

import _socket
import socket
import tracemalloc
from collections.abc import Iterator

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    OPERATIONS,
    PART,
    FrameKind,
    FrameReader,
    frame,
    request_body,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import digest_of
from keyplan.apps.hepnos.packed import unpack
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.engine import KeyRange
from keyplan.server import Access, EdgeBounds, Role, Token
from keyplan.testing.engine_suite import eventually
from tests.apps.hepnos.served import HepnosServer, RawFrames, code_of

KEYS = [bytes(16) + b"".join(part.to_bytes(8) for part in (1, 1, at)) for at in range(1_000)]
PRODUCT = KEYS[0] + b"label#type"
BOUNDS = EdgeBounds(held_bytes_per_caller_max=1 << 20, unread_seconds_max=0.2, idle_seconds_max=0.5)
LARGE = 2 << 20
TOKEN = "the-token-of-a-physicist-0123456789abcdef"

UPGRADE = f"GET {FRAMES_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: {FRAMES_PROTOCOL}\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[HepnosServer]:
    access = Access([Token.of_text(Role.CLIENT, "physics", TOKEN)])
    with HepnosServer({"store": "memory:hostile-frames"}, access=access, bounds=BOUNDS) as running:
        databases = RemoteServer.at(running.url)
        databases.database(Kind.EVENT, 0).put_sorted(KEYS)
        databases.database(Kind.PRODUCT, 0).put_sorted([PRODUCT], [bytes(500_000)])
        yield running


@pytest.fixture
def raw(server: HepnosServer) -> Iterator[RawFrames]:
    with RawFrames(server.connect()) as opened:
        assert opened.status == 101
        yield opened


def body(server: HepnosServer, kind: FrameKind, at: Kind, *, parts: int = 0, **arguments: object) -> tuple[bytes, ...]:
    ring = bytes.fromhex(digest_of(RemoteServer.at(server.url).database(at, 0).description))
    return request_body(OPERATIONS[kind], {"kind": at, **arguments}, ring, parts=parts)


@pytest.mark.parametrize(
    ("asking", "status"),
    [
        pytest.param(UPGRADE.replace("n: Upgrade", "n: close") + "\r\n", 400, id="by a proxy that upgrades nothing"),
        pytest.param(UPGRADE.replace("1.1", "1.0") + f"Authorization: Bearer {TOKEN}\r\n\r\n", 426, id="of HTTP/1.0"),
        pytest.param(UPGRADE + "Content-Length: 3\r\n\r\nabc", 400, id="with a body"),
        pytest.param(UPGRADE + "Content-Length: 3\r\n\r\n", 400, id="with a body to come"),
        pytest.param(UPGRADE + "\r\nabc", 400, id="with a frame behind it"),
        pytest.param(UPGRADE + "\r\n" + UPGRADE + "\r\n", 400, id="with a request behind it"),
    ],
)
def test_a_request_that_might_be_read_in_two_ways_leaves_the_connection_to_http(
    server: HepnosServer, asking: str, status: int
) -> None:
    with server.connect() as opened:
        opened.sendall(asking.encode())
        told = b"".join(iter(lambda: opened.recv(65_536), b""))
    assert told.startswith(b"HTTP/1.1 %d " % status), told
    assert told.count(b"HTTP/1.1 ") == 1, told


def test_a_large_frame_of_an_id_that_came_before_is_refused_by_its_head(raw: RawFrames) -> None:
    raw.next_id = 7
    assert raw.ask(FrameKind.DATABASES).number == 200
    raw.send(frame(7, FrameKind.PUT, bytes(LARGE))[:100])
    refused, farewell = raw.rest()
    assert (refused.number, code_of(refused), farewell.kind) == (400, "bad_frame", FrameKind.FAREWELL)


@pytest.mark.parametrize("sent", [3, LARGE])
def test_a_frame_about_another_has_no_body(raw: RawFrames, sent: int) -> None:
    raw.send(frame(7, FrameKind.CANCEL, bytes(sent))[:100])
    refused, farewell = raw.rest()
    assert (refused.number, code_of(refused), farewell.kind) == (400, "bad_frame", FrameKind.FAREWELL)


def test_a_frame_for_which_there_is_no_room_is_answered_once(raw: RawFrames) -> None:
    own = raw.begin(FrameKind.PUT, bytes(LARGE))
    last = raw.begin(FrameKind.DATABASES)
    told = [raw.receive() for _ in range(2)]
    assert [(one.id, one.number) for one in told if one is not None] == [(own, 429), (last, 200)]


def test_more_parts_may_be_asked_for_before_a_request_has_begun_and_none_are_no_sign_of_life(
    server: HepnosServer, raw: RawFrames
) -> None:
    whole = KeyRange.of_prefix(bytes(16))
    asked = frame(1, FrameKind.LIST, *body(server, FrameKind.LIST, Kind.EVENT, parts=1, key_range=whole, limit=300))
    raw.send(asked + frame(1, FrameKind.CREDIT, number=9))
    parts = [raw.answer_to(1) for _ in range(4)]
    assert [bool(part.flags & PART) for part in parts] == [True] * 3 + [False]
    assert [key for part in parts for key in unpack(part.body, 1)[0]] == KEYS


def test_what_names_requests_that_nobody_has_made_is_not_kept() -> None:
    with HepnosServer({"store": "memory:cancelled-frames"}) as server, RawFrames(server.connect()) as raw:
        RemoteServer.at(server.url).database(Kind.EVENT, 0).put_sorted(KEYS)
        whole = KeyRange.of_prefix(bytes(16))
        pages = body(server, FrameKind.LIST, Kind.EVENT, parts=1, key_range=whole, limit=10)
        lists = [raw.begin(FrameKind.LIST, *pages) for _ in range(1_024)]  # as many as a connection has under way
        between = raw.begin(FrameKind.DATABASES)
        raw.next_id = 4_000_000_000
        last = raw.begin(FrameKind.DATABASES)
        tracemalloc.start()
        try:
            for begin in range(2_000, 42_000, 1_000):
                raw.send(b"".join(frame(own, FrameKind.CANCEL) for own in range(begin, begin + 1_000)))
            raw.send(b"".join(frame(own, FrameKind.CANCEL) for own in [last, *lists]))
            told: dict[int, int] = {}
            while not {between, last} <= told.keys():
                found = raw.receive()
                assert found is not None
                told[found.id] = found.number
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (told[between], told[last]) == (200, 499)
    assert held < 2 << 20


def test_what_waits_for_a_place_and_is_not_wanted_any_more_is_not_begun() -> None:
    with HepnosServer({"store": "memory:waiting-frames"}) as server, RawFrames(server.connect()) as raw:
        RemoteServer.at(server.url).database(Kind.EVENT, 0).put_sorted(KEYS)
        pages = body(server, FrameKind.LIST, Kind.EVENT, parts=1, key_range=KeyRange.of_prefix(bytes(16)), limit=10)
        lists = [raw.begin(FrameKind.LIST, *pages) for _ in range(1_024)]
        held_up = raw.begin(FrameKind.DATABASES)
        for _ in lists:
            assert (
                raw.receive() is not None
            )  # its first part, behind which it waits: when all have begun, the next is held up
        raw.send(b"".join(frame(own, FrameKind.CANCEL) for own in [held_up, *lists]))
        while (found := raw.receive()) is not None and found.id != held_up:
            pass
    assert found is not None
    assert found.number == 499


def test_a_client_that_takes_nothing_is_cut_however_little_waits_for_it(server: HepnosServer) -> None:
    eventually(lambda: server.connections == 0)
    opened = server.connect()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    with RawFrames(opened) as raw:
        # Why so large: beyond what the client's system takes for it, and within what the server's does.
        raw.begin(FrameKind.GET, *body(server, FrameKind.GET, Kind.PRODUCT, keys=[PRODUCT]))
        eventually(lambda: server.connections == 0)


def test_a_frame_that_comes_in_tiny_pieces_takes_no_more_than_its_size() -> None:
    sent = frame(1, FrameKind.PUT, bytes(range(256)) * 80)
    pieces = [sent[at : at + 2] for at in range(0, len(sent), 2)]
    reader = FrameReader()
    tracemalloc.start()
    try:
        for piece in pieces[:-1]:
            assert reader.feed(piece) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * len(sent)
    assert [found.body for found in reader.feed(pieces[-1])] == [sent[12:]]


def test_what_a_thread_sends_after_it_was_interrupted_is_no_rest_of_what_it_sent_before(
    server: HepnosServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(opened: socket.socket, data: memoryview) -> int:
        if opened.getpeername()[1] != server.port:
            return _socket.socket.send(opened, data)
        monkeypatch.undo()
        _socket.socket.send(opened, data[: len(data) // 2])
        raise KeyboardInterrupt

    with hepnos.open(server.url) as store:
        event = store.root.ensure("interrupted").create_run(1).create_subrun(1).create_event(1)
        monkeypatch.setattr(socket.socket, "send", send, raising=False)
        with pytest.raises(KeyboardInterrupt):
            event.store("n", bytes(1_000))
        for number in range(10):
            event.store(f"n{number}", bytes([number]) * 2_000)
        assert event.load("n", bytes) is None
        assert [event.load(f"n{number}", bytes) for number in range(10)] == [
            bytes([number]) * 2_000 for number in range(10)
        ]
