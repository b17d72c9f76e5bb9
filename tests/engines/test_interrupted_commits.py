"""An exception that comes into a committing thread between any two steps: its commit may be lost, nobody else's may.

CPython lets a signal handler, or another thread, raise in a thread after any call, at the begin of any function and at each
turn of a loop. A trace function raises there, once in each run, in each place in turn.
"""

import dis
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from keyplan.engine import ALL_KEYS, Commit, Put
from keyplan.engine.group_commit import CommitQueue, Ticket
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.errors import CommitOutcomeUnknownError, KeyplanError

_DELIVERS: Final = ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")
_PLACES_MAX: Final = 600
_NAMES: Final[dict[CodeType, dict[int, str]]] = {}
"""The names of each code's instructions, by their offsets."""


class StopNowError(Exception):
    """What a time limit that works by signals raises."""


class Interrupter:
    """Raises at the `place`-th moment at which an exception can come, in the code of the package's engines."""

    def __init__(self, place: int) -> None:
        self._left = place
        self._last: dict[FrameType, str] = {}
        self.has_raised = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "keyplan/engine" not in frame.f_code.co_filename or self.has_raised:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._step(frame)
        return self

    def _step(self, frame: FrameType) -> None:
        last = self._last.get(frame, "")
        if frame.f_code not in _NAMES:
            _NAMES[frame.f_code] = {at.offset: at.opname for at in dis.get_instructions(frame.f_code)}
        self._last[frame] = _NAMES[frame.f_code][frame.f_lasti]
        if last.startswith(_DELIVERS) or "JUMP_BACKWARD" in last:
            self._left -= 1
            if self._left == 0:
                self.has_raised = True
                raise StopNowError


def interrupted(place: int, call: Callable[[], object]) -> tuple[bool, BaseException | None]:
    """Call, with an exception in that place. Return whether it came, and what was raised."""
    interrupter = Interrupter(place)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        call()
    except (StopNowError, KeyplanError) as error:
        return interrupter.has_raised, error
    finally:
        sys.settrace(before)
    return interrupter.has_raised, None


def put(engine: LmdbEngine, key: bytes) -> int:
    return engine.commit(Commit((), (Put(key, b""),)))


def goes_on(call: Callable[[], object]) -> bool:
    """Tell whether another thread can do this."""
    is_done = Event()

    def run() -> None:
        call()
        is_done.set()

    Thread(target=run, daemon=True).start()
    return is_done.wait(20)


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_an_interrupted_commit_keeps_nobody_from_committing(tmp_path: Path, *, is_shared: bool) -> None:
    kept: list[BaseException] = []  # as a notebook keeps the last error, and with it every frame's variables
    with LmdbEngine(tmp_path, LmdbOptions(history_revisions_max=1_000)) as engine:
        if is_shared:
            turn = engine._environment.turn  # how many processes are there is not told by public names
            assert turn is not None
            turn._is_resident = False
        place, came = 1, True
        while came and place < _PLACES_MAX:
            key = b"%04d" % place
            came, error = interrupted(place, partial(put, engine, key))
            if error is not None:
                kept.append(error)
                assert isinstance(error, StopNowError)
            assert goes_on(lambda: put(engine, b"other")), f"place {place}: nobody commits any more"
            with engine.snapshot() as snapshot:
                is_stored = snapshot.get(key) is not None
            assert is_stored or error is not None, f"place {place}: an acknowledged commit is lost"
            place += 1
        assert 20 < place < _PLACES_MAX, "every place was tried"
        with engine.snapshot() as snapshot:
            assert snapshot.revision >= snapshot.count(ALL_KEYS)


class LedByAnInterrupted:
    """A leader that is interrupted in some place, and two threads that wait for it."""

    def __init__(self, place: int) -> None:
        self._place = place
        self.came = False
        self.carried_out: list[str] = []
        self.told: dict[str, object] = {}
        self._is_led, self._may_go = Event(), Event()
        self._queue = CommitQueue[str](
            self._carry_out, outcome_unknown=lambda _, problem: CommitOutcomeUnknownError(engine="", problem=problem)
        )

    def run(self) -> None:
        leader = Thread(target=self._lead)
        others = [Thread(target=self._ask, args=(work,)) for work in ("second", "third")]
        leader.start()
        self._is_led.wait(0.02)  # a leader that was interrupted before does not say so
        for other in others:
            other.start()
        self._may_go.set()
        for thread in (leader, *others):
            thread.join(20)
            assert not thread.is_alive(), f"place {self._place}: a thread waits for ever"

    def _carry_out(self, batch: list[Ticket[str]]) -> None:
        if batch[0].work == "first":
            self._is_led.set()
            self._may_go.wait(20)
        self._queue.under_way = batch
        self.carried_out += [ticket.work for ticket in batch]
        for ticket in batch:
            ticket.finish(ticket.work)

    def _lead(self) -> None:
        self.came, _ = interrupted(self._place, lambda: self._queue.run("first"))

    def _ask(self, work: str) -> None:
        try:
            self.told[work] = self._queue.run(work)
        except KeyplanError as error:
            self.told[work] = error


def test_others_whose_leader_is_interrupted_get_true_answers() -> None:
    for place in range(1, _PLACES_MAX):
        staged = LedByAnInterrupted(place)
        staged.run()
        for work, answer in staged.told.items():
            assert answer == work or isinstance(answer, CommitOutcomeUnknownError)
        assert sorted(staged.told) == ["second", "third"]
        assert len(set(staged.carried_out)) == len(staged.carried_out), f"place {place}: carried out twice"
        if not staged.came:
            break
    assert 10 < place < _PLACES_MAX - 1, "every place was tried"
