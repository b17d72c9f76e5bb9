"""Whose process is at the other end of a connection within this machine, as Linux tells it (sock_diag(7)).

A proxy that runs on this machine connects from a loopback address like everybody here, and says nothing of itself unless it is
told to. But it is a process of a user of its own, and that nobody who sends it requests can change.
"""

import os
import socket
import sys
from functools import cache
from struct import Struct, error
from typing import Final, NamedTuple

__all__ = ["can_tell_users", "uid_at"]

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ANY: Final = 0xFFFFFFFF
_ANSWER_BYTES_MAX: Final = 8_192
_WAIT_SECONDS_MAX: Final = 1.0
"""Why at all: the kernel answers within the call; a socket that never answers must not hold the server."""

_MACHINES: Final = "<" if sys.byteorder == "little" else ">"
"""The order of bytes of this machine: the kernel of the same machine answers."""

_HEADER: Final = Struct(_MACHINES + "IHHII")
_QUERY: Final = Struct(_MACHINES + "BBBxI")
_PORTS: Final = Struct("!HH")
_REST: Final = Struct(_MACHINES + "III")
_ADDRESS_BYTES: Final = 16


class _Answer(NamedTuple):
    """What the kernel says of one socket."""

    ports: tuple[int, int]
    uid: int
    inode: int


_FOUND: Final = Struct(_MACHINES + "BBBB")
_OWNER: Final = Struct(_MACHINES + "IIIII")
"""When it ends, what is queued to be read and written, its owner, its file."""


def uid_at(other: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user whose process holds the socket with the address `other`, which is connected to `own`.

    None: no process holds one. It may have closed it, and its last words are still to be read: nobody knows whose they are.
    Raises OSError where the system does not tell.
    """
    family = socket.AF_INET6 if ":" in other[0] else socket.AF_INET
    found = _asked(family, other, own)
    # Invariant: a socket without a file is held by nobody, and the kernel says user 0 of it. A socket that listens on the port
    # is another one; it is found where none is connected.
    if found is None or not found.inode or found.ports != (other[1], own[1]):
        return None
    return found.uid


@cache
def can_tell_users() -> bool:
    """Tell whether the system says whose a connection is; found out with a connection of our own."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname(), _WAIT_SECONDS_MAX) as ours,
        ):
            return uid_at(ours.getsockname(), listening.getsockname()) == os.geteuid()
    except OSError:
        return False


def _asked(family: int, other: tuple[str, int], own: tuple[str, int]) -> _Answer | None:
    """Ask for exactly one socket: what it costs does not grow with how many there are."""
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError("this system has no sock_diag")
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, _ANY) + _PORTS.pack(other[1], own[1])
    query += _octets(family, other[0]) + _octets(family, own[0]) + _REST.pack(0, _ANY, _ANY)
    message = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + query
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(_WAIT_SECONDS_MAX)
        asking.sendto(message, (0, 0))
        answer = asking.recv(_ANSWER_BYTES_MAX)
    try:
        if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
            return None
        at = _HEADER.size + _FOUND.size
        ports = _PORTS.unpack_from(answer, at)
        at += _PORTS.size + 2 * _ADDRESS_BYTES + _REST.size
        _, _, _, uid, inode = _OWNER.unpack_from(answer, at)
    except error as problem:
        raise OSError("sock_diag answers in a form that is not known") from problem
    return _Answer((ports[0], ports[1]), uid, inode)


def _octets(family: int, address: str) -> bytes:
    return socket.inet_pton(family, address.partition("%")[0]).ljust(_ADDRESS_BYTES, b"\x00")
