"""A store: an engine that layouts are bound to. Reads see the latest commit; each write is one commit."""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlencode

from keyplan.codec import SecretCipher
from keyplan.engine import NO_LEASE, SYSTEM_CLOCK, Backoff, Clock, Engine, open_engine
from keyplan.engine import Lease as EngineLease
from keyplan.errors import InvalidInputError, LeaseNotFoundError
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
from keyplan.store.access import LatestReader, SnapshotReader
from keyplan.store.commits import CommitWriter, Explanation
from keyplan.store.decoding import check_whole
from keyplan.store.follow import EngineWatcher
from keyplan.store.indexes import IndexEntries, UniqueEntries
from keyplan.store.layout_check import LayoutCheck, LayoutChecker, checked_reaction
from keyplan.store.lease import Keeper, Lease, LeaseKeeper
from keyplan.store.tables import CounterNumber, TableRecords
from keyplan.store.transaction import PinnedState, Transaction

__all__ = ["Store", "open_store", "url_with_options"]

R = TypeVar("R")

_ANY_SECONDS: Final = 1.0
"""An engine wants a time to live with every call; a lease that is resumed keeps its own."""


def open_store(
    url: str, *, secrets: SecretCipher | None = None, layout_check: LayoutCheck = "warn", **options: str | int | bool
) -> "Store":
    """Open the store that `url` names: `memory:`, `lmdb:PATH`, ...; `options` are the URL's, as in `history="off"`.

    `secrets` are the keys of sealed secrets, `layout_check` what becomes of layouts that are not the store's; see `Store`.
    Close it, or use it in a `with` block. Raises EngineOpenError.
    """
    reaction = checked_reaction(layout_check)
    return Store(open_engine(url_with_options(url, options)), secrets=secrets, layout_check=reaction)


def url_with_options(url: str, options: Mapping[str, str | int | bool]) -> str:
    """Return the URL with further options: `history="off"` as `history=off`, True as `true`."""
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return url + (("&" if "?" in url else "?") + urlencode(words) if words else "")


class Store(Binding):
    """An engine with layouts on it: `CloudChamber(store)`. Safe for use by several threads.

    The store owns the engine: closing one closes the other. `backoff` says how long to wait after a lost race, `clock` when
    leases are due, `keeper` who renews them (a thread of the store's own). With `secrets`, a `keyplan.SecretKeys`, the secrets
    of records are sealed when they are written, and those that are sealed can be revealed.

    A store notes which layouts programs may use, once it was migrated. One that is bound and is none of them is told, by
    `layout_check`: "warn" makes a LayoutWarning of it, "refuse" raises LayoutMismatchError; with "off", for whoever takes care
    of the store rather than uses it, nobody looks. Each layout is looked at once, by one short read.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        backoff: Backoff | None = None,
        clock: Clock = SYSTEM_CLOCK,
        keeper: Keeper | None = None,
        secrets: SecretCipher | None = None,
        layout_check: LayoutCheck = "off",
    ) -> None:
        self.secrets = secrets
        self._layouts = LayoutChecker(engine, layout_check)
        self.known_layouts = self._layouts.known
        self._engine = engine
        self._backoff = backoff if backoff is not None else Backoff()
        self._reader = LatestReader(engine)
        self._writer = CommitWriter(engine, self._backoff)
        self._watcher = EngineWatcher(engine)
        self._clock = clock
        self._keeper = LeaseKeeper(engine, clock) if keeper is None else keeper

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
        return Transaction(self._engine, secrets=self.secrets, layouts=self._layouts)

    def run(self, work: Callable[[Transaction], R]) -> R:
        """Call `work` with a transaction, commit it, and return what `work` returned.

        Again from the start, with a new transaction and a growing wait, when it lost a race: `work` must do nothing but read
        and write through the transaction. Raises what `work` raises; CommitConflictError after COMMIT_RETRIES_MAX lost races;
        CommitOutcomeUnknownError, never retried.
        """

        def attempt() -> R:
            with self.transaction() as transaction:
                answer = work(transaction)
                transaction.commit_or_conflict()
                return answer

        return self._backoff.until_committed(attempt)

    @contextmanager
    def snapshot(self) -> Generator[PinnedState, None, None]:
        """Pin the latest state for the length of a block: all reads see it, and writes raise UnsupportedByEngineError."""
        with self._engine.snapshot() as snapshot:
            yield PinnedState(SnapshotReader(snapshot), self._engine, secrets=self.secrets, layouts=self._layouts)

    def explain(self, work: Callable[[Transaction], object]) -> Explanation:
        """Return the commit that `work` would make now, and write nothing.

        `print(store.explain(lambda tx: CloudChamber(tx).racks.delete("rack1")))` shows each guard and mutation. Raises what
        `work` raises.
        """
        with self.transaction() as transaction:
            work(transaction)
            explanation = transaction.explained()
            transaction.close()
            return explanation

    def lease(
        self, ttl_seconds: float, *, on_loss: Callable[[Lease], object] | None = None, keep_alive: bool = True
    ) -> Lease:
        """Grant a lease: records inserted with `lease=` are removed when it ends; see `Lease`. Use it in a `with` block.

        With `keep_alive` one thread of the store renews it, as all others, at a third of its time, and tries again when that
        fails, until its time is over. Without, call its `keep_alive`. `on_loss` is called once when it is lost, within about a
        third of its time, or when its time is over. Raises UnsupportedByEngineError, InvalidInputError.
        """
        if isinstance(ttl_seconds, bool) or not isinstance(ttl_seconds, int | float):
            problem = f"must be a number of seconds, not a {type(ttl_seconds).__name__}"
            raise InvalidInputError(source="ttl_seconds", problem=problem)
        # Why before the call: the engine starts the time somewhere during it.
        begun = self._clock.monotonic()
        lease = self._engine.lease(ttl_seconds)
        return self._held(lease, on_loss, begun + lease.ttl_seconds, keep_alive=keep_alive, is_resumed=False)

    def resume_lease(
        self, lease_id: int, *, on_loss: Callable[[Lease], object] | None = None, keep_alive: bool = True
    ) -> Lease:
        """Take up a living lease by its id, for instance after a restart, with the time to live that it was granted with.

        Its time starts again only when it is renewed, which `keep_alive` does at once. Raises LeaseNotFoundError.
        """
        check_whole(lease_id, "lease_id")
        if lease_id == NO_LEASE:
            raise LeaseNotFoundError(lease=lease_id)
        lease = self._engine.lease(_ANY_SECONDS, resume=lease_id)
        begun = self._clock.monotonic()
        # Why a second: an engine that counts in whole seconds says 0 of what has less.
        lives_until = begun + max(lease.seconds_left(), _ANY_SECONDS)
        return self._held(lease, on_loss, lives_until, keep_alive=keep_alive, is_resumed=True)

    def _held(
        self,
        lease: EngineLease,
        on_loss: Callable[[Lease], object] | None,
        lives_until: float,
        *,
        keep_alive: bool,
        is_resumed: bool,
    ) -> Lease:
        held = Lease(
            lease,
            clock=self._clock,
            on_loss=on_loss,
            on_end=self._keeper.forget,
            tell=self._keeper.tell,
            is_kept_alive=keep_alive,
            lives_until=lives_until,
        )
        self._keeper.keep(held, is_resumed=is_resumed)
        return held

    def close(self) -> None:
        """Close the engine. The leases that are held here are lost; they live out their time. Closing twice is harmless."""
        self._keeper.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what a layout asks of its binding -----------------------------------------------------------------------------

    def check_layout(self, layout: BoundLayout) -> None:
        """Say, or refuse, that a layout is not the one that the store is in. Raises LayoutMismatchError."""
        self._layouts.check(layout)

    def table_view(self, table: BoundTable) -> TableView[object, object]:
        return TableRecords(table, self._reader, self._writer, self._watcher)

    def unique_view(self, index: BoundIndex) -> UniqueView[object, object, object]:
        return UniqueEntries(index, self._reader, self._watcher)

    def index_view(self, index: BoundIndex) -> IndexView[object, object]:
        return IndexEntries(index, self._reader, self._watcher)

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
