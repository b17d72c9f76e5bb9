"""The PostgreSQL engine on a real server, judged by the conformance suite."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import Engine, open_engine
from keyplan.testing.engine_suite import EngineSuite
from tests.servers.postgres import PostgresServer


@pytest.mark.engine
class TestPostgresEngine(EngineSuite):
    @pytest.fixture
    def url(self, postgres_server: PostgresServer) -> str:
        return postgres_server.url(schema=postgres_server.fresh_schema())

    @pytest.fixture
    def engine(self, url: str) -> Iterator[Engine]:
        with open_engine(url) as engine:
            yield engine

    @pytest.fixture
    def reopen(self, engine: Engine, url: str) -> Callable[[], Engine]:
        return lambda: (engine.close(), open_engine(url))[1]

    @pytest.fixture
    def other_process_url(self, url: str) -> str:
        return url
