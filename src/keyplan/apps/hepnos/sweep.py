"""What belongs to nothing any more, found and removed: a job that anybody goes on with, beside loaders that write.

deletion    a data set whose deletion was interrupted
orphan      runs, subruns, events and products with the UUID of no data set
note        the note of a table of which no product is left, where it is asked for: a table without rows has one, too

Why safe beside writers: a data set has its record before anything has its UUID, and a UUID is made once. So what is found with
a UUID, and has no record afterwards, is of a data set that is gone; each database is fenced before its keys go.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import msgspec

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.dataset_ref import is_deleting, uuid_of
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.deletions import FencedDatabase
from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, is_key, path_of_key, product_suffix
from keyplan.apps.hepnos.table_notes import note_id, noted_tables
from keyplan.engine import ALL_KEYS, Engine, KeyRange, PrefixedEngine, Snapshot
from keyplan.errors import CommitConflictError, CorruptionError, InvalidInputError, TargetTakenError
from keyplan.jobs import Job, Progress, Stop, StopCheck, Teller, begun, look
from keyplan.maintenance import ApplicationJob, ApplicationJobs
from keyplan.ring import OWN_PREFIX, OWN_RANGE
from keyplan.store import Backoff

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.store import DataStore

__all__ = ["Leftover", "is_under_way", "leftovers", "sweep"]

_JOB: Final = b"hepnos.sweep"
_UUID_BYTES: Final = 16
_BATCH_KEYS: Final = 4_096
"""Why: writers wait for a commit of so many keys for some milliseconds."""

_CONTENTS: Final = (Kind.PRODUCT, Kind.EVENT, Kind.SUBRUN, Kind.RUN)


class Leftover(NamedTuple):
    """Something that belongs to nothing: what it is, the name of its data set or its UUID, and how many keys it has or had."""

    what: str
    name: str
    keys: int


class _Found(NamedTuple):
    deletions: list[tuple[str, UUID]]
    orphans: list[UUID]


def leftovers(store: "DataStore", *, has_notes: bool = False) -> Iterator[Leftover]:
    """Yield what `sweep` would remove. Writes nothing."""
    _refuse_server(store)
    found = _look(store.databases)
    for path, uuid in found.deletions:
        yield Leftover("deletion", path, _count(store.databases, uuid))
    for uuid in found.orphans:
        yield Leftover("orphan", str(uuid), _count(store.databases, uuid))
    if has_notes:
        for dataset in _live(store):
            for label, _, _ in _empty_notes(dataset):
                yield Leftover("note", f"{dataset.path} {label}", 1)


def sweep(
    store: "DataStore",
    *,
    has_notes: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stop: Stop | None = None,
    command: Sequence[str] = (),
) -> Iterator[Leftover]:
    """Remove what belongs to nothing, in batches, and yield each thing that was; nobody has to be kept from writing.

    One at a time does it: who begins takes it over from another, who is told. `progress` is told how many keys are gone. When
    `stop` is set it ends between two batches, with StoppedError; whoever calls this again goes on. Raises TargetTakenError when
    another process has taken the work over; InvalidInputError for a server, and, before anything is removed, while the record
    of a data set cannot be read: it may be the one.
    """
    _refuse_server(store)
    run = _Sweep(store, StopCheck(stop, "the sweep"), Teller(progress), command)
    return run.carry_out(has_notes=has_notes)


def is_under_way(store: "DataStore") -> bool:
    """Whether a sweep has begun and not ended: somebody goes on with it, or it was interrupted and waits for that."""
    if store.address.is_server:
        return False
    engine, jobs = _job_engine(store.databases), ApplicationJobs.bound().table("jobs")
    with engine.snapshot() as snapshot:
        return look(snapshot, jobs.keys.encode(_JOB), jobs.form).record is not None


class _Sweep:
    def __init__(self, store: "DataStore", stops: StopCheck, told: Teller, command: Sequence[str]) -> None:
        self._store = store
        self._databases = store.databases
        self._stops = stops
        self._told = told
        self._command = command
        self._done = 0

    def carry_out(self, *, has_notes: bool) -> Iterator[Leftover]:
        found = _look(self._databases)
        job = self._begun()
        self._put_back(job)
        for path, uuid in found.deletions:
            keys = self._empty(job, uuid)
            DataSet(self._store, path, uuid).delete()
            yield Leftover("deletion", path, keys)
        for uuid in found.orphans:
            yield Leftover("orphan", str(uuid), self._empty(job, uuid))
        if has_notes:
            for dataset in _live(self._store):
                yield from self._notes(job, dataset)
        job.end()

    def _begun(self) -> Job[ApplicationJob]:
        engine, jobs = _job_engine(self._databases), ApplicationJobs.bound().table("jobs")
        with engine.snapshot() as snapshot:
            seen = look(snapshot, jobs.keys.encode(_JOB), jobs.form)
        record = seen.record or ApplicationJob(subject="the sweep of a HEPnOS store")
        begin = Job[ApplicationJob].begin
        try:
            return begin(engine, seen, begun(record, command=self._command), jobs.form, lost=_lost, stops=self._stops)
        except CommitConflictError as error:
            raise _lost("another process begins it at this moment") from error

    def _empty(self, job: Job[ApplicationJob], uuid: UUID) -> int:
        """Remove what has a UUID, batch by batch; return how many keys it was."""
        removed = 0
        for kind in _CONTENTS:
            ring = self._databases.rings[kind]
            for number, database in enumerate(ring.databases):
                assert isinstance(database, FencedDatabase)
                for keys in database.removing(uuid.bytes, _BATCH_KEYS, partial(ring.commit_in, number)):
                    removed += keys
                    self._done += keys
                    job.tell("removing", self._done)
                    job.commit()
                    self._told("removing", self._done)
        return removed

    # ---- notes ---------------------------------------------------------------------------------------------------------

    def _notes(self, job: Job[ApplicationJob], dataset: DataSet) -> Iterator[Leftover]:
        """Remove the notes of a data set whose tables have no products, and put back what a loader has used meanwhile.

        Whoever writes a table notes it before and afterwards: what was written before the note was removed is found by a second
        look, what was written later is noted again. Whoever goes on with the job finds the note in its record.
        """
        for label, raw_key, suffix in _empty_notes(dataset):
            value = self._store.raw_value(Kind.PRODUCT, raw_key)
            if value is None:
                continue
            facts = {"note": raw_key.hex(), "value": value.hex(), "suffix": suffix.hex()}
            facts |= {"dataset": dataset.path, "uuid": dataset.uuid.hex}
            job.commit(record=msgspec.structs.replace(job.record, facts=facts))
            # Why of this value: what is put back afterwards is what was removed.
            Backoff().until_committed(partial(self._databases.remove, Kind.PRODUCT, raw_key, value=value))
            if not self._put_back(job):
                yield Leftover("note", f"{dataset.path} {label}", 1)

    def _put_back(self, job: Job[ApplicationJob]) -> bool:
        """Write the note in the job's record again, when there are products of its table by now. Return whether there are."""
        facts = job.record.facts
        if not facts:
            return False
        dataset = DataSet(self._store, facts["dataset"], UUID(hex=facts["uuid"]))
        raw_key, value = bytes.fromhex(facts["note"]), bytes.fromhex(facts["value"])
        is_used = dataset.exists() and not _unused(dataset, {bytes.fromhex(facts["suffix"])})
        if is_used:
            place = self._databases.place(Kind.PRODUCT, raw_key)
            self._databases.put(Kind.PRODUCT, place, [raw_key], [value], mode="new")
        job.commit(record=msgspec.structs.replace(job.record, facts={}))
        return is_used


def _empty_notes(dataset: DataSet) -> list[tuple[str, bytes, bytes]]:
    """Return the label and the raw key of each note of a table without products, and what its products' keys end with."""
    try:
        waiting = {product_suffix(each.label, each.type.name): each for each in noted_tables(dataset)}
        unused = _unused(dataset, set(waiting))
    except DeletedError:  # Why nothing: it is deleted meanwhile, with its notes.
        return []
    return [(waiting[suffix].label, note_id(dataset, waiting[suffix]).raw, suffix) for suffix in sorted(unused)]


def _unused(dataset: DataSet, suffixes: set[bytes]) -> set[bytes]:
    """Return those of the ends of products' keys that none in the data set has. Goes through its keys until each was seen."""
    databases = dataset.datastore.databases
    for database in range(len(databases.rings[Kind.PRODUCT].databases)):
        with databases.snapshot(Kind.PRODUCT, database) as snapshot:
            for key in snapshot.keys(KeyRange.of_prefix(dataset.uuid.bytes)) if suffixes else ():
                suffixes.discard(key[ITEM_BYTES:])
                if not suffixes:
                    break
    return suffixes


# ---- what there is -------------------------------------------------------------------------------------------------------


def _look(databases: Databases) -> _Found:
    """Find the data sets whose deletion was interrupted, and the UUIDs that are of none.

    Why the contents first: whoever writes them has made the record before.
    """
    held: set[bytes] = set()
    for kind in _CONTENTS:
        for number in range(len(databases.rings[kind].databases)):
            with databases.snapshot(kind, number) as snapshot:
                held.update(_uuids_in(kind, snapshot))
    live: set[bytes] = set()
    deletions: list[tuple[str, UUID]] = []
    for number in range(len(databases.rings[Kind.DATASET].databases)):
        with databases.snapshot(Kind.DATASET, number) as snapshot:
            for key, value in snapshot.pairs(ALL_KEYS):
                if key.startswith(OWN_PREFIX):
                    continue
                path, uuid = _record(key, value)
                live.add(uuid.bytes)
                if is_deleting(value):
                    deletions.append((path, uuid))
    return _Found(deletions, [UUID(bytes=uuid) for uuid in sorted(held - live)])


def _record(key: bytes, value: bytes) -> tuple[str, UUID]:
    path = path_of_key(key)
    try:
        uuid = uuid_of(value, path or key.hex())
    except CorruptionError as error:
        problem = f"the record of a data set cannot be read ({path or key.hex()}); restore it, or remove it, first"
        raise InvalidInputError(source="sweep", problem=problem) from error
    return path or key.hex(), uuid


def _uuids_in(kind: Kind, snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the UUIDs that keys of a kind begin with, each once: from one to the next is a leap, whatever lies between.

    Why of the kind: what no layout explains is nobody's to remove.
    """
    start = b""
    while True:
        key = next(snapshot.keys(KeyRange(start, None), limit=1), None)
        if key is None:
            return
        stretch = OWN_RANGE if key.startswith(OWN_PREFIX) else KeyRange.of_prefix(key[:_UUID_BYTES])
        if len(key) < _UUID_BYTES:
            stretch = KeyRange.of_key(key)  # Why only this: it is no key of anything, and what begins with it may be.
        elif stretch is not OWN_RANGE and any(is_key(kind, each) for each in snapshot.keys(stretch)):
            yield key[:_UUID_BYTES]
        if stretch.end is None:
            return
        start = stretch.end


def _count(databases: Databases, uuid: UUID) -> int:
    whole, found = KeyRange.of_prefix(uuid.bytes), 0
    for kind in _CONTENTS:
        for database in databases.rings[kind].databases:
            assert isinstance(database, FencedDatabase)
            with database.inner.snapshot() as snapshot:
                found += snapshot.count(whole)
    return found


def _live(store: "DataStore") -> Iterator[DataSet]:
    return (dataset for dataset in store.all_datasets() if dataset.exists())


def _job_engine(databases: Databases) -> Engine:
    """Return where the job's record is: beside the description of the first ring, where it is no data set."""
    first = databases.rings[Kind.DATASET].databases[0]
    return PrefixedEngine(first, OWN_PREFIX, closes_inner=False)


def _lost(problem: str) -> TargetTakenError:
    return TargetTakenError(prefix=OWN_PREFIX + _JOB, problem=problem)


def _refuse_server(store: "DataStore") -> None:
    if store.address.is_server:
        problem = "a server's store is swept where its databases are: give the URL that its hepnos.store names"
        raise InvalidInputError(source=store.address.url, problem=problem)
