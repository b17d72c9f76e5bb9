"""Servers that say their names, so that a client of a router's port sees where it leads."""

import socket
import threading
from contextlib import ExitStack, suppress

from keyplan.apps.patroni.router_routes import Leader

__all__ = ["Greeter", "greeting", "heard"]


class Greeter:
    """A server that says its name to whoever connects, and then listens."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.leader = Leader("127.0.0.1", self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                connection.sendall(self.name)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)
        for connection in self._open:
            connection.close()


def greeting(port: int, stack: ExitStack) -> tuple[socket.socket, bytes]:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    return connection, heard(connection)


def heard(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""
