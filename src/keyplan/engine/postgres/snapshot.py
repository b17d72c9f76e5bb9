"""Reads of one state: a transaction of the server, begun by the first read, on a connection of its own until it is closed."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakSet

from keyplan.engine.interface import Entry, KeyRange, Snapshot
from keyplan.engine.postgres.failures import NAME, PostgresError
from keyplan.engine.postgres.options import KEY_BYTES_MAX
from keyplan.engine.postgres.pool import Pool
from keyplan.engine.postgres.session import Request, Result, Session
from keyplan.engine.postgres.statements import BEGIN_SNAPSHOT, Statements
from keyplan.engine.postgres.transactions import end_of
from keyplan.engine.postgres.wire import bytes_array, number
from keyplan.errors import EngineError, EngineUnavailableError

__all__ = ["PostgresSnapshot", "Unread", "can_be_stored"]

Row = TypeVar("Row", bound=tuple[Any, ...])

_PAGE_ENTRIES_FIRST: Final = 100
"""Why: nothing is known of the values yet, and each may be large."""
_PAGE_ENTRIES_MAX: Final = 10_000
_PAGE_BYTES: Final = 4 << 20
"""What a page should hold. Why no more: a list shall not take more memory than a few pages."""
_PAGE_GROWTH_MAX: Final = 10
_BATCH_KEYS_MAX: Final = 10_000

_entry: Final[Callable[[Any], Entry]] = partial(tuple.__new__, Entry)
_plain: Final[Callable[[Any], tuple[Any, ...]]] = tuple


def can_be_stored(key: bytes) -> bool:
    """Tell whether there can be such a key at all: another one need not be asked for."""
    return 0 < len(key) <= KEY_BYTES_MAX


class Unread:
    """The snapshots that have read nothing yet, and so have no state of their own. A commit gives them one before it begins."""

    def __init__(self) -> None:
        self._snapshots: WeakSet[PostgresSnapshot] = WeakSet()
        self._lock = Lock()  # Invariant: held for an assignment, never over a call.

    def add(self, snapshot: "PostgresSnapshot") -> None:
        """Note a new snapshot."""
        with self._lock:
            self._snapshots.add(snapshot)

    def discard(self, snapshot: "PostgresSnapshot") -> None:
        """Forget a snapshot that has read, or was closed."""
        with self._lock:
            self._snapshots.discard(snapshot)

    def pin(self) -> None:
        """Let every one of them begin to read the present state."""
        if not self._snapshots:
            return
        with self._lock:
            snapshots = list(self._snapshots)
            self._snapshots.clear()
        for snapshot in snapshots:
            snapshot.pin()


class PostgresSnapshot(Snapshot):
    """The store as its first read finds it, or as it was before a later commit of its own engine."""

    def __init__(self, pool: Pool, statements: Statements, unread: Unread) -> None:
        self._pool = pool
        self._statements = statements
        self._unread = unread
        self._session: Session | None = None
        self._revision: int | None = None
        self._problem: EngineError | None = None
        self._is_closed = False
        self._along: tuple[bytes, ...] = ()  # what the next read brings along
        self._brought: dict[bytes, Entry | None] = {}
        self._beginning = Lock()  # held while the transaction is begun, by the reader or by a commit of another thread
        unread.add(self)

    @property
    def revision(self) -> int:
        if self._revision is None:
            self._revision = int(self._read(self._statements.revision).row()[0])
        self._check_open()
        return self._revision

    def read_along(self, keys: Sequence[bytes]) -> None:
        self._along = tuple(key for key in keys if can_be_stored(key))

    def get(self, key: bytes) -> Entry | None:
        if key in self._brought:
            self._check_open()
            return self._brought[key]
        if not can_be_stored(key):
            self._check_open()
            return None
        rows = self._read(self._statements.get, key).rows(_entry)
        return rows[0] if rows else None

    def value(self, key: bytes) -> bytes | None:
        if key in self._brought:
            return super().value(key)
        if not can_be_stored(key):
            self._check_open()
            return None
        found = self._read(self._statements.value, key).column()
        return found[0] if found else None

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._check_open()
        found: dict[bytes, Entry | None] = dict(self._brought)
        asked = [key for key in keys if key not in found and can_be_stored(key)]
        for first in range(0, len(asked), _BATCH_KEYS_MAX):
            batch = bytes_array(asked[first : first + _BATCH_KEYS_MAX])
            found |= {entry.key: entry for entry in self._read(self._statements.get_many, batch).rows(_entry)}
        return [found.get(key) for key in keys]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        columns = "bare" if keys_only else "entry"
        return chain.from_iterable(self._pages(columns, _entry, key_range, limit, reverse=reverse))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        pages = self._pages("key", _plain, key_range, limit, reverse=reverse)
        return map(itemgetter(0), chain.from_iterable(pages))

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(self._pages("pair", _plain, key_range, limit, reverse=reverse))

    def count(self, key_range: KeyRange) -> int:
        return int(self._read(self._statements.count, key_range.start, end_of(key_range)).row()[0])

    def close(self) -> None:
        self._is_closed = True
        if self._pool.is_foreign:
            return  # Trap: a lock may be held here for ever, by a thread that only the parent has
        self._unread.discard(self)
        with self._beginning:
            session, self._session = self._session, None
        if session is not None:
            self._pool.give(session, is_clean=False)

    def __del__(self) -> None:
        # Why: a snapshot that nobody closed would keep its connection, and the server the rows that it might read.
        # Trap: no lock is taken here; the thread that collects may hold it.
        if not self._is_closed and self._session is not None:
            self._pool.leave(self._session)

    def pin(self) -> None:
        """Begin to read, so that no later commit is seen. Where that fails, reading says why.

        It is a commit that asks for it, which shall not wait for the holders of other snapshots.
        """
        with self._beginning:
            if self._session is not None or self._is_closed:
                return
            try:
                self._revision = int(self._begin((self._statements.revision, ()), waits=False)[0].row()[0])
            except EngineError as error:
                self._problem = error

    # ---- one read --------------------------------------------------------------------------------------------------------

    def _pages(
        self, columns: str, make: Callable[[Any], Row], key_range: KeyRange, limit: int | None, *, reverse: bool
    ) -> Iterator[list[Row]]:
        statement = self._statements.pages[columns, reverse]
        start, end = key_range.start, end_of(key_range)
        page_entries = _PAGE_ENTRIES_FIRST
        left = limit
        while left is None or left > 0:
            wanted = page_entries if left is None else min(page_entries, left)
            rows = self._read(statement, start, end, number(wanted)).rows(make)
            yield rows
            if len(rows) < wanted:
                return
            last = rows[-1][0]
            # Why from the last key on: nothing is kept open on the server for a list that nobody reads to its end.
            start, end = (start, last) if reverse else (last + b"\x00", end)
            if left is not None:
                left -= len(rows)
            fitting = _PAGE_BYTES * len(rows) // max(_bytes_in(rows), 1)
            page_entries = max(1, min(fitting, page_entries * _PAGE_GROWTH_MAX, _PAGE_ENTRIES_MAX))

    def _read(self, statement: Any, *parameters: bytes) -> Result:
        self._check_open()
        requests: tuple[Request, ...] = ((statement, parameters),)
        if not self._along:
            return self._run(requests)[0]
        asked, brought = self._run((*requests, (self._statements.get_many, (bytes_array(self._along),))))
        self._brought = dict.fromkeys(self._along) | {entry.key: entry for entry in brought.rows(_entry)}
        self._along = ()
        return asked

    def _run(self, requests: tuple[Request, ...]) -> list[Result]:
        """Read in one round trip, which begins the transaction if it is the first."""
        if self._session is None:
            with self._beginning:
                if not self._has_begun():
                    self._unread.discard(self)
                    return self._begin(*requests)
            if self._problem is not None:
                raise self._problem
        session = self._session
        if session is None:
            raise EngineUnavailableError(engine=NAME, problem="the snapshot was closed")
        try:
            return session.run(*requests, give_up_at=self._pool.deadline())
        except PostgresError as failure:
            problem = f"the snapshot's connection broke: {failure.text}"
            self._problem = EngineUnavailableError(engine=NAME, problem=problem)
            raise self._problem from failure

    def _begin(self, *requests: Request, waits: bool = True) -> list[Result]:
        """Begin the transaction with its first read, in one round trip, and keep its connection."""

        def begin(session: Session, give_up_at: float) -> list[Result]:
            results = session.run((BEGIN_SNAPSHOT, ()), *requests, give_up_at=give_up_at)
            self._session = session
            return results[1:]

        return self._pool.attempt(begin, keeps=True, waits=waits)

    def _has_begun(self) -> bool:
        return self._session is not None or self._problem is not None

    def _check_open(self) -> None:
        self._pool.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the snapshot was closed")


def _bytes_in(rows: Sequence[tuple[Any, ...]]) -> int:
    if len(rows[0]) == 1:
        return sum(len(row[0]) for row in rows)
    return sum(len(row[0]) + len(row[1]) for row in rows)
