"""How many connections there are, in all and from each address: one too many is refused rather than kept waiting."""

from typing import Final

from starlette.types import Scope

from keyplan.server.bounds import EdgeBounds
from keyplan.server.guessing import LOOPBACK, place_of
from keyplan.server.peers import Peer
from keyplan.server.places import Places
from keyplan.server.proxies import TrustedProxies, address_of, is_over_unix
from keyplan.server.refusals import RefusalLog

__all__ = ["Connections"]

_OF_PROXIES: Final = ""
"""Nobody in particular: many ask through each proxy."""


class Connections:
    """The connections of one server. For one event loop.

    Those of trusted proxies are bounded as all are, and not as those of one address: many ask through each. Within this machine
    each of its users counts as an address, and all of them as one where the system does not tell users.
    """

    def __init__(self, bounds: EdgeBounds, proxies: TrustedProxies, refusals: RefusalLog) -> None:
        self.bounds = bounds
        self.refusals = refusals
        self._proxies = proxies
        self._places = Places(bounds.connections_of_all, bounds.of_one_address)

    @property
    def number(self) -> int:
        """How many there are."""
        return self._places.number

    def place_of(self, scope: Scope, peer: Peer) -> str:
        """Return what a connection counts as; `scope` has its two ends."""
        if self._proxies.are_at(scope):
            return _OF_PROXIES
        place = LOOPBACK if is_over_unix(scope) else place_of(address_of(scope))
        return place if place != LOOPBACK or peer.uid is None else f"user {peer.uid}"

    def enter(self, place: str) -> bool:
        """Count a connection, which has to leave; return whether it is one that may stay.

        One too many is counted while it lasts: it has a descriptor, as all have.
        """
        return self._places.enter(place) is None

    def leave(self, place: str) -> None:
        """Count a connection no more."""
        self._places.leave(place)
