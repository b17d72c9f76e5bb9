"""Ports for new nodes: the lowest of a range that no node of the cell has and nobody listens on."""

import socket
from collections.abc import Iterator
from typing import NamedTuple, Self

from keyplan.errors import InvalidInputError

__all__ = ["PortRange"]


class PortRange(NamedTuple):
    """Ports from `first` to `last`, both included."""

    first: int
    last: int

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read `FIRST-LAST`. Raises InvalidInputError."""
        first, _, last = text.partition("-")
        if not all(number.isdecimal() and len(number) <= 5 for number in (first, last)):
            raise InvalidInputError(source="--ports", problem="a range of ports is FIRST-LAST, as in 25000-25999")
        found = cls(int(first), int(last))
        if not 1 <= found.first < found.last <= 65_535:
            raise InvalidInputError(source="--ports", problem="ports go from 1 to 65535, and a node takes two")
        return found

    def free(self, address: str, *, taken: set[int]) -> Iterator[int]:
        """Yield ports that can be listened on at `address`, now, lowest first."""
        for port in range(self.first, self.last + 1):
            if port not in taken and _is_free(address, port):
                yield port


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        # Why: a port whose former connections are still dying can be listened on, and PostgreSQL does so too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
