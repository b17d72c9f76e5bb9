"""The memory engine, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import Engine, MemoryEngine
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock


@pytest.mark.engine
class TestMemoryEngine(EngineSuite):
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock) as engine:
            yield engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_rounding_leaves_a_lease_no_more_than_it_was_granted(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    clock.advance(3_049.6)
    assert clock.monotonic() + 600.0 - clock.monotonic() > 600.0, "a sum and a difference of floats"
    engine = MemoryEngine(clock=clock) if kind == "memory" else LmdbEngine(tmp_path, LmdbOptions(clock=clock))
    with engine:
        assert engine.lease(600.0).seconds_left() == 600.0
