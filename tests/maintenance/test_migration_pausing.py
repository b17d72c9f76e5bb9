"""A migration that is paused while it runs, by somebody else; and the pace of a run."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

import keyplan
from keyplan.errors import InvalidArgumentError, MigrationRefusedError, StoppedError
from keyplan.jobs import UNSTOPPED, Pace, Stop
from keyplan.maintenance import clean_up_migration, migrate, pause_migration, pause_of, resume_migration
from keyplan.testing.faults import FakeClock
from tests.maintenance.evolving import NO_WAIT, Moved, Old, fill, plan


def test_a_run_under_way_is_paused_from_elsewhere_and_goes_on_where_it_was() -> None:
    with keyplan.open("memory:") as store, ThreadPoolExecutor(1) as threads:
        fill(store, 200)
        own = plan(store, Old, Moved)
        begun = Event()
        # Why so slow: the rest of the first batch would take minutes, so that the pause finds it waiting.
        run = threads.submit(
            migrate, store, own, is_switched=True, pace=Pace(0.5), progress=lambda _: begun.set(), backoff=NO_WAIT
        )
        while not (pause_of(store.engine, own.id) or run.done()):
            try:
                pause_migration(store.engine, own.id)
            except MigrationRefusedError:
                begun.wait(0.01)
        with pytest.raises(StoppedError, match="was paused at"):
            run.result(60)
        copied = Moved(store).boxes.count()
        assert copied < 200
        with pytest.raises(StoppedError):
            migrate(store, own, is_switched=True, backoff=NO_WAIT)
        assert Moved(store).boxes.count() == copied
        assert resume_migration(store.engine, own.id)
        assert not resume_migration(store.engine, own.id)
        assert migrate(store, own, is_switched=True, backoff=NO_WAIT).is_settled
        assert Moved(store).boxes.count() == 200


def test_what_is_not_under_way_cannot_be_paused() -> None:
    with keyplan.open("memory:") as store:
        fill(store, 3)
        own = plan(store, Old, Moved)
        with pytest.raises(MigrationRefusedError):
            pause_migration(store.engine, own.id)
        assert pause_of(store.engine, own.id) is None


def test_a_share_of_the_time_is_worked_and_the_rest_is_waited() -> None:
    clock = FakeClock()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    pace = Pace(share=0.25, clock=clock, sleep=sleep)
    clock.advance(2)
    pace.spend(10)
    clock.advance(1)
    pace.spend(1)
    assert waited == [6, 3]
    for wrong in (0, -1, 1.5, float("nan")):
        with pytest.raises(InvalidArgumentError):
            Pace(share=wrong)


class Counting(Pace):
    """A pace that counts what it is told of, and waits for nothing."""

    def __init__(self) -> None:
        super().__init__(1)
        self.count = 0

    def spend(self, count: int, stop: Stop = UNSTOPPED) -> None:
        del stop
        self.count += count


def test_a_clean_up_keeps_to_its_pace() -> None:
    with keyplan.open("memory:") as store:
        fill(store, 3)
        assert migrate(store, plan(store, Old, Moved), is_switched=True, backoff=NO_WAIT).is_settled
        pace = Counting()
        assert clean_up_migration(store, plan(store, Old, Moved), pace=pace, backoff=NO_WAIT).is_cleaned
        assert pace.count == 3
