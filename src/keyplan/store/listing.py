"""What a list reads, its page tokens, and how texts are sealed that callers keep for us: page tokens and watch tokens.

A sealed text is a struct as base64url of its JSON with a check sum before it. That finds texts which were cut or mistyped. It
is no protection against forgery, and none is needed: whatever such a text says, a list stays within its own range.

A page token is the place in a list, opaque to the caller, refused wherever it does not belong. It is a sealed list: format,
table, fingerprint, digest of the list's arguments, the last key relative to the list's range, revision. It holds key bytes, and
is not a secret: do not hand it to who may not see the keys.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import BoundIndex, BoundTable

__all__ = ["Listing", "PageToken", "digest_of", "listing", "sealed", "unsealed"]


Content = TypeVar("Content", bound=msgspec.Struct)

_DIGEST_HEX_DIGITS: Final = 12
_CHECK_BYTES: Final = 4
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


def sealed(content: msgspec.Struct) -> str:
    """Return the text that holds `content`."""
    raw = msgspec.json.encode(content)
    return urlsafe_b64encode(_check_sum(raw) + raw).rstrip(b"=").decode()


def unsealed(text: str, kind: type[Content]) -> Content:
    """Return what the text holds. Raises ValueError when it is damaged, or holds something else."""
    if not _ALPHABET.fullmatch(text):
        raise ValueError("a byte outside the alphabet")
    spelled = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    check_sum, raw = spelled[:_CHECK_BYTES], spelled[_CHECK_BYTES:]
    if check_sum != _check_sum(raw):
        raise ValueError("the check sum is wrong")
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError("the content is of another kind") from error


def digest_of(whole: KeyRange, compared: Iterable[bytes] = ()) -> str:
    """Return what stands for a list's arguments in a text: the same for the same range, and what its keys are compared with."""
    raw = b"".join(len(part).to_bytes(4, "big") + part for part in (whole.start, whole.end or b"", *compared))
    return hashlib.sha256(raw).hexdigest()[:_DIGEST_HEX_DIGITS]


def _check_sum(raw: bytes) -> bytes:
    return hashlib.blake2s(raw, digest_size=_CHECK_BYTES).digest()


# ---- what a list reads: a range together with the function that reads it, so that neither is used alone ---------------


class Listing(msgspec.Struct, frozen=True, eq=False):
    """The keys of an item that a list asks for.

    They stand in `range`. `read` gives the key for the bytes of one, and None for everything else that stands there: keys of
    other items, and of this one with other values. `is_exact`: there are none of the latter. `compared` tells lists apart that
    have one range. `last`, if there is one, gives the last field alone.
    """

    range: KeyRange
    read: Callable[[bytes], object | None]
    is_exact: bool
    compared: tuple[bytes, ...]
    last: Callable[[bytes], object | None] | None

    @property
    def digest(self) -> str:
        """What stands for the list's arguments in a token: the same for lists of the same keys."""
        return digest_of(self.range, self.compared)


def listing(
    item: BoundTable | BoundIndex,
    prefix: tuple[object, ...] = (),
    *,
    starts_with: object = None,
    at_least: object = None,
    below: object = None,
) -> Listing:
    """Return what a list with these arguments reads. Raises InvalidKeyError."""
    listed = item.keys.listed(prefix, starts_with=starts_with, at_least=at_least, below=below)
    return Listing(KeyRange(listed.start, listed.end), listed.read, listed.is_exact, listed.compared, listed.last)


# ---- page tokens ------------------------------------------------------------------------------------------------------

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
