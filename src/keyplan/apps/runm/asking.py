"""Who makes a request of gRPC, as far as it and its connection say: a token, a TLS client certificate, an address.

Not whose process is at the other end of a unix socket: gRPC for Python does not tell.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

__all__ = ["Asking", "Certificate", "address_of", "certificate_of", "token_of"]

_KINDS: Final = {"peer_dns": "DNS", "peer_uri": "URI", "peer_email": "email", "peer_ip": "IP"}
_ESCAPED: Final = re.compile(r"\\(?:([0-9A-Fa-f]{2})|.)", re.DOTALL)
_OCTETS: Final = re.compile(r"(?:[\x80-\xff])+")
_ASCII: Final = 0x80


class Asking(Protocol):
    """A request of gRPC, as far as it says who makes it."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return what it carries beside its message."""

    def auth_context(self) -> Mapping[str, Any]:
        """Return what TLS has found out about the other end: lists of bytes, whatever grpc's stubs say."""
        ...

    def peer(self) -> str:
        """Return the address of the other end."""
        ...


class Certificate(NamedTuple):
    """What a client's certificate names, as an access file has it: its subject, and its alternative names."""

    subject: str
    names: tuple[str, ...]


def token_of(asking: Asking) -> str | None:
    """Return the bearer token of a request; empty when what says who asks is none, None when nothing says it."""
    headers: Mapping[str, str | bytes] = dict(asking.invocation_metadata() or ())
    given = headers.get("authorization")
    if given is None:
        return None
    text = given if isinstance(given, str) else given.decode("latin-1")
    scheme, _, token = text.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def certificate_of(asking: Asking) -> Certificate | None:
    """Return the certificate that TLS has verified, which an authority of `--tls-client-ca` has signed; None without one."""
    found = asking.auth_context()
    if found.get("transport_security_type") != [b"ssl"] or not found.get("x509_subject"):
        return None
    names = tuple(f"{kind}:{_plain(kind, name)}" for key, kind in _KINDS.items() for name in found.get(key, ()))
    return Certificate(_subject(found["x509_subject"][0]), names)


def address_of(asking: Asking) -> str:
    """Return the address of the other end, without its port; `unix` over a unix socket."""
    kind, _, rest = asking.peer().partition(":")
    if kind == "unix":
        return kind
    return unquote(rest.rpartition(":")[0]).strip("[]") or kind


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
