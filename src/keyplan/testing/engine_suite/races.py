"""Promise: what is said to be one step is one step, whoever comes between.

Each test lets threads work at once and asserts what must hold in every order of them; none depends on how long a thing takes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event as Flag
from threading import Thread
from typing import Final

from keyplan.engine import ALL_KEYS, Capability, Engine, KeyAbsent, Put
from keyplan.errors import CommitConflictError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, put

__all__ = ["RacePromises"]

ROUNDS: Final = 60


class RacePromises(Promise):
    """Several threads."""

    @needs(Capability.REVISIONS)
    def test_a_commit_returns_the_revision_that_its_keys_have(self, engine: Engine) -> None:
        returned: dict[bytes, int] = {}

        def write(name: bytes) -> None:
            for number in range(25):
                key = b"%s/%d" % (name, number)
                returned[key] = put(engine, key)

        together(*(lambda name=b"%d" % number: write(name) for number in range(4)))
        assert {entry.key: entry.mod_revision for entry in everything(engine)} == returned
        assert len(set(returned.values())) == 100

    @needs(Capability.REVISIONS)
    def test_the_revision_of_a_snapshot_is_that_of_its_state(self, engine: Engine) -> None:
        put(engine, b"a")
        told: set[tuple[int, int]] = set()
        with written_meanwhile(lambda number: put(engine, b"a")):
            for _ in range(ROUNDS):
                with engine.snapshot() as snapshot:
                    told.update((snapshot.revision, entry.mod_revision) for entry in snapshot.scan(ALL_KEYS))
        assert [pair for pair in told if pair[0] != pair[1]] == []

    def test_a_value_and_its_fence_are_of_one_state(self, engine: Engine) -> None:
        def write(number: int) -> int:
            # Why back and forth: a fence that holds before and after may have been another one in between.
            return put(engine, b"fence", b"key", value=b"%d" % (number % 2))

        write(0)
        torn: list[bytes | None] = []
        with written_meanwhile(write):
            for number in range(ROUNDS):
                fence = b"%d" % (number % 2)
                holds, value = engine.fenced_value(b"key", ((b"fence", fence),))
                if holds and value != fence:
                    torn.append(value)
        assert torn == []

    def test_a_fenced_snapshot_is_of_the_state_in_which_its_fences_hold(self, engine: Engine) -> None:
        def write(number: int) -> int:
            return put(engine, b"fence", b"key", value=b"%d" % (number % 2))

        write(0)
        torn: list[bytes | None] = []
        with written_meanwhile(write):
            for number in range(ROUNDS):
                fence = b"%d" % (number % 2)
                snapshot = engine.fenced_snapshot(b"k", ((b"fence", fence),))
                if snapshot is not None:
                    with snapshot:
                        torn += [value for value in (snapshot.value(b"ey"),) if value != fence]
        assert torn == []

    def test_of_a_load_and_an_insert_of_one_key_one_is_refused(self, engine: Engine) -> None:
        for number in range(ROUNDS):
            keys = [b"%03d/%02d" % (number, position) for position in range(40)]
            done: list[str] = []

            def load(keys: list[bytes] = keys, done: list[str] = done) -> None:
                if is_taken(lambda: engine.load((key, b"loaded") for key in keys)):
                    done.append("load")

            def insert(key: bytes = keys[-1], done: list[str] = done) -> None:
                if is_taken(lambda: commit(engine, Put(key, b"inserted"), guards=[KeyAbsent(key)])):
                    done.append("insert")

            together(load, insert)
            (winner,) = done
            assert engine.value(keys[-1]) == (b"loaded" if winner == "load" else b"inserted")


@contextmanager
def written_meanwhile(write: Callable[[int], object]) -> Iterator[None]:
    """Let another thread write again and again while the block runs."""
    is_over = Flag()

    def go_on() -> None:
        for number in count():
            if is_over.is_set():
                break
            write(number)

    writer = Thread(target=go_on)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


def together(*calls: Callable[[], object]) -> None:
    """Make the calls at once, each in a thread, and wait for all."""
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def is_taken(call: Callable[[], object]) -> bool:
    """Make a call; return whether it was carried out and not refused for a key that is there."""
    try:
        call()
    except CommitConflictError:
        return False
    return True
