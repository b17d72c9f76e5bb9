"""The fixtures of tests/store, with the asynchronous store in the place of the synchronous one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, open_engine
from keyplan.store import Store, open_store
from tests.aio.twin import TwinStore
from tests.servers.etcd import EtcdServer
from tests.store.engines import Race, no_waiting
from tests.store.layouts import Site

CheckAfter = Callable[..., AbstractContextManager[Store]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, of the scenarios, those that open stores of their own: they would be run twice, and be about the same."""
    outside = [item for item in items if item.path.name.startswith("test_scenarios") and not _uses_store(item)]
    if outside:
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if item not in outside]


def _uses_store(item: pytest.Item) -> bool:
    return "store" in getattr(item, "fixturenames", ())


@pytest.fixture(params=["memory", "lmdb", "lmdb-inline"])
def kind(request: pytest.FixtureRequest) -> str:
    """The engine, and whether reads are made on the loop."""
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path) -> str:
    return "memory:" if kind == "memory" else f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def race(url: str) -> Race:
    return Race(open_engine(url))


@pytest.fixture
def store(kind: str, race: Race, check_after: CheckAfter) -> Iterator[Store]:
    twin = TwinStore(race, backoff=no_waiting(), inline_reads=kind == "lmdb-inline")
    with check_after(twin, Site) as store:
        yield store


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)


@pytest.fixture(params=["memory", "lmdb", "etcd"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory:{tmp_path.name}"
    if request.param == "lmdb":
        return f"lmdb:{tmp_path / 'store'}"
    server: EtcdServer = request.getfixturevalue("etcd_server")
    with open_store(server.url) as store:
        store.engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    return server.url
