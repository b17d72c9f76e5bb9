"""The operations of access.py, awaited: what a layout instance has whose binding is asynchronous. Only interfaces stand here.

Each does what its twin of the same name promises; what is said here is what awaiting adds. A test holds the signatures equal.
Cancelling what is awaited ends it: a read leaves nothing behind; a write that was not sent yet was not made, and of one that
was sent the outcome is unknown, as after CommitOutcomeUnknownError. A call on another event loop than the store's raises
InvalidInputError.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from keyplan.layout.access import Change, LeaseHandle
from keyplan.layout.modes import Async, Bindable
from keyplan.layout.rows import Damaged, ExpectedRevision, Page, Versioned

if TYPE_CHECKING:
    from keyplan.layout.bound import BoundCounter, BoundIndex, BoundTable

__all__ = [
    "AsyncBinding",
    "AsyncChanges",
    "AsyncCounterView",
    "AsyncIndexView",
    "AsyncTableView",
    "AsyncUniqueView",
]

K = TypeVar("K")
V = TypeVar("V")
Q_contra = TypeVar("Q_contra", contravariant=True)
R = TypeVar("R")


class AsyncChanges(Protocol[K, V]):
    """`Changes`, iterated with `async for`. It begins when it is first awaited, entered or iterated.

    `async with chamber.racks.watch() as changes` begins before the block; so does `changes = await chamber.racks.watch()`.
    What `Changes` says of order, errors and tokens holds here. A wait that is cancelled or timed out loses nothing: the next
    one goes on there. It is for one task at a time, apart from `close`, and ends with its store.
    """

    def __await__(self) -> Generator[Any, None, Self]:
        """Begin to watch, and return this."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Change[K, V]: ...

    async def poll(self, timeout_seconds: float = 0.0) -> list[Change[K, V]]:
        """Wait at most so long for changes and return those there are; empty when there were none in time."""
        ...

    @property
    def token(self) -> str:
        """The place behind everything delivered so far; empty before it began, and while `follow` lists."""
        ...

    async def close(self) -> None:
        """End the watch, from any task. Closing twice is harmless."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AsyncTableView(Protocol[K, V]):
    """`TableView`, awaited. A list is read in parts as it is iterated; `contextlib.aclosing` ends one early at once."""

    async def get(self, key: K) -> V | None:
        """Return the record at `key`, or None. Raises CorruptionError when stored bytes do not decode."""
        ...

    async def require(self, key: K) -> V:
        """Return the record at `key`. Raises NotFoundError."""
        ...

    async def exists(self, key: K) -> bool:
        """Tell whether there is a record at `key`. Does not decode it."""
        ...

    async def versioned(self, key: K) -> Versioned[K, V] | None:
        """Return the record at `key` with its revisions, version and lease, or None."""
        ...

    async def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the record or None for each key, in the order asked, all as of one revision."""
        ...

    async def require_many(self, keys: Iterable[K]) -> list[V]:
        """Return the record at each key, in the order asked, as of one revision. Raises NotFoundError for the first absent."""
        ...

    async def insert(self, key: K, record: V, *, lease: int | LeaseHandle = 0) -> int:
        """Add a record. Raises AlreadyExistsError when there is one at `key`, UniqueViolationError when an entry is taken."""
        ...

    async def put(
        self,
        key: K,
        record: V,
        *,
        expected_revision: ExpectedRevision | None = None,
        lease: int | LeaseHandle = 0,
        damaged_ok: bool = False,
    ) -> int:
        """Write a record whether or not there is one. Raises StaleRecordError, UniqueViolationError."""
        ...

    async def update(
        self, key: K, record: V, *, expected_revision: ExpectedRevision | None = None, damaged_ok: bool = False
    ) -> int:
        """Replace the record at `key`. Raises NotFoundError, StaleRecordError, UniqueViolationError."""
        ...

    async def modify(self, key: K, change: Callable[[V], V]) -> int:
        """Replace the record at `key` with `change(record)`, retried when another writer comes between.

        `change` is a plain function, called in the event loop's thread. Raises NotFoundError.
        """
        ...

    async def delete(
        self,
        key: K,
        *,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        damaged_ok: bool = False,
    ) -> int:
        """Remove the record at `key` and its index entries. Raises NotFoundError, StaleRecordError."""
        ...

    async def rename(self, key: K, new_key: K) -> int:
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
    ) -> AsyncGenerator[tuple[K, V], None]:
        """Yield the records whose first key fields equal `prefix`, in key order."""
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[K, None]:
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
    ) -> AsyncGenerator[Versioned[K, V], None]:
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
    ) -> AsyncGenerator[Versioned[K, V] | Damaged[K], None]:
        """Yield what `entries` would, and in the place of a record that cannot be read a `Damaged`, instead of an error."""
        ...

    async def count(
        self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None
    ) -> int:
        """Return how many records `list` would yield."""
        ...

    async def page(self, *prefix: object, starts_with: object = None, limit: int = 500, token: str = "") -> Page[K, V]:
        """Return at most `limit` records of the list, those that cannot be read, and the token for the next page."""
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> AsyncChanges[K, V]:
        """Watch the changes of the records that `list` would yield; "from now on" is from when it begins."""
        ...

    def follow(self, *prefix: object, starts_with: object = None, keep_records: bool = False) -> AsyncChanges[K, V]:
        """List and go on watching: first each record that `list` would yield as INSERTED, then every change."""
        ...


class AsyncUniqueView(Protocol[Q_contra, K, V]):
    """`UniqueView`, awaited."""

    async def one(self, key: Q_contra) -> V | None:
        """Return the record that the index holds at `key`, or None. Index entry and record are read from one state."""
        ...

    async def require(self, key: Q_contra) -> V:
        """Return the record that the index holds at `key`. Raises NotFoundError."""
        ...

    async def key_of(self, key: Q_contra) -> K | None:
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
    ) -> AsyncGenerator[tuple[K, V], None]:
        """Yield primary keys and records in the order of the index, where the first index fields equal `prefix`."""
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[K, None]:
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
    ) -> AsyncGenerator[Versioned[K, V] | Damaged[K], None]:
        """Yield what `list` would, with revisions, version and lease; in the place of what cannot be read a `Damaged`."""
        ...

    async def count(
        self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None
    ) -> int:
        """Return the number of index entries."""
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> AsyncChanges[K, V]:
        """Watch the changes of the records that `list` would yield, by the entries that each record has."""
        ...


class AsyncIndexView(Protocol[K, V]):
    """`IndexView`, awaited."""

    def list(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[tuple[K, V], None]:
        """Yield primary keys and records in the order of the index, where the first index fields equal `prefix`."""
        ...

    def keys(
        self,
        *prefix: object,
        starts_with: object = None,
        at_least: object = None,
        below: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[K, None]:
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
    ) -> AsyncGenerator[Versioned[K, V] | Damaged[K], None]:
        """Yield what `list` would, with revisions, version and lease; in the place of what cannot be read a `Damaged`."""
        ...

    async def count(
        self, *prefix: object, starts_with: object = None, at_least: object = None, below: object = None
    ) -> int:
        """Return the number of index entries."""
        ...

    def watch(self, *prefix: object, starts_with: object = None, after: int | str | None = None) -> AsyncChanges[K, V]:
        """Watch the changes of the records that `list` would yield, by the entries that each record has."""
        ...


class AsyncCounterView(Protocol):
    """`CounterView`, awaited."""

    async def next(self, count: int = 1) -> int:
        """Take `count` numbers and return the first."""
        ...

    async def peek(self) -> int:
        """Return the number that `next` would."""
        ...

    async def advance_to(self, number: int) -> int:
        """Raise the counter so that `next` returns at least `number`; return what it will be. Never lowers it."""
        ...


class AsyncBinding(Bindable[Async], Protocol):
    """What a layout can be bound to asynchronously: a store, a snapshot or a transaction of keyplan.aio."""

    @property
    def use(self) -> type[Async]:
        """Async."""
        return Async

    @property
    def revision(self) -> Awaitable[int]:
        """The latest revision known, awaited: of the store, of the snapshot, or of the transaction's commit (0 before it)."""
        ...

    def table_view(self, table: "BoundTable") -> AsyncTableView[object, object]:
        """Return the operations on one table."""
        ...

    def unique_view(self, index: "BoundIndex") -> AsyncUniqueView[object, object, object]:
        """Return the operations on one unique index."""
        ...

    def index_view(self, index: "BoundIndex") -> AsyncIndexView[object, object]:
        """Return the operations on one index."""
        ...

    def counter_view(self, counter: "BoundCounter") -> AsyncCounterView:
        """Return the operations on one counter."""
        ...

    def begin(self) -> AbstractAsyncContextManager["AsyncBinding"]:
        """Begin a transaction; it commits when the block ends, unless by an error."""
        ...

    def pinned(self) -> AbstractAsyncContextManager["AsyncBinding"]:
        """Pin a snapshot for the length of a block."""
        ...

    def attempt(self, work: Callable[["AsyncBinding"], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        """Run `work` in a transaction, again when it lost a race, with bounded waits."""
        ...
