"""Promise: threads, and processes where the profile says so, write at once and lose nothing."""

import subprocess
import sys
from threading import Thread

import pytest

from keyplan.engine import ALL_KEYS, Capability, Engine, KeyAbsent, KeyUnchanged, Put
from keyplan.errors import CommitConflictError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, polled, put

__all__ = ["SharingPromises", "add_ones"]

_PROGRAM = """
import sys
from keyplan.engine import open_engine
from keyplan.testing.engine_suite.sharing import add_ones
with open_engine(sys.argv[1]) as engine:
    add_ones(engine, times=int(sys.argv[2]))
"""


class SharingPromises(Promise):
    """Several writers."""

    def test_threads_that_count_with_guards_lose_no_count(self, engine: Engine) -> None:
        put(engine, b"counter", value=b"0")
        threads = [Thread(target=add_ones, args=(engine,), kwargs={"times": 30}) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (entry,) = everything(engine)
        assert entry.value == b"180"
        assert entry.version == (181 if engine.profile.claims(Capability.REVISIONS) else 0)

    def test_of_threads_that_claim_a_key_exactly_one_wins(self, engine: Engine) -> None:
        winners: list[bytes] = []

        def claim(name: bytes) -> None:
            try:
                commit(engine, Put(b"claimed", name), guards=[KeyAbsent(b"claimed")])
            except CommitConflictError:
                return
            winners.append(name)

        threads = [Thread(target=claim, args=(b"%d" % number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry.value for entry in everything(engine)] == winners

    def test_readers_never_see_half_a_commit(self, engine: Engine) -> None:
        put(engine, b"left", b"right", value=b"0")
        torn: list[tuple[bytes, ...]] = []
        writer = Thread(target=lambda: [put(engine, b"left", b"right", value=b"%d" % n) for n in range(150)])
        writer.start()
        while writer.is_alive():
            values = tuple(entry.value for entry in everything(engine))
            if len(set(values)) != 1:
                torn.append(values)
        writer.join()
        assert torn == []

    @needs(Capability.SHARED)
    def test_processes_that_count_with_guards_lose_no_count(self, engine: Engine, other_process_url: str) -> None:
        put(engine, b"counter", value=b"0")
        with subprocess.Popen([sys.executable, "-c", _PROGRAM, other_process_url, "40"]) as other:  # noqa: S603  # Why: our own words.
            add_ones(engine, times=40)
        assert other.returncode == 0
        assert [entry.value for entry in everything(engine)] == [b"80"]

    @needs(Capability.SHARED)
    def test_a_watch_sees_the_commits_of_another_process(self, engine: Engine, other_process_url: str) -> None:
        if not engine.profile.claims(Capability.WATCH):
            pytest.skip("the engine does not claim WATCH")
        start = put(engine, b"counter", value=b"0")
        watch = engine.watch(ALL_KEYS, after=start)
        with subprocess.Popen([sys.executable, "-c", _PROGRAM, other_process_url, "25"]) as other:  # noqa: S603  # Why: our own words.
            events = polled(watch, until=start + 25)
        assert other.returncode == 0
        assert [event.entry and event.entry.value for event in events] == [b"%d" % n for n in range(1, 26)]
        watch.close()


def add_ones(engine: Engine, *, times: int) -> None:
    """Add one to the counter, so many times, each time by a guarded commit that is tried until it is taken."""
    added = 0
    while added < times:
        with engine.snapshot() as snapshot:
            entry = snapshot.get(b"counter")
        assert entry is not None
        try:
            mutation = Put(b"counter", b"%d" % (int(entry.value) + 1))
            commit(engine, mutation, guards=[KeyUnchanged(b"counter", entry.mod_revision)])
        except CommitConflictError:
            continue
        added += 1
