"""An engine on the shared server, empty, and what stands between an engine and its server."""

from collections.abc import Iterator

import pytest

from keyplan.engine.postgres import PostgresEngine
from tests.postgres.cutting import CuttingProxy
from tests.servers.postgres import PostgresServer


@pytest.fixture
def engine(postgres_server: PostgresServer) -> Iterator[PostgresEngine]:
    """The store `own`, empty."""
    with postgres_server.opened("own") as engine:
        postgres_server.emptied("own")
        yield engine


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    """A way to the shared server that can be cut."""
    with CuttingProxy(postgres_server.port) as proxy:
        yield proxy
