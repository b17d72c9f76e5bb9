"""Reading: one LMDB transaction, entries decoded as they are met. Used inside write transactions too, to check guards."""

import struct
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, takewhile
from operator import itemgetter
from typing import Final, TypeAlias

import lmdb

from keyplan.engine.fences import Fences
from keyplan.engine.fingerprint import fingerprint
from keyplan.engine.interface import Entry, KeyRange, Snapshot
from keyplan.engine.lmdb.format import HEADER, STATE_KEY, Databases, State, damaged_entry
from keyplan.engine.pieces import PIECE_PAIRS_MAX, take_piece
from keyplan.errors import EngineUnavailableError

__all__ = ["Held", "HistorySnapshot", "LmdbSnapshot", "RawSnapshot", "have_values"]

Held: TypeAlias = dict[int, tuple[int, Fences]]
"""Fences that were found to hold, by their identity, each with the number of the transaction that they were read after."""

_HELD_MAX: Final = 1_000
"""Why: as many handles use one store at once; who makes fences for every read shall not fill the memory."""

_HEADER_BYTES: Final = HEADER.size
_unpack: Final = HEADER.unpack_from

# Why: the hot loops of every get and list; the entry is made without the Python frame that NamedTuple's own way costs.
# Two tuples are added, because unpacking one inside another takes a seventh longer (hence the noqa below).
_make: Final = tuple.__new__

_PIECE_KEYS_FIRST: Final = 16
_PIECE_KEYS_MAX: Final = 4_096


class LmdbSnapshot(Snapshot):
    """What both kinds of store share: ranges. The transaction has the data as its default database.

    With a `prefix` it is of the keys below that, which are given and returned without it.
    """

    __slots__ = ("_databases", "_held", "_live", "_prefix", "_transaction")
    _header_bytes = 0

    def __init__(
        self,
        transaction: "lmdb.Transaction[bytes]",
        databases: Databases,
        live: set[int],
        held: Held,
        prefix: bytes = b"",
    ) -> None:
        self._transaction = transaction
        self._databases = databases
        self._live = live  # where the transaction is noted while it lasts, see Environment.live
        self._held = held
        self._prefix = prefix

    def holds(self, fences: Fences) -> bool:
        if self._prefix:
            return super().holds(fences)
        try:
            return have_values(self._transaction, fences, self._header_bytes, self._held)
        except lmdb.Error as error:
            raise unusable(error) from error

    def _whole(self, key_range: KeyRange) -> KeyRange:
        """Return a range as it is stored."""
        prefix = self._prefix
        end = KeyRange.of_prefix(prefix).end if key_range.end is None else prefix + key_range.end
        return KeyRange(prefix + key_range.start, end)

    @abstractmethod
    def _entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        """Decode keys with their stored bytes, up to the first that is not below `end`."""

    @abstractmethod
    def _bare_entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        """As `_entries`, and leave the values empty."""

    @abstractmethod
    def _values(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """As `_entries`: keys with their values alone."""

    def _values_below(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """As `_values`, the keys without the prefix. Why a loop of its own: it costs the lists of whole stores nothing."""
        cut, size = len(self._prefix), self._header_bytes
        try:
            for key, raw in pairs:
                if end is not None and key >= end:
                    return
                yield key[cut:], raw[size:]
        except lmdb.Error as error:
            raise unusable(error) from error

    def _entries_below(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        make, cut = _make, len(self._prefix)
        for entry in entries:
            yield make(Entry, (entry[0][cut:],) + entry[1:])  # noqa: RUF005

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        if self._prefix:
            key_range = self._whole(key_range)
        try:
            pairs = self._pairs_reversed(key_range) if reverse else self._pairs(key_range)
        except lmdb.Error as error:
            raise unusable(error) from error
        if limit is not None:
            pairs = islice(pairs, limit)
        # Why: a reversed scan ends at its start, where its pairs end; below `end` it begins.
        end = None if reverse else key_range.end
        entries = self._bare_entries(pairs, end) if keys_only else self._entries(pairs, end)
        return self._entries_below(entries) if self._prefix else entries

    def count(self, key_range: KeyRange) -> int:
        if self._prefix:
            key_range = self._whole(key_range)
        try:
            cursor = self._transaction.cursor()
            if key_range.is_empty or not cursor.set_range(key_range.start):
                return 0
            if key_range.end is None:
                if not key_range.start:
                    return self._transaction.stat(self._databases.data)["entries"]
                return sum(1 for _ in cursor.iternext(keys=True, values=False))
            return sum(1 for _ in takewhile(key_range.end.__gt__, cursor.iternext(keys=True, values=False)))
        except lmdb.Error as error:
            raise unusable(error) from error

    def close(self) -> None:
        self._transaction.abort()
        self._live.discard(id(self._transaction))

    def __exit__(self, *_: object) -> None:
        self._transaction.abort()
        self._live.discard(id(self._transaction))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        if reverse:
            return super().keys(key_range, limit=limit, reverse=True)
        if self._prefix:
            key_range = self._whole(key_range)
        try:
            cursor = self._transaction.cursor()
            if key_range.is_empty or not cursor.set_range(key_range.start):
                return iter(())
            found = islice(cursor.iternext(keys=True, values=False), limit)
        except lmdb.Error as error:
            raise unusable(error) from error
        keys = chain.from_iterable(_below(found, key_range.end))
        return map(itemgetter(slice(len(self._prefix), None)), keys) if self._prefix else keys

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        for key in keys:
            value = self.value(key)
            found.append(value)
            if value is not None:
                bytes_max -= len(value)
                if bytes_max < 0:
                    break
        return found

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if self._prefix:
            key_range = self._whole(key_range)
        try:
            found = self._pairs_reversed(key_range) if reverse else self._pairs(key_range)
        except lmdb.Error as error:
            raise unusable(error) from error
        values = self._values_below if self._prefix else self._values
        return values(found if limit is None else islice(found, limit), None if reverse else key_range.end)

    def _pairs(self, key_range: KeyRange) -> Iterator[tuple[bytes, bytes]]:
        """Pairs from the start on. Whoever reads them ends where the range does, also where that is before its start."""
        cursor = self._transaction.cursor()
        return cursor.iternext() if cursor.set_range(key_range.start) else iter(())

    def _pairs_reversed(self, key_range: KeyRange) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor()
        if key_range.is_empty:
            return iter(())
        is_past_end = key_range.end is not None and cursor.set_range(key_range.end)
        has_key = cursor.prev() if is_past_end else cursor.last()
        return _from(cursor.iterprev(), key_range.start) if has_key else iter(())


def _below(keys: Iterator[bytes], end: bytes | None) -> Iterator[list[bytes]]:
    """Yield ascending keys in pieces, up to the first that is not below `end`.

    Why in pieces: comparing each key with the end, or passing it through a frame, costs as much as reading it. Pieces grow, so
    that a short range reads little beyond its end.
    """
    size = _PIECE_KEYS_FIRST
    try:
        while piece := list(islice(keys, size)):
            if end is not None and piece[-1] >= end:
                yield piece[: bisect_left(piece, end)]
                return
            yield piece
            size = min(size * 4, _PIECE_KEYS_MAX)
    except lmdb.Error as error:
        raise unusable(error) from error


def _pairs_below(
    pairs: Iterator[tuple[bytes, bytes]], end: bytes | None, has_large: Callable[[], bool]
) -> Iterator[list[tuple[bytes, bytes]]]:
    """As `_below`, in smaller pieces, which have few bytes, too. `has_large` tells whether any value of all is large."""
    size, take = _PIECE_KEYS_FIRST, take_piece
    try:
        while piece := take(pairs, size):
            if end is not None and piece[-1][0] >= end:
                # Why a one-part tuple: it sorts just before every pair with that key.
                yield piece[: bisect_left(piece, (end,))]
                return
            yield piece
            if size == _PIECE_KEYS_FIRST and not has_large():
                # Why: counting takes a tenth of what reading does.
                take = _take
            size = min(size * 4, PIECE_PAIRS_MAX)
    except lmdb.Error as error:
        raise unusable(error) from error


def _columns_below(
    pairs: Iterator[tuple[bytes, bytes]], end: bytes | None, has_large: Callable[[], bool]
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """As `_pairs_below`, in columns."""
    size, flat, is_counted = _PIECE_KEYS_FIRST, chain.from_iterable(pairs), True
    try:
        while True:
            # Why flat: a pair that is taken apart at once costs half of one that is kept meanwhile.
            piece = [*chain.from_iterable(take_piece(pairs, size))] if is_counted else [*islice(flat, 2 * size)]
            keys, values = piece[::2], piece[1::2]
            if not keys:
                return
            if end is not None and keys[-1] >= end:
                number = bisect_left(keys, end)
                if number:
                    yield keys[:number], values[:number]
                return
            yield keys, values
            if size == _PIECE_KEYS_FIRST:
                is_counted = has_large()
            size = min(size * 4, PIECE_PAIRS_MAX)
    except lmdb.Error as error:
        raise unusable(error) from error


def _take(pairs: Iterator[tuple[bytes, bytes]], number: int) -> list[tuple[bytes, bytes]]:
    return list(islice(pairs, number))


class HistorySnapshot(LmdbSnapshot):
    """Entries with their revisions."""

    __slots__ = ()
    _header_bytes = _HEADER_BYTES

    @property
    def revision(self) -> int:
        try:
            return State.unpack(self._transaction.get(STATE_KEY, db=self._databases.meta)).revision
        except lmdb.Error as error:
            raise unusable(error) from error

    def get(self, key: bytes) -> Entry | None:
        try:
            raw = self._transaction.get(self._prefix + key)
        except lmdb.BadValsizeError:
            return None  # a key that is empty or too long is never stored
        except lmdb.Error as error:
            raise unusable(error) from error
        try:
            return None if raw is None else _make(Entry, (key, raw[_HEADER_BYTES:]) + _unpack(raw))  # noqa: RUF005
        except struct.error as error:
            raise damaged_entry(key) from error

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        make, unpack, size, get = _make, _unpack, _HEADER_BYTES, self._transaction.get
        prefix = self._prefix
        found: list[Entry | None] = []
        try:
            # Why so plainly: most calls ask for two or three keys, and a map costs them as much as two reads.
            for key in keys:
                raw = get(prefix + key)
                found.append(None if raw is None else make(Entry, (key, raw[size:]) + unpack(raw)))  # noqa: RUF005
        except (lmdb.BadValsizeError, struct.error):  # one of them is empty or too long, or damaged
            return list(map(self.get, keys))
        except lmdb.Error as error:
            raise unusable(error) from error
        return found

    def value(self, key: bytes) -> bytes | None:
        try:
            raw = self._transaction.get(self._prefix + key)
        except lmdb.BadValsizeError:
            return None
        except lmdb.Error as error:
            raise unusable(error) from error
        return None if raw is None else raw[_HEADER_BYTES:]

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        raw_keys = map(self._prefix.__add__, keys) if self._prefix else keys
        try:
            return [None if raw is None else raw[_HEADER_BYTES:] for raw in map(self._transaction.get, raw_keys)]
        except lmdb.BadValsizeError:  # one of them is empty or too long
            return list(map(self.value, keys))
        except lmdb.Error as error:
            raise unusable(error) from error

    def _entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        make, unpack, size = _make, _unpack, _HEADER_BYTES
        key = b""
        try:
            for key, raw in pairs:
                if end is not None and key >= end:
                    return
                yield make(Entry, (key, raw[size:]) + unpack(raw))  # noqa: RUF005
        except struct.error as error:
            raise damaged_entry(key) from error
        except lmdb.Error as error:
            raise unusable(error) from error

    def _bare_entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        make, unpack = _make, _unpack
        key = b""
        try:
            for key, raw in pairs:
                if end is not None and key >= end:
                    return
                yield make(Entry, (key, b"") + unpack(raw))  # noqa: RUF005
        except struct.error as error:
            raise damaged_entry(key) from error
        except lmdb.Error as error:
            raise unusable(error) from error

    def _values(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        size = _HEADER_BYTES
        try:
            for key, raw in pairs:
                if end is not None and key >= end:
                    return
                yield key, raw[size:]
        except lmdb.Error as error:
            raise unusable(error) from error


class RawSnapshot(LmdbSnapshot):
    """Keys and values alone (`history=off`): a fingerprint of the value stands for the mod revision."""

    __slots__ = ()

    @property
    def revision(self) -> int:
        return 0

    def get(self, key: bytes) -> Entry | None:
        try:
            value = self._transaction.get(self._prefix + key)
        except lmdb.BadValsizeError:
            return None
        except lmdb.Error as error:
            raise unusable(error) from error
        return None if value is None else _make(Entry, (key, value, 0, fingerprint(value), 0, 0))

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        make, get, prefix = _make, self._transaction.get, self._prefix
        found: list[Entry | None] = []
        try:
            for key in keys:
                value = get(prefix + key)
                found.append(None if value is None else make(Entry, (key, value, 0, fingerprint(value), 0, 0)))
        except lmdb.BadValsizeError:  # one of them is empty or too long
            return list(map(self.get, keys))
        except lmdb.Error as error:
            raise unusable(error) from error
        return found

    def value(self, key: bytes) -> bytes | None:
        # Why: a fingerprint would cost more than the rest of reading a value of a KiB.
        try:
            return self._transaction.get(self._prefix + key)
        except lmdb.BadValsizeError:
            return None
        except lmdb.Error as error:
            raise unusable(error) from error

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        raw_keys = map(self._prefix.__add__, keys) if self._prefix else keys
        try:
            return list(map(self._transaction.get, raw_keys))
        except lmdb.BadValsizeError:  # one of them is empty or too long
            return list(map(self.value, keys))
        except lmdb.Error as error:
            raise unusable(error) from error

    def _values(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(_pairs_below(pairs, end, self._has_large))

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        if self._prefix or reverse:
            return super().columns(key_range, limit=limit, reverse=reverse)
        try:
            found = self._pairs(key_range)
        except lmdb.Error as error:
            raise unusable(error) from error
        return _columns_below(found if limit is None else islice(found, limit), key_range.end, self._has_large)

    def _has_large(self) -> bool:
        """Tell whether the store has values of more than half a page, which have pages of their own."""
        return self._transaction.stat(self._databases.data)["overflow_pages"] > 0

    def _entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        make = _make
        try:
            for key, value in pairs:
                if end is not None and key >= end:
                    return
                yield make(Entry, (key, value, 0, fingerprint(value), 0, 0))
        except lmdb.Error as error:
            raise unusable(error) from error

    def _bare_entries(self, pairs: Iterator[tuple[bytes, bytes]], end: bytes | None) -> Iterator[Entry]:
        # Why: no fingerprint, because it would read the values, which is what a scan of keys alone is there to avoid.
        make = _make
        try:
            for key, _ in pairs:
                if end is not None and key >= end:
                    return
                yield make(Entry, (key, b"", 0, 0, 0, 0))
        except lmdb.Error as error:
            raise unusable(error) from error


def have_values(transaction: "lmdb.Transaction[bytes]", fences: Fences, header_bytes: int, held: Held) -> bool:
    """Tell whether fences hold in what a transaction reads; they are not read again where nothing was committed since."""
    number = transaction.id()
    seen = held.get(id(fences))
    if seen is not None and seen[0] == number and seen[1] is fences:
        return True
    for key, value in fences:
        try:
            stored = transaction.get(key)
        except lmdb.BadValsizeError:
            stored = None  # a key that is empty or too long is never stored
        if (None if stored is None else stored[header_bytes:]) != value:
            return False
    if len(held) >= _HELD_MAX:
        held.clear()
    held[id(fences)] = (number, fences)
    return True


def unusable(error: lmdb.Error) -> EngineUnavailableError:
    """Return the error for a transaction that ended under its reader: closed, or in a process that was forked."""
    return EngineUnavailableError(engine="lmdb", problem=f"the snapshot is no longer usable: {error}")


def _from(pairs: Iterator[tuple[bytes, bytes]], start: bytes) -> Iterator[tuple[bytes, bytes]]:
    for pair in pairs:
        if pair[0] < start:
            return
        yield pair
