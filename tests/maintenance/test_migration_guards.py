"""What a migration's commits rest on: they write over nothing that was not read, marks and origins included."""

from collections.abc import Iterator
from typing import Any

import pytest

from keyplan.engine import Commit, Delete, MemoryEngine, Put, WrappedEngine
from keyplan.layout import Layout
from keyplan.maintenance import clean_up_migration, migrate, roll_back_migration
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, plan
from tests.maintenance.transforming import JOIN, LINES, SPLIT, Joined, Lined, Order, Placed, Shop, Split, fill_shop
from tests.schedules.scenes import guard_key

_MARK, _ORIGIN = b"\x00kmm", b"\x00kmo"

STORIES: dict[str, tuple[type[Layout], dict[str, Any]]] = {
    "split": (Split, {"transforms": [SPLIT], "accepts": ["new:orders"]}),
    "lines": (Lined, {"transforms": [LINES], "accepts": ["none:orders", "lose:orders"]}),
    "join": (Joined, {"transforms": [JOIN], "accepts": ["none:orders"]}),
}


class Noting(WrappedEngine):
    """An engine that keeps the commits that write marks."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.commits: list[Commit] = []

    def commit(self, commit: Commit) -> int:
        if any(one.key.startswith(_MARK) for one in commit.mutations if isinstance(one, Put | Delete)):
            self.commits.append(commit)
        return self.inner.commit(commit)


@pytest.fixture
def engine() -> Iterator[Noting]:
    with Noting() as opened:
        yield opened


@pytest.mark.parametrize("ends", ["cleaned up", "rolled back"])
@pytest.mark.parametrize("story", STORIES)
def test_every_key_that_is_written_is_guarded_and_so_are_the_origins_that_are_read(
    engine: Noting, story: str, ends: str
) -> None:
    new, options = STORIES[story]
    with Store(engine) as store:
        shop = fill_shop(store)
        if story == "split":
            Split(store).orders.insert(Placed("c0", 2), Order("c0", ["stands"], "stands"))
        migrate(store, plan(store, Shop, new, **options), backoff=NO_WAIT)
        shop.orders.delete(3)
        shop.orders.put(1, Order("c9", ["i0", "more"], "no1"))
        report = migrate(store, plan(store, Shop, new, **options), is_switched=True, backoff=NO_WAIT)
        assert report.is_settled, report
        # Why not what a run removes at its end, in one go: only the state has it then.
        end = clean_up_migration if ends == "cleaned up" else roll_back_migration
        end(store, plan(store, Shop, new, **options), backoff=NO_WAIT)
    looked_at = 0
    for commit in engine.commits:
        written = {one.key for one in commit.mutations if isinstance(one, Put | Delete)}
        if written and all(key.startswith(_MARK) for key in written):
            continue
        guarded = {guard_key(guard) for guard in commit.guards}
        assert written <= guarded, sorted(written - guarded)
        looked_at += any(key.startswith(_ORIGIN) for key in guarded)
    assert looked_at >= 3
