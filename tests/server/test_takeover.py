"""A real cluster on an etcd of its own is taken over to keyplan's gateway, while a client writes; then it is adopted.

The guide's steps (docs/guide/patroni-clusters.md), by hand of a test: nobody is stopped, and no write is refused.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import keyplan
from keyplan.apps.patroni import Broker, MemberKey
from keyplan.apps.patroni.cli import app
from keyplan.apps.patroni.clusters import outside_nodes
from tests.servers.etcd import EtcdServer, free_port, why_no_etcd
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import SUPERUSER_PASSWORD, PatroniCluster, PatroniNode, until, why_no_patroni
from tests.servers.routed_writer import RoutedWriter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_no_patroni() is not None, reason=f"needs Patroni and PostgreSQL: {why_no_patroni()}"),
    pytest.mark.skipif(why_no_etcd() is not None, reason=f"needs etcd: {why_no_etcd()}"),
]

STARTED = "select pg_postmaster_start_time()"


@pytest.fixture
def etcd() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


def told(*arguments: str, users: str | None = None, store: str) -> str:
    """What a command of `keyplan patroni` prints."""
    ran = CliRunner(env={"KEYPLAN_PATRONI_USERS": users}).invoke(app, [*arguments, "--store", store])
    return f"{ran.output}{ran.exception or ''}"


def test_a_cluster_on_another_etcd_is_taken_over_without_a_stop_and_adopted(etcd: EtcdServer, tmp_path: Path) -> None:
    own, address = f"lmdb:{tmp_path / 'store'}", f"127.0.0.1:{free_port()}"
    cluster = PatroniCluster("pay", store=etcd.url.removeprefix("etcd://"), modes=("etcd3", "etcd3"))
    try:
        with KeyplanServer(own, "--app", "etcd-v3", "--local-role", "client", "--listen", address):
            cluster.start()
            until(cluster.is_complete, 180, cluster.logs)
            leader, (replica,) = cluster.leader(), cluster.replicas()
            assert leader is not None
            started = leader.query(STARTED), replica.query(STARTED)
            with RoutedWriter(leader.port) as writer, keyplan.open(own) as store:
                assert "it is not paused" in told("take-over", "pay", "--from", etcd.url, store=own)
                leader.patronictl("pause", "--wait", "pay")
                printed = told("take-over", "pay", "--from", etcd.url, store=own)
                assert f"node by node: {replica.name}, {leader.name}" in printed
                broker = Broker(store)
                for node in (replica, leader):
                    moved(node, address)
                    until(lambda node=node: broker.members.exists(MemberKey("pay", node.name)), 90, cluster.logs)  # type: ignore[misc]
                until(lambda: broker.leaders.get("pay") == leader.name, 60, cluster.logs)
                leader.patronictl("resume", "--wait", "pay")
                adopted(own, cluster, broker)
                until(lambda: len(writer.acknowledged) > 20, 60, cluster.logs)
                writer.stop()
                numbers = [each.number for each in writer.acknowledged]
                # Why all of them: a write that was refused would leave its number out.
                assert numbers == list(range(1, len(numbers) + 1))
            assert (leader.query(STARTED), replica.query(STARTED)) == started
            assert int(leader.query("select count(*) from written")) == len(numbers)
            until(cluster.is_complete, 60, cluster.logs)
    finally:
        cluster.remove()


def moved(node: PatroniNode, address: str) -> None:
    """Let a node find its store elsewhere: another configuration, and Patroni alone is started again."""
    configuration = json.loads(node.configuration.read_text())
    configuration["etcd3"]["hosts"] = address
    node.configuration.write_text(json.dumps(configuration))
    node.restart_patroni()


def adopted(own: str, cluster: PatroniCluster, broker: Broker) -> None:
    """The users are checked against the running leader before anything is written."""

    def users(superuser: str = SUPERUSER_PASSWORD, replicator: str = "labrepl") -> str:
        return json.dumps(
            {
                "superuser": {"username": "postgres", "password": superuser},
                "replication": {"username": "replicator", "password": replicator},
            }
        )

    adopt = ("adopt", "pay", "--plan", "pair")
    for wrong, words in (
        (users(superuser="no"), "the superuser postgres at"),
        (users(replicator="no"), "the user for replication replicator at"),
    ):
        printed = told(*adopt, users=wrong, store=own)
        assert words in printed
        assert "password authentication failed" in printed
    assert "nothing was written" in told(*adopt, "--dry-run", users=users(), store=own)
    assert not broker.instances.exists("pay")
    printed = told(*adopt, users=users(), store=own)
    assert "no cell runs them" in printed, printed
    assert outside_nodes(broker, "pay") == ["n1", "n2"]
    assert (
        broker.instances.require("pay").version
        == Path(cluster.nodes[0].query("show data_directory"), "PG_VERSION").read_text().strip()
    )
    assert SUPERUSER_PASSWORD not in printed
