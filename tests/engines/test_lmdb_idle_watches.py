"""Watches that wait share one look: one of them asks for the commits of other processes, and hands that on when it ends."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Put, Watch, open_engine
from keyplan.engine.lmdb.environment import Environment
from keyplan.errors import EngineUnavailableError
from keyplan.testing.engine_suite import eventually

WATCHES = 20
WRITE = "import sys; from keyplan.engine import *; open_engine(sys.argv[1]).commit(Commit((), (Put(b'b', b''),)))"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/store") as engine:
        yield engine


def polling(watches: list[Watch], seconds: float) -> tuple[list[Thread], list[list[Any]]]:
    """Let each watch wait in a thread of its own; return the threads, and what they get."""
    got: list[list[Any]] = []
    threads = [Thread(target=lambda watch=watch: got.append(list(watch.poll(seconds)))) for watch in watches]
    for thread in threads:
        thread.start()
    return threads, got


def test_of_many_watches_that_wait_one_looks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    start = engine.commit(Commit((), (Put(b"a", b""),)))
    watches = [engine.watch(ALL_KEYS, after=start) for _ in range(WATCHES)]
    environment: Environment = engine._environment  # type: ignore[attr-defined]  # the engine's own files
    looks: list[int] = []
    is_latest = environment.is_latest

    def counted(transaction_id: int) -> bool:
        looks.append(get_ident())
        return is_latest(transaction_id)

    # Why: the others look a few times a second, in case that nobody does; here they would hide who does.
    monkeypatch.setattr("keyplan.engine.lmdb.watch._OTHERS_SECONDS", 60)
    monkeypatch.setattr(environment, "is_latest", counted)
    threads, got = polling(watches, 60)
    eventually(lambda: environment.waiting_for_news == WATCHES)
    # Why the last of them: each looks once when it begins to wait, which may be late on a busy machine.
    eventually(lambda: len(looks) >= 100 and len(set(looks[-100:])) == 1)
    engine.commit(Commit((), (Put(b"b", b""),)))
    for thread in threads:
        thread.join()
    assert [[event.key for event in events] for events in got] == [[b"b"]] * WATCHES


def test_a_commit_of_another_process_reaches_all_that_wait(engine: Engine, tmp_path: Path) -> None:
    start = engine.commit(Commit((), (Put(b"a", b""),)))
    threads, got = polling([engine.watch(ALL_KEYS, after=start) for _ in range(WATCHES)], 60)
    subprocess.run([sys.executable, "-c", WRITE, f"lmdb:{tmp_path}/store"], check=True)
    for thread in threads:
        thread.join()
    assert [[event.key for event in events] for events in got] == [[b"b"]] * WATCHES


@pytest.mark.parametrize("end", [lambda watch: watch.close(), lambda watch: None], ids=["closed", "over"])
def test_when_the_one_that_looks_ends_another_one_looks(
    engine: Engine, tmp_path: Path, end: Callable[[Watch], None]
) -> None:
    start = engine.commit(Commit((), (Put(b"a", b""),)))
    environment: Environment = engine._environment  # type: ignore[attr-defined]
    first = engine.watch(ALL_KEYS, after=start)
    alone = Thread(target=lambda: end_quietly(first))
    alone.start()
    eventually(lambda: environment.looker is first)
    threads, got = polling([engine.watch(ALL_KEYS, after=start) for _ in range(3)], 60)
    eventually(lambda: environment.waiting_for_news == 4)
    end(first)
    alone.join()
    eventually(lambda: environment.looker not in (None, first))
    subprocess.run([sys.executable, "-c", WRITE, f"lmdb:{tmp_path}/store"], check=True)
    for thread in threads:
        thread.join()
    assert [[event.key for event in events] for events in got] == [[b"b"]] * 3


def end_quietly(watch: Watch) -> None:
    """Poll for two seconds, or until the watch is closed."""
    with suppress(EngineUnavailableError):
        watch.poll(2)
        watch.poll(0)
