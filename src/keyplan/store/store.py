"""A store: an engine that layouts are bound to. Reads see the latest commit; each write is one commit."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlencode

from keyplan.engine import Engine, open_engine
from keyplan.layout import (
    Binding,
    BoundCounter,
    BoundIndex,
    BoundTable,
    CounterView,
    IndexView,
    TableView,
    UniqueView,
)
from keyplan.store.commits import CommitWriter
from keyplan.store.counters import CounterNumber
from keyplan.store.explanation import Explanation
from keyplan.store.indexes import IndexEntries, UniqueEntries
from keyplan.store.reader import LatestReader, SnapshotReader
from keyplan.store.retry import Backoff
from keyplan.store.snapshot import PinnedState
from keyplan.store.tables import TableRecords
from keyplan.store.transaction import Transaction

__all__ = ["Store", "open_store"]

R = TypeVar("R")


def open_store(url: str, **options: str | int | bool) -> "Store":
    """Open the store that `url` names: `memory:`, `lmdb:PATH`, ...; `options` are the URL's, as in `history="off"`.

    Close it, or use it in a `with` block. Raises EngineOpenError.
    """
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    query = ("&" if "?" in url else "?") + urlencode(words) if words else ""
    return Store(open_engine(url + query))


class Store(Binding):
    """An engine with layouts on it: `CloudChamber(store)`. Safe for use by several threads.

    The store owns the engine: closing one closes the other. `backoff` says how long to wait after a lost race.
    """

    def __init__(self, engine: Engine, *, backoff: Backoff | None = None) -> None:
        self._engine = engine
        self._backoff = backoff if backoff is not None else Backoff()
        self._reader = LatestReader(engine)
        self._writer = CommitWriter(engine, self._backoff)

    @property
    def engine(self) -> Engine:
        """The engine below: raw keys and values."""
        return self._engine

    @property
    def revision(self) -> int:
        """The revision of the latest commit."""
        return self._reader.revision

    def transaction(self) -> Transaction:
        """Return a transaction, to be used in a `with` block; see there for what its commit raises."""
        return Transaction(self._engine)

    def run(self, work: Callable[[Transaction], R]) -> R:
        """Call `work` with a transaction, commit it, and return what `work` returned.

        Again from the start, with a new transaction and a growing wait, when it lost a race: `work` must do nothing but read
        and write through the transaction. Raises what `work` raises; CommitConflictError after COMMIT_RETRIES_MAX lost races;
        CommitOutcomeUnknownError, never retried.
        """

        def attempt() -> R:
            with Transaction(self._engine) as transaction:
                answer = work(transaction)
                transaction.commit_or_conflict()
                return answer

        return self._backoff.until_committed(attempt)

    @contextmanager
    def snapshot(self) -> Generator[PinnedState, None, None]:
        """Pin the latest state for the length of a block: all reads see it, and writes raise UnsupportedByEngineError."""
        with self._engine.snapshot() as snapshot:
            yield PinnedState(SnapshotReader(snapshot), self._engine.profile.name)

    def explain(self, work: Callable[[Transaction], object]) -> Explanation:
        """Return the commit that `work` would make now, and write nothing.

        `print(store.explain(lambda tx: CloudChamber(tx).racks.delete("rack1")))` shows each guard and mutation. Raises what
        `work` raises.
        """
        with Transaction(self._engine) as transaction:
            work(transaction)
            explanation = transaction.explained()
            transaction.close()
            return explanation

    def close(self) -> None:
        """Close the engine. Closing twice is harmless."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what a layout asks of its binding -----------------------------------------------------------------------------

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        return TableRecords(table, self._reader, self._writer)

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        return UniqueEntries(index, self._reader)

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        return IndexEntries(index, self._reader)

    def counter_view(self, counter: BoundCounter) -> CounterView:
        return CounterNumber(counter, self._reader, self._writer)

    def begin(self) -> Transaction:
        """Begin a transaction."""
        return self.transaction()

    def pinned(self) -> AbstractContextManager[Binding]:
        """Pin the latest state for the length of a block."""
        return self.snapshot()

    def attempt(self, work: Callable[[Binding], R]) -> R:
        """Run `work` in a transaction, again when it lost a race; see `run`."""
        return self.run(work)
