"""The operations on one table and on one counter, the same for a store, a snapshot and a transaction.

These differ in reader and writer. The promises stand in keyplan.layout's TableView and CounterView.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from msgspec import structs

from keyplan.engine import NO_LEASE, Entry
from keyplan.errors import CorruptionError, InvalidInputError, NotFoundError
from keyplan.layout import (
    BoundCounter,
    BoundTable,
    Changes,
    CounterView,
    Damaged,
    ExpectedRevision,
    LeaseHandle,
    Page,
    TableView,
    Versioned,
)
from keyplan.limits import PAGE_RECORDS_DEFAULT, PAGE_RECORDS_MAX
from keyplan.store.access import EntryReads, Reader, Writer
from keyplan.store.decoding import check_limit, check_whole, corrupted, decode_record, row_of, versioned
from keyplan.store.follow import Watcher
from keyplan.store.lease import lease_id_for
from keyplan.store.listing import Listing, PageToken, listing
from keyplan.store.watch import TableSelection

__all__ = ["CounterNumber", "TableRecords"]


R = TypeVar("R")


class TableRecords(TableView[object, object]):
    """A table on a reader, a writer and a watcher."""

    def __init__(self, table: BoundTable, reader: Reader, writer: Writer, watcher: Watcher) -> None:
        self._table = table
        self._reader = reader
        self._writer = writer
        self._watcher = watcher
        # Why: kept here, since every single read asks for them.
        self._encode = table.keys.encode
        self._decode = table.form.decode
        self._seal = table.seal
        self._read = reader.get
        self._read_value = reader.value

    # ---- single records ------------------------------------------------------------------------------------------------

    def get(self, key: object) -> object | None:
        raw_key = self._encode(key)
        raw_value = self._read_value(raw_key)
        if raw_value is None:
            return None
        try:
            record: object = self._decode(raw_value) if self._seal is None else self._seal.decode(raw_key, raw_value)
        except CorruptionError as error:
            raise corrupted(self._table, raw_key, error) from error
        return record

    def require(self, key: object) -> object:
        entry = self._read(self._encode(key))
        if entry is None:
            raise self._not_found(key)
        return self._record(entry)

    def exists(self, key: object) -> bool:
        return self._read(self._encode(key)) is not None

    def versioned(self, key: object) -> Versioned[object, object] | None:
        entry, epoch = self._reader.get_with_epoch(self._encode(key))
        return None if entry is None else versioned(self._table, key, entry, epoch)

    def get_many(self, keys: Iterable[object]) -> builtins.list[object | None]:
        entries = self._reader.get_many([self._encode(key) for key in keys])
        return [None if entry is None else self._record(entry) for entry in entries]

    def require_many(self, keys: Iterable[object]) -> builtins.list[object]:
        keys = tuple(keys)
        entries = self._reader.get_many([self._encode(key) for key in keys])
        for key, entry in zip(keys, entries, strict=True):
            if entry is None:
                raise self._not_found(key)
        return [self._record(entry) for entry in entries if entry is not None]

    # ---- writes --------------------------------------------------------------------------------------------------------

    def insert(self, key: object, record: object, *, lease: int | LeaseHandle = NO_LEASE) -> int:
        return self._writer.insert(self._table, key, record, lease=lease_id_for(self._table, lease))

    def put(
        self,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None = None,
        lease: int | LeaseHandle = NO_LEASE,
        damaged_ok: bool = False,
    ) -> int:
        return self._writer.put(
            self._table,
            key,
            record,
            expected_revision=expected_revision,
            lease=lease_id_for(self._table, lease),
            damaged_ok=damaged_ok,
        )

    def update(
        self,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None = None,
        damaged_ok: bool = False,
    ) -> int:
        return self._writer.update(self._table, key, record, expected_revision=expected_revision, damaged_ok=damaged_ok)

    def modify(self, key: object, change: Callable[[object], object]) -> int:
        return self._writer.modify(self._table, key, change)

    def delete(
        self,
        key: object,
        *,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        damaged_ok: bool = False,
    ) -> int:
        return self._writer.delete(
            self._table, key, expected_revision=expected_revision, missing_ok=missing_ok, damaged_ok=damaged_ok
        )

    def rename(self, key: object, new_key: object) -> int:
        return self._writer.rename(self._table, key, new_key)

    # ---- lists ---------------------------------------------------------------------------------------------------------

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[object, object]]:
        listed = listing(self._table, prefix, starts_with=starts_with, at_least=at_least, below=below)
        if limit is not None:
            check_limit(limit)
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
        listed = listing(self._table, prefix, starts_with=starts_with, at_least=at_least, below=below)
        check_limit(limit)
        return self._keys(listed, limit, reverse=reverse)

    def entries(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[object, object]]:
        listed = listing(self._table, prefix, starts_with=starts_with, at_least=at_least, below=below)
        check_limit(limit)
        return self._rows(listed, limit, versioned, reverse=reverse)

    def rows(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[object, object] | Damaged[object]]:
        listed = listing(self._table, prefix, starts_with=starts_with, at_least=at_least, below=below)
        check_limit(limit)
        return self._rows(listed, limit, row_of, reverse=reverse)

    def count(self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None) -> int:
        # Why: not the engine's count of the range: keys of other templates may lie between those of this one.
        listed = listing(self._table, prefix, starts_with=starts_with, at_least=at_least, below=below)
        return sum(1 for _ in self._keys(listed, None, reverse=False))

    def page(
        self, *prefix: object, starts_with: object = None, limit: int = PAGE_RECORDS_DEFAULT, token: str = ""
    ) -> Page[object, object]:
        check_whole(limit, "limit")
        if not 1 <= limit <= PAGE_RECORDS_MAX:
            raise InvalidInputError(source="limit", problem=f"a page has 1 to {PAGE_RECORDS_MAX} records, not {limit}")
        listed = listing(self._table, prefix, starts_with=starts_with)
        whole = listed.range
        place = PageToken.read(token, self._table, listed) if token else None
        rest = whole if place is None else place.rest_of(whole)
        with self._reader.pinned() as state:
            found = list(islice(_found(state, structs.replace(listed, range=rest), reverse=False), limit + 1))
            revision, epoch = state.revision, state.epoch
        if place is not None:
            place.check_reached(revision, self._table)
        rows = [row_of(self._table, key, entry, epoch) for key, entry in found[:limit]]
        records = [(row.key, row.record) for row in rows if isinstance(row, Versioned)]
        damaged = [row for row in rows if isinstance(row, Damaged)]
        last = found[limit - 1][1].key if len(found) > limit else None
        token = "" if last is None else PageToken.after(last, self._table, listed, revision).text
        return Page(records, token, revision, damaged)

    # ---- watches -------------------------------------------------------------------------------------------------------

    def watch(
        self, *prefix: object, starts_with: object = None, after: int | str | None = None
    ) -> Changes[object, object]:
        return self._watcher.watch(self._selection(prefix, starts_with), after)

    def follow(
        self, *prefix: object, starts_with: object = None, keep_records: bool = False
    ) -> Changes[object, object]:
        return self._watcher.follow(self._selection(prefix, starts_with), keep_records=keep_records)

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _selection(self, prefix: tuple[object, ...], starts_with: object) -> TableSelection:
        return TableSelection(self._table, listing(self._table, prefix, starts_with=starts_with))

    def _records(self, listed: Listing, limit: int | None, *, reverse: bool) -> Iterator[tuple[object, object]]:
        """Yield the listed keys with their records: one loop, since every list goes through it."""
        if limit == 0:
            return
        read, decode, seal, remaining = listed.read, self._decode, self._seal, limit
        with self._reader.pinned() as state:
            for raw_key, raw_value in state.pairs(listed.range, reverse=reverse):
                key = read(raw_key)
                if key is None:
                    continue
                try:
                    record = decode(raw_value) if seal is None else seal.decode(raw_key, raw_value)
                except CorruptionError as error:
                    raise corrupted(self._table, raw_key, error) from error
                yield key, record
                if remaining is not None:
                    remaining -= 1
                    if remaining == 0:
                        return

    def _keys(self, listed: Listing, limit: int | None, *, reverse: bool) -> Iterator[object]:
        if limit != 0:
            with self._reader.pinned() as state:
                for key, _ in islice(_found(state, listed, reverse=reverse, keys_only=True), limit):
                    yield key

    def _record(self, entry: Entry) -> object:
        return decode_record(self._table, entry.key, entry.value)

    def _rows(
        self,
        listed: Listing,
        limit: int | None,
        make: Callable[[BoundTable, object, Entry, str], R],
        *,
        reverse: bool,
    ) -> Iterator[R]:
        if limit != 0:
            with self._reader.pinned() as state:
                for key, entry in islice(_found(state, listed, reverse=reverse), limit):
                    yield make(self._table, key, entry, state.epoch)

    def _not_found(self, key: object) -> NotFoundError:
        return NotFoundError(table=self._table.name, key=key)


def _found(
    state: EntryReads, listed: Listing, *, reverse: bool, keys_only: bool = False
) -> Iterator[tuple[object, Entry]]:
    """Yield the keys that are listed, with what is stored there; what else stands in their range is not shown."""
    read = listed.read
    for entry in state.scan(listed.range, reverse=reverse, keys_only=keys_only):
        key = read(entry.key)
        if key is not None:
            yield key, entry


# ---- counters ---------------------------------------------------------------------------------------------------------

_NUMBER_MAX: Final = 2**64 - 1
"""Why: a binary counter is stored in eight bytes; text counters keep to the same bound, so that the form can change."""


class CounterNumber(CounterView):
    """A counter on a reader and a writer."""

    def __init__(self, counter: BoundCounter, reader: Reader, writer: Writer) -> None:
        self._counter = counter
        self._reader = reader
        self._writer = writer

    def next(self, count: int = 1) -> int:
        check_whole(count, "count")
        if count < 1:
            raise InvalidInputError(source="count", problem=f"a counter hands out at least one number, not {count}")
        before, _ = self._writer.move_counter(self._counter, lambda number: self._checked(number + count))
        return before

    def peek(self) -> int:
        entry = self._reader.get(self._counter.raw_key)
        return self._counter.start if entry is None else self._counter.decode(entry.value)

    def advance_to(self, number: int) -> int:
        check_whole(number, "number")
        self._checked(number)
        _, after = self._writer.move_counter(self._counter, lambda now: max(now, number))
        return after

    def _checked(self, number: int) -> int:
        if number > _NUMBER_MAX:
            raise InvalidInputError(
                source="counter", counter=self._counter.name, problem=f"a counter ends at {_NUMBER_MAX}"
            )
        return number
