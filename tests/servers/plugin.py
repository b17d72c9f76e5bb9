"""Fixtures of real servers. Each xdist worker has its own; a test without the server's program is skipped, with the reason."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from tests.servers.authority import Authority
from tests.servers.etcd import EtcdCluster, EtcdServer, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["authority", "etcd_program", "etcd_server", "own_servers", "postgres_program", "postgres_server"]

S = TypeVar("S", EtcdServer, EtcdCluster)


@pytest.fixture(scope="session")
def etcd_program() -> None:
    """Skip the test, saying why, where etcd cannot be started."""
    problem = why_no_etcd()
    if problem is not None:
        pytest.skip(f"needs etcd: {problem}")


@pytest.fixture(scope="session")
def etcd_server(etcd_program: None) -> Iterator[EtcdServer]:
    """One node for the whole run. It is shared: a test that needs it empty empties it, and leaves it running."""
    with EtcdServer() as server:
        yield server


@pytest.fixture
def own_servers(etcd_program: None) -> Iterator[Callable[[Any], Any]]:
    """A function that starts a server or a cluster of the test's own, and removes it after the test.

    As in `cluster = own_servers(EtcdCluster())`.
    """
    with ExitStack() as stack:

        def started(server: S) -> S:
            stack.enter_context(server)
            return server

        yield started


@pytest.fixture(scope="session")
def postgres_program() -> None:
    """Skip the test, saying why, where PostgreSQL cannot be started."""
    problem = why_no_postgres()
    if problem is not None:
        pytest.skip(f"needs PostgreSQL: {problem}")


@pytest.fixture(scope="session")
def postgres_server(postgres_program: None) -> Iterator[PostgresServer]:
    """One server for the whole run. It is shared: each test has a schema of its own in it, and leaves it running."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Certificates for a server on this machine and for its clients."""
    return Authority.create(tmp_path_factory.mktemp("authority"))
