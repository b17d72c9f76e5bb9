"""What a store remembers of migrations of the roots below a prefix, taken along with it: it stands outside, in the system area.

Nothing in a record says by which layout it was written. What is restored or copied is in the layouts that the source says, and
what the target has said of the same roots before is not true of it any more.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import structs

from keyplan.engine import Delete, Engine, Entry, KeyRange, Put, Snapshot
from keyplan.errors import CommitConflictError, CorruptionError, SourceUnfinishedError
from keyplan.jobs import as_read
from keyplan.layout import BoundTable
from keyplan.maintenance.migration.marks import (
    Migrations,
    MigrationState,
    PastKey,
    PastMigration,
    TableLayout,
    TableStage,
    history_key,
    layout_key,
    state_key,
    states_in,
)
from keyplan.maintenance.transfers import Target
from keyplan.store import Backoff, RootLayouts, RootNotes, root_key

__all__ = ["KeptMigration", "has_migrations", "migrations_below", "put_migrations", "refuse_half_converted", "rerooted"]

_KINDS: Final = ("layouts", "roots", "history", "states")

_OPERATIONS: Final = 32
"""Why: a commit of these is small on every engine."""


class KeptMigration(NamedTuple):
    """One thing that is remembered: the table that it stands in, its number or id there, and its value as it is stored."""

    table: str
    number: str
    value: bytes


def _table(name: str) -> BoundTable:
    return RootNotes.bound().tables["layouts"] if name == "roots" else Migrations.bound().tables[name]


def _roots(record: Any) -> tuple[bytes, ...]:
    return (record.old_root, record.new_root) if isinstance(record, MigrationState) else (record.root,)


def _below(snapshot: Snapshot, prefix: bytes) -> Iterator[tuple[str, Entry, Any]]:
    """What is remembered of roots below a prefix; of migrations those that are over. What cannot be read is of no root."""
    for name in _KINDS:
        table = _table(name)
        for entry in snapshot.scan(KeyRange(*table.keys.range(()))):
            try:
                record: Any = table.form.decode(entry.value)
            except CorruptionError:
                continue
            is_open = isinstance(record, MigrationState) and not record.is_cleaned
            if not is_open and all(root.startswith(prefix) for root in _roots(record)):
                yield name, entry, record


def migrations_below(snapshot: Snapshot, prefix: bytes) -> list[KeptMigration]:
    """Return what is remembered of roots below the prefix; nothing where it lies below the prefix itself."""
    if Migrations.bound().root.startswith(prefix):
        return []
    return [KeptMigration(name, _number(name, entry), entry.value) for name, entry, _ in _below(snapshot, prefix)]


def refuse_half_converted(snapshot: Snapshot, prefix: bytes) -> None:
    """Refuse to take records of which some are converted where they stand and others are not: nothing in them tells which.

    What tells it stands outside of the prefix, and goes along with a whole store alone. Raises SourceUnfinishedError.
    """
    if Migrations.bound().root.startswith(prefix):
        return
    for _, state in states_in(snapshot):
        half = [name for name, stage in state.tables.items() if stage is TableStage.CONVERTING]
        roots = [root for root in _roots(state) if root.startswith(prefix) or prefix.startswith(root)]
        if half and roots:
            problem = f"a migration converts {', '.join(half)} where the records stand, and is not through"
            advice = "finish the switch, or take what there is: --unfinished"
            raise SourceUnfinishedError(prefix=roots[0], problem=problem, advice=advice)


def _number(name: str, entry: Entry) -> str:
    key: Any = _table(name).keys.decode(entry.key)
    if isinstance(key, PastKey):
        return str(key.number)
    return key.hex() if name == "states" else ""


def rerooted(kept: list[KeptMigration], old: bytes, new: bytes) -> dict[bytes, bytes]:
    """Return the raw keys and values of what is remembered, for roots below another prefix."""

    def moved(root: bytes) -> bytes:
        return new + root[len(old) :] if root.startswith(old) else root

    pairs = {}
    for one in kept:
        record: Any = _table(one.table).form.decode(one.value)
        match record:
            case TableLayout():
                record = structs.replace(record, root=moved(record.root))
                raw_key = layout_key(record.root, record.table)
            case RootLayouts():
                elsewhere = None if record.moved_to is None else moved(record.moved_to)
                record = structs.replace(record, root=moved(record.root), moved_to=elsewhere)
                raw_key = root_key(record.root)
            case PastMigration():
                record = structs.replace(record, root=moved(record.root))
                raw_key = history_key(record.root, int(one.number))
            case _:
                record = structs.replace(record, old_root=moved(record.old_root), new_root=moved(record.new_root))
                raw_key = state_key(bytes.fromhex(one.number))
        pairs[raw_key] = _table(one.table).form.encode(record)
    return pairs


def has_migrations(engine: Engine, prefix: bytes, wanted: Mapping[bytes, bytes]) -> bool:
    """Tell whether a store remembers just this of the roots below a prefix."""
    if Migrations.bound().root.startswith(prefix):
        return True
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for _, entry, _ in _below(snapshot, prefix)} == wanted


def put_migrations(target: Target, wanted: Mapping[bytes, bytes], backoff: Backoff | None = None) -> None:
    """Let the target remember just this of the roots below its prefix.

    Raises as `Target.commit`: what ends the work on the pairs keeps this from being written, too. TargetNotEmptyError when
    others write there again and again.
    """
    if Migrations.bound().root.startswith(target.prefix):
        return
    try:
        (backoff or Backoff()).until_committed(partial(_put, target, wanted))
    except CommitConflictError as error:
        raise target.not_empty(error) from error


def _put(target: Target, wanted: Mapping[bytes, bytes]) -> None:
    """Write what is not as it is wanted, from one look. Raises CommitConflictError when somebody comes between."""
    with target.engine.snapshot() as snapshot:
        there = {entry.key: entry for _, entry, _ in _below(snapshot, target.prefix)}
        others = snapshot.get_many(list(wanted))
    there |= {entry.key: entry for entry in others if entry is not None}
    changes: list[Put | Delete] = [Delete(raw_key) for raw_key in there if raw_key not in wanted]
    changes += [
        Put(raw_key, value)
        for raw_key, value in wanted.items()
        if raw_key not in there or there[raw_key].value != value
    ]
    for start in range(0, len(changes), _OPERATIONS):
        batch = changes[start : start + _OPERATIONS]
        target.job.commit(batch, guards=[as_read(change.key, there.get(change.key)) for change in batch])
