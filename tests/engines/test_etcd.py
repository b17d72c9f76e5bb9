"""The etcd engine on a real server, judged by the conformance suite."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, open_engine
from keyplan.testing.engine_suite import EngineSuite
from tests.servers.etcd import EtcdServer


@pytest.mark.engine
class TestEtcdEngine(EngineSuite):
    @pytest.fixture
    def engine(self, etcd_server: EtcdServer) -> Iterator[Engine]:
        with open_engine(etcd_server.url) as engine:
            engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
            yield engine

    @pytest.fixture
    def reopen(self, engine: Engine, etcd_server: EtcdServer) -> Callable[[], Engine]:
        return lambda: (engine.close(), open_engine(etcd_server.restart().url))[1]

    @pytest.fixture
    def other_process_url(self, etcd_server: EtcdServer) -> str:
        return etcd_server.url
