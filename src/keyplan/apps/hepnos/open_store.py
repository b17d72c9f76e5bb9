"""An open store of a HEPnOS service, as handles know it: raw reads and writes, many at once, queues."""

from collections.abc import Sequence
from concurrent.futures import Executor
from threading import Lock
from types import TracebackType
from typing import Any, Self

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.batch import MAX_OPERATIONS, AsyncEngine, WriteBatch
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.prefetch import Prefetcher
from keyplan.apps.hepnos.queues import QueueHome, Queues, StoredQueues
from keyplan.apps.hepnos.references import Ref
from keyplan.apps.hepnos.remote_frames import transport_to
from keyplan.apps.hepnos.remote_queues import RemoteQueues
from keyplan.engine import open_engine
from keyplan.errors import InvalidInputError
from keyplan.store import Store

__all__ = ["OpenStore"]


class OpenStore(StoreAccess):
    """An open store without its root: DataStore has that, and every store is one."""

    def __init__(self, databases: Databases, queue_home: RemoteQueues | None = None) -> None:
        """`queue_home` has the queues of a server that is reached already."""
        super().__init__(databases)
        self._lock = Lock()
        self._queue_home: RemoteQueues | StoredQueues | None = queue_home

    @property
    def address(self) -> Address:
        """By what another process opens it."""
        return self.databases.address

    def counts(self) -> dict[str, int]:
        """Return how many databases of each kind there are."""
        return {kind.value: len(ring.databases) for kind, ring in self.databases.rings.items()}

    def resolve(self, ref: Ref, type: Any = None) -> Any:  # noqa: A002  # Why: as above.
        """Return what a reference points at; see `Ref.load`. Raises InvalidInputError for what is no reference."""
        found = getattr(ref, "ref", ref)  # Why: in a record of a table a reference is a record, which has it.
        if not isinstance(found, Ref):
            raise InvalidInputError(source="reference", problem=f"it is a hepnos.Ref, not {ref.__class__.__name__}")
        return found.load(self, type)

    # ---- many at once --------------------------------------------------------------------------------------------------

    def batch(
        self, *, max_operations: int = MAX_OPERATIONS, atomic: bool = False, engine: AsyncEngine | None = None
    ) -> WriteBatch:
        """Return a batch that gathers writes, for a `with` block: `create(..., into=batch)`; see `WriteBatch`."""
        return WriteBatch(self, max_operations=max_operations, atomic=atomic, engine=engine)

    def async_engine(self, *, threads: int = 1, executor: Executor | None = None) -> AsyncEngine:
        """Return what writes in the background, for a `with` block: `create(..., into=engine)`; see `AsyncEngine`."""
        return AsyncEngine(self, threads=threads, executor=executor)

    def prefetch(
        self, *, cache: int = 1_024, batch: int = 1_024, products: Sequence[tuple[str, Any]] = ()
    ) -> Prefetcher:
        """Return what reads containers and products ahead; see `Prefetcher`."""
        return Prefetcher(self, cache=cache, batch=batch, products=products)

    @property
    def queues(self) -> Queues:
        """The queues of the store, in a database of their own, which is made when it is first asked for, or of its server."""
        return Queues(self.queue_home())

    def queue_home(self) -> QueueHome:
        """Return where the queues are made and opened. The first call opens it."""
        with self._lock:
            if self._queue_home is None:
                if self.address.is_server:
                    # Why a connection of its own: who waits for an item asks again and again.
                    self._queue_home = RemoteQueues(transport_to(self.address.url, token=self.address.token))
                else:
                    self._queue_home = StoredQueues(Store(self.address.queues()), Store(open_engine("memory:")))
            return self._queue_home

    # ---- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the databases. Closing twice is harmless."""
        self.databases.close()
        if self._queue_home is not None:
            self._queue_home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
