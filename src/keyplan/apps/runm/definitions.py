"""Definitions: where they hang, on four levels, which of them holds, and how one is set and removed."""

from collections.abc import Iterable, Iterator
from typing import TypeVar
from uuid import UUID, uuid4

from msgspec import structs

from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import checked_uuid
from keyplan.apps.runm.json_schema import checked_schema
from keyplan.apps.runm.layout import ObjectSubType, PartitionSubType, PartitionType, Runm
from keyplan.apps.runm.permission import READ, WRITE
from keyplan.apps.runm.read_ahead import Scope, fallbacks_of
from keyplan.apps.runm.readable import log_damage, readable_one
from keyplan.apps.runm.records import ObjectDefinition, PropertyPermissions
from keyplan.apps.runm.refusal import already_exists, invalid, missing, property_named
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.versions import keep_version
from keyplan.errors import CorruptionError
from keyplan.layout import Damaged, Versioned

__all__ = [
    "Scope",
    "checked_permissions",
    "definition_at",
    "point",
    "pointer_at",
    "pointers",
    "pointers_of",
    "remove",
    "resolved",
    "set_definition",
    "shown_scope",
    "unpoint",
]

K = TypeVar("K")


def pointer_at(runm: Runm, scope: Scope) -> UUID | None:
    """Return the UUID of the definition that hangs at exactly this scope."""
    partition, object_type, sub_type = scope
    if partition is None and not sub_type:
        return runm.type_definitions.get(object_type)
    if partition is None:
        return runm.sub_type_definitions.get(ObjectSubType(object_type, sub_type))
    if not sub_type:
        return runm.partition_type_definitions.get(PartitionType(partition, object_type))
    return runm.partition_sub_type_definitions.get(PartitionSubType(partition, object_type, sub_type))


def definition_at(runm: Runm, scope: Scope) -> ObjectDefinition | None:
    """Return the definition that hangs at exactly this scope."""
    uuid = pointer_at(runm, scope)
    return None if uuid is None else runm.definitions.get(uuid)


def resolved(state: State, scope: Scope) -> tuple[Scope, ObjectDefinition] | None:
    """Return the definition that holds for a scope, and the scope that it was found at."""
    if state.ahead.pointer(scope) not in state.looked_at:
        state.read_ahead(state.ahead.of_scope(scope))
    for candidate in fallbacks_of(scope):
        uuid = pointer_at(state.runm, candidate)
        state.ahead.note_definition(candidate, uuid)
        definition = None if uuid is None else state.runm.definitions.get(uuid)
        if definition is not None:
            return candidate, definition
    return None


def set_definition(
    deployment: Deployment, caller: Caller, scope: Scope, uuid_text: str, given: ObjectDefinition
) -> ObjectDefinition:
    """Make a definition the one of its scope, in one commit that keeps the one it replaces, and return it as stored.

    Without a UUID it keeps that of the definition it replaces; with a new one, that one's record goes. A definition that cannot
    be read, or a scope's pointer, is replaced like any other, and is not kept. Raises RefusedError:
    ALREADY_EXISTS for a UUID of another scope's definition, INVALID_ARGUMENT for a schema or permission that is none,
    FAILED_PRECONDITION when the partition is gone, PERMISSION_DENIED for a scope that is not the caller's to decide.
    """
    caller.require_to_decide(scope.partition)
    checked_schema(given.schema)
    checked_permissions(given.property_permissions)
    wanted = checked_uuid(uuid_text) if uuid_text else None

    def work(state: State) -> ObjectDefinition:
        runm = state.runm
        if scope.partition is not None and not state.within(caller.bounds).partitions.exists(scope.partition):
            raise missing(f"Partition {scope.partition.hex} not found")
        current = _readable_pointer(runm, scope)
        uuid = wanted or current or uuid4()
        if uuid != current and runm.definitions.exists(uuid):
            raise already_exists("the definition's UUID is in use.")
        record = structs.replace(given, uuid=uuid)
        replaced = None if current is None else readable_one(runm.definitions, current)
        if replaced is not None and replaced != record:
            keep_version(deployment, state, scope, replaced, caller.user)
        if current is not None and uuid != current:
            runm.definitions.delete(current)
        point(runm, scope, uuid)
        runm.definitions.put(uuid, record)
        return record

    _require_unshared(deployment, scope)
    return deployment.store.run(lambda transaction: work(deployment.over(transaction)))


def remove(deployment: Deployment, caller: Caller, scope: Scope) -> bool:
    """Remove the definition of exactly this scope, in one commit that keeps it as a version; return whether there was one.

    One that cannot be read goes, and is not kept. Raises RefusedError as `set_definition` does.
    """
    caller.require_to_decide(scope.partition)
    _require_unshared(deployment, scope)

    def work(state: State) -> bool:
        try:
            current = pointer_at(state.runm, scope)
        except CorruptionError:  # Why not its definition: nobody can tell which it was; `migrate` names it.
            unpoint(state.runm, scope)
            return True
        if current is None:
            return False
        replaced = readable_one(state.runm.definitions, current)
        if replaced is not None:
            keep_version(deployment, state, scope, replaced, caller.user)
        unpoint(state.runm, scope)
        state.runm.definitions.delete(current)
        return True

    return deployment.store.run(lambda transaction: work(deployment.over(transaction)))


def checked_permissions(permissions: tuple[PropertyPermissions, ...]) -> None:
    """Raise RefusedError, INVALID_ARGUMENT, for a permission that is none, and for two lists of one key."""
    keys = [one.key for one in permissions]
    if "" in keys:
        raise invalid("property permissions have each a key.")
    for one in permissions:
        if keys.count(one.key) > 1:
            raise invalid(f"permissions of {property_named(one.key)} stand in one list, not in several.")
        if not all(0 <= entry.permission <= READ | WRITE for entry in one.permissions):
            raise invalid(f"a permission of {property_named(one.key)} is 0 (none), 1 (read), 2 (write) or 3 (both).")


def pointers(runm: Runm, *, damaged_ok: bool = False) -> Iterator[tuple[Scope, UUID]]:
    """Yield every pointer to a definition. Raises CorruptionError for one that cannot be read, or with `damaged_ok` goes on."""
    for object_type, uuid in _read(runm.type_definitions.rows(), damaged_ok):
        yield Scope(None, object_type), uuid
    for key, uuid in _read(runm.sub_type_definitions.rows(), damaged_ok):
        yield Scope(None, *key), uuid
    # Why: by partition, since a list over all of them would read every index entry that lies between.
    partitions = runm.partitions.keys()
    for partition in partitions:
        yield from pointers_of(runm, partition, damaged_ok=damaged_ok)


def pointers_of(runm: Runm, partition: UUID, *, damaged_ok: bool = False) -> Iterator[tuple[Scope, UUID]]:
    """Yield those of a partition, as `pointers` does."""
    for type_key, uuid in _read(runm.partition_type_definitions.rows(partition), damaged_ok):
        yield Scope(partition, type_key.object_type), uuid
    for sub_type_key, uuid in _read(runm.partition_sub_type_definitions.rows(partition), damaged_ok):
        yield Scope(partition, sub_type_key.object_type, sub_type_key.sub_type), uuid


def shown_scope(scope: Scope) -> str:
    """A scope for people."""
    partition = "every partition" if scope.partition is None else scope.partition.hex
    return f"definition of {' '.join(filter(None, (scope.object_type, scope.sub_type)))} in {partition}"


def _read(rows: Iterable[Versioned[K, UUID] | Damaged[K]], damaged_ok: bool) -> Iterator[tuple[K, UUID]]:  # noqa: FBT001
    for row in rows:
        if not isinstance(row, Damaged):
            yield row.key, row.record
        elif not damaged_ok:
            raise row.error


def _require_unshared(deployment: Deployment, scope: Scope) -> None:
    """The original let two scopes point at one definition. What changes one of them must not change the other."""
    with deployment.reading() as state:
        current = _readable_pointer(state.runm, scope)
        if current is None:
            return
        # Why also past damaged ones: one in a partition must not keep every other from its own.
        every = pointers(state.runm, damaged_ok=True)
        sharers = [other for other, uuid in every if uuid == current and other != scope]
    if sharers:
        raise already_exists("the definition is another scope's as well; run `keyplan runm migrate` first.")


def _readable_pointer(runm: Runm, scope: Scope) -> UUID | None:
    """What a scope's pointer says; None where there is none, or it says nothing that can be read: it can be set anew then."""
    try:
        return pointer_at(runm, scope)
    except CorruptionError as error:
        log_damage(error)
        return None


def point(runm: Runm, scope: Scope, uuid: UUID) -> None:
    """Let a scope point at a definition; a part of a transaction that sees to the definitions."""
    partition, object_type, sub_type = scope
    if partition is None and not sub_type:
        runm.type_definitions.put(object_type, uuid)
    elif partition is None:
        runm.sub_type_definitions.put(ObjectSubType(object_type, sub_type), uuid)
    elif not sub_type:
        runm.partition_type_definitions.put(PartitionType(partition, object_type), uuid)
    else:
        runm.partition_sub_type_definitions.put(PartitionSubType(partition, object_type, sub_type), uuid)


def unpoint(runm: Runm, scope: Scope) -> None:
    """Let a scope point at nothing; a part of a transaction that sees to the definitions."""
    partition, object_type, sub_type = scope
    if partition is None and not sub_type:
        runm.type_definitions.delete(object_type)
    elif partition is None:
        runm.sub_type_definitions.delete(ObjectSubType(object_type, sub_type))
    elif not sub_type:
        runm.partition_type_definitions.delete(PartitionType(partition, object_type))
    else:
        runm.partition_sub_type_definitions.delete(PartitionSubType(partition, object_type, sub_type))
