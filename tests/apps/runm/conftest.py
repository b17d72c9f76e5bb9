"""A served deployment on LMDB: the server in this process, clients over real channels, the store raw."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import keyplan
from keyplan.apps.runm import Runm
from keyplan.apps.runm.deployment import Deployment, Rulings
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.start import ensure_started
from keyplan.engine import ALL_KEYS, Commit, DeleteRange, KeyRange, open_engine
from keyplan.store import Store
from tests.apps.runm.client import EAST, WEST, Client
from tests.servers.etcd import EtcdServer

ROOT = b"runm/metadata/"


class Served(NamedTuple):
    """A running service."""

    store: Store
    deployment: Deployment
    address: str
    client: Client
    api: Client

    def dump(self) -> dict[str, bytes]:
        """Every key below the root, without it, with its value."""
        with self.store.engine.snapshot() as snapshot:
            found = snapshot.scan(KeyRange.of_prefix(ROOT))
            return {entry.key.removeprefix(ROOT).decode(): entry.value for entry in found}

    def with_partitions(self) -> "Served":
        """The document's two partitions."""
        self.client.partition_create(partition={"uuid": EAST, "name": "us-east.example.com"})
        self.client.partition_create(partition={"uuid": WEST, "name": "us-west.example.com"})
        return self


@contextmanager
def served(store: Store, rulings: Rulings | None = None) -> Iterator[Served]:
    """Start what there is to start, and serve the store on a free port."""
    deployment = Deployment(store, rulings=rulings or Rulings())
    ensure_started(deployment)
    with serving(deployment, Listening(("127.0.0.1:0",))) as running:
        (address,) = running.addresses
        client, api = Client(address), Client(address, "RunmAPI")
        try:
            yield Served(store, deployment, address, client, api)
        finally:
            client.close()
            api.close()


@pytest.fixture(params=["lmdb", "etcd"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store on each engine."""
    if request.param == "lmdb":
        return f"lmdb:{tmp_path / 'runm'}?durability=none"
    server: EtcdServer = request.getfixturevalue("etcd_server")
    with open_engine(server.url) as engine:
        engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    return server.url


@pytest.fixture
def store(store_url: str, check_after: Callable[..., AbstractContextManager[Store]]) -> Generator[Store, None, None]:
    with keyplan.open(store_url) as opened, check_after(opened, Runm(opened), has_others=True):
        yield opened


@pytest.fixture
def lmdb_store(tmp_path: Path) -> Generator[Store, None, None]:
    """A store on LMDB alone, for what has nothing to do with the engine."""
    with keyplan.open(f"lmdb:{tmp_path / 'only'}?durability=none") as opened:
        yield opened


@pytest.fixture
def empty(store: Store) -> Generator[Served, None, None]:
    """A service on an empty store."""
    with served(store) as running:
        yield running


@pytest.fixture
def west(empty: Served) -> Served:
    """A service with the document's two partitions."""
    return empty.with_partitions()
