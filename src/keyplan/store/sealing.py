"""Texts that callers keep for us: page tokens and watch tokens. A struct as base64url of its JSON with a check sum before it.

The check sum finds texts that were cut or mistyped. It is no protection against forgery, and none is needed: whatever such a
text says, a list stays within its own range.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from keyplan.engine import KeyRange

__all__ = ["digest_of", "sealed", "unsealed"]

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
    except msgspec.DecodeError as error:
        raise ValueError("the content is of another kind") from error


def digest_of(whole: KeyRange, compared: Iterable[bytes] = ()) -> str:
    """Return what stands for a list's arguments in a text: the same for the same range, and what its keys are compared with."""
    raw = b"".join(len(part).to_bytes(4, "big") + part for part in (whole.start, whole.end or b"", *compared))
    return hashlib.sha256(raw).hexdigest()[:_DIGEST_HEX_DIGITS]


def _check_sum(raw: bytes) -> bytes:
    return hashlib.blake2s(raw, digest_size=_CHECK_BYTES).digest()
