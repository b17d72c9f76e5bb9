"""A proxy on the way to a server, which cuts a connection at a given word: before the server hears it, or before its answer."""

import fcntl
import socket
import sys
import termios
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from keyplan.testing.engine_suite import eventually

__all__ = ["CuttingProxy"]


class CuttingProxy:
    """Passes connections on to a port of this machine. `counts` are how often a word that was asked for was sent."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = Lock()
        self._word: bytes | None = None
        self._is_delivered = False
        self._sockets: list[socket.socket] = []
        self.cuts = 0
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut_at(self, word: bytes, *, is_delivered: bool) -> None:
        """Cut the next connection on which the client sends `word`; with `is_delivered`, after the server has it."""
        with self._lock:
            self._word, self._is_delivered = word, is_delivered

    def cut_all(self) -> None:
        """Cut every connection."""
        with self._lock:
            sockets = list(self._sockets)
        for end in sockets:
            _end(end)

    def say(self, message: bytes) -> None:
        """Say something to every client that no server was asked for. Connections must be at rest."""
        with self._lock:
            clients = self._sockets[::2]
        for client in clients:
            client.sendall(message)
        eventually(lambda: not any(_unheard(client) for client in clients))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                with self._lock:
                    self._sockets += (client, server)
                for source, target, is_watched in ((client, server, True), (server, client, False)):
                    thread = Thread(
                        target=self._pump, args=(source, target), kwargs={"is_watched": is_watched}, daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, *, is_watched: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                is_cut = False
                if is_watched:
                    with self._lock:
                        is_cut = self._word is not None and self._word in data
                        if is_cut:
                            self._word = None
                            self.cuts += 1
                if is_cut:
                    # Why first: the answer shall find nobody.
                    _end(source)
                    if not self._is_delivered:
                        break
                target.sendall(data)
                if is_cut:
                    # Why not at once: what was delivered is to be carried out.
                    target.shutdown(socket.SHUT_WR)
                    return
        _end(source)
        _end(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._listener)
        self._threads[0].join()
        self.cut_all()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._sockets):
            end.close()


def _unheard(end: socket.socket) -> int:
    """Return how many bytes that were sent the other machine's kernel has not confirmed."""
    return int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
