"""The LMDB engine, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import Engine
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
