r"""The books of the v2 keys API, in the store beside the keys: what v2 knows of a key and an ordered store does not.

    00 65 32 73                  State: the event counter, and how far other writers' changes are counted
    00 65 32 66 PATH             FileRecord of the key PATH: its indexes, when it expires
    00 65 32 64 PATH             DirectoryRecord; it hangs on a lease when the directory has a TTL
    00 65 32 68 INDEX            EventRecord of one event, INDEX in 8 bytes, big-endian; the latest 1000 are kept

Values are MessagePack arrays. One that cannot be read is a CorruptionError: it concerns its own path, and nobody else.
"""

from collections.abc import Callable
from enum import StrEnum
from struct import Struct
from typing import Final, TypeVar

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import CorruptionError
from keyplan.keyspace import BOOK_OF_DIRECTORIES, BOOK_OF_FILES
from keyplan.server.etcd_member import BOOKS

__all__ = [
    "DIRECTORIES",
    "EVENTS",
    "FORGOTTEN",
    "STATE_KEY",
    "Action",
    "DirectoryRecord",
    "EventRecord",
    "FileRecord",
    "State",
    "directories_of",
    "directory_key",
    "directory_path",
    "event_key",
    "file_key",
    "files_of",
    "pack",
    "records_below",
    "unpack_directory",
    "unpack_event",
    "unpack_file",
    "unpack_state",
]

STATE_KEY: Final = BOOKS + b"s"
# Why the registry's: who removes a key space removes these with its keys.
_FILES: Final = BOOK_OF_FILES
_DIRECTORIES: Final = BOOK_OF_DIRECTORIES
_EVENTS: Final = BOOKS + b"h"
DIRECTORIES: Final = KeyRange.of_prefix(_DIRECTORIES)
EVENTS: Final = KeyRange.of_prefix(_EVENTS)

FIRST_INDEX: Final = 3
"""The counter of an empty store. Why: a new etcd has counted its own three writes, and clients' first index is 4."""

_INDEX: Final = Struct(">Q")


class Action(StrEnum):
    """What an event did; the words of the API."""

    GET = "get"
    SET = "set"
    CREATE = "create"
    UPDATE = "update"
    COMPARE_AND_SWAP = "compareAndSwap"
    DELETE = "delete"
    COMPARE_AND_DELETE = "compareAndDelete"
    EXPIRE = "expire"


class State(msgspec.Struct, frozen=True, array_like=True):
    """Where the counting stands.

    `index` is the latest event's number. Changes that others than the v2 API made are counted up to and including the revision
    `settled`, and the first `position` of the next revision that has any. `floor` is the index of keys that were there before
    the counting began, or changed while nobody could count. Events up to `cleared` are no longer kept.
    """

    index: int = FIRST_INDEX
    settled: int = 0
    position: int = 0
    floor: int = FIRST_INDEX
    cleared: int = 0


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """Indexes of a key, true of it as of `revision`; 0: as of the commit that wrote the record.

    `expires_nanoseconds` since 1970 is when its TTL ends, 0 when it has none; the key itself hangs on a lease.
    """

    created: int
    modified: int
    revision: int = 0
    expires_nanoseconds: int = 0


class DirectoryRecord(msgspec.Struct, frozen=True, array_like=True):
    """A directory that v2 clients made is kept until it is deleted; any other is there for as long as keys are below it."""

    created: int
    modified: int
    is_kept: bool = True
    expires_nanoseconds: int = 0


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """An event as it is sent to clients: `body` is its JSON. A refresh has no record, only a number.

    `is_of_directory`: what the body shows is a directory, before and after it. `revision` is that of the change; 0: that of the
    commit that wrote the record.
    """

    index: int
    path: str
    is_directory_end: bool
    body: str
    is_of_directory: bool = False
    revision: int = 0


FORGOTTEN: Final = FileRecord(0, 0)
"""Stands for the record that a key does not have; it is true of no revision."""


def pack(record: State | FileRecord | DirectoryRecord | EventRecord) -> bytes:
    """Return a record's stored bytes."""
    return msgspec.msgpack.encode(record)


R = TypeVar("R", State, FileRecord, DirectoryRecord, EventRecord)


def _unpacker(record_type: type[R]) -> Callable[[bytes], R]:
    decode = msgspec.msgpack.Decoder(record_type).decode

    def unpack(raw: bytes) -> R:
        try:
            return decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CorruptionError(problem=f"a {record_type.__name__} of the v2 gateway cannot be read") from error

    return unpack


unpack_state: Final = _unpacker(State)
unpack_file: Final = _unpacker(FileRecord)
unpack_directory: Final = _unpacker(DirectoryRecord)
unpack_event: Final = _unpacker(EventRecord)


def file_key(path: str) -> bytes:
    """Where a FileRecord is."""
    return _FILES + path.encode()


def directory_key(path: str) -> bytes:
    """Where a DirectoryRecord is."""
    return _DIRECTORIES + path.encode()


def directory_path(raw_key: bytes) -> str:
    """Whose DirectoryRecord this is."""
    return raw_key[len(_DIRECTORIES) :].decode()


def event_key(index: int) -> bytes:
    """Where an EventRecord is."""
    return _EVENTS + _INDEX.pack(index)


def files_of(keys: KeyRange) -> KeyRange:
    """Return the range of the FileRecords of a range of raw keys."""
    return _moved(_FILES, keys)


def directories_of(keys: KeyRange) -> KeyRange:
    """Return the range of the DirectoryRecords whose paths, as bytes, are in a range of raw keys."""
    return _moved(_DIRECTORIES, keys)


def _moved(prefix: bytes, keys: KeyRange) -> KeyRange:
    return KeyRange(prefix + keys.start, KeyRange.of_prefix(prefix).end if keys.end is None else prefix + keys.end)


def records_below(path: str) -> tuple[KeyRange, KeyRange]:
    """Return the ranges of the records of files and of directories below a path."""
    slashed = (path if path == "/" else path + "/").encode()
    return KeyRange.of_prefix(_FILES + slashed), KeyRange.of_prefix(_DIRECTORIES + slashed)
