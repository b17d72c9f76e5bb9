"""What can be asked of a layout that is bound to something: the typed operations on tables, indexes and counters.

Only interfaces stand here. A store, a snapshot and a transaction implement them (keyplan.store); a layout instance is bound
to one of these through `Binding`. So `CloudChamber(store).racks` has its full type although this package knows no engine.

async_access.py says the same, awaited. It is made of this file: after a change here, run `python scripts/make_async.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TypeVar

from keyplan.layout.bound import BoundCounter, BoundIndex, BoundTable
from keyplan.layout.modes import Bindable, Sync
from keyplan.layout.rows import Change, Damaged, ExpectedRevision, LeaseHandle, Page, Versioned

__all__ = [
    "Binding",
    "Changes",
    "CounterView",
    "IndexView",
    "TableView",
    "UniqueView",
]

K = TypeVar("K")
V = TypeVar("V")
Q_contra = TypeVar("Q_contra", contravariant=True)
R = TypeVar("R")


class Changes(Protocol[K, V]):
    """Changes as they are committed: by revision, then by raw key; each once, none left out. Close it when done.

    Iterating waits for the next change, without end: until `close` is called, here or in another thread. Several writes of one
    record in one commit are one change; a rename is REMOVED and INSERTED in one revision; a record written again as it was is
    CHANGED. Apart from `close`, for one thread at a time.

    A record whose stored bytes do not decode raises CorruptionError (facts `table`, `key`, `raw_key`, `revision`) in its place;
    take it as gone until a later change of it. The next call goes on after it. HistoryCompactedError says that the history was
    compacted before it was read: list again, or use `follow`, which does. EngineUnavailableError: the store was closed. Any
    other exception, Ctrl-C for one, ends it; its token continues.
    """

    def __iter__(self) -> Iterator[Change[K, V]]: ...

    def __next__(self) -> Change[K, V]: ...

    def poll(self, timeout_seconds: float = 0.0) -> list[Change[K, V]]:
        """Wait at most so long for changes and return those there are; empty when there were none in time.

        Raises as iterating does, and EngineUnavailableError after `close`.
        """
        ...

    @property
    def token(self) -> str:
        """The place behind everything delivered so far, for `watch(after=...)`; empty while `follow` lists.

        Unlike the last change's token it moves on over commits that do not concern the list, so that it stays in the kept
        history for longer. It can be read after `close`.
        """
        ...

    def close(self) -> None:
        """End the watch, from any thread. Closing twice is harmless."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TableView(Protocol[K, V]):
    """A table of records bound to a store, a snapshot or a transaction.

    Bound to a store, each read sees the latest commit and each write is one commit, record and index entries together. Bound
    to a transaction, reads see the transaction's own writes and writes are collected until it commits. Bound to a snapshot,
    reads see one state and writes raise UnsupportedByEngineError.

    Every write returns the store's revision after its commit, or 0 inside a transaction, where it is not known yet.

    All keys are checked before anything is read or written: InvalidKeyError.

    A table declared with `lease=True` takes records on a lease only, and other tables none on a lease: `insert` and `put` raise
    InvalidRecordError otherwise, because the lint rests on the declaration. `lease` is what `store.lease` returns, or an id; a
    lease that is lost or gone raises LeaseNotFoundError. The record and its index entries are removed together when it ends.
    """

    def get(self, key: K) -> V | None:
        """Return the record at `key`, or None. Raises CorruptionError when stored bytes do not decode."""
        ...

    def require(self, key: K) -> V:
        """Return the record at `key`. Raises NotFoundError."""
        ...

    def exists(self, key: K) -> bool:
        """Tell whether there is a record at `key`. Does not decode it."""
        ...

    def versioned(self, key: K) -> Versioned[K, V] | None:
        """Return the record at `key` with its revisions, version and lease, or None."""
        ...

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the record or None for each key, in the order asked, all as of one revision."""
        ...

    def require_many(self, keys: Iterable[K]) -> list[V]:
        """Return the record at each key, in the order asked, as of one revision. Raises NotFoundError for the first absent."""
        ...

    def insert(self, key: K, record: V, *, lease: int | LeaseHandle = 0) -> int:
        """Add a record. Raises AlreadyExistsError when there is one at `key`, UniqueViolationError when an entry is taken."""
        ...

    def put(
        self,
        key: K,
        record: V,
        *,
        expected_revision: ExpectedRevision | None = None,
        lease: int | LeaseHandle = 0,
        damaged_ok: bool = False,
    ) -> int:
        """Write a record whether or not there is one; it leaves the lease that it was on for the one given, or for none.

        With `expected_revision` the record must be at it (0: absent), else StaleRecordError; see ExpectedRevision. Raises, too,
        UniqueViolationError; as `delete` does, CorruptionError.
        """
        ...

    def update(
        self, key: K, record: V, *, expected_revision: ExpectedRevision | None = None, damaged_ok: bool = False
    ) -> int:
        """Replace the record at `key`; it stays on its lease. Raises NotFoundError, and what `put` raises."""
        ...

    def modify(self, key: K, change: Callable[[V], V]) -> int:
        """Replace the record at `key` with `change(record)`, retried when another writer comes between. Raises NotFoundError.

        `change` may be called more than once and must not write.
        """
        ...

    def delete(
        self,
        key: K,
        *,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        damaged_ok: bool = False,
    ) -> int:
        """Remove the record at `key` and its index entries.

        Absent: nothing happens, unless `missing_ok` is False (NotFoundError) or a revision is expected (StaleRecordError).
        In a table with indexes a record that does not decode raises CorruptionError, unless `damaged_ok`: then the entries that
        point at it are looked for, through all entries of the indexes.
        """
        ...

    def rename(self, key: K, new_key: K) -> int:
        """Move the record to another key, with its index entries and lease. Raises NotFoundError, AlreadyExistsError."""
        ...

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Yield the records whose first key fields equal `prefix`, in key order: exactly these, none of a neighbour.

        The field after the prefix can be narrowed: `starts_with` keeps the values that begin with it (a deliberate partial
        match), `at_least` and `below` bound it from both sides (only where the codec keeps order). `limit` bounds the number.

        Bound to a store, the list is one state of it, read as it goes: a long list holds a snapshot until it is exhausted or
        closed; use `page` across long pauses.
        """
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[K]:
        """Yield what `list` would, without reading the records."""
        ...

    def entries(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[K, V]]:
        """Yield what `list` would, with revisions, version and lease."""
        ...

    def rows(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[K, V] | Damaged[K]]:
        """Yield what `entries` would, and in the place of a record that cannot be read a `Damaged`, instead of an error.

        For loops that one damaged record must not end. Damaged ones count for `limit`.
        """
        ...

    def count(self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None) -> int:
        """Return how many records `list` would yield."""
        ...

    def page(self, *prefix: object, starts_with: object = None, limit: int = 500, token: str = "") -> Page[K, V]:
        """Return at most `limit` records of the list and the token for the next page.

        A record that cannot be read is one of the `limit`, and stands in `damaged`; nothing behind it is out of reach.
        Each page is read from the latest state, in key order: a record that stands unchanged through all pages is seen once.
        The token holds the layout's fingerprint and the place in the list; one of another list or layout raises
        InvalidPageTokenError.
        """
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> Changes[K, V]:
        """Watch the changes of the records that `list` would yield.

        `after` is a revision or the token of a change: every later change is delivered, from history where needed. None: from
        now on. Bound to a store only, else UnsupportedByEngineError; so raises an engine that cannot watch.

        Raises HistoryCompactedError when that history is gone, InvalidWatchTokenError for a token of another list or layout, or
        of a revision that this store has not reached.
        """
        ...

    def follow(self, *prefix: object, starts_with: object = None, keep_records: bool = False) -> Changes[K, V]:
        """List and go on watching: first each record that `list` would yield as INSERTED, from one state, then every change.

        When the history was compacted before it was read, it lists again by itself and delivers the differences to what it had
        delivered, which then takes the place of the changes in between. For that it keeps the raw key and revision of each
        record (some 200 bytes and the key) and, with `keep_records`, its bytes; without, such a difference has no `old`.
        The list holds a snapshot until it was read. Raises as `watch` does.
        """
        ...


class UniqueView(Protocol[Q_contra, K, V]):
    """A unique index bound to a store, a snapshot or a transaction: at most one record for each index key."""

    def one(self, key: Q_contra) -> V | None:
        """Return the record that the index holds at `key`, or None. Index entry and record are read from one state."""
        ...

    def require(self, key: Q_contra) -> V:
        """Return the record that the index holds at `key`. Raises NotFoundError."""
        ...

    def key_of(self, key: Q_contra) -> K | None:
        """Return the primary key that the index holds at `key`, or None. Does not read the record."""
        ...

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Yield primary keys and records in the order of the index, where the first index fields equal `prefix`.

        The field after the prefix can be narrowed as in a table's list.
        """
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[K]:
        """Yield the primary keys that `list` would, without reading the records."""
        ...

    def rows(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[K, V] | Damaged[K]]:
        """Yield what `list` would, with revisions, version and lease; in the place of what cannot be read a `Damaged`.

        That is a record, or the index entry itself. For loops that one damaged record must not end.
        """
        ...

    def count(self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None) -> int:
        """Return the number of index entries."""
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> Changes[K, V]:
        """Watch the changes of the records that `list` would yield, by the entries that each record has.

        A record with several entries in the list is one record: CHANGED while it keeps any of them.

        `after` is a revision or the token of a change: every later change is delivered, from history where needed. None: from
        now on. Bound to a store only, else UnsupportedByEngineError; so raises an engine that cannot watch.

        Raises HistoryCompactedError when that history is gone, InvalidWatchTokenError for a token of another list or layout, or
        of a revision that this store has not reached.
        """
        ...


class IndexView(Protocol[K, V]):
    """An index bound to a store, a snapshot or a transaction: any number of records for each index key."""

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Yield primary keys and records in the order of the index, where the first index fields equal `prefix`.

        The field after the prefix can be narrowed as in a table's list. The fields of the primary key come after those of the
        index: behind a whole index key `at_least` says from which record on. Entries and records are read from one state.
        """
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[K]:
        """Yield the primary keys that `list` would, without reading the records."""
        ...

    def rows(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Versioned[K, V] | Damaged[K]]:
        """Yield what `list` would, with revisions, version and lease; in the place of what cannot be read a `Damaged`.

        That is a record, or the index entry itself. For loops that one damaged record must not end.
        """
        ...

    def count(self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None) -> int:
        """Return the number of index entries."""
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> Changes[K, V]:
        """Watch the changes of the records that `list` would yield, by the entries that each record has.

        A record with several entries in the list is one record: CHANGED while it keeps any of them.

        `after` is a revision or the token of a change: every later change is delivered, from history where needed. None: from
        now on. Bound to a store only, else UnsupportedByEngineError; so raises an engine that cannot watch.

        Raises HistoryCompactedError when that history is gone, InvalidWatchTokenError for a token of another list or layout, or
        of a revision that this store has not reached.
        """
        ...


class CounterView(Protocol):
    """A counter bound to a store, a snapshot or a transaction: hands out each number once."""

    def next(self, count: int = 1) -> int:
        """Take `count` numbers and return the first. Numbers taken by a transaction that fails are handed out again."""
        ...

    def peek(self) -> int:
        """Return the number that `next` would."""
        ...

    def advance_to(self, number: int) -> int:
        """Raise the counter so that `next` returns at least `number`; return what it will be. Never lowers it."""
        ...


class Binding(Bindable[Sync], Protocol):
    """What a layout can be bound to: a store, a snapshot or a transaction."""

    @property
    def use(self) -> type[Sync]:
        """Sync."""
        return Sync

    @property
    def revision(self) -> int:
        """The latest revision known: of the store, of the snapshot, or of the transaction's commit (0 before it)."""
        ...

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        """Return the operations on one table."""
        ...

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        """Return the operations on one unique index."""
        ...

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        """Return the operations on one index."""
        ...

    def counter_view(self, counter: BoundCounter) -> CounterView:
        """Return the operations on one counter."""
        ...

    def begin(self) -> AbstractContextManager["Binding"]:
        """Begin a transaction; it commits when the block ends, unless by an error."""
        ...

    def pinned(self) -> AbstractContextManager["Binding"]:
        """Pin a snapshot for the length of a block."""
        ...

    def attempt(self, work: Callable[["Binding"], R]) -> R:
        """Run `work` in a transaction, again when it lost a race, with bounded waits."""
        ...
