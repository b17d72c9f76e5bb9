"""How often a migration asks an engine over a network: for a batch, never for a record; and that nothing else becomes of it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from keyplan.engine import MEMORY_PROFILE, Commit, Entry, MemoryEngine, Snapshot, WrappedEngine, WrappedSnapshot
from keyplan.layout import Layout
from keyplan.maintenance import check, clean_up_migration, migrate, roll_back_migration
from keyplan.store import Store
from tests.maintenance.evolving import ENLARGED, NO_WAIT, Box, Moved, Old, Shelf, Stated, fill, own, plan, switched
from tests.maintenance.transforming import JOIN, LINES, SPLIT, Joined, Lined, Order, Shop, Split, fill_shop

STORIES: dict[str, tuple[type[Layout], type[Layout], dict[str, Any]]] = {
    "moved": (Old, Moved, {}),
    "rewritten": (Old, Stated, {"conversions": {"boxes": ENLARGED}}),
    "split": (Shop, Split, {"transforms": [SPLIT]}),
    "lines": (Shop, Lined, {"transforms": [LINES], "accepts": ["none:orders"]}),
    "join": (Shop, Joined, {"transforms": [JOIN]}),
}


class Asked(WrappedEngine):
    """An engine over a network that counts what it is asked, by kind."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine(profile=replace(MEMORY_PROFILE, has_local_reads=False)))
        self.reads = self.commits = 0

    def snapshot(self) -> Snapshot:
        return AskedSnapshot(self.inner.snapshot(), self)

    def commit(self, commit: Commit) -> int:
        self.commits += 1
        return self.inner.commit(commit)


class AskedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: Asked) -> None:
        super().__init__(inner)
        self._engine = engine

    def get(self, key: bytes) -> Entry | None:
        self._engine.reads += 1
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._engine.reads += 1
        return self.inner.get_many(keys)


@pytest.fixture
def engine() -> Iterator[Asked]:
    with Asked() as opened:
        yield opened


def filled(store: Store, old: type[Layout], count: int) -> None:
    if old is Old:
        fill(store, count)
    else:
        fill_shop(store, count)


def asked_for(name: str, count: int) -> tuple[int, int]:
    """Reads and commits of a plan, both runs and the clean-up of so many records."""
    old, new, options = STORIES[name]
    with Asked() as engine:
        store = Store(engine)
        filled(store, old, count)
        begun = engine.reads, engine.commits
        given = plan(store, old, new, **options)
        migrate(store, given, backoff=NO_WAIT)
        assert migrate(store, given, is_switched=True, backoff=NO_WAIT).is_settled
        assert clean_up_migration(store, given, backoff=NO_WAIT).is_cleaned
        return engine.reads - begun[0], engine.commits - begun[1]


@pytest.mark.parametrize("name", STORIES)
def test_a_batch_of_records_is_read_and_written_together(name: str) -> None:
    few, many = asked_for(name, 6), asked_for(name, 12)
    assert few == many


@pytest.mark.parametrize("name", STORIES)
def test_what_becomes_of_records_is_the_same_as_on_an_engine_that_reads_at_once(name: str, engine: Asked) -> None:
    old, new, options = STORIES[name]
    found = []
    with MemoryEngine() as near:
        for store in (Store(near), Store(engine)):
            filled(store, old, 9)
            given = plan(store, old, new, **options)
            states = []
            for is_switched in (False, True):
                migrate(store, given, is_switched=is_switched, backoff=NO_WAIT)
                states.append(own(store))
            if old is Shop:
                Shop(store).orders.put(1, Order("c9", ["x"], "no1"))
            else:
                Old(store).notes.put("n", "another note")
            assert switched(store, old, new, **options).is_settled
            states.append(own(store))
            assert clean_up_migration(store, given, backoff=NO_WAIT).is_cleaned
            assert list(check(store, new(store))) == []
            found.append([*states, own(store)])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["moved", "split"])
def test_a_way_back_is_the_same_as_well(name: str, engine: Asked) -> None:
    old, new, options = STORIES[name]
    store = Store(engine)
    filled(store, old, 9)
    before = own(store)
    given = plan(store, old, new, **options)
    assert migrate(store, given, is_switched=True, backoff=NO_WAIT).is_settled
    assert own(store) != before
    assert roll_back_migration(store, given, backoff=NO_WAIT).is_rolled_back
    assert own(store) == before


class Restless(WrappedEngine):
    """A program of the old layout writes a record after each commit of the migration."""

    def __init__(self, inner: MemoryEngine) -> None:
        super().__init__(inner)
        self.writes = 0
        self.is_resting = True

    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        if not self.is_resting:
            self.writes += 1
            Old(Store(self.inner)).boxes.put(Shelf("a", 1), Box(f"other{self.writes}", ["red"]))
        return revision


def test_a_run_ends_when_a_writer_keeps_up_with_it() -> None:
    with Restless(MemoryEngine()) as engine:
        store = Store(engine)
        fill(store, 3)
        given = plan(store, Old, Moved)
        engine.is_resting = False
        report = migrate(store, given, backoff=NO_WAIT)
        engine.is_resting = True
        # Three passes: the first one copies, each of the others finds what was written during the one before.
        assert report.counts == {"copied": 3, "renewed": 2}
        assert switched(store, Old, Moved).is_settled
        assert Moved(store).boxes.require(Shelf("a", 1)).name == f"other{engine.writes}"
