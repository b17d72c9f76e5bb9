"""The numbers that podio gives collections: since its version 1 the 32-bit MurmurHash3 of their names."""

from functools import lru_cache
from typing import Final

__all__ = ["collection_id"]

_MASK: Final = 0xFFFFFFFF
_FIRST: Final = 0xCC9E2D51
_SECOND: Final = 0x1B873593


@lru_cache(maxsize=4_096)  # Why so many: a file has some hundred names, and each reference looks through them.
def collection_id(name: str) -> int:
    """Return the collectionID of ObjectIDs that point into the collection of a name."""
    raw = name.encode()
    digest = 0
    whole = len(raw) // 4 * 4
    for at in range(0, whole, 4):
        digest = _rotated(digest ^ _mixed(int.from_bytes(raw[at : at + 4], "little")), 13)
        digest = (digest * 5 + 0xE6546B64) & _MASK
    if whole < len(raw):
        digest ^= _mixed(int.from_bytes(raw[whole:], "little"))
    digest ^= len(raw)
    digest = ((digest ^ digest >> 16) * 0x85EBCA6B) & _MASK
    digest = ((digest ^ digest >> 13) * 0xC2B2AE35) & _MASK
    return digest ^ digest >> 16


def _mixed(word: int) -> int:
    return _rotated(word * _FIRST & _MASK, 15) * _SECOND & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK
