"""Connections for frames that end in the middle of a request: what is sent again, and what nobody knows."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.frames import FrameKind, FrameReader, frame
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.errors import CommitOutcomeUnknownError
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
