"""Random grants, random operations: a confined engine answers, refuses and changes what a dict filtered by the grants would."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from keyplan.engine import (
    ALL_KEYS,
    Area,
    Commit,
    ConfinedEngine,
    Delete,
    DeleteRange,
    Engine,
    Event,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    MemoryEngine,
    Mutation,
    Outside,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Reach,
    Snapshot,
    Watch,
    failures_of,
    open_engine,
)
from keyplan.errors import (
    AccessDeniedError,
    CommitConflictError,
    HistoryCompactedError,
    InvalidInputError,
    KeyplanError,
)
from tests.engines.confined_model import (
    FENCE_VALUES,
    FENCES,
    KEYS,
    PROBES,
    RefusedError,
    Seen,
    Store,
    allows,
    touched_by,
    writes_twice,
)

Answer = TypeVar("Answer")

keys = st.sampled_from(KEYS)
borders = keys | st.sampled_from([b"a", b"b"])
ranges = st.just(ALL_KEYS) | st.builds(KeyRange, borders, st.none() | borders) | keys.map(KeyRange.of_prefix)
values = st.binary(max_size=2) | st.sampled_from(FENCE_VALUES)
fences = st.none() | st.tuples(st.sampled_from(FENCES), st.sampled_from(FENCE_VALUES))
areas = st.builds(Area, ranges, st.booleans(), fences)
mutations = st.builds(Put, keys, values) | keys.map(Delete) | ranges.map(DeleteRange)
engines = st.sampled_from([Outside.REFUSED, Outside.ABSENT])
limits = st.none() | st.integers(0, 3)
DENIED = "denied"


def answered(ask: Callable[[], Answer]) -> Answer | str:
    """Return the answer, or that there is none."""
    try:
        return ask()
    except (AccessDeniedError, RefusedError):
        return DENIED


@dataclass
class Watching:
    """A watch, and what the model knows of it."""

    watch: Watch
    asked: KeyRange
    parts: set[bytes]
    after: int
    ended: type[KeyplanError] | None = None


class ConfinedMachine(RuleBasedStateMachine):
    """Two callers with the same grants, one refused outside and one who finds nothing there, and others who just write."""

    inner: Engine

    def make(self, closing: ExitStack) -> Engine:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.closing = ExitStack()
        self.inner = self.closing.enter_context(self.make(self.closing))
        self.granted: list[Area] = []
        self.reach = Reach()
        self.callers = {
            outside: ConfinedEngine(self.inner, lambda: self.reach, outside=outside, who="ann") for outside in Outside
        }
        self.model = Store()
        self.snapshots: list[tuple[Snapshot, dict[bytes, tuple[bytes, int]], bool]] = []
        self.watches: list[Watching] = []

    def teardown(self) -> None:
        if hasattr(self, "closing"):
            for snapshot, _, _ in self.snapshots:
                snapshot.close()
            for watching in self.watches:
                watching.watch.close()
            self.closing.close()

    def seen(self, outside: Outside) -> Seen:
        return Seen(self.model.state, self.granted, outside is Outside.REFUSED)

    # ---- others --------------------------------------------------------------------------------------------------------

    @rule(granted=st.lists(areas, min_size=1, max_size=4))
    def grant(self, granted: list[Area]) -> None:
        self.granted, self.reach = granted, Reach(granted)

    @rule(writes=st.lists(st.builds(Put, keys, values), min_size=1, max_size=4, unique_by=lambda put: put.key))
    def others_write(self, writes: list[Put]) -> None:
        self.model.apply(writes, self.inner.commit(Commit((), tuple(writes))))

    @rule(fence=st.sampled_from(FENCES), value=st.sampled_from(FENCE_VALUES) | st.none())
    def a_fence_changes(self, fence: bytes, value: bytes | None) -> None:
        write = Delete(fence) if value is None else Put(fence, value)
        self.model.apply([write], self.inner.commit(Commit((), (write,))))

    # ---- reads -----------------------------------------------------------------------------------------------------------

    @rule(outside=engines, key=keys)
    def the_latest_value(self, outside: Outside, key: bytes) -> None:
        found = answered(lambda: self.callers[outside].value(key))
        assert found == answered(lambda: value_of(self.seen(outside).get(key)))

    @rule(outside=engines, key=keys, fence=st.sampled_from(FENCES) | keys, expected=st.sampled_from(FENCE_VALUES))
    def a_value_under_a_fence_of_the_callers(self, outside: Outside, key: bytes, fence: bytes, expected: bytes) -> None:
        found = answered(lambda: self.callers[outside].fenced_value(key, ((fence, expected),)))
        seen = self.seen(outside)

        def model() -> tuple[bool, bytes | None]:
            value, holds = value_of(seen.get(key)), value_of(seen.get(fence)) == expected
            return holds, value if holds else None

        assert found == answered(model)

    @rule(outside=engines)
    def a_snapshot_is_taken(self, outside: Outside) -> None:
        if len(self.snapshots) < 3:
            taken = self.callers[outside].snapshot()
            assert taken.revision == self.model.revision
            self.snapshots.append((taken, dict(self.model.state), outside is Outside.REFUSED))

    @precondition(lambda self: self.snapshots)
    @rule(at=st.integers(0, 2), asked=st.lists(keys, max_size=4))
    def keys_of_a_snapshot(self, at: int, asked: list[bytes]) -> None:
        snapshot, state, is_refusing = self.snapshots[at % len(self.snapshots)]
        seen = Seen(state, self.granted, is_refusing)
        expected = answered(lambda: [seen.get(key) for key in asked])
        assert answered(lambda: [told(entry) for entry in snapshot.get_many(asked)]) == expected
        assert answered(lambda: [told(snapshot.get(key)) for key in asked]) == expected
        expected_values = answered(lambda: [value_of(seen.get(key)) for key in asked])
        assert answered(lambda: snapshot.values(asked)) == expected_values
        assert answered(lambda: [snapshot.value(key) for key in asked]) == expected_values
        snapshot.read_along(asked)
        found = [None] * len(asked) if isinstance(expected_values, str) else expected_values
        assert answered(lambda: snapshot.holds(tuple(zip(asked, found, strict=True)))) == answered(
            lambda: len(as_list(expected_values)) == len(asked)
        )

    @precondition(lambda self: self.snapshots)
    @rule(at=st.integers(0, 2), asked=ranges, limit=limits, reverse=st.booleans())
    def a_range_of_a_snapshot(self, at: int, asked: KeyRange, limit: int | None, *, reverse: bool) -> None:
        snapshot, state, is_refusing = self.snapshots[at % len(self.snapshots)]
        seen = Seen(state, self.granted, is_refusing)
        expected = answered(lambda: seen.scan(asked, limit=limit, reverse=reverse))
        options: dict[str, Any] = {"limit": limit, "reverse": reverse}
        scanned = answered(lambda: [(entry.key, told(entry)) for entry in snapshot.scan(asked, **options)])
        assert scanned == expected
        pairs = answered(lambda: list(snapshot.pairs(asked, **options)))
        assert pairs == answered(lambda: [(key, value) for key, (value, _) in as_list(expected)])
        listed = answered(lambda: list(snapshot.keys(asked, **options)))
        bare = answered(lambda: [(e.key, e.value) for e in snapshot.scan(asked, keys_only=True, **options)])
        assert listed == answered(lambda: [key for key, _ in as_list(expected)])
        assert bare == answered(lambda: [(key, b"") for key, _ in as_list(expected)])
        assert answered(lambda: snapshot.count(asked)) == answered(lambda: len(seen.scan(asked)))

    # ---- writes ----------------------------------------------------------------------------------------------------------

    @rule(outside=engines, data=st.data(), wanted=st.lists(mutations, max_size=3))
    def a_commit(self, outside: Outside, data: st.DataObject, wanted: list[Mutation]) -> None:
        guards = [self.a_guard(data) for _ in range(data.draw(st.integers(0, 2)))]
        commit = Commit(tuple(guards), tuple(wanted))
        seen = self.seen(outside)
        may = all(seen.may_write(where) if writes else seen.may_read(where) for where, writes in touched_by(commit))
        failing = self.model.failing(guards)
        refused: KeyplanError | None = None
        revision = 0
        try:
            revision = self.callers[outside].commit(commit)
        except KeyplanError as error:
            refused = error
        if not may:
            assert isinstance(refused, AccessDeniedError)
        elif writes_twice(wanted):
            assert isinstance(refused, InvalidInputError)
        elif failing:
            assert isinstance(refused, CommitConflictError)
            assert [failure.guard for failure in failures_of(refused)] == failing
        else:
            assert refused is None
            self.model.apply(wanted, revision)
        # Why: what the engine inside has said may name the fences.
        assert refused is None or refused.__context__ is None

    def a_guard(self, data: st.DataObject) -> Guard:
        key, key_range = data.draw(keys), data.draw(ranges)
        is_right = data.draw(st.booleans())
        stored = tuple(sorted(key for key in self.model.state if key in key_range))
        guards: list[Guard] = [
            KeyAbsent(key),
            KeyUnchanged(key, self.model.state.get(key, (b"", 1))[1] + (not is_right)),
            RangeEmpty(key_range),
            RangeUnchanged(key_range, self.model.revision if is_right else 0, stored),
        ]
        return data.draw(st.sampled_from(guards))

    @rule(outside=engines, data=st.data(), wanted=st.sets(keys, min_size=1, max_size=4), overwrite=st.booleans())
    def many_sorted_keys(self, outside: Outside, data: st.DataObject, wanted: set[bytes], *, overwrite: bool) -> None:
        ascending = sorted(wanted)
        guard = self.a_guard(data)
        seen = self.seen(outside)
        absent = [key for key in ascending if key not in self.model.state]
        # Why as the caller sees them: what is there and hidden is written, and refused, like what is not there.
        hidden = [key for key in ascending if not allows(self.granted, self.model.state, key)]
        writes = ascending if overwrite else sorted({*absent, *hidden})
        where = guard.key if isinstance(guard, KeyAbsent | KeyUnchanged) else guard.range
        may = seen.may_read(where) and all(map(seen.may_write, writes)) and not (hidden and seen.is_refusing)
        try:
            new = self.callers[outside].put_sorted(ascending, None, guards=[guard], overwrite=overwrite)
        except AccessDeniedError:
            assert not may
        except CommitConflictError:
            assert may
            assert self.model.failing([guard])
        else:
            assert may
            assert new == len(absent)
            self.model.apply([Put(key, b"") for key in writes], self.revision())

    @rule(outside=engines, wanted=st.sets(keys, min_size=1, max_size=4))
    def a_load(self, outside: Outside, wanted: set[bytes]) -> None:
        ascending = sorted(wanted)
        may = all(map(self.seen(outside).may_write, ascending))
        try:
            loaded = self.callers[outside].load((key, b"loaded") for key in ascending)
        except AccessDeniedError:
            assert not may
        except CommitConflictError:
            assert may
            assert any(key in self.model.state for key in ascending)
        else:
            assert may
            assert loaded == len(ascending)
            self.model.apply([Put(key, b"loaded") for key in ascending], self.revision())

    def revision(self) -> int:
        with self.inner.snapshot() as snapshot:
            return snapshot.revision

    # ---- watches ---------------------------------------------------------------------------------------------------------

    @rule(outside=engines, asked=ranges, back=st.integers(0, 4))
    def a_watch_begins(self, outside: Outside, asked: KeyRange, back: int) -> None:
        if len(self.watches) == 3:
            self.watches.pop(0).watch.close()
        seen = self.seen(outside)
        probes = {probe for probe in PROBES if probe in asked}
        parts = {probe for probe in probes if seen.may_read(probe)}
        may = parts == probes if seen.is_refusing else bool(parts) or not probes
        after = max(self.model.revision - back, 0)
        try:
            watch = self.callers[outside].watch(asked, after=after)
        except AccessDeniedError:
            assert not may
        else:
            assert may
            self.watches.append(Watching(watch, asked, parts, after))

    @precondition(lambda self: self.watches)
    @rule(at=st.integers(0, 2))
    def a_watch_is_polled(self, at: int) -> None:
        watching = self.watches[at % len(self.watches)]
        pending = [change for change in self.model.log if change[0] > watching.after and change[1] in watching.parts]
        state = self.model.state
        if watching.ended is None and not all(allows(self.granted, state, probe) for probe in watching.parts):
            watching.ended = AccessDeniedError
        elif watching.ended is None and any(revision <= self.held_since(key) for revision, key, _ in pending):
            watching.ended = HistoryCompactedError
        ended: KeyplanError | None = None
        events: Sequence[Event] = ()
        try:
            events = watching.watch.poll(0)
        except (AccessDeniedError, HistoryCompactedError) as error:
            ended = error
        assert (ended and type(ended)) is watching.ended
        if ended is None:
            found = [(event.revision, event.key, event.entry and event.entry.value) for event in events]
            assert found == pending
            watching.after = self.model.revision
            assert watching.watch.revision == self.model.revision

    def held_since(self, key: bytes) -> int:
        """Return the revision of the oldest fence that lets a key be read; one before all others without a fence."""
        since = [
            -1 if area.fence is None else self.model.state[area.fence[0]][1]
            for area in self.granted
            if allows([area], self.model.state, key)
        ]
        return min(since)

    @invariant()
    def nothing_else_was_changed(self) -> None:
        if hasattr(self, "inner"):
            with self.inner.snapshot() as snapshot:
                found = {entry.key: (entry.value, entry.mod_revision) for entry in snapshot.scan(ALL_KEYS)}
            assert found == self.model.state


def value_of(found: tuple[bytes, int] | None) -> bytes | None:
    return None if found is None else found[0]


def told(entry: Any) -> tuple[bytes, int] | None:
    return None if entry is None else (entry.value, entry.mod_revision)


def as_list(found: Any) -> list[Any]:
    if found == DENIED:
        raise RefusedError
    return list(found)


class OnMemory(ConfinedMachine):
    def make(self, closing: ExitStack) -> Engine:
        return MemoryEngine()


class OnLmdb(ConfinedMachine):
    def make(self, closing: ExitStack) -> Engine:
        return open_engine(f"lmdb:{closing.enter_context(TemporaryDirectory())}/store?durability=none")


OnMemory.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
OnLmdb.TestCase.settings = settings(max_examples=12, stateful_step_count=30)
TestOnMemory = OnMemory.TestCase
TestOnLmdb = OnLmdb.TestCase
