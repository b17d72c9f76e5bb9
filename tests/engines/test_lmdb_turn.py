"""Whose turn it is to write: processes that stop, die, wait and fork."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Commit, Put, open_engine
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.engine.lmdb.turn import TURN_FILE, Holder, WriteTurn
from keyplan.errors import WriterBusyError
from keyplan.testing.engine_suite import eventually
from keyplan.testing.faults import FakeClock
from tests.processes import state_of

STOPS_WHILE_WRITING = """
import os, signal, sys
from keyplan.engine import *
engine = open_engine(sys.argv[1])
def work(target):
    target.commit(Commit((), (Put(b"half", b""),)))
    print("writing", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
if "shared" in sys.argv:
    print("open", flush=True)
    sys.stdin.readline()
engine._environment.write(work)
print("written", flush=True)
"""

COMMITS_ONCE = """
import sys
from keyplan.engine import *
with open_engine(sys.argv[1]) as engine:
    print("open", flush=True)
    sys.stdin.readline()
    try:
        engine.commit(Commit((), (Put(b"mine", b""),)))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("committed", flush=True)
"""

TAKES_A_TURN = """
import sys
from functools import partial
from pathlib import Path
from keyplan.engine.lmdb.turn import WriteTurn
turn = WriteTurn(Path(sys.argv[1]), seconds=60)
turn._is_resident = False  # several take turns here, and none is alone
print("ready", flush=True)
sys.stdin.readline()
turn.take()
print("has it", flush=True)
sys.stdin.readline()
turn.give_back()
sys.stdin.readline()
"""

FORKS_WITH_THE_TURN = """
import os, sys, time
from functools import partial
from pathlib import Path
from keyplan.engine.lmdb.turn import WriteTurn
turn = WriteTurn(Path(sys.argv[1]), seconds=60)
turn._is_resident = False
turn.take()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""


@contextmanager
def running(program: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_stopped_writer_is_named_after_the_time_limit_and_its_death_passes_the_turn_on(tmp_path: Path) -> None:
    with running(STOPS_WHILE_WRITING, f"lmdb:{tmp_path}", "shared") as writer:
        assert line(writer) == "open"
        with LmdbEngine(tmp_path, LmdbOptions(turn_seconds=0.2)) as engine:
            tell(writer)
            assert line(writer) == "writing"
            eventually(lambda: state_of(writer.pid) == "T")
            with pytest.raises(WriterBusyError, match=rf"process {writer.pid} has been writing since 20\d\d-"):
                engine.commit(Commit((), (Put(b"mine", b""),)))
            with engine.snapshot() as snapshot:
                assert snapshot.count(ALL_KEYS) == 0, "reading goes on"
            writer.kill()
            writer.wait()
            assert engine.commit(Commit((), (Put(b"mine", b""),))) == 1
            with engine.snapshot() as snapshot:
                assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"mine"]


def test_a_process_that_began_to_write_alone_is_waited_for_and_named_too(tmp_path: Path) -> None:
    with running(STOPS_WHILE_WRITING, f"lmdb:{tmp_path}") as writer:
        assert line(writer) == "writing"
        eventually(lambda: state_of(writer.pid) == "T")
        with pytest.raises(WriterBusyError, match=rf"process {writer.pid} has been writing since"):
            LmdbEngine(tmp_path, LmdbOptions(turn_seconds=0.2))
        with open_engine(f"lmdb:{tmp_path}?readonly=true") as reader, reader.snapshot() as snapshot:
            assert snapshot.count(ALL_KEYS) == 0, "a reader needs no turn"
        writer.send_signal(signal.SIGCONT)
        assert line(writer) == "written"
        with LmdbEngine(tmp_path) as engine:
            assert engine.commit(Commit((), (Put(b"mine", b""),))) == 2


def test_control_c_is_heard_while_another_process_writes(tmp_path: Path) -> None:
    with running(STOPS_WHILE_WRITING, f"lmdb:{tmp_path}", "shared") as writer:
        assert line(writer) == "open"
        with running(COMMITS_ONCE, f"lmdb:{tmp_path}") as waiting:
            assert line(waiting) == "open"
            tell(writer)
            assert line(writer) == "writing"
            tell(waiting)
            with another_process(tmp_path) as turn:
                eventually(lambda: Holder(waiting.pid, is_waiting=True, since=None) in turn.holders())
            waiting.send_signal(signal.SIGINT)
            assert line(waiting) == "interrupted"


@contextmanager
def another_process(folder: Path) -> Iterator[WriteTurn]:
    turn = WriteTurn(folder, seconds=1)
    try:
        yield turn
    finally:
        turn.close()


def _has_in_line(turn: WriteTurn, count: int) -> bool:
    return len(turn.holders()) == count


def test_who_came_first_is_served_first(tmp_path: Path) -> None:
    with (
        running(TAKES_A_TURN, tmp_path) as holder,
        running(TAKES_A_TURN, tmp_path) as second,
        running(TAKES_A_TURN, tmp_path) as third,
        running(TAKES_A_TURN, tmp_path) as fourth,
        another_process(tmp_path) as turn,
    ):
        for process in (holder, second, third, fourth):
            assert line(process) == "ready"
        tell(holder)
        assert line(holder) == "has it"
        for waits, process in enumerate((second, third, fourth), start=1):
            tell(process)
            eventually(partial(_has_in_line, turn, 1 + waits))
        assert [found.process for found in turn.holders()] == [one.pid for one in (holder, second, third, fourth)]
        assert [found.is_waiting for found in turn.holders()] == [False, True, True, True]
        third.kill()
        third.wait()
        tell(holder)
        assert line(second) == "has it", "it waited longer than the fourth"
        tell(second)
        assert line(fourth) == "has it", "who died while it waited keeps nobody"


def test_a_forked_child_does_not_hold_the_turn_of_its_parent(tmp_path: Path) -> None:
    with running(FORKS_WITH_THE_TURN, tmp_path) as parent:
        child = int(line(parent))
        with another_process(tmp_path) as turn:
            assert [found.process for found in turn.holders()] == [parent.pid]
            parent.kill()
            parent.wait()
            try:
                os.kill(child, 0)
                assert turn.holders() == [], "the child lives, and has no turn"
            finally:
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"x" * 5_000], ids=["empty", "all set", "long"])
def test_what_stands_in_the_file_of_the_turn_matters_to_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TURN_FILE).write_bytes(content)
    with LmdbEngine(tmp_path, LmdbOptions(turn_seconds=5)) as engine:
        for number in range(300):
            engine.commit(Commit((), (Put(b"%d" % number, b""),)))


def test_a_reader_needs_no_turn_and_makes_no_file_for_it(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        engine.commit(Commit((), (Put(b"a", b""),)))
    (tmp_path / TURN_FILE).unlink()
    with open_engine(f"lmdb:{tmp_path}?readonly=true") as engine, engine.snapshot() as snapshot:
        assert snapshot.count(ALL_KEYS) == 1
    assert not (tmp_path / TURN_FILE).exists()


def test_who_waited_for_the_turn_does_not_wait_once_more_for_the_resident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float | None] = []
    with closing(WriteTurn(tmp_path, seconds=60)) as turn:
        turn._is_resident = False
        monkeypatch.setattr(turn, "_is_taken", lambda: False)
        monkeypatch.setattr(turn, "_wait", began.append)
        monkeypatch.setattr(turn, "_await_resident", began.append)
        monkeypatch.setattr(turn, "_alone_since", lambda: 1.0)
        turn.take()
    assert len(began) == 2
    assert began[0] is not None
    assert began[0] == began[1]


def test_opening_a_store_has_one_time_limit_whatever_turns_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float | None] = []
    take = WriteTurn.take

    def noted(turn: WriteTurn, since: float | None = None) -> None:
        taken.append(since)
        take(turn, since)

    monkeypatch.setattr(WriteTurn, "take", noted)
    open_engine(f"lmdb:{tmp_path}/store").close()
    assert len(taken) == 2
    assert None not in taken
    assert len(set(taken)) == 1


def test_a_read_does_not_wait_the_whole_limit_to_end_leases_beside_a_stopped_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with LmdbEngine(tmp_path, LmdbOptions(clock=clock)) as engine:
        lease = engine.lease(10)
        engine.commit(Commit((), (Put(b"held", b"", lease.id),)))
        clock.advance(11)
        patience: list[float] = []

        def busy(since: float | None = None) -> None:
            assert since is not None
            patience.append(since + 60 - SYSTEM_CLOCK.monotonic())
            raise WriterBusyError(engine="lmdb", problem="it was stopped")

        assert engine._environment.turn is not None
        monkeypatch.setattr(engine._environment.turn, "take", busy)
        with engine.snapshot() as snapshot:
            assert snapshot.count(ALL_KEYS) == 1, "who cannot end it reads on"
        assert len(patience) == 1
        assert patience[0] <= 1.0
        monkeypatch.undo()
