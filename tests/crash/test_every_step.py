"""Every kind of write, stopped at each of its steps: the store holds all of it or nothing, and every index is right."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import ALL_KEYS, Engine, EventKind
from keyplan.engine.lmdb import Durability, LmdbEngine, LmdbOptions
from keyplan.engine.memory import MemoryEngine
from keyplan.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    EngineUnavailableError,
    LeaseNotFoundError,
)
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine, FakeClock
from tests.store.engines import no_waiting
from tests.store.layouts import Blade, BladeKey, LeasedSite, Rack, Site, index_faults, leased

ONE: Final = BladeKey("r1", "1")
TWO: Final = BladeKey("r1", "2")
NEW: Final = BladeKey("r9", "1")
TTL_SECONDS: Final = 100.0

Content = list[tuple[bytes, bytes, int]]
Write = Callable[[Site, int], object]
"""What is done to a store; the number is that of a living lease."""


def two_tables(site: Site, lease: int) -> None:
    """Write racks, blades and the counter; pass a unique entry from one record to another; go by what a list says."""
    with site.transaction() as tx:
        number = tx.ports.next(3)
        tx.racks.insert("r9", Rack("b", number))
        tx.blades.update(ONE, Blade(None, ["a"]))
        tx.blades.insert(NEW, Blade("s1", [key.slot for key in tx.blades.keys("r1")]))
        tx.blades.delete(TWO)


def run_two_tables(site: Site, lease: int) -> None:
    def work(tx: Site) -> None:
        tx.racks.put("r1", Rack("moved"))
        tx.blades.rename(ONE, NEW)

    site.run(work)


WRITES: Final = [
    pytest.param(lambda site, lease: site.blades.insert(NEW, Blade("s9", ["z"])), id="insert"),
    pytest.param(lambda site, lease: site.blades.put(NEW, Blade("s9", ["z"])), id="put of a new record"),
    pytest.param(lambda site, lease: site.blades.put(ONE, Blade("s9", ["b", "z"])), id="put over a record"),
    pytest.param(lambda site, lease: site.racks.put("r1", Rack("blind")), id="put that reads nothing"),
    pytest.param(lambda site, lease: site.blades.update(ONE, Blade("s9", ["z"])), id="update"),
    pytest.param(lambda site, lease: site.blades.modify(ONE, lambda old: Blade(None, old.tags)), id="modify"),
    pytest.param(lambda site, lease: site.blades.rename(ONE, NEW), id="rename"),
    pytest.param(lambda site, lease: site.blades.delete(ONE), id="delete"),
    pytest.param(lambda site, lease: site.racks.delete("r1"), id="delete that reads nothing"),
    pytest.param(lambda site, lease: site.ports.next(5), id="counter"),
    pytest.param(
        lambda site, lease: leased(site).blades.insert(NEW, Blade("s9", ["z"]), lease=lease), id="insert on a lease"
    ),
    pytest.param(
        lambda site, lease: leased(site).blades.put(ONE, Blade("s1", ["a"]), lease=lease), id="move onto a lease"
    ),
    pytest.param(two_tables, id="transaction over two tables"),
    pytest.param(run_two_tables, id="run over two tables"),
]


class Bench:
    """Makes stores that hold the same at the start; each has its own clock."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._made = 0

    def engine(self, clock: FakeClock) -> Engine:
        self._made += 1
        if self._kind == "memory":
            return MemoryEngine(clock=clock)
        return LmdbEngine(
            self._folder / str(self._made), LmdbOptions(clock=clock, durability=Durability.NONE, map_bytes=1 << 20)
        )

    def furnished(self, clock: FakeClock) -> tuple[Engine, int]:
        """Return an engine with two blades, a rack and a counter, and a lease."""
        engine = self.engine(clock)
        site = Site(Store(engine))
        site.racks.insert("r1", Rack("a"))
        site.blades.insert(ONE, Blade("s1", ["a", "b"]))
        site.blades.insert(TWO, Blade("s2", ["b"]))
        site.ports.next()
        return engine, engine.lease(TTL_SECONDS).id


@pytest.fixture(params=["memory", "lmdb"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


class SteppingEngine(FailingEngine):
    """An engine in which something happens at the chosen step, instead of a failure."""

    def __init__(self, inner: Engine, *, at_step: int, happening: Callable[[], object]) -> None:
        super().__init__(inner, at_step=at_step)
        self._happening = happening

    def is_failing(self, name: str) -> bool:
        if super().is_failing(name):
            self._happening()
        return False


def content(engine: Engine) -> Content:
    with engine.snapshot() as snapshot:
        return [(entry.key, entry.value, entry.lease) for entry in snapshot.scan(ALL_KEYS)]


def store_on(engine: Engine) -> Store:
    return Store(engine, backoff=no_waiting())


def faults_of(engine: Engine) -> list[str]:
    return index_faults(Store(engine), Site.bound())


def steps_of(bench: Bench, write: Write) -> tuple[int, Content, Content]:
    """Return how many steps the write has, and what a store holds before and after it."""
    engine, lease = bench.furnished(FakeClock())
    with FailingEngine(engine) as probe:
        before = content(engine)
        write(Site(store_on(probe)), lease)
        after = content(engine)
        assert after != before
        return len(probe.steps), before, after


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_fails_at_any_step_is_done_whole_or_not_at_all(bench: Bench, write: Write) -> None:
    steps, before, after = steps_of(bench, write)
    for step in range(1, steps + 1):
        engine, lease = bench.furnished(FakeClock())
        with FailingEngine(engine, at_step=step) as failing:
            with pytest.raises((EngineUnavailableError, CommitOutcomeUnknownError)) as caught:
                write(Site(store_on(failing)), lease)
            assert content(engine) == (after if caught.type is CommitOutcomeUnknownError else before)
            assert faults_of(engine) == []
            assert len(failing.steps) == step, "it went on after the failure, or tried again"


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_failed_before_its_commit_can_be_done_again(bench: Bench, write: Write) -> None:
    steps, _, after = steps_of(bench, write)
    for step in range(1, steps):
        engine, lease = bench.furnished(FakeClock())
        with FailingEngine(engine, at_step=step) as failing:
            with pytest.raises(EngineUnavailableError):
                write(Site(store_on(failing)), lease)
            write(Site(store_on(failing)), lease)
            assert content(engine) == after


@pytest.mark.parametrize("write", WRITES)
def test_another_writer_at_any_step_leaves_every_index_right(bench: Bench, write: Write) -> None:
    def other_writer(site: Site) -> None:
        with site.transaction() as tx:
            tx.blades.put(ONE, Blade("s7", ["other"]))
            tx.blades.put(NEW, Blade("s8", ["b"]))
            tx.racks.put("r1", Rack("other"))
            tx.ports.next()

    steps, _, _ = steps_of(bench, write)
    for step in range(1, steps + 1):
        engine, lease = bench.furnished(FakeClock())
        other = Site(store_on(engine))
        with SteppingEngine(engine, at_step=step, happening=partial(other_writer, other)) as happening:
            before = engine_revision(engine)
            try:
                write(Site(store_on(happening)), lease)
            except ConflictError:
                assert engine_revision(engine) == before + 1, "the other writer's commit alone"
            else:
                assert engine_revision(engine) == before + 2
            assert faults_of(engine) == []


def engine_revision(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.revision


@pytest.mark.parametrize("write", WRITES)
def test_a_lease_that_ends_at_any_step_takes_records_with_their_entries(bench: Bench, write: Write) -> None:
    steps, _, after = steps_of(bench, write)
    for step in range(1, steps + 1):
        clock = FakeClock()
        engine, lease = bench.furnished(clock)
        with SteppingEngine(engine, at_step=step, happening=partial(clock.advance, TTL_SECONDS)) as stepping:
            before = content(engine)
            try:
                write(Site(store_on(stepping)), lease)
            except LeaseNotFoundError:
                assert content(engine) == before
            else:
                assert content(engine) == [entry for entry in after if entry[2] != lease]
            assert faults_of(engine) == []


def test_records_on_a_lease_end_with_their_index_entries_in_one_revision(bench: Bench) -> None:
    clock = FakeClock()
    engine, lease = bench.furnished(clock)
    with store_on(engine) as store:
        site = LeasedSite(store)
        site.blades.put(ONE, Blade("s1", ["a", "b"]), lease=lease)
        site.blades.put(TWO, Blade("s2", ["b"]), lease=lease)
        revision = store.revision

        clock.advance(TTL_SECONDS)

        assert store.revision == revision + 1
        ended = engine.watch(ALL_KEYS, after=revision).poll(5)
        assert [(event.key, event.kind, event.revision) for event in ended] == [
            (key, EventKind.DELETED, revision + 1)
            for key in (
                b"/site/by-serial/s1",
                b"/site/by-serial/s2",
                b"/site/by-tag/a/r1/1",
                b"/site/by-tag/b/r1/1",
                b"/site/by-tag/b/r1/2",
                b"/site/rack/r1/blades/1",
                b"/site/rack/r1/blades/2",
            )
        ]
        Site(store).blades.insert(NEW, Blade("s1"))
        assert (site.by_serial.key_of("s1"), site.racks.count()) == (NEW, 1)


def test_an_outcome_that_is_unknown_reaches_the_caller_of_run_at_once(bench: Bench) -> None:
    calls: list[int] = []

    def work(tx: Site) -> None:
        calls.append(tx.ports.next())

    engine, _ = bench.furnished(FakeClock())
    steps, _, _ = steps_of(bench, lambda site, lease: site.run(lambda tx: tx.ports.next()))
    with FailingEngine(engine, at_step=steps) as failing:
        with pytest.raises(CommitOutcomeUnknownError):
            Site(store_on(failing)).run(work)
        assert calls == [33001]
        assert failing.steps.count("before commit") == 1
        assert Site(store_on(engine)).ports.peek() == 33002, "it was applied: whoever asks afterwards sees it"
