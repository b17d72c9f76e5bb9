"""Where a request comes from: the other end of its connection, or, behind proxies that are trusted by name, whom they name.

Nothing that a request says of itself is believed unless a trusted proxy said it. That it says so is enough to know that it was
passed on: then nobody is known by being on this machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from keyplan.errors import InvalidInputError

__all__ = ["TrustedProxies", "address_of", "is_over_unix", "is_passed_on"]

_UNIX: Final = "unix"
_PASSED_ON: Final = "keyplan.passed_on"
_FORWARDED_FOR: Final = "x-forwarded-for"
_ADDRESSES_READ_MAX: Final = 32
"""Why: a request passes through a handful of proxies; the rest is what somebody made up."""

_SIGNS: Final = frozenset(
    {
        b"cdn-loop",
        b"cf-connecting-ip",
        b"client-ip",
        b"fastly-client-ip",
        b"forwarded",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-original-forwarded-for",
        b"x-real-ip",
    }
)
_SIGN_PREFIX: Final = b"x-forwarded"


@dataclass(frozen=True)
class TrustedProxies:
    """Proxies whose word counts for where a request comes from. By default there are none."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    is_unix_trusted: bool = False

    @classmethod
    def of_texts(cls, texts: Iterable[str], *, source: str = "--trusted-proxy") -> "TrustedProxies":
        """Read addresses, networks (`10.0.0.0/8`) and `unix`. Raises InvalidInputError."""
        networks: list[IPv4Network | IPv6Network] = []
        given = tuple(texts)
        for text in given:
            if text == _UNIX:
                continue
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                problem = f"{text!r} is no address, no network as 10.0.0.0/8, and not unix ({error})"
                raise InvalidInputError(source=source, problem=problem) from error
        return cls(tuple(networks), _UNIX in given)

    def locate(self, scope: Scope) -> None:
        """Put where a request really comes from into its scope, if a trusted proxy passed it on; else leave all as it is.

        X-Forwarded-For is read from its end: what stands before the first address that is no trusted proxy's, somebody made up.
        """
        if not self.are_at(scope):
            return
        scope[_PASSED_ON] = True
        headers = Headers(scope=scope)
        named = [part for value in headers.getlist(_FORWARDED_FOR) for part in value.split(",")]
        origin: IPv4Address | IPv6Address | None = None
        for text in reversed(named[-_ADDRESSES_READ_MAX:]):
            found = _address(text.strip())
            if found is None:
                break
            origin = found
            if not self._trusts(found):
                break
        if origin is not None:
            scope["client"] = (str(origin), 0)
        if (scheme := headers.get("x-forwarded-proto", "").lower()) in {"http", "https"}:
            scope["scheme"] = scheme

    def are_at(self, scope: Scope) -> bool:
        """Tell whether one of them is at the other end of a connection."""
        if is_over_unix(scope):
            return self.is_unix_trusted
        client = scope.get("client")
        address = _address(client[0]) if client and self.networks else None
        return address is not None and self._trusts(address)

    def _trusts(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)

    def described(self) -> list[str]:
        """Return them as they were given."""
        return [*map(str, self.networks), *([_UNIX] if self.is_unix_trusted else [])]


def is_passed_on(scope: Scope) -> bool:
    """Tell whether a request has a sign that a proxy passed it on.

    HTTP/1.0 is one: it is what nginx speaks to servers behind it unless told otherwise, and hardly any other client.
    """
    if scope.get(_PASSED_ON) or scope.get("http_version") == "1.0":
        return True
    return any(name in _SIGNS or name.startswith(_SIGN_PREFIX) for name, _ in scope["headers"])


def is_over_unix(scope: Scope) -> bool:
    """Tell whether a request came over a unix socket, which has no port."""
    server = scope.get("server")
    return server is not None and server[1] is None


def address_of(scope: Scope) -> str:
    """Return where a request comes from, as far as it is known: an address, or `unix`."""
    client = scope.get("client")
    return str(client[0]) if client else _UNIX


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address as proxies write them: also with a port, and an IPv6 address in brackets."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
