"""Page tokens: the place in a list, opaque to the caller, refused wherever it does not belong.

A token is a sealed list: format, table, fingerprint, digest of the list's arguments, the last key relative to the list's range,
revision. It holds key bytes, and is not a secret: do not hand it to who may not see the keys.
"""

from typing import Final, NamedTuple

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import BoundTable
from keyplan.store.listing import Listing
from keyplan.store.sealing import sealed, unsealed

__all__ = ["PageToken"]

_FORMAT: Final = 1


class _Content(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: int
    table: str
    fingerprint: str
    arguments: str
    relative_key: bytes
    revision: int


class PageToken(NamedTuple):
    """The place after one key of a list."""

    text: str
    last_key: bytes
    revision: int

    @classmethod
    def after(cls, last_key: bytes, table: BoundTable, listed: Listing, revision: int) -> "PageToken":
        """Return the token that continues the list after `last_key`."""
        relative_key = last_key[len(listed.range.start) :]
        content = _Content(_FORMAT, table.name, table.layout.fingerprint, listed.digest, relative_key, revision)
        return cls(sealed(content), last_key, revision)

    @classmethod
    def read(cls, text: str, table: BoundTable, listed: Listing) -> "PageToken":
        """Return the token that `text` spells, if it belongs to this list of this table. Raises InvalidPageTokenError."""
        content = _content_of(text)
        if content.format != _FORMAT:
            raise InvalidPageTokenError(problem="the token is of another version of keyplan")
        if content.table != table.name or content.fingerprint != table.layout.fingerprint:
            raise InvalidPageTokenError(problem="the token is of another layout or table", table=table.name)
        if content.arguments != listed.digest:
            raise InvalidPageTokenError(problem="the token is of a list with other arguments", table=table.name)
        last_key = listed.range.start + content.relative_key
        if last_key not in listed.range:
            raise InvalidPageTokenError(problem="the token leaves its list", table=table.name)
        return cls(text, last_key, content.revision)

    def check_reached(self, revision: int, table: BoundTable) -> None:
        """Raise InvalidPageTokenError when the store has not come to the revision of the page before."""
        if self.revision > revision:
            problem = (
                "the store went back to an older state since the last page, or it is another one; begin the list again"
            )
            raise InvalidPageTokenError(problem=problem, table=table.name)

    def rest_of(self, whole: KeyRange) -> KeyRange:
        """Return the part of the list's range that lies after the token's place."""
        return KeyRange(self.last_key + b"\x00", whole.end)


def _content_of(text: str) -> _Content:
    try:
        return unsealed(text, _Content)
    except ValueError as error:
        raise InvalidPageTokenError(problem="the token is damaged or was never one") from error
