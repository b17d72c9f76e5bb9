"""How much a key space holds: counted from one state when it is asked, and kept; and the quotas.

Why counted, not kept up to date: a running total is a key that every commit of the key space would read and write, so that no
two of its writers could commit at once, and each write over a record would first read its old size.
"""

from typing import Final

from msgspec import structs

from keyplan.engine import Engine, KeyRange
from keyplan.errors import InvalidArgumentError
from keyplan.keyspace.answers import KeySpace, KeySpaceIdentity, Usage
from keyplan.keyspace.audit import Acts
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.lifecycle import live_record
from keyplan.keyspace.names import time_text
from keyplan.keyspace.records import Quota, State, UsageCount
from keyplan.keyspace.transactions import RegistryTransaction
from keyplan.store import Store

__all__ = ["checked_quota", "count_usage", "counted", "set_quota"]

_NO_QUOTA: Final = Quota()


def counted(engine: Engine, prefix: bytes) -> tuple[int, int]:
    """Return the keys below a prefix and their bytes: keys without the prefix, and values. Reads all of them, in one state."""
    keys = total = 0
    cut = len(prefix)
    with engine.snapshot() as snapshot:
        for entry in snapshot.scan(KeyRange.of_prefix(prefix)):
            keys += 1
            total += len(entry.key) - cut + len(entry.value)
    return keys, total


def count_usage(store: Store, keyspace: KeySpace, now: float) -> Usage:
    """Count what the key space holds, keep the figure in the registry, and return it with the quota."""
    registry = KeySpaceRegistry(store)
    at = time_text(now)
    if keyspace.state is State.DELETED:
        return Usage(keys=0, bytes=0, quota=_NO_QUOTA, counted_at=at)
    keys, total = counted(store.engine, keyspace.raw_prefix)

    def keep(tx: KeySpaceRegistry) -> Quota:
        record = tx.records.get(keyspace.name)
        if record is not None and record.generation == keyspace.generation and record.state is not State.DELETED:
            tx.usage.put(
                keyspace.name, UsageCount(keys=keys, bytes=total, generation=keyspace.generation, counted_at=at)
            )
        return tx.quotas.get(keyspace.name) or _NO_QUOTA

    return Usage(keys=keys, bytes=total, quota=registry.run(keep), counted_at=at)


def set_quota(
    transaction: RegistryTransaction, name: str, quota: Quota, expected: KeySpaceIdentity | None = None
) -> Quota:
    """Bound what the key space may hold. Raises KeySpaceNotFoundError, KeySpaceDeletingError, KeySpaceDeletedError."""
    live_record(transaction, name, expected)
    if (transaction.registry.quotas.get(name) or _NO_QUOTA) == quota:
        return quota
    transaction.registry.quotas.put(name, quota)
    transaction.note(Acts.QUOTA, structs.asdict(quota), name=name)
    return quota


def checked_quota(keys: int | None, total: int | None) -> Quota:
    """Return a quota. Raises InvalidArgumentError for numbers below zero."""
    for argument, bound in (("keys", keys), ("bytes", total)):
        if bound is not None and bound < 0:
            raise InvalidArgumentError(argument=argument, problem="a quota is at least 0")
    return Quota(keys=keys, bytes=total)
