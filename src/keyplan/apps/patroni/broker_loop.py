"""The broker's background work: operations that nobody works on are claimed, one thread for each, and carried out."""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread
from typing import Final

from keyplan.apps.patroni.backups.schedule import BackupSchedule
from keyplan.apps.patroni.broker_work import OperationWork
from keyplan.apps.patroni.catalog import Catalog
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.operation_progress import StoppedError, SupersededError, Waits
from keyplan.apps.patroni.operations import IN_PROGRESS, SUCCESS
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import Claim, Operation
from keyplan.apps.patroni.site_callbacks import SiteCallbacks
from keyplan.engine import Clock
from keyplan.errors import AlreadyExistsError, CorruptionError, KeyplanError
from keyplan.server import LOGGER
from keyplan.store import Store

__all__ = ["BrokerLoop"]

_LOOK_SECONDS: Final = 1.0
_OLD_SECONDS: Final = 24 * 3600.0
"""3.2: how long the end of a deletion can be asked for."""
_OLD_LOOK_SECONDS: Final = 600.0
_SCHEDULE_SECONDS: Final = 60.0
"""Why: it reads all instances, and backups are due by the hour."""
_DIGITS: Final = 4


class BrokerLoop:
    """Carries out operations of any broker of the store, at most `parallel` at a time. `start`, then `stop`; each once.

    `on_ended` is told of each operation that was ended here, from the thread that did it.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        *,
        parallel: int = 32,
        claim_seconds: float = 10.0,
        waits: Waits | None = None,
        callbacks: SiteCallbacks | None = None,
        ports: PortAllocator | None = None,
        on_ended: Callable[[Operation], None] = lambda _operation: None,
    ) -> None:
        self.name: Final = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(_DIGITS)}"
        self._store = store
        self._broker = Broker(store)
        self._catalog = catalog
        self._clock = clock
        self._parallel = parallel
        self._claim_seconds = claim_seconds
        self._waits = waits
        self._callbacks = callbacks
        self._ports = ports
        self._on_ended = on_ended
        self._schedule = BackupSchedule(store, clock)
        self._stop = Event()
        self._due = Event()
        self._lock = Lock()
        self._working: set[str] = set()
        self._damaged: dict[str | None, str] = {}
        self._executor = ThreadPoolExecutor(parallel, thread_name_prefix="patroni-operation")
        self._thread = Thread(target=self._run, name="patroni-broker", daemon=True)

    def start(self) -> None:
        """Begin to look for operations."""
        self._thread.start()

    def look_soon(self) -> None:
        """Look now rather than in a second: an operation was begun here."""
        self._due.set()

    def stop(self) -> None:
        """End all work at the next wait, and give the claims back. Blocks until that is done."""
        self._stop.set()
        self._due.set()
        self._thread.join()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        swept_at = scheduled_at = self._clock.monotonic()
        while not self._stop.is_set():
            try:
                self._look()
                if self._clock.monotonic() - swept_at > _OLD_LOOK_SECONDS:
                    swept_at = self._clock.monotonic()
                    self.forget_old()
                if self._clock.monotonic() - scheduled_at > _SCHEDULE_SECONDS:
                    scheduled_at = self._clock.monotonic()
                    self._schedule.begin_due()
            except KeyplanError as error:
                LOGGER.warning("the broker cannot read its store", extra={"facts": {"error": str(error)}})
            except Exception:  # noqa: BLE001  # Why: no other thread looks for operations, and nobody sees this one end.
                LOGGER.exception("a look for operations failed")
            self._due.wait(_LOOK_SECONDS)
            self._due.clear()

    def _look(self) -> None:
        for instance, operation in self._operations(IN_PROGRESS):
            with self._lock:
                if instance in self._working or len(self._working) >= self._parallel:
                    continue
                if self._stop.is_set() or self._broker.claims.exists(instance):
                    continue
                self._working.add(instance)
            try:
                self._executor.submit(self._carry_out, instance, operation.id)
            except RuntimeError:  # no thread can be had now: a later look takes it up
                with self._lock:
                    self._working.discard(instance)
                raise

    def _operations(self, status: str) -> Iterator[tuple[str, Operation]]:
        """The operations of a status. One that cannot be read is told of once, and the others are carried out."""
        return readable(self._broker.operations_by_status.rows(status), self._note_damage)

    def _note_damage(self, instance: str | None, error: CorruptionError) -> None:
        if self._damaged.get(instance) != str(error):
            self._damaged[instance] = str(error)
            facts = {"instance": instance, "error": str(error)}
            LOGGER.error("an operation cannot be read; nobody carries it out", extra={"facts": facts})

    def _carry_out(self, instance: str, operation: str) -> None:
        facts = {"instance": instance, "operation": operation}
        try:
            with self._store.lease(self._claim_seconds) as lease:
                try:
                    self._broker.claims.insert(instance, Claim(broker=self.name, operation=operation), lease=lease)
                except AlreadyExistsError:
                    return
                LOGGER.info("an operation goes on", extra={"facts": {**facts, "broker": self.name}})
                work = OperationWork(
                    self._store,
                    instance,
                    operation,
                    broker=self.name,
                    catalog=self._catalog,
                    stop=self._stop,
                    clock=self._clock,
                    waits=self._waits,
                    callbacks=self._callbacks,
                    ports=self._ports,
                )
                ended = work.run()
                self._on_ended(ended)
                LOGGER.info(
                    "an operation ended",
                    extra={"facts": {**facts, "status": ended.status, "result": ended.message}},
                )
        except SupersededError:
            LOGGER.info("an operation was taken over or replaced", extra={"facts": facts})
        except StoppedError:
            LOGGER.info("an operation is left to the next broker", extra={"facts": facts})
        except KeyplanError as error:
            LOGGER.warning("an operation was interrupted", extra={"facts": {**facts, "error": str(error)}})
        except Exception:
            # Why: a thread of an executor keeps its failure to itself; the operation is tried again at the next look.
            LOGGER.exception("an operation failed", extra={"facts": facts})
            self._stop.wait(_LOOK_SECONDS)
            raise
        finally:
            with self._lock:
                self._working.discard(instance)
            self._due.set()

    def forget_old(self) -> int:
        """Delete the records of deletions that ended a day ago; return how many there were."""
        before = self._clock.wall() - _OLD_SECONDS
        old = [
            instance
            for instance, operation in self._operations(SUCCESS)
            if operation.kind == "deprovision" and operation.ended_at < before
        ]
        for instance in old:
            self._store.run(lambda binding, instance=instance: _forget(Broker(binding), instance, before))  # type: ignore[misc]
        return len(old)


def _forget(broker: Broker, instance: str, before: float) -> None:
    operation = broker.operations.get(instance)
    if operation is not None and operation.kind == "deprovision" and 0 < operation.ended_at < before:
        broker.operations.delete(instance)
