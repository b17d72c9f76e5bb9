r"""The bytes below which the gateways keep their own books, apart from the keys that they serve.

    00 65 32 69                  who we are: Identity
    00 65 32 ...                 what the v2 keys API counts: keyplan.server.etcd_v2.records

Everything below the byte 00 is keyplan's own (the registry of key spaces is there too); clients may read it and not write it.
"""

from typing import Final

__all__ = ["BOOKS", "IDENTITY_KEY", "RESERVED", "is_reserved"]

RESERVED: Final = b"\x00"
"""What keyplan keeps for itself begins with this."""

BOOKS: Final = RESERVED + b"e2"
"""The gateways' part of it."""

IDENTITY_KEY: Final = BOOKS + b"i"


def is_reserved(key: bytes) -> bool:
    """Tell whether a key is keyplan's own: no client of a gateway may write it."""
    return key.startswith(RESERVED)
