"""A store on each engine, whose indexes are checked when the test is over."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from keyplan.engine import Engine, open_engine
from keyplan.store import Store
from tests.servers.etcd import EtcdServer
from tests.servers.rebased import RebasedEngine
from tests.store.engines import Race, no_waiting
from tests.store.layouts import Site

CheckAfter = Callable[..., AbstractContextManager[Store]]


@pytest.fixture(params=["memory", "lmdb", "etcd"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An empty engine of each kind, at revision 0."""
    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd_server")
        return RebasedEngine(open_engine(server.emptied().url))
    return open_engine("memory:" if request.param == "memory" else f"lmdb:{tmp_path / 'store'}")


@pytest.fixture
def race(opened: Engine) -> Race:
    """The engine of `store`: it lets another writer come between a transaction and its commit."""
    return Race(opened)


@pytest.fixture
def store(race: Race, check_after: CheckAfter) -> Iterator[Store]:
    with check_after(Store(race, backoff=no_waiting()), Site) as store:
        yield store


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)
