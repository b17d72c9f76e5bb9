"""A job: the record by which one process holds it, guarded commits, what is left to whoever goes on; batches and pace."""

import os
import subprocess
import sys
from collections.abc import Sequence
from threading import Event

import msgspec
import pytest
from msgspec import structs

from keyplan.engine import (
    Commit,
    Engine,
    Entry,
    KeyAbsent,
    KeyUnchanged,
    MemoryEngine,
    Put,
    SystemPause,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptionError,
    InvalidArgumentError,
    StoppedError,
    TargetTakenError,
)
from keyplan.jobs import (
    CommitRoom,
    Holder,
    Job,
    JobRecord,
    Lookup,
    Pace,
    StopCheck,
    begun,
    cut,
    halved,
    joined,
    look,
    this_process,
)
from keyplan.layout import Layout, Only, Table
from keyplan.testing.faults import FakeClock


class Work(JobRecord, frozen=True, kw_only=True):
    """A job of these tests."""

    cursor: int = 0


class Works(Layout, root=b"w/"):
    """Where it stands."""

    work = Table(b"job", key=Only, value=Work)


FORM = Works.bound().tables["work"].form
KEY = b"w/job"


def taken(problem: str) -> TargetTakenError:
    return TargetTakenError(prefix=b"", problem=problem)


def begin(engine: Engine, clock: FakeClock | None = None) -> Job[Work]:
    with engine.snapshot() as snapshot:
        seen = look(snapshot, KEY, FORM)
    own = clock if clock is not None else FakeClock()
    record = begun(seen.record or Work(), command=("go", "on"), clock=own)
    return Job.begin(engine, seen, record, FORM, lost=taken, clock=own)


def stored(engine: Engine) -> Work | None:
    value = engine.value(KEY)
    return None if value is None else FORM.decode(value)


def test_a_cursor_moves_in_the_commit_of_the_work_that_it_tells_of() -> None:
    engine = MemoryEngine()
    job = begin(engine)
    job.commit([Put(b"a", b"1")], record=structs.replace(job.record, cursor=1))
    assert engine.value(b"a") == b"1"
    found = stored(engine)
    assert found is not None
    assert (found.cursor, found.command, found.holder) == (1, ("go", "on"), this_process())
    job.end()
    assert stored(engine) is None


def test_who_takes_a_job_over_ends_the_earlier_holder_and_keeps_when_it_was_begun() -> None:
    engine = MemoryEngine()
    first = begin(engine)
    clock = FakeClock()
    clock.advance(1_000)
    second = begin(engine, clock)
    with pytest.raises(TargetTakenError):
        first.commit([Put(b"a", b"1")])
    with pytest.raises(TargetTakenError):
        first.end()
    assert engine.value(b"a") is None
    assert second.record.begun_at == first.record.begun_at
    assert second.record.touched_at > first.record.touched_at
    assert second.record.run != first.record.run
    second.commit([Put(b"a", b"2")])


def test_a_guard_that_does_not_hold_is_the_callers_and_the_job_goes_on() -> None:
    engine = MemoryEngine()
    engine.commit(Commit((), (Put(b"a", b"0"),)))
    job = begin(engine)
    with pytest.raises(CommitConflictError):
        job.commit([Put(b"a", b"1")], guards=[KeyAbsent(b"a")])
    job.commit([Put(b"b", b"1")], guards=[KeyAbsent(b"b")])


def test_a_record_that_cannot_be_read_says_where_it_stands() -> None:
    engine = MemoryEngine()
    engine.commit(Commit((), (Put(KEY, b"{brok"),)))
    with pytest.raises(CorruptionError) as raised, engine.snapshot() as snapshot:
        look(snapshot, KEY, FORM)
    assert raised.value.facts["raw_key"] == KEY.hex()


class Lossy(WrappedEngine):
    """The answers of commits from now on are lost: those were made, or were not."""

    is_made = True
    losing = 0

    def commit(self, commit: Commit) -> int:
        if not self.losing:
            return self.inner.commit(commit)
        self.losing -= 1
        if self.is_made:
            self.inner.commit(commit)
        raise CommitOutcomeUnknownError(engine="memory", mutations=len(commit.mutations))


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("with_cursor", [True, False])
def test_a_commit_whose_answer_was_lost_is_made_once(*, is_made: bool, with_cursor: bool) -> None:
    engine = Lossy(MemoryEngine())
    job = begin(engine)
    engine.is_made, engine.losing = is_made, 1
    record = structs.replace(job.record, cursor=7) if with_cursor else None
    job.commit([Put(b"a", b"1")], guards=[KeyAbsent(b"a")], record=record)
    with engine.snapshot() as snapshot:
        entry = snapshot.get(b"a")
    assert entry is not None
    assert (entry.value, entry.version) == (b"1", 1)
    assert job.record.cursor == (7 if with_cursor else 0)
    job.end()
    assert stored(engine) is None


@pytest.mark.parametrize("is_made", [True, False])
def test_a_record_that_is_written_again_as_it_stands_is_no_sign_of_its_commit(*, is_made: bool) -> None:
    engine = Lossy(MemoryEngine())
    job = begin(engine)
    engine.commit(Commit((), (Put(b"a", b"somebody's"),)))
    with pytest.raises(CommitConflictError):
        job.commit([Put(b"a", b"1")], guards=[KeyAbsent(b"a")], record=job.record)
    assert engine.value(b"a") == b"somebody's"
    engine.is_made, engine.losing = is_made, 1
    job.commit([Put(b"b", b"1")], guards=[KeyAbsent(b"b")], record=job.record)
    assert engine.value(b"b") == b"1"
    job.end()
    assert stored(engine) is None


@pytest.mark.parametrize("is_made", [True, False])
def test_work_that_has_not_begun_leaves_the_record_of_the_work_before_it(*, is_made: bool) -> None:
    engine = Lossy(MemoryEngine())
    before = begin(engine).record
    job = begin(engine)
    engine.is_made, engine.losing = is_made, 1
    job.end(leaving=before)
    assert stored(engine) == before


def test_a_job_tells_how_far_it_is_with_one_of_its_commits_every_few_seconds() -> None:
    engine, clock = MemoryEngine(), FakeClock()
    job = begin(engine, clock)
    for number in range(4):
        job.tell("writing", number)
        job.commit([Put(b"%d" % number, b"")])
        found = stored(engine)
        assert found is not None
        assert (found.stage, found.done) == (("", 0) if number < 3 else ("writing", 3))
        clock.advance(2)
    job.commit([Put(b"x", b"")])  # the record was written anew, and still holds the job


# ---- who holds it --------------------------------------------------------------------------------------------------------


def test_a_process_is_known_to_be_there_or_gone_on_its_own_machine_alone() -> None:
    own = this_process()
    assert own.process == os.getpid()
    assert own.is_alive is True
    assert structs.replace(own, started=own.started + 1).is_alive is False
    assert structs.replace(own, place="elsewhere").is_alive is None
    assert Holder("host", 1).is_alive is None
    code = "from keyplan.jobs import this_process; import msgspec; print(msgspec.json.encode(this_process()).decode())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert msgspec.json.decode(ended.stdout, type=Holder).is_alive is False


def test_a_command_that_is_too_long_is_not_kept_and_the_earlier_stays() -> None:
    record = begun(Work(), command=("go",))
    assert begun(record, command=("x" * 3_000,)).command == ("go",)
    assert begun(record).command == ("go",)
    # Why: the name of a file may be of bytes that are no text.
    assert begun(record, command=("restore", "b\udcff.kpb")).command == ("go",)


# ---- batches and pace ----------------------------------------------------------------------------------------------------


def test_commits_are_joined_within_the_room_and_never_two_that_write_one_key() -> None:
    shared = KeyUnchanged(b"s", 1)
    commits = [Commit((shared,), (Put(b"%d" % number, b"v"),), "e") for number in range(5)]
    commits.append(Commit((shared,), (Put(b"4", b"w"),), "e"))
    found = list(joined(commits, CommitRoom(4, 1_000)))
    assert [places for places, _ in found] == [[0, 1, 2, 3], [4], [5]]
    assert all(commit.guards == (shared,) and commit.epoch == "e" for _, commit in found)
    assert [places for places, _ in joined(commits[:5], CommitRoom(100, 7))] == [[0, 1, 2], [3, 4]]
    guarded = [Commit((KeyUnchanged(b"a%d" % n, 1), shared), (Put(b"a%d" % n, b""),), "e") for n in range(4)]
    assert [places for places, _ in joined(guarded, CommitRoom(4, 1_000))] == [[0, 1, 2], [3]]
    assert [len(batch) for batch in cut([Put(b"k", b"v")] * 5, CommitRoom(4, 100), guards_each=1)] == [4, 1]
    assert [len(batch) for batch in cut([Put(b"k", b"v")] * 5, CommitRoom(4, 100, 4), guards_each=1)] == [2, 2, 1]
    assert [places for places, _ in joined(guarded, CommitRoom(4, 1_000, 5))] == [[0, 1], [2, 3]]
    assert (CommitRoom(128, 1).guarded, CommitRoom(512, 1).guarded) == (128, 256)


@pytest.mark.parametrize("is_near", [True, False])
def test_what_answers_ask_for_is_read_together_unless_the_engine_is_near(*, is_near: bool) -> None:
    """Each number leads to the next, up to ten; answers that ask for the same key read it once."""
    engine = MemoryEngine()
    engine.commit(Commit((), tuple(Put(b"%d" % number, b"%d" % (number + 1)) for number in range(10))))
    reads: list[list[bytes]] = []

    class Snapshot(WrappedSnapshot):
        def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
            reads.append(list(keys))
            return self.inner.get_many(keys)

    with engine.snapshot() as snapshot:
        read = Lookup(Snapshot(snapshot), is_near=is_near)

        def last(start: int) -> bytes:
            key = b"%d" % start
            while (entry := read.get(key)) is not None:
                key = entry.value
            return key

        assert read.each([7, 8, 7], last) == [b"10", b"10", b"10"]
        with pytest.raises(ZeroDivisionError):
            read.each([1, 0], lambda number: 1 // number)
        assert read.get(b"0") == snapshot.get(b"0")  # read at once, as before
    each_alone = [[b"7"], [b"8"], [b"9"], [b"10"]]
    assert reads == [*(each_alone if is_near else [[b"7", b"8"], [b"9"], [b"10"]]), [b"0"]]


def test_what_loses_a_race_is_halved_down_to_the_one_that_is_written_to() -> None:
    attempts: list[Sequence[int]] = []

    def attempt(items: Sequence[int]) -> list[int]:
        attempts.append(items)
        if 5 in items:
            raise CommitConflictError(failed=())
        return [item * 10 for item in items]

    assert halved(range(8), attempt, lambda item: -item) == [0, 10, 20, 30, -4, -5, 60, 70]
    assert [len(items) for items in attempts] == [8, 4, 4, 2, 2]


def test_a_pace_counts_the_time_that_the_work_itself_takes() -> None:
    clock = FakeClock()
    waits: list[float] = []
    pace = Pace(10, clock=clock, sleep=waits.append)
    clock.advance(0.5)
    pace.spend(10)
    pace.spend(10)
    clock.advance(3)
    pace.spend(10)
    assert waits == [0.5, 1.0]
    Pace(None, sleep=waits.append).spend(1_000)
    assert len(waits) == 2
    for wrong in (0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError):
            Pace(wrong)


def test_work_that_is_told_to_stop_writes_nothing_more_but_its_end() -> None:
    engine, stop = MemoryEngine(), Event()
    with engine.snapshot() as snapshot:
        seen = look(snapshot, KEY, FORM)
    job = Job.begin(engine, seen, begun(Work()), FORM, lost=taken, stops=StopCheck(stop, "the work"))
    job.commit([Put(b"a", b"1")])
    stop.set()
    with pytest.raises(StoppedError) as raised:
        job.commit([Put(b"b", b"1")])
    assert raised.value.facts["problem"] == "the work is not finished"
    assert engine.value(b"b") is None
    assert stored(engine) == job.record
    job.end()
    assert stored(engine) is None


def test_a_pause_ends_when_the_work_is_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            stop.set()

    monkeypatch.setattr(SystemPause, "wait", wait)
    Pace(1, clock=FakeClock()).spend(100, stop)
    assert waits == [0.5, 0.5, 0.5]
    waits.clear()
    Pace(1, clock=FakeClock()).spend(2)
    assert waits == [0.5, 0.5, 0.5, 0.5]
