"""Count, bytes and SHA-256 of an ordered stream of pairs: what two stores are compared by.

00 00 00 05  r a c k 1  00 00 00 02  { }          length, key, length, value: 32-bit, big-endian
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PairDigest", "Tally", "spelled_pair"]


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
