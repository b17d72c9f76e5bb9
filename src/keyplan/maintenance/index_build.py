"""The online build of an index: while the store is in use, by any number of builders, each of which may die at any moment.

    building     builders take stretches of the table in turn (the state's cursor says what is taken) and write the entries
    verifying    record by record: what is missing is written, and what two records claim is counted
    sweeping     entry by entry: what no record calls for is removed
    readable     the state is removed

A builder that dies leaves a stretch that was taken but not built: the verification, whose cursor says what is done, finds it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from msgspec import structs

from keyplan.engine import (
    Commit,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    ended_lease_is_conflict,
)
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    InvalidInputError,
    RecordError,
    TargetTakenError,
)
from keyplan.jobs import (
    CommitRoom,
    Lookup,
    Pace,
    Progress,
    Stop,
    StopCheck,
    Teller,
    YieldingPace,
    as_read,
    batch_of,
    halved,
    joined,
    kept_command,
    read_batches,
)
from keyplan.layout import BoundIndex, BoundLayout, Layout, bound_layout_of
from keyplan.maintenance.definitions import index_definition
from keyplan.maintenance.examine import Examiner, calls_for, primary_of
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.maintenance.index_states import IndexStateRead, index_named, read_index_state, replace_index_state
from keyplan.maintenance.repair import RepairResult, carry_out, plan_repairs
from keyplan.store import Backoff, IndexStage, IndexState, Store

__all__ = ["BuildReport", "build_index"]


_BATCH_RECORDS_MAX: Final = 128
"""Why: what is taken at once is what a dying builder leaves to the verification, and what one conflict makes read again."""

_FINDINGS_MAX: Final = 100
"""How many contested entries a report names. Why: memory; `keyplan check` lists them all."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """How a build ended: whether the index is readable, and if not, the unique entries that two records claim.

    `records` and `entries_written` count this builder's own work, the verification's included. `unfit` counts the records that
    this builder's verification saw and that have no entry: they cannot be read or do not fit the index; `check` names them.
    """

    is_readable: bool
    records: int
    entries_written: int
    contested: tuple[Finding, ...]
    unfit: int = 0


def build_index(
    store: Store,
    layout: Layout | BoundLayout,
    name: str,
    *,
    along: Sequence[Mutation] = (),
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    backoff: Backoff | None = None,
    pace: Pace | None = None,
) -> BuildReport:
    """Build an index that `prepare_index` made write-only, verify it, and make it readable.

    Writers go on meanwhile, provided that all of them keep the index, that is, have a layout that declares it. Every batch is
    a commit guarded by its records being unchanged; where a writer came between, they are read again. An interrupted build
    goes on where it was when this is called again; several may run at once and share the work. A build that was begun by
    another definition of the index begins anew; of two builders with two definitions the later one goes on.

    When two records claim one unique entry the index stays unreadable, and the report names them: change one of the two and
    call this again. `pace` is that of this builder: without one it gives way to other writers (`YieldingPace`), `Pace()` is as
    fast as it goes. `progress` is called after each batch, and counts what all builders together have gone through. When `stop`
    is set this builder ends between two batches, with StoppedError. `along` is written in the commit that makes the index
    readable, if this builder makes it. `command` are the words behind `keyplan` that go on with the build, for who looks at the
    store's jobs.

    Raises InvalidInputError when the index is readable already, UnknownNameError, TargetTakenError when somebody builds the
    index by another definition meanwhile, or has built it, EngineError, CommitOutcomeUnknownError.
    """
    bound = bound_layout_of(layout)
    pace = pace or YieldingPace(store.engine)
    index = index_named(bound, name)
    stops = StopCheck(stop, f"the build of {name}")
    builder = _Builder(store, bound, index, pace, stops, kept_command(command), progress, backoff or Backoff())
    return builder.run(tuple(along))


_Step: TypeAlias = Callable[[IndexStateRead, IndexState], None]


class _Builder:
    def __init__(
        self,
        store: Store,
        bound: BoundLayout,
        index: BoundIndex,
        pace: Pace,
        stops: StopCheck,
        command: tuple[str, ...],
        progress: Callable[[Progress], None] | None,
        backoff: Backoff,
    ) -> None:
        self._store = store
        self._engine = store.engine
        self._bound = bound
        self._index = index
        self._definition = index_definition(index)
        self._pace = pace
        self._stops = stops
        self._command = command
        self._tell = Teller(progress)
        self._backoff = backoff
        self._records = 0
        self._entries_written = 0
        self._contested: dict[bytes, Finding] = {}
        self._unfit = 0

    def run(self, along: tuple[Mutation, ...]) -> BuildReport:
        steps: dict[IndexStage, _Step] = {
            IndexStage.WRITE_ONLY: self._begin,
            IndexStage.BUILDING: self._build,
            IndexStage.VERIFYING: self._verify,
            IndexStage.SWEEPING: partial(self._sweep, along),
        }
        is_first = True
        while True:
            seen = read_index_state(self._engine, self._index)
            state = seen.state
            if state is None:
                if is_first:
                    raise InvalidInputError(source=self._index.name, problem="the index is readable; prepare it first")
                self._require_own_entries()
                return self._report(is_readable=True)
            self._stops.check()
            is_foreign = state.stage is not IndexStage.WRITE_ONLY and state.fingerprint != self._definition
            if is_foreign and not is_first:
                # Why not anew: two builders with two definitions would begin anew for ever, each after the other.
                problem = "another program builds this index by another definition of it; stop one of the two"
                raise TargetTakenError(index=self._index.name, prefix=self._bound.root, problem=problem)
            is_first = False
            step = self._begin if is_foreign else steps[state.stage]
            try:
                step(seen, state)
            except _LostError:
                continue  # Why: another builder moved the state; it is read again.
            except _ContestedError:
                return self._report(is_readable=False)

    def _report(self, *, is_readable: bool) -> BuildReport:
        contested = () if is_readable else tuple(self._contested.values())
        return BuildReport(is_readable, self._records, self._entries_written, contested, self._unfit)

    # ---- the stages ----------------------------------------------------------------------------------------------------

    def _begin(self, seen: IndexStateRead, state: IndexState) -> None:
        self._replace(seen, self._stage(IndexStage.BUILDING, state))

    def _build(self, seen: IndexStateRead, state: IndexState) -> None:
        batch = self._batch(self._table_range, state)
        if not batch:
            self._replace(seen, self._stage(IndexStage.VERIFYING, state))
            self._contested.clear()
            self._unfit = 0
            return
        # Why: taken before it is built, so that another builder takes the next stretch.
        self._replace(seen, self._moved(state, batch))
        self._write(batch)
        self._told(state, batch)

    def _verify(self, seen: IndexStateRead, state: IndexState) -> None:
        batch = self._batch(self._table_range, state)
        if not batch:
            swept = self._stage(IndexStage.SWEEPING, state)
            self._replace(seen, structs.replace(swept, unresolved=state.unresolved))
            return
        unresolved = self._write(batch)
        self._replace(seen, self._moved(state, batch, unresolved))
        self._told(state, batch)

    def _sweep(self, along: tuple[Mutation, ...], seen: IndexStateRead, state: IndexState) -> None:
        batch = self._batch(KeyRange(*self._index.keys.range(())), state)
        if batch:
            unresolved = self._remove_strangers(batch)
            self._replace(seen, self._moved(state, batch, unresolved))
            self._told(state, batch)
        elif state.unresolved:
            self._replace(seen, self._stage(IndexStage.VERIFYING, state))
            if len(self._contested) < min(state.unresolved, _FINDINGS_MAX):
                self._find_contested()
            raise _ContestedError
        else:
            self._replace(seen, None, along)

    def _find_contested(self) -> None:
        """Look in the whole table for what two records claim: another builder, which may have died, has counted it."""
        key_bytes_max = self._engine.profile.key_bytes_max
        rest = partial(self._pace.spend, _BATCH_RECORDS_MAX, self._stops)
        for batch, snapshot in read_batches(self._engine, self._table_range, _BATCH_RECORDS_MAX, rest=rest):
            self._note(_entries_due(self._index, batch, Lookup(snapshot), key_bytes_max=key_bytes_max).contested)
            if len(self._contested) == _FINDINGS_MAX:
                return

    def _require_own_entries(self) -> None:
        """Compare an index that somebody else made readable with the records, as this definition has it.

        Why: a build by another definition may have come and gone meanwhile, and readable says nothing of which one it was. Each
        batch is one state, in which every writer has kept the index. It is not stopped: there is nothing left to go on with.
        Raises TargetTakenError.
        """
        examiner = Examiner(self._bound, key_bytes_max=self._engine.profile.key_bytes_max)
        for key_range in (self._table_range, KeyRange(*self._index.keys.range(()))):
            for batch, snapshot in read_batches(self._engine, key_range, _BATCH_RECORDS_MAX):
                found = examiner.examine(batch, Lookup(snapshot))
                if any(finding.item == self._index.name for finding in found):
                    problem = (
                        "the index was made readable meanwhile, and does not hold what the records call for: another program"
                        " has built it by another definition; when one of the two is gone, prepare it and build it again"
                    )
                    raise TargetTakenError(index=self._index.name, prefix=self._bound.root, problem=problem)

    # ---- pieces --------------------------------------------------------------------------------------------------------

    @property
    def _table_range(self) -> KeyRange:
        return KeyRange(*self._index.table.keys.range(()))

    def _batch(self, key_range: KeyRange, state: IndexState) -> list[Entry]:
        """The next keys of the range after the state's cursor, templates of others included."""
        start = max(key_range.start, state.cursor + b"\x00") if state.cursor else key_range.start
        with self._engine.snapshot() as snapshot:
            return batch_of(snapshot, KeyRange(start, key_range.end), _BATCH_RECORDS_MAX)

    def _moved(self, state: IndexState, batch: Sequence[Entry], unresolved: int = 0) -> IndexState:
        records = state.records + len(batch)
        return structs.replace(
            state, cursor=batch[-1].key, records=records, unresolved=state.unresolved + unresolved, run=""
        )

    def _stage(self, stage: IndexStage, before: IndexState) -> IndexState:
        """The state at the beginning of a stage."""
        # Why not of another definition: its command would build that one.
        earlier = before.command if before.fingerprint == self._definition else ()
        return IndexState(stage, self._definition, command=self._command or earlier)

    def _replace(self, seen: IndexStateRead, state: IndexState | None, along: tuple[Mutation, ...] = ()) -> None:
        try:
            replace_index_state(self._engine, self._index, seen, state, along=along)
            self._pace.committed()
        except CommitConflictError as error:
            raise _LostError from error

    def _told(self, state: IndexState, batch: Sequence[Entry]) -> None:
        self._records += len(batch)
        self._tell(state.stage.value, state.records + len(batch))
        self._pace.spend(len(batch), self._stops)

    def _write(self, batch: Sequence[Entry]) -> int:
        """Write the entries that the records lack; return how many were left to decide."""
        return sum(halved([entry.key for entry in batch], self._write_once, self._write_one))

    def _write_one(self, record_key: bytes) -> int:
        try:
            return sum(self._backoff.until_committed(lambda: self._write_once([record_key])))
        except CommitConflictError:
            return 1

    def _write_once(self, record_keys: Sequence[bytes]) -> list[int]:
        with self._engine.snapshot() as snapshot:
            read = Lookup(snapshot)
            read.fetch(record_keys)
            records = [entry for key in record_keys if (entry := read.get(key)) is not None]
            key_bytes_max = self._engine.profile.key_bytes_max
            due: _EntriesDue = _entries_due(self._index, records, read, key_bytes_max=key_bytes_max)
        with ended_lease_is_conflict():
            for _, commit in joined(due.commits, CommitRoom.of(self._engine.profile)):
                self._engine.commit(commit)
                self._pace.committed()
                self._entries_written += len(commit.mutations)
        self._unfit += len(due.unfit)
        self._note(due.contested)
        return [len(due.contested)]

    def _note(self, contested: Sequence[Finding]) -> None:
        for finding in contested:
            if len(self._contested) < _FINDINGS_MAX:
                self._contested[finding.raw_key] = finding

    def _remove_strangers(self, batch: Sequence[Entry]) -> int:
        """Remove entries that no record calls for; return how many could not be."""
        with self._engine.snapshot() as snapshot:
            entries = [entry for entry in batch if self._index.keys.decode(entry.key) is not None]
            found = Examiner(self._bound).examine(entries, Lookup(snapshot))
        own = [finding for finding in found if finding.item == self._index.name and finding.kind.is_repairable]
        repairs = plan_repairs(self._store, self._bound, own)
        outcomes = carry_out(self._store, self._bound, repairs, backoff=self._backoff)
        self._pace.committed(sum(outcome.result is RepairResult.REPAIRED for outcome in outcomes))
        return sum(outcome.result is RepairResult.CONTENDED for outcome in outcomes)


class _LostError(Exception):
    """Another builder or maintainer replaced the state."""


class _ContestedError(Exception):
    """The build is over, and something is left to decide."""


# ---- which entries a batch of records lacks; nothing is written here -------------------------------------------------


class _EntriesDue(NamedTuple):
    """What to write, no key twice; the unique entries that two records claim; and the records that have no entry."""

    commits: tuple[Commit, ...]
    contested: tuple[Finding, ...]
    unfit: tuple[bytes, ...] = ()


def _entries_due(
    index: BoundIndex, records: Sequence[Entry], read: Lookup, *, key_bytes_max: int | None
) -> _EntriesDue:
    """Return the entries of `index` that these stored records should have and have not.

    Records that cannot be read, or whose fields do not fit the index or make an entry longer than `key_bytes_max`, have none:
    they are `unfit`, and a check names them. Entries of other tables in `records` are passed over.
    """
    unfit: dict[bytes, None] = {}
    wanted = list(_wanted(index, records, unfit, key_bytes_max))
    read.fetch(raw_key for _, raw_key, _ in wanted)
    commits: dict[bytes, Commit] = {}
    contested: list[Finding] = []
    for record, raw_key, raw_value in wanted:
        found = read.get(raw_key)
        if found is not None and found.value == raw_value and found.lease == record.lease:
            continue
        guards: list[Guard] = [as_read(record.key, record), as_read(raw_key, found)]
        other = _other_record(index, found, raw_value, read)
        if raw_key in commits or isinstance(other, Entry):
            contested.append(Finding(FindingKind.CONTESTED_ENTRY, raw_key, index.name, record.key))
            continue
        if other is not None:
            guards.append(other)
        commits[raw_key] = Commit(tuple(guards), (Put(raw_key, raw_value, record.lease),), read.epoch)
    return _EntriesDue(tuple(commits.values()), tuple(contested), tuple(unfit))


def _wanted(
    index: BoundIndex, records: Sequence[Entry], unfit: dict[bytes, None], key_bytes_max: int | None
) -> Iterator[tuple[Entry, bytes, bytes]]:
    table = index.table
    for record in records:
        key = table.keys.decode(record.key)
        if key is None:
            continue
        try:
            index_entries = index.entries(key, table.form.decode(record.value))
        except (CorruptionError, RecordError):
            unfit[record.key] = None
            continue
        for raw_key, raw_value in index_entries:
            if key_bytes_max is not None and len(raw_key) > key_bytes_max:
                unfit[record.key] = None
            else:
                yield record, raw_key, raw_value


def _other_record(index: BoundIndex, found: Entry | None, raw_value: bytes, read: Lookup) -> Entry | Guard | None:
    """The record that an entry points at and that calls for it; or the guard that there is none; None: nobody is pointed at."""
    if found is None or found.value == raw_value or not index.spec.is_unique:
        return None
    primary = primary_of(index, found)
    if primary is None:
        return None
    key, raw_key = primary
    other = read.get(raw_key)
    if other is None:
        return KeyAbsent(raw_key)
    if calls_for(index, key, other, found.key) is False:
        return KeyUnchanged(raw_key, other.mod_revision)
    return other
