"""Who is at the other end of a connection, as the system and TLS know it: a user of this machine, a client certificate."""

import os
import pwd
import socket
import sys
from asyncio import Transport
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol

from starlette.types import Scope

from keyplan.server.loopback import can_tell_users, uid_at

__all__ = ["Certificate", "Line", "Peer", "Receiver", "User", "is_whole", "peer_of", "set_peer", "set_whole"]

_PEER: Final = "keyplan.peer"
_WHOLE: Final = "keyplan.whole"
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "givenName": "GN",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "surname": "SN",
    "userId": "UID",
}
"""The attributes of a subject that have a short name; others are written in full."""

_KINDS: Final = {"DNS": "DNS", "URI": "URI", "email": "email", "IP Address": "IP"}
_UCRED_BYTES: Final = 12
"""Three numbers of four bytes each, as the machine writes numbers: process, user, group."""


class User(NamedTuple):
    """A user of this machine; the name is None where the machine has none for the number."""

    uid: int
    name: str | None


class Certificate(NamedTuple):
    """What a client's certificate names: its subject as RFC 4514 has it, and its alternative names, as `DNS:shop.example`."""

    subject: str
    names: tuple[str, ...]


class Receiver(Protocol):
    """Who takes what comes on a connection that speaks no HTTP any more. Called in the event loop, and never twice at once."""

    def opened(self, line: "Line") -> None:
        """Know the way back to the client; called before all else."""
        ...

    def received(self, data: bytes) -> None:
        """Take what has come."""
        ...

    def set_full(self, *, is_full: bool) -> None:
        """Know whether more waits for the client than is to be held, or no more."""
        ...

    def lost(self) -> None:
        """Know that the connection is at its end."""
        ...


class Line(Protocol):
    """The way back to the client on such a connection."""

    def write(self, data: bytes) -> None:
        """Send with what else is written in this turn of the event loop."""
        ...

    def unread_bytes(self) -> int:
        """Return how much of what was written the client has not taken."""
        ...

    def require_progress(self) -> None:
        """Cut the connection when the client takes too little, from now on until all is taken."""
        ...

    def pause_reading(self) -> None:
        """Take nothing from the client for now."""
        ...

    def resume_reading(self) -> None:
        """Take from the client again."""
        ...

    def is_closing(self) -> bool:
        """Tell whether nothing more is sent."""
        ...

    def close(self) -> None:
        """Close, after what was written."""
        ...


class Peer:
    """The other end of one connection. Each is found out when it is asked for, once."""

    def __init__(
        self,
        transport: Transport,
        *,
        when_taken: Callable[[Callable[[], None]], None] | None = None,
        hand_over: Callable[[Receiver], Line | None] | None = None,
    ) -> None:
        self._transport = transport
        self.when_taken = when_taken
        """Calls what it is given once the client has taken what was written, or is gone; None where nobody tells."""
        self.hand_over = hand_over
        """Has a receiver take what comes from now on, in place of HTTP's; None where a connection stays HTTP's.

        Returns None, and leaves the connection HTTP's, if its last request is none to upgrade or something came behind that.
        """

    def hang_up(self) -> None:
        """Close the connection, after what was written."""
        self._transport.close()

    @cached_property
    def user(self) -> User | None:
        """Whose process opened this unix socket; None on every other connection, and where the system does not tell.

        It is the user at the moment of connecting: a process that becomes another user's later is the first one's here.
        """
        opened = self._opened_unix
        if opened is None or not hasattr(socket, "SO_PEERCRED"):
            return None
        credentials: bytes = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED_BYTES)
        uid = int.from_bytes(credentials[4:8], sys.byteorder)
        try:
            return User(uid, pwd.getpwuid(uid).pw_name)
        except KeyError:
            return User(uid, None)

    @cached_property
    def uid(self) -> int | None:
        """The number of the user of this machine whose process opened this connection; None where nobody tells."""
        if self._opened_unix is not None:
            return self.user.uid if self.user else None
        other, own = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        if not (other and own and can_tell_users()):
            return None
        try:
            return uid_at(other[:2], own[:2])
        except OSError:
            return None

    @property
    def is_own_user(self) -> bool:
        """Whether a process of the server's own user opened this TCP connection, within this machine.

        Where the system does not tell whose a connection is, everybody's counts: see `can_tell_users`.
        """
        return not can_tell_users() or self.uid == os.geteuid()

    @property
    def _opened_unix(self) -> Any:
        opened = self._transport.get_extra_info("socket")
        return opened if opened is not None and opened.family == socket.AF_UNIX else None

    @cached_property
    def certificate(self) -> Certificate | None:
        """The client's certificate, which an authority of `--tls-client-ca` has signed; None where it showed none."""
        tls = self._transport.get_extra_info("ssl_object")
        # Invariant: TLS has verified it; of a certificate that it has not, there would be nothing here.
        shown: dict[str, Any] | None = tls.getpeercert() if tls is not None else None
        if not shown:
            return None
        names = tuple(
            f"{_KINDS[kind]}:{_plain(kind, name)}" for kind, name in shown.get("subjectAltName", ()) if kind in _KINDS
        )
        return Certificate(_subject(shown.get("subject", ())), names)


def set_peer(scope: Scope, peer: Peer) -> None:
    """Keep who is at the other end of a request's connection."""
    scope[_PEER] = peer


def peer_of(scope: Scope) -> Peer | None:
    """Return who is at the other end of a request's connection; None where it came through none of ours."""
    peer: Peer | None = scope.get(_PEER)
    return peer


def set_whole(scope: Scope) -> None:
    """Say that all of a request has come."""
    scope[_WHOLE] = True


def is_whole(scope: Scope) -> bool:
    """Return whether all of a request has come, so that whoever reads its body waits for nobody."""
    return _WHOLE in scope


def _subject(parts: Iterable[Iterable[tuple[str, str]]]) -> str:
    # Why reversed, the values of one part too: a certificate begins with the country, RFC 4514 with the name, and openssl
    # prints the one backwards for the other.
    written = [[f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part] for part in parts]
    return ",".join("+".join(reversed(part)) for part in reversed(written))


def _escaped(value: str) -> str:
    text = "".join(f"\\{character}" if character in '",+;<>\\' else character for character in value)
    if text[:1] in {" ", "#"}:
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(value) > 1 else text


def _plain(kind: str, name: str) -> str:
    """A name as an access file has it: in small letters, an address in its short form."""
    if kind == "IP Address":
        with suppress(ValueError):
            return str(ip_address(name.strip()))
    return name.lower() if kind == "DNS" else name
