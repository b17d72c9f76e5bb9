"""What services keep beside others' keys: records, each at a prefix of its own and the key that it is of. They go with the key.

    00 65 32 66 KEY      what the v2 keys API knows of the file KEY
    00 65 32 64 KEY      of the directory KEY: all that begins with KEY and a slash

Why known here: who removes a key space knows nothing of the services that its application used, and what stayed would be the
next owner's: directories with the names that the former one gave them, and times at which all that is in them ends.
"""

from collections.abc import Iterator
from typing import Final

from keyplan.engine import KeyRange
from keyplan.keyspace.prefixes import SYSTEM_BYTE

__all__ = ["BOOK_OF_DIRECTORIES", "BOOK_OF_FILES", "books_of"]

BOOK_OF_FILES: Final = SYSTEM_BYTE + b"e2f"
BOOK_OF_DIRECTORIES: Final = SYSTEM_BYTE + b"e2d"

_SLASH: Final = b"/"


def books_of(prefix: bytes) -> Iterator[KeyRange]:
    """Yield where records stand of the keys with a prefix, and of the directory that they are all in."""
    yield KeyRange.of_prefix(BOOK_OF_FILES + prefix)
    yield KeyRange.of_prefix(BOOK_OF_DIRECTORIES + prefix)
    if prefix.endswith(_SLASH):
        yield KeyRange.of_key(BOOK_OF_DIRECTORIES + prefix[: -len(_SLASH)])
