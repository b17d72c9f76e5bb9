"""Partitions between installations: one written to a file as of one state, one brought in from a file with its UUIDs kept.

Nothing is brought in while anything of the file does not fit the store. What is there already, just as it is in the file, is
passed over, so that an import that was interrupted is run again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.definitions import point, pointer_at, pointers_of
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.identity import checked_object, partition_name_problem
from keyplan.apps.runm.layout import ObjectName, ObjectSubType, PartitionObjectName, Runm
from keyplan.apps.runm.names import refuse_unnamed
from keyplan.apps.runm.partition_file import (
    FORMAT,
    DefinitionLine,
    Line,
    ObjectLine,
    ObjectTypeLine,
    PartitionLine,
)
from keyplan.apps.runm.partition_removal import require_free_uuid
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object, ObjectType, Partition
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.session import partition_named
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.well_known import WELL_KNOWN_PROVIDER_TYPES, known_types
from keyplan.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError
from keyplan.store import Store, Transaction

__all__ = ["ImportReport", "exported", "import_partition"]

_BATCH: Final = 128
"""Objects read at once, and, where the engine does not allow fewer, written at once."""

_SPARED_OPERATIONS: Final = 2
"""Left unused in a commit: what each asks of the partition."""

_OPERATIONS_OF_AN_OBJECT: Final = 5
"""Besides its properties and tags: record, name, what stands beside it, and room."""


class ImportReport(NamedTuple):
    """What an import wrote, or would write; what was there already; and what is in the way of it, in words."""

    written: int
    present: int
    conflicts: tuple[str, ...]


def exported(store: Store, prefix: str, partition: str, *, url: str = "") -> Iterator[Line]:
    """Yield what belongs to the partition of a UUID or name, as of one state. Raises NotFoundError.

    Types come first, so that a reader knows what the rest needs; objects by type, project and name. Raises InvalidInputError
    for a store where not all of them are found by their names, with the command that mends the one that `url` names.
    """
    deployment = Deployment(store, prefix, url=url)
    refuse_unnamed(deployment)
    with deployment.reading() as state:
        record = partition_named(state, partition)
        if record is None:
            raise NotFoundError(table="partitions", key=partition)
        yield PartitionLine(FORMAT, record.uuid, record.name)
        kinds = [kind for _, kind in state.runm.object_types.list()]
        yield from map(ObjectTypeLine, kinds)
        for scope, uuid in pointers_of(state.runm, record.uuid):
            definition = state.runm.definitions.get(uuid)
            if definition is not None:
                yield DefinitionLine(scope.object_type, scope.sub_type, definition)
        for kind in kinds:
            yield from _objects(state, record.uuid, kind)


def import_partition(
    store: Store,
    prefix: str,
    lines: Callable[[], Iterable[Line]],
    *,
    is_dry_run: bool,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Bring a partition in; `lines` gives the file from its beginning, twice. With conflicts nothing is written.

    Objects go in many to a commit, each with its index entries, and only if they still fit then. Raises InvalidInputError for
    a file that is none, ConflictError when somebody wrote in between: then run it again.
    """
    deployment = Deployment(store, prefix)
    examined = _Examined(deployment)
    for batch in _batches(lines(), _BATCH):
        with deployment.reading() as state:
            for line in batch:
                examined.look_at(state, line)
    if examined.conflicts or is_dry_run:
        return ImportReport(examined.missing, examined.present, tuple(examined.conflicts))
    ensure_started(deployment)
    written = 0
    limit = store.engine.profile.commit_operations_max or _BATCH * _OPERATIONS_OF_AN_OBJECT
    for batch in _fitting(lines(), limit - _SPARED_OPERATIONS):
        written += store.run(partial(_write, deployment, examined.partition, batch))
        if progress is not None:
            progress(written)
    return ImportReport(written, examined.present, ())


# ---- out ---------------------------------------------------------------------------------------------------------------


def _objects(state: State, partition: UUID, kind: ObjectType) -> Iterator[ObjectLine]:
    by_project = (record for _, record in state.runm.objects_by_project_and_name.list(partition, kind.code))
    by_partition = (record for _, record in state.runm.objects_by_name.list(partition, kind.code))
    for records in (by_partition, by_project):
        while batch := list(islice(records, _BATCH)):
            is_of_providers = kind.code == PROVIDER
            beside = (
                state.beside.providers.get_many([one.uuid for one in batch]) if is_of_providers else [None] * len(batch)
            )
            yield from map(ObjectLine, batch, beside)


# ---- in: what is in the way --------------------------------------------------------------------------------------------


class _Examined:
    """What looking at a file found."""

    def __init__(self, deployment: Deployment) -> None:
        self.conflicts: list[str] = []
        self.missing = 0
        self.present = 0
        self._deployment = deployment
        # Why the well-known too: an import into an empty store makes them.
        self._types = known_types(deployment)
        self._partition: Partition | None = None

    @property
    def partition(self) -> Partition:
        """The file's. Raises InvalidInputError when it was empty."""
        if self._partition is None:
            raise InvalidInputError(source="import", problem="there is no partition in the file")
        return self._partition

    def look_at(self, state: State, line: Line) -> None:
        match line:
            case PartitionLine():
                self._partition = Partition(line.uuid, line.name)
                self._look_at_partition(state, self._partition)
            case ObjectTypeLine():
                self._look_at_type(line.record)
            case DefinitionLine():
                self._look_at_definition(state, line)
            case ObjectLine():
                self._look_at_object(state, line)

    def _look_at_partition(self, state: State, own: Partition) -> None:
        if problem := partition_name_problem(self._deployment.bound, own.name):
            self.conflicts.append(
                f"partition {own.uuid.hex}: {problem}. Rename it by `keyplan runm rename` where it is from"
            )
            return
        there = state.runm.partitions.get(own.uuid)
        holder = state.runm.partitions_by_name.key_of(own.name)
        if there is not None and there != own:
            self.conflicts.append(f"partition {own.uuid.hex} has the name {there.name} there")
        elif holder not in {None, own.uuid}:
            self.conflicts.append(f"the name {own.name} is another partition's there")
        else:
            self._count(is_present=there is not None)

    def _look_at_type(self, kind: ObjectType) -> None:
        there = self._types.get(kind.code)
        if there is not None and there.scope is not kind.scope:
            self.conflicts.append(f"object type {kind.code} has the scope {there.scope.name} there")

    def _look_at_definition(self, state: State, line: DefinitionLine) -> None:
        uuid = line.record.uuid
        there = pointer_at(state.runm, _scope(self.partition, line))
        record = state.runm.definitions.get(uuid)
        if there is not None and (there != uuid or record != line.record):
            self.conflicts.append(f"{line.object_type} {line.sub_type}".rstrip() + " has another definition there")
        elif there is None and record is not None:
            self.conflicts.append(f"definition {uuid.hex} is another scope's there")
        elif line.sub_type and not self._is_sub_type(state, line.sub_type):
            self.conflicts.append(f"definition {uuid.hex}: provider type {line.sub_type} is not registered there")
        else:
            self._count(is_present=there is not None)

    def _look_at_object(self, state: State, line: ObjectLine) -> None:
        own = line.record
        if own.partition != self.partition.uuid or (line.provider is not None and line.provider.uuid != own.uuid):
            raise InvalidInputError(source="import", problem=f"object {own.uuid.hex} is not of this partition")
        there = state.runm.objects.get(own.uuid)
        reason = self._why_not(state, line, there)
        if reason:
            self.conflicts.append(f"object {own.uuid.hex}: {reason}")
        else:
            self._count(is_present=there is not None)

    def _why_not(self, state: State, line: ObjectLine, there: Object | None) -> str:
        """Why an object cannot be brought in; empty when it can, or is there."""
        own = line.record
        if there is not None:
            is_same = there == own and state.beside.providers.get(own.uuid) == line.provider
            return "" if is_same else "it is another one there, or was changed"
        kind = self._types.get(own.object_type)
        if kind is None:
            return f"its type {own.object_type} is not registered there"
        provider_type = "" if line.provider is None else line.provider.provider_type
        if provider_type and not self._is_sub_type(state, provider_type):
            return f"its provider type {provider_type} is not registered there"
        try:
            checked_object(self._deployment.bound, own, kind)
        except RefusedError as error:
            return error.text
        return "" if _holder(state, own) is None else f"its name {own.name} is another object's there"

    def _is_sub_type(self, state: State, code: str) -> bool:
        is_well_known = any(code == one.code for one in WELL_KNOWN_PROVIDER_TYPES)
        return is_well_known or state.runm.sub_types.exists(ObjectSubType(PROVIDER, code))

    def _count(self, *, is_present: bool) -> None:
        self.present += is_present
        self.missing += not is_present


def _scope(partition: Partition, line: DefinitionLine) -> Scope:
    return Scope(partition.uuid, line.object_type, line.sub_type)


def _holder(state: State, record: Object) -> UUID | None:
    partition, code, name = record.partition, record.object_type, record.name
    if record.project:
        return state.runm.objects_by_project_and_name.key_of(ObjectName(partition, code, record.project, name))
    return state.runm.objects_by_name.key_of(PartitionObjectName(partition, code, name))


# ---- in: what is written -----------------------------------------------------------------------------------------------


def _batches(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    rest = iter(lines)
    while batch := list(islice(rest, size)):
        yield batch


def _fitting(lines: Iterable[Line], operations_max: int) -> Iterator[list[Line]]:
    """Lines that surely fit one commit together; one that does not stands alone."""
    batch: list[Line] = []
    operations = 0
    for line in lines:
        own = _OPERATIONS_OF_AN_OBJECT
        if isinstance(line, ObjectLine):
            own += len(line.record.properties) + len(line.record.tags)
        if batch and operations + own > operations_max:
            yield batch
            batch, operations = [], 0
        batch.append(line)
        operations += own
    if batch:
        yield batch


def _write(deployment: Deployment, partition: Partition, lines: Sequence[Line], transaction: Transaction) -> int:
    """Write what is not there; return how many records that were.

    Raises ConflictError for what is there by now as another one: it was not when the file was compared with the store.
    """
    state = deployment.over(transaction)
    runm, written = state.runm, 0
    # Why in each commit: between two of them the partition may be removed, or be given another name.
    there = runm.partitions.get(partition.uuid)
    if there is None and any(isinstance(line, PartitionLine) for line in lines):
        require_free_uuid(deployment, state, partition.uuid)
        runm.partitions.insert(partition.uuid, partition)
        written += 1
    elif there is None:
        raise ConflictError(problem=f"partition {partition.uuid.hex} was removed meanwhile")
    elif there != partition:
        raise AlreadyExistsError(table="partitions", key=partition.uuid)
    for line in lines:
        if isinstance(line, DefinitionLine):
            written += _write_definition(runm, _scope(partition, line), line)
        elif isinstance(line, ObjectLine):
            written += _write_object(state, line)
    return written


def _write_definition(runm: Runm, scope: Scope, line: DefinitionLine) -> bool:
    """Write a definition and its pointer, unless both are there; return whether they were not."""
    uuid = line.record.uuid
    found = pointer_at(runm, scope), runm.definitions.get(uuid)
    if found == (None, None):
        runm.definitions.insert(uuid, line.record)
        point(runm, scope, uuid)
        return True
    if found != (uuid, line.record):
        raise AlreadyExistsError(table="definitions", key=uuid)
    return False


def _write_object(state: State, line: ObjectLine) -> bool:
    """Write an object, unless it is there; return whether it was not."""
    there = state.runm.objects.get(line.record.uuid)
    if there is None:
        state.runm.objects.insert(line.record.uuid, line.record)
        if line.provider is not None:
            state.beside.providers.put(line.record.uuid, line.provider)
    elif there != line.record:
        raise AlreadyExistsError(table="objects", key=line.record.uuid)
    return there is None
