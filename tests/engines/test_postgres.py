"""The PostgreSQL engine on a real server, judged by the conformance suite."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import Engine
from keyplan.engine.postgres import PostgresEngine
from keyplan.testing.engine_suite import EngineSuite
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def opened(postgres_server: PostgresServer) -> Iterator[list[PostgresEngine]]:
    opened = [postgres_server.opened("judged")]
    yield opened
    opened[-1].close()


@pytest.mark.engine
class TestPostgresEngine(EngineSuite):
    @pytest.fixture
    def engine(self, opened: list[PostgresEngine], postgres_server: PostgresServer) -> Engine:
        # Why not one for each test: a server's new connection takes longer than most of the tests.
        if opened[-1].is_closed:
            opened.append(postgres_server.opened("judged"))
        postgres_server.emptied("judged", counts_on=True)
        return opened[-1]

    @pytest.fixture
    def pass_time(self, postgres_server: PostgresServer) -> Callable[[float], None]:
        return lambda seconds: postgres_server.age_leases("judged", seconds)

    @pytest.fixture
    def reopen(self, engine: Engine, postgres_server: PostgresServer) -> Callable[[], Engine]:
        return lambda: (engine.close(), postgres_server.opened("judged"))[1]

    @pytest.fixture
    def other_process_url(self, postgres_server: PostgresServer) -> str:
        return postgres_server.local_url(schema="judged")
