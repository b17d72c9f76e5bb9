"""Records as the original wrote them, read as they are: texts where ours have UUIDs, any name, any project. Pure.

The original checks little: a UUID may be any text, a name or a project empty, a project may stand in an object of a partition.
`Original` says of one stored record what it is to be here; what takes a decision says which, and in which words it is given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from keyplan.apps.runm.identity import KEY_BYTES_MAX, parsed_uuid, partition_name_problem, spelled_project
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope, Partition, Property
from keyplan.apps.runm.wire_table import RUNM
from keyplan.codec import ValueForm
from keyplan.engine import Entry
from keyplan.errors import CorruptionError, RecordError
from keyplan.layout import BoundIndex, BoundLayout, BoundTable, shown_key

__all__ = ["NAMED_TABLES", "Decisions", "Original", "Undecided", "Written"]

NAMED_TABLES: Final = ("partitions", "objects")
"""The tables whose records have names, in the order in which records lean on one another."""


class _WrittenPartition(Struct, frozen=True):
    uuid: str
    name: str


class _WrittenObject(Struct, frozen=True):
    partition: str
    object_type: str
    project: str
    uuid: str
    name: str
    properties: tuple[Property, ...] = ()
    tags: tuple[str, ...] = ()


_FORMS: Final[Mapping[str, ValueForm[_WrittenPartition] | ValueForm[_WrittenObject]]] = {
    "partitions": RUNM.wire_form(_WrittenPartition, "Partition"),
    "objects": RUNM.wire_form(_WrittenObject, "Object"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What an operator has decided, by the digits of a record's UUID.

    `names` are new names, `projects` the projects of objects, `project` that of every other object that has none and must have
    one. `uuids` are by the texts that stand in a UUID's place, none of which is spelled as a UUID is here.
    """

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    projects: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    project: str = ""
    uuids: Mapping[str, UUID] = field(default_factory=lambda: MappingProxyType({}))

    def uuid(self, text: str) -> UUID | None:
        """Return the UUID that a text spells, or stands for by decision."""
        return self.uuids.get(text) or parsed_uuid(text)


class Undecided(NamedTuple):
    """A record that cannot be kept as it is: a code, its key, and the decision that it takes."""

    code: str
    key: str
    what: str


class Written(NamedTuple):
    """One record: its entry, its UUID, and what it is to be; `is_changed` where that is not what is stored.

    `names` are the entries that its name should have, key and value. `original_name` is the key that the original gave it.
    """

    table: BoundTable
    entry: Entry
    text: str
    uuid: UUID
    record: Partition | Object
    is_changed: bool
    names: Mapping[bytes, bytes]
    original_name: bytes


class Original:
    """Reads the records of a root, with the types that there are and what an operator has decided."""

    def __init__(
        self, bound: BoundLayout, types: Mapping[str, ObjectType], decisions: Decisions, *, has_every_type: bool = False
    ) -> None:
        """With `has_every_type` an object of another type is undecided; without, its own project says whether it has one."""
        self.bound = bound
        self.decisions = decisions
        self._types = types
        self._has_every_type = has_every_type

    def read(self, table_name: str, entry: Entry) -> Written | Undecided | None:
        """Return what a stored record is to be; None for one that cannot be read, which `verify` names."""
        table = self.bound.table(table_name)
        text = entry.key[len(table.keys.prefix(())) :].decode("utf-8", "replace")
        try:
            found = _FORMS[table_name].decode(entry.value)
        except CorruptionError:
            return None
        uuid = self.decisions.uuid(text)
        if uuid is None:
            return self._undecided("odd-uuid", entry, f"{text} is no UUID: give it one by --uuid {text}=UUID")
        if isinstance(found, _WrittenPartition):
            return self._partition(entry, text, uuid, found)
        return self._object(entry, text, uuid, found)

    def _partition(self, entry: Entry, text: str, uuid: UUID, found: _WrittenPartition) -> Written | Undecided:
        record = Partition(self.decisions.uuid(found.uuid) or uuid, self.decisions.names.get(uuid.hex, found.name))
        is_changed = (found.uuid, found.name) != (record.uuid.hex, record.name)
        beginning = self.bound.indexes["partitions_by_name"].keys.prefix(())
        return self._named("partitions", entry, text, uuid, record, beginning + found.name.encode(), is_changed)

    def _object(self, entry: Entry, text: str, uuid: UUID, found: _WrittenObject) -> Written | Undecided:
        partition = self.decisions.uuid(found.partition)
        if partition is None:
            what = f"its partition {found.partition} is no UUID: give it one by --uuid {found.partition}=UUID"
            return self._undecided("odd-uuid", entry, what)
        kind = self._types.get(found.object_type)
        if kind is None and self._has_every_type:
            what = f"its type {found.object_type} is not there: give it to the service, --object-type {found.object_type}:SCOPE"
            return self._undecided("unknown-type", entry, what)
        has_project = bool(found.project) if kind is None else kind.scope is ObjectTypeScope.PROJECT
        project = self._project(uuid, found) if has_project else ""
        if has_project and not project:
            what = f"it must have a project: name it by --project {uuid.hex}=PROJECT, or --project PROJECT for all such objects"
            return self._undecided("no-project", entry, what)
        record = Object(
            partition=partition,
            object_type=found.object_type,
            uuid=self.decisions.uuid(found.uuid) or uuid,
            name=self.decisions.names.get(uuid.hex, found.name),
            project=project,
            properties=found.properties,
            tags=found.tags,
        )
        is_changed = (found.partition, found.uuid, found.name, found.project) != (
            *(record.partition.hex, record.uuid.hex),
            *(record.name, record.project),
        )
        name = self._original_name(found, has_project=has_project)
        return self._named("objects", entry, text, uuid, record, name, is_changed)

    def _project(self, uuid: UUID, found: _WrittenObject) -> str:
        decided = self.decisions.projects.get(uuid.hex) or found.project or self.decisions.project
        return spelled_project(decided)

    def _original_name(self, found: _WrittenObject, *, has_project: bool) -> bytes:
        """The key of an object's name as the original made it, of the raw texts.

        Why not by a layout: keys of texts that are not escaped are ambiguous, and a layout that declared them would not pass.
        """
        scope = f"by-project/{found.project}/" if has_project else ""
        below = f"partitions/{found.partition}/objects/by-type/{found.object_type}/{scope}by-name/{found.name}"
        return self.bound.root + below.encode()

    def _named(
        self,
        table_name: str,
        entry: Entry,
        text: str,
        uuid: UUID,
        record: Partition | Object,
        original_name: bytes,
        is_changed: bool,  # noqa: FBT001
    ) -> Written | Undecided:
        if not record.name:
            return self._undecided("no-name", entry, f"it has no name: give it one by --rename {uuid.hex}=NAME")
        table = self.bound.table(table_name)
        # Why of new names alone: what the original has written is found by the service, or has a step of its own.
        is_new_name = uuid.hex in self.decisions.names
        problem = partition_name_problem(self.bound, record.name) if is_new_name and table_name == "partitions" else ""
        if problem:
            return self._undecided("no-name", entry, f"{problem}. Give it another by --rename {uuid.hex}=NAME")
        try:
            names = {key: value for index in self._name_indexes(table) for key, value in index.entries(uuid, record)}
        except RecordError:
            names = {}
        is_too_long = is_new_name and max(map(len, names), default=0) > KEY_BYTES_MAX
        if not names or is_too_long:
            words = f"--rename {uuid.hex}=NAME" + (
                f" or --project {uuid.hex}=PROJECT" if table_name == "objects" else ""
            )
            return self._undecided(
                "long-name", entry, f"its name or project does not fit into a key: shorten it by {words}"
            )
        is_moved = table.keys.encode(uuid) != entry.key
        return Written(table, entry, text, uuid, record, is_changed or is_moved, names, original_name)

    @staticmethod
    def _name_indexes(table: BoundTable) -> Iterator[BoundIndex]:
        # Why these alone: a tag that no index can hold hides no name.
        return (index for index in table.indexes if index.spec.is_unique)

    @staticmethod
    def _undecided(code: str, entry: Entry, what: str) -> Undecided:
        return Undecided(code, shown_key(entry.key), f"left: {what}")
