r"""The books of the v2 keys API, in the store beside the keys: what v2 knows of a key and an ordered store does not.

    00 65 32 73                  State: the event counter, and how far other writers' changes are counted
    00 65 32 66 PATH             FileRecord of the key PATH: its indexes, when it expires
    00 65 32 64 PATH             DirectoryRecord; it hangs on a lease when the directory has a TTL
    00 65 32 68 INDEX            EventRecord of one event, INDEX in 8 bytes, big-endian; the latest 1000 are kept

Values are MessagePack arrays. Anybody who writes to the store can damage one, so that none stops anybody: one that cannot be
read is told once in the log, and counts as if nobody had written it down; the next write of its path writes it anew.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Annotated, Final, TypeVar

import msgspec

from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.keyspace import BOOK_OF_DIRECTORIES, BOOK_OF_FILES
from keyplan.server.etcd_member import BOOKS
from keyplan.server.logs import LOGGER

__all__ = [
    "DIRECTORIES",
    "EVENTS",
    "FIRST_INDEX",
    "FORGOTTEN",
    "INDEX_END",
    "STATE_KEY",
    "Action",
    "DirectoryRecord",
    "EventRecord",
    "FileRecord",
    "State",
    "directories_of",
    "directory_in",
    "directory_key",
    "directory_path",
    "event_in",
    "event_key",
    "file_in",
    "file_key",
    "files_of",
    "index_of_event",
    "last_number",
    "pack",
    "records_below",
    "state_in",
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

INDEX_END: Final = 1 << 61
"""Counting that was lost goes on behind a lower number only. Why: no store counts so far, and from a number that somebody made
up near the largest one there is, counting would soon be at its end."""

_Index = Annotated[int, msgspec.Meta(ge=0, lt=2 * INDEX_END)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""Why bounded: a larger one is nobody's count and no time, and what is made of it would fail far from here."""


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

    index: _Index = FIRST_INDEX
    settled: _Number = 0
    position: _Number = 0
    floor: _Index = FIRST_INDEX
    cleared: _Index = 0


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """Indexes of a key, true of it as of `revision`; 0: as of the commit that wrote the record.

    `expires_nanoseconds` since 1970 is when its TTL ends, 0 when it has none; the key itself hangs on a lease.
    """

    created: _Index
    modified: _Index
    revision: _Number = 0
    expires_nanoseconds: _Number = 0


class DirectoryRecord(msgspec.Struct, frozen=True, array_like=True):
    """A directory that v2 clients made is kept until it is deleted; any other is there for as long as keys are below it."""

    created: _Index
    modified: _Index
    is_kept: bool = True
    expires_nanoseconds: _Number = 0


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """An event as it is sent to clients: `body` is its JSON. A refresh has no record, only a number.

    `is_of_directory`: what the body shows is a directory, before and after it. `revision` is that of the change; 0: that of the
    commit that wrote the record.
    """

    index: _Index
    path: str
    is_directory_end: bool
    body: str
    is_of_directory: bool = False
    revision: _Number = 0


FORGOTTEN: Final = FileRecord(0, 0)
"""Stands for the record that a key does not have; it is true of no revision."""


def pack(record: State | FileRecord | DirectoryRecord | EventRecord) -> bytes:
    """Return a record's stored bytes."""
    return msgspec.msgpack.encode(record)


R = TypeVar("R", State, FileRecord, DirectoryRecord, EventRecord)


def _reader(record_type: type[R]) -> Callable[[Entry], R | None]:
    decode = msgspec.msgpack.Decoder(record_type).decode

    def read(entry: Entry) -> R | None:
        try:
            return decode(entry.value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            _tell_damaged(record_type.__name__, entry.key, entry.mod_revision)
            return None

    return read


@lru_cache(maxsize=1_024)  # Why: once for each, and not with each heartbeat
def _tell_damaged(kind: str, raw_key: bytes, revision: int) -> None:
    facts = {"raw_key": raw_key.hex(), "record": kind, "revision": revision}
    LOGGER.error("a record of the v2 gateway cannot be read, and counts as none", extra={"facts": facts})


_state_in: Final = _reader(State)
file_in: Final = _reader(FileRecord)
directory_in: Final = _reader(DirectoryRecord)
event_in: Final = _reader(EventRecord)
"""Each returns the record that an entry holds; None for one that cannot be read."""


def state_in(entry: Entry) -> State | None:
    """Return the State that an entry holds; None for one that cannot be read, or that no gateway has written here.

    Why: another store's, copied with its keys, tells of revisions that are still to come.
    """
    state = _state_in(entry)
    if state is None or (state.settled < entry.mod_revision and max(state.floor, state.cleared) <= state.index):
        return state
    _tell_damaged(State.__name__, entry.key, entry.mod_revision)
    return None


def file_key(path: str) -> bytes:
    """Where a FileRecord is."""
    return _FILES + path.encode()


def directory_key(path: str) -> bytes:
    """Where a DirectoryRecord is."""
    return _DIRECTORIES + path.encode()


def last_number(snapshot: Snapshot) -> int:
    """Return the highest number that the books beside the State know to be given; 0: they know of none. Reads all of them.

    One from INDEX_END on was never given.
    """
    events = (index_of_event(entry.key) for entry in snapshot.scan(EVENTS, keys_only=True))
    files = (file_in(entry) for entry in snapshot.scan(KeyRange.of_prefix(_FILES)))
    directories = (directory_in(entry) for entry in snapshot.scan(DIRECTORIES))
    numbers = chain(events, (record.modified for record in chain(files, directories) if record is not None))
    return max((number for number in numbers if number < INDEX_END), default=0)


def directory_path(raw_key: bytes) -> str:
    """Whose DirectoryRecord this is."""
    return raw_key[len(_DIRECTORIES) :].decode()


def event_key(index: int) -> bytes:
    """Where an EventRecord is."""
    return _EVENTS + _INDEX.pack(index)


def index_of_event(raw_key: bytes) -> int:
    """Whose EventRecord this is; 0: no event's."""
    packed = raw_key[len(_EVENTS) :]
    return int(_INDEX.unpack(packed)[0]) if len(packed) == _INDEX.size else 0


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
