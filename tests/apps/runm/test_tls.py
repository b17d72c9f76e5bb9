"""Serving over TLS, and a registry that stands elsewhere: the process as an operator starts it."""

import re
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

import keyplan
from keyplan.apps.runm import Endpoint, RunmRegistry
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.settings import RegistrySettings, ServeSettings
from tests.apps.runm.client import WEST
from tests.apps.runm.processes import server_process
from tests.servers.authority import Authority
from tests.servers.etcd import EtcdServer


@pytest.mark.slow
def test_with_a_certificate_calls_are_answered_over_tls_and_not_in_clear(tmp_path: Path, authority: Authority) -> None:
    certificate = (str(authority.certificate("server")), str(authority.key("server")))
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"),
        RUNM_METADATA_USE_TLS="true",
        RUNM_METADATA_CERT_PATH=certificate[0],
        RUNM_METADATA_KEY_PATH=certificate[1],
    ) as server:
        figures = server.next_address()
        port = int(server.address.rpartition(":")[2])
        trusting = Connection("127.0.0.1", port, "admin", "p", WEST, authority=authority.ca)
        with RunmClient(trusting) as client:
            made = client.metadata.partition_create(partition={"name": "west", "uuid": WEST}).partition
            assert (made.name, client.metadata.partition_get_by_uuid(uuid=WEST).uuid) == ("west", WEST)
        with RunmClient(Connection("127.0.0.1", port, "admin", "p", WEST)) as client:
            with pytest.raises(grpc.RpcError) as caught:
                client.metadata.partition_get_by_uuid(uuid=WEST)
            assert caught.value.code().name == "UNAVAILABLE"
        with urlopen(f"https://{figures}", context=ssl.create_default_context(cafile=str(authority.ca))) as page:
            assert b'status="OK"' in page.read()
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


@pytest.mark.slow
def test_the_service_is_registered_once_the_registry_is_there_and_its_log_has_the_form_that_was_asked_for(
    tmp_path: Path, own_servers: Callable[[EtcdServer], EtcdServer]
) -> None:
    registry_server = own_servers(EtcdServer())
    registry_server.stop()
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0"),
        GSR_ETCD_ENDPOINTS=",".join(registry_server.endpoints),
        GSR_LOG_LEVEL="1",
        GSR_LOG_MICROSECONDS="true",
        GSR_LOG_FILE_TRACE="1",
    ) as server:
        assert server.address  # calls are answered all the same
        registry_server.start()
        with keyplan.open(registry_server.url) as store:
            registry = RunmRegistry(store)
            assert _in_time(lambda: list(registry.endpoints.keys()))
            assert server.stop() == 0
            assert list(registry.endpoints.keys()) == []
        log = server.close().splitlines()
    assert any("cannot be reached" in line for line in log)
    registered = next(line for line in log if "is in the registry, on a lease" in line)
    assert re.fullmatch(r"[0-9-]{10} [0-9:]{8}\.[0-9]{6} INFO registry\.py:[0-9]+ .*", registered)


def _in_time(found: Callable[[], list[Endpoint]]) -> list[Endpoint]:
    for _ in range(600):
        if answer := found():
            return answer
        threading.Event().wait(0.1)
    return []


@pytest.mark.slow
def test_the_registry_is_shown_the_certificate_that_its_variables_name(tmp_path: Path) -> None:
    with server_process(
        *("--store", f"lmdb:{tmp_path / 's'}", "--listen", "127.0.0.1:0"),
        GSR_ETCD_ENDPOINTS="127.0.0.1:1",
        GSR_USE_TLS="true",
        GSR_TLS_CERT_PATH=str(tmp_path / "mine.pem"),
    ) as server:
        assert server.process.wait(60) != 0
        assert "mine.pem" in server.close()


def test_the_registrys_variables_are_read() -> None:
    given = {"GSR_ETCD_ENDPOINTS": "https://a:1,b", "GSR_USE_TLS": "true", "GSR_ETCD_REQUEST_TIMEOUT_SECONDS": "7"}
    default = ServeSettings.of({}, given).registry.store
    assert default == "etcd://a:1,b?timeout=7&tls=true&cert=/etc/gsr/server.pem&key=/etc/gsr/server.key"
    own = {**given, "GSR_TLS_CERT_PATH": "/c.pem", "GSR_TLS_KEY_PATH": "/k.pem"}
    assert ServeSettings.of({}, own).registry.store == "etcd://a:1,b?timeout=7&tls=true&cert=/c.pem&key=/k.pem"
    none = {**given, "GSR_TLS_CERT_PATH": ""}
    assert ServeSettings.of({}, none).registry.store == "etcd://a:1,b?timeout=7&tls=true"
    plain = ServeSettings.of({}, {}).registry
    assert plain == RegistrySettings()
    assert (plain.prefix, plain.lease_seconds, plain.connect_timeout_seconds, plain.store) == ("gsr/", 60, 300, None)
    assert (plain.log_level, plain.has_microseconds, plain.has_file_trace) == (0, False, False)
    given = {"GSR_ETCD_CONNECT_TIMEOUT_SECONDS": "9", "GSR_LOG_LEVEL": "3", "GSR_LOG_MICROSECONDS": "T"}
    registry = ServeSettings.of({}, {**given, "GSR_LOG_FILE_TRACE": "no"}).registry
    assert (registry.connect_timeout_seconds, registry.log_level) == (9, 3)
    assert (registry.has_microseconds, registry.has_file_trace) == (True, False)
