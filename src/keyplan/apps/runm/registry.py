"""The service's own entry in the registry of services, K16: an endpoint on a lease, renewed while the service runs."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from threading import Event, Lock, Thread
from typing import Final

from keyplan.apps.runm.layout import Endpoint, RunmRegistry
from keyplan.apps.runm.logs import REGISTRY_LOGGER
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineError,
    EngineOpenError,
    EngineUnavailableError,
    KeyplanError,
    LeaseNotFoundError,
    StoreUnreachableError,
    UnsupportedByEngineError,
)
from keyplan.store import Lease, Store

__all__ = ["registered"]

_WAIT_SECONDS_FIRST: Final = 0.2
_WAIT_SECONDS_MAX: Final = 10.0


@contextmanager
def registered(
    open_store: Callable[[], Store],
    *,
    is_own: bool,
    prefix: str,
    service: str,
    addresses: Sequence[str],
    lease_seconds: int,
    connect_timeout_seconds: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> Generator[None, None, None]:
    """Keep the endpoints registered for the length of a block, and take them out at its end.

    `is_own` says that the store is the registry's alone, and closed with it. While the registry cannot be reached it is tried
    again, longer apart each time, for as long as the timeout says; that is logged, and stops nothing: calls are answered all
    the same. A lease that was lost is replaced by a new one, for which it is tried as long as the block lasts. An engine
    without leases has no registry.

    Raises EngineOpenError when the store can never be opened: also when no host's name has an address.
    """
    keys = [_endpoint(service, address) for address in addresses if not address.startswith("unix:")]
    entry = _Entry(open_store, is_own, prefix, keys, lease_seconds, connect_timeout_seconds, clock)
    entry.put()
    try:
        yield
    finally:
        entry.remove()


class _Entry:
    def __init__(
        self,
        open_store: Callable[[], Store],
        is_own: bool,  # noqa: FBT001  # Why: private, and called once.
        prefix: str,
        keys: Sequence[Endpoint],
        lease_seconds: int,
        seconds_max: int,
        clock: Clock,
    ) -> None:
        self._open_store = open_store
        self._is_own = is_own
        self._store: Store | None = None
        self._prefix = prefix
        self._keys = keys
        self._lease_seconds = lease_seconds
        self._seconds_max = seconds_max
        self._clock = clock
        self._lock = Lock()
        self._over = Event()
        self._lease: Lease | None = None

    def put(self, lost: Lease | None = None) -> None:
        """Register now, or, while the registry cannot be reached, in a thread that tries again."""
        if not self._put():
            # Why without end: the registry was there, and whoever serves for months outlives any outage of it.
            seconds_max = self._seconds_max if lost is None else inf
            Thread(target=self._keep_trying, args=(seconds_max,), name="runm-registry", daemon=True).start()

    def remove(self) -> None:
        self._over.set()
        with self._lock:
            lease = self._lease
        if lease is not None:
            # Why: with the store gone there is nothing to take out; the lease ends by itself.
            with suppress(EngineError):
                lease.revoke()
            REGISTRY_LOGGER.info("the service is out of the registry")
        if self._is_own and self._store is not None:
            self._store.close()

    def _put(self) -> bool:
        """Whether there is nothing more to try."""
        with self._lock:
            if self._over.is_set():
                return True
            try:
                store = self._store = self._store or self._open_store()
                lease = self._put_on_a_lease(store)
            except UnsupportedByEngineError:
                REGISTRY_LOGGER.info("the store's engine has no leases: the service is not in the registry")
            except (
                EngineUnavailableError,
                StoreUnreachableError,
                CommitOutcomeUnknownError,
                LeaseNotFoundError,
            ) as error:
                if "unresolved" in error.facts:
                    raise
                REGISTRY_LOGGER.warning("the registry cannot be reached: %s", error)
                return False
            except EngineOpenError:
                raise
            except KeyplanError as error:
                REGISTRY_LOGGER.warning("the service could not be registered: %s", error)
            else:
                self._lease = lease
                REGISTRY_LOGGER.info("the service is in the registry, on a lease of %s seconds", self._lease_seconds)
        return True

    def _put_on_a_lease(self, store: Store) -> Lease:
        lease = store.lease(self._lease_seconds, on_loss=self.put)
        registry = RunmRegistry(store, prefix=self._prefix)
        try:
            for key in self._keys:
                # Why put, not insert: after a fast restart the entry still hangs on the lease of before.
                registry.endpoints.put(key, None, lease=lease)
        except KeyplanError:
            # Why: nobody else knows of the lease, which is renewed until it is revoked, and of what may be on it.
            with suppress(EngineError):
                lease.revoke()
            raise
        return lease

    def _keep_trying(self, seconds_max: float) -> None:
        deadline = self._clock.monotonic() + seconds_max
        wait_seconds = _WAIT_SECONDS_FIRST
        while self._clock.monotonic() + wait_seconds <= deadline:
            try:
                if self._over.wait(wait_seconds) or self._put():
                    return
            except EngineOpenError as error:
                REGISTRY_LOGGER.error("the registry can never be reached: %s", error)
                return
            wait_seconds = min(2 * wait_seconds, _WAIT_SECONDS_MAX)
        REGISTRY_LOGGER.error("the service is not in the registry, which could not be reached in time")


def _endpoint(service: str, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(service, host, int(port))
