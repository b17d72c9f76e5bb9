"""How guessing of tokens is slowed: by where it comes from, in bounded memory, without keeping others out.

Each address has some wrong guesses, and gets one back every few seconds. Once none is left, nobody looks whether a token is
right: nothing can be learnt from the answer. A token that was right from there before still counts, so that one who guesses
does not lock out who works beside them; a token that was never seen from there waits.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final

from keyplan.engine import SYSTEM_CLOCK
from keyplan.server.allowances import Allowances

__all__ = ["GUESSES_MAX", "LOOPBACK", "Guesses", "place_of"]

GUESSES_MAX: Final = 20
"""Wrong guesses that an address has at once. Why: a program with an old token asks a few times until somebody looks."""

_SECONDS_EACH: Final = 3.0
"""Why: ten million guesses a year from one address; a token has 16 characters or more."""

_ADDRESSES_MAX: Final = 10_000
_RIGHT_MAX: Final = 10_000
_DELAY_SECONDS_MAX: Final = 1.0
_UNDELAYED: Final = 3
LOOPBACK: Final = "loopback"
"""What all addresses within this machine count as: whoever is on it has millions of them, 127.0.0.1 to 127.255.255.254."""

_NETWORK_BITS: Final = 64
"""Of an IPv6 address: a single machine has all that follow."""


class Guesses:
    """Wrong guesses by address, and which tokens were right from where. For one event loop, or under a lock."""

    def __init__(self, monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic) -> None:
        self._left: Allowances[str] = Allowances(
            GUESSES_MAX, _SECONDS_EACH, keys_max=_ADDRESSES_MAX, monotonic=monotonic
        )
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def seconds_until(self, address: str, credentials: bytes) -> float:
        """Return how long these credentials have to wait, from this address, before anybody looks at them; 0: not at all."""
        place = place_of(address)
        excess = self._left.spent(place) - (GUESSES_MAX - 1)
        if excess <= 0 or (place, _sum(credentials)) in self._right:
            return 0.0
        return excess * _SECONDS_EACH

    def wrong(self, address: str) -> float:
        """Count a wrong guess, and return how many seconds its answer is to be held back."""
        spent = self._left.take(place_of(address))
        return min(_DELAY_SECONDS_MAX, max(0.0, spent - _UNDELAYED) / 10)

    def right(self, address: str, credentials: bytes) -> None:
        """Remember that these credentials are right, from this address; of too many, those used longest ago are forgotten."""
        key = (place_of(address), _sum(credentials))
        self._right[key] = None
        self._right.move_to_end(key)
        if len(self._right) > _RIGHT_MAX:
            self._right.popitem(last=False)


def place_of(address: str) -> str:
    """Return what counts as one address: of IPv6 its network, which a single machine has all of; LOOPBACK of this machine's."""
    if ":" not in address:
        return LOOPBACK if address.startswith("127.") else address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return place_of(str(found.ipv4_mapped))
    if found.is_loopback:
        return LOOPBACK
    return str(int(found) >> (found.max_prefixlen - _NETWORK_BITS))


def _sum(credentials: bytes) -> bytes:
    # Why a sum: what a wrong token was is nobody's business, and of a right one no more than this is kept anywhere.
    return sha256(credentials).digest()
