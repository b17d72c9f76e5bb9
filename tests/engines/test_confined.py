"""An engine that holds the reach of one caller keeps every promise of an engine, and nothing of it passes through unseen."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from keyplan.engine import (
    Area,
    Commit,
    ConfinedEngine,
    Engine,
    KeyRange,
    MemoryEngine,
    Outside,
    OwnedHistory,
    OwnedLeases,
    PrefixedEngine,
    Put,
    Reach,
    Snapshot,
)
from keyplan.engine.confined_reads import ConfinedSnapshot
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.engine.lmdb.options import Durability
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock

FENCES = ((b"\x00fence 1", b"open"), (b"\x00fence 2", b"open"))


def in_parts(prefix: bytes) -> Reach:
    """Return a reach of all keys below a prefix, of areas that touch and hang on different fences."""
    first, second = FENCES
    return Reach(
        [
            Area(KeyRange(prefix, prefix + b"c"), can_write=True, fence=first),
            Area(KeyRange(prefix + b"c", prefix + b"many "), can_write=True),
            Area(KeyRange(prefix + b"k", KeyRange.of_prefix(prefix).end), can_write=True, fence=second),
        ]
    )


@pytest.mark.engine
class TestConfinedToEverything(EngineSuite):
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with ConfinedEngine(MemoryEngine(clock=self.clock), Reach.everything, outside=Outside.REFUSED) as engine:
            yield engine

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


@pytest.mark.engine
class TestConfinedToEverythingOfLmdb(EngineSuite):
    @pytest.fixture
    def other_process_url(self, tmp_path: Path) -> str:
        return f"lmdb:{tmp_path}/store?durability=none"

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def engine(self, tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
        inner = LmdbEngine(tmp_path / "store", LmdbOptions(durability=Durability.NONE, clock=clock))
        with ConfinedEngine(inner, Reach.everything, outside=Outside.ABSENT) as engine:
            yield engine

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> Callable[[float], None]:
        return clock.advance


@pytest.mark.engine
class TestConfinedToFencedParts(EngineSuite):
    """Below a prefix, so that the fences and the neighbours are outside."""

    known_deviations: ClassVar = {
        "test_ending_a_lease_without_entries_changes_nothing": "a lease's mark is an entry that goes with it",
    }
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock) as inner:
            inner.commit(Commit((), tuple(Put(key, value) for key, value in FENCES)))
            inner.load([(neighbour, b"") for neighbour in (b"p", b"p\xfe\xff", b"q", b"\xff")])
            reach = in_parts(b"p\xff")
            confined = ConfinedEngine(
                inner,
                lambda: reach,
                outside=Outside.REFUSED,
                leases=OwnedLeases(inner, "ann", b"\x00leases "),
                history=OwnedHistory(inner, "ann", b"\x00history ann"),
            )
            yield PrefixedEngine(confined, b"p\xff")

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


# ---- nothing passes through ----------------------------------------------------------------------------------------------


def promised(contract: type) -> set[str]:
    """Return the names of a contract: what is abstract in it, and what it has already."""
    return {name for name in vars(contract) if not name.startswith("_")}


@pytest.mark.parametrize(("contract", "confined"), [(Engine, ConfinedEngine), (Snapshot, ConfinedSnapshot)])
def test_every_method_of_the_contract_is_written_for_confinement(contract: type, confined: type) -> None:
    assert confined.__mro__ == (confined, *contract.__mro__)
    assert promised(contract) <= set(vars(confined)), "a method that is inherited passes the reach by"
    own = {"readable", "readable_since"}
    assert promised(confined) - own <= promised(contract), "a method that no contract has needs a look"
    assert getattr(confined, "__getattr__", None) is None
