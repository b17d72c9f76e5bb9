"""What a call will read, as far as it can be told beforehand, so that it is read at once: over a network, one round trip.

What earlier calls found says where to look, never what is there: every answer is checked against what the call reads itself. A
wrong guess costs a round trip and nothing else.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.layout import ObjectName, ObjectSubType, PartitionObjectName, PartitionSubType, PartitionType
from keyplan.layout import BoundLayout
from keyplan.store import KeyRef

__all__ = ["ReadAhead", "Scope", "fallbacks_of", "remember"]

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED_MAX: Final = 4_096
"""Names and scopes that are remembered. Why: session names come from clients."""

_SCOPES_MAX: Final = 8
"""Scopes of one partition that are looked ahead for."""

_PROVIDER: Final = "runm.provider"


class Scope(NamedTuple):
    """What a definition is for: a partition or all (None), an object type, one of its sub-types or all (empty)."""

    partition: UUID | None
    object_type: str
    sub_type: str = ""


@lru_cache(_REMEMBERED_MAX)
def fallbacks_of(scope: Scope) -> tuple[Scope, ...]:
    """Return the scopes that answer for this one, the most explicit first (ruling S22)."""
    found: list[Scope] = []
    for partition in (scope.partition, None) if scope.partition is not None else (None,):
        if scope.sub_type:
            found.append(scope._replace(partition=partition))
        found.append(Scope(partition, scope.object_type))
    return tuple(found)


class ReadAhead:
    """What the calls of one deployment have found so far. Safe for use by several threads: each entry is written at once."""

    def __init__(self, runm: BoundLayout, beside: BoundLayout) -> None:
        self._runm = runm
        self._objects, self._partition_table = runm.table("objects"), runm.table("partitions")
        self._definition_table, self._providers = runm.table("definitions"), beside.table("providers")
        self.pointer = lru_cache(_REMEMBERED_MAX)(self._pointer_of)
        """The pointer to the definition of exactly a scope."""
        self.sessions: dict[Any, Any] = {}
        """What warm_gets.py knows of sessions, which it checks itself."""
        self.finds: dict[Any, Any] = {}
        """What warm_finds.py knows of finds, which it checks itself."""
        self.rules: dict[Any, Any] = {}
        """What kept_rules.py has made of definitions, which it checks itself."""
        self.creators: dict[Any, Any] = {}
        """What warm_creates.py knows of who makes objects where, each with the guards of it."""
        self._partitions: dict[str, UUID] = {}
        self._scopes: dict[UUID, tuple[Scope, ...]] = {}
        self._definitions: dict[Scope, UUID] = {}

    # ---- what was found ------------------------------------------------------------------------------------------------

    def note_partition(self, name: str, uuid: UUID) -> None:
        """Remember which partition has a name."""
        remember(self._partitions, name, uuid)

    def note_scope(self, partition: UUID, scope: Scope) -> None:
        """Remember that objects of this scope are asked for in the partition, the latest first."""
        known = self._scopes.get(partition, ())
        if scope not in known[:1]:
            kept = (scope, *(one for one in known if one != scope))[:_SCOPES_MAX]
            remember(self._scopes, partition, kept)

    def note_definition(self, scope: Scope, uuid: UUID | None) -> None:
        """Remember which definition hangs at exactly this scope."""
        if uuid is None:
            self._definitions.pop(scope, None)
        else:
            remember(self._definitions, scope, uuid)

    # ---- where to look -------------------------------------------------------------------------------------------------

    def partition_of(self, request: Any) -> UUID | None:
        """The partition that a request's session most likely names."""
        text = request.session.partition
        return parsed_uuid(text) or self._partitions.get(text)

    def partition_named(self, name: str) -> UUID | None:
        """The partition that most likely has a name."""
        return self._partitions.get(name)

    def of_session(self, request: Any, partition: UUID | None) -> list[KeyRef]:
        """The partition of a request's session, where it is known; else the entry of the name that the session has for it."""
        if partition is not None:
            return [(self._partition_table, partition)]
        name = request.session.partition
        return [(self._runm.indexes["partitions_by_name"], name)] if name else []

    def of_partitions(self, texts: Iterable[str]) -> Iterator[KeyRef]:
        """The partitions of those texts that spell UUIDs."""
        table = self._runm.table("partitions")
        for text in texts:
            uuid = parsed_uuid(text)
            if uuid is not None:
                yield table, uuid

    def of_objects(self, uuids: Iterable[UUID], partition: UUID | None) -> Iterator[KeyRef]:
        """Objects, with what stands beside them if they are as those before them in the partition, and their definitions."""
        scopes = self._scopes.get(partition, ()) if partition is not None else ()
        has_providers = _PROVIDER in [scope.object_type for scope in scopes]
        for uuid in uuids:
            yield self._objects, uuid
            if has_providers:
                yield self._providers, uuid
        for scope in scopes:
            yield from self.of_scope(scope)

    def of_types(self, partition: UUID | None) -> Iterator[KeyRef]:
        """The types of objects that were asked for in the partition."""
        table = self._runm.table("object_types")
        for scope in self._scopes.get(partition, ()) if partition is not None else ():
            yield table, scope.object_type

    def of_name(self, partition: UUID, object_type: str, project: str, name: str) -> Iterator[KeyRef]:
        """The entry of an object's name; without a project that of a type whose names belong to the partition."""
        if project:
            key = ObjectName(partition, object_type, project, name)
            yield self._runm.indexes["objects_by_project_and_name"], key
        else:
            yield self._runm.indexes["objects_by_name"], PartitionObjectName(partition, object_type, name)

    def of_scope(self, scope: Scope) -> list[KeyRef]:
        """The pointers that may answer for a scope, and the definitions that they led to."""
        places: list[KeyRef] = []
        for candidate in fallbacks_of(scope):
            places.append(self.pointer(candidate))
            uuid = self._definitions.get(candidate)
            if uuid is not None:
                places.append((self._definition_table, uuid))
        return places

    def of_sub_types(self, object_type: str, codes: Iterable[str]) -> Iterator[KeyRef]:
        """Sub-types of an object type."""
        table = self._runm.table("sub_types")
        for code in codes:
            yield table, ObjectSubType(object_type, code)

    def of_index_states(self) -> Iterator[KeyRef]:
        """Whether each index of objects may be read."""
        for index in self._runm.table("objects").indexes:
            yield index, None

    def _pointer_of(self, scope: Scope) -> KeyRef:
        partition, object_type, sub_type = scope
        table = self._runm.table
        if partition is None:
            if sub_type:
                return table("sub_type_definitions"), ObjectSubType(object_type, sub_type)
            return table("type_definitions"), object_type
        if sub_type:
            return table("partition_sub_type_definitions"), PartitionSubType(partition, object_type, sub_type)
        return table("partition_type_definitions"), PartitionType(partition, object_type)


def remember(known: dict[K, V], key: K, value: V) -> None:
    """Keep a value at a key, with at most some thousand others: what clients ask for must not fill the memory."""
    if len(known) >= _REMEMBERED_MAX and key not in known:
        known.clear()
    known[key] = value
