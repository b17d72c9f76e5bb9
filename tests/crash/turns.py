"""Writers that compete for one store, killed again and again: `python -m tests.crash.turns [KILLS] [SEED]`.

Three to six processes commit to a new store as fast as they can; one of them is killed, at random or in a chosen window, and
started again. After each kill every other one must go on, and what the killed one was told of must be there, whole. Rounds
differ in how many write and whether they flush. Exit code 1: something did not hold.
"""

import mmap
import os
import random
import signal
import struct
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from keyplan.engine import Commit, Put, open_engine
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.engine.lmdb.options import Durability
from keyplan.engine.lmdb.turn import WriteTurn
from keyplan.errors import KeyplanError, StoreMissingError
from tests.processes import waits_in

__all__ = ["Outcome", "compete"]

STUCK_SECONDS: Final = 40.0
"""Why: eight writers on a busy machine with a slow disk take a second for a turn at worst."""
_KILLS_A_ROUND: Final = 250
_KEYS: Final = 5
_WRITERS_MAX: Final = 6
_COUNT: Final = struct.Struct("<Q")


class Window(IntEnum):
    """Where a writer is, as it says itself."""

    STARTING = 0
    WAITING = 1
    """For the turn, or about to take it."""
    HAS_TURN = 2
    WRITING = 3
    """In LMDB's transaction."""
    WRITTEN = 4
    """Committed, and not yet told."""


class Board:
    """What writers say of themselves, in memory that they share with the process that kills them.

    Why whole numbers of the machine: each is written in one step. `struct` writes zeros first, and who is killed then says 0.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, _WRITERS_MAX * 16)).cast("Q")

    def count(self, writer: int) -> int:
        """Return the last count whose commit the writer was told of."""
        return self._numbers[2 * writer]

    def tell(self, writer: int, count: int) -> None:
        self._numbers[2 * writer] = count

    def window(self, writer: int) -> int:
        return self._numbers[2 * writer + 1]

    def enter(self, writer: int, window: Window) -> None:
        self._numbers[2 * writer + 1] = window


def write_for_ever(folder: Path, writer: int, board: Board, durability: Durability) -> None:
    """Commit counts that go up by one, and say where this process is."""
    take = WriteTurn.take

    def told(turn: WriteTurn, since: float | None = None) -> None:
        board.enter(writer, Window.WAITING)
        take(turn, since)
        board.enter(writer, Window.HAS_TURN)

    WriteTurn.take = told  # type: ignore[assignment, method-assign]  # this process alone is watched
    engine = LmdbEngine(folder, LmdbOptions(durability=durability))
    environment = engine._environment
    count, killer = _stored(engine, writer), os.getppid()
    while os.getppid() == killer:  # else it was ended itself
        count += 1
        commit = Commit((), tuple(Put(b"%d/%d" % (writer, at), _COUNT.pack(count) * 12) for at in range(_KEYS)))

        def work(target: "object", commit: Commit = commit) -> int:
            board.enter(writer, Window.WRITING)
            return target.commit(commit)  # type: ignore[attr-defined, no-any-return]

        environment.write(work)
        board.enter(writer, Window.WRITTEN)
        board.tell(writer, count)


def _stored(engine: LmdbEngine, writer: int) -> int:
    """Return the count that is stored of a writer. Every one of its keys holds it."""
    with engine.snapshot() as snapshot:
        counts = {snapshot.value(b"%d/%d" % (writer, at)) for at in range(_KEYS)}
    (value,) = counts
    return 0 if value is None else int(_COUNT.unpack_from(value)[0])


@dataclass
class Outcome:
    """What a run showed."""

    kills: int = 0
    commits: int = 0
    problem: str = ""
    longest_seconds: float = 0.0
    """The longest time for which a writer did not go on after a kill."""


class Round:
    """One store, its writers, and who kills them."""

    def __init__(self, folder: Path, chance: random.Random, outcome: Outcome) -> None:
        self._folder = folder
        self._chance = chance
        self._outcome = outcome
        self._board = Board()
        self._writers = chance.randint(3, _WRITERS_MAX)
        self._durability = chance.choice([Durability.FULL, Durability.NONE])
        self._processes: list[int] = []

    def run(self, kills: int) -> None:
        self._processes = [self._start(writer) for writer in range(self._writers)]
        try:
            for _ in range(kills):
                victim = self._chance.randrange(self._writers)
                self._await_window(victim)
                end(self._processes[victim])
                self._outcome.kills += 1
                self._check(victim)
                self._await_all_but(victim)
                if self._outcome.problem:
                    return
                self._processes[victim] = self._start(victim)
        finally:
            for process in self._processes:
                end(process)
            self._outcome.commits += sum(self._board.count(writer) for writer in range(self._writers))

    def _start(self, writer: int) -> int:
        self._board.enter(writer, Window.STARTING)
        process = os.fork()
        if process == 0:
            try:
                write_for_ever(self._folder, writer, self._board, self._durability)
            except KeyplanError as error:
                os.write(2, f"writer {writer}: {error}\n".encode())
            finally:
                os._exit(1)
        return process

    def _await_window(self, victim: int) -> None:
        """Return at a random moment, or when the victim is where it is to be killed."""
        if self._chance.random() < 0.4:
            sleep(self._chance.uniform(0, 0.012))  # Why: the moment is left to chance.
            return
        wanted = self._chance.choice(list(Window))
        give_up_at = monotonic() + 0.05
        while self._board.window(victim) != wanted and monotonic() < give_up_at:
            sleep(0)  # Why: what another process says in shared memory, nobody can be woken by.

    def _check(self, victim: int) -> None:
        try:
            with open_engine(f"lmdb:{self._folder}?readonly=true") as engine:
                assert isinstance(engine, LmdbEngine)
                stored = _stored(engine, victim)
        except StoreMissingError:
            stored = 0
        told = self._board.count(victim)
        if stored not in (told, told + 1):
            self._outcome.problem = f"writer {victim} was told of {told}, and {stored} is stored"
        self._board.tell(victim, stored)

    def _await_all_but(self, victim: int) -> None:
        before = [self._board.count(writer) for writer in range(self._writers)]
        began = monotonic()
        for writer in range(self._writers):
            while writer != victim and self._board.count(writer) == before[writer]:
                if monotonic() - began > STUCK_SECONDS:
                    process = self._processes[writer]
                    window = Window(self._board.window(writer)).name
                    self._outcome.problem = f"writer {writer} did not go on: {window}, in {waits_in(process)}"
                    return
                sleep(0.0005)  # Why: as above.
        self._outcome.longest_seconds = max(self._outcome.longest_seconds, monotonic() - began)


def end(process: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def compete(kills: int, seed: int) -> Outcome:
    """Kill so many writers, each round on a new store. Ends with the first thing that does not hold."""
    chance = random.Random(seed)
    outcome = Outcome()
    while outcome.kills < kills and not outcome.problem:
        with tempfile.TemporaryDirectory() as folder:
            Round(Path(folder) / "store", chance, outcome).run(min(_KILLS_A_ROUND, kills - outcome.kills))
        print(outcome, flush=True)
    return outcome


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    found = compete(*(given + [10_000, 1][len(given) :]))
    sys.exit(1 if found.problem else 0)
