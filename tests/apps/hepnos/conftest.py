"""Stores for the tests of HEPnOS's API, in memory and in LMDB files without flushes; each is examined when its test is over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.examine import examine

Opened = Callable[..., hepnos.DataStore]


def assert_sound(store: hepnos.DataStore, request: pytest.FixtureRequest) -> None:
    """Fail when the store has findings, but for those that the test's marker `leaves` names: records without their parents."""
    marker = request.node.get_closest_marker("leaves")
    assert {found.finding for found in examine(store)} <= (set() if marker is None else set(marker.args))


@pytest.fixture
def open_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Open `name` below the test's folder with so many databases of each kind; closed at the end, and examined."""
    opened: list[hepnos.DataStore] = []
    names: set[str] = set()

    def open_one(name: str = "store", **databases: int) -> hepnos.DataStore:
        store = hepnos.open(f"lmdb:{tmp_path}/{name}?durability=none", databases=databases or None)
        opened.append(store)
        names.add(name)
        return store

    yield open_one
    for store in opened:
        store.close()
    for name in sorted(names):
        with hepnos.open(f"lmdb:{tmp_path}/{name}") as store:
            assert_sound(store, request)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[hepnos.DataStore]:
    """A store in memory with several databases of each kind."""
    counts = {"datasets": 2, "runs": 2, "subruns": 3, "events": 4, "products": 3}
    with hepnos.open("memory:", databases=counts) as opened:
        yield opened
        assert_sound(opened, request)


@pytest.fixture
def dataset(store: hepnos.DataStore) -> hepnos.DataSet:
    """A data set of it."""
    return store.root.ensure("nova/2019")
