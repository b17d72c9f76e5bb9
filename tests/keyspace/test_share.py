"""A key space's share of an engine keeps every promise of an engine."""

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from keyplan.engine import Engine, MemoryEngine
from keyplan.keyspace import Founding, KeySpaces, open_key_space
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock


@pytest.mark.engine
class TestKeySpaceEngine(EngineSuite):
    clock = FakeClock()
    known_deviations: ClassVar[dict[str, str]] = {
        "test_ending_a_lease_without_entries_changes_nothing": "the mark of the lease's owner hangs on it, and goes with it"
    }

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock) as inner:
            registry = KeySpaces(inner, founding=Founding(skip_printable=False), clock=self.clock)
            registry.create("orders", "shop", prefix="8001")
            inner.load([(neighbour, b"") for neighbour in (b"\x80\x00\xff", b"\x80\x02", b"\x81\x01", b"\xff")])
            store = open_key_space(inner, "orders", "shop", session_seconds=None, clock=self.clock, closes_engine=True)
            with store:
                yield store.engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance
