"""Serving over TLS, and a registry that stands elsewhere: the process as an operator starts it."""

from pathlib import Path

import grpc
import pytest

import keyplan
from keyplan.apps.runm import Endpoint, RunmRegistry
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.settings import ServeSettings
from tests.apps.runm.client import WEST
from tests.apps.runm.processes import server_process
from tests.servers.authority import Authority
from tests.servers.etcd import EtcdServer


@pytest.mark.slow
def test_with_a_certificate_calls_are_answered_over_tls_and_not_in_clear(tmp_path: Path, authority: Authority) -> None:
    certificate = (str(authority.certificate("server")), str(authority.key("server")))
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0"),
        RUNM_METADATA_USE_TLS="true",
        RUNM_METADATA_CERT_PATH=certificate[0],
        RUNM_METADATA_KEY_PATH=certificate[1],
    ) as server:
        port = int(server.address.rpartition(":")[2])
        trusting = Connection("127.0.0.1", port, "admin", "p", WEST, authority=authority.ca)
        with RunmClient(trusting) as client:
            made = client.metadata("partition_create", partition={"name": "west", "uuid": WEST}).partition
            assert (made.name, client.metadata("partition_get_by_uuid", uuid=WEST).uuid) == ("west", WEST)
        with RunmClient(Connection("127.0.0.1", port, "admin", "p", WEST)) as client:
            with pytest.raises(grpc.RpcError) as caught:
                client.metadata("partition_get_by_uuid", uuid=WEST)
            assert caught.value.code().name == "UNAVAILABLE"
        assert server.stop() == 0


@pytest.mark.slow
def test_a_certificate_that_is_not_there_is_told(tmp_path: Path) -> None:
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0", "--use-tls"),
        *("--cert-path", str(tmp_path / "none.pem"), "--key-path", str(tmp_path / "none.key")),
    ) as server:
        assert server.address == ""
        assert server.process.wait(60) != 0
        assert "none.pem" in server.close()


@pytest.mark.slow
def test_the_service_is_registered_where_the_registrys_own_variables_say(
    tmp_path: Path, etcd_server: EtcdServer
) -> None:
    endpoints = ",".join(etcd_server.endpoints)
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0"),
        GSR_ETCD_ENDPOINTS=endpoints,
        GSR_KEY_PREFIX="elsewhere/",
        GSR_LEASE_SECONDS="30",
    ) as server:
        host, _, port = server.address.rpartition(":")
        with keyplan.open(etcd_server.url) as store:
            registry = RunmRegistry(store, prefix="elsewhere/")
            assert list(registry.endpoints.keys()) == [Endpoint("runmachine-metadata", host, int(port))]
            assert server.stop() == 0
            assert list(registry.endpoints.keys()) == []


def test_the_registrys_variables_are_read() -> None:
    given = {"GSR_ETCD_ENDPOINTS": "https://a:1,b", "GSR_USE_TLS": "true", "GSR_ETCD_REQUEST_TIMEOUT_SECONDS": "7"}
    assert ServeSettings.of({}, given).registry_store == "etcd://a:1,b?timeout=7&tls=true"
    assert ServeSettings.of({}, {}).registry_store is None
