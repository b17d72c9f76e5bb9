"""The memory engine, judged by the conformance suite."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import Engine, MemoryEngine
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
