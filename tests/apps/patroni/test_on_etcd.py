"""Broker, cells and router on a real etcd: the same conversation as on LMDB, over another engine."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import keyplan
from keyplan import Secret
from keyplan.apps.patroni import Broker, Cell, Member, MemberKey, NodeReport, OrderKey
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.registrar import Registrar
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route
from keyplan.engine import ALL_KEYS
from keyplan.store import Store
from tests.apps.patroni.conftest import Deployment, broker_server
from tests.apps.patroni.osb_platform import PAIR, TRIO, Platform
from tests.apps.patroni.paper_cell import PaperCells
from tests.servers.etcd import EtcdServer, why_no_etcd
from tests.servers.patroni import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_no_etcd() is not None, reason=f"needs etcd: {why_no_etcd()}"),
]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    """An etcd of this file's own: the layout's root is the store's."""
    with EtcdServer() as server:
        yield server


@pytest.fixture
def store(etcd: EtcdServer) -> Iterator[Store]:
    with keyplan.open(etcd.emptied().url) as store:
        yield store


@pytest.fixture
def deployed(etcd: EtcdServer, store: Store) -> Iterator[Deployment]:
    with (
        broker_server(etcd.url, "ports=33000-33009", "claim-seconds=2") as server,
        PaperCells(store, "n1", "n2", "n3"),
    ):
        yield Deployment(server, store, Broker(store), Platform(server.url))


def keys_left(store: Store) -> list[str]:
    with store.engine.snapshot() as snapshot:
        return [entry.key.decode() for entry in snapshot.scan(ALL_KEYS, keys_only=True)]


def test_an_instance_is_made_changed_moved_and_deleted(deployed: Deployment) -> None:
    platform, broker = deployed.platform, deployed.broker
    assert platform.provision("f1").status_code == 202
    assert platform.ended("f1") == {"state": "succeeded", "description": "done"}
    assert (broker.allocations.get("f1"), broker.next_port.peek()) == (33000, 33001)
    assert platform.update("f1", TRIO).status_code == 202
    assert platform.ended("f1")["state"] == "succeeded"
    assert sorted(cell for _, cell in broker.nodes.list("f1")) == ["n1", "n2", "n3"]
    assert platform.update("f1", TRIO, node_count=1).status_code == 202
    assert platform.ended("f1")["state"] == "succeeded"
    assert broker.nodes.count("f1") == 1
    assert platform.http.get("/admin/findings").json() == {"findings": []}
    assert platform.deprovision("f1", TRIO).status_code == 202
    assert platform.ended("f1")["state"] == "succeeded"
    until(lambda: not broker.claims.exists("f1"), 60, lambda: "the claim is given back")
    outliving = ("/_broker/operations", "/_broker/events/")
    assert [key for key in keys_left(deployed.store) if "/f1" in key and not key.startswith(outliving)] == []


def test_a_broker_killed_in_the_middle_is_followed_by_another(etcd: EtcdServer, store: Store) -> None:
    broker = Broker(store)
    with broker_server(etcd.url, "claim-seconds=2") as first, PaperCells(store, "n1", "n2", silent=("n1", "n2")):
        assert Platform(first.url).provision("f1", PAIR).status_code == 202
        until(lambda: broker.node_intents.count("f1") == 1, 60, lambda: "a node is ordered, and no cell answers")
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    with PaperCells(store, "n1", "n2") as cells, broker_server(etcd.url, "claim-seconds=2") as second:
        assert Platform(second.url).ended("f1")["state"] == "succeeded"
    assert set(cells.order_counts.values()) == {1}
    assert {key.node for key, _ in broker.nodes.list("f1")} == {key.node for key, _ in broker.orders.list()}


def test_allocators_of_several_clients_share_no_port_on_etcd(etcd: EtcdServer, store: Store) -> None:
    names = [f"i{number}" for number in range(24)]

    def allocated(part: int) -> list[int]:
        with keyplan.open(etcd.url) as own:
            return [PortAllocator(own).allocate(name) for name in names[part::3]]

    with ThreadPoolExecutor(3) as threads:
        ports = sorted(port for some in threads.map(allocated, range(3)) for port in some)
    assert ports == list(range(33000, 33024))
    assert Broker(store).next_port.peek() == 33024


class Board:
    """Remembers where ports lead."""

    def __init__(self) -> None:
        self.routes: Sequence[Route] = ()

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        self.routes = routes

    def stop(self) -> None:
        """There is nothing to end."""


def test_a_router_follows_leaders_and_a_returned_port_on_etcd(store: Store) -> None:
    broker, board = Broker(store), Board()
    router = Router(store, board)

    def leads_to(*routes: Route) -> None:
        def is_so() -> bool:
            router.step(0.2)
            return board.routes == routes

        until(is_so, 60, lambda: f"the router leads to {board.routes}")

    with store.lease(60) as lease:
        for name, port in (("a", 5001), ("b", 5002)):
            member = Member(role="replica", state="running", conn_url=Secret(f"postgres://10.0.0.1:{port}/postgres"))
            broker.members.put(MemberKey("f1", name), member, lease=lease)
        broker.allocations.put("f1", 33006)
        broker.leaders.put("f1", "a", lease=lease)
        try:
            leads_to(Route("f1", 33006, Leader("10.0.0.1", 5001)))
            broker.leaders.put("f1", "b", lease=lease)
            leads_to(Route("f1", 33006, Leader("10.0.0.1", 5002)))
            broker.leaders.delete("f1")
            leads_to(Route("f1", 33006, None))
            broker.allocations.delete("f1")
            leads_to()
        finally:
            router.close()


def test_what_a_cell_announces_on_etcd_goes_with_it_and_is_taken_up_by_the_next_agent(
    store: Store, tmp_path: Path
) -> None:
    broker = Broker(store)

    def registrar(lease_seconds: float) -> Registrar:
        return Registrar(store, "c1", Cell(), file=tmp_path / "lease", hostname="h", lease_seconds=lease_seconds)

    first = registrar(60)
    assert first.announce()
    first.report("n1", NodeReport(instance="f1", state="running"))
    first.register("n1", "10.0.0.1:5001")
    second = registrar(60)
    assert second.announce()
    second.end()
    until(lambda: not broker.cells.exists("c1"), 60, lambda: "the cell is there still")
    assert (broker.reports.get(OrderKey("c1", "n1")), list(broker.registrations.keys())) == (None, [])
