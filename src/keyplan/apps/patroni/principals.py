"""A principal for each cluster: what Patroni's nodes are to the server that they find their store by.

It is granted to read and write what lies below `/service/{cluster}/`, which is all that Patroni asks for. Its token is made
with the instance, in the same commit, and erased with it; no access file names it. A server with the broker and an access file
follows the records of the instances, so that all servers of one store know the same principals, and no file is written.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Final, cast

from keyplan.access import Grant, OnPrefix, Principal, TokenSum, sum_of_token
from keyplan.apps.patroni.cluster_keys import cluster_prefix
from keyplan.apps.patroni.cluster_login import ensure_login, principal_name
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.records import InstanceState
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import ConflictError, CorruptionError, EngineError, KeyplanError, SecretKeyError
from keyplan.layout import Changes
from keyplan.operations import Act
from keyplan.server import LOGGER, ServiceContext
from keyplan.store import Store

__all__ = ["ClusterPrincipals", "followed", "principal_of"]

_POLL_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 1.0


def principal_of(instance: str, state: InstanceState) -> Principal:
    """Return the principal of a cluster; without a token nobody could ask as it. Raises SecretKeyError, CorruptionError."""
    current, former = (one.password.reveal() for one in (state.store_credentials, state.former_store_credentials))
    tokens = [TokenSum(sum_of_token(current))] if current else []
    if former and former != current:
        # Why not for a time that is none: the former token does not count then, and the new one does.
        with suppress(OverflowError, OSError, ValueError):
            tokens.append(TokenSum(sum_of_token(former), datetime.fromtimestamp(state.former_store_until, UTC)))
    below = OnPrefix(cluster_prefix(instance))
    return Principal(
        name=principal_name(instance),
        tokens=tuple(tokens),
        grants=(Grant(Act.READ, below, 0), Grant(Act.WRITE, below, 0)),
    )


class ClusterPrincipals:
    """The principals of all clusters of a store, as its records are now. `start`, then `stop`; each once.

    A store that cannot be reached, and a record that cannot be read, change nothing: who was known counts on. A cluster without
    a token is given one, and its nodes are told: it was made by a server that knew no clusters.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broker = Broker(store)
        self._known: dict[str, Principal] = {}
        self._shown: Sequence[Principal] = ()
        self._changes: Changes[str, InstanceState] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="patroni-principals", daemon=True)

    def __call__(self) -> Sequence[Principal]:
        """Return them: the same object until they change."""
        return self._shown

    def start(self) -> None:
        """Learn who there is, and follow. Returns when they are known, or the store could not be read."""
        self._step(0.0)
        self._thread.start()

    def stop(self) -> None:
        """End. Blocks until that is done."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._step(_POLL_SECONDS):
                self._stop.wait(_RETRY_SECONDS)
        self._leave()

    def _step(self, wait_seconds: float) -> bool:
        """Learn of changes, waiting for them at most so long; return False when the store cannot be read."""
        try:
            if self._changes is not None:
                self._take(self._changes, self._known, wait_seconds)
            else:
                self._begin()
            # Why asked each time: principals are the same objects until they change.
            if [*self._shown] != [*self._known.values()]:
                self._shown = tuple(self._known.values())
            self._give_tokens()
        except EngineError as error:
            facts = {"error": str(error)}
            LOGGER.warning(
                "instances cannot be followed; the principals that are known count on", extra={"facts": facts}
            )
        except Exception:  # noqa: BLE001  # Why: nobody sees this thread end, and who was known would count for ever.
            LOGGER.exception("following instances failed; the principals that are known count on")
        else:
            return True
        self._leave()
        return False

    def _give_tokens(self) -> None:
        """Give a token to each cluster that has none: the change that this makes is learnt as any other."""
        for instance in [name for name, principal in self._known.items() if not principal.tokens]:
            # Why passed over: it is tried again with the next step, and what cannot be read was logged.
            with suppress(ConflictError, CorruptionError, SecretKeyError):
                ensure_login(self._store, instance, now=SYSTEM_CLOCK.wall())

    def _begin(self) -> None:
        seen: dict[str, Principal] = {}
        self._changes = self._broker.instances.follow()
        while not self._changes.token:
            self._take(self._changes, seen, 0.0)
        # Invariant: who was known counts until the list is whole.
        self._known = seen

    def _take(
        self, changes: Changes[str, InstanceState], principals: dict[str, Principal], wait_seconds: float
    ) -> None:
        try:
            for change in changes.poll(wait_seconds):
                if change.new is None:
                    principals.pop(change.key, None)
                else:
                    self._learn(change.key, change.new, principals)
        except CorruptionError as error:
            self._leave_as_it_was(cast("str", error.facts["key"]), error, principals)

    def _learn(self, instance: str, state: InstanceState, principals: dict[str, Principal]) -> None:
        try:
            principal = principal_of(instance, state)
        except (CorruptionError, SecretKeyError) as error:
            self._leave_as_it_was(instance, error, principals)
        else:
            principals[instance] = self._same(instance, principal)

    def _leave_as_it_was(self, instance: str, error: KeyplanError, principals: dict[str, Principal]) -> None:
        facts = {"instance": instance, "error": str(error)}
        LOGGER.error("an instance cannot be read; its principal stays as it was", extra={"facts": facts})
        if instance in self._known:
            principals[instance] = self._known[instance]

    def _same(self, instance: str, principal: Principal) -> Principal:
        """Return a principal, as the object that it was before if it has not changed."""
        known = self._known.get(instance)
        return known if known is not None and known.tokens == principal.tokens else principal

    def _leave(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None


@asynccontextmanager
async def followed(principals: ClusterPrincipals | None, context: ServiceContext) -> AsyncIterator[None]:
    """Follow the principals of clusters, where there are any, for as long as the server runs."""
    if principals is None:
        yield
        return
    await context.run(principals.start)
    try:
        yield
    finally:
        await context.run(principals.stop)
