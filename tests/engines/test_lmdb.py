"""The LMDB engine, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Put
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock


@pytest.mark.engine
class TestLmdbEngine(EngineSuite):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def engine(self, tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
        with LmdbEngine(tmp_path, LmdbOptions(clock=clock)) as engine:
            yield engine

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> Callable[[float], None]:
        return clock.advance

    @pytest.fixture
    def reopen(self, engine: Engine, tmp_path: Path, clock: FakeClock) -> Callable[[], Engine]:
        return lambda: (engine.close(), LmdbEngine(tmp_path, LmdbOptions(clock=clock)))[1]

    @pytest.fixture
    def other_process_url(self, tmp_path: Path) -> str:
        return f"lmdb:{tmp_path}"


def test_a_watch_that_is_behind_is_given_large_values_in_parts(tmp_path: Path) -> None:
    mib = 1 << 20
    with LmdbEngine(tmp_path, LmdbOptions()) as engine:
        for number in range(40):
            engine.commit(Commit((), (Put(b"k%d" % (number % 2), b"%d" % (number % 10) * mib),)))
        watch = engine.watch(ALL_KEYS, after=0)
        parts = []
        while watch.revision < 40:
            parts.append([event.revision for event in watch.poll(5)])
        watch.close()
    assert [revision for part in parts for revision in part] == list(range(1, 41))
    assert max(map(len, parts)) <= 9
