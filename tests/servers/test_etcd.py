"""The servers that tests start do what tests expect of them, by etcdctl's word."""

from collections.abc import Callable

import pytest

from tests.servers.authority import Authority
from tests.servers.etcd import EtcdCluster, EtcdServer

Own = Callable[[EtcdServer], EtcdServer]


def test_the_shared_server_answers_etcdctl(etcd_server: EtcdServer) -> None:
    etcd_server.etcdctl("put", "servers/a", "1")
    assert etcd_server.etcdctl("get", "servers/a", "--print-value-only") == "1\n"
    etcd_server.etcdctl("del", "servers/a")


@pytest.mark.slow
def test_a_killed_server_comes_back_with_its_data(own_servers: Own) -> None:
    server = own_servers(EtcdServer())
    server.etcdctl("put", "a", "1")
    server.kill()
    assert not server.is_healthy()
    server.restart()
    assert server.etcdctl("get", "a", "--print-value-only") == "1\n"
    server.pause()
    assert not server.is_healthy()
    server.resume()
    assert server.etcdctl("get", "a", "--print-value-only") == "1\n"


@pytest.mark.slow
def test_a_server_with_tls_and_a_root_user_lets_only_them_in(own_servers: Own, authority: Authority) -> None:
    server = own_servers(EtcdServer(tls=authority, root_password="secret"))
    server.etcdctl("put", "a", "1")
    assert server.etcdctl("get", "a", "--print-value-only") == "1\n"
    with pytest.raises(AssertionError, match="permission denied"):
        server.etcdctl("get", "a", is_authenticated=False)
    assert server.url.startswith(f"etcd://127.0.0.1:{server.client_port}?ca=")


@pytest.mark.slow
def test_a_cluster_elects_another_leader_when_its_leader_is_killed(
    own_servers: Callable[[EtcdCluster], EtcdCluster],
) -> None:
    cluster = own_servers(EtcdCluster())
    first = cluster.leader()
    assert len(cluster.followers()) == 2
    first.etcdctl("put", "a", "1")
    first.kill()
    second = cluster.leader()
    assert second is not first
    assert second.etcdctl("get", "a", "--print-value-only") == "1\n"
    first.restart()
    assert len(cluster.followers()) == 2
