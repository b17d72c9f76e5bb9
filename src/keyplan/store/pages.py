"""Page tokens: the place in a list, opaque to the caller, refused wherever it does not belong.

A token is base64url of a JSON list: format, fingerprint, table, digest of the list's arguments, the last key relative to the
list's range, revision, check sum. It holds key bytes, and is not a secret: do not hand it to who may not see the keys.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import BoundTable

__all__ = ["PageToken"]

_FORMAT: Final = 1
_DIGEST_HEX_DIGITS: Final = 12
_CHECK_BYTES: Final = 4
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


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

    @classmethod
    def after(cls, last_key: bytes, table: BoundTable, whole: KeyRange, revision: int) -> "PageToken":
        """Return the token that continues the list over `whole` after `last_key`."""
        relative_key = last_key[len(whole.start) :]
        content = _Content(_FORMAT, table.name, table.layout.fingerprint, _digest_of(whole), relative_key, revision)
        raw = msgspec.json.encode(content)
        return cls(urlsafe_b64encode(_check_sum(raw) + raw).rstrip(b"=").decode(), last_key)

    @classmethod
    def read(cls, text: str, table: BoundTable, whole: KeyRange) -> "PageToken":
        """Return the token that `text` spells, if it belongs to this list of this table. Raises InvalidPageTokenError."""
        content = _content_of(text)
        if content.format != _FORMAT:
            raise InvalidPageTokenError(problem="the token is of another version of keyplan")
        if content.table != table.name or content.fingerprint != table.layout.fingerprint:
            raise InvalidPageTokenError(problem="the token is of another layout or table", table=table.name)
        if content.arguments != _digest_of(whole):
            raise InvalidPageTokenError(problem="the token is of a list with other arguments", table=table.name)
        last_key = whole.start + content.relative_key
        if last_key not in whole:
            raise InvalidPageTokenError(problem="the token leaves its list", table=table.name)
        return cls(text, last_key)

    def rest_of(self, whole: KeyRange) -> KeyRange:
        """Return the part of the list's range that lies after the token's place."""
        return KeyRange(self.last_key + b"\x00", whole.end)


def _content_of(text: str) -> _Content:
    try:
        raw = _checked(text)
        return msgspec.json.decode(raw, type=_Content)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidPageTokenError(problem="the token is damaged or was never one") from error


def _checked(text: str) -> bytes:
    if not _ALPHABET.fullmatch(text):
        raise ValueError("a byte outside the alphabet")
    spelled = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    check_sum, raw = spelled[:_CHECK_BYTES], spelled[_CHECK_BYTES:]
    if check_sum != _check_sum(raw):
        raise ValueError("the check sum is wrong")
    return raw


def _check_sum(raw: bytes) -> bytes:
    # Why: it finds tokens that were cut or mistyped. It is no protection against forgery, and none is needed: whatever a token
    # says, the list stays within its own range.
    return hashlib.blake2s(raw, digest_size=_CHECK_BYTES).digest()


def _digest_of(whole: KeyRange) -> str:
    raw = b"".join(len(part).to_bytes(4, "big") + part for part in (whole.start, whole.end or b""))
    return hashlib.sha256(raw).hexdigest()[:_DIGEST_HEX_DIGITS]
