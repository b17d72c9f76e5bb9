"""One state of a store to read from: what a layout is bound to inside `with chamber.snapshot()`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from keyplan.engine import Engine
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
from keyplan.store.follow import NoWatcher
from keyplan.store.indexes import IndexEntries, UniqueEntries
from keyplan.store.reader import KeyRef, Reader, raw_keys_of
from keyplan.store.tables import CounterNumber, TableRecords
from keyplan.store.writer import NoWriter

__all__ = ["PinnedState"]

R = TypeVar("R")


class PinnedState(Binding):
    """All reads of every layout bound to it see the same state; writes raise UnsupportedByEngineError."""

    def __init__(self, reader: Reader, engine: Engine) -> None:
        self._reader = reader
        self._no_writer = NoWriter(engine)
        self._no_watcher = NoWatcher(engine, "a snapshot")

    @property
    def revision(self) -> int:
        """The revision that is read."""
        return self._reader.revision

    def read_ahead(self, *refs: KeyRef) -> None:
        """Read what stands at these keys at once, so that views bound afterwards find it read. Raises InvalidKeyError."""
        self._reader.read_ahead(raw_keys_of(refs))

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        return TableRecords(table, self._reader, self._no_writer, self._no_watcher)

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        return UniqueEntries(index, self._reader, self._no_watcher)

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        return IndexEntries(index, self._reader, self._no_watcher)

    def counter_view(self, counter: BoundCounter) -> CounterView:
        return CounterNumber(counter, self._reader, self._no_writer)

    def begin(self) -> AbstractContextManager[Binding]:
        """Raise UnsupportedByEngineError: a transaction would not see this state, but the latest."""
        self._no_writer.refuse()

    def attempt(self, work: Callable[[Binding], R]) -> R:
        """Raise UnsupportedByEngineError, as `begin` does."""
        self._no_writer.refuse()

    def pinned(self) -> AbstractContextManager[Binding]:
        """Give this state: it is pinned already."""
        return nullcontext(self)
