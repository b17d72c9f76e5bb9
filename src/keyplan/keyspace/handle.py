"""An open key space: a store in which any layout runs, and which knows whose share of what it is."""

from collections.abc import Callable
from enum import StrEnum, auto
from typing import Any

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import KeyplanError
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.heartbeat import SessionHeartbeat
from keyplan.keyspace.quota import QuotaBudget
from keyplan.keyspace.records import Quota
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.rows import rows_of, value_of
from keyplan.keyspace.share import KeySpaceEngine
from keyplan.keyspace.usage import counted
from keyplan.store import Backoff, Store

__all__ = ["KeySpaceStore", "Mode", "budget_for", "budgeted"]


class Mode(StrEnum):
    """How a key space came to its prefix: from the registry, or by the application's own default where there is none."""

    REGISTRY = auto()
    FALLBACK = auto()


class KeySpaceStore(Store):
    """A store that is one key space of an engine: `CloudChamber(store)` as on any other.

    Every commit is guarded by the key space's fence: when it was disabled, deleted or made anew, by whatever process, the
    commit writes nothing and raises KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError or
    GenerationMismatchError. In fallback mode there is no registry and no fence.

    Closing it ends the session; the engine is closed with it, unless it was given to `open_key_space`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        prefix: bytes,
        mode: Mode,
        keyspace: KeySpace | None,
        application: str,
        backoff: Backoff | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> None:
        super().__init__(engine, backoff=backoff, clock=clock, **options)
        self.mode = mode
        self.prefix = prefix
        self.keyspace = keyspace
        """The key space as it was when it was opened; None in fallback mode."""
        self.application = application
        self._heartbeat: SessionHeartbeat | None = None

    @property
    def is_open(self) -> bool:
        """False once it is known that the key space was deleted or made anew: `closed_by` says which."""
        return self.closed_by is None

    @property
    def closed_by(self) -> KeyplanError | None:
        """What closed the handle for good; None while it is open. Disabling does not: it may be enabled again."""
        engine = self.engine
        return engine.fence.closed_by if isinstance(engine, KeySpaceEngine) else None

    @property
    def session(self) -> int | None:
        """The id of the session's lease; None without a session."""
        return None if self._heartbeat is None else self._heartbeat.lease

    def keep_alive_by(self, heartbeat: SessionHeartbeat) -> None:
        """Take a session over, which ends with the handle; for `open_key_space`."""
        self._heartbeat = heartbeat

    def close(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.end()
        super().close()


def budgeted(
    engine: KeySpaceEngine, registry: KeySpaces, keyspace: KeySpace, clock: Clock, *, is_told: bool
) -> Callable[[], None]:
    """Let the share mind the key space's quota; return what looks whether there is one, now and later.

    is_told: somebody calls what is returned from time to time; otherwise the budget looks by itself when it is asked.
    """

    def quota() -> Quota:
        with registry.engine.snapshot() as snapshot:
            row = value_of(snapshot, "quotas", keyspace.name)
        # Why none for a damaged one: a brake must not be what stops everything; the doctor makes it again.
        return Quota() if row is None or row.value is None else row.value

    def look() -> None:
        now = quota()
        if isinstance(engine.budget, QuotaBudget):
            engine.budget.change(now)
        elif not is_told or now != Quota():
            engine.budget = budget_for(
                engine,
                registry,
                keyspace.name,
                keyspace.application,
                keyspace.raw_prefix,
                now,
                clock=clock,
                look=None if is_told else quota,
            )

    return look


def budget_for(
    engine: Engine,
    registry: KeySpaces,
    name: str,
    application: str,
    prefix: bytes,
    quota: Quota,
    *,
    clock: Clock,
    look: Callable[[], Quota] | None = None,
    others: int = 0,
) -> QuotaBudget:
    """Return what weighs commits on a key space's share, `engine`; see QuotaBudget.

    The room is shared by the owner's sessions, and by so many `others` that have none.
    """

    def count() -> tuple[int, int]:
        # Why the figure is not kept in the registry: a write there may fail, and is none of the commit that is weighed.
        return counted(registry.engine, prefix)

    def writers() -> int:
        # Why one that cannot be read counts: it may be of the owner, and what is damaged must not stop who writes.
        with registry.engine.snapshot() as snapshot:
            sessions = rows_of(snapshot, "sessions", name)
            return others + sum(1 for row in sessions if not row.is_read or row.value.application == application)

    return QuotaBudget(engine, name, quota=quota, count=count, writers=writers, clock=clock, look=look)
