"""Clusters in a store whose secrets are sealed: who needs them has them in clear, and a lost key stops one cluster alone."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan import Secret, SecretKeys
from keyplan.apps.patroni import Broker, Credentials, InstanceState, NodeOrder, OrderKey
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.cell_reach import cell_store
from keyplan.apps.patroni.cluster_login import new_store_credentials, replace_logins, with_logins
from keyplan.apps.patroni.logins import LoginKind
from keyplan.apps.patroni.node_config import Gateway
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.principals import ClusterPrincipals
from keyplan.apps.patroni.site_callbacks import cluster_data_of
from keyplan.engine import MemoryEngine
from keyplan.store import Store
from tests.servers.patroni import until


def keys(*ids: str) -> SecretKeys:
    return SecretKeys({key_id: key_id.encode().ljust(32, b"-") for key_id in ids}, ids[0])


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


def made(store: Store, instance: str) -> InstanceState:
    secret = Credentials(username="postgres", password=Secret(f"super-{instance}"))
    login = new_store_credentials(instance)
    state = InstanceState(instance_id=instance, superuser_credentials=secret, store_credentials=login)
    Broker(store).instances.put(instance, state)
    stored = Broker(store).instances.require(instance)
    Broker(store).orders.put(OrderKey("c1", f"{instance}-n1"), with_logins(NodeOrder(instance=instance), stored))
    return state


def test_a_node_is_told_its_passwords_in_clear_and_one_of_an_unknown_key_stops_no_other(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    store = Store(engine, secrets=keys("k1"))
    state = made(store, "f1")
    made(Store(engine, secrets=keys("k2")), "f2")
    script = tmp_path / "sleeper.py"
    script.write_text("import time\ntime.sleep(600)\n")
    settings = CellSettings(name="c1", folder=tmp_path / "cell", gateway=Gateway("127.0.0.1:1"))
    agent = CellAgent(
        cell_store(store, "c1", hostname="localhost"), settings, Host(Path("/usr/bin"), sys.executable, script)
    )
    agent.open()
    try:
        file = tmp_path / "cell" / "nodes" / "f1-n1" / "patroni.yml"

        def password() -> str:
            agent.step(0.02)
            return str(json.loads(file.read_text())["etcd3"]["password"]) if file.exists() else ""

        until(lambda: password() == state.store_credentials.password.reveal(), 30, lambda: "the node is told its token")
        told = json.loads(file.read_text())["postgresql"]["authentication"]["superuser"]
        assert told == {"username": "postgres", "password": "super-f1"}
        plan = json.loads(file.with_name("node.json").read_text())
        assert plan["superuser"]["password"] == "super-f1", "the next agent reads it without the store"
        report = Broker(store).reports.require(OrderKey("c1", "f2-n1"))
        assert (report.state, "k2" in report.message) == ("failed", True)
        assert [node.plan.node for node in agent.nodes] == ["f1-n1"]
    finally:
        for node in agent.nodes:
            node.kill()
        agent.close()
        until(lambda: all(node.process is None for node in agent.nodes), 30, lambda: "its processes have ended")


def test_a_server_knows_clusters_by_tokens_that_are_sealed_and_goes_on_beside_an_unknown_key(
    engine: MemoryEngine,
) -> None:
    store = Store(engine, secrets=keys("k1"))
    made(Store(engine, secrets=keys("k2")), "f0")
    made(store, "f1")
    principals = ClusterPrincipals(store)
    principals.start()
    try:
        assert [one.name for one in principals()] == ["cluster:f1"]
        (before,) = principals()
        logins = {LoginKind.TOKEN: new_store_credentials("f1")}
        store.run(lambda binding: replace_logins(Broker(binding), "f1", logins, now=0.0, former_until=0.0))
        until(lambda: principals()[0].tokens[0] != before.tokens[0], 30, lambda: "another token is learnt")
        made(store, "f3")
        until(lambda: len(principals()) == 2, 30, lambda: "another cluster is learnt")
    finally:
        principals.stop()


def test_data_about_a_cluster_is_kept_in_clear_so_that_it_is_of_use_without_its_record(engine: MemoryEngine) -> None:
    store = Store(engine, secrets=keys("k1"))
    made(store, "f1")
    data = cluster_data_of(Broker(store).instances.require("f1"))
    assert data.superuser_credentials.password.sealed is None
    assert data.superuser_credentials.password.reveal() == "super-f1"
