"""LMDB and processes that die: acknowledged commits stay, half commits never show, leases end. And clocks that step."""

import subprocess
import sys
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, EventKind, Put, open_engine
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.errors import LeaseNotFoundError
from keyplan.testing.engine_suite import eventually
from keyplan.testing.faults import FakeClock

WRITER = """
import sys
from keyplan.engine import *
engine = open_engine(sys.argv[1])
number = 0
while True:
    number += 1
    engine.commit(Commit((), (Put(b"left", b"%d" % number), Put(b"right", b"%d" % number))))
    print(number, flush=True)
"""

HOLDER = """
import sys
from keyplan.engine import *
engine = open_engine(sys.argv[1])
lease = engine.lease(float(sys.argv[2]))
engine.commit(Commit((), (Put(b"member/1", b"", lease.id), Put(b"member/2", b"", lease.id))))
print(lease.id, flush=True)
sys.stdin.read()
"""

READER = """
import sys
from keyplan.engine import *
engine = open_engine(sys.argv[1])
snapshot = engine.snapshot()
snapshot.get(b"a")
print("reading", flush=True)
sys.stdin.read()
"""


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill(process: "subprocess.Popen[str]") -> list[str]:
    """Kill without a chance to clean up, and return what was printed and not read yet."""
    process.kill()
    assert process.stdout is not None
    # Trap: communicate() reads the pipe itself, and loses the lines that readline() has read ahead.
    rest = process.stdout.read()
    process.communicate()
    return rest.splitlines()


def keys(engine: Engine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(ALL_KEYS)]


def test_a_killed_writer_loses_no_acknowledged_commit_and_leaves_no_half_one(tmp_path: Path) -> None:
    acknowledged = 0
    with open_engine(f"lmdb:{tmp_path}") as engine:
        for _ in range(4):
            writer = start(WRITER, f"lmdb:{tmp_path}")
            assert writer.stdout is not None
            printed = [writer.stdout.readline() for _ in range(20)] + kill(writer)
            acknowledged = int(printed[-1])
            with engine.snapshot() as snapshot:
                left, right = snapshot.scan(ALL_KEYS)
                assert left.value == right.value
                assert left.mod_revision == right.mod_revision == snapshot.revision
                assert int(left.value) in (acknowledged, acknowledged + 1), "the last may have been committed unheard"
            engine.commit(Commit((), (Put(b"left", b"0"), Put(b"right", b"0"))))
    assert acknowledged >= 20


def test_the_lease_of_a_killed_holder_ends_all_the_same(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        holder = start(HOLDER, f"lmdb:{tmp_path}", "0.3")
        assert holder.stdout is not None
        lease = int(holder.stdout.readline())
        kill(holder)
        watch = engine.watch(ALL_KEYS, after=1)
        eventually(lambda: keys(engine) == [])
        assert [(event.kind, event.key, event.revision) for event in watch.poll(5)] == [
            (EventKind.DELETED, b"member/1", 2),
            (EventKind.DELETED, b"member/2", 2),
        ]
        with pytest.raises(LeaseNotFoundError):
            engine.lease(1, resume=lease)


def test_the_lease_of_a_dead_process_ends_when_the_store_is_opened_again(tmp_path: Path) -> None:
    holder = start(HOLDER, f"lmdb:{tmp_path}", "0.05")
    assert holder.stdout is not None
    holder.stdout.readline()
    kill(holder)
    with open_engine(f"lmdb:{tmp_path}") as engine:
        eventually(lambda: keys(engine) == [])


def test_a_lease_is_kept_alive_by_another_process_that_took_it_up(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        holder = start(HOLDER, f"lmdb:{tmp_path}", "600")
        assert holder.stdout is not None
        taken_up = engine.lease(1, resume=int(holder.stdout.readline()))
        kill(holder)
        assert taken_up.keep_alive() == 600
        assert keys(engine) == [b"member/1", b"member/2"]
        taken_up.revoke()
        assert keys(engine) == []


def test_a_killed_reader_does_not_hold_old_pages_after_the_next_opening(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}?durability=none") as engine:
        engine.commit(Commit((), (Put(b"a", b""),)))
        reader = start(READER, f"lmdb:{tmp_path}?durability=none")
        assert reader.stdout is not None
        reader.stdout.readline()
        kill(reader)
    with open_engine(f"lmdb:{tmp_path}?durability=none&history=5") as engine:
        for number in range(500):
            engine.commit(Commit((), (Put(b"a", b"%d" % number * 2_000),)))
        assert (tmp_path / "data.mdb").stat().st_size < 1 << 20


# ---- clocks that step -----------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def leased(tmp_path: Path, clock: FakeClock) -> Path:
    """A store with one entry on a lease of a hundred seconds, closed."""
    with LmdbEngine(tmp_path, LmdbOptions(clock=clock)) as engine:
        engine.commit(Commit((), (Put(b"member", b"", engine.lease(100).id),)))
    return tmp_path


@pytest.mark.parametrize("step_seconds", [-86_400, 86_400], ids=["back", "forward"])
def test_a_step_of_the_wall_clock_neither_ends_a_lease_nor_prolongs_it(
    leased: Path, clock: FakeClock, step_seconds: float
) -> None:
    clock.step_wall(step_seconds)
    with LmdbEngine(leased, LmdbOptions(clock=clock)) as engine:
        clock.advance(99)
        assert keys(engine) == [b"member"]
        clock.advance(2)
        assert keys(engine) == []


def test_after_a_restart_of_the_machine_a_lease_has_the_wall_time_it_had_left(leased: Path, clock: FakeClock) -> None:
    clock.restart_machine(off_seconds=60)
    with LmdbEngine(leased, LmdbOptions(clock=clock)) as engine:
        clock.advance(39)
        assert keys(engine) == [b"member"]
        clock.advance(2)
        assert keys(engine) == []


def test_a_lease_that_ran_out_while_the_machine_was_off_is_over(leased: Path, clock: FakeClock) -> None:
    clock.restart_machine(off_seconds=101)
    with LmdbEngine(leased, LmdbOptions(clock=clock)) as engine:
        assert keys(engine) == []


def test_a_wall_clock_set_back_over_a_restart_prolongs_a_lease_by_no_more_than_its_time(
    leased: Path, clock: FakeClock
) -> None:
    clock.restart_machine(off_seconds=-1_000_000)
    with LmdbEngine(leased, LmdbOptions(clock=clock)) as engine:
        clock.advance(99)
        assert keys(engine) == [b"member"]
        clock.advance(2)
        assert keys(engine) == []
