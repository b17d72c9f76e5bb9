"""What stands for a revision where none are kept."""

from hashlib import sha1
from struct import Struct
from typing import Final

__all__ = ["fingerprint"]

_FIRST: Final = Struct(">Q")
_OF_NOTHING: Final = 0x6D1CD1F72F35A586
"""Why it stands here: the entries of plain indexes are empty, and most of what a write reads are such entries."""


def fingerprint(value: bytes) -> int:
    """Return what stands for a value as its mod revision where no revisions are kept: 63 bits, never 0."""
    if not value:
        return _OF_NOTHING
    digest: int = _FIRST.unpack_from(sha1(value, usedforsecurity=False).digest())[0]
    return digest >> 1 or 1
