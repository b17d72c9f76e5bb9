"""What is wrong in a store of runm-metadata: keyplan's own check, and what the rulings ask for beyond the layout."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.definitions import pointers, shown_scope
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.layout import RunmBeside
from keyplan.apps.runm.migrate import referenced_definitions
from keyplan.apps.runm.names import Records
from keyplan.apps.runm.readable import readable
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope
from keyplan.apps.runm.start import unreadable_indexes
from keyplan.apps.runm.well_known import WELL_KNOWN_OBJECT_TYPES, known_types
from keyplan.engine import Entry, KeyRange
from keyplan.errors import CorruptionError, RecordError
from keyplan.jobs import Progress
from keyplan.layout import BoundTable, Only, shown_key
from keyplan.maintenance import check
from keyplan.store import Store, index_entries_of

__all__ = ["Trouble", "entries_of", "verify"]

_BATCH: Final = 256


class Trouble(NamedTuple):
    """One thing that is wrong: a code that scripts may rely on, the key or name, and what is wrong with it."""

    code: str
    key: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.key}: {self.detail}"


def verify(
    store: Store, prefix: str, progress: Callable[[Progress], None] | None = None, *, url: str = ""
) -> Iterator[Trouble]:
    """Yield what is wrong below the root, and in what is kept beside it. `url` names the store in commands that are told.

    Of an index that is not to be trusted yet, the entries that it lacks are named all the same.
    """
    deployment = Deployment(store, prefix, url=url)
    for layout in (deployment.bound, RunmBeside.bound(prefix=prefix)):
        for finding in check(store, layout, progress=progress):
            if not finding.kind.is_note:
                detail = f"{finding.kind.summary}{f' ({finding.detail})' if finding.detail else ''}"
                yield Trouble(_code_of(finding.kind.value, finding.raw_key), shown_key(finding.raw_key), detail)
    not_ready = unreadable_indexes(deployment)
    for name, stage in not_ready.items():
        detail = f"it is {stage}: searches do without it until `{deployment.command('reindex')}` was run"
        yield Trouble("index-not-ready", name, detail)
    for step in Records(deployment, known_types(deployment)).steps(is_dry_run=True):
        if step.is_left or step.code == "respelt":  # Why: of the others the check names the entry that is not there.
            yield Trouble(step.code, step.key, step.what)
    yield from _troubles_of_definitions(deployment)
    yield from _troubles_of_records(deployment, tuple(not_ready))


def entries_of(table: BoundTable, deployment: Deployment) -> Iterator[tuple[UUID, Entry]]:
    """Yield the stored entries of a table whose key is a UUID, batch by batch, so that no snapshot is held for long."""
    key_range = KeyRange(*table.keys.range(()))
    while True:
        with deployment.store.engine.snapshot() as snapshot:
            entries = list(snapshot.scan(key_range, limit=_BATCH))
        if not entries:
            return
        for entry in entries:
            key = table.keys.decode(entry.key)
            if isinstance(key, UUID):
                yield key, entry
        key_range = KeyRange(entries[-1].key + b"\x00", key_range.end)


def _records(table: BoundTable, deployment: Deployment) -> Iterator[tuple[UUID, Any]]:
    """The records of a table; None for one that is there and cannot be read, which is the check's to name."""
    for key, entry in entries_of(table, deployment):
        try:
            yield key, table.form.decode(entry.value)
        except CorruptionError:
            yield key, None


def _code_of(code: str, raw_key: bytes) -> str:
    """An unknown key with a UUID in another spelling is known for that."""
    if code != "unknown-key":
        return code
    segments = raw_key.decode("utf-8", "replace").split("/")
    is_misspelt = any((uuid := parsed_uuid(one)) is not None and uuid.hex != one for one in segments)
    return "misspelt-uuid" if is_misspelt else code


def _troubles_of_definitions(deployment: Deployment) -> Iterator[Trouble]:
    with deployment.reading() as state:
        found = list(pointers(state.runm, damaged_ok=True))
        known = set(state.runm.definitions.keys())
    counts = Counter(uuid for _, uuid in found)
    for scope, uuid in found:
        if uuid not in known:
            detail = f"it points at the definition {uuid.hex}, which is not there"
            yield Trouble("dangling-pointer", shown_scope(scope), detail)
        elif counts[uuid] > 1:
            detail = f"other scopes point at the definition {uuid.hex} as well"
            yield Trouble("shared-definition", shown_scope(scope), detail)
    for uuid in sorted(known - referenced_definitions(deployment)):
        yield Trouble("orphan-definition", uuid.hex, "no scope points at the definition")


def _troubles_of_records(deployment: Deployment, not_ready: Sequence[str]) -> Iterator[Trouble]:
    partitions = set[UUID]()
    for uuid, partition in _records(deployment.bound.table("partitions"), deployment):
        partitions.add(uuid)
        if partition is not None and uuid != partition.uuid:
            yield Trouble("wrong-uuid", uuid.hex, f"the partition says that it is {partition.uuid.hex}")
    with deployment.reading() as state:
        types = dict(readable(state.runm.object_types.rows()))
        damaged_types = set(state.runm.object_types.keys()) - types.keys()
        if not types or not state.beside.indexes_kept.exists(Only()):
            # Why: the service has not been started here yet, and makes its own types when it is. Later they are missed.
            types = {one.code: one for one in WELL_KNOWN_OBJECT_TYPES if one.code not in damaged_types} | types
        providers = set(state.beside.providers.keys())
    seen = set[UUID]()
    for uuid, record in _records(deployment.bound.table("objects"), deployment):
        seen.add(uuid)
        if record is None:
            continue
        for code, detail in _wrong_with(record, uuid, partitions, types, damaged_types):
            yield Trouble(code, uuid.hex, detail)
        yield from _missing_entries(deployment, record, not_ready)
    for uuid in sorted(providers - seen):
        yield Trouble("orphan-provider", uuid.hex, "a provider's type is kept for an object that is not there")


def _wrong_with(
    record: Object, uuid: UUID, partitions: set[UUID], types: Mapping[str, ObjectType], damaged_types: set[str]
) -> Iterator[tuple[str, str]]:
    if record.uuid != uuid:
        yield "wrong-uuid", f"the object says that it is {record.uuid.hex}"
    if record.partition not in partitions:
        yield "unknown-partition", f"the object is of the partition {record.partition.hex}, which is not there"
    kind = types.get(record.object_type)
    if kind is None:
        if record.object_type not in damaged_types:  # Why: the check has named those.
            yield "unknown-type", "the object is of a type that is not there"
    elif (kind.scope is ObjectTypeScope.PROJECT) != bool(record.project):
        wanted = "has no project, and must have one" if not record.project else "has a project, and must have none"
        yield "wrong-project", f"an object of this type {wanted}"
    keys = [one.key for one in record.properties]
    if len(set(keys)) < len(keys):
        yield "duplicate-property", "two properties have the same key"


def _missing_entries(deployment: Deployment, record: Object, not_ready: Sequence[str]) -> Iterator[Trouble]:
    """Entries of indexes that are being built, which the check passes over."""
    if not not_ready:
        return
    try:
        due = index_entries_of(deployment.bound.table("objects"), record.uuid, record)
    except RecordError:
        return
    wanted = [raw_key for raw_key, entry in due.items() if entry.source.name in not_ready]
    with deployment.store.engine.snapshot() as snapshot:
        found = snapshot.get_many(wanted)
    for raw_key, entry in zip(wanted, found, strict=True):
        if entry is None:
            yield Trouble("missing-entry", shown_key(raw_key), "the record has no index entry here")
