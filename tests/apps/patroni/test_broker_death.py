"""Operations survive their broker: killed in the middle, another one goes on, and nothing is made twice."""

import os
import signal
from pathlib import Path

import pytest

from keyplan.apps.patroni import Broker, Claim
from keyplan.store import Store, open_store
from keyplan.testing.checked import check_after
from tests.apps.patroni.conftest import broker_server
from tests.apps.patroni.osb_platform import PAIR, Platform
from tests.apps.patroni.paper_cell import PaperCells
from tests.servers.patroni import until

pytestmark = pytest.mark.slow


def check_finished(store: Store, platform: Platform, cells: PaperCells) -> None:
    broker = Broker(store)
    assert platform.ended("f1")["state"] == "succeeded"
    nodes = {key.node for key, _ in broker.nodes.list("f1")}
    assert len(nodes) == 2
    assert nodes == {key.member for key, _ in broker.members.list("f1")}
    assert {key.node for key, _ in broker.orders.list()} == nodes
    assert set(cells.order_counts.values()) == {1}
    assert broker.allocations.get("f1") == 33000
    assert broker.next_port.peek() == 33001


def test_a_broker_killed_in_the_middle_of_a_provision_is_followed_by_another(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with check_after(open_store(url), Broker) as store:
        broker = Broker(store)
        idle = PaperCells(store, "n1", "n2", silent=("n1", "n2"))
        with broker_server(url, "claim-seconds=1", "cell-seconds=60") as first, idle:
            assert Platform(first.url).provision("f1").status_code == 202
            until(lambda: broker.node_intents.count("f1") == 1, 60, lambda: "a node is ordered, and no cell answers")
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait()
            assert broker.operations.require("f1").completed_steps == 0
            with broker_server(url, "claim-seconds=1") as second:
                working = PaperCells(store, "n1", "n2")
                with working:
                    check_finished(store, Platform(second.url), working)


def test_a_broker_that_stops_gives_its_claim_back(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with check_after(open_store(url), Broker) as store:
        broker = Broker(store)
        with broker_server(url, "claim-seconds=60") as first, PaperCells(store, "n1", "n2", silent=("n1", "n2")):
            assert Platform(first.url).provision("f1").status_code == 202
            until(lambda: broker.claims.exists("f1"), 60, lambda: "a broker works on it")
            assert first.stop() == 0
            assert not broker.claims.exists("f1")


def test_two_brokers_of_a_store_make_no_node_twice(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with (
        check_after(open_store(url), Broker) as store,
        PaperCells(store, "n1", "n2") as cells,
        broker_server(url) as first,
        broker_server(url) as second,
    ):
        assert Platform(first.url).provision("f1").status_code == 202
        assert Platform(second.url).provision("f1").status_code in {200, 202}
        check_finished(store, Platform(second.url), cells)


def test_a_provision_that_is_deleted_stops_and_leaves_nothing(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with check_after(open_store(url), Broker) as store:
        broker = Broker(store)
        with broker_server(url, "cell-seconds=60") as server, PaperCells(store, "n1", "n2", silent=("n1", "n2")):
            platform = Platform(server.url)
            begun = platform.provision("f1").json()["operation"]
            until(lambda: broker.node_intents.count("f1") == 1, 60, lambda: "a node is ordered, and no cell answers")
            assert platform.update("f1", PAIR, node_count=1).json()["error"] == "ConcurrencyError"
            assert platform.bind("f1", "b1").json()["error"] == "ConcurrencyError"
            assert platform.deprovision("f1").status_code == 202
            assert platform.provision("f1").json()["error"] == "ConcurrencyError"
            assert platform.ended("f1") == {"state": "succeeded", "description": "deleted"}
            assert platform.last("f1", begun).status_code == 404
            assert [broker.node_intents.count(), broker.allocations.count()] == [0, 0]
            # A silent cell may have begun the node: what is left is the order to remove it.
            assert [order.remove for _, order in broker.orders.list()] == [True]
            assert not broker.instances.exists("f1")


def test_work_without_the_claim_writes_nothing(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with (
        check_after(open_store(url), Broker) as store,
        PaperCells(store, "n1", "n2", silent=("n1", "n2")),
        store.lease(60) as lease,
    ):
        broker = Broker(store)
        with broker_server(url, "cell-seconds=1") as server:
            platform = Platform(server.url)
            assert platform.provision("f1").status_code == 202
            until(lambda: broker.node_intents.count("f1") == 1, 60, lambda: "a node is ordered")
            before = broker.operations.require("f1")
            broker.claims.put("f1", Claim(broker="another", operation=before.id), lease=lease)
            log = "an operation was taken over or replaced"
            until(lambda: log in server.log, 60, lambda: "the broker notices at its next commit")
            assert broker.operations.require("f1") == before
            assert broker.claims.require("f1").broker == "another"
