"""An engine on the shared server, empty, and what stands between an engine and its server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres import PostgresEngine
from keyplan.engine.postgres.pool import Pool
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A block in which every call gives up after half a second. Why a block: what must succeed shall have all its time."""

    @contextmanager
    def block() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(Pool, "deadline", lambda _: SYSTEM_CLOCK.monotonic() + 0.5)
            yield

    return block
