"""A key space's share of an engine keeps every promise of an engine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from keyplan.engine import MEMORY_PROFILE, Commit, Engine, MemoryEngine, Profile, Put, Snapshot
from keyplan.engine.lmdb import Durability, LmdbEngine, LmdbOptions
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
    def profile(self) -> Profile:
        return MEMORY_PROFILE

    @pytest.fixture
    def engine(self, profile: Profile) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock, profile=profile) as inner:
            registry = KeySpaces(inner, founding=Founding(skip_printable=False), clock=self.clock)
            registry.create("orders", "shop", prefix="8001")
            inner.load([(neighbour, b"") for neighbour in (b"\x80\x00\xff", b"\x80\x02", b"\x81\x01", b"\xff")])
            store = open_key_space(inner, "orders", "shop", session_seconds=None, clock=self.clock, closes_engine=True)
            with store:
                yield store.engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


@pytest.mark.engine
class TestKeySpaceEngineOverANetwork(TestKeySpaceEngine):
    """Where a look at the fence comes along with the first read, in place of before it."""

    clock = FakeClock()

    @pytest.fixture
    def profile(self) -> Profile:
        return replace(MEMORY_PROFILE, has_local_reads=False)


@pytest.mark.engine
class TestKeySpaceEngineOnLmdb(EngineSuite):
    """Where the engine below makes snapshots of a share itself."""

    known_deviations: ClassVar[dict[str, str]] = TestKeySpaceEngine.known_deviations
    clock = FakeClock()

    @pytest.fixture
    def other_process_url(self) -> str:
        pytest.skip("another process would open the store, and not the share")

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        with LmdbEngine(tmp_path, LmdbOptions(clock=self.clock, durability=Durability.NONE)) as inner:
            KeySpaces(inner, founding=Founding(skip_printable=False)).create("orders", "shop", prefix="8001")
            neighbours = (b"\x80\x00\xff", b"\x80\x02", b"\x81\x01", b"\xff")
            inner.commit(Commit((), tuple(Put(neighbour, b"") for neighbour in neighbours)))
            with open_key_space(inner, "orders", "shop", session_seconds=None, closes_engine=True) as store:
                yield store.engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


def test_whatever_reads_a_state_over_a_network_looks_at_the_fence() -> None:
    with MemoryEngine(profile=replace(MEMORY_PROFILE, has_local_reads=False)) as inner:
        KeySpaces(inner).create("orders", "shop")
        with open_key_space(inner, "orders", "shop", session_seconds=None) as store, store.engine.snapshot() as state:
            reading = {name for name in vars(Snapshot) if not name.startswith("_")} - {"revision", "epoch", "close"}
            assert reading <= set(vars(type(state))), "a read that is inherited passes the fence by"
