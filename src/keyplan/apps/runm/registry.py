"""The service's own entry in the registry of services, K16: an endpoint on a lease, renewed while the service runs."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock

from keyplan.apps.runm.layout import Endpoint, RunmRegistry
from keyplan.apps.runm.logs import LOGGER
from keyplan.errors import EngineError, KeyplanError, UnsupportedByEngineError
from keyplan.store import Lease, Store

__all__ = ["registered"]


@contextmanager
def registered(
    store: Store, *, prefix: str, service: str, addresses: Sequence[str], lease_seconds: int
) -> Generator[None, None, None]:
    """Keep the endpoints registered for the length of a block, and take them out at its end.

    A lease that was lost is replaced by a new one. What goes wrong here is logged, and stops nothing: calls are answered all
    the same. An engine without leases has no registry.
    """
    entry = _Entry(store, RunmRegistry(store, prefix=prefix), service, addresses, lease_seconds)
    entry.put()
    try:
        yield
    finally:
        entry.remove()


class _Entry:
    def __init__(
        self, store: Store, registry: RunmRegistry, service: str, addresses: Sequence[str], lease_seconds: int
    ) -> None:
        self._store = store
        self._registry = registry
        self._keys = [_endpoint(service, address) for address in addresses if not address.startswith("unix:")]
        self._lease_seconds = lease_seconds
        self._lock = Lock()
        self._lease: Lease | None = None
        self._is_over = False

    def put(self, _lost: Lease | None = None) -> None:
        with self._lock:
            if self._is_over:
                return
            try:
                self._lease = self._store.lease(self._lease_seconds, on_loss=self.put)
                for key in self._keys:
                    # Why put, not insert: after a fast restart the entry still hangs on the lease of before.
                    self._registry.endpoints.put(key, None, lease=self._lease)
            except UnsupportedByEngineError:
                LOGGER.info("the store's engine has no leases: the service is not in the registry")
            except KeyplanError as error:
                LOGGER.warning("the service could not be registered: %s", error)

    def remove(self) -> None:
        with self._lock:
            self._is_over = True
            lease = self._lease
        if lease is not None:
            # Why: with the store gone there is nothing to take out; the lease ends by itself.
            with suppress(EngineError):
                lease.revoke()


def _endpoint(service: str, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(service, host, int(port))
