"""Where the server listens: `HOST:PORT` or `unix:PATH`, checked and bound before anything else starts."""

import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError
from keyplan.server.access import is_loopback

__all__ = ["LISTEN_DEFAULT", "UNIX_MODE", "UNIX_MODE_OF_POLICY", "Listener", "listener", "resolved_address"]

LISTEN_DEFAULT: Final = "127.0.0.1:8210"
"""Where the server listens when it is not told."""

UNIX_MODE: Final = 0o600
"""Why: whoever may open it is a caller without a token."""

UNIX_MODE_OF_POLICY: Final = 0o666
"""Why: with an access file each user who opens it is known by it, or is nobody."""

_BACKLOG: Final = 2_048
_SOURCE: Final = "--listen"


class Listener(NamedTuple):
    """A bound socket, its address as clients write it, and the host in it; of a unix socket its file instead."""

    socket: socket.socket
    address: str
    host: str = ""
    file: Path | None = None

    def close(self) -> None:
        """Remove the socket's file, and close it."""
        # Why first: once it is closed another server may take the file over, which is not to be removed then.
        if self.file is not None:
            self.file.unlink(missing_ok=True)
        self.socket.close()


def listener(text: str, *, scheme: str = "http", allow_remote: bool, unix_mode: int = UNIX_MODE) -> Listener:
    """Bind the address `text`: HOST:PORT, [IPv6]:PORT or unix:PATH. Port 0 is any free one.

    `unix_mode` is that of a unix socket: who of the machine may open it. Raises InvalidInputError: when the address cannot be
    read or bound, and, without `allow_remote`, when other machines could reach it.
    """
    if text.startswith("unix:"):
        return _unix(Path(text.removeprefix("unix:")), unix_mode)
    host, _ = _host_and_port(text)
    found = _checked(text, source=_SOURCE, allow_remote=allow_remote)
    # Trap: asyncio turns off Nagle's delay, 40 ms an answer, only on a socket that says that it is TCP.
    bound = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if found[0] == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(found[1])
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise InvalidInputError(source=_SOURCE, problem=f"{text}: {error.strerror or 'cannot be bound'}") from error
    bound.settimeout(0)
    actual = bound.getsockname()
    shown = f"[{host}]" if ":" in host else host
    return Listener(bound, f"{scheme}://{shown}:{actual[1]}", host.lower())


def resolved_address(text: str, *, source: str, allow_remote: bool) -> tuple[str, int]:
    """Return the address and the port of HOST:PORT or [IPv6]:PORT, for a listener that binds them itself.

    Raises InvalidInputError, of the option or setting `source`: when it cannot be read, and, without `allow_remote`, when other
    machines could reach it.
    """
    return _checked(text, source=source, allow_remote=allow_remote)[1]


def _checked(text: str, *, source: str, allow_remote: bool) -> tuple[socket.AddressFamily, tuple[str, int]]:
    host, port = _host_and_port(text, source)
    found = _resolved(text, host, port, source)
    if not is_loopback(found[1][0]) and not allow_remote:
        problem = (
            f"{text} can be reached from other machines, and no tokens are configured: give --access FILE or --tokens FILE,"
            " or set KEYPLAN_ADMIN_TOKEN, or listen on 127.0.0.1, [::1] or unix:PATH"
        )
        raise InvalidInputError(source=source, problem=problem)
    return found


def _host_and_port(text: str, source: str = _SOURCE) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 0xFFFF):
        forms = "HOST:PORT, [IPv6]:PORT or unix:PATH" if source == _SOURCE else "HOST:PORT or [IPv6]:PORT"
        raise InvalidInputError(source=source, problem=f"{text!r} is not {forms}")
    return host, int(port)


def _resolved(text: str, host: str, port: int, source: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidInputError(source=source, problem=f"{text}: {error.strerror or 'no such host'}") from error
    # Why: where a name has both, people expect the IPv4 address: `localhost` is 127.0.0.1.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, (str(address[0]), int(address[1]))


def _unix(path: Path, mode: int) -> Listener:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            _remove_when_abandoned(path)
        # Why: between bind and chmod anybody could connect, and a socket of mode 600 asks its callers for no token.
        before = os.umask(0o777 & ~mode)
        try:
            bound.bind(str(path))
        finally:
            os.umask(before)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise InvalidInputError(source=_SOURCE, problem=f"unix:{path}: {error.strerror or error}") from error
    bound.settimeout(0)
    return Listener(bound, f"unix:{path}", file=path)


def _remove_when_abandoned(path: Path) -> None:
    """Remove the socket of a server that is no more; leave one that somebody listens on, which bind then refuses."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink()
    finally:
        probe.close()
