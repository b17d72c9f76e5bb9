"""Every job that stands open in a store, of whatever kind: how far it is, who holds it, and the command that goes on with it.

A record that cannot be read is an entry of the list, and hides no other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Any

from keyplan.engine import Engine, KeyPrefix, KeyRange, PrefixedSnapshot, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.jobs import Holder, JobRecord, command_line
from keyplan.keyspace import KeySpaceRegistry, State, rows_of, value_of
from keyplan.layout import BoundTable, shown_key
from keyplan.maintenance.application_jobs import ApplicationJobs
from keyplan.maintenance.claims import Claim, Transfers, command_of, prefix_claim, shown_command, space_claim
from keyplan.maintenance.migration import Migrations
from keyplan.maintenance.migration.marks import MigrationState, Stage
from keyplan.maintenance.migration_files import NEXT_COMMANDS
from keyplan.maintenance.secret_rotation import SecretRotations
from keyplan.ring import OWN_PREFIX, RING_KEY, read_description
from keyplan.store import IndexStates, Store

__all__ = ["JobKind", "OpenJob", "open_jobs"]


class JobKind(StrEnum):
    """What is done."""

    COPY = auto()
    RESTORE = auto()
    MIGRATION = auto()
    INDEX = auto()
    DELETION = auto()
    REBALANCE = auto()
    ROTATION = auto()
    APPLICATION = auto()


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Work that was begun in a store and has not ended.

    `subject` says what it works on; `holder` is who began it or took it over last, and None where several may work at once.
    `command` are the words behind `keyplan` that go on with it, but for the store, which `command_line` names; where it is
    not known, or a person has to look first, `remedy` is a sentence. `problem`: the record cannot be read.
    """

    kind: JobKind
    raw_key: bytes
    subject: str
    stage: str = ""
    done: int = 0
    begun_at: str = ""
    touched_at: str = ""
    holder: Holder | None = None
    command: tuple[str, ...] = ()
    remedy: str = ""
    problem: str = ""
    keyspace: str = ""

    def command_line(self, store: str = "") -> str:
        """Return the command as a shell reads it, with the URL of the store; empty where it is not known."""
        return command_line(self.command, store) if self.command else ""


def open_jobs(store: Store | Engine, *, url: str = "") -> list[OpenJob]:
    """Return the jobs that stand open in a store, those within its key spaces included. `url` is the store's, for remedies.

    Copies and restores that have not ended, migrations that are not cleaned up, indexes that are not built, rotations of
    secrets, work of applications; key spaces whose data is being removed; the growth of a ring that the store is a database of.
    Nothing is written. A job of another kind leaves no record, and is begun again as it was begun.
    """
    engine = store.engine if isinstance(store, Store) else store
    with engine.snapshot() as snapshot:
        found = [*_growth(snapshot), *_of_a_ring(snapshot), *_own(snapshot, url)]
        is_begun = any(job.raw_key == prefix_claim(KeySpaceRegistry.bound().root) for job in found)
        found += _of_key_spaces(snapshot, url, is_registry_coming=is_begun)
        spaces = [row.value for row in rows_of(snapshot, "records") if row.value is not None]
        for space in spaces:
            if space.state is not State.DELETED:
                # Why of the same state: in a later one, another key space may have the prefix.
                share = PrefixedSnapshot(snapshot, KeyPrefix(bytes.fromhex(space.prefix)))
                found += [replace(job, keyspace=space.name) for job in _own(share, url)]
    return found


def _own(snapshot: Snapshot, url: str) -> Iterator[OpenJob]:
    """The jobs of a store, or of a key space as one."""
    yield from _transfers(snapshot, url)
    migrations = list(_rows(snapshot, Migrations.bound().tables["states"]))
    paused = {row.key for row in _rows(snapshot, Migrations.bound().tables["pauses"])}
    yield from (job for row in migrations for job in _migration(row, is_paused=row.key in paused))
    building = {
        (row.value.new_root, name) for row in migrations if row.value is not None for name in row.value.indexes
        if not row.value.is_cleaned
    }  # fmt: skip
    for row in _rows(snapshot, IndexStates.bound().tables["states"]):
        # Why: the migration that made it unreadable builds it.
        if row.value is None or (row.key.root, row.key.name) not in building:
            yield _index(row)
    for row in _rows(snapshot, SecretRotations.bound().tables["rotations"]):
        yield _rotation(row)
    for row in _rows(snapshot, ApplicationJobs.bound().tables["jobs"]):
        yield _application(row)


# ---- kinds ---------------------------------------------------------------------------------------------------------------


def _transfers(snapshot: Snapshot, url: str) -> Iterator[OpenJob]:
    for row in _rows(snapshot, Transfers.bound().tables["prefixes"]):
        into = f"into {shown_key(row.key) or 'the whole store'}"
        if row.value is None:
            remedy = (
                "begin the copy or restore again with --overwrite when the record is out of the way: " + _set_aside(row)
            )
            yield OpenJob(JobKind.RESTORE, row.raw_key, into, problem=row.problem, remedy=remedy)
            continue
        claim: Claim = row.value
        kind = JobKind.COPY if claim.kind == "copy" else JobKind.RESTORE
        command, remedy = command_of(claim, row.key), ""
        if "FILE" in command:
            remedy, command = f"give {shown_command(claim, command, url)}", ()
        yield _told(OpenJob(kind, row.raw_key, into, remedy=remedy), claim, command)


def _of_key_spaces(snapshot: Snapshot, url: str, *, is_registry_coming: bool) -> Iterator[OpenJob]:
    for row in rows_of(snapshot, "records"):
        if row.value is None:
            remedy = "`keyplan doctor --repair` puts the registry right where its other records say how"
            shown = f"key space {row.key or shown_key(row.raw_key)}"
            yield OpenJob(JobKind.DELETION, row.raw_key, shown, problem=row.problem, remedy=remedy)
        elif row.value.state is State.DELETING:
            yield _deletion(snapshot, row.value)
        elif row.value.state is State.RESTORING:
            job = _restored(snapshot, row.value, url)
            # Why: the claims of key spaces come with the end of the restore of their registry, which is listed.
            if not (job.problem and is_registry_coming):
                yield job


def _deletion(snapshot: Snapshot, space: Any) -> OpenJob:
    row = value_of(snapshot, "deletions", space.name)
    job = OpenJob(JobKind.DELETION, b"", f"key space {space.name}", begun_at=space.deleted_at or "")
    if row is None or row.value is None:
        remedy = "`keyplan doctor --repair` writes it again, and the deletion begins anew"
        raw_key = b"" if row is None else row.raw_key
        return replace(job, raw_key=raw_key, problem="how far it is cannot be read", remedy=remedy)
    stage = "removing" if row.value.is_begun else "waiting"
    command = ("keyspace", "sweep", space.name)
    return replace(job, raw_key=row.raw_key, stage=stage, done=row.value.deleted_keys, command=command)


def _restored(snapshot: Snapshot, space: Any, url: str) -> OpenJob:
    row = next(_rows(snapshot, Transfers.bound().tables["spaces"], space.name), None)
    job = OpenJob(JobKind.RESTORE, space_claim(space.name), f"key space {space.name}")
    claim: Claim | None = None if row is None else row.value
    if claim is None or claim.generation != space.generation:
        anew = ("keyspace", "restore", "FILE", space.name, "--on-conflict", "overwrite")
        remedy = f"restore it anew: `{command_line(anew, url)}`"
        return replace(job, problem="the record of its restore is gone, or cannot be read", remedy=remedy)
    remedy = "" if claim.command else f"give {shown_command(claim, ('keyspace', 'restore', 'FILE'), url)}"
    return _told(replace(job, remedy=remedy), claim, claim.command)


def _migration(row: "_Row", *, is_paused: bool) -> Iterator[OpenJob]:
    if row.value is None:
        remedy = f"look at it first; no migration is planned while it stands. To give it up: {_set_aside(row)}"
        yield OpenJob(JobKind.MIGRATION, row.raw_key, "a migration", problem=row.problem, remedy=remedy)
        return
    state: MigrationState = row.value
    if state.is_cleaned:
        return
    roots = " and ".join(sorted({shown_key(state.old_root), shown_key(state.new_root)}))
    phase = "run" if state.stage == Stage.FILLING else NEXT_COMMANDS.get(state.stage, "run")
    if is_paused:
        phase = "resume"
    # Why the second word: the record has the words of the run that began it, or took it over.
    command = (*state.command[:1], phase, *state.command[2:]) if state.command else ()
    remedy = "" if command else f"plan it again, as `keyplan migrate {phase} --from OLD --to NEW` does"
    job = OpenJob(
        JobKind.MIGRATION, row.raw_key, f"{roots or 'the whole store'}: {state.old} to {state.new}", remedy=remedy
    )
    told = _told(job, state, command)
    yield replace(told, stage=f"{told.stage}, paused") if is_paused else told


def _index(row: "_Row") -> OpenJob:
    if row.value is None:
        name = row.key.name if row.key is not None else "INDEX"
        again = f"then `keyplan index drop {name}` and `keyplan index build {name}`, before anybody reads it"
        remedy = f"set its record aside, {_set_aside(row)}, {again}"
        return OpenJob(JobKind.INDEX, row.raw_key, "an index", problem=row.problem, remedy=remedy)
    state = row.value
    job = OpenJob(JobKind.INDEX, row.raw_key, f"{row.key.name} below {shown_key(row.key.root) or 'the whole store'}")
    remedy = "" if state.command else f"`keyplan index build {row.key.name}` with the layout that has this root"
    return replace(job, stage=state.stage.value, done=state.records, command=state.command, remedy=remedy)


def _rotation(row: "_Row") -> OpenJob:
    below = shown_key(row.key or b"") or "the whole store"
    job = OpenJob(JobKind.ROTATION, row.raw_key, f"secrets below {below}")
    if row.value is None:
        remedy = f"set its record aside, {_set_aside(row)}, then `keyplan secrets rotate` begins it anew"
        return replace(job, problem=row.problem, remedy=remedy)
    begins = "rotate" if row.value.key_id else "open"
    subject = job.subject if row.value.key_id else f"{job.subject}, to clear"
    remedy = "" if row.value.command else f"`keyplan secrets {begins}` with the layout that has this root"
    return _told(replace(job, subject=subject, remedy=remedy), row.value, row.value.command)


def _application(row: "_Row") -> OpenJob:
    subject = shown_key(row.key or b"") if row.value is None else row.value.subject
    job = OpenJob(JobKind.APPLICATION, row.raw_key, subject)
    if row.value is None:
        remedy = f"set its record aside, {_set_aside(row)}, then begin the work anew"
        return replace(job, problem=row.problem, remedy=remedy)
    remedy = "" if row.value.command else "give the application's command again"
    return _told(replace(job, remedy=remedy), row.value, row.value.command)


def _growth(snapshot: Snapshot) -> Iterator[OpenJob]:
    """The growth of the ring that the store is a database of."""
    try:
        found = read_description(snapshot)
    except CorruptionError as error:
        remedy = "look at it first: every database of the ring has one, and they differ in their index alone"
        yield OpenJob(JobKind.REBALANCE, RING_KEY, "a ring", problem=error.summary, remedy=remedy)
        return
    if found is not None and found.growing_to is not None:
        subject = f"database {found.index} of a ring that grows to {found.growing_to}"
        remedy = "" if found.command else "rebalance the ring again, with all of its databases in their order"
        stage = "marked" if found.entries is None else "moving"
        yield OpenJob(JobKind.REBALANCE, RING_KEY, subject, stage, command=found.command, remedy=remedy)


def _of_a_ring(snapshot: Snapshot) -> Iterator[OpenJob]:
    """Work of applications that a database of a ring has beside the ring's description: elsewhere it would be a record."""
    for row in _rows(PrefixedSnapshot(snapshot, KeyPrefix(OWN_PREFIX)), ApplicationJobs.bound().tables["jobs"]):
        yield _application(replace(row, raw_key=OWN_PREFIX + row.raw_key))


# ---- pieces --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """An entry of a table, readable or not."""

    raw_key: bytes
    key: Any
    value: Any
    problem: str = ""


def _rows(snapshot: Snapshot, table: BoundTable, *prefix: object) -> Iterator[_Row]:
    for entry in snapshot.scan(KeyRange(*table.keys.range(prefix))):
        key: Any = None
        try:
            key = table.keys.decode(entry.key)
            if key is not None:
                yield _Row(entry.key, key, table.form.decode(entry.value))
        except (CorruptionError, InvalidKeyError) as error:
            yield _Row(entry.key, key, None, error.summary)


def _told(job: OpenJob, record: JobRecord, command: Sequence[str]) -> OpenJob:
    return replace(
        job,
        stage=record.stage,
        done=record.done,
        begun_at=record.begun_at,
        touched_at=record.touched_at,
        holder=record.holder,
        command=tuple(command),
    )


def _set_aside(row: _Row) -> str:
    return f"`keyplan raw quarantine --hex {row.raw_key.hex()} --past-fence`"
