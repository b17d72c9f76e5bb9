"""What the original left in a store, rewritten: names spelled raw, UUIDs in other spellings, orphans, keys that end in `/`.

Each step is one guarded commit: where a writer comes between, nothing is written, and the next run takes the step again.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from msgspec import structs

from keyplan.apps.runm.definitions import point, pointer_at, pointers
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.verify import shown_scope
from keyplan.engine import Commit, Delete, Entry, Guard, KeyAbsent, KeyRange, KeyUnchanged, Mutation, Put, Snapshot
from keyplan.errors import CommitConflictError, CorruptionError, RecordError
from keyplan.layout import BoundTable, Kind, shown_key
from keyplan.store import Store, Transaction, index_entries_of

__all__ = ["Step", "migrate"]

_BATCH: Final = 256
_ESCAPE: Final = re.compile(rb"%([0-9A-F]{2})")
_POINTER_TABLES: Final = frozenset({"partition_type_definitions", "partition_sub_type_definitions"})


class Step(NamedTuple):
    """One thing that a migration does, or would do."""

    code: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.key}: {self.what}"


def migrate(store: Store, prefix: str, *, is_dry_run: bool) -> Iterator[Step]:
    """Yield each step, once it is done; in a dry run, each that would be done."""
    deployment = Deployment(store, prefix)
    saved: set[UUID] = set()
    for step, commit in _steps_of_keys(deployment):
        if is_dry_run or commit is None or _is_applied(deployment, commit):
            yield step
            if is_dry_run and commit is not None and step.code == "misspelt-uuid":
                saved.update(_pointed_at(commit))
    yield from _steps_of_definitions(deployment, saved, is_dry_run=is_dry_run)


def _pointed_at(commit: Commit) -> Iterator[UUID]:
    """The definitions that a pointer would point at again. Why: a dry run must not call them orphans."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put):
            uuid = parsed_uuid(mutation.value.decode("ascii", "replace"))
            if uuid is not None:
                yield uuid


def _is_applied(deployment: Deployment, commit: Commit) -> bool:
    try:
        deployment.store.engine.commit(commit)
    except CommitConflictError:
        return False
    return True


# ---- keys that the layout cannot read ----------------------------------------------------------------------------------


def _steps_of_keys(deployment: Deployment) -> Iterator[tuple[Step, Commit | None]]:
    """Yield each step with its commit; None: it is left to a person."""
    key_range = KeyRange.of_prefix(deployment.bound.root)
    while True:
        steps: list[tuple[Step, Commit | None]] = []
        with deployment.store.engine.snapshot() as snapshot:
            entries = list(snapshot.scan(key_range, limit=_BATCH))
            for entry in entries:
                if not deployment.bound.meanings(entry.key):
                    step = _step_of_key(deployment, snapshot, entry)
                    if step is not None:
                        steps.append(step)
        if not entries:
            return
        yield from steps
        key_range = KeyRange(entries[-1].key + b"\x00", key_range.end)


def _step_of_key(deployment: Deployment, snapshot: Snapshot, entry: Entry) -> tuple[Step, Commit | None] | None:
    if not entry.value and deployment.bound.meaning(entry.key).kind is Kind.NAMESPACE:
        commit = Commit((KeyUnchanged(entry.key, entry.mod_revision),), (Delete(entry.key),), snapshot.epoch)
        return Step("namespace-key", shown_key(entry.key), "removed: it marks a place, and places need no mark"), commit
    uuid = parsed_uuid(entry.value.decode("ascii", "replace"))
    if uuid is None:
        return None
    return _respelt_name(deployment, snapshot, entry, uuid) or _respelt_pointer(deployment, snapshot, entry)


def _respelt_name(
    deployment: Deployment, snapshot: Snapshot, entry: Entry, uuid: UUID
) -> tuple[Step, Commit | None] | None:
    """An index entry whose name holds what is escaped now: it goes where its record's entry belongs (S14)."""
    for name in ("objects", "partitions"):
        table = deployment.bound.table(name)
        record = snapshot.get(table.keys.encode(uuid))
        for raw_key, raw_value in _unique_entries(table, uuid, record):
            if record is None or _unescaped(raw_key) != entry.key:
                continue
            guards: list[Guard] = [
                KeyUnchanged(record.key, record.mod_revision),
                KeyUnchanged(entry.key, entry.mod_revision),
            ]
            mutations: list[Mutation] = [Delete(entry.key)]
            found = snapshot.get(raw_key)
            if found is not None and found.value != raw_value:
                # Why nothing is removed: the raw key is the last thing that says that this name was this record's.
                text = f"left: {shown_key(raw_key)} is another record's. Delete or rename one of the two, and run this again"
                return Step("name-taken", shown_key(entry.key), text), None
            if found is not None:
                guards.append(KeyUnchanged(raw_key, found.mod_revision))
            else:
                guards.append(KeyAbsent(raw_key))
                mutations.append(Put(raw_key, raw_value))
            step = Step("raw-name", shown_key(entry.key), f"moved to {shown_key(raw_key)}")
            return step, Commit(tuple(guards), tuple(mutations), snapshot.epoch)
    return None


def _unique_entries(table: BoundTable, uuid: UUID, record: Entry | None) -> Iterator[tuple[bytes, bytes]]:
    if record is None:
        return
    try:
        due = index_entries_of(table, uuid, table.form.decode(record.value))
    except (CorruptionError, RecordError):
        return
    yield from ((raw_key, entry.raw_value) for raw_key, entry in due.items() if entry.source.spec.is_unique)


def _unescaped(raw_key: bytes) -> bytes:
    """A key as the original spells it: with nothing escaped."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw_key)


def _respelt_pointer(deployment: Deployment, snapshot: Snapshot, entry: Entry) -> tuple[Step, Commit] | None:
    """A pointer to a definition below a partition's UUID in another spelling (C10)."""
    segments = entry.key.split(b"/")
    uuids = [parsed_uuid(segment.decode("ascii", "replace")) for segment in segments]
    spelled = [segment if uuid is None else uuid.hex.encode() for segment, uuid in zip(segments, uuids, strict=True)]
    raw_key = b"/".join(spelled)
    meaning = deployment.bound.meaning(raw_key)
    if raw_key == entry.key or meaning.item not in _POINTER_TABLES or snapshot.get(raw_key) is not None:
        return None
    guards = (KeyUnchanged(entry.key, entry.mod_revision), KeyAbsent(raw_key))
    step = Step("misspelt-uuid", shown_key(entry.key), f"moved to {shown_key(raw_key)}")
    return step, Commit(guards, (Delete(entry.key), Put(raw_key, entry.value)), snapshot.epoch)


# ---- definitions -------------------------------------------------------------------------------------------------------


def _steps_of_definitions(deployment: Deployment, saved: Collection[UUID], *, is_dry_run: bool) -> Iterator[Step]:
    """Give each pointer a definition of its own; remove those that nothing points at, `saved` by earlier steps left out."""
    with deployment.reading() as state:
        found = list(pointers(state.runm))
        known = set(state.runm.definitions.keys())
    counts = Counter(uuid for _, uuid in found)
    for scope, uuid in found:
        if counts[uuid] > 1 and uuid in known:
            counts[uuid] -= 1
            if not is_dry_run:
                deployment.store.run(partial(_give_own, deployment, scope, uuid))
            yield Step("shared-definition", shown_scope(scope), "given a definition of its own, the same text")
    for uuid in sorted(known - counts.keys() - set(saved)):
        if not is_dry_run:
            deployment.runm.definitions.delete(uuid)
        yield Step("orphan-definition", uuid.hex, "removed: no scope points at it")


def _give_own(deployment: Deployment, scope: Scope, shared: UUID, transaction: Transaction) -> None:
    runm = deployment.over(transaction).runm
    definition = runm.definitions.get(shared)
    if definition is not None and pointer_at(runm, scope) == shared:
        own = uuid4()
        runm.definitions.insert(own, structs.replace(definition, uuid=own))
        point(runm, scope, own)
