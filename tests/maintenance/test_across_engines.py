"""Backups, restores and copies between LMDB and a real etcd, and PD's metadata in one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, KeyRange, Put, open_engine
from keyplan.errors import EngineLimitError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaces, State
from keyplan.maintenance import (
    back_up_key_spaces,
    check,
    clean_up_migration,
    copy_store,
    migrate,
    plan_migration,
    restore_key_spaces,
    restore_store,
)
from keyplan.regions import import_spaces
from keyplan.store import Store
from tests.maintenance.backups import content_of, filled, put_all, write_backup
from tests.maintenance.evolving import Box, Moved, Old, Shelf, fill
from tests.regions.test_metadata import CONTENT as PD_CONTENT
from tests.servers.etcd import EtcdServer

CONTENT = {b"/site/%04d" % number: b"v" * (number % 300) for number in range(700)}


@pytest.fixture
def etcd(etcd_server: EtcdServer) -> Iterator[Engine]:
    """An etcd that is empty before and after."""
    with open_engine(etcd_server.url) as engine:
        engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
        yield engine
        engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))


@pytest.fixture
def lmdb(tmp_path: Path) -> Iterator[Engine]:
    with filled(f"lmdb:{tmp_path}/site.kv", CONTENT) as engine:
        yield engine


def test_a_store_goes_to_etcd_and_back(lmdb: Engine, etcd: Engine, tmp_path: Path) -> None:
    there = copy_store(lmdb, etcd, source_name="site")
    assert content_of(etcd) == CONTENT
    with open_engine(f"lmdb:{tmp_path}/back.kv") as back:
        again = copy_store(etcd, back, source_name="etcd")
        assert content_of(back) == CONTENT
    assert there.tally == again.tally


def test_a_backup_of_lmdb_comes_back_on_etcd(lmdb: Engine, etcd: Engine, tmp_path: Path) -> None:
    restore_store(etcd, write_backup(lmdb, tmp_path / "site.kpb"))
    assert content_of(etcd) == CONTENT
    with open_engine("memory:") as memory:
        restore_store(memory, write_backup(etcd, tmp_path / "etcd.kpb"))
        assert content_of(memory) == CONTENT


def test_a_key_space_moves_to_etcd_with_its_registry_entry(lmdb: Engine, etcd: Engine, tmp_path: Path) -> None:
    spaces = KeySpaces(lmdb)
    spaces.create("orders", "shop")
    put_all(lmdb, {b"\x01" + key: value for key, value in CONTENT.items()})
    path = tmp_path / "orders.kpb"
    with new_file(path) as file:
        back_up_key_spaces(lmdb, file)
    restore_key_spaces(etcd, path)
    assert KeySpaces(etcd).get("orders").state is State.ENABLED
    assert content_of(etcd, KeyRange.of_prefix(b"\x01")) == {b"\x01" + key: value for key, value in CONTENT.items()}
    assert KeySpaces(etcd).diagnose().faults == []


def test_a_value_that_etcd_cannot_hold_is_told_before_anything_is_written(lmdb: Engine, etcd: Engine) -> None:
    lmdb.commit(Commit((), (Put(b"/site/large", bytes(2 << 20)),)))
    with pytest.raises(EngineLimitError) as raised:
        copy_store(lmdb, etcd, source_name="site")
    assert raised.value.facts["raw_key"] == b"/site/large".hex()
    assert content_of(etcd) == {}


def test_a_value_just_below_etcds_limit_is_copied(lmdb: Engine, etcd: Engine) -> None:
    bytes_max = etcd.profile.value_bytes_max or etcd.profile.commit_bytes_max
    assert bytes_max is not None
    lmdb.commit(Commit((), (Put(b"/site/large", bytes(bytes_max - 2048)),)))
    copy_store(lmdb, etcd, source_name="site")
    assert content_of(etcd) == content_of(lmdb)


def test_key_spaces_of_pd_are_imported_from_etcd(etcd: Engine) -> None:
    put_all(etcd, PD_CONTENT)
    imported = import_spaces(etcd)
    assert [(space.name, space.number) for space in imported.spaces] == [("DEFAULT", 0), ("foo", 1), ("bar", 10)]
    assert imported.problems == ()


def test_a_migration_keeps_to_the_limits_of_etcd(etcd: Engine) -> None:
    store = Store(etcd)
    fill(store, 120)
    steps = plan_migration(etcd, Old.bound(), Moved.bound())
    assert migrate(store, steps).counts == {"copied": 120}
    Old(store).boxes.put(Shelf("a", 7), Box("late"))
    assert migrate(store, steps, is_switched=True).is_settled
    assert clean_up_migration(store, steps).is_cleaned
    assert Moved(store).boxes.count() == 120
    assert Moved(store).by_name.key_of("late") == Shelf("a", 7)
    assert list(check(store, Moved(store))) == []
