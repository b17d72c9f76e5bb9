"""An engine on the shared server, empty."""

from collections.abc import Iterator

import pytest

from keyplan.engine import Engine, open_engine
from tests.servers.etcd import EtcdServer


@pytest.fixture
def etcd(etcd_server: EtcdServer) -> Iterator[Engine]:
    with open_engine(etcd_server.emptied().url) as engine:
        yield engine
