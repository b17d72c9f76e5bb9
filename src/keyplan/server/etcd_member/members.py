"""Which addresses a client may use next: what was advertised, else the address that the client itself used."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from keyplan.errors import InvalidInputError
from keyplan.server.etcd_member.identity import Identity

__all__ = ["Member", "Membership"]


class Member(NamedTuple):
    """A gateway as a member of the cluster."""

    id: int
    name: str
    url: str


class Membership:
    """The gateways of one store.

    Patroni replaces the addresses that it was given by these, so each must be one that the client can reach. `advertised` are
    the URLs of all gateways on this store, in one order everywhere; empty: the client's own, from its request.
    """

    def __init__(self, identity: Identity, advertised: Sequence[str] = ()) -> None:
        self._identity = identity
        self._advertised = tuple(advertised)

    @staticmethod
    def read(settings: Mapping[str, str]) -> Sequence[str]:
        """Return the setting `advertise`: URLs separated by commas. Raises InvalidInputError."""
        urls = [url.strip().rstrip("/") for url in settings.get("advertise", "").split(",") if url.strip()]
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise InvalidInputError(source="advertise", problem=f"{url!r} is no http:// or https:// address")
        return urls

    def members(self, scope: Scope) -> list[Member]:
        """Return the members as this request may know them; the first is the one that leads."""
        urls = self._advertised or (_own_address(scope),)
        return [
            Member(self._identity.member_id + position, f"keyplan{position}", url) for position, url in enumerate(urls)
        ]


def _own_address(scope: Scope) -> str:
    """Return the server's address as the client spelled it."""
    host = Headers(scope=scope).get("host")
    if not host:
        server = scope.get("server") or ("localhost", 0)
        host = f"{server[0]}:{server[1]}"
    return f"{scope.get('scheme', 'http')}://{host}"
