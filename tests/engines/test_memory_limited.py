"""A memory engine that pretends to the limits of a small etcd, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from keyplan.engine import MEMORY_PROFILE, Engine, MemoryEngine
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock

PROFILE = replace(
    MEMORY_PROFILE, key_bytes_max=200, value_bytes_max=20_000, commit_operations_max=128, commit_bytes_max=30_000
)


@pytest.mark.engine
class TestLimitedMemoryEngine(EngineSuite):
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock, profile=PROFILE) as engine:
            yield engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance
