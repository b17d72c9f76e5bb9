"""A store on each engine, whose indexes are checked when the test is over."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from keyplan.engine import open_engine
from keyplan.store import Store
from tests.store.engines import Race, no_waiting
from tests.store.layouts import Site

CheckAfter = Callable[..., AbstractContextManager[Store]]


@pytest.fixture(params=["memory", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def race(url: str) -> Race:
    """The engine of `store`: it lets another writer come between a transaction and its commit."""
    return Race(open_engine(url))


@pytest.fixture
def store(race: Race, check_after: CheckAfter) -> Iterator[Store]:
    with check_after(Store(race, backoff=no_waiting()), Site) as store:
        yield store


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)
