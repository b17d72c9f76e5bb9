"""Engines around an engine: what each adds, and that it passes on the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from keyplan.engine import (
    ALL_KEYS,
    MEMORY_PROFILE,
    Call,
    Commit,
    DelayedEngine,
    Delete,
    DeleteRange,
    Engine,
    Fences,
    KeyAbsent,
    KeyRange,
    MemoryEngine,
    PrefixedEngine,
    Put,
    RangeEmpty,
    ReadOnlyEngine,
    RecordingEngine,
    Snapshot,
    WrappedEngine,
)
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineLimitError,
    EngineUnavailableError,
    KeyplanError,
    UnsupportedByEngineError,
)
from keyplan.testing.contract import controls
from keyplan.testing.faults import FailingEngine

PUT_A = Commit((), (Put(b"a", b"1"),))


def keys(engine: Engine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(ALL_KEYS)]


def work(engine: Engine) -> None:
    """A little of everything."""
    with engine.snapshot() as snapshot:
        snapshot.get(b"a")
        list(snapshot.scan(ALL_KEYS))
        snapshot.count(ALL_KEYS)
    engine.commit(PUT_A)
    engine.load([(b"b", b"2")])
    engine.lease(60)
    engine.compact(1)


def test_deleting_everything_under_a_prefix_leaves_the_neighbours() -> None:
    inner = MemoryEngine()
    inner.load([(key, b"") for key in (b"p", b"p\xfe\xff", b"p\xff", b"p\xff\x00", b"p\xff\xff", b"q")])
    PrefixedEngine(inner, b"p\xff").commit(Commit((), (DeleteRange(ALL_KEYS),)))
    assert keys(inner) == [b"p", b"p\xfe\xff", b"q"]


def test_a_prefix_without_a_successor_has_no_upper_end() -> None:
    inner = MemoryEngine()
    inner.load([(key, b"") for key in (b"\xfe", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff")])
    assert keys(PrefixedEngine(inner, b"\xff\xff")) == [b"", b"\xff\xff"]


def test_a_conflict_under_a_prefix_names_the_guards_that_were_given() -> None:
    engine = PrefixedEngine(MemoryEngine(), b"prefix/")
    engine.commit(PUT_A)
    guards = (KeyAbsent(b"x"), KeyAbsent(b"a"), RangeEmpty(KeyRange.of_prefix(b"a")))
    with pytest.raises(CommitConflictError) as caught:
        engine.commit(Commit(guards, ()))
    failed = caught.value.facts["failed"]
    assert isinstance(failed, tuple)
    assert [(failure.guard, failure.key, failure.actual_revision) for failure in failed] == [
        (guards[1], b"a", 1),
        (guards[2], b"a", 1),
    ]


def test_a_prefix_takes_its_length_from_the_limit_of_keys() -> None:
    inner = MemoryEngine(profile=replace(MEMORY_PROFILE, key_bytes_max=10))
    engine = PrefixedEngine(inner, b"1234")
    assert engine.profile.key_bytes_max == 6
    with pytest.raises(KeyplanError, match="actual=7"):
        engine.commit(Commit((), (Put(b"7" * 7, b""),)))
    engine.commit(Commit((), (Put(b"6" * 6, b""),)))
    assert keys(inner) == [b"1234666666"]


@pytest.mark.parametrize("operations_max", [None, 6])
def test_a_commit_that_fills_what_a_prefix_leaves_fits_into_the_engine_inside(operations_max: int | None) -> None:
    inner = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=operations_max, commit_bytes_max=10_000))
    engine = PrefixedEngine(inner, b"prefix")
    most, room = engine.profile.commit_operations_max, engine.profile.commit_bytes_max
    assert most is not None
    assert room is not None
    assert room > 9_000
    # Two keys of three and four bytes in each, which are the most that an operation has.
    ranges = [KeyRange(b"%03d" % number, b"%03d~" % number) for number in range(most)]
    put = Put(b"z", b"v" * (room - 7 * most - 7 * (most - 1) - 1))
    commit = Commit(tuple(map(RangeEmpty, ranges)), (*map(DeleteRange, ranges[1:]), put))
    assert engine.commit(commit) == 1
    with pytest.raises(EngineLimitError) as caught:
        engine.commit(Commit(commit.guards, (*commit.mutations[:-1], Put(b"z", put.value + b"v"))))
    assert (caught.value.limit, caught.value.allowed, caught.value.actual) == ("commit_bytes_max", room, room + 1)


def test_many_sorted_keys_below_a_prefix_fit_into_the_commits_of_the_engine_inside() -> None:
    inner = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_bytes_max=10_000))
    share = PrefixedEngine(inner, b"a long prefix/")
    keys_given = [b"%05d" % number for number in range(1_000)]
    assert Engine.put_sorted(share, keys_given, [b"value" * 10] * 1_000) == 1_000
    assert [key[len(b"a long prefix/") :] for key in keys(inner)] == keys_given


@pytest.mark.parametrize("closes_inner", [True, False])
def test_a_wrapper_closes_the_engine_inside_unless_told_otherwise(*, closes_inner: bool) -> None:
    inner = MemoryEngine()
    WrappedEngine(inner, closes_inner=closes_inner).close()
    assert inner.is_closed is closes_inner


def test_a_read_only_engine_reads_and_watches_and_writes_nothing() -> None:
    inner = MemoryEngine()
    inner.commit(PUT_A)
    engine = ReadOnlyEngine(inner)
    assert keys(engine) == [b"a"]
    assert [event.key for event in engine.watch(ALL_KEYS, after=0).poll(5)] == [b"a"]
    for write in (
        lambda: engine.commit(Commit((), (Delete(b"a"),))),
        lambda: engine.load([(b"b", b"")]),
        lambda: engine.lease(60),
        lambda: engine.compact(1),
    ):
        with pytest.raises(UnsupportedByEngineError, match="open for reading only"):
            write()
    assert keys(inner) == [b"a"]
    lease = inner.lease(60)
    seen = engine.lease(1, resume=lease.id)
    assert (seen.id, seen.ttl_seconds) == (lease.id, 60)
    assert 50 < seen.seconds_left() <= 60
    for act in (seen.keep_alive, seen.revoke):
        with pytest.raises(UnsupportedByEngineError, match="open for reading only"):
            act()


def test_a_delayed_engine_waits_before_each_call() -> None:
    waits: list[str] = []
    engine = DelayedEngine(MemoryEngine(), waits.append)
    work(engine)
    engine.watch(ALL_KEYS, after=1)
    assert waits == ["snapshot", "get", "scan", "count", "commit", "load", "lease", "compact", "watch"]


def test_a_recording_engine_writes_the_conversation_down() -> None:
    engine = RecordingEngine(MemoryEngine())
    work(engine)
    refused = Commit((KeyAbsent(b"a"),), ())
    with pytest.raises(CommitConflictError):
        engine.commit(refused)
    with engine.snapshot() as snapshot:
        scan = snapshot.scan(ALL_KEYS)
        first = next(scan)
    assert engine.calls[:8] == [
        Call("snapshot", (), 0),
        Call("get", (b"a",), None),
        Call("scan", (ALL_KEYS, None, False, False), []),
        Call("count", (ALL_KEYS,), 0),
        Call("commit", (PUT_A,), 1),
        Call("load", (((b"b", b"2"),),), 1),
        Call("lease", (60, 0), 1),
        Call("compact", (1,), None),
    ]
    assert engine.calls[8].arguments == (refused,)
    assert isinstance(engine.calls[8].error, CommitConflictError)
    assert engine.calls[-1] == Call("scan", (ALL_KEYS, None, False, False), [first])


class Held:
    """Has one fence."""

    fences: Fences = ((b"f", b"1"),)


EVERY_CALL: Final[dict[str, Callable[[Engine], object]]] = {
    "lineage": lambda engine: engine.lineage(),
    "value": lambda engine: engine.value(b"a"),
    "fenced_value": lambda engine: engine.fenced_value(b"a", ((b"f", b"1"),)),
    "fenced_reader": lambda engine: engine.fenced_reader(b"", Held(), lambda key: key)(b"a"),
    "commit": lambda engine: engine.commit(PUT_A),
    "put_sorted": lambda engine: engine.put_sorted([b"p%03d" % number for number in range(200)]),
    "load": lambda engine: engine.load([(b"l1", b""), (b"l2", b"")]),
    "compact": lambda engine: engine.compact(0),
    "get": lambda engine: engine.snapshot().get(b"a"),
    "get_many": lambda engine: engine.snapshot().get_many([b"a"]),
    "snapshot's value": lambda engine: engine.snapshot().value(b"a"),
    "values": lambda engine: engine.snapshot().values([b"a"]),
    "scan": lambda engine: list(engine.snapshot().scan(ALL_KEYS)),
    "keys": lambda engine: list(engine.snapshot().keys(ALL_KEYS)),
    "pairs": lambda engine: list(engine.snapshot().pairs(ALL_KEYS)),
    "count": lambda engine: engine.snapshot().count(ALL_KEYS),
    "holds": lambda engine: engine.snapshot().holds(((b"f", b"1"),)),
    "poll": lambda engine: engine.watch(ALL_KEYS, after=0).poll(0),
    "keep_alive": lambda engine: engine.lease(60).keep_alive(),
    "seconds_left": lambda engine: engine.lease(60).seconds_left(),
    "revoke": lambda engine: engine.lease(60).revoke(),
}


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL.keys())
def test_a_failing_engine_stops_every_call_at_each_of_its_steps(call: Callable[[Engine], object]) -> None:
    profile = replace(MEMORY_PROFILE, commit_operations_max=128)
    counted = FailingEngine(MemoryEngine(profile=profile))
    call(counted)
    assert counted.steps
    for number, name in enumerate(counted.steps, start=1):
        engine = FailingEngine(MemoryEngine(profile=profile), at_step=number)
        with pytest.raises(CommitOutcomeUnknownError if name.startswith("after") else EngineUnavailableError):
            call(engine)
        assert engine.steps == counted.steps[:number]
        written = len(keys(engine.inner))
        whole = len(keys(counted.inner))
        expected = {"after": whole, "within": whole // 2}.get(name.partition(" ")[0], 0)
        assert written == expected, name


def test_a_call_that_the_engine_inside_does_faster_is_its_own() -> None:
    asked: list[str] = []

    class Fast(MemoryEngine):
        def value(self, key: bytes) -> bytes | None:
            asked.append("value")
            return super().value(key)

        def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
            asked.append("fenced_value")
            return super().fenced_value(key, fences)

        def put_sorted(self, keys: Sequence[bytes], values: Sequence[bytes] | None = None, **options: Any) -> int:
            asked.append("put_sorted")
            return super().put_sorted(keys, values, **options)

    engine = FailingEngine(Fast())
    engine.value(b"a")
    engine.fenced_value(b"a", ((b"f", b"1"),))
    engine.put_sorted([b"a"])
    assert [name for name in asked if name != "value" or asked.index(name) == 0] == [
        "value",
        "fenced_value",
        "put_sorted",
    ]


def test_an_engine_that_leaves_a_method_of_the_contract_out_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Half does not control .*put_sorted"):

        @controls(Engine)
        class Half(WrappedEngine):
            def snapshot(self) -> Snapshot:
                return self.inner.snapshot()
