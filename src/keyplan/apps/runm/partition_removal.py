"""Partitions renamed, which is one commit, and removed with all that they hold, which is a job.

A removal takes the partition and its name first, in the commit that begins it: from then on nobody finds it, and nothing is
made in it. What it held goes afterwards, batch by batch; whoever is interrupted gives the command again. Its UUID is free when
all is gone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from keyplan.apps.runm.definitions import pointer_at, pointers, pointers_of, unpoint
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.identity import parsed_uuid, partition_name_problem
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.readable import readable, readable_many, readable_one
from keyplan.apps.runm.records import Object, Partition
from keyplan.apps.runm.verify import entries_of
from keyplan.engine import Delete, Entry, KeyRange, KeyUnchanged, Snapshot
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptionError,
    InvalidInputError,
    InvalidKeyError,
    NotFoundError,
    TargetTakenError,
    UniqueViolationError,
)
from keyplan.jobs import Job, Progress, Stop, StopCheck, Teller, as_read, begun, look, operations_max
from keyplan.layout import BoundIndex
from keyplan.maintenance import ApplicationJob, ApplicationJobs
from keyplan.store import Backoff, Store, Transaction

__all__ = [
    "Removal",
    "partition_to_remove",
    "plan_removal",
    "remove_partition",
    "rename_partition",
    "require_free_uuid",
]

T = TypeVar("T")

_SPARED_OPERATIONS: Final = 16
"""Left unused in a commit: the job's guard and record, and room for an object that has grown since it was counted."""

_OPERATIONS_OF_AN_OBJECT: Final = 3
"""Besides its properties and tags: record, name, and what stands beside a provider."""

_PLACES: Final = (
    "partition_type_definitions",
    "objects_by_name",
    "objects_by_property",
    "objects_by_tag",
)
"""An item of each place below a partition's UUID, which the keys of the others share."""


class Removal(NamedTuple):
    """What goes with a partition: objects by type, definitions, earlier versions of them, and objects that can be restored."""

    partition: Partition
    objects: Mapping[str, int]
    definitions: int
    versions: int
    restorable: int

    def lines(self) -> Iterator[str]:
        """Yield what goes, in words."""
        yield f"partition {self.partition.uuid.hex} {self.partition.name}"
        yield from (f"objects of {code}: {count}" for code, count in self.objects.items())
        yield f"definitions: {self.definitions}"
        yield f"earlier versions of definitions: {self.versions}"
        yield f"deleted objects that can be restored: {self.restorable}"


def rename_partition(store: Store, prefix: str, partition: str, name: str) -> Partition:
    """Give a partition another name, in one commit. Whoever names it by its UUID notices nothing.

    So a partition whose record cannot be read gets one again. Raises NotFoundError, InvalidInputError for a name that no
    partition can have, AlreadyExistsError for one that is taken.
    """
    deployment = Deployment(store, prefix)
    if problem := partition_name_problem(deployment.bound, name):
        raise InvalidInputError(source="the new name", problem=problem)

    def work(transaction: Transaction) -> Partition:
        state = deployment.over(transaction)
        renamed = Partition(_required(state, partition), name)
        state.runm.partitions.update(renamed.uuid, renamed, damaged_ok=True)
        return renamed

    try:
        return store.run(work)
    except UniqueViolationError as error:
        raise AlreadyExistsError(table="partitions", key=name) from error


def partition_to_remove(store: Store, prefix: str, partition: str) -> Partition:
    """Return the partition of a UUID or name, also one whose removal has begun. Raises as `remove_partition` does.

    Why the name alone is not enough for whoever goes on later: it is free from the removal's first commit on.
    """
    return _begun_or_there(Deployment(store, prefix), partition)


def plan_removal(store: Store, prefix: str, partition: str) -> Removal:
    """Count what goes with a partition; nothing is written. Raises as `remove_partition` does."""
    deployment = Deployment(store, prefix)
    return _Sweep(deployment, _begun_or_there(deployment, partition)).counted()


def remove_partition(
    store: Store,
    prefix: str,
    partition: str,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Removal:
    """Remove a partition and all that it holds; give what went. The service may run meanwhile.

    Given again, by name or UUID, an interrupted removal goes on. Raises NotFoundError, InvalidInputError for a name that
    another partition has by then, StoppedError when `stop` is set, TargetTakenError when another process has taken the removal
    over.
    """
    deployment = Deployment(store, prefix)
    sweep = _Sweep(deployment, _begun_or_there(deployment, partition))
    removal = sweep.counted()
    sweep.run(StopCheck(stop, f"the removal of partition {removal.partition.name}"), Teller(progress), command)
    return removal


def require_free_uuid(deployment: Deployment, state: State, uuid: UUID) -> None:
    """Raise AlreadyExistsError for the UUID of a partition that is being removed; a part of what makes a partition."""
    if ApplicationJobs(state.binding).jobs.exists(_job_name(deployment.bound.root, uuid)):
        raise AlreadyExistsError(table="partitions", key=uuid)


# ---- pieces ------------------------------------------------------------------------------------------------------------

_JOB: Final = b"runm/removal/"


def _job_name(root: bytes, uuid: UUID) -> bytes:
    return _JOB + uuid.hex.encode() + b"/" + root


def _uuid_of(state: State, text: str) -> UUID | None:
    """The UUID of the partition of a UUID or name; also of one whose record cannot be read."""
    uuid = parsed_uuid(text)
    if uuid is None:
        try:
            uuid = state.runm.partitions_by_name.key_of(text)
        except InvalidKeyError:
            return None
    return uuid if uuid is not None and state.runm.partitions.exists(uuid) else None


def _required(state: State, text: str) -> UUID:
    uuid = _uuid_of(state, text)
    if uuid is None:
        raise NotFoundError(table="partitions", key=text)
    return uuid


def _record_of(deployment: Deployment, state: State, uuid: UUID) -> Partition:
    """A partition's record; of one that cannot be read, what its name's entry says."""
    record = readable_one(state.runm.partitions, uuid)
    if record is not None:
        return record
    with deployment.store.engine.snapshot() as snapshot:
        names = [str(index.keys.decode(entry.key)) for index, entry in _names_of(deployment, snapshot, uuid)]
    return Partition(uuid, "".join(names[:1]))


def _names_of(deployment: Deployment, snapshot: Snapshot, uuid: UUID) -> Iterator[tuple[BoundIndex, Entry]]:
    """The entries of names that point at a partition. Why not by its record: one that cannot be read does not say its name."""
    for index in deployment.bound.table("partitions").indexes:
        for entry in snapshot.scan(KeyRange(*index.keys.range(()))):
            if index.keys.decode(entry.key) is not None and entry.value == uuid.hex.encode():
                yield index, entry


def _begun_or_there(deployment: Deployment, text: str) -> Partition:
    """The partition of a UUID or name, also one whose removal has begun.

    Raises NotFoundError; InvalidInputError for a name that is not one partition's alone: it is free once a removal has begun.
    """
    with deployment.reading() as state:
        there = _uuid_of(state, text)
        record = None if there is None else _record_of(deployment, state, there)
        root = deployment.bound.root
        rows = readable(ApplicationJobs(state.binding).jobs.rows())
        begun_ones = [job.facts for key, job in rows if key.startswith(_JOB) and key.endswith(root)]
    uuid = parsed_uuid(text)
    found = [Partition(UUID(facts["uuid"]), facts["name"]) for facts in begun_ones]
    meant = [one for one in found if uuid == one.uuid or (uuid is None and one.name == text)]
    if record is not None:
        meant.append(record)
    if not meant:
        raise NotFoundError(table="partitions", key=text)
    if len(meant) > 1:
        said = [f"{one.uuid.hex}, which {'is there' if one is record else 'is being removed'}" for one in meant]
        problem = f"{text} is the name of several: {'; '.join(said)}. Give the UUID of the one that is meant"
        raise InvalidInputError(source="the partition", problem=problem)
    return meant[0]


class _Sweep:
    """The removal of one partition."""

    def __init__(self, deployment: Deployment, partition: Partition) -> None:
        self._deployment = deployment
        self._partition = partition
        self._limit = operations_max(deployment.store.engine.profile) - _SPARED_OPERATIONS

    def counted(self) -> Removal:
        uuid = self._partition.uuid
        objects = Counter(record.object_type for _, record in self._objects())
        with self._deployment.reading() as state:
            definitions = sum(1 for _ in self._scopes(state))
            versions = sum(1 for _ in state.beside.definition_versions.keys(uuid))
            restorable = sum(1 for _ in self._restorable(state))
        return Removal(self._partition, dict(sorted(objects.items())), definitions, versions, restorable)

    def run(self, stops: StopCheck, tell: Teller, command: Sequence[str]) -> None:
        job = self._begun(stops, command)
        done = 0
        for batch in self._batches():
            Backoff().until_committed(partial(self._together, job, partial(self._delete_objects, batch)))
            done += len(batch)
            job.tell("objects", done)
            tell("objects", done)
        for stage, planned in (
            ("definitions", self._definition_planned),
            ("versions", self._versions_planned),
            ("restorable", self._restorable_planned),
        ):
            while Backoff().until_committed(partial(self._planned_together, job, planned)):
                tell(stage)
        self._delete_rest(job)
        job.end()

    # ---- the beginning -------------------------------------------------------------------------------------------------

    def _begun(self, stops: StopCheck, command: Sequence[str]) -> Job[ApplicationJob]:
        """Take the partition and its name away, in the commit that writes the job's record; or take the job over."""
        engine, uuid = self._deployment.store.engine, self._partition.uuid
        jobs, partitions = ApplicationJobs.bound().table("jobs"), self._deployment.bound.table("partitions")
        with engine.snapshot() as snapshot:
            seen = look(snapshot, jobs.keys.encode(_job_name(self._deployment.bound.root, uuid)), jobs.form)
            record_entry = snapshot.get(partitions.keys.encode(uuid))
            names = [entry for _, entry in _names_of(self._deployment, snapshot, uuid)]
        record = seen.record or ApplicationJob(
            subject=f"the removal of runm's partition {self._partition.name}",
            facts={"uuid": uuid.hex, "name": self._partition.name},
        )
        own = names if record_entry is None else [record_entry, *names]
        try:
            return Job[ApplicationJob].begin(
                engine,
                seen,
                begun(record, command=command),
                jobs.form,
                lost=self._lost,
                stops=stops,
                mutations=[Delete(entry.key) for entry in own],
                guards=[as_read(entry.key, entry) for entry in own],
            )
        except CommitConflictError as error:
            raise self._lost("somebody writes the partition at this moment: give the command again") from error

    def _lost(self, problem: str) -> TargetTakenError:
        return TargetTakenError(prefix=self._deployment.bound.root, problem=problem)

    # ---- what goes -----------------------------------------------------------------------------------------------------

    def _objects(self) -> Iterator[tuple[UUID, Object]]:
        """The partition's objects, by their records: a name may have no entry. One that cannot be read is nobody's."""
        table = self._deployment.bound.table("objects")
        for uuid, entry in entries_of(table, self._deployment):
            try:
                record = table.form.decode(entry.value)
            except CorruptionError:
                continue
            if record.partition == self._partition.uuid:
                yield uuid, record

    def _batches(self) -> Iterator[list[UUID]]:
        batch: list[UUID] = []
        operations = 0
        for uuid, record in self._objects():
            own = _OPERATIONS_OF_AN_OBJECT + len(record.properties) + len(record.tags)
            if batch and operations + own > self._limit:
                yield batch
                batch, operations = [], 0
            batch.append(uuid)
            operations += own
        if batch:
            yield batch

    def _scopes(self, state: State) -> Iterator[tuple[Scope, UUID]]:
        return pointers_of(state.runm, self._partition.uuid, damaged_ok=True)

    def _restorable(self, state: State) -> Iterator[UUID]:
        found = readable(state.beside.deleted.rows())
        return (uuid for uuid, deleted in found if deleted.object.partition == self._partition.uuid)

    # ---- batches -------------------------------------------------------------------------------------------------------

    def _together(self, job: Job[ApplicationJob], act: Callable[[State], int]) -> int:
        """Do something in one commit that is guarded by the job; give how many records it took, 0 when nothing is left."""
        with self._deployment.store.transaction() as transaction:
            count = act(self._deployment.over(transaction))
            commit = transaction.collected()
            transaction.close()
        if count:
            job.commit(commit.mutations, guards=commit.guards)
        return count

    def _delete_objects(self, uuids: Sequence[UUID], state: State) -> int:
        count = 0
        for uuid, record in zip(uuids, readable_many(state.runm.objects, uuids), strict=True):
            if record is not None and record.partition == self._partition.uuid:
                state.runm.objects.delete(uuid)
                if record.object_type == PROVIDER:
                    state.beside.providers.delete(uuid)
                count += 1
        return count

    def _planned_together(self, job: Job[ApplicationJob], planned: Callable[[State], Callable[[State], int]]) -> int:
        """Look in a snapshot for what is next, and take it in one commit. Why apart: what a commit looks at guards it."""
        with self._deployment.reading() as state:
            act = planned(state)
        return self._together(job, act)

    def _definition_planned(self, state: State) -> Callable[[State], int]:
        scope, uuid = next(self._scopes(state), (None, None))
        if scope is None or uuid is None:
            return lambda _: 0
        every = (*pointers(state.runm, damaged_ok=True), *self._scopes(state))
        is_shared = any(one == uuid and other != scope for other, one in every)
        return partial(self._delete_definition, scope, uuid, is_shared)

    @staticmethod
    def _delete_definition(scope: Scope, uuid: UUID, is_shared: bool, state: State) -> int:  # noqa: FBT001  # Why: private.
        if pointer_at(state.runm, scope) == uuid:
            unpoint(state.runm, scope)
            if not is_shared:
                state.runm.definitions.delete(uuid)
        return 1

    def _versions_planned(self, state: State) -> Callable[[State], int]:
        keys = list(state.beside.definition_versions.keys(self._partition.uuid, limit=self._limit))
        return partial(_deleted_all, keys, lambda after: after.beside.definition_versions)

    def _restorable_planned(self, state: State) -> Callable[[State], int]:
        uuids = list(islice(self._restorable(state), self._limit))
        return partial(_deleted_all, uuids, lambda after: after.beside.deleted)

    def _delete_rest(self, job: Job[ApplicationJob]) -> None:
        """Remove entries below the partition's UUID that no record calls for."""
        for name in _PLACES:
            items: Mapping[str, Any] = {**self._deployment.bound.tables, **self._deployment.bound.indexes}
            rest = KeyRange(*items[name].keys.range((self._partition.uuid,)))
            while True:
                with self._deployment.store.engine.snapshot() as snapshot:
                    entries = list(snapshot.scan(rest, limit=self._limit))
                if not entries:
                    break
                guards = [KeyUnchanged(entry.key, entry.mod_revision) for entry in entries]
                with suppress(CommitConflictError):
                    job.commit([Delete(entry.key) for entry in entries], guards=guards)


def _deleted_all(keys: Sequence[Any], table_of: Callable[[State], Any], state: State) -> int:
    table = table_of(state)
    for key in keys:
        table.delete(key)
    return len(keys)
