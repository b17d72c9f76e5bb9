"""What the original left in a store, rewritten: odd spellings, names that no list finds, orphans, keys that end in `/`.

Each step is one guarded commit: where a writer comes between, nothing is written, and it is planned anew or left to the next
run. What takes a decision is named with the words that decide it, and left.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from msgspec import structs

from keyplan.apps.runm.definitions import point, pointer_at, shown_scope
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.layout import ObjectSubType, PartitionSubType, PartitionType
from keyplan.apps.runm.names import NO_DECISIONS, Records, Step, record_behind, refuse
from keyplan.apps.runm.original import Decisions, Undecided
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import ObjectDefinition, ObjectType
from keyplan.apps.runm.well_known import known_types
from keyplan.engine import Commit, Delete, Entry, Guard, KeyAbsent, KeyRange, KeyUnchanged, Put, Snapshot
from keyplan.errors import CommitConflictError, CorruptionError
from keyplan.layout import BoundTable, Kind, Meaning, shown_key
from keyplan.store import Store, Transaction

__all__ = ["migrate", "referenced_definitions", "refuse_unserved"]

_BATCH: Final = 256
_POINTER_TABLES: Final = frozenset(
    {"type_definitions", "sub_type_definitions", "partition_type_definitions", "partition_sub_type_definitions"}
)
_NAMED_BY: Final = {
    "partitions_by_name": "partitions",
    "objects_by_name": "objects",
    "objects_by_project_and_name": "objects",
}
_UNSERVED: Final = frozenset({"misspelt-uuid", "pointer-taken", "damaged-pointer", "misspelt-project"})
"""Steps of keys without which the service would answer as if something were not there."""


def migrate(
    store: Store,
    prefix: str,
    *,
    is_dry_run: bool,
    decisions: Decisions = NO_DECISIONS,
    object_types: Iterable[ObjectType] = (),
) -> Iterator[Step]:
    """Yield each step, once it is done, and what is left to a decision; in a dry run, each that would be done.

    `object_types` are an operator's own, which the service will be given.
    """
    deployment = Deployment(store, prefix)
    records = Records(deployment, known_types(deployment, object_types), decisions, has_every_type=True)
    yield from records.steps(is_dry_run=is_dry_run)
    yield from _Keys(deployment, records, is_dry_run=is_dry_run).steps()


def refuse_unserved(deployment: Deployment, types: Mapping[str, ObjectType]) -> None:
    """Raise InvalidInputError for a store that cannot be served whole as the original left it, with these types.

    Every key is looked at. What is served all the same, such as an orphan, is no reason.
    """
    records = Records(deployment, types, has_every_type=True)
    keys = _Keys(deployment, records, is_dry_run=True)
    unserved = (step for step in keys.steps() if step.code in _UNSERVED)
    known = known_types(deployment)
    own = [kind for code, kind in types.items() if code not in known]
    refuse(deployment, chain(records.steps(is_dry_run=True), unserved), own)


def referenced_definitions(deployment: Deployment) -> set[UUID]:
    """Return the definitions that a pointer names, however it is spelled."""
    return _Keys(deployment, Records(deployment, known_types(deployment)), is_dry_run=True).references()


class _Place(NamedTuple):
    """Where a scope's pointer stands once it is spelled as it should be.

    `entries` are those that are to be it, read in `epoch`.
    """

    scope: Scope
    entries: list[Entry]
    epoch: str

    @property
    def uuids(self) -> set[UUID | None]:
        """The definitions that they point at; None for what names none."""
        return {_uuid_of(one) for one in self.entries}


class _Keys:
    """The keys that are no records with names: entries of names, pointers, definitions, and what marks a place."""

    def __init__(self, deployment: Deployment, records: Records, *, is_dry_run: bool) -> None:
        self._deployment = deployment
        self._records = records
        self._is_dry_run = is_dry_run
        self._pointers: dict[bytes, _Place] = {}
        self._has_damaged_pointer = False
        self._named_elsewhere: set[UUID] = set()
        """What keys name that are none of the layout's: a pointer of a partition may be among them whose UUID is undecided."""

    def steps(self) -> Iterator[Step]:
        """Yield each step; those of definitions last, when every pointer was seen."""
        # Why before the pointers: a definition that is set meanwhile has one that may not be among them.
        definitions = self._definitions()
        for step, commit in self._planned():
            if self._is_dry_run or commit is None or self._is_applied(commit):
                yield step
        yield from self._steps_of_pointers()
        yield from self._steps_of_definitions(*definitions)

    def references(self) -> set[UUID]:
        """Return the definitions that pointers name, or keys that may be pointers."""
        for _ in self._planned():
            pass
        named = {uuid for place in self._pointers.values() for uuid in place.uuids if uuid is not None}
        return named | self._named_elsewhere

    def _planned(self) -> Iterator[tuple[Step, Commit | None]]:
        key_range = KeyRange.of_prefix(self._deployment.bound.root)
        while True:
            with self._deployment.store.engine.snapshot() as snapshot:
                entries = list(snapshot.scan(key_range, limit=_BATCH))
                planned = [found for entry in entries if (found := self._step(snapshot, entry)) is not None]
            if not entries:
                return
            yield from planned
            key_range = KeyRange(entries[-1].key + b"\x00", key_range.end)

    def _is_applied(self, commit: Commit) -> bool:
        try:
            self._deployment.store.engine.commit(commit)
        except CommitConflictError:
            return False
        return True

    def _step(self, snapshot: Snapshot, entry: Entry) -> tuple[Step, Commit | None] | None:
        meaning = self._deployment.bound.meaning(entry.key)
        if meaning.kind is Kind.NAMESPACE and not entry.value:
            step = Step("namespace-key", shown_key(entry.key), "removed: it marks a place, and places need no mark")
            return step, _removal(snapshot, entry)
        if meaning.item in _POINTER_TABLES and meaning.is_known:
            self._note_pointer(entry, meaning, snapshot.epoch)
            return None
        if meaning.item in _NAMED_BY and entry.key not in self._records.touched:
            return self._step_of_name(snapshot, entry, meaning)
        if meaning.is_known:
            return None
        spelled = self._deployment.bound.meaning(self._spelled(entry.key))
        if spelled.is_known and spelled.item in _POINTER_TABLES:
            self._note_pointer(entry, spelled, snapshot.epoch)
        elif (uuid := _uuid_of(entry)) is not None:
            self._named_elsewhere.add(uuid)
        return None

    # ---- names ---------------------------------------------------------------------------------------------------------

    def _step_of_name(self, snapshot: Snapshot, entry: Entry, meaning: Meaning) -> tuple[Step, Commit] | None:
        """A name's entry that leads to nobody of that name keeps the name from everybody. Its record's own step comes first."""
        assert meaning.item is not None
        table = self._deployment.bound.table(_NAMED_BY[meaning.item])
        raw_key, record = record_behind(snapshot, table, entry.value)
        if record is None:
            step = Step("dangling-name", shown_key(entry.key), "removed: the record that it names is not there")
            return step, _removal(snapshot, entry, KeyAbsent(raw_key))
        read = self._records.original.read(table.name, record)
        if read is None or isinstance(read, Undecided) or entry.key in read.names:
            return None
        if not self._records.is_placed(snapshot, read):
            return None
        step = Step("stale-name", shown_key(entry.key), "removed: the record that it names has another name")
        return step, _removal(snapshot, entry, KeyUnchanged(record.key, record.mod_revision))

    # ---- pointers to definitions (C9, C10) -------------------------------------------------------------------------------

    def _spelled(self, raw_key: bytes) -> bytes:
        segments = []
        for segment in raw_key.split(b"/"):
            uuid = self._records.original.decisions.uuid(segment.decode("utf-8", "replace"))
            segments.append(segment if uuid is None else uuid.hex.encode())
        return b"/".join(segments)

    def _note_pointer(self, entry: Entry, meaning: Meaning, epoch: str) -> None:
        place = self._pointers.setdefault(meaning.raw_key, _Place(_scope_of(meaning), [], epoch))
        place.entries.append(entry)

    def _steps_of_pointers(self) -> Iterator[Step]:
        """Let one pointer stand for each scope, spelled as it is here; where they point at several definitions, none moves."""
        for raw_key, place in self._pointers.items():
            misspelt = [one for one in place.entries if one.key != raw_key or not _is_plain(one)]
            if None in place.uuids:
                self._has_damaged_pointer = True
                what = (
                    "left: it names no definition. Set the definition anew, or delete the key by `keyplan raw delete`"
                )
                yield from (Step("damaged-pointer", shown_key(one.key), what, is_left=True) for one in misspelt)
            elif len(place.uuids) > 1:
                what = "left: other keys of its scope point at other definitions. Delete all but one by `keyplan raw delete`"
                yield from (Step("pointer-taken", shown_key(one.key), what, is_left=True) for one in misspelt)
            elif misspelt and (self._is_dry_run or self._is_applied(self._moved(raw_key, place, misspelt))):
                what = f"moved to {shown_key(raw_key)}"
                yield from (Step("misspelt-uuid", shown_key(one.key), what) for one in misspelt)

    def _moved(self, raw_key: bytes, place: "_Place", misspelt: Sequence[Entry]) -> Commit:
        (uuid,) = place.uuids
        assert uuid is not None
        guards: list[Guard] = [KeyUnchanged(one.key, one.mod_revision) for one in place.entries]
        if all(one.key != raw_key for one in place.entries):
            guards.append(KeyAbsent(raw_key))
        mutations = {one.key: Delete(one.key) for one in misspelt} | {raw_key: Put(raw_key, uuid.hex.encode())}
        return Commit(tuple(guards), tuple(mutations.values()), place.epoch)

    # ---- definitions ---------------------------------------------------------------------------------------------------

    def _definitions(self) -> tuple[dict[object, Entry], str]:
        """Return every definition by its UUID, and the epoch that they were read in."""
        keys = self._deployment.bound.table("definitions").keys
        with self._deployment.store.engine.snapshot() as snapshot:
            return {keys.decode(one.key): one for one in snapshot.scan(KeyRange(*keys.range(())))}, snapshot.epoch

    def _steps_of_definitions(self, found: Mapping[object, Entry], epoch: str) -> Iterator[Step]:
        """Give each pointer a definition of its own, spell their projects, and remove those that nothing points at."""
        table = self._deployment.bound.table("definitions")
        # Why also those that are left: each may be the one that is kept.
        counts = Counter(uuid for place in self._pointers.values() for uuid in place.uuids)
        for place in self._pointers.values():
            (uuid, *others) = place.uuids
            if uuid is not None and not others and counts[uuid] > 1 and uuid in found:
                counts[uuid] -= 1
                if not self._is_dry_run:
                    self._deployment.store.run(partial(_give_own, self._deployment, place.scope, uuid))
                yield Step(
                    "shared-definition", shown_scope(place.scope), "given a definition of its own, the same text"
                )
        for known, entry in found.items():
            if not isinstance(known, UUID):
                continue
            guard = KeyUnchanged(entry.key, entry.mod_revision)
            if known not in counts:
                # Why not beside a damaged pointer: nobody knows what that one was to point at.
                if self._has_damaged_pointer or known in self._named_elsewhere:
                    continue
                step = Step("orphan-definition", known.hex, "removed: no scope points at it")
                commit = Commit((guard,), (Delete(entry.key),), epoch)
            else:
                respelt = self._respelt_definition(table, entry, epoch)
                if respelt is None:
                    continue
                commit = respelt
                step = Step("misspelt-project", known.hex, "its permissions name projects as they are spelled here")
            if self._is_dry_run or self._is_applied(commit):
                yield step

    @staticmethod
    def _respelt_definition(table: BoundTable, entry: Entry, epoch: str) -> Commit | None:
        try:
            definition = table.form.decode(entry.value)
        except CorruptionError:
            return None
        spelled = _spelled_projects(definition)
        if spelled == definition:
            return None
        value = table.form.encode(spelled)
        return Commit((KeyUnchanged(entry.key, entry.mod_revision),), (Put(entry.key, value),), epoch)


def _uuid_of(entry: Entry) -> UUID | None:
    return parsed_uuid(entry.value.decode("ascii", "replace"))


def _is_plain(entry: Entry) -> bool:
    uuid = _uuid_of(entry)
    return uuid is not None and entry.value == uuid.hex.encode()


def _removal(snapshot: Snapshot, entry: Entry, *guards: Guard) -> Commit:
    return Commit((KeyUnchanged(entry.key, entry.mod_revision), *guards), (Delete(entry.key),), snapshot.epoch)


def _scope_of(meaning: Meaning) -> Scope:
    match meaning.key:
        case str() as object_type:
            return Scope(None, object_type)
        case PartitionType(partition, object_type):
            return Scope(partition, object_type)
        case PartitionSubType(partition, object_type, sub_type):
            return Scope(partition, object_type, sub_type)
        case ObjectSubType(object_type, sub_type):
            return Scope(None, object_type, sub_type)
        case _:
            raise AssertionError(meaning.item)


def _spelled_projects(definition: ObjectDefinition) -> ObjectDefinition:
    """A definition whose permissions name projects as sessions do."""
    keys = tuple(
        structs.replace(
            one,
            permissions=tuple(
                structs.replace(entry, project=spelled_project(entry.project)) for entry in one.permissions
            ),
        )
        for one in definition.property_permissions
    )
    return structs.replace(definition, property_permissions=keys)


def _give_own(deployment: Deployment, scope: Scope, shared: UUID, transaction: Transaction) -> None:
    runm = deployment.over(transaction).runm
    definition = runm.definitions.get(shared)
    if definition is not None and pointer_at(runm, scope) == shared:
        own = uuid4()
        runm.definitions.insert(own, structs.replace(definition, uuid=own))
        point(runm, scope, own)
