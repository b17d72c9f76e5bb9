"""A prefixed engine keeps every promise of the engine inside."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import Engine, MemoryEngine, PrefixedEngine
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock


@pytest.mark.engine
class TestPrefixedEngine(EngineSuite):
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock) as inner:
            inner.load([(neighbour, b"") for neighbour in (b"p", b"p\xfe\xff", b"q", b"q\x00", b"\xff")])
            yield PrefixedEngine(inner, b"p\xff")

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance
