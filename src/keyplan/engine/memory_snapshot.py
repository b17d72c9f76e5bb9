"""Reads of one state of the memory engine, and of the part of it below a prefix."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Final, Protocol, TypeVar

from keyplan.engine.fences import Fences
from keyplan.engine.interface import Entry, KeyRange, Snapshot
from keyplan.engine.profile import Profile
from keyplan.engine.sorted_entries import SortedEntries
from keyplan.errors import EngineUnavailableError

__all__ = ["MemoryShare", "MemorySnapshot"]

Found = TypeVar("Found")

_KEY: Final = itemgetter(0)
_VALUE: Final = itemgetter(1)
_make: Final = tuple.__new__
"""Makes an entry without NamedTuple's own Python frames."""


class _Holder(Protocol):
    """The engine that a snapshot is of."""

    is_closed: bool

    @property
    def profile(self) -> Profile: ...

    def check_open(self) -> None:
        """Raise EngineUnavailableError after `close`."""


class MemorySnapshot(Snapshot):
    """All entries as they were: edits of the map make new ones."""

    def __init__(self, engine: _Holder, entries: SortedEntries, revision: int) -> None:
        self._engine = engine
        self._entries = entries
        self._revision = revision
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: bytes) -> Entry | None:
        # Why asked here, too: most reads are of an open store, and need no call.
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        return self._entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        return list(map(self._entries.get, keys))

    def value(self, key: bytes) -> bytes | None:
        self._check_open()
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check_open()
        get = self._entries.get
        return [None if (entry := get(key)) is None else entry.value for key in keys]

    def holds(self, fences: Fences) -> bool:
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        return self._entries.holds(fences)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        found = self._entries.scan(key_range, reverse=reverse)
        if limit is not None:
            found = islice(found, limit)
        return map(_without_value, found) if keys_only else found

    def count(self, key_range: KeyRange) -> int:
        self._check_open()
        return self._entries.count_in(key_range)

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        self._engine.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=self._engine.profile.name, problem="the snapshot was closed")


class MemoryShare(MemorySnapshot):
    """The entries below a prefix. Their keys are given and returned without it."""

    def __init__(self, engine: _Holder, entries: SortedEntries, revision: int, prefix: bytes) -> None:
        super().__init__(engine, entries, revision)
        self._prefix = prefix
        self._end = KeyRange.of_prefix(prefix).end
        self._strip: Callable[[bytes], bytes] = itemgetter(slice(len(prefix), None))

    def get(self, key: bytes) -> Entry | None:
        return self._stripped(super().get(self._prefix + key))

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        get, make, prefix = self._entries.get, _make, self._prefix
        return [
            None if (entry := get(prefix + key)) is None else make(Entry, (key,) + entry[1:])  # noqa: RUF005
            for key in keys
        ]

    def value(self, key: bytes) -> bytes | None:
        return super().value(self._prefix + key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().values(list(map(self._prefix.__add__, keys)))

    def holds(self, fences: Fences) -> bool:
        return Snapshot.holds(self, fences)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        def of_piece(piece: list[Entry]) -> Iterator[Entry]:
            return (make(Entry, (entry[0][size:],) + entry[1:]) for entry in piece)  # noqa: RUF005

        make, size = _make, len(self._prefix)
        found = self._of_pieces(of_piece, key_range, limit, reverse=reverse)
        return map(_without_value, found) if keys_only else found

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        return self._of_pieces(partial(_keys_of, self._strip), key_range, limit, reverse=reverse)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._of_pieces(partial(_pairs_of, self._strip), key_range, limit, reverse=reverse)

    def count(self, key_range: KeyRange) -> int:
        return super().count(self._whole(key_range))

    def _of_pieces(
        self, read: Callable[[list[Entry]], Iterable[Found]], key_range: KeyRange, limit: int | None, *, reverse: bool
    ) -> Iterator[Found]:
        """Return what `read` yields of pieces of a range, as one stream."""
        if self._is_closed or self._engine.is_closed:
            self._check_open()
        pieces = self._entries.pieces(self._whole(key_range), reverse=reverse)
        found = chain.from_iterable(map(read, pieces))
        return found if limit is None else islice(found, limit)

    def _whole(self, key_range: KeyRange) -> KeyRange:
        """Return a range as it is stored."""
        end = self._end if key_range.end is None else self._prefix + key_range.end
        return KeyRange(self._prefix + key_range.start, end)

    def _stripped(self, entry: Entry | None) -> Entry | None:
        return None if entry is None else _make(Entry, (self._strip(entry[0]), *entry[1:]))


def _keys_of(strip: Callable[[bytes], bytes], piece: list[Entry]) -> Iterator[bytes]:
    return map(strip, map(_KEY, piece))


def _pairs_of(strip: Callable[[bytes], bytes], piece: list[Entry]) -> Iterator[tuple[bytes, bytes]]:
    # Why by maps: nothing of this is a call of ours for each entry.
    return zip(map(strip, map(_KEY, piece)), map(_VALUE, piece), strict=True)


def _without_value(entry: Entry) -> Entry:
    return entry._replace(value=b"")
