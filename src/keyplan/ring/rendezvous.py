"""Where a hash is placed: rendezvous hashing with four draws for each database. Pure arithmetic; the source of every vector.

The format is HEPnOS's ("hash_lookup3" of its ch-placement library, virtual factor 4, seed 0), so that its vectors are ours:

    object          a 64-bit hash, here FNV-1a over the bytes that a record is placed by
    virtual node    H(database; draw, 0) for draws 0 to 3
    distance(a, b)  H(lesser; low half of greater, high half of greater)
    H(v; p, s)      lookup3's hashlittle2 over the 8 little-endian bytes of v; result primary + (secondary << 32)

The database is the one that owns the nearest virtual node. A new database takes keys over from the others, about its share of
them, and nothing moves between two old ones.
"""

from functools import lru_cache
from typing import Final

__all__ = ["DRAWS", "fnv1a_64", "lookup3", "place", "virtual_nodes"]

DRAWS: Final = 4
"""Virtual nodes of each database."""

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK_64: Final = (1 << 64) - 1
_MASK: Final = (1 << 32) - 1
_LOOKUP3_START: Final = 0xDEADBEEF + 8  # lookup3 begins with its constant and the length hashed, which is always 8 here


def fnv1a_64(raw: bytes) -> int:
    """Return the 64-bit FNV-1a hash of the bytes, each taken as unsigned."""
    digest = _FNV_OFFSET
    for byte in raw:
        digest = (digest ^ byte) * _FNV_PRIME & _MASK_64
    return digest


def lookup3(value: int, primary: int, secondary: int) -> int:
    """Return Bob Jenkins' public-domain hashlittle2 of a 64-bit number's little-endian bytes, under two 32-bit seeds."""
    a = (_LOOKUP3_START + primary + value) & _MASK
    b = (_LOOKUP3_START + primary + (value >> 32)) & _MASK
    c = (_LOOKUP3_START + primary + secondary) & _MASK
    c = ((c ^ b) - (b << 14 | b >> 18)) & _MASK
    a = ((a ^ c) - (c << 11 | c >> 21)) & _MASK
    b = ((b ^ a) - (a << 25 | a >> 7)) & _MASK
    c = ((c ^ b) - (b << 16 | b >> 16)) & _MASK
    a = ((a ^ c) - (c << 4 | c >> 28)) & _MASK
    b = ((b ^ a) - (a << 14 | a >> 18)) & _MASK
    c = ((c ^ b) - (b << 24 | b >> 8)) & _MASK
    return c | b << 32


@lru_cache(maxsize=64)
def virtual_nodes(databases: int) -> tuple[tuple[int, int], ...]:
    """Return the virtual nodes of so many databases, each with its database, in the order in which ties are decided."""
    return tuple((lookup3(database, draw, 0), database) for draw in range(DRAWS) for database in range(databases))


def place(digest: int, databases: int) -> int:
    """Return the database, from 0, that an object with this 64-bit hash is placed on."""
    if databases == 1:
        return 0
    best, nearest = 0, _MASK_64 + 1
    for node, database in virtual_nodes(databases):
        low, high = (digest, node) if digest < node else (node, digest)
        distance = lookup3(low, high & _MASK, high >> 32)
        if distance < nearest:
            best, nearest = database, distance
    return best
