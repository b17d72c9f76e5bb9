"""What a layout is bound to in a block: a snapshot, one state to read; or a transaction, reads of one state with writes.

A transaction's writes are committed together at its end, or not at all.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self, TypeVar

from keyplan.codec import SecretCipher
from keyplan.engine import Commit, Engine, transaction_ended
from keyplan.errors import CommitConflictError, EngineLimitError
from keyplan.layout import (
    Binding,
    BoundCounter,
    BoundIndex,
    BoundLayout,
    BoundTable,
    CounterView,
    IndexView,
    TableView,
    UniqueView,
)
from keyplan.store.access import KeyRef, NoWriter, Reader, raw_keys_of
from keyplan.store.commits import Explanation, explain_conflict, explain_limit
from keyplan.store.follow import NoWatcher
from keyplan.store.indexes import IndexEntries, UniqueEntries
from keyplan.store.layout_check import LayoutChecker
from keyplan.store.session import Session
from keyplan.store.tables import CounterNumber, TableRecords

__all__ = ["PinnedState", "Transaction"]

# ---- a snapshot -----------------------------------------------------------------------------------------------------------


R = TypeVar("R")


class PinnedState(Binding):
    """All reads of every layout bound to it see the same state; writes raise UnsupportedByEngineError."""

    def __init__(
        self,
        reader: Reader,
        engine: Engine,
        *,
        secrets: SecretCipher | None = None,
        layouts: LayoutChecker | None = None,
    ) -> None:
        self.secrets = secrets
        self._layouts = layouts
        self.known_layouts = None if layouts is None else layouts.known
        self.engine = engine
        self.reader = reader
        self.reads_ahead = not engine.profile.has_local_reads
        self._no_writer = NoWriter(engine)
        self._no_watcher = NoWatcher(engine, "a snapshot")

    @property
    def revision(self) -> int:
        """The revision that is read."""
        return self.reader.revision

    def read_ahead(self, *refs: KeyRef) -> None:
        """Read what stands at these keys at once, so that views bound afterwards find it read.

        Nothing is read where a read waits for nothing (`reads_ahead`). Raises InvalidKeyError where something is.
        """
        if self.reads_ahead:
            self.reader.read_ahead(raw_keys_of(refs))

    def check_layout(self, layout: BoundLayout) -> None:
        """As the store does: a layout may be bound here first."""
        if self._layouts is not None:
            self._layouts.check(layout)

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        return TableRecords(table, self.reader, self._no_writer, self._no_watcher)

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        return UniqueEntries(index, self.reader, self._no_watcher)

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        return IndexEntries(index, self.reader, self._no_watcher)

    def counter_view(self, counter: BoundCounter) -> CounterView:
        return CounterNumber(counter, self.reader, self._no_writer)

    def begin(self) -> AbstractContextManager[Binding]:
        """Raise UnsupportedByEngineError: a transaction would not see this state, but the latest."""
        self._no_writer.refuse()

    def attempt(self, work: Callable[[Binding], R]) -> R:
        """Raise UnsupportedByEngineError, as `begin` does."""
        self._no_writer.refuse()

    def pinned(self) -> AbstractContextManager[Binding]:
        """Give this state: it is pinned already."""
        return nullcontext(self)


# ---- a transaction --------------------------------------------------------------------------------------------------------


class Transaction(Binding):
    """Collects reads and writes of any number of layouts bound to it: `CloudChamber(tx)`.

    All reads come from one state, taken at the first of them, overlaid with the transaction's own writes; a list shows the
    writes made before it began. Commits when its `with` block ends, and writes nothing when the block fails.

    The commit holds only if nothing that the transaction has read or assumed was changed by others: each record read is
    unchanged, each range listed (as far as it was consumed) has the same records. A transaction that wrote nothing has
    nothing to commit, and cannot fail there. Not for use by two threads at once.
    """

    def __init__(
        self, engine: Engine, *, secrets: SecretCipher | None = None, layouts: LayoutChecker | None = None
    ) -> None:
        self.secrets = secrets
        self._checker = layouts
        self.known_layouts = None if layouts is None else layouts.known
        self._engine = engine
        self._session = Session(engine)
        self._no_watcher = NoWatcher(engine, "a transaction")
        self._revision = 0
        self._is_ended = False
        self._layouts: dict[BoundLayout, None] = {}

    @property
    def revision(self) -> int:
        """The revision of the commit; 0 before it. Of a transaction that wrote nothing: the revision that it has read."""
        return self._revision

    @property
    def session(self) -> Session:
        """What was collected so far: for keyplan's own use."""
        return self._session

    def read_ahead(self, *refs: KeyRef) -> None:
        """Read what stands at these keys at once, so that the transaction's reads of it find it read. Raises InvalidKeyError.

        Reading ahead makes nothing a premise of the commit; a read of the same key does, as ever.
        """
        self._session.read_ahead(raw_keys_of(refs))

    # ---- what a layout asks of its binding -----------------------------------------------------------------------------

    def check_layout(self, layout: BoundLayout) -> None:
        """As the store does: a layout may be bound here first."""
        if self._checker is not None:
            self._checker.check(layout)

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        self._layouts[table.layout] = None
        return TableRecords(table, self._session, self._session, self._no_watcher)

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        self._layouts[index.table.layout] = None
        return UniqueEntries(index, self._session, self._no_watcher)

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        self._layouts[index.table.layout] = None
        return IndexEntries(index, self._session, self._no_watcher)

    def counter_view(self, counter: BoundCounter) -> CounterView:
        self._layouts[counter.layout] = None
        return CounterNumber(counter, self._session, self._session)

    @contextmanager
    def begin(self) -> Generator[Binding, None, None]:
        """Join this transaction: the block's writes are committed with it, or undone when the block fails."""
        self._check_open()
        with self._session.savepoint():
            yield self

    @contextmanager
    def pinned(self) -> Generator[Binding, None, None]:
        """Give the transaction's own view without the right to write."""
        self._check_open()
        yield PinnedState(self._session, self._engine, secrets=self.secrets, layouts=self._checker)

    def attempt(self, work: Callable[[Binding], R]) -> R:
        """Run `work` once, as a part of this transaction. Who began the transaction decides about another try."""
        with self.begin() as binding:
            return work(binding)

    # ---- the end -------------------------------------------------------------------------------------------------------

    def commit(self) -> int:
        """Commit now, and end the transaction. Return the revision.

        Raises AlreadyExistsError, StaleRecordError or UniqueViolationError when something expected in so many words does not
        hold any more, else CommitConflictError when something read was changed; EngineLimitError, CommitOutcomeUnknownError,
        LeaseNotFoundError. Whatever is raised, but for CommitOutcomeUnknownError, nothing was written.
        """
        try:
            return self.commit_or_conflict()
        except CommitConflictError as conflict:
            told = explain_conflict(conflict, self._session.writes, self._session.reads.read_set, self._engine.snapshot)
            if told is conflict:
                raise
            raise told from conflict

    def commit_or_conflict(self) -> int:
        """Commit as `commit` does, but raise every conflict as CommitConflictError, for a caller that tries again."""
        if self._is_ended:
            raise transaction_ended()
        commit = self._session.commit()
        if commit.mutations:
            self.close()
            try:
                self._revision = self._engine.commit(commit)
            except EngineLimitError as error:
                raise explain_limit(error, commit, self._engine.profile, self._session.writes) from error
        else:
            self._revision = self._session.revision
            self.close()
        return self._revision

    def collected(self) -> Commit:
        """Return the commit that the transaction would make now."""
        self._check_open()
        return self._session.commit()

    def explained(self) -> Explanation:
        """Return the commit that the transaction would make now, in a form for people."""
        return Explanation(self.collected(), tuple(self._layouts))

    def close(self) -> None:
        """End the transaction without writing anything; after a commit, do nothing."""
        # Why in this order: who is interrupted in between closes again.
        self._session.end()
        self._is_ended = True

    def _check_open(self) -> None:
        if self._is_ended:
            raise transaction_ended()

    def __enter__(self) -> Self:
        if self._is_ended:
            raise transaction_ended()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._is_ended:
                self.commit()
        finally:
            if not self._is_ended:
                self.close()
