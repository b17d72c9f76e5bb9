"""One connection that speaks as much HTTP/1.1 as a HEPnOS server's client needs: a request, and its whole answer.

Why not the standard library's: it reads an answer's head as that of a mail, which takes longer than the rest of a small read.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from string import hexdigits
from threading import Lock
from typing import Final, NamedTuple

__all__ = ["HEAD_BYTES_MAX", "Answer", "BrokenAnswerError", "Wire", "length_of", "read_head", "tcp", "unix"]

HEAD_BYTES_MAX: Final = 64 << 10
"""Why: no server's are as large."""
_READ_BYTES: Final = 1 << 16

_NO_ANSWERS: Final = frozenset({HTTPStatus.CONTINUE, HTTPStatus.PROCESSING, HTTPStatus.EARLY_HINTS})
"""What a proxy may send before the answer."""

_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class BrokenAnswerError(OSError):
    """What came is no answer of HTTP/1.1, or ended within one. Never leaves this package's client."""


class Answer(NamedTuple):
    """Status, headers by their names in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """A connection, made when it is first used. For one thread, but for `close`."""

    def __init__(self, connect: Callable[[], socket.socket], host: str, headers: Mapping[str, str]) -> None:
        self._connect = connect
        self._socket: socket.socket | None = None
        self._using = Lock()
        self._is_over = False
        lines = {"Host": host, "User-Agent": "keyplan", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def ask(self, method: str, path: str, body: bytes) -> Answer:
        """Send a request, and return the answer. Raises OSError; the connection is closed then."""
        with self._using:
            try:
                return self._asked(method, path, body)[0]
            except BaseException:
                # Why all: who was interrupted has read a part, and the rest would be taken for the next answer.
                self._close()
                raise

    def upgrade(self, path: str) -> tuple[Answer, socket.socket | None, bytes]:
        """Ask for another protocol; return the answer, and of 101 the connection, with what has come behind that.

        The connection is the caller's from then on. Raises OSError; the connection is closed then.
        """
        with self._using:
            try:
                answer, rest = self._asked("GET", path, b"")
            except BaseException:  # Why all: as above.
                self._close()
                raise
            if answer.status != HTTPStatus.SWITCHING_PROTOCOLS:
                return answer, None, b""
            wire, self._socket = self._socket, None
            return answer, wire, rest

    def close(self) -> None:
        """Close it for good; who waits for an answer in another thread is told. Closing twice is harmless."""
        self._is_over = True
        if self._using.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._using.release()
            return
        opened = self._socket
        if opened is not None:
            # Why not closed: who waits would wait on, and then read of another file that has got the number. They close it.
            with suppress(OSError):  # Why: the other side may have ended it before.
                opened.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        # Why: the connection of a thread goes with the thread.
        self.close()

    def _asked(self, method: str, path: str, body: bytes) -> tuple[Answer, bytes]:
        """Return the answer, and what has come behind one that has no body."""
        if self._socket is None:
            self._socket = self._connect()
        if self._is_over:
            raise BrokenAnswerError("the connection was closed")
        wire = self._socket
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        wire.sendall(head.encode("latin-1") + body)  # Why at once: two parts are two packets.
        status, headers, rest = _head(wire, b"")
        while status in _NO_ANSWERS:
            status, headers, rest = _head(wire, rest)
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            return Answer(status, headers, b""), rest
        is_to_its_end = False
        if headers.get("transfer-encoding", "").lower() == "chunked":
            found = _chunks(wire, rest)
        elif "content-length" in headers or status in _BODILESS:
            found = _whole(wire, rest, length_of(headers))
        else:
            # Why not empty: HTTP has an answer that does not say how long it is end with its connection.
            found, is_to_its_end = _rest(wire, rest), True
        if is_to_its_end or headers.get("connection", "").lower() == "close":
            self._close()
        return Answer(status, headers, found), b""


def tcp(host: str, port: int, timeout_seconds: float, context: ssl.SSLContext | None) -> socket.socket:
    """Connect to a host, with TLS where there is a context. Raises OSError."""
    wire = socket.create_connection((host, port), timeout_seconds)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return wire
    try:
        return context.wrap_socket(wire, server_hostname=host)
    except BaseException:
        wire.close()
        raise


def unix(path: str, timeout_seconds: float) -> socket.socket:
    """Connect to a unix socket. Raises OSError."""
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        wire.settimeout(timeout_seconds)
        wire.connect(path)
    except BaseException:
        wire.close()
        raise
    return wire


def _head(wire: socket.socket, raw: bytes) -> tuple[int, Mapping[str, str], bytes]:
    """Read the head of an answer that begins with `raw`; return its status, its headers and what has come behind it."""
    while (end := raw.find(b"\r\n\r\n")) < 0:
        if len(raw) > HEAD_BYTES_MAX:
            raise BrokenAnswerError("the answer's head is too large")
        raw += _part(wire)
    status, headers = read_head(raw[:end])
    return status, headers, raw[end + 4 :]


def _part(wire: socket.socket) -> bytes:
    part = wire.recv(_READ_BYTES)
    if not part:
        raise BrokenAnswerError("the connection was closed")
    return part


def read_head(raw: bytes) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of an answer's head, which is whole. Raises BrokenAnswerError."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise BrokenAnswerError("this is not HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(rest[:3]), headers


def length_of(headers: Mapping[str, str]) -> int:
    """Return how long an answer's body is, 0 for one that does not say it. Raises BrokenAnswerError."""
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()):
        raise BrokenAnswerError("the answer does not say how long it is")
    return int(text)


def _whole(wire: socket.socket, rest: bytes, length: int) -> bytes:
    if len(rest) >= length:
        return rest[:length]
    body = bytearray(length)
    body[: len(rest)] = rest
    view, at = memoryview(body), len(rest)
    while at < length:
        taken = wire.recv_into(view[at:])
        if not taken:
            raise BrokenAnswerError("the connection was closed within an answer")
        at += taken
    return bytes(body)


def _rest(wire: socket.socket, rest: bytes) -> bytes:
    parts = [rest]
    while part := wire.recv(_READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def _chunks(wire: socket.socket, raw: bytes) -> bytes:
    """Read a body in chunks, as proxies send it."""
    parts: list[bytes] = []
    while True:
        while (end := raw.find(b"\r\n")) < 0:
            raw += _part(wire)
        size = _chunk_size(raw[:end].partition(b";")[0].strip())
        raw = raw[end + 2 :]
        if size == 0:
            # Why: what stands behind the last chunk would be taken for the next answer.
            while b"\r\n\r\n" not in b"\r\n" + raw:
                raw += _part(wire)
            return b"".join(parts)
        parts.append(_whole(wire, raw, size + 2)[:-2])
        raw = raw[size + 2 :]


def _chunk_size(digits: bytes) -> int:
    # Why not by int alone: it takes signs, underscores and 0x as well.
    if not digits or digits.strip(hexdigits.encode()):
        raise BrokenAnswerError("a chunk does not say how long it is")
    return int(digits, 16)
