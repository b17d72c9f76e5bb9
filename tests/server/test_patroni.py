"""Real Patroni nodes on `keyplan serve` over LMDB, in both of Patroni's modes and mixed: bootstrap, switchover, failover."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.patroni import Broker, MemberKey
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import Mode, PatroniCluster, PatroniNode, until, why_no_patroni

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_patroni() is not None, reason=f"needs Patroni and PostgreSQL: {why_no_patroni()}"),
]

MODES: dict[str, tuple[Mode, Mode]] = {"f2": ("etcd", "etcd"), "f3": ("etcd3", "etcd3"), "mixed": ("etcd", "etcd3")}
TTL_SECONDS = 20


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def clusters(store_url: str) -> Iterator[list[PatroniCluster]]:
    with KeyplanServer(store_url, "--app", "etcd-v2", "--app", "etcd-v3") as server, ExitStack() as stack:
        address = server.url.removeprefix("http://")
        yield [stack.enter_context(PatroniCluster(scope, store=address, modes=modes)) for scope, modes in MODES.items()]


def told(line: str) -> None:
    """Times for whoever looks; pytest shows them with -s."""
    print(line, file=sys.stderr)


def test_real_clusters_elect_switch_over_and_fail_over(clusters: list[PatroniCluster], store_url: str) -> None:
    for cluster in clusters:
        taken = until(cluster.is_complete, 90, cluster.logs)
        told(f"{cluster.scope}: complete after {taken:.1f} s more")
    with keyplan.open(store_url) as store:
        broker = Broker(store)
        leaders = {cluster.scope: _leader(cluster) for cluster in clusters}
        for scope, leader in leaders.items():
            assert broker.leaders.get(scope) == leader.name
            member = broker.members.get(MemberKey(scope, leader.name))
            assert member is not None
            assert member.address == f"127.0.0.1:{leader.port}"
            leader.query("create table kept (number int); insert into kept values (1)")
        for cluster in clusters:
            _switch_over(cluster, broker)
        _kill_leaders(clusters, broker)
    for cluster in clusters:
        leader = _leader(cluster)
        assert leader.query("select count(*) from kept") == "1"
        listed = json.loads(leader.patronictl("list", "-f", "json"))
        assert {row["Member"]: row["Role"] for row in listed}[leader.name] == "Leader"


def _leader(cluster: PatroniCluster) -> PatroniNode:
    leader = cluster.leader()
    assert leader is not None, cluster.logs()
    return leader


def _switch_over(cluster: PatroniCluster, broker: Broker) -> None:
    leader = _leader(cluster)
    (candidate,) = cluster.replicas()
    leader.patronictl("switchover", "--leader", leader.name, "--candidate", candidate.name, "--force", cluster.scope)
    until(candidate.is_primary, 30, cluster.logs)
    assert broker.leaders.get(cluster.scope) == candidate.name
    taken = until(cluster.is_complete, 60, cluster.logs)
    told(f"{cluster.scope}: switched over, complete again after {taken:.1f} s")


def _kill_leaders(clusters: list[PatroniCluster], broker: Broker) -> None:
    """Kill every cluster's leader at once: the others lead when the TTL is over."""
    killed = {cluster.scope: _leader(cluster) for cluster in clusters}
    for leader in killed.values():
        leader.kill()
    for cluster in clusters:
        (other,) = (node for node in cluster.nodes if node is not killed[cluster.scope])
        taken = until(other.is_primary, TTL_SECONDS + 15, cluster.logs)
        told(f"{cluster.scope}: failed over after {taken:.1f} s")
        assert broker.leaders.get(cluster.scope) == other.name
