"""One batch of a deletion: what it waits for, the next keys to go, the end with its proof. Who asks for batches: sweeper.py.

With the keys goes what services keep beside them (books.py).

Every batch is one commit with its new cursor, so that whoever is killed, or meets another, leaves a removal that goes on.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Annotated, Any, NamedTuple, Self

from msgspec import structs

from keyplan.engine import Capability, Clock, Commit, DeleteRange, KeyRange
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    GenerationMismatchError,
    IllegalTransitionError,
    KeySpaceNotFoundError,
)
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.books import books_of
from keyplan.keyspace.layout import KeySpaceRegistry, SessionKey
from keyplan.keyspace.lifecycle import complete_deletion
from keyplan.keyspace.names import seconds_of
from keyplan.keyspace.records import COUNT, NAME_PATTERN, Deletion, KeySpaceRecord, State
from keyplan.keyspace.transactions import RegistryTransaction, RegistryTransactions
from keyplan.operations import Schema
from keyplan.store import Store

__all__ = ["BATCH_KEYS_DEFAULT", "Removal", "Stage", "SweepProgress"]

BATCH_KEYS_DEFAULT = 512
"""1.7: few enough that a commit takes milliseconds, and that nobody waits long for the write lock."""


class Stage(StrEnum):
    """How far a deletion is."""

    WAITING = auto()
    SWEEPING = auto()
    COMPLETED = auto()
    NOT_DELETING = auto()


class SweepProgress(NamedTuple):
    """How far the deletion of a key space is, after one step of it. `waits_for` says what a waiting one waits for.

    `removed_keys` is what this step removed, `deleted_keys` what the whole deletion has.
    """

    name: Annotated[str, Schema(pattern=NAME_PATTERN)]
    stage: Stage
    deleted_keys: Annotated[COUNT, Schema("Removed since the deletion began.")]
    waits_for: Annotated[str, Schema("What a waiting one waits for.")] = ""
    removed_keys: Annotated[COUNT, Schema("Removed by this request.")] = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the progress that a JSON object describes. Raises KeyError, ValueError."""
        stage = Stage(value["stage"])
        return cls(value["name"], stage, int(value["deleted_keys"]), value["waits_for"], int(value["removed_keys"]))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**self._asdict(), "stage": str(self.stage)}


class Removal:
    """Removes what key spaces hold, at most `batch_keys` keys in a commit. Safe for use by several threads and processes."""

    def __init__(
        self, store: Store, transactions: RegistryTransactions, clock: Clock, *, batch_keys: int = BATCH_KEYS_DEFAULT
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._clock = clock
        self._batch_keys = batch_keys

    def step(self, name: str) -> SweepProgress:
        """Remove one batch, or end the deletion when nothing is left, or say what it waits for. Safe to repeat."""
        with self._transactions.look() as registry:
            record, deletion = registry.records.get(name), registry.deletions.get(name)
            if record is None or record.state is not State.DELETING or deletion is None:
                return SweepProgress(name, Stage.NOT_DELETING, 0)
            waits_for = self._waits_for(registry, record, deletion)
        if waits_for:
            return SweepProgress(name, Stage.WAITING, deletion.deleted_keys, waits_for)
        prefix = bytes.fromhex(record.prefix)
        data = KeyRange.of_prefix(prefix)
        for part in (data, *books_of(prefix)):
            found = self._batch(_rest_of(part, deletion.cursor)) or self._batch(part)
            if found:
                # Why none of a book's: what is counted are the application's keys.
                count = len(found) if part is data else 0
                deleted = self._removed(name, deletion, _range_of(found), count)
                return SweepProgress(name, Stage.SWEEPING, deleted, removed_keys=len(found))
        return self._completed(name, deletion)

    def wipe_batch(self, keyspace: KeySpace) -> int:
        """Remove a batch of what a key space in the state RESTORING holds; return how many keys, 0 at the end.

        The commit is guarded by the fence. Raises IllegalTransitionError for one in another state, GenerationMismatchError
        when somebody else restores it meanwhile.
        """
        if keyspace.state is not State.RESTORING:
            raise IllegalTransitionError(name=keyspace.name, state=str(keyspace.state), asked="wipe")
        parts = (keyspace.key_range, *books_of(keyspace.raw_prefix))
        found = next(filter(None, map(self._batch, parts)), [])
        if found:
            with self._store.transaction() as transaction:
                fence = KeySpaceRegistry(transaction).fences.get(keyspace.name)
                if fence is None or fence.generation != keyspace.generation or fence.state is not State.RESTORING:
                    raise GenerationMismatchError(name=keyspace.name, generation=keyspace.generation)
                collected = transaction.collected()
                transaction.close()
            self._store.engine.commit(Commit(collected.guards, (DeleteRange(_range_of(found)),), collected.epoch))
        return len(found)

    def _waits_for(self, registry: KeySpaceRegistry, record: KeySpaceRecord, deletion: Deletion) -> str:
        # Why also of one that has begun: an entry that was made again, after it was lost, is begun as far as anybody knows.
        if self._is_before(deletion.not_before, record):
            return f"the grace time, until {deletion.not_before}"
        if not self._is_before(deletion.clients_until, record):
            return ""
        if not self._store.engine.profile.claims(Capability.LEASES):
            return f"clients, which this engine cannot show, until {deletion.clients_until}"
        open_at = sum(_is_of(registry, key, record.generation) for key in registry.sessions.keys(record.name))
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
            after = structs.replace(before, cursor=(gone.end or b"").hex(), deleted_keys=deleted, is_begun=True)
            registry.deletions.put(name, after)
            collected = transaction.collected()
            transaction.close()
        try:
            self._store.engine.commit(
                Commit(collected.guards, (*collected.mutations, DeleteRange(gone)), collected.epoch)
            )
        except CommitConflictError:
            return before.deleted_keys  # Why: another sweeper, or an undelete, came first; the next step sees which.
        return deleted

    def _completed(self, name: str, deletion: Deletion) -> SweepProgress:
        def work(transaction: RegistryTransaction) -> bool:
            return complete_deletion(transaction, name, deletion.number) is not None

        try:
            is_completed = self._transactions.run(work)
        except KeySpaceNotFoundError:
            return SweepProgress(name, Stage.NOT_DELETING, deletion.deleted_keys)
        stage = Stage.COMPLETED if is_completed else Stage.SWEEPING
        return SweepProgress(name, stage, deletion.deleted_keys)


def _is_of(registry: KeySpaceRegistry, key: SessionKey, generation: int) -> bool:
    """Tell whether a session is of this generation; one that cannot be read is, until its lease ends."""
    try:
        session = registry.sessions.get(key)
    except CorruptionError:
        return True
    return session is not None and session.generation == generation


def _rest_of(data: KeyRange, cursor: str) -> KeyRange:
    """What is left of a key space behind the cursor; all of it for a cursor that lies elsewhere.

    Why a look at it: what is removed follows from the key space's prefix, never from a stored place alone.
    """
    try:
        start = bytes.fromhex(cursor)
    except ValueError:
        return data
    return KeyRange(start, data.end) if start in data else data


def _range_of(keys: list[bytes]) -> KeyRange:
    """The range from the first to the last of ascending keys."""
    return KeyRange(keys[0], keys[-1] + b"\x00")
