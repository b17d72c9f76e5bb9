"""What passes a commit on, or makes one of another's parts, keeps the epoch that its guards are of."""

from keyplan.apps.cloudchamber import CloudChamber
from keyplan.apps.cloudchamber.indexed import store_for_writing
from keyplan.apps.hepnos import remote
from keyplan.engine import (
    Commit,
    KeyAbsent,
    MemoryEngine,
    PrefixedSnapshot,
    Put,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.engine.lmdb.snapshot import LmdbSnapshot
from keyplan.engine.postgres.snapshot import PostgresSnapshot
from keyplan.keyspace import Founding, KeySpaces, open_key_space
from keyplan.store import Store
from tests.store.layouts import Rack, Site


class _Epoch(WrappedSnapshot):
    @property
    def epoch(self) -> str:
        return "of the snapshot"


class _Commits(WrappedEngine):
    """An engine whose snapshots are of an epoch, and which keeps the epochs of its commits."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.epochs: list[str] = []

    def snapshot(self) -> Snapshot:
        return _Epoch(self.inner.snapshot())

    def commit(self, commit: Commit) -> int:
        self.epochs.append(commit.epoch)
        return self.inner.commit(Commit(commit.guards, commit.mutations))


def test_a_writer_that_keeps_no_indexes_passes_the_epoch_on() -> None:
    engine = _Commits()
    writer = store_for_writing(Store(engine), "", CloudChamber)
    writer.engine.commit(Commit((KeyAbsent(b"k"),), (Put(b"k", b"v"),), "of the caller"))
    assert engine.epochs == ["of the caller"]


def test_an_act_of_the_registry_is_of_the_epoch_that_it_read() -> None:
    engine = _Commits()
    registry = KeySpaces(engine, founding=Founding(prefix_codec="uvarint", profile="none"))
    registry.ensure("busy", "shop")
    engine.epochs.clear()
    registry.disable("busy")
    assert engine.epochs == ["of the snapshot"]


def test_a_snapshot_of_a_key_space_is_of_the_epoch_of_the_store() -> None:
    engine = _Commits()
    registry = KeySpaces(engine, founding=Founding(prefix_codec="uvarint", profile="none"))
    registry.ensure("busy", "shop")
    with open_key_space(engine, "busy", "shop", session_seconds=None) as store:
        engine.epochs.clear()
        with store.engine.snapshot() as snapshot:
            assert snapshot.epoch == "of the snapshot"
        with store.transaction() as transaction:
            site = Site(transaction)
            assert site.racks.get("r1") is None
            site.racks.insert("r1", Rack("hall"))
    assert engine.epochs == ["of the snapshot"]


def test_every_snapshot_tells_its_epoch_unless_its_engine_has_none() -> None:
    leaping = {LmdbSnapshot, PostgresSnapshot, type(MemoryEngine().snapshot())}
    without_revisions = {remote._RemoteSnapshot}
    silent = {
        snapshot
        for snapshot in Snapshot.__subclasses__()
        if snapshot.__module__.startswith("keyplan.") and "epoch" not in vars(snapshot)
    }
    assert silent <= leaping | without_revisions
    assert PrefixedSnapshot in Snapshot.__subclasses__()
