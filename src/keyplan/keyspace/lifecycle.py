"""The states of a key space and the moves between them. Each move is one act that changes record and fence together.

ENABLED <-> DISABLED        either -> DELETING -> DELETED -> (the next generation)
DELETING -> back            until the first key was removed
RESTORING -> ENABLED        or DELETING; ENABLED and DISABLED -> RESTORING, as the next generation: overwritten by a restore
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import structs

from keyplan.engine import RangeEmpty
from keyplan.errors import (
    GenerationMismatchError,
    IllegalTransitionError,
    ImmutableFieldError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceNotFoundError,
    KeySpaceProtectedError,
)
from keyplan.keyspace.answers import KeySpace, KeySpaceIdentity
from keyplan.keyspace.audit import Acts
from keyplan.keyspace.generations import NO_PAST, JoinedWrites, Past, join, keep_history, next_generation
from keyplan.keyspace.layout import HistoryKey
from keyplan.keyspace.names import time_text
from keyplan.keyspace.prefixes import prefix_range
from keyplan.keyspace.records import (
    Deletion,
    KeySpaceRecord,
    Mark,
    MarkKind,
    PrefixHolder,
    State,
)
from keyplan.keyspace.transactions import RegistryTransaction, codec_of, configuration_of, header_of
from keyplan.operations import Change

__all__ = [
    "Overwriting",
    "begin_deletion",
    "begin_overwrite",
    "complete_deletion",
    "describe",
    "finish_restore",
    "live_record",
    "move",
    "required_record",
    "undelete",
]

_MOVES: Final = {
    State.ENABLED: {State.DISABLED, State.DELETING},
    State.DISABLED: {State.ENABLED, State.DELETING},
    State.RESTORING: {State.DELETING},
    State.DELETING: set[State](),
    State.DELETED: set[State](),
}

_OVERWRITTEN: Final = ("generation", "application", "description", "created_at", "prefix_epoch")

_ROUNDED_SECONDS: Final = 1
"""Why: times are written in whole seconds, rounded down; a deadline may not come early."""


def required_record(
    transaction: RegistryTransaction, name: str, expected: KeySpaceIdentity | None = None
) -> KeySpaceRecord:
    """Return the record of a name, and make it a premise. Raises KeySpaceNotFoundError.

    `expected` is the key space that is meant: GenerationMismatchError, OwnerConflictError when the name is another's now.
    """
    record = transaction.registry.records.get(name)
    if record is None:
        raise KeySpaceNotFoundError(name=name)
    if expected is not None:
        expected.require(record)
    return record


def live_record(
    transaction: RegistryTransaction, name: str, expected: KeySpaceIdentity | None = None
) -> KeySpaceRecord:
    """As `required_record`, of one that is not deleted. Raises KeySpaceDeletingError, KeySpaceDeletedError as well."""
    record = required_record(transaction, name, expected)
    if record.state is State.DELETING:
        raise KeySpaceDeletingError(name=name)
    if record.state is State.DELETED:
        raise KeySpaceDeletedError(name=name)
    return record


def move(
    transaction: RegistryTransaction, name: str, to: State, change: Change, expected: KeySpaceIdentity | None = None
) -> KeySpaceRecord:
    """Enable or disable; being there already is no error. Raises as `required_record`, IllegalTransitionError."""
    record = required_record(transaction, name, expected)
    if record.state is to:
        return record
    if to not in _MOVES[record.state]:
        raise IllegalTransitionError(name=name, state=str(record.state), asked=change.act)
    return _moved(transaction, structs.replace(record, state=to), change)


def describe(
    transaction: RegistryTransaction,
    name: str,
    description: str,
    sent: Mapping[str, object],
    expected: KeySpaceIdentity | None = None,
) -> KeySpaceRecord:
    """Change the description; the fence stays as it is. What else was `sent` must be as it is stored (KS-20).

    Raises as `required_record`, ImmutableFieldError, KeySpaceDeletedError.
    """
    record = required_record(transaction, name, expected)
    stored = KeySpace.of_record(record).to_json()
    others = sent.keys() - {"description"}
    wrong = sorted(field for field in others if field not in stored or stored[field] != sent[field])
    if wrong:
        raise ImmutableFieldError(name=name, fields=wrong)
    if record.deleted_at is not None:
        raise KeySpaceDeletedError(name=name, state=str(record.state))
    if record.description == description:
        return record
    changed = structs.replace(record, description=description)
    transaction.registry.records.update(name, changed)
    transaction.note(Acts.UPDATE, {"description": description}, name=name)
    return changed


def begin_deletion(
    transaction: RegistryTransaction, name: str, expected: KeySpaceIdentity | None = None
) -> KeySpaceRecord:
    """Begin to delete, or return how far it is when it was begun already (KS-31).

    Raises as `required_record`, KeySpaceProtectedError.
    """
    record = required_record(transaction, name, expected)
    if record.deleted_at is not None:
        return record
    configuration = configuration_of(transaction.registry)
    if name in configuration.protected:
        raise KeySpaceProtectedError(name=name)
    deletion = Deletion(
        cursor=record.prefix,
        number=transaction.number,
        not_before=_deadline(transaction, configuration.delete_grace_seconds),
        clients_until=_deadline(transaction, configuration.max_client_lease_seconds),
        previous_state=record.state,
    )
    transaction.registry.deletions.insert(name, deletion)
    deleting = structs.replace(record, state=State.DELETING, deleted_at=transaction.at)
    # Why in the log: from here the deletion's entry can be made again when it is damaged, with the grace that was given.
    given = {name: getattr(deletion, name) for name in ("not_before", "clients_until", "previous_state")}
    return _moved(transaction, deleting, Acts.DELETE, given)


def _deadline(transaction: RegistryTransaction, seconds: float) -> str:
    return time_text(transaction.now + seconds + _ROUNDED_SECONDS) if seconds else transaction.at


def undelete(transaction: RegistryTransaction, name: str, expected: KeySpaceIdentity | None = None) -> KeySpaceRecord:
    """Take a deletion back. Raises as `required_record`; IllegalTransitionError once a key may have been removed."""
    record = required_record(transaction, name, expected)
    deletion = transaction.registry.deletions.get(name)
    if record.state is not State.DELETING or deletion is None:
        raise IllegalTransitionError(name=name, state=str(record.state), asked=Acts.UNDELETE.act)
    if deletion.is_begun:
        problem = "keys have been removed already"
        raise IllegalTransitionError(name=name, state=str(record.state), asked=Acts.UNDELETE.act, problem=problem)
    transaction.registry.deletions.delete(name)
    return _moved(transaction, structs.replace(record, state=deletion.previous_state, deleted_at=None), Acts.UNDELETE)


def complete_deletion(transaction: RegistryTransaction, name: str, number: int) -> KeySpaceRecord | None:
    """End the deletion of this number in the commit that proves that no key is left; None when there is one.

    None as well when that deletion was taken back, and when another was begun since, whose waiting was not looked at. The
    prefix cools down; name, prefix and data are free together.
    """
    record = transaction.registry.records.get(name)
    deletion = transaction.registry.deletions.get(name)
    if record is None or record.state is not State.DELETING or deletion is None or deletion.number != number:
        return None
    prefix = bytes.fromhex(record.prefix)
    data = prefix_range(prefix)
    if any(True for _ in transaction.state.scan(data, limit=1, keys_only=True)):
        return None
    transaction.guards.append(RangeEmpty(data))
    cooldown = configuration_of(transaction.registry).reuse_cooldown_seconds
    until = None if cooldown is None else _deadline(transaction, cooldown)
    transaction.registry.marks.put(prefix, Mark(kind=MarkKind.COOLING_DOWN, until=until, epoch=record.prefix_epoch))
    transaction.registry.holders.delete(prefix)
    registry = transaction.registry
    for table in (registry.deletions, registry.usage, registry.quotas, registry.floors):
        table.delete(name)
    _leave_container(transaction, prefix)
    detail = {"deleted_keys": deletion.deleted_keys, "prefix": record.prefix}
    # Why the later: a clock may have been put back meanwhile, and nothing ends before it began.
    completed_at = max(transaction.at, record.deleted_at or "")
    gone = structs.replace(record, state=State.DELETED, delete_completed_at=completed_at)
    return _moved(transaction, gone, Acts.COMPLETE, detail)


def _leave_container(transaction: RegistryTransaction, prefix: bytes) -> None:
    """Take the container's mark away with the last legacy key space in it (R6)."""
    container = codec_of(header_of(transaction.seen)).codeword_of(prefix)
    if container is None or container == prefix:
        return
    if all(other == prefix for other in transaction.seen.holders.keys(starts_with=container, limit=2)):
        transaction.registry.marks.delete(container)


class Overwriting(NamedTuple):
    """What comes instead of a key space; None: as it is."""

    application: str | None = None
    description: str | None = None
    past: Past = NO_PAST
    joined: JoinedWrites | None = None


def begin_overwrite(
    transaction: RegistryTransaction, name: str, coming_in: Overwriting, expected: KeySpaceIdentity | None = None
) -> KeySpaceRecord:
    """Make way for a restore under the same prefix: the next generation of the name, which nobody can open yet.

    `application` takes the ownership, too. Handles of the generation before write no more. Raises as `live_record`,
    KeySpaceProtectedError.
    """
    record = live_record(transaction, name, expected)
    if name in configuration_of(transaction.registry).protected:
        raise KeySpaceProtectedError(name=name)
    history = structs.replace(
        record, sequence=0, delete_completed_at=transaction.at, deleted_at=transaction.at, state=State.DELETED
    )
    transaction.registry.history.insert(HistoryKey(name, record.generation), history)
    keep_history(transaction, name, coming_in.past)
    coming = structs.replace(
        record,
        application=record.application if coming_in.application is None else coming_in.application,
        description=record.description if coming_in.description is None else coming_in.description,
        state=State.RESTORING,
        generation=next_generation(transaction, name, coming_in.past),
        created_at=coming_in.past.created_at or transaction.at,
        sequence=transaction.number,
        prefix_epoch=record.prefix_epoch + 1,
    )
    holder = PrefixHolder(name, coming.generation)
    transaction.registry.holders.put(bytes.fromhex(record.prefix), holder)
    transaction.registry.order.delete(record.sequence)
    transaction.registry.order.insert(coming.sequence, holder)
    join(transaction, coming, coming_in.joined)
    return _moved(transaction, coming, Acts.OVERWRITE, {field: getattr(coming, field) for field in _OVERWRITTEN})


def finish_restore(
    transaction: RegistryTransaction, name: str, generation: int, to: State, *, joined: JoinedWrites | None = None
) -> KeySpaceRecord:
    """Open a restored key space to its application. Raises KeySpaceNotFoundError, IllegalTransitionError.

    GenerationMismatchError when somebody else restores it meanwhile.
    """
    record = required_record(transaction, name)
    if record.generation != generation:
        raise GenerationMismatchError(name=name, generation=generation, current=record.generation)
    if record.state is not State.RESTORING or to not in {State.ENABLED, State.DISABLED}:
        raise IllegalTransitionError(name=name, state=str(record.state), asked=Acts.RESTORED.act)
    join(transaction, record, joined)
    return _moved(transaction, structs.replace(record, state=to), Acts.RESTORED)


def _moved(
    transaction: RegistryTransaction, record: KeySpaceRecord, change: Change, detail: Mapping[str, object] | None = None
) -> KeySpaceRecord:
    transaction.registry.records.update(record.name, record)
    transaction.registry.fences.put(record.name, transaction.fence_of(record))
    transaction.note(change, {"state": str(record.state), **(detail or {})}, name=record.name)
    return record
