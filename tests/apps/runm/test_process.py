"""The server as a process: start-up keys, settings, SIGTERM, the registry, parallel servers and a killed one."""

import hashlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import keyplan
from keyplan.apps.runm import process
from keyplan.apps.runm.registry import registered
from keyplan.apps.runm.settings import ServeSettings
from keyplan.apps.runm.store_health import followed_health
from keyplan.apps.runm.verify import verify
from keyplan.engine import ALL_KEYS, Commit, Engine, MemoryEngine, WrappedEngine
from keyplan.errors import EngineUnavailableError, InvalidInputError, StoreUnreachableError
from keyplan.store import Store
from keyplan.testing.engine_suite.promise import eventually
from keyplan.testing.faults import FailingEngine
from tests.apps.runm.client import SW, WEST, Client, refused
from tests.apps.runm.processes import ServeProcess, server_process
from tests.servers.etcd import EtcdServer

DOCUMENT_ROOT = b"runm/metadata/"


def raw(url: str) -> dict[bytes, tuple[bytes, int]]:
    """Every key of a store, with its value and revision."""
    with keyplan.open(url) as store, store.engine.snapshot() as snapshot:
        return {entry.key: (entry.value, entry.mod_revision) for entry in snapshot.scan(ALL_KEYS)}


def below_root(found: dict[bytes, tuple[bytes, int]]) -> dict[bytes, tuple[bytes, int]]:
    return {key: value for key, value in found.items() if key.startswith(DOCUMENT_ROOT)}


@pytest.mark.slow
def test_a_restart_writes_nothing_and_two_starts_at_once_leave_eight_keys(tmp_path: Path) -> None:
    """AC-03."""
    store_url = f"lmdb:{tmp_path / 's'}?durability=none"
    arguments = ("--store", store_url, "--listen", "127.0.0.1:0", "--no-register")
    with server_process(*arguments) as first, server_process(*arguments) as second:
        assert first.stop() == 0
        assert second.stop() == 0
    before = below_root(raw(store_url))
    assert len(before) == 8
    with server_process(*arguments) as again:
        assert again.stop() == 0
    assert below_root(raw(store_url)) == before


@pytest.mark.slow
def test_calls_under_way_end_and_the_process_exits_with_0_when_told_to_stop(tmp_path: Path) -> None:
    """AC-39: with the endpoint out of the registry."""
    url = f"lmdb:{tmp_path / 's'}?durability=none"
    with server_process("--store", url, "--listen", "127.0.0.1:0") as server:
        client = Client(server.address)
        client.partition_create(partition={"uuid": WEST, "name": "p"})
        registered = f"gsr/services/runmachine-metadata/{server.address}".encode()
        assert registered in raw(url)
        group = {"partition": WEST, "object_type": "runm.provider_group", "name": "g"}
        client.object_create(SW, object=group)
        watching = client.stream("object_watch", SW, object_type_code="runm.provider_group", include_existing=True)
        assert next(watching).object.name == "g"
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert list(watching) == []
        assert server.process.wait(30) == 0
        # Why so wide: the machine may be busy; a stream that holds the end up would hold it for ever.
        assert time.monotonic() - begun < 25
        client.close()
        assert registered not in raw(url)


@pytest.mark.slow
def test_flags_come_before_the_environment_and_the_root_follows(tmp_path: Path) -> None:
    """AC-02, on real stores; and the verbatim root, by which a store of the original under / is opened."""
    for number, (arguments, environment, root) in enumerate([
        ((), {"RUNM_METADATA_STORAGE_ETCD_KEY_PREFIX": "foo//"}, b"foo/runm/metadata/"),
        (
            ("--storage-etcd-key-prefix", "/"),
            {"RUNM_METADATA_STORAGE_ETCD_KEY_PREFIX": "foo"},
            b"runm/metadata/",
        ),
        (("--root", "/runm/metadata/"), {}, b"/runm/metadata/"),
    ]):  # fmt: skip
        url = f"lmdb:{tmp_path / str(number)}?durability=none"
        with server_process(
            "--store", url, "--listen", "127.0.0.1:0", "--no-register", *arguments, **environment
        ) as one:
            assert one.stop() == 0
        keys = [key for key in raw(url) if b"metadata" in key]
        assert len(keys) == 8
        assert all(key.startswith(root) for key in keys)


@pytest.mark.slow
def test_a_bootstrap_token_makes_the_first_partition_once(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 's'}?durability=none"
    arguments = ("--store", url, "--listen", "127.0.0.1:0", "--no-register", "--bootstrap-token", "sesame")
    with server_process(*arguments) as server:
        client = Client(server.address)
        with refused("FAILED_PRECONDITION", "user is required in session."):
            client.partition_create(partition={"name": "p"})
        for token in ("", "open"):
            with refused("FAILED_PRECONDITION", "Bootstrap failed."):
                client.bootstrap(bootstrap_token=token, partition_name="p")
        assert raw(url)[b"runm/metadata/bootstrap"][0] == hashlib.sha256(b"sesame").digest()
        made = client.bootstrap(bootstrap_token="sesame", partition_name="p", partition_uuid={"value": WEST}).partition
        assert (made.uuid, made.name) == (WEST, "p")
        with refused("FAILED_PRECONDITION", "Bootstrap failed."):
            client.bootstrap(bootstrap_token="sesame", partition_name="q")
        client.close()
    with server_process(*arguments) as again:
        assert again.stop() == 0
    assert b"runm/metadata/bootstrap" not in raw(url)


CALLERS = 16
TURNS = 3 * CALLERS
"""Objects made before the kill, and again after it."""
WAIT_SECONDS_MAX = 120.0


class Made:
    """How many objects all callers have made."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more are made. Raises AssertionError when they are not."""
        with self._changed:
            goal = self._count + count
            assert self._changed.wait_for(lambda: self._count >= goal, WAIT_SECONDS_MAX)


def address_at(servers: list[ServeProcess], place: int) -> str:
    """Where a caller calls; asked anew after a failure, since the killed server is no longer in the list."""
    return servers[place % len(servers)].address


def make_until(address_of: Callable[[], str], stop: threading.Event, number: int, made: Made) -> None:
    """Create, change and delete objects until told to stop; calls that the killed server took with it are passed over."""
    turn = 0
    while not stop.is_set():
        client = Client(address_of())
        try:
            while not stop.is_set():
                turn += 1
                name = f"shared-{turn % 7}" if turn % 3 else f"own-{number}-{turn}"
                given: dict[str, Any] = {"partition": WEST, "object_type": "runm.image", "project": "p", "name": name}
                given["properties"] = [{"key": "n", "value": str(turn % 5)}]
                given["tags"] = ["a", f"t{turn % 4}"]
                session = {**SW, "project": "p"}
                try:
                    uuid = client.object_create(session, object=given).object.uuid
                    if turn % 2:
                        client.object_modify(session, uuid=uuid, add_tags=["later"], name=f"moved-{uuid}")
                    if turn % 5:
                        client.object_delete_by_uuids(session, uuids=[uuid])
                    made.add()
                except grpc.RpcError as error:
                    if error.code() in {grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.NOT_FOUND}:
                        continue
                    if error.code() is grpc.StatusCode.UNAVAILABLE:
                        break
                    raise
        finally:
            client.close()


@pytest.mark.slow
def test_four_servers_sixteen_callers_and_a_kill_leave_no_orphan(store_url: str) -> None:
    url = store_url.replace("durability=none", "durability=full")
    arguments = ("--store", url, "--listen", "127.0.0.1:0")
    with (
        server_process(*arguments) as first,
        server_process(*arguments) as second,
        server_process(*arguments) as third,
        server_process(*arguments) as fourth,
    ):
        servers = [first, second, third, fourth]
        client = Client(second.address)
        client.partition_create(partition={"uuid": WEST, "name": "p"})
        client.close()
        stop, made = threading.Event(), Made()
        with ThreadPoolExecutor(CALLERS) as callers:
            running = [
                callers.submit(make_until, partial(address_at, servers, place), stop, place, made)
                for place in range(CALLERS)
            ]
            try:
                made.wait_for_more(TURNS)
                first.kill()
                del servers[0]
                made.wait_for_more(TURNS)
            finally:
                stop.set()
            for one in running:
                one.result(timeout=WAIT_SECONDS_MAX)
        assert [server.stop() for server in servers] == [0, 0, 0]
    with keyplan.open(url) as store:
        assert list(verify(store, "")) == []


@pytest.mark.slow
def test_calls_fail_soon_while_the_store_is_away_and_go_on_when_it_is_back(
    own_servers: Callable[[EtcdServer], EtcdServer],
) -> None:
    """AC-38, AC-39; O5: the time-out holds with --store, too, health follows, and a store that hangs holds up no end."""
    etcd = own_servers(EtcdServer())
    timeout = ("--storage-etcd-request-timeout-seconds", "1")
    with server_process("--store", etcd.url, *timeout, "--listen", "127.0.0.1:0", "--no-register") as server:
        client = Client(server.address)
        client.partition_create(partition={"uuid": WEST, "name": "p"})
        etcd.stop()
        for call in (client.partition_find, client.object_find):
            begun = time.monotonic()
            with pytest.raises(grpc.RpcError) as caught:
                call(SW)
            assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
            # Why so wide: the machine may be busy; what is refused here is waiting without end.
            assert time.monotonic() - begun < 20
        eventually(lambda: _health(client) == health_pb2.HealthCheckResponse.NOT_SERVING)
        etcd.start()
        assert [one.name for one in _until_answered(lambda: client.partition_find(SW))] == ["p"]
        eventually(lambda: _health(client) == health_pb2.HealthCheckResponse.SERVING)
        etcd.pause()
        try:
            eventually(lambda: _health(client) == health_pb2.HealthCheckResponse.NOT_SERVING)
            waiting = client.stream("object_find", SW)
            server.process.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            assert server.process.wait(30) == 0
            # Why so wide: the process ends itself after 4.5 seconds, on a machine that may be busy.
            assert time.monotonic() - begun < 15
            waiting.cancel()
        finally:
            etcd.resume()
        client.close()


@pytest.mark.slow
def test_a_start_waits_for_a_store_that_is_not_there_yet(own_servers: Callable[[EtcdServer], EtcdServer]) -> None:
    etcd = own_servers(EtcdServer())
    etcd.stop()
    arguments = (
        "--storage-etcd-endpoints",
        etcd.url.removeprefix("etcd://"),
        "--listen",
        "127.0.0.1:0",
        "--no-register",
    )
    with ThreadPoolExecutor(1) as starter:
        starting = starter.submit(ServeProcess, arguments, {})
        threading.Event().wait(1.5)
        assert not starting.done()
        etcd.start()
        server = starting.result(timeout=60)
        assert server.address
        assert server.stop() == 0
        server.close()
    etcd.stop()
    timeout = ("--storage-etcd-connect-timeout-seconds", "1")
    with server_process(*arguments, *timeout) as server:
        assert server.process.wait(30) == 7
        assert "cannot be reached" in server.close()


@pytest.mark.parametrize(("facts", "tries"), [({"unresolved": ["nowhere:2379"]}, 1), ({}, 3)])
def test_a_start_gives_up_at_once_where_no_name_has_an_address(
    facts: dict[str, object], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.12: retry on refused and timeouts, give up on a host that cannot be resolved."""
    opened: list[str] = []
    stop = threading.Event()

    def unreachable(url: str, **_options: object) -> None:
        opened.append(url)
        if len(opened) == 3:
            stop.set()
        raise StoreUnreachableError(url=url, problem="no server answers", **facts)

    monkeypatch.setattr(process, "open_engine", unreachable)
    settings = ServeSettings.of({"endpoints": "nowhere", "bind_address": "127.0.0.1"}, {})
    with pytest.raises(StoreUnreachableError):
        process.run_server(settings, process.ServeChoices(), stop, announce=opened.append)
    assert len(opened) == tries


def test_a_registry_whose_name_has_no_address_is_no_registry() -> None:
    def unreachable() -> Store:
        raise StoreUnreachableError(url="etcd://nowhere", problem="no server answers", unresolved=["nowhere:2379"])

    entry = registered(
        unreachable,
        is_own=True,
        prefix="gsr/",
        service="s",
        addresses=["h:1"],
        lease_seconds=60,
        connect_timeout_seconds=60,
    )
    with pytest.raises(StoreUnreachableError), entry:
        pass


@pytest.mark.parametrize("name", ["before commit", "after commit"])
def test_a_registration_that_failed_is_tried_again_and_leaves_no_lease_behind(name: str) -> None:
    """Also where the answer was lost, so that nobody knows whether the entry is there."""
    memory = MemoryEngine()
    probe = FailingEngine(memory)
    with registered(lambda: Store(probe), is_own=True, prefix="p/", service="s", addresses=["h:1"], lease_seconds=60):
        pass
    memory = MemoryEngine()
    failing = FailingEngine(memory, at_step=probe.steps.index(name) + 1)
    entry = registered(
        lambda: Store(failing),
        is_own=False,
        prefix="p/",
        service="s",
        addresses=["h:1"],
        lease_seconds=60,
        connect_timeout_seconds=60,
    )
    with entry:
        eventually(lambda: len(memory._state.leases) == 1 and _is_registered(memory))
    assert not memory._state.leases


class Away(WrappedEngine):
    """Takes no commits while it is away."""

    is_away = False

    def commit(self, commit: Commit) -> int:
        if self.is_away:
            raise EngineUnavailableError(engine="memory", problem="away")
        return self.inner.commit(commit)


def test_a_service_whose_lease_is_lost_is_tried_to_register_as_long_as_it_serves() -> None:
    """However short the time for the first registration was."""
    memory = MemoryEngine()
    away = Away(memory)
    with registered(lambda: Store(away), is_own=False, prefix="p/", service="s", addresses=["h:1"], lease_seconds=1):
        assert _is_registered(memory)
        away.is_away = True
        memory.lease(1, resume=next(iter(memory._state.leases))).revoke()
        eventually(lambda: not _is_registered(memory) and len(threads_of("runm-registry")) == 1)
        away.is_away = False
        eventually(lambda: _is_registered(memory))


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def _is_registered(engine: Engine) -> bool:
    with engine.snapshot() as snapshot:
        return snapshot.count(ALL_KEYS) == 1


def _health(client: Client) -> int:
    asked = health_pb2.HealthCheckRequest(service="runm.RunmMetadata")
    return int(health_pb2_grpc.HealthStub(client.channel).Check(asked, timeout=30).status)


def _until_answered(call: Callable[[], Any]) -> Any:
    for _ in range(240):
        try:
            return call()
        except grpc.RpcError:
            threading.Event().wait(0.25)
    return call()


# ---- settings ----------------------------------------------------------------------------------------------------------


def test_the_originals_variables_are_read_and_bad_numbers_fall_back() -> None:
    settings = ServeSettings.of(
        {"bind_port": None},
        {
            "RUNM_METADATA_STORAGE_ETCD_ENDPOINTS": "http://a,b:4001",
            "RUNM_METADATA_STORAGE_ETCD_KEY_PREFIX": "",
            "RUNM_METADATA_STORAGE_ETCD_REQUEST_TIMEOUT_SECONDS": "three",
            "RUNM_METADATA_BIND_HOST": "::1",
            "RUNM_METADATA_BIND_PORT": "7000",
            "RUNM_API_BIND_PORT": "x",
        },
    )
    assert settings.store == "etcd://a,b:4001?timeout=1"
    assert settings.prefix == ""
    assert settings.addresses == ("[::1]:7000", "[::1]:10000")
    assert (settings.certificate, settings.registry.lease_seconds) == (None, 60)


@pytest.mark.parametrize(
    ("store", "url"),
    [
        (None, "etcd://127.0.0.1:2379?timeout=7"),
        ("etcd://a,b:4001", "etcd://a,b:4001?timeout=7"),
        ("etcd://a?tls=true&ca=/x/y.pem&timeout=2", "etcd://a?tls=true&ca=/x/y.pem&timeout=7"),
        ("lmdb:./s?durability=none", "lmdb:./s?durability=none"),
    ],
)
def test_the_time_of_a_request_holds_in_both_spellings_of_the_store(store: str | None, url: str) -> None:
    assert ServeSettings.of({"request_timeout_seconds": "7"}, {}, store=store).store == url
    if store is not None:
        assert ServeSettings.of({}, {}, store=store).store == store


def test_a_store_that_hangs_is_told_before_its_answer_comes() -> None:
    hanging, told = threading.Event(), list[bool]()
    with followed_health(hanging.wait, told.append, look_seconds=0.001, patience_seconds=0.001):
        eventually(lambda: told == [False])
        hanging.set()
        eventually(lambda: told == [False, True])


_ENDS_LATE = """
import atexit
from threading import Event
from keyplan.apps.runm.process import ended_in_time
stop = Event()
atexit.register(Event().wait)
with ended_in_time(stop, 0.3):
    stop.set()
"""


def test_a_process_that_is_told_to_stop_ends_in_time_also_where_pythons_own_end_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", _ENDS_LATE], timeout=60, check=False)
    assert ended.returncode == 0


def test_without_any_setting_the_service_is_where_the_original_is_but_on_this_machine_alone() -> None:
    settings = ServeSettings.of({}, {})
    assert settings.store == "etcd://127.0.0.1:2379?timeout=1"
    assert settings.addresses == ("127.0.0.1:10002", "127.0.0.1:10000")
    assert settings.service_name == "runmachine-metadata"
    assert ServeSettings.of({"use_tls": "true"}, {}).certificate == (
        Path("/etc/runmachine/metadata/server.pem"),
        Path("/etc/runmachine/metadata/server.key"),
    )
    with pytest.raises(InvalidInputError):
        ServeSettings.of({"root": "elsewhere/"}, {})


@pytest.mark.slow
def test_an_address_that_others_can_reach_is_refused_without_tokens(tmp_path: Path) -> None:
    with server_process("--store", f"lmdb:{tmp_path}/s", "--listen", "0.0.0.0:0") as server:
        assert server.process.wait(30) == 5
        assert "no tokens are configured" in server.close()
