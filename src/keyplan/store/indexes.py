"""The operations on one index, unique or not: an entry leads to a primary key, and that to a record, in one state.

The promises stand in keyplan.layout's UniqueView and IndexView. An entry whose record is not there (left by a writer that
does not know the layout) is passed over; `keyplan check` reports it. Whether an index may be read is asked in the state that
it is read from, each time: a drop or a build may have begun since.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from keyplan.engine import Entry
from keyplan.errors import CorruptionError, NotFoundError
from keyplan.layout import BoundIndex, Changes, Damaged, IndexView, UniqueView, Versioned
from keyplan.store.access import EntryReads, Reader
from keyplan.store.decoding import check_limit, corrupted, decode_record, row_of
from keyplan.store.follow import Watcher
from keyplan.store.index_state import index_state_key, refuse_unreadable
from keyplan.store.listing import Listing, listing
from keyplan.store.watch import IndexSelection

__all__ = ["IndexEntries", "UniqueEntries"]

_BATCH_RECORDS_MAX: Final = 128
"""Records that an index list reads at once. Why: over a network each batch is a round trip; 128 is what etcd takes in one."""


class IndexEntries(IndexView[object, object]):
    """An index on a reader. There is nothing to write: the entries follow the records."""

    def __init__(self, index: BoundIndex, reader: Reader, watcher: Watcher) -> None:
        self._index = index
        self._reader = reader
        self._watcher = watcher
        self._state_key = index_state_key(index)

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[object, object]]:
        check_limit(limit)
        listed = listing(self._index, prefix, starts_with=starts_with, at_least=at_least, below=below)
        return self._records(listed, limit, reverse=reverse)

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[object]:
        check_limit(limit)
        listed = listing(self._index, prefix, starts_with=starts_with, at_least=at_least, below=below)
        return self._keys(listed, limit, reverse=reverse)

    def rows(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[object, object] | Damaged[object]]:
        check_limit(limit)
        listed = listing(self._index, prefix, starts_with=starts_with, at_least=at_least, below=below)
        return self._rows(listed, limit, reverse=reverse)

    def count(self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None) -> int:
        return sum(1 for _ in self.keys(*prefix, starts_with=starts_with, at_least=at_least, below=below))

    def watch(
        self, *prefix: object, starts_with: object = None, after: int | str | None = None
    ) -> Changes[object, object]:
        # Why: what a record's entries should be is told by the record, so an index that is still being built can be watched.
        return self._watcher.watch(
            IndexSelection(self._index, listing(self._index, prefix, starts_with=starts_with)), after
        )

    def _records(self, listed: Listing, limit: int | None, *, reverse: bool) -> Iterator[tuple[object, object]]:
        """Look up what index entries point at, some at once, and yield the records that are there."""
        table, remaining = self._index.table, limit
        encode, decode, seal = table.keys.encode, table.form.decode, table.seal
        with self._reader.pinned() as state:
            found = self._primary_keys(state, listed=listed, reverse=reverse)
            # Why: a limited list must not read entries beyond it: in a transaction they would become its premises.
            while batch := list(islice(found, _batch_size(remaining))):
                raw_keys = list(map(encode, batch))
                for key, raw_key, raw_value in zip(batch, raw_keys, state.values(raw_keys), strict=True):
                    if raw_value is None:
                        continue
                    try:
                        record = decode(raw_value) if seal is None else seal.decode(raw_key, raw_value)
                    except CorruptionError as error:
                        raise corrupted(table, raw_key, error) from error
                    yield key, record
                    if remaining is not None:
                        remaining -= 1

    def _rows(
        self, listed: Listing, limit: int | None, *, reverse: bool
    ) -> Iterator[Versioned[object, object] | Damaged[object]]:
        """As `_records`, with histories, and what cannot be read in its place."""
        table, remaining = self._index.table, limit
        with self._reader.pinned() as state:
            found = self._primary_keys(state, listed=listed, reverse=reverse, pointed_at=self._key_or_damaged)
            while batch := list(islice(found, _batch_size(remaining))):
                entries = state.get_many(list(map(self._raw_key_of, batch)))
                for key, entry in zip(batch, entries, strict=True):
                    if entry is not None:
                        yield key if isinstance(key, Damaged) else row_of(table, key, entry, state.epoch)
                        if remaining is not None:
                            remaining -= 1

    def _keys(self, listed: Listing, limit: int | None, *, reverse: bool) -> Iterator[object]:
        with self._reader.pinned() as state:
            yield from islice(self._primary_keys(state, listed=listed, reverse=reverse), limit)

    def _raw_key_of(self, key: object) -> bytes:
        # Why a damaged entry's own key: it is there in the same state, so that its row comes in its place.
        return key.raw_key if isinstance(key, Damaged) else self._index.table.keys.encode(key)

    def _primary_keys(
        self,
        reader: EntryReads,
        listed: Listing,
        *,
        reverse: bool,
        pointed_at: Callable[[Entry], object] | None = None,
    ) -> Iterator[object]:
        """What the listed entries point at. What else stands in their range is not shown."""
        if reader.value(self._state_key) is not None:
            refuse_unreadable(self._index, reader.get(self._state_key))
        if listed.range.is_empty:
            return
        read = listed.read
        if self._index.spec.is_unique:
            pointed_at = pointed_at or self._pointed_at
            for entry in reader.scan(listed.range, reverse=reverse, keys_only=False):
                if read(entry.key) is not None:
                    yield pointed_at(entry)
            return
        if listed.last is not None and self._index.table.spec.key.is_scalar:
            # Why: in each key all but the record's is the same; to split it again takes most of the time of a list.
            entries = reader.scan(listed.range, reverse=reverse, keys_only=True)
            yield from (key for entry in entries if (key := listed.last(entry.key)) is not None)
            return
        primary_of, is_exact = self._index.primary_of, listed.is_exact
        for entry in reader.scan(listed.range, reverse=reverse, keys_only=True):
            key = primary_of(entry.key, b"")
            if key is not None and (is_exact or read(entry.key) is not None):
                yield key

    def _pointed_at(self, entry: Entry) -> object:
        return self._index.primary_key(entry.key, entry.value)

    def _key_or_damaged(self, entry: Entry) -> object:
        try:
            return self._pointed_at(entry)
        except CorruptionError as error:
            return Damaged(None, entry.key, entry.mod_revision, error)


def _batch_size(remaining: int | None) -> int:
    return _BATCH_RECORDS_MAX if remaining is None else min(remaining, _BATCH_RECORDS_MAX)


class UniqueEntries(IndexEntries, UniqueView[object, object, object]):
    """A unique index on a reader."""

    def one(self, key: object) -> object | None:
        found = self._found(key)
        return None if found is None else decode_record(self._index.table, *found)

    def require(self, key: object) -> object:
        found = self._found(key)
        if found is None:
            raise NotFoundError(table=self._index.table.name, index=self._index.name, key=key)
        return decode_record(self._index.table, *found)

    def key_of(self, key: object) -> object | None:
        with self._reader.pinned() as state:
            return self._primary_key(state, key)

    def _found(self, key: object) -> tuple[bytes, bytes] | None:
        """The raw key and value of the record that the entry leads to, or None."""
        with self._reader.pinned() as state:
            primary_key = self._primary_key(state, key)
            if primary_key is None:
                return None
            raw_key = self._index.table.keys.encode(primary_key)
            raw_value = state.value(raw_key)
            return None if raw_value is None else (raw_key, raw_value)

    def _primary_key(self, state: EntryReads, key: object) -> object | None:
        raw_key = self._index.keys.encode(key)
        # Why together: over a network it is one round trip. Why values: every look-up comes here, and entries cost more.
        stage, raw_value = state.values((self._state_key, raw_key))
        if stage is not None:
            refuse_unreadable(self._index, state.get(self._state_key))
        return None if raw_value is None else self._index.primary_key(raw_key, raw_value)
