"""Long work gives way to others and not to itself: its own commits are counted, and each of its loops keeps to the pace."""

from collections.abc import Callable

import pytest

from keyplan.engine import MemoryEngine
from keyplan.jobs import UNSTOPPED, Pace, YieldingPace
from keyplan.maintenance import (
    build_index,
    clean_up_migration,
    drop_index,
    migrate,
    prepare_index,
    roll_back_migration,
    rotate_secrets,
)
from keyplan.maintenance.migration.verify import verify_table
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.maintenance.evolving import ENLARGED, NO_WAIT, Moved, Old, Reindexed, Stated, fill, plan
from tests.secrets.test_sealed_store import keys
from tests.secrets.vault import Vault, filled

RECORDS = 700
PROBE_SECONDS_MAX = 0.01


class Hurried(FakeClock):
    """Time passes with each look at the clock, so that a pace looks at others after each batch."""

    def monotonic(self) -> float:
        self.advance(0.06)
        return super().monotonic()


def move(store: Store, pace: Pace) -> None:
    own = plan(store, Old, Moved)
    migrate(store, own, pace=pace, backoff=NO_WAIT)
    assert migrate(store, own, is_switched=True, pace=pace, backoff=NO_WAIT).is_settled
    assert clean_up_migration(store, own, pace=pace, backoff=NO_WAIT).is_cleaned


def move_back(store: Store, pace: Pace) -> None:
    own = plan(store, Old, Moved)
    assert migrate(store, own, is_switched=True, pace=pace, backoff=NO_WAIT).is_settled
    assert roll_back_migration(store, own, pace=pace, backoff=NO_WAIT).is_rolled_back


def rewrite(store: Store, pace: Pace) -> None:
    own = plan(store, Old, Stated, conversions={"boxes": ENLARGED})
    assert migrate(store, own, is_switched=True, pace=pace, backoff=NO_WAIT).is_settled


def reindex(store: Store, pace: Pace) -> None:
    own = plan(store, Old, Reindexed)
    assert migrate(store, own, is_switched=True, pace=pace, backoff=NO_WAIT).is_settled
    assert clean_up_migration(store, own, pace=pace, backoff=NO_WAIT).is_cleaned


def build(store: Store, pace: Pace) -> None:
    drop_index(store, Old(store), "by_tag")
    prepare_index(store, Old(store), "by_tag")
    assert build_index(store, Old(store), "by_tag", pace=pace).is_readable


@pytest.mark.parametrize("work", [move, move_back, rewrite, reindex, build])
def test_work_that_is_alone_does_not_take_its_own_commits_for_anothers(work: Callable[[Store, Pace], None]) -> None:
    rests: list[float] = []
    with MemoryEngine() as engine:
        store = Store(engine)
        fill(store, RECORDS)
        work(store, YieldingPace(engine, clock=Hurried(), sleep=rests.append))
    assert max(rests, default=0) <= PROBE_SECONDS_MAX


def test_a_rotation_that_is_alone_does_not_take_its_own_commits_for_anothers() -> None:
    rests: list[float] = []
    with MemoryEngine() as engine:
        filled(engine)
        store = Store(engine, secrets=keys("new"))
        pace = YieldingPace(engine, clock=Hurried(), sleep=rests.append)
        assert rotate_secrets(store, Vault(store), pace=pace).written
    assert max(rests, default=0) <= PROBE_SECONDS_MAX


def test_what_is_verified_keeps_to_the_share_of_the_time() -> None:
    rests: list[float] = []
    with MemoryEngine() as engine:
        store = Store(engine)
        fill(store, 200)
        own = plan(store, Old, Moved)
        assert migrate(store, own, is_switched=True, backoff=NO_WAIT).is_settled
        work = next(work for work in own.tables if work.is_moving)
        pace = Pace(share=0.5, clock=Hurried(), sleep=rests.append)
        assert verify_table(engine, own.id, work, UNSTOPPED, pace).is_equal
    assert len(rests) == 1, "two hundred records are a batch"
