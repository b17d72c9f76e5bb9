"""What stands for a revision where none are kept."""

from hashlib import sha1
from struct import Struct
from typing import Final

__all__ = ["fingerprint"]

_FIRST: Final = Struct(">Q")


def fingerprint(value: bytes) -> int:
    """Return what stands for a value as its mod revision where no revisions are kept: 63 bits, never 0."""
    digest: int = _FIRST.unpack_from(sha1(value, usedforsecurity=False).digest())[0]
    return digest >> 1 or 1
