"""Migrations that are killed at every step, and beside programs that write whenever they like."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, MemoryEngine, WrappedEngine
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from keyplan.maintenance import MigrationPlan, MigrationReport, check, clean_up_migration, migrate
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine
from tests.maintenance.evolving import (
    ENLARGED,
    NO_WAIT,
    Box,
    Moved,
    Old,
    Reindexed,
    Shelf,
    Stated,
    cleaned,
    fill,
    own,
    plan,
    switched,
)
from tests.maintenance.layouts import dump

Story = Callable[[Store], object]


def moving(store: Store) -> None:
    steps = plan(store, Old, Moved)
    migrate(store, steps, backoff=NO_WAIT)
    finish(store, steps)


def converting(store: Store) -> None:
    finish(store, plan(store, Old, Stated, conversions={"boxes": ENLARGED}))


def reindexing(store: Store) -> None:
    finish(store, plan(store, Old, Reindexed))


def finish(store: Store, steps: MigrationPlan) -> None:
    migrate(store, steps, is_switched=True, backoff=NO_WAIT)
    clean_up_migration(store, steps, backoff=NO_WAIT)


def steps_of(story: Story) -> tuple[int, dict[bytes, tuple[bytes, int]]]:
    """How many steps a story takes without failures, and what is stored at its end."""
    engine = FailingEngine(MemoryEngine())
    with Store(engine) as store:
        fill(store, 2)
        engine.steps.clear()
        story(store)
        count = len(engine.steps)
        return count, stored(store)


def stored(store: Store) -> dict[bytes, tuple[bytes, int]]:
    """What is stored, but for the histories of roots, which say when it was."""
    return {raw_key: found for raw_key, found in dump(store).items() if not raw_key.startswith(b"\x00kmh")}


@pytest.mark.slow
@pytest.mark.parametrize("story", [moving, converting, reindexing])
def test_a_migration_that_is_killed_at_any_step_ends_in_the_same_state(story: Story) -> None:
    count, expected = steps_of(story)
    assert count > 30
    for at_step in range(1, count + 1):
        engine = FailingEngine(MemoryEngine())
        with Store(engine) as store:
            fill(store, 2)
            engine.steps.clear()
            engine.at_step = at_step
            # Why it may end well: a commit of the run whose answer was lost is made again, under the guard of its state.
            with suppress(EngineUnavailableError, CommitOutcomeUnknownError):
                story(store)
            story(store)
            assert stored(store) == expected, f"killed at step {at_step}"


class WritingBetween(WrappedEngine):
    """A program of the old layout writes before chosen commits of somebody else."""

    def __init__(self, inner: MemoryEngine, writes: Callable[[int, Store], None]) -> None:
        super().__init__(inner)
        self._writes = writes
        self._other = Store(inner)
        self.turn = 0

    def commit(self, commit: Commit) -> int:
        self.turn += 1
        self._writes(self.turn, self._other)
        return self.inner.commit(commit)


def test_no_write_of_an_old_program_is_lost_whenever_it_comes() -> None:
    acknowledged: dict[Shelf, Box] = {}

    def writes(turn: int, store: Store) -> None:
        key = Shelf("a", turn % 7)
        if turn % 5 == 0:
            Old(store).boxes.delete(key, missing_ok=True)
            acknowledged.pop(key, None)
        else:
            acknowledged[key] = Box(f"turn{turn}", [f"tag{turn % 3}"])
            Old(store).boxes.put(key, acknowledged[key])

    inner = MemoryEngine()
    with Store(inner) as plain:
        fill(plain, 7)
        acknowledged |= {Shelf("a", number): Box(f"box{number}", ["red"]) for number in range(7)}
        beside = Store(WritingBetween(inner, writes))
        for _ in range(3):
            migrate(beside, plan(plain, Old, Moved), backoff=NO_WAIT)
        assert switched(plain, Old, Moved).is_settled
        cleaned(plain, Old, Moved)
        assert dict(Moved(plain).boxes.list()) == acknowledged
        assert list(check(plain, Moved(plain))) == []


def test_a_writer_between_decision_and_commit_of_the_clean_up_keeps_its_record() -> None:
    def writes(turn: int, store: Store) -> None:
        if turn == 3:  # Why: the first commit takes the migration over, the second begins with the table.
            Old(store).boxes.put(Shelf("a", 0), Box("late"))

    inner = MemoryEngine()
    with Store(inner) as plain:
        fill(plain, 1)
        switched(plain, Old, Moved)
        beside = Store(WritingBetween(inner, writes))
        report = clean_up_migration(beside, plan(plain, Old, Moved), backoff=NO_WAIT)
        assert not report.is_cleaned
        assert own(plain)[b"/s/boxes/a/0"] == b'{"name":"late","tags":[]}'
        assert switched(plain, Old, Moved).is_settled
        cleaned(plain, Old, Moved)
        assert dict(Moved(plain).boxes.list()) == {Shelf("a", 0): Box("late")}


def test_a_commit_never_exceeds_what_the_engine_takes() -> None:
    sizes: list[int] = []

    class Noting(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            sizes.append(len(commit.guards) + len(commit.mutations))
            return self.inner.commit(commit)

    with Store(Noting(MemoryEngine())) as store:
        fill(store, 200)
        sizes.clear()
        moving(store)
        assert max(sizes) <= 512
        assert Moved(store).boxes.count() == 200


def test_two_runs_at_once_do_nothing_twice() -> None:
    inner = MemoryEngine()
    with Store(inner) as store:
        fill(store, 300)
        start = threading.Barrier(2)
        reports: list[MigrationReport] = []

        def run() -> None:
            start.wait()
            reports.append(migrate(Store(inner), plan(store, Old, Moved), backoff=NO_WAIT))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [report.contested for report in reports] == [[], []]
        assert switched(store, Old, Moved).is_settled
        cleaned(store, Old, Moved)
        assert list(check(store, Moved(store))) == []
        assert Moved(store).boxes.count() == 300


def test_an_engine_without_revisions_is_migrated_like_the_others(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/plain.kv?history=off") as store:
        fill(store, 3)
        migrate(store, plan(store, Old, Moved), backoff=NO_WAIT)
        Old(store).boxes.put(Shelf("a", 0), Box("old side"))
        Moved(store).boxes.put(Shelf("a", 1), Box("new side"))
        assert switched(store, Old, Moved).is_settled
        cleaned(store, Old, Moved)
        assert dict(Moved(store).boxes.list()) == {
            Shelf("a", 0): Box("old side"),
            Shelf("a", 1): Box("new side"),
            Shelf("a", 2): Box("box2", ["red"]),
        }
        assert list(check(store, Moved(store))) == []
