"""A HEPnOS server in this process, with all of its edge, and frames by hand for those who ask it for what no client asks."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from msgspec import json

from keyplan.apps.hepnos.frames import FRAMES_PATH, FRAMES_PROTOCOL, Frame, FrameKind, FrameReader, frame
from keyplan.apps.hepnos.service import build
from tests.servers.edge import EdgeServer

__all__ = ["HepnosServer", "RawFrames", "code_of"]

_GRACE_SECONDS: Final = 5.0


class HepnosServer(EdgeServer):
    """A server for a `with` block: `server.url`. Settings are those of the service, without its name."""

    def __init__(self, settings: Mapping[str, str], **options: Any) -> None:
        own = {f"hepnos.{name}": value for name, value in settings.items()}
        super().__init__({"hepnos": build}, settings=own, grace_seconds=_GRACE_SECONDS, **options)
        self.folder = Path()
        """Where its store is, where a test has set it."""


class RawFrames:
    """A connection for frames, for a `with` block. `status` is 101 where the server has made it one."""

    def __init__(self, opened: socket.socket, token: str | None = None, **headers: str) -> None:
        self._socket = opened
        self._reader = FrameReader()
        self._found: list[Frame] = []
        given = {"Host": "localhost", "Connection": "Upgrade", "Upgrade": FRAMES_PROTOCOL, **headers}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        opened.sendall(f"GET {FRAMES_PATH} HTTP/1.1\r\n{lines}\r\n".encode())
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            part = opened.recv(65_536)
            assert part, self.head
            self.head += part
        self.status = int(self.head.split()[1])
        self.next_id = 1

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self._socket.sendall(data)

    def begin(self, kind: int, *body: bytes, number: int = 0, flags: int = 0) -> int:
        """Send a request, and return its id."""
        own, self.next_id = self.next_id, self.next_id + 1
        self.send(frame(own, kind, *body, number=number, flags=flags))
        return own

    def receive(self) -> Frame | None:
        """Return the next frame; None at the end of the connection."""
        while not self._found:
            try:
                data = self._socket.recv(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._found = self._reader.feed(data)
        return self._found.pop(0)

    def answer_to(self, own: int) -> Frame:
        """Return the frame that answers a request, without those of others."""
        while True:
            found = self.receive()
            assert found is not None, f"the connection ended before {own} was answered"
            if found.kind == FrameKind.ANSWER and found.id == own:
                return found

    def ask(self, kind: int, *body: bytes, number: int = 0) -> Frame:
        """Send a request, and return what it is answered."""
        return self.answer_to(self.begin(kind, *body, number=number))

    def rest(self) -> list[Frame]:
        """Return all frames until the connection ends."""
        found = []
        while (each := self.receive()) is not None:
            found.append(each)
        return found

    def shut(self) -> None:
        """Send nothing more."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Go away."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def code_of(found: Frame) -> str:
    """Return the code of a failure."""
    code: str = json.decode(found.body)["error"]["code"]
    return code
