"""HTTP as a HEPnOS server's client reads it: whole answers in each of their forms, and what is none."""

import socket
from concurrent.futures import ThreadPoolExecutor
from select import select
from threading import Event, Thread
from time import sleep

import pytest

from keyplan.apps.hepnos.remote_wire import BrokenAnswerError, Wire


def answering(request: pytest.FixtureRequest, *parts: bytes) -> Wire:
    """A connection whose other end answers with these bytes, and ends."""

    def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        request.addfinalizer(theirs.close)
        ours.settimeout(60)
        theirs.settimeout(60)
        for part in parts:
            theirs.sendall(part)
        theirs.shutdown(socket.SHUT_WR)
        return ours

    return Wire(connect, "host", {})


def test_an_answer_in_chunks_is_read_whole(request: pytest.FixtureRequest) -> None:
    head = (b"HTTP/1.1 200 OK\r\nTransfer-Enc", b"oding: chunked\r\nX-A:  b \r\n\r\n")
    wire = answering(request, *head, b"3;x=y\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")
    assert wire.ask("GET", "/", b"") == (200, {"transfer-encoding": "chunked", "x-a": "b"}, b"abcde")
    wire.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nServer: old\r\n\r\nab" + b"c" * 100_000, b"ab" + b"c" * 100_000),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nDigest: x\r\n\r\n", b"a"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["to-its-end", "hints", "trailer", "bodiless"],
)
def test_answers_as_proxies_send_them_are_read_whole(
    request: pytest.FixtureRequest, answer: bytes, body: bytes
) -> None:
    wire = answering(request, answer)
    assert wire.ask("GET", "/", b"").body == body
    wire.close()


def test_an_answer_that_ends_with_its_connection_is_the_last_there(request: pytest.FixtureRequest) -> None:
    wire = answering(request, b"HTTP/1.1 200 OK\r\n\r\nab")
    assert [wire.ask("GET", "/", b"").body for _ in range(2)] == [b"ab", b"ab"]
    wire.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nDigest: x\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
    ids=["trailer", "bodiless"],
)
def test_behind_an_answer_the_connection_is_the_next_one_s(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(lambda: ours, "host", {})
    with ours, theirs:
        has_answer = Event()

        def send_byte_by_byte() -> None:
            for byte in answer:
                theirs.sendall(bytes([byte]))
                while select([ours], [], [], 0)[0] and not has_answer.is_set():
                    sleep(0)  # Why: nothing tells that it was read.

        sender = Thread(target=send_byte_by_byte)
        sender.start()
        assert wire.ask("GET", "/", b"").body == b""
        has_answer.set()
        sender.join()
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")
        assert wire.ask("GET", "/", b"").body == b"ab"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0 hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 70_000,
    ],
    ids=[
        "nothing",
        "half-a-head",
        "other",
        "half-a-body",
        "no-length",
        "no-chunk",
        "negative",
        "underscore",
        "endless",
    ],
)
def test_what_is_no_whole_answer_is_an_error(request: pytest.FixtureRequest, answer: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        answering(request, answer).ask("GET", "/", b"")


class Told(socket.socket):
    """A socket that says when it is read from."""

    is_read: Event

    def recv(self, *given: int) -> bytes:
        self.is_read.set()
        return super().recv(*given)


def test_closing_ends_what_another_thread_waits_for() -> None:
    ours, theirs = socket.socketpair()
    told = Told(fileno=ours.detach())
    told.is_read = Event()
    told.settimeout(60)
    wire = Wire(lambda: told, "host", {})
    with theirs, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(wire.ask, "GET", "/", b"")
        assert told.is_read.wait(30)
        wire.close()
        with pytest.raises(BrokenAnswerError):
            asked.result(10)
        assert told.fileno() == -1


def test_closing_while_it_is_connected_sends_nothing() -> None:
    ours, theirs = socket.socketpair()
    begun, may_go_on = Event(), Event()

    def connect() -> socket.socket:
        begun.set()
        assert may_go_on.wait(30)
        return ours

    wire = Wire(connect, "host", {})
    with theirs, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(wire.ask, "GET", "/", b"")
        assert begun.wait(30)
        wire.close()
        may_go_on.set()
        with pytest.raises(BrokenAnswerError, match="was closed"):
            asked.result(10)
        assert theirs.recv(1) == b""
