"""Deleting in the background (1.7): waits for clients, removes the data batch by batch, ends with a proof that none is left.

Anybody may run it: a server, a command, a thread; one at a time does, by a lease. Every batch is one commit with its new
cursor, so that a sweep that was killed goes on where it was.
"""

from collections.abc import Callable
from enum import StrEnum, auto
from threading import Event as Signal
from typing import Final, NamedTuple

from keyplan.engine import Capability, Commit, DeleteRange, KeyRange
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    GenerationMismatchError,
    IllegalTransitionError,
    InvalidArgumentError,
    KeySpaceNotFoundError,
)
from keyplan.keyspace.acts import ONLY, Act
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.lifecycle import complete_deletion
from keyplan.keyspace.names import seconds_of, time_text
from keyplan.keyspace.records import Deletion, KeySpaceRecord, State, Sweeping
from keyplan.keyspace.registry import KeySpaces
from keyplan.store import Store

__all__ = ["Stage", "SweepProgress", "Sweeper"]

BATCH_KEYS_DEFAULT: Final = 512
"""1.7: few enough that a commit takes milliseconds, and that nobody waits long for the write lock."""

_LEASE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 5.0
"""Why: a deletion is not urgent; whoever waits for one calls `sweep`."""


def _pause(seconds: float) -> None:
    Signal().wait(seconds)


class Stage(StrEnum):
    """How far a deletion is."""

    WAITING = auto()
    SWEEPING = auto()
    COMPLETED = auto()
    NOT_DELETING = auto()


class SweepProgress(NamedTuple):
    """How far the deletion of a key space is, after one step of it. `waits_for` says what a waiting one waits for."""

    name: str
    stage: Stage
    deleted_keys: int
    waits_for: str = ""


class Sweeper:
    """Removes the data of key spaces that are being deleted.

    At most `batch_keys` keys in a commit, and `keys_per_second` on average (None: no limit). `pause` waits so many seconds.
    """

    def __init__(
        self,
        registry: KeySpaces,
        *,
        by: str = "",
        batch_keys: int = BATCH_KEYS_DEFAULT,
        keys_per_second: float | None = None,
        pause: Callable[[float], None] = _pause,
    ) -> None:
        if batch_keys < 1 or (keys_per_second is not None and keys_per_second <= 0):
            raise InvalidArgumentError(argument="batch_keys", problem="at least one key at a time")
        self._registry = registry
        self._store: Store = registry.store
        self._clock = registry.clock
        self._by = by or "sweeper"
        self._batch_keys = batch_keys
        self._keys_per_second = keys_per_second
        self._pause = pause

    def run(self, stop: Signal) -> None:
        """Sweep whatever is to be swept, again and again, until `stop` is set."""
        while not stop.is_set():
            self.sweep_all(stop=stop)
            stop.wait(_LOOK_SECONDS)

    def sweep_all(self, *, stop: Signal | None = None) -> list[SweepProgress]:
        """Take every deletion as far as it goes now; nothing while another sweeper is at it."""
        if not self._registry.list(state=State.DELETING, limit=1).keyspaces:
            return []
        if not self._store.engine.profile.claims(Capability.LEASES):
            # Why: without leases two may sweep at once; each batch is guarded by the cursor, so that they only share the work.
            return self._swept(stop)
        with self._store.lease(_LEASE_SECONDS) as lease:
            try:
                since = time_text(self._clock.wall())
                KeySpaceRegistry(self._store).sweeper.insert(ONLY, Sweeping(by=self._by, since=since), lease=lease)
            except AlreadyExistsError:
                return []
            return self._swept(stop)

    def _swept(self, stop: Signal | None) -> list[SweepProgress]:
        names = [keyspace.name for keyspace in self._registry.all() if keyspace.state is State.DELETING]
        return [self.sweep(name, stop=stop) for name in names if stop is None or not stop.is_set()]

    def sweep(self, name: str, *, stop: Signal | None = None) -> SweepProgress:
        """Take one deletion as far as it goes now: to its end, unless it has to wait or is stopped."""
        while True:
            progress = self.step(name)
            if progress.stage is not Stage.SWEEPING or (stop is not None and stop.is_set()):
                return progress

    def step(self, name: str) -> SweepProgress:
        """Remove one batch, or end the deletion when nothing is left, or say what it waits for. Safe to repeat."""
        with self._registry.acts.look() as registry:
            record, deletion = registry.records.get(name), registry.deletions.get(name)
            if record is None or record.state is not State.DELETING or deletion is None:
                return SweepProgress(name, Stage.NOT_DELETING, 0)
            waits_for = self._waits_for(registry, record, deletion)
        if waits_for:
            return SweepProgress(name, Stage.WAITING, deletion.deleted_keys, waits_for)
        data = KeyRange.of_prefix(bytes.fromhex(record.prefix))
        found = self._batch(KeyRange(bytes.fromhex(deletion.cursor), data.end)) or self._batch(data)
        if not found:
            return self._completed(name, deletion)
        deleted = self._removed(name, deletion, KeyRange(found[0], found[-1] + b"\x00"), len(found))
        if self._keys_per_second is not None:
            self._pause(len(found) / self._keys_per_second)
        return SweepProgress(name, Stage.SWEEPING, deleted)

    def wipe(self, keyspace: KeySpace) -> int:
        """Remove what a key space in the state RESTORING holds; return how many keys. Repeat it after a failure.

        Each commit is guarded by the fence. Raises IllegalTransitionError for one in another state, GenerationMismatchError
        when somebody else restores it meanwhile.
        """
        if keyspace.state is not State.RESTORING:
            raise IllegalTransitionError(name=keyspace.name, state=str(keyspace.state), asked="wipe")
        removed = 0
        while found := self._batch(keyspace.key_range):
            with self._store.transaction() as transaction:
                fence = KeySpaceRegistry(transaction).fences.get(keyspace.name)
                if fence is None or fence.generation != keyspace.generation or fence.state is not State.RESTORING:
                    raise GenerationMismatchError(name=keyspace.name, generation=keyspace.generation)
                guards = transaction.collected().guards
                transaction.close()
            gone = DeleteRange(KeyRange(found[0], found[-1] + b"\x00"))
            self._store.engine.commit(Commit(guards, (gone,)))
            removed += len(found)
            if self._keys_per_second is not None:
                self._pause(len(found) / self._keys_per_second)
        return removed

    # ---- one step ------------------------------------------------------------------------------------------------------

    def _waits_for(self, registry: KeySpaceRegistry, record: KeySpaceRecord, deletion: Deletion) -> str:
        if deletion.is_begun:
            return ""
        if self._is_before(deletion.not_before, record):
            return f"the grace time, until {deletion.not_before}"
        if not self._is_before(deletion.clients_until, record):
            return ""
        if not self._store.engine.profile.claims(Capability.LEASES):
            return f"clients, which this engine cannot show, until {deletion.clients_until}"
        sessions = registry.sessions.list(record.name)
        open_at = sum(session.generation == record.generation for _, session in sessions)
        return f"{open_at} sessions, at most until {deletion.clients_until}" if open_at else ""

    def _is_before(self, deadline: str, record: KeySpaceRecord) -> bool:
        # Why: no time to be waited is over at once, also by a clock that was put back since the deletion began.
        return deadline != record.deleted_at and self._clock.wall() < seconds_of(deadline)

    def _batch(self, key_range: KeyRange) -> list[bytes]:
        with self._store.engine.snapshot() as snapshot:
            return [entry.key for entry in snapshot.scan(key_range, limit=self._batch_keys, keys_only=True)]

    def _removed(self, name: str, before: Deletion, gone: KeyRange, count: int) -> int:
        """Remove a range and move the cursor in one commit, which holds only while nobody undeleted or swept meanwhile."""
        with self._store.transaction() as transaction:
            registry = KeySpaceRegistry(transaction)
            deletion, fence = registry.deletions.get(name), registry.fences.get(name)
            if deletion != before or fence is None or fence.state is not State.DELETING:
                return before.deleted_keys
            deleted = before.deleted_keys + count
            after = Deletion(
                cursor=(gone.end or b"").hex(),
                deleted_keys=deleted,
                not_before=before.not_before,
                clients_until=before.clients_until,
                is_begun=True,
                previous_state=before.previous_state,
            )
            registry.deletions.put(name, after)
            collected = transaction.collected()
            transaction.close()
        try:
            self._store.engine.commit(Commit(collected.guards, (*collected.mutations, DeleteRange(gone))))
        except CommitConflictError:
            return before.deleted_keys  # Why: another sweeper, or an undelete, came first; the next step sees which.
        return deleted

    def _completed(self, name: str, deletion: Deletion) -> SweepProgress:
        def work(act: Act) -> bool:
            return complete_deletion(act, name) is not None

        try:
            is_completed = self._registry.acts.run(work)
        except KeySpaceNotFoundError:
            return SweepProgress(name, Stage.NOT_DELETING, deletion.deleted_keys)
        stage = Stage.COMPLETED if is_completed else Stage.SWEEPING
        return SweepProgress(name, stage, deletion.deleted_keys)
