"""The writes of a store, each one commit, retried when it lost a race; and commits for people.

`Explanation` shows each guard and mutation in a line, with its key's meaning, records only when asked. A refused commit becomes
the error about the caller's own words, in place of a failed guard or a bare limit.
"""

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from keyplan.engine import (
    NO_LEASE,
    Backoff,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Profile,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
)
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConflictError,
    CorruptionError,
    EngineLimitError,
    StaleRecordError,
)
from keyplan.layout import (
    BoundCounter,
    BoundLayout,
    BoundTable,
    ExpectedRevision,
    Kind,
    Meaning,
    holds_secrets,
    shown_key,
)
from keyplan.store.plan import IndexEntry, RecordState, Write, plan_insertion, plan_writes, unique_violation
from keyplan.store.session import Session

__all__ = ["CommitWriter", "Explanation", "explain_conflict", "explain_limit"]

# ---- a commit for people --------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    verb: str
    place: str
    content: str
    meaning: str


@dataclass(frozen=True)
class Explanation:
    """A commit and the layouts that its keys belong to. `str` of it gives the lines."""

    commit: Commit
    layouts: tuple[BoundLayout, ...]

    def lines(self, *, show_values: bool = False) -> list[str]:
        """Return a line for each guard and mutation: what, the raw key, what is there, what the key means.

        Guards come first, mutations after them, each in key order. A record is shown as its length unless `show_values`; one
        with secrets is in any case. What index entries point at, and the numbers of counters, are always shown.
        """
        guards = sorted((self._guard_line(guard) for guard in self.commit.guards), key=lambda line: line.place)
        mutations = sorted(
            (self._mutation_line(mutation, show_values=show_values) for mutation in self.commit.mutations),
            key=lambda line: line.place,
        )
        lines = [*guards, *mutations]
        widths = [max((len(line[column]) for line in lines), default=0) for column in range(3)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(line, (*widths, 0), strict=True)).rstrip()
            for line in lines
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing to write"

    def _guard_line(self, guard: Guard) -> _Line:
        match guard:
            case KeyAbsent(key):
                return _Line("guard", shown_key(key), "absent", self._meant(key))
            case KeyUnchanged(key, revision):
                return _Line("guard", shown_key(key), f"unchanged since {revision}", self._meant(key))
            case RangeEmpty(key_range):
                return _Line("guard", _shown_range(key_range), "empty", "")
            case RangeUnchanged(key_range, revision, keys):
                return _Line("guard", _shown_range(key_range), f"{len(keys)} keys unchanged since {revision}", "")

    def _mutation_line(self, mutation: Mutation, *, show_values: bool) -> _Line:
        match mutation:
            case Put(key, value, lease):
                content = self._content(key, value, show_values=show_values)
                if lease != NO_LEASE:
                    content = f"{content} on lease {lease}".strip()
                return _Line("put", shown_key(key), content, self._meant(key))
            case Delete(key):
                return _Line("delete", shown_key(key), "", self._meant(key))
            case DeleteRange(key_range):
                return _Line("delete", _shown_range(key_range), "all of it", "")

    def _meaning(self, raw_key: bytes) -> tuple[BoundLayout, Meaning] | None:
        for layout in self.layouts:
            meaning = layout.meaning(raw_key)
            if meaning.kind in {Kind.RECORD, Kind.INDEX_ENTRY, Kind.COUNTER}:
                return layout, meaning
        return None

    def _meant(self, raw_key: bytes) -> str:
        found = self._meaning(raw_key)
        if found is None:
            return ""
        meaning = found[1]
        fields = ", ".join(f"{name}={value}" for name, value in meaning.fields.items())
        return f"{meaning.kind.value} of {meaning.item}" + (f" ({fields})" if fields else "")

    def _content(self, raw_key: bytes, raw_value: bytes, *, show_values: bool) -> str:
        found = self._meaning(raw_key)
        kind = None if found is None else found[1].kind
        if found is not None and kind is Kind.INDEX_ENTRY and raw_value:
            index = found[0].indexes[str(found[1].item)]
            with suppress(CorruptionError):  # Why: a repair by hand may write any bytes, and is shown first.
                key = index.primary_key(raw_key, raw_value)
                return "-> " + ", ".join(str(value) for value in index.table.keys.shape.split(key))
            return f"{len(raw_value)} bytes that name no record"
        if found is not None and kind is Kind.COUNTER:
            with suppress(CorruptionError):  # Why: a table whose keys collide with the counter's may write there.
                return str(found[0].counters[str(found[1].item)].decode(raw_value))
        if kind is Kind.INDEX_ENTRY:
            return ""
        is_shown = show_values and not holds_secrets(self.layouts, raw_key)
        return shown_key(raw_value) if is_shown else f"{len(raw_value)} bytes"


def _shown_range(key_range: KeyRange) -> str:
    end = "the end" if key_range.end is None else shown_key(key_range.end)
    return f"{shown_key(key_range.start)} .. {end}"


# ---- what was refused -------------------------------------------------------------------------------------------------


def explain_conflict(
    conflict: CommitConflictError,
    writes: Mapping[bytes, Write],
    read_set: Set[bytes],
    snapshot: Callable[[], Snapshot],
) -> ConflictError:
    """Return the error for a conflict that nobody will retry.

    Where the caller said what it expects (insert: absent; a revision; a unique entry that is free), the answer is in these
    terms. Where a guard failed that came from a read, another try may decide otherwise: the conflict itself is returned, with
    the table, key and index of the caller's write that it is about.
    """
    failures = conflict.facts.get("failed", ())
    assert isinstance(failures, tuple)
    if any(failure.key in read_set for failure in failures):
        return conflict
    for failure in failures:
        write = writes.get(failure.key)
        told = _about_record(failure, write) if write is not None else _about_entry(failure, writes, snapshot)
        if told is not None:
            return told
    for failure in failures:
        place = _place(failure.key, writes) if failure.key is not None else {}
        if "table" in place:
            return CommitConflictError(**{**conflict.facts, **place})
    return conflict


def _about_record(failure: FailedGuard, write: Write) -> ConflictError | None:
    if write.is_insert:
        return AlreadyExistsError(table=write.table.name, key=write.key, revision=failure.actual_revision)
    if write.expected_revision is not None:
        return StaleRecordError(
            table=write.table.name,
            key=write.key,
            expected_revision=write.expected_revision,
            actual_revision=failure.actual_revision,
        )
    return None


def _about_entry(
    failure: FailedGuard, writes: Mapping[bytes, Write], snapshot: Callable[[], Snapshot]
) -> ConflictError | None:
    """The error of a unique entry that was free, or the record's own, and that another record holds now."""
    if not isinstance(failure.guard, (KeyAbsent, KeyUnchanged)):
        return None
    index_entry = _index_entry_at(failure.guard.key, writes)
    if index_entry is None:
        return None
    with snapshot() as state:
        entry = state.get(failure.guard.key)
    if entry is None or entry.value == index_entry.raw_value or _is_given_up(entry, writes):
        return None  # Why: it is free again, or ours: another try would go through.
    return unique_violation(index_entry.source, failure.guard.key, entry.value)


def _is_given_up(entry: Entry, writes: Mapping[bytes, Write]) -> bool:
    """Whether the entry points at a record that gives it up in this very commit."""
    return any(
        write.old is not None
        and (write.new is None or entry.key not in write.new.index_entries)
        and (index_entry := write.old.index_entries.get(entry.key)) is not None
        and index_entry.raw_value == entry.value
        for write in writes.values()
    )


def _index_entry_at(raw_key: bytes, writes: Mapping[bytes, Write]) -> IndexEntry | None:
    for write in writes.values():
        if write.new is not None and raw_key in write.new.index_entries:
            return write.new.index_entries[raw_key]
    return None


def explain_limit(
    error: EngineLimitError, commit: Commit, profile: Profile, writes: Mapping[bytes, Write]
) -> EngineLimitError:
    """Return the limit error with the table and key whose write exceeds it, where it is about one of them."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put) and (
            _is_over(profile.key_bytes_max, mutation.key) or _is_over(profile.value_bytes_max, mutation.value)
        ):
            return EngineLimitError(**{**error.facts, **_place(mutation.key, writes)})
    tables = sorted({write.table.name for write in writes.values()})
    counted = {"records": len(writes), "guards": len(commit.guards), "mutations": len(commit.mutations)}
    return EngineLimitError(**{**error.facts, "tables": tables, **counted})


def _is_over(bytes_max: int | None, raw: bytes) -> bool:
    return bytes_max is not None and len(raw) > bytes_max


def _place(raw_key: bytes, writes: Mapping[bytes, Write]) -> dict[str, object]:
    for write in writes.values():
        if raw_key == write.raw_key:
            return {"table": write.table.name, "key": write.key}
        for state in (write.new, write.old):
            if state is not None and raw_key in state.index_entries:
                return {"table": write.table.name, "key": write.key, "index": state.index_entries[raw_key].source.name}
    return {"raw_key": raw_key.hex()}


# ---- writing --------------------------------------------------------------------------------------------------------------


R = TypeVar("R")


class CommitWriter:
    """Writes through a session of one operation; an insert goes out at once, without reading."""

    def __init__(self, engine: Engine, backoff: Backoff) -> None:
        self._engine = engine
        self._backoff = backoff

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
        new = RecordState(raw_value, lease, index_entries, 0, unique)
        commit = plan_insertion(raw_key, new) or _planned(Write(table, key, raw_key, None, new))
        try:
            return self._engine.commit(commit)
        except EngineLimitError as error:
            write = Write(table, key, raw_key, None, new)
            raise explain_limit(error, commit, self._engine.profile, {raw_key: write}) from error
        except CommitConflictError:
            # Why: the guards say that something is there, not what; a transaction looks, and names the record in the way. Or
            # it finds that an entry left behind is the record's own, and goes through.
            return self._write(lambda session: session.insert(table, key, record, lease=lease))

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.put(
                table, key, record, expected_revision=expected_revision, lease=lease, damaged_ok=damaged_ok
            )
        )

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.update(
                table, key, record, expected_revision=expected_revision, damaged_ok=damaged_ok
            )
        )

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int:
        return self._write(lambda session: session.modify(table, key, change))

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.delete(
                table, key, expected_revision=expected_revision, missing_ok=missing_ok, damaged_ok=damaged_ok
            )
        )

    def rename(self, table: BoundTable, key: object, new_key: object) -> int:
        return self._write(lambda session: session.rename(table, key, new_key))

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        return self._committed(lambda session: session.move_counter(counter, choose))[0]

    def _write(self, write: Callable[[Session], object]) -> int:
        return self._committed(write)[1]

    def _committed(self, write: Callable[[Session], R]) -> tuple[R, int]:
        """Return what `write` returned and the revision of its commit."""
        engine, epoch = self._engine, ""

        def attempt() -> tuple[R, int]:
            nonlocal epoch
            with Session(engine) as session:
                session.known_epoch = epoch
                answer = write(session)
                commit = session.commit()
                if not commit.mutations:
                    return answer, session.revision
                session.end()
                try:
                    return answer, engine.commit(commit)
                except EngineLimitError as error:
                    raise explain_limit(error, commit, engine.profile, session.writes) from error
                except CommitConflictError:
                    epoch = epoch or commit.epoch
                    raise

        return self._backoff.until_committed(attempt)


def _planned(write: Write) -> Commit:
    plan = plan_writes((write,), {})
    # Why no epoch: nothing was read, so that no guard names a revision.
    return Commit(tuple(plan.guards.values()), tuple(plan.mutations.values()), "")
