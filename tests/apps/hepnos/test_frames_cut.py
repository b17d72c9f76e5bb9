"""Connections for frames that end in the middle of a request, and threads that share one: what is sent again, who is told."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from threading import Event
from time import sleep

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import remote_pipe
from keyplan.apps.hepnos.frames import (
    PART,
    Frame,
    FrameKind,
    FrameOfRequest,
    FrameReader,
    SingleGet,
    frame,
    single_answer,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_frames import FramedCalls
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from tests.apps.hepnos.served import HepnosServer

KEY = bytes(16) + b"".join(part.to_bytes(8) for part in (1, 1, 1))


@pytest.fixture(scope="module")
def server() -> Iterator[HepnosServer]:
    with HepnosServer({"store": "memory:cut-frames"}) as running:
        RemoteServer.at(running.url).database(Kind.EVENT, 0).put_sorted([KEY])
        yield running


class CuttingProxy:
    """Stands before a server and passes on what comes, until the first request of a kind: that connection ends as `cut` says.

    Those after it are passed on. `server`: a request is handed over by calling it, which returns what the server answers.
    """

    def __init__(self, server: HepnosServer, kind: FrameKind, cut: str) -> None:
        self._server, self._kind, self._cut = server, kind, cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0

    def serve(self) -> None:
        """Pass on each connection, one after the other, until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with client, self._server.connect() as behind:
                self._pass_on(client, behind)

    def _pass_on(self, client: socket.socket, behind: socket.socket) -> None:
        back = threading.Thread(target=pump, args=(behind, client))
        back.start()
        try:
            behind.sendall(client.recv(65_536))  # The head of the request for frames.
            reader = FrameReader()
            while data := client.recv(65_536):
                cut_at = next((one for one in reader.feed(data) if one.kind == self._kind), None)
                if cut_at is None or not self._cut:
                    behind.sendall(data)
                    continue
                if self._cut == "farewell":
                    client.sendall(frame(cut_at.id - 1, FrameKind.FAREWELL))
                self._cut = ""
                return
        finally:
            client.shutdown(socket.SHUT_RDWR)
            behind.shutdown(socket.SHUT_RDWR)
            back.join()

    def close(self) -> None:
        """Accept no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        return


@contextmanager
def cutting(server: HepnosServer, kind: FrameKind, cut: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server, kind, cut)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(30)
        assert not thread.is_alive()


def test_a_write_whose_connection_ends_may_have_been_done_and_is_not_done_again(server: HepnosServer) -> None:
    with cutting(server, FrameKind.PUT, "drop") as proxy, hepnos.open(proxy.url) as store:
        with pytest.raises(CommitOutcomeUnknownError):
            store.root.ensure("unknown")
        assert store.root.get("unknown") is None
        assert proxy.connections == 2


def test_a_write_that_the_server_has_not_begun_is_sent_again(server: HepnosServer) -> None:
    with cutting(server, FrameKind.PUT, "farewell") as proxy, hepnos.open(proxy.url) as store:
        assert store.root.ensure("said farewell").exists()
        assert proxy.connections == 2


def test_a_read_whose_connection_ends_is_sent_again(server: HepnosServer) -> None:
    with cutting(server, FrameKind.GET, "drop") as proxy, hepnos.open(proxy.url) as store:
        assert store.databases.value(Kind.EVENT, KEY) == b""
        assert proxy.connections == 2


# ---- threads that share a connection, and a server by hand -----------------------------------------------------------------


def asked(name: bytes) -> FrameOfRequest:
    return partial(SingleGet(Kind.EVENT, 0, bytes(8)).frame, name)


def until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        sleep(0)  # Why: nothing tells of it; the other threads are let on.


class Behind:
    """The other end of a connection: which frames have come, in their order."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._reader = FrameReader()
        self._found: list[Frame] = []

    def frame(self) -> Frame:
        while not self._found:
            data = self.socket.recv(65_536)
            assert data
            self._found = self._reader.feed(data)
        return self._found.pop(0)

    def answer(self, own: int, *, is_part: bool = False) -> None:
        self.socket.sendall(frame(own, FrameKind.ANSWER, flags=PART * is_part, number=200))


def test_who_does_not_wait_is_not_woken_to_read_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list's first part comes while its thread is about to wait, which then goes away with it."""
    waits = 0

    def turn() -> Event:
        nonlocal waits
        waits += 1
        if waits == 1:
            waiter = sys._getframe(1).f_locals["waiter"]
            behind.answer(2, is_part=True)
            until(lambda: bool(waiter.frames))
        return Event()

    ours, theirs = socket.socketpair()
    with theirs, ThreadPoolExecutor(3) as threads, closing(remote_pipe.Pipe(ours, b"", 60.0)) as pipe:
        monkeypatch.setattr(remote_pipe, "Event", turn)
        behind = Behind(theirs)
        first = threads.submit(pipe.ask, asked(b"first"))
        assert behind.frame().id == 1
        until(lambda: pipe._leader is not None)
        parts = pipe.ask_in_parts(asked(b"list"), 1)
        assert threads.submit(next, parts).result(10).id == 2
        third = threads.submit(pipe.ask, asked(b"third"))
        until(lambda: waits == 2)
        behind.answer(1)
        assert first.result(10).id == 1
        behind.answer(3)
        assert third.result(10).id == 3


def test_closing_ends_what_is_under_way_also_where_the_server_has_said_farewell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(2) as threads:
        frames = FramedCalls(f"http://127.0.0.1:{listener.getsockname()[1]}")
        value = frames.reader(Kind.EVENT, 0, bytes(8).hex())

        def accepted() -> Behind:
            opened, _ = listener.accept()
            while not opened.recv(65_536).endswith(b"\r\n\r\n"):
                pass
            opened.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            return Behind(opened)

        under_way = threads.submit(value, b"first")
        first = accepted()
        pipe = frames._connected()
        first.socket.sendall(frame(first.frame().id, FrameKind.FAREWELL))
        until(lambda: not pipe.is_good)
        other = threads.submit(value, b"second")
        second = accepted()
        second.socket.sendall(b"".join(single_answer(second.frame().id, b"value")))
        assert other.result(30) == b"value"
        frames.close()
        with first.socket, second.socket, pytest.raises(EngineUnavailableError):
            under_way.result(10)
