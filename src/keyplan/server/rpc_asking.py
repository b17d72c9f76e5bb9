"""Who makes a call of gRPC, as far as it and its connection say: a token, a TLS client certificate, an address.

Not whose process is at the other end of a unix socket: gRPC for Python does not tell.
"""

import re
from asyncio import Transport
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import unquote

from keyplan.server.peers import Certificate, Peer

__all__ = ["RpcAsking", "RpcPeer", "end_of", "rpc_address", "rpc_certificate", "rpc_token"]

_KINDS: Final = {"peer_dns": "DNS", "peer_uri": "URI", "peer_email": "email", "peer_ip": "IP"}
_ESCAPED: Final = re.compile(r"\\(?:([0-9A-Fa-f]{2})|.)", re.DOTALL)
_OCTETS: Final = re.compile(r"(?:[\x80-\xff])+")
_ASCII: Final = 0x80


class RpcAsking(Protocol):
    """A call of gRPC, as far as it says who makes it."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return what it carries beside its message."""

    def auth_context(self) -> Mapping[str, Any]:
        """Return what TLS has found out about the other end: lists of bytes, whatever grpc's stubs say."""
        ...

    def peer(self) -> str:
        """Return the address of the other end."""
        ...


def rpc_token(asking: RpcAsking) -> str | None:
    """Return the bearer token of a request; empty when what says who asks is none, None when nothing says it."""
    headers: Mapping[str, str | bytes] = dict(asking.invocation_metadata() or ())
    given = headers.get("authorization")
    if given is None:
        return None
    text = given if isinstance(given, str) else given.decode("latin-1")
    scheme, _, token = text.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def rpc_certificate(asking: RpcAsking) -> Certificate | None:
    """Return the certificate that TLS has verified, which an authority of `--tls-client-ca` has signed; None without one."""
    found = asking.auth_context()
    if found.get("transport_security_type") != [b"ssl"] or not found.get("x509_subject"):
        return None
    names = tuple(f"{kind}:{_plain(kind, name)}" for key, kind in _KINDS.items() for name in found.get(key, ()))
    return Certificate(_subject(found["x509_subject"][0]), names)


def rpc_address(asking: RpcAsking) -> str:
    """Return the address of the other end, without its port; `unix` over a unix socket."""
    kind, _, rest = asking.peer().partition(":")
    if kind == "unix":
        return kind
    return unquote(rest.rpartition(":")[0]).strip("[]") or kind


def end_of(asking: RpcAsking) -> tuple[str, int] | None:
    """Return the address and the port of the other end; None over a unix socket."""
    port = asking.peer().rpartition(":")[2]
    return (rpc_address(asking), int(port)) if port.isdigit() else None


class RpcPeer(Peer):
    """The other end of a call's connection. `hang_up` ends the call, and not the connection, which has others."""

    def __init__(self, asking: RpcAsking, ends: tuple[Any, Any], hang_up: Callable[[], object]) -> None:
        super().__init__(_Ends(ends, hang_up))
        self._asking = asking

    @cached_property
    def certificate(self) -> Certificate | None:
        return rpc_certificate(self._asking)


class _Ends(Transport):
    """What a peer asks of a connection, of one that gRPC holds: its two ends."""

    def __init__(self, ends: tuple[Any, Any], hang_up: Callable[[], object]) -> None:
        super().__init__({"peername": ends[0], "sockname": ends[1]})
        self._hang_up = hang_up

    def close(self) -> None:
        self._hang_up()


def _plain(kind: str, name: bytes) -> str:
    text = name.decode("utf-8", "backslashreplace")
    if kind == "IP":
        try:
            return str(ip_address(text))
        except ValueError:
            return text
    return text.lower() if kind == "DNS" else text


def _subject(given: bytes) -> str:
    """A subject as RFC 4514 writes it. gRPC has what is no ASCII as the hexadecimal digits of its UTF-8."""

    def octet(match: re.Match[str]) -> str:
        number = int(match[1], 16) if match[1] else 0
        return chr(number) if number >= _ASCII else match[0]

    text = _ESCAPED.sub(octet, given.decode("latin-1"))
    return _OCTETS.sub(lambda match: match[0].encode("latin-1").decode("utf-8", "backslashreplace"), text)
