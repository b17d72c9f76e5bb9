"""Count, bytes and SHA-256 of an ordered stream of pairs: what two stores are compared by.

00 00 00 05  r a c k 1  00 00 00 02  { }          length, key, length, value: 32-bit, big-endian
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["PairDigest", "PairSum", "Tally", "spelled_pair"]

_SUMS: Final = 1 << 256


@dataclass(frozen=True, slots=True)
class Tally:
    """How many pairs there were, the bytes of their keys and values, and the digest of the stream in hexadecimal digits."""

    count: int
    bytes: int
    sha256: str


def spelled_pair(key: bytes, value: bytes) -> bytes:
    """Return a pair as digests and backups spell it."""
    return b"".join((len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value))


class PairDigest:
    """Takes pairs in key order. The same pairs give the same tally, whatever engine or file they come from."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0
        self._bytes = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Take the next pair."""
        self._hash.update(spelled_pair(key, value))
        self._count += 1
        self._bytes += len(key) + len(value)

    def add_spelled(self, stream: bytes, *, count: int) -> None:
        """Take the next `count` pairs as they are spelled."""
        self._hash.update(stream)
        self._count += count
        self._bytes += len(stream) - 8 * count

    def tally(self) -> Tally:
        """Return the tally of what was added so far."""
        return Tally(self._count, self._bytes, self._hash.hexdigest())

    @classmethod
    def of(cls, pairs: Iterable[tuple[bytes, bytes]]) -> Tally:
        """Return the tally of pairs in key order."""
        digest = cls()
        for key, value in pairs:
            digest.add(key, value)
        return digest.tally()


class PairSum:
    """A digest of a set of pairs, whatever their order: pairs can be added to it and taken out again.

    It is the sum of the pairs' SHA-256. It shows what somebody else has changed, not what somebody has made to look the same.
    """

    def __init__(self, text: str = "0") -> None:
        self._sum = int(text, 16)

    def add(self, key: bytes, value: bytes) -> None:
        """Take a pair."""
        self._sum = (self._sum + _number_of(key, value)) % _SUMS

    def remove(self, key: bytes, value: bytes) -> None:
        """Take a pair out."""
        self._sum = (self._sum - _number_of(key, value)) % _SUMS

    @property
    def text(self) -> str:
        """The digest in hexadecimal digits."""
        return f"{self._sum:064x}"


def _number_of(key: bytes, value: bytes) -> int:
    return int.from_bytes(hashlib.sha256(spelled_pair(key, value)).digest(), "big")
