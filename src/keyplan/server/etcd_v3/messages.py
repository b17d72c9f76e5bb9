"""The gateway's messages: requests and answers as JSON with etcd's own names, and what of entries and ranges they show."""

import re
from collections.abc import Iterator
from itertools import islice
from json import JSONDecoder
from typing import Any, Final

import msgspec

from keyplan.engine import Entry, KeyRange
from keyplan.grpc_status import GrpcStatus
from keyplan.protobuf import ETCD, JsonStyle, MisfitError, json_codec
from keyplan.server.etcd_member import Identity
from keyplan.server.etcd_v3.failures import CallFailure

__all__ = [
    "MESSAGES_MAX",
    "NEW_REVISION",
    "RECORDS",
    "encoded",
    "header",
    "key_value",
    "message_in",
    "messages_in",
    "range_of",
    "read_message",
]

RECORDS: Final = ETCD.records
"""etcd's messages as records. Why not the protobuf package's classes: the gateway does without that package."""

NEW_REVISION: Final = -1
"""Stands in an entry for the revision of the commit that will write it."""

MESSAGES_MAX: Final = 1_000
"""Messages of one stream. Why: each is answered one after the other; who has more leases to renew asks again."""

_DECODER: Final = JSONDecoder()
_SPACE: Final = re.compile(r"\s*")
_STYLE: Final = JsonStyle(is_camel=False)


def message_in(body: bytes, record: Any) -> Any:
    """Return the message of a call that takes one: the first of a body. Raises CallFailure."""
    messages = _read(body, record, at_most=1)
    return messages[0] if messages else record()


def messages_in(body: bytes, record: Any) -> list[Any]:
    """Return the messages of a body: none, one, or several one after the other, as in a stream. Raises CallFailure.

    What is no JSON behind the first of them is passed over, as etcd does, which reads no further; null is an empty message.
    More than MESSAGES_MAX are refused, without being read.
    """
    messages = _read(body, record, at_most=MESSAGES_MAX + 1)
    if len(messages) > MESSAGES_MAX:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, f"keyplan: a body has at most {MESSAGES_MAX} messages")
    return messages


def _read(body: bytes, record: Any, *, at_most: int) -> list[Any]:
    text = body.strip()
    try:
        # Why one object first: nearly every body is one, and this decoder is many times faster.
        parts = [msgspec.json.decode(text)] if text else []
    except (msgspec.DecodeError, ValueError, RecursionError):
        parts = list(islice(_values_in(text.decode("utf-8", "replace")), at_most))
        if not parts:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "the body is not JSON") from None
    return [read_message({} if part is None else part, record) for part in parts]


def read_message(part: object, record: Any) -> Any:
    """Return a decoded object as a record of this class; unknown fields are let be. Raises CallFailure."""
    try:
        return json_codec(record, _STYLE).read(part)
    except MisfitError as misfit:
        problem = f"json: cannot unmarshal {misfit.place or 'a message'}"
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, problem) from misfit
    except RecursionError as error:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "json: the message is nested too deeply") from error


def _values_in(text: str) -> Iterator[object]:
    position = 0
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield value
        found = _SPACE.match(text, end)
        position = found.end() if found else end


def range_of(key: bytes, range_end: bytes) -> KeyRange:
    """Return the range that etcd means by these two: one key, from a key on, or up to a key. Raises CallFailure."""
    if not key:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key is not provided")
    if not range_end:
        return KeyRange.of_key(key)
    return KeyRange(b"" if key == b"\x00" else key, None if range_end == b"\x00" else range_end)


# ---- what is sent -----------------------------------------------------------------------------------------------------


def header(identity: Identity, revision: int) -> Any:
    """Return the header of an answer."""
    return RECORDS.ResponseHeader(
        cluster_id=identity.cluster_id, member_id=identity.member_id, revision=revision, raft_term=identity.term
    )


def key_value(entry: Entry, revision: int, *, has_value: bool = True) -> Any:
    """Return an entry; what the commit itself wrote is of `revision`."""
    return RECORDS.KeyValue(
        key=entry.key,
        create_revision=revision if entry.create_revision == NEW_REVISION else entry.create_revision,
        mod_revision=revision if entry.mod_revision == NEW_REVISION else entry.mod_revision,
        version=entry.version,
        value=entry.value if has_value else b"",
        lease=entry.lease,
    )


def encoded(answer: Any) -> bytes:
    """Return an answer's bytes."""
    record: Any = type(answer)
    return json_codec(record, _STYLE).write(answer).encode()
