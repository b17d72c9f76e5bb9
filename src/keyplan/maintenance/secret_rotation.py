r"""The secrets of a store's records: by which keys they are sealed, and sealing or opening all of them while they are in use.

    00 6b 73 <root>    a rotation of the secrets below a layout's root is under way

A rotation seals all of them with the current key, or leaves all of them in clear. A record is written anew under the guard that
it is as it was read, so that no write of anybody is lost. One that was done needs nothing more: a rotation that is interrupted
goes on where it was, or begins anew, to the same end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import structs

from keyplan.codec import Envelope, SecretCipher, envelope_in, is_null, secrets_in
from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, Engine, Entry, KeyRange, Put, ended_lease_is_conflict
from keyplan.errors import CommitConflictError, CorruptionError, InvalidInputError, SecretKeyError, TargetTakenError
from keyplan.jobs import (
    JOB_BYTES_MAX,
    CommitRoom,
    Job,
    JobRecord,
    Lookup,
    Pace,
    Progress,
    Stop,
    StopCheck,
    Teller,
    YieldingPace,
    as_read,
    batch_of,
    begun,
    halved,
    joined,
    look,
    read_batches,
)
from keyplan.layout import BoundLayout, BoundTable, Layout, Table, TableSeal, bound_layout_of
from keyplan.store import Backoff, Store

__all__ = [
    "LeftRecord",
    "RotationReport",
    "SecretCounts",
    "SecretRotations",
    "open_secrets",
    "rotate_secrets",
    "secret_counts",
]

_BATCH_RECORDS_MAX: Final = 128
"""Why: what one conflict makes read again; as many as etcd takes in one commit are half of it."""

_FINDINGS_MAX: Final = 100
"""How many records that could not be sealed a report names. Why: memory; the next rotation names the rest."""

_GUARDS: Final = 3
"""Operations of a commit beside the records': the job's guard, and its record."""


# ---- by which keys -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SecretCounts:
    """The secrets of one table: `records` counts the records, `sealed` the secrets by the id of their key.

    `clear` are secrets that are not sealed; `damaged` are records that cannot be read, and envelopes that are none.
    """

    table: str
    records: int = 0
    clear: int = 0
    damaged: int = 0
    sealed: dict[str, int] = field(default_factory=dict)


def secret_counts(store: Store | Engine, layout: Layout | BoundLayout) -> list[SecretCounts]:
    """Count the secrets of each table of a layout whose secrets are sealed, by the ids of their keys. No key is needed.

    Batch by batch, each as of its own moment. Raises LayoutError for a table whose form does not tell where its secrets stand.
    """
    engine = store.engine if isinstance(store, Store) else store
    return [_counted(engine, table, seal) for table, seal in _with_secrets(bound_layout_of(layout))]


def _counted(engine: Engine, table: BoundTable, seal: TableSeal) -> SecretCounts:
    counts = SecretCounts(table.name)
    for batch, _ in read_batches(engine, KeyRange(*table.keys.range(()))):
        for entry in batch:
            if table.keys.decode(entry.key) is not None:
                counts.records += 1
                _count(counts, seal, entry.value)
    return counts


def _count(counts: SecretCounts, seal: TableSeal, raw_value: bytes) -> None:
    try:
        secrets = secrets_in(seal.syntax, raw_value, seal.form.secrets)
    except CorruptionError:
        counts.damaged += 1
        return
    for _, raw in secrets:
        envelope = envelope_in(seal.syntax, raw)
        if envelope is None:
            counts.clear += not is_null(seal.syntax, raw)
            continue
        try:
            key_id = Envelope.read(envelope).key_id
        except CorruptionError:
            counts.damaged += 1
        else:
            counts.sealed[key_id] = counts.sealed.get(key_id, 0) + 1


def _with_secrets(bound: BoundLayout) -> list[tuple[BoundTable, TableSeal]]:
    """The tables whose secrets are sealed where there are keys."""
    tables = (table for table in bound.tables.values() if table.spec.is_sealed)
    return [(table, table.seal) for table in tables if table.seal is not None]


def _places_of(tables: Sequence[tuple[BoundTable, TableSeal]]) -> str:
    """Return what names the tables, the beginnings of their keys, and where their secrets stand."""
    said = [(table.name, table.keys.range(())[0], repr(seal.form.secrets)) for table, seal in tables]
    return sha256(repr(said).encode()).hexdigest()


# ---- the rotation --------------------------------------------------------------------------------------------------------


class SecretRotation(JobRecord, frozen=True, kw_only=True):
    """A rotation that is under way: the key that it seals with, and what it has gone through: tables, and keys of `table`.

    One without a key opens: it leaves the secrets in clear. `places` says of which tables it seals what, in their order.
    """

    key_id: str
    table: str = ""
    cursor: bytes = b""
    places: str = ""


class SecretRotations(Layout, root=b"\x00ks"):
    """The rotations that are under way in this store."""

    rotations = Table(b"{root:tail(empty=true,bytes_max=500)}", key=bytes, value=SecretRotation)


@dataclass(frozen=True, slots=True)
class LeftRecord:
    """A record whose secrets did not open, and why; it stays as it is."""

    table: str
    raw_key: bytes
    problem: str


@dataclass(frozen=True, slots=True)
class RotationReport:
    """What one run of a rotation did: records that it went through, and those that it wrote anew.

    `key_id` is the key that it sealed with, empty where it opened. `failed` counts the records that are left as they were;
    `left` names the first of them.
    """

    key_id: str
    records: int
    written: int
    failed: int
    left: tuple[LeftRecord, ...]


def rotate_secrets(
    store: Store,
    layout: Layout,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], object] | None = None,
    backoff: Backoff | None = None,
    clock: Clock = SYSTEM_CLOCK,
    pace: Pace | None = None,
) -> RotationReport:
    """Seal the secrets of all records of a layout with the current key of the store's keys, those in clear too.

    The layout is bound to a store that has keys, the former ones included. The store may be in use; what a program writes that
    has another current key is found by `secret_counts`, and by the next rotation. A record that does not open, or whose key is
    not known, is named in the report and left as it is. Nothing else of a record changes, not a byte; watches see a change.

    One process does it. Interrupted, it goes on where it was when this is called again with the same current key, for the same
    secrets of the layout; otherwise it begins anew. When `stop` is set it ends between two batches, with StoppedError. Without
    `pace` it gives way to other writers (`YieldingPace`). `progress` is called after each batch; `command` are the words behind
    `keyplan` that go on with it, for who looks at the store's jobs.

    Raises InvalidInputError for a store without keys, LayoutError for a table whose secrets cannot be sealed, TargetTakenError
    when another process has taken the rotation over, EngineError.
    """
    cipher, bound = _keys_of(store, layout, "seal")
    rotation = _Rotation(
        store.engine,
        bound,
        _Sealing(cipher.current),
        pace or YieldingPace(store.engine),
        StopCheck(stop, f"the rotation of the secrets of {bound.name}"),
        Teller(progress),
        backoff or Backoff(),
    )
    return rotation.run(tuple(command), clock)


def open_secrets(
    store: Store,
    layout: Layout,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], object] | None = None,
    backoff: Backoff | None = None,
    clock: Clock = SYSTEM_CLOCK,
    pace: Pace | None = None,
) -> RotationReport:
    """Leave the secrets of all records of a layout in clear, as a store without keys writes them.

    Everything else is as for `rotate_secrets`, which is the way back: the keys are those that the secrets are sealed with, and
    a program that has keys goes on to seal what it writes.
    """
    _, bound = _keys_of(store, layout, "open")
    rotation = _Rotation(
        store.engine,
        bound,
        _Opening(),
        pace or YieldingPace(store.engine),
        StopCheck(stop, f"the opening of the secrets of {bound.name}"),
        Teller(progress),
        backoff or Backoff(),
    )
    return rotation.run(tuple(command), clock)


def _keys_of(store: Store, layout: Layout, verb: str) -> tuple[SecretCipher, BoundLayout]:
    """Return the keys of a store and a layout that is bound to it. Raises InvalidInputError."""
    cipher = store.secrets
    if cipher is None:
        problem = f"there are no keys to {verb} with: open the store with secrets="
        raise InvalidInputError(source="secrets", problem=problem)
    bound = bound_layout_of(layout)
    if any(table.cipher is not cipher for table in bound.tables.values()):
        raise InvalidInputError(
            source="layout", problem=f"it is not bound to this store, whose keys are to {verb}: bind it anew"
        )
    return cipher, bound


class _Sealing(NamedTuple):
    """Every secret is sealed with the current key."""

    key_id: str
    verb: str = "sealing"

    def check(self, seal: TableSeal) -> None:
        seal.check()

    def changed(self, seal: TableSeal, key: object, raw_value: bytes) -> bytes:
        return seal.resealed(key, raw_value, key)


class _Opening(NamedTuple):
    """Every secret is left in clear."""

    key_id: str = ""
    verb: str = "opening"

    def check(self, seal: TableSeal) -> None:
        """Any table: of a form in which nothing can be sealed, nothing is."""

    def changed(self, seal: TableSeal, key: object, raw_value: bytes) -> bytes:
        return raw_value if seal.form.secret_syntax is None else seal.cleared(key, raw_value)


_Direction = _Sealing | _Opening


class _Rotation:
    def __init__(
        self,
        engine: Engine,
        bound: BoundLayout,
        direction: _Direction,
        pace: Pace,
        stops: StopCheck,
        tell: Teller,
        backoff: Backoff,
    ) -> None:
        self._engine = engine
        self._bound = bound
        self._direction = direction
        self._pace = pace
        self._stops = stops
        self._tell = tell
        self._backoff = backoff
        self._room = CommitRoom.of(engine.profile, operations=_GUARDS, size=JOB_BYTES_MAX)
        self._records = self._written = self._failed = 0
        self._left: list[LeftRecord] = []

    def run(self, command: tuple[str, ...], clock: Clock) -> RotationReport:
        tables = _with_secrets(self._bound)
        for _, seal in tables:
            self._direction.check(seal)
        table = SecretRotations.bound().tables["rotations"]
        with self._engine.snapshot() as snapshot:
            seen = look(snapshot, table.keys.encode(self._bound.root), table.form)
        names = [each.name for each, _ in tables]
        earlier: SecretRotation | None = seen.record
        key_id = self._direction.key_id
        # Why the places too: a table or a field that has come since would lie before the position, and be passed over.
        fresh = SecretRotation(key_id=key_id, places=_places_of(tables))
        is_same = earlier is not None and (earlier.key_id, earlier.places) == (key_id, fresh.places)
        record = earlier if earlier is not None and is_same else fresh
        begin = partial(Job[SecretRotation].begin, lost=self._lost, clock=clock, stops=self._stops, pace=self._pace)
        try:
            job = begin(self._engine, seen, begun(record, command=command, clock=clock), table.form)
        except CommitConflictError as error:
            raise self._lost("another process begins the rotation at this moment") from error
        done = names.index(record.table) if record.table else 0
        for each, seal in tables[done:]:
            self._change_table(job, each, seal, record.cursor if each.name == record.table else b"")
        job.end()
        return RotationReport(key_id, self._records, self._written, self._failed, tuple(self._left))

    def _lost(self, problem: str) -> TargetTakenError:
        return TargetTakenError(prefix=self._bound.root, problem=problem)

    def _change_table(self, job: Job[SecretRotation], table: BoundTable, seal: TableSeal, cursor: bytes) -> None:
        start, end = table.keys.range(())
        rest = KeyRange(max(start, cursor + b"\x00") if cursor else start, end)
        while not rest.is_empty:
            self._stops.check()
            with self._engine.snapshot() as snapshot:
                batch = batch_of(snapshot, rest, _BATCH_RECORDS_MAX)
            if not batch:
                return
            written = self._written
            changed = partial(self._direction.changed, seal)
            work = _Batch(self._engine, job, table, changed, self._room, self._backoff)
            work.write([entry.key for entry in batch])
            self._records += work.records
            self._written += work.written
            self._failed += len(work.left)
            self._left += list(work.left.values())[: _FINDINGS_MAX - len(self._left)]
            if self._written != written:
                job.tell(table.name, self._records)
                job.commit(record=structs.replace(job.record, table=table.name, cursor=batch[-1].key))
            self._tell(self._direction.verb, self._records, item=table.name)
            self._pace.spend(len(batch), self._stops)
            rest = KeyRange(batch[-1].key + b"\x00", end)


class _Batch:
    """Some records of one table, written anew in as few commits as they fit into; where a writer comes between, in halves.

    `changed` returns what is to be stored of a record at a key.
    """

    def __init__(
        self,
        engine: Engine,
        job: Job[SecretRotation],
        table: BoundTable,
        changed: Callable[[object, bytes], bytes],
        room: CommitRoom,
        backoff: Backoff,
    ) -> None:
        self._engine, self._job, self._table, self._changed = engine, job, table, changed
        self._room, self._backoff = room, backoff
        self._seen: set[bytes] = set()
        self.written = 0
        self.left: dict[bytes, LeftRecord] = {}

    @property
    def records(self) -> int:
        """How many of the keys are records of the table."""
        return len(self._seen)

    def write(self, raw_keys: Sequence[bytes]) -> None:
        """Write the records at these keys anew; those that stay as they are, because they do not open, are in `left`."""
        halved(raw_keys, self._attempt, self._alone)

    def _alone(self, raw_key: bytes) -> None:
        try:
            self._backoff.until_committed(lambda: self._attempt([raw_key]))
        except CommitConflictError:
            self._failed(raw_key, "a program writes the record again and again: begin the rotation once more")

    def _attempt(self, raw_keys: Sequence[bytes]) -> list[None]:
        with self._engine.snapshot() as snapshot:
            read = Lookup(snapshot)
            read.fetch(raw_keys)
        found = [entry for raw_key in raw_keys if (entry := read.get(raw_key)) is not None]
        commits = [
            Commit((as_read(entry.key, entry),), (Put(entry.key, new, entry.lease),), read.epoch)
            for entry in found
            if (new := self._new_value(entry)) is not None
        ]
        with ended_lease_is_conflict():
            for places, commit in joined(commits, self._room):
                self._job.commit(commit.mutations, guards=commit.guards)
                self.written += len(places)
        return [None] * len(raw_keys)

    def _new_value(self, entry: Entry) -> bytes | None:
        """Return the record's new value; None where it needs none, or none can be made."""
        key = self._table.keys.decode(entry.key)
        if key is None:
            return None
        self._seen.add(entry.key)
        self.left.pop(entry.key, None)
        try:
            new = self._changed(key, entry.value)
        except (CorruptionError, SecretKeyError) as error:
            self._failed(entry.key, str(error))
            return None
        return None if new == entry.value else new

    def _failed(self, raw_key: bytes, problem: str) -> None:
        self.left[raw_key] = LeftRecord(self._table.name, raw_key, problem)
