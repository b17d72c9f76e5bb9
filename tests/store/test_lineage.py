"""A store that went back, and a store in the place of another one: what tokens, transactions and follows make of it."""

from collections.abc import Iterator

import pytest

from keyplan.engine import (
    Commit,
    Engine,
    Entry,
    KeyRange,
    Lineage,
    MemoryEngine,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import (
    CommitConflictError,
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidPageTokenError,
    InvalidWatchTokenError,
)
from keyplan.store import Store
from tests.store.engines import no_waiting
from tests.store.layouts import Rack, Site


class Cluster(WrappedEngine):
    """An engine that does not count its revisions itself, so that they come again in another epoch."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.store_id = self.inner.lineage().store
        self.epoch = "1"
        self.failing_scans = 0

    def restore(self, *other: Engine) -> None:
        """Go back to an empty store, or to the state of another engine."""
        self.inner = other[0] if other else MemoryEngine()
        self.epoch = str(int(self.epoch) + 1)

    def lineage(self) -> Lineage:
        return Lineage(self.store_id, self.epoch)

    def snapshot(self) -> Snapshot:
        return _Snapshot(self.inner.snapshot(), self, self.epoch)

    def commit(self, commit: Commit) -> int:
        if commit.epoch not in ("", self.epoch):
            raise CommitConflictError(failed=())
        return self.inner.commit(commit)


class _Snapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, cluster: Cluster, epoch: str) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._epoch = epoch

    @property
    def epoch(self) -> str:
        return self._epoch

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        for number, entry in enumerate(super().scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)):
            if number == 300 and self._cluster.failing_scans:
                self._cluster.failing_scans -= 1
                raise EngineUnavailableError(engine="cluster", problem="the connection broke")
            yield entry


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(cluster: Cluster) -> Site:
    return Site(Store(cluster, backoff=no_waiting()))


def test_a_watch_token_is_good_for_one_store(site: Site) -> None:
    site.racks.insert("r1", Rack("hall"))
    with site.racks.watch() as changes:
        token = changes.token
    other = Site(Store(MemoryEngine()))
    other.racks.insert("r1", Rack("hall"))
    with pytest.raises(InvalidWatchTokenError, match="another store"):
        other.racks.watch(after=token)


def test_a_watch_token_from_before_is_told_that_history_is_gone(cluster: Cluster, site: Site) -> None:
    site.racks.insert("r1", Rack("hall"))
    with site.racks.watch(after=0) as changes:
        (change,) = changes.poll(1)
    cluster.restore()
    for number in range(5):
        site.racks.insert(f"r{number}", Rack("hall"))
    with pytest.raises(HistoryCompactedError, match="went back"):
        site.racks.watch(after=change.token)


def test_a_revision_that_the_store_has_not_reached_is_not_waited_for(site: Site) -> None:
    revision = site.racks.insert("r1", Rack("hall"))
    with pytest.raises(HistoryCompactedError, match="list again"):
        site.racks.watch(after=revision + 1)


def test_a_page_token_of_a_revision_that_was_lost_is_refused(cluster: Cluster, site: Site) -> None:
    for number in range(5):
        site.racks.insert(f"r{number}", Rack("hall"))
    page = site.racks.page(limit=2)
    cluster.restore()
    site.racks.insert("r0", Rack("hall"))
    with pytest.raises(InvalidPageTokenError, match="begin the list again"):
        site.racks.page(limit=2, token=page.next_token)


def test_a_transaction_of_one_epoch_is_not_committed_in_another(cluster: Cluster, site: Site) -> None:
    store = Store(cluster)
    site.racks.insert("r1", Rack("hall"))
    transaction = store.transaction()
    bound = Site(transaction)
    assert bound.racks.get("r1") == Rack("hall")
    bound.racks.put("r2", Rack("beside r1"))
    cluster.restore()
    Site(Store(cluster.inner)).racks.insert("r1", Rack("somebody else's, at the same revision"))
    with pytest.raises(CommitConflictError):
        transaction.commit()
    assert site.racks.get("r2") is None


def test_work_that_is_run_again_reads_the_new_epoch(cluster: Cluster, site: Site) -> None:
    store = Store(cluster, backoff=no_waiting())
    site.racks.insert("r1", Rack("hall", height=1))
    heights: list[int] = []

    def raise_it(transaction: object) -> None:
        bound = Site(transaction)  # type: ignore[arg-type]
        rack = bound.racks.require("r1")
        heights.append(rack.height)
        bound.racks.put("r1", Rack("hall", height=rack.height + 1))
        if len(heights) == 1:
            cluster.restore()
            Site(Store(cluster.inner)).racks.insert("r1", Rack("hall", height=10))

    store.run(raise_it)
    assert heights == [1, 10]
    assert site.racks.require("r1").height == 11


def test_a_follow_takes_no_revision_of_another_epoch_for_what_it_has_delivered(cluster: Cluster, site: Site) -> None:
    site.racks.insert("r1", Rack("before"))
    with site.racks.follow() as changes:
        assert [change.new for change in changes.poll(1)] == [Rack("before")]
        replaced = MemoryEngine()
        Site(Store(replaced)).racks.insert("r1", Rack("after"))
        replaced.compact(1)
        cluster.inner.compact(1)
        _end_watches(cluster)
        cluster.restore(replaced)
        assert [(change.key, change.new) for change in changes.poll(1)] == [("r1", Rack("after"))]


def _end_watches(cluster: Cluster) -> None:
    """Let the watches of the epoch find that their history is gone."""
    memory = cluster.inner
    assert isinstance(memory, MemoryEngine)
    memory.commit(Commit())
    memory._state.compacted = 99  # Why: as a watch of etcd finds it, whose revision is yet to come again.


def test_a_list_that_breaks_off_tells_nothing_as_removed(cluster: Cluster, site: Site) -> None:
    with Store(cluster).transaction() as transaction:
        for number in range(600):
            Site(transaction).racks.insert(f"r{number:03}", Rack("hall"))
    cluster.failing_scans = 1
    found: dict[str, str] = {}
    with site.racks.follow() as changes:
        while len(found) < 600:
            try:
                delivered = changes.poll(1)
            except EngineUnavailableError:
                continue
            assert delivered
            for change in delivered:
                assert change.kind.value == "inserted"
                assert found.setdefault(change.key, change.kind.value) == "inserted"
        assert changes.poll(0) == []
