"""Stores for the tests of HEPnOS's API: in memory, and LMDB files without flushes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.apps import hepnos

Opened = Callable[..., hepnos.DataStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Opened]:
    """Open `name` below the test's folder with so many databases of each kind; closed at the end."""
    opened: list[hepnos.DataStore] = []

    def open_one(name: str = "store", **databases: int) -> hepnos.DataStore:
        store = hepnos.open(f"lmdb:{tmp_path}/{name}?durability=none", databases=databases or None)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store() -> Iterator[hepnos.DataStore]:
    """A store in memory with several databases of each kind."""
    counts = {"datasets": 2, "runs": 2, "subruns": 3, "events": 4, "products": 3}
    with hepnos.open("memory:", databases=counts) as opened:
        yield opened


@pytest.fixture
def dataset(store: hepnos.DataStore) -> hepnos.DataSet:
    """A data set of it."""
    return store.root.ensure("nova/2019")
