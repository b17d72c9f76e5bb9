"""An etcd that went back: restored from a snapshot under the same cluster id, as `etcdctl snapshot restore` does by default."""

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial

import pytest

import keyplan.aio
from keyplan.engine import ALL_KEYS, Commit, Engine, KeyAbsent, KeyRange, Put, RangeUnchanged, open_engine
from keyplan.errors import CommitConflictError, EngineUnavailableError, HistoryCompactedError, StaleRecordError
from keyplan.store import Store
from tests.aio import layouts as halls
from tests.servers.etcd import EtcdServer
from tests.store.layouts import Rack, Site


def put(engine: Engine, key: bytes, value: bytes = b"") -> int:
    return engine.commit(Commit((), (Put(key, value),)))


class Restorable:
    """An etcd of its own, with a snapshot that can be put back."""

    def __init__(self, server: EtcdServer) -> None:
        self.server = server
        self.snapshot = server.folder / "snapshot"

    def keep(self) -> None:
        self.server.etcdctl("snapshot", "save", str(self.snapshot))

    def put_back(self, *, token: str | None = None) -> None:
        """Stop the server, restore the snapshot in its place, and start. With another token, under another cluster id."""
        self.server.stop()
        data = self.server.folder / "data"
        shutil.rmtree(data)
        self.server.etcdctl(
            "snapshot", "restore", str(self.snapshot), "--name", self.server.name, "--data-dir", str(data),
            "--initial-cluster", f"{self.server.name}={self.server.peer_url}",
            "--initial-advertise-peer-urls", self.server.peer_url,
            "--initial-cluster-token", token or self.server.folder.name,
        )  # fmt: skip
        self.server.start()


@pytest.fixture
def restorable() -> Iterator[Restorable]:
    with EtcdServer(name="restored") as server:
        yield Restorable(server)


@pytest.fixture
def engine(restorable: Restorable) -> Iterator[Engine]:
    with open_engine(restorable.server.url) as engine:
        yield engine


def test_engines_of_one_cluster_tell_one_lineage(restorable: Restorable, engine: Engine) -> None:
    with open_engine(restorable.server.url) as other:
        put(engine, b"a")
        assert other.lineage() == engine.lineage()


@pytest.mark.parametrize("token", [None, "another"], ids=["the same cluster id", "another cluster id"])
def test_what_was_read_before_is_no_premise_after(restorable: Restorable, engine: Engine, token: str | None) -> None:
    put(engine, b"a", b"1")
    restorable.keep()
    put(engine, b"a", b"2")
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"a")
        revision, epoch = snapshot.revision, snapshot.epoch
    before = engine.lineage()
    restorable.put_back(token=token)
    # The range has the same keys, and none that was written after the revision that was read: only the epoch tells.
    guard = RangeUnchanged(KeyRange(b"a", b"b"), revision, (b"a",))
    with pytest.raises(CommitConflictError):
        engine.commit(Commit((guard,), (Put(b"sum", b"2"),), epoch))
    assert engine.lineage().epoch != before.epoch
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"sum") is None
        epoch = snapshot.epoch
    engine.commit(Commit((KeyAbsent(b"sum"),), (Put(b"sum", b"1"),), epoch))


@pytest.mark.parametrize("token", [None, "another"], ids=["the same cluster id", "another cluster id"])
def test_a_watch_is_told(restorable: Restorable, engine: Engine, token: str | None) -> None:
    restorable.keep()
    for number in range(5):
        put(engine, b"a", b"%d" % number)
    with engine.snapshot() as snapshot:
        watch = engine.watch(ALL_KEYS, after=snapshot.revision)
    restorable.put_back(token=token)
    with pytest.raises(HistoryCompactedError):
        watch.poll(30)
    watch.close()


def test_a_watch_is_told_by_what_another_call_has_noticed(restorable: Restorable, engine: Engine) -> None:
    restorable.keep()
    for number in range(5):
        put(engine, b"a", b"%d" % number)
    with engine.snapshot() as snapshot:
        watch = engine.watch(ALL_KEYS, after=snapshot.revision)
    restorable.put_back()
    for number in range(10):
        put(engine, b"b", b"%d" % number)
    with pytest.raises(HistoryCompactedError):
        watch.poll(30)
    watch.close()


def test_a_snapshot_from_before_cannot_be_read(restorable: Restorable, engine: Engine) -> None:
    restorable.keep()
    put(engine, b"a")
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"a")
        restorable.put_back()
        with pytest.raises(EngineUnavailableError, match="read again"):
            list(snapshot.scan(ALL_KEYS))


def test_a_restart_is_no_going_back(restorable: Restorable, engine: Engine) -> None:
    revision = put(engine, b"a")
    before = engine.lineage()
    watch = engine.watch(ALL_KEYS, after=revision)
    restorable.server.restart()
    put(engine, b"b")
    assert [event.key for event in watch.poll(30)] == [b"b"]
    assert engine.lineage() == before
    watch.close()


@pytest.mark.parametrize(
    ("token", "has_noticed"),
    # Why not the fourth: under the same id, it must have looked before the revision was reached again.
    [(None, True), ("another", True), ("another", False)],
    ids=["the same cluster id, noticed", "another cluster id, noticed", "another cluster id, unnoticed"],
)
def test_a_record_that_was_read_before_is_not_expected_after(
    restorable: Restorable, engine: Engine, token: str | None, *, has_noticed: bool
) -> None:
    site = Site(Store(engine))
    site.racks.insert("r1", Rack("hall"))
    restorable.keep()
    site.racks.put("r1", Rack("seen"))
    seen = site.racks.versioned("r1")
    assert seen is not None
    restorable.put_back(token=token)
    if has_noticed:
        assert not site.racks.exists("r2")
        assert engine.lineage().epoch != seen.epoch
    with open_engine(
        restorable.server.url
    ) as other:  # it has never seen what was lost, and writes at the same revision
        assert Site(Store(other)).racks.put("r1", Rack("another's")) == seen.revision
    with pytest.raises(StaleRecordError, match="went back"):
        site.racks.put("r1", Rack("lost update"), expected_revision=seen)
    assert site.racks.require("r1").room == "another's"
    site.racks.put("r1", Rack("after"), expected_revision=site.racks.versioned("r1"))


def test_an_awaited_writer_expects_what_it_read_in_its_epoch(restorable: Restorable) -> None:
    async def scenario() -> None:
        async with await keyplan.aio.open(restorable.server.url) as store:
            hall = halls.Hall(store)
            await hall.racks.insert("r1", halls.Rack("hall"))
            restorable.keep()
            await hall.racks.put("r1", halls.Rack("seen"))
            seen = await hall.racks.versioned("r1")
            assert seen is not None
            await asyncio.to_thread(partial(restorable.put_back, token="another"))
            with open_engine(restorable.server.url) as other:
                assert halls.Hall(Store(other)).racks.put("r1", halls.Rack("another's")) == seen.revision
            with pytest.raises(StaleRecordError, match="went back"):
                await hall.racks.put("r1", halls.Rack("lost update"), expected_revision=seen)
            assert (await hall.racks.require("r1")).room == "another's"

    halls.run(scenario)
