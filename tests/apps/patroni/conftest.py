"""A broker's server with cells of paper, on an LMDB store that is checked when a module's tests are over; and switchboards."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.router_agent import Switchboard
from keyplan.apps.patroni.router_forward import Forwarder
from keyplan.apps.patroni.router_haproxy import HAProxy, find_haproxy
from keyplan.store import Store, open_store
from keyplan.testing.checked import check_after
from tests.apps.patroni.greeters import Greeter
from tests.apps.patroni.osb_platform import ADMIN_TOKEN, Platform
from tests.apps.patroni.paper_cell import PaperCells
from tests.servers.keyplan_server import KeyplanServer


class Deployment(NamedTuple):
    """A server with a broker, its store, and a platform that asks it."""

    server: KeyplanServer
    store: Store
    broker: Broker
    platform: Platform


def broker_server(url: str, *settings: str) -> KeyplanServer:
    """A server with the broker; its settings as in `claim-seconds=2`."""
    words = [word for setting in settings for word in ("--setting", f"patroni-broker.{setting}")]
    return KeyplanServer(url, "--app", "patroni-broker", *words, environment={"KEYPLAN_ADMIN_TOKEN": ADMIN_TOKEN})


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A broker with four cells in two zones; the cell named zz-refusing refuses every node."""
    folder: Path = tmp_path_factory.mktemp("broker")
    url = f"lmdb:{folder}/store.kv"
    zones = {"n1": "z1", "n2": "z1", "n3": "z2", "n4": "z2"}
    with (
        open_store(url) as store,
        broker_server(url, "host=router.example", "ports=33000-33199") as server,
        PaperCells(store, "n1", "n2", "n3", "n4", "zz-refusing", zones=zones, refuses=("zz-refusing",)),
    ):
        yield Deployment(server, store, Broker(store), Platform(server.url))
    with check_after(open_store(url), Broker):
        pass


@pytest.fixture
def greeters() -> Iterator[tuple[Greeter, Greeter]]:
    both = Greeter(b"a"), Greeter(b"b")
    yield both
    for greeter in both:
        greeter.close()


@pytest.fixture(params=["haproxy", "forwarder"])
def switchboard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Switchboard]:
    board: Switchboard
    if request.param == "forwarder":
        board = Forwarder()
    else:
        program = find_haproxy()
        if program is None:
            pytest.skip("needs HAProxy: apt-get install haproxy")
        board = HAProxy(tmp_path / "haproxy", program=program, is_root=os.geteuid() == 0)
    yield board
    board.stop()


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[HAProxy]:
    program = find_haproxy()
    if program is None:
        pytest.skip("needs HAProxy: apt-get install haproxy")
    board = HAProxy(tmp_path / "haproxy", program=program, is_root=os.geteuid() == 0)
    yield board
    board.stop()
