"""A HEPnOS store in a key space: the document's keys below its prefix, fenced with it, and in a ring of several stores."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.examine import examine
from keyplan.apps.hepnos.extent import extents
from keyplan.apps.hepnos.shares import keyspace_in
from keyplan.engine import ALL_KEYS, open_engine
from keyplan.errors import (
    InvalidInputError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceNotFoundError,
    OwnerMismatchError,
)
from keyplan.keyspace import KeySpaces, open_keyspace_url
from tests.apps.hepnos.served import HepnosServer


def fill(store: hepnos.DataStore) -> hepnos.DataSet:
    dataset = store.root.ensure("nova/nd")
    dataset.create_items(np.arange(30) // 10, np.arange(30) // 5, np.arange(30))
    dataset.runs[2].subruns[5].events[29].store("x", 4.5)
    return dataset


@pytest.fixture(params=["memory:{}", "lmdb:{}/one?durability=none", "lmdb:{}/one?durability=none&history=off"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that has a registry."""
    url = request.param.format(tmp_path)
    with open_engine(url) as engine:
        KeySpaces(engine).create("another", application="somebody")
        yield url


def in_keyspace(url: str, name: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}keyspace={name}"


def test_a_store_in_a_key_space_has_the_keys_of_the_document_below_its_prefix(url: str) -> None:
    with pytest.raises(KeySpaceNotFoundError):
        hepnos.open(in_keyspace(url, "nova"), create=False)
    with pytest.raises(OwnerMismatchError):
        hepnos.open(in_keyspace(url, "another"))
    with hepnos.open(in_keyspace(url, "nova"), databases={"events": 2}) as store:
        dataset = fill(store)
        assert {extent.disk_bytes for extent in extents(store)} == {None}
        store.queues.create("q", int)
    with hepnos.open_at(store.address) as again:
        assert again.counts()["events"] == 2
        assert again["nova/nd"].runs[2].subruns[5].events[29].load("x", float) == 4.5
        assert (again.queues.names(), list(examine(again))) == ([("q", "int64")], [])
    with open_engine(url) as engine, engine.snapshot() as snapshot:
        prefix = KeySpaces(engine).get("nova").raw_prefix
        keys = [key for key in snapshot.keys(ALL_KEYS) if key.startswith(prefix)]
        assert snapshot.value(prefix + b"datasets.0/\x01nova/nd") == dataset.uuid.bytes
        events = [key for key in keys if key[len(prefix) :].startswith(b"events.")]
        numbers = b"".join(number.to_bytes(8, "big") for number in (2, 5, 29))
        assert sum(key.endswith(b"/" + dataset.uuid.bytes + numbers) for key in events) == 1


def test_a_key_space_that_is_deleted_takes_its_store_along_and_leaves_the_others(url: str) -> None:
    with hepnos.open(in_keyspace(url, "kept")) as kept, open_engine(url) as engine:
        with hepnos.open(in_keyspace(url, "nova")) as store:
            dataset = fill(store)
            fill(kept)
            KeySpaces(engine).delete("nova")
            for act in (lambda: dataset.create_run(7), lambda: list(dataset.runs), lambda: dataset.create_items([1])):
                with pytest.raises((KeySpaceDeletingError, KeySpaceDeletedError)):
                    act()
        assert kept["nova/nd"].events().count() == 30


def test_a_ring_of_several_stores_has_a_key_space_in_each(tmp_path: Path) -> None:
    urls = [in_keyspace(f"lmdb:{tmp_path}/{name}?durability=none", "nova") for name in "ab"]
    for each in urls:
        with open_engine(keyspace_in(each)[0]) as engine:
            KeySpaces(engine).create("nova", application="hepnos")
    databases = {kind.value: urls for kind in hepnos.Kind}
    with hepnos.open_databases(databases) as store:
        dataset = fill(store)
    with hepnos.open_databases(databases) as again:
        assert again["nova/nd"].events().count() == 30
        again["nova/nd"].delete()
        with pytest.raises(hepnos.DeletedError):
            hepnos.DataSet(again, "nova/nd", dataset.uuid).runs.count()
        assert list(examine(again)) == []


def test_a_server_serves_a_key_space(tmp_path: Path) -> None:
    plain = f"lmdb:{tmp_path}/one?durability=none"
    with open_keyspace_url(plain, keyspace="nova", application="hepnos", create_if_missing=True):
        pass
    with HepnosServer({"store": in_keyspace(plain, "nova")}) as server, hepnos.open(server.url) as store:
        assert fill(store).events().count() == 30


def test_a_url_names_one_key_space() -> None:
    assert keyspace_in("etcd://h:1?a=1&keyspace=no%20va&b=2") == ("etcd://h:1?a=1&b=2", "no va")
    assert keyspace_in("memory:x?keyspace=n") == ("memory:x", "n")
    for wrong in ("memory:x?keyspace=", "memory:x?keyspace=a&keyspace=b"):
        with pytest.raises(InvalidInputError):
            keyspace_in(wrong)
