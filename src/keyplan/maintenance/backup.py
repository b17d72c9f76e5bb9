"""Backups: a store, a prefix or key spaces as one file, from one snapshot. What a file holds: backup_file.py."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

import msgspec

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine, Entry, Snapshot
from keyplan.errors import (
    CorruptionError,
    InvalidInputError,
    KeySpaceDeletingError,
    KeySpaceNotFoundError,
    KeySpaceRestoringError,
)
from keyplan.keyspace import Header, KeySpaceRecord, Row, State, has_entries, rows_of, value_of
from keyplan.layout import Only
from keyplan.maintenance.backup_file import (
    KIND_FULL,
    KIND_SINGLE,
    KIND_STORE,
    BackupHeader,
    BackupReader,
    BackupSection,
    BackupTrailer,
    BackupWriter,
    section_migrations,
    section_states,
    utc_text,
)
from keyplan.maintenance.claims import refuse_unfinished
from keyplan.maintenance.index_states_kept import index_states_below
from keyplan.maintenance.migrations_kept import migrations_below, refuse_half_converted
from keyplan.maintenance.registry_section import REGISTRY_ROOT, registry_pairs
from keyplan.maintenance.transfers import pairs_of

__all__ = [
    "BackupReport",
    "SectionReport",
    "back_up_key_spaces",
    "back_up_store",
    "open_backup",
    "read_backup",
    "refuse_other_kind",
    "verify_backup",
]

Progress = Callable[[int], None]

_PROGRESS_PAIRS: Final = 256

_REPAIR: Final = "`keyplan doctor --repair` makes it again from the audit log, where that can be"


@dataclass(frozen=True, slots=True)
class SectionReport:
    """A key space or prefix in a backup: its name (empty for a plain prefix), what was written, and whether data is in it."""

    name: str
    prefix: bytes
    trailer: BackupTrailer
    has_data: bool = True


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds. `left_out`: key spaces that are being restored, and have no state to be kept.

    `registry`: the registry's own section, in a backup of all key spaces. `damaged`: what could not be read of the registry,
    with what that leaves out.
    """

    header: BackupHeader
    sections: tuple[SectionReport, ...]
    left_out: tuple[str, ...] = ()
    registry: SectionReport | None = None
    damaged: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The pairs of all sections."""
        return sum(section.trailer.count for section in self.sections)

    @property
    def leased(self) -> int:
        """The entries that were left out because they hang on a lease."""
        return sum(section.trailer.leased for section in self.sections)


# ---- files -----------------------------------------------------------------------------------------------------------------


@contextmanager
def open_backup(path: Path, *, of: BackupHeader | None = None) -> Iterator[BackupReader]:
    """Give the reader of a file; with `of`, of the backup that was looked at there. Raises InvalidInputError.

    Why: what is written is read anew, and a file that is called the latest may be another backup by then.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error
    with file:
        reader = BackupReader(file, source=str(path))
        if of is not None and reader.header.id != of.id:
            problem = "another backup has taken its place since it was looked at: name one that stays"
            raise InvalidInputError(source=str(path), problem=problem)
        yield reader


def read_backup(path: Path, *, progress: Progress | None = None) -> BackupReport:
    """Read a backup to its end, verify every checksum and digest, and return what it holds. Raises InvalidInputError."""
    sections: list[SectionReport] = []
    registry: SectionReport | None = None
    done = 0
    with open_backup(path) as reader:
        for section in reader.sections(with_registry=True):
            for done, _ in enumerate(reader.pairs(), start=done + 1):  # noqa: B020  # Why: it counts on.
                if progress is not None and done % _PROGRESS_PAIRS == 0:
                    progress(done)
            assert reader.trailer is not None
            name = "" if section.keyspace is None else str(section.keyspace.get("name", ""))
            report = SectionReport(name, bytes.fromhex(section.prefix), reader.trailer, section.has_data)
            if section.is_registry:
                registry = report
            else:
                sections.append(report)
        return BackupReport(reader.header, tuple(sections), registry=registry)


def verify_backup(path: Path, *, has_key_spaces: bool) -> BackupReport:
    """Read a backup as `read_backup` does. Raises InvalidInputError also for a backup of the other kind."""
    with open_backup(path) as reader:
        refuse_other_kind(reader, path, has_key_spaces=has_key_spaces)
    return read_backup(path)


def refuse_other_kind(reader: BackupReader, path: Path, *, has_key_spaces: bool) -> None:
    """Raise InvalidInputError for a plain backup where key spaces are wanted, and the other way round."""
    if (reader.header.kind != KIND_STORE) != has_key_spaces:
        problem = "a backup of key spaces: `keyplan keyspace restore` brings them back"
        if has_key_spaces:
            problem = "a plain backup, without key spaces: `keyplan restore` brings it back"
        raise InvalidInputError(source=str(path), problem=problem)


# ---- writing ---------------------------------------------------------------------------------------------------------------


def back_up_store(
    engine: Engine,
    file: BinaryIO,
    *,
    prefix: bytes = b"",
    keeps_leased: bool = False,
    is_compressed: bool = True,
    takes_unfinished: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress | None = None,
) -> BackupReport:
    """Write every key below the prefix, as of one snapshot, to a file. Memory does not grow with the store.

    keeps_leased: entries that hang on a lease are written as if they hung on none; otherwise they are left out and counted. A
        lease cannot be kept: its time runs in the store that granted it.
    takes_unfinished: what a restore or a copy has brought so far is written although it has not ended; otherwise raises
        SourceUnfinishedError.
    """
    with engine.snapshot() as snapshot:
        if not takes_unfinished:
            refuse_unfinished(snapshot, [prefix])
            refuse_half_converted(snapshot, prefix)
        header = BackupHeader(
            id=str(uuid4()),
            kind=KIND_STORE,
            created_at=utc_text(clock),
            engine=engine.profile.name,
            revision=snapshot.revision,
        )
        writer = _Writer(file, header, snapshot, keeps_leased, is_compressed, progress)
        states = section_states(index_states_below(snapshot, prefix))
        migrations = section_migrations(migrations_below(snapshot, prefix))
        section = writer.section(BackupSection(prefix=prefix.hex(), index_states=states, migrations=migrations))
        writer.end()
    return BackupReport(header, (section,))


def back_up_key_spaces(
    engine: Engine,
    file: BinaryIO,
    *,
    name: str | None = None,
    keeps_leased: bool = False,
    is_compressed: bool = True,
    takes_unfinished: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress | None = None,
) -> BackupReport:
    """Write one key space, or all, with their metadata, as of one snapshot of registry and data.

    All: the registry is kept as it is, with switches, marks, history and audit log. Of key spaces that are deleted, or being
    deleted or restored, what the registry says is kept, and no data. What cannot be read of the registry stops nothing else:
    a key space without its record is left out, and `damaged` of the report says so; the registry's section has the bytes as
    they stand. One: raises KeySpaceNotFoundError, KeySpaceDeletingError, KeySpaceRestoringError, CorruptionError.
    takes_unfinished: as of `back_up_store`.
    """
    with engine.snapshot() as snapshot:
        registry = _Registry(snapshot)
        if not registry.is_there:
            raise KeySpaceNotFoundError(name=name or "", problem="there is no registry in this store")
        records = registry.records() if name is None else [_single(registry.record(name), name)]
        if not takes_unfinished:
            whole = [REGISTRY_ROOT] if name is None else []
            refuse_unfinished(snapshot, [*whole, *(bytes.fromhex(record.prefix) for record in records)])
        header = registry.header()
        backup = BackupHeader(
            id=str(uuid4()),
            kind=KIND_FULL if name is None else KIND_SINGLE,
            created_at=utc_text(clock),
            engine=engine.profile.name,
            revision=snapshot.revision,
            registry_format=None if header is None else header.format_version,
            cluster=None if header is None else header.cluster,
            prefix_codec=None if header is None else header.prefix_codec,
            profile=None if header is None else header.profile,
        )
        writer = _Writer(file, backup, snapshot, keeps_leased, is_compressed, progress)
        kept = writer.registry() if name is None else None
        sections = [
            writer.section(
                BackupSection(
                    prefix=record.prefix,
                    keyspace=msgspec.to_builtins(record),
                    quota=registry.quota(record.name),
                    history=registry.history(record.name),
                    has_data=record.state in (State.ENABLED, State.DISABLED),
                ),
                record.name,
            )
            for record in records
            if record.state is not State.RESTORING
        ]
        writer.end()
    left_out = tuple(record.name for record in records if record.state is State.RESTORING)
    return BackupReport(backup, tuple(sections), left_out, kept, tuple(registry.damaged))


def _single(found: KeySpaceRecord | None, name: str) -> KeySpaceRecord:
    if found is None:
        raise KeySpaceNotFoundError(name=name)
    if found.state is State.RESTORING:
        raise KeySpaceRestoringError(name=name)
    if found.state in (State.DELETING, State.DELETED):
        raise KeySpaceDeletingError(name=name, problem="there is nothing to keep of it")
    return found


class _Registry:
    """The registry as of a snapshot. `damaged` collects what was asked for and cannot be read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.damaged: list[str] = []

    @property
    def is_there(self) -> bool:
        return has_entries(self._snapshot, "header", "records", "holders")

    def header(self) -> Header | None:
        """Return the header; None for one that is lost, or cannot be read."""
        row = value_of(self._snapshot, "header", Only())
        if row is None or not row.is_read:
            problem = "it is lost" if row is None else row.problem
            self.damaged.append(f"the registry's header: {problem}; its cluster and prefix code are not known")
            return None
        found: Header = row.value
        return found

    def record(self, name: str) -> KeySpaceRecord | None:
        """Return the record of a name. Raises CorruptionError."""
        row = value_of(self._snapshot, "records", name)
        if row is None:
            return None
        if problem := _problem_of(row):
            raise CorruptionError(problem=f"the record of key space {name}: {problem}", advice=_REPAIR)
        found: KeySpaceRecord = row.value
        return found

    def records(self) -> list[KeySpaceRecord]:
        """Return the records that can be read; key spaces without one are told of."""
        found: dict[str, KeySpaceRecord] = {}
        names: set[str] = set()
        for row in rows_of(self._snapshot, "records"):
            if problem := _problem_of(row):
                shown = row.raw_key.hex() if row.key is None else row.key
                self.damaged.append(f"key space {shown}, which is left out: its record: {problem}")
                names.add(shown)
            else:
                found[row.key] = row.value
        for row in rows_of(self._snapshot, "holders"):
            if row.is_read and row.value.name not in found and row.value.name not in names:
                self.damaged.append(f"key space {row.value.name}, which is left out: its record is lost")
        return list(found.values())

    def quota(self, name: str) -> dict[str, int | None] | None:
        row = value_of(self._snapshot, "quotas", name)
        if row is not None and not row.is_read:
            self.damaged.append(f"the quota of {name}, which is left out: {row.problem}")
        return None if row is None or not row.is_read else dict(msgspec.to_builtins(row.value))

    def history(self, name: str) -> list[dict[str, Any]]:
        rows = list(rows_of(self._snapshot, "history", name))
        self.damaged += [f"history of {name}, left out: {row.problem}" for row in rows if not row.is_read]
        return [msgspec.to_builtins(row.value) for row in rows if row.is_read]


def _problem_of(row: Row) -> str:
    """Say what makes a record one that no key space can be taken by."""
    if row.is_read and row.value.name != row.key:
        return f"it is the record of {row.value.name!r}"
    return row.problem


class _Writer:
    def __init__(
        self,
        file: BinaryIO,
        header: BackupHeader,
        snapshot: Snapshot,
        keeps_leased: bool,  # noqa: FBT001  # Why: private, one caller each.
        is_compressed: bool,  # noqa: FBT001  # Why: as above.
        progress: Progress | None,
    ) -> None:
        self._writer = BackupWriter(file, header, is_compressed=is_compressed)
        self._snapshot = snapshot
        self._keeps_leased = keeps_leased
        self._progress = progress
        self._leased = 0
        self._done = 0

    def registry(self) -> SectionReport:
        """Write the registry as its own section. Memory does not grow with the log."""
        self._writer.begin(BackupSection(prefix=REGISTRY_ROOT.hex(), is_registry=True))
        for key, value in registry_pairs(self._snapshot):
            self._writer.add(key, value)
        return SectionReport("", REGISTRY_ROOT, self._writer.finish())

    def section(self, section: BackupSection, name: str = "") -> SectionReport:
        self._writer.begin(section)
        self._leased = 0
        prefix = bytes.fromhex(section.prefix)
        if section.has_data:
            for key, value in pairs_of(
                self._snapshot, prefix, on_leased=self._on_leased, is_space=section.keyspace is not None
            ):
                self._writer.add(key, value)
                self._done += 1
                if self._progress is not None and self._done % _PROGRESS_PAIRS == 0:
                    self._progress(self._done)
        trailer = self._writer.finish(leased=self._leased)
        return SectionReport(name, prefix, trailer, section.has_data)

    def end(self) -> None:
        self._writer.end()

    def _on_leased(self, _entry: Entry) -> bool:
        self._leased += not self._keeps_leased
        return self._keeps_leased
