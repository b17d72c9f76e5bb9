"""The JSON of protocol buffers: bytes in base64, 64-bit numbers as strings, two spellings of a name, nothing that is zero."""

from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any, Final

import msgspec

from keyplan.engine import Entry, KeyRange
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_member import Identity
from keyplan.server.etcd_v3.failures import CallFailure

__all__ = ["NEW_REVISION", "Fields", "encoded", "header", "key_value", "messages_in", "range_of", "shown_bytes"]

NEW_REVISION: Final = -1
"""Stands in an entry for the revision of the commit that will write it."""

_DECODER: Final = JSONDecoder()
_INT64_MAX: Final = (1 << 63) - 1


class Fields:
    """A message that a client sent. Raises CallFailure for what is not of the field's kind; unknown fields are let be."""

    def __init__(self, raw: object) -> None:
        if not isinstance(raw, dict):
            raise _malformed("a message")
        self._raw: dict[str, Any] = raw

    def _get(self, name: str) -> Any:
        if name in self._raw:
            return self._raw[name]
        first, *others = name.split("_")
        return self._raw.get(first + "".join(word.capitalize() for word in others))

    def __contains__(self, name: str) -> bool:
        return self._get(name) is not None

    def octets(self, name: str) -> bytes:
        """Return bytes, empty when there are none."""
        value = self._get(name)
        if value is None:
            return b""
        if not isinstance(value, str):
            raise _malformed(name)
        try:
            # Why two alphabets: protocol buffers accept the one for URLs as well, with or without its padding.
            return b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
        except (BinasciiError, ValueError) as error:
            raise _malformed(name) from error

    def text(self, name: str) -> str:
        """Return a string, empty when there is none."""
        value = self._get(name)
        if value is not None and not isinstance(value, str):
            raise _malformed(name)
        return value or ""

    def number(self, name: str) -> int:
        """Return a number that was sent as a number or as a string; 0 when there is none."""
        value = self._get(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _malformed(name)
        try:
            found = int(value) if len(str(value)) <= 20 else _INT64_MAX + 1
        except ValueError as error:
            raise _malformed(name) from error
        if not -_INT64_MAX - 1 <= found <= _INT64_MAX:
            raise _malformed(name)
        return found

    def flag(self, name: str) -> bool:
        """Return a boolean, false when there is none."""
        value = self._get(name)
        if value is not None and not isinstance(value, bool):
            raise _malformed(name)
        return bool(value)

    def choice(self, name: str, values: Sequence[str]) -> str:
        """Return one of an enumeration's names, sent as a name or as a number; the first when there is none."""
        value = self._get(name)
        if value is None:
            return values[0]
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(values):
            return values[value]
        if value not in values:
            raise _malformed(name)
        return str(value)

    def message(self, name: str) -> "Fields | None":
        """Return a message inside this one, or None."""
        value = self._get(name)
        return None if value is None else Fields(value)

    def messages(self, name: str) -> list["Fields"]:
        """Return repeated messages."""
        value = self._get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _malformed(name)
        return [Fields(part) for part in value]

    def choices(self, name: str, values: Sequence[str]) -> list[str]:
        """Return repeated names of an enumeration."""
        value = self._get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _malformed(name)
        return [Fields({name: part}).choice(name, values) for part in value]


def messages_in(body: bytes) -> list[Fields]:
    """Return the messages of a body: none, one, or several one after the other, as in a stream. Raises CallFailure.

    What is no JSON behind the first of them is passed over, as etcd does, which reads no further; null is an empty message.
    """
    text = body.strip()
    try:
        # Why one object first: nearly every body is one, and this decoder is many times faster.
        parts = [msgspec.json.decode(text)] if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parts = list(_values_in(text.decode("utf-8", "replace")))
        if not parts:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "the body is not JSON") from None
    return [Fields({} if part is None else part) for part in parts]


def _values_in(text: str) -> Iterator[object]:
    position = 0
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield value
        position = end + len(text[end:]) - len(text[end:].lstrip())


def _malformed(name: str) -> CallFailure:
    return CallFailure(GrpcStatus.INVALID_ARGUMENT, f"json: cannot unmarshal {name}")


def range_of(key: bytes, range_end: bytes) -> KeyRange:
    """Return the range that etcd means by these two: one key, from a key on, or up to a key. Raises CallFailure."""
    if not key:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key is not provided")
    if not range_end:
        return KeyRange.of_key(key)
    return KeyRange(b"" if key == b"\x00" else key, None if range_end == b"\x00" else range_end)


# ---- what is sent -----------------------------------------------------------------------------------------------------


def shown_bytes(raw: bytes) -> str:
    """Return bytes as JSON has them."""
    return b64encode(raw).decode()


def header(identity: Identity, revision: int) -> dict[str, str]:
    """Return the header of an answer."""
    return {
        "cluster_id": str(identity.cluster_id),
        "member_id": str(identity.member_id),
        "revision": str(revision),
        "raft_term": str(identity.term),
    }


def key_value(entry: Entry, revision: int, *, has_value: bool = True) -> dict[str, str]:
    """Return an entry; what the commit itself wrote is of `revision`."""
    created = revision if entry.create_revision == NEW_REVISION else entry.create_revision
    modified = revision if entry.mod_revision == NEW_REVISION else entry.mod_revision
    shown = {
        "key": shown_bytes(entry.key),
        "create_revision": str(created),
        "mod_revision": str(modified),
        "version": str(entry.version),
    }
    if has_value and entry.value:
        shown["value"] = shown_bytes(entry.value)
    if entry.lease:
        shown["lease"] = str(entry.lease)
    return shown


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return an answer's bytes."""
    return msgspec.json.encode(body)
