"""The registry behind real servers: many creators at once, deletions in the background and across a stop, etcd below."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from keyplan.client import HttpKeySpaces
from keyplan.engine import Commit, DeleteRange, Engine, KeyRange, Put, open_engine
from keyplan.errors import KeySpaceDeletingError, KeySpaceExistsError
from keyplan.keyspace import KeySpaces, State, open_key_space
from tests.servers.etcd import EtcdServer
from tests.servers.keyplan_server import KeyplanServer

pytestmark = pytest.mark.slow

TOKEN = "an-admin-token-of-a-test"
ENVIRONMENT = {"KEYPLAN_ADMIN_TOKEN": TOKEN}
AT_ONCE: dict[str, Any] = {"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0}


def until(condition: Callable[[], bool]) -> None:
    pause = Event()
    for _ in range(600):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not happen within half a minute")


def fill(engine: Engine, prefix: bytes, count: int) -> None:
    engine.commit(Commit((), tuple(Put(prefix + b"%06d" % number, b"v") for number in range(count))))


def count(engine: Engine, prefix: bytes) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.count(KeyRange.of_prefix(prefix))


def test_creators_at_once_get_distinct_prefixes_without_a_gap(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with (
        KeyplanServer(url, environment=ENVIRONMENT) as one,
        KeyplanServer(url, environment=ENVIRONMENT) as other,
        HttpKeySpaces(one.url, token=TOKEN, timeout_seconds=60) as first,
        HttpKeySpaces(other.url, token=TOKEN, timeout_seconds=60) as second,
        ThreadPoolExecutor(8) as pool,
    ):

        def make(number: int) -> str | None:
            registry = first if number % 2 else second
            try:
                return registry.create(f"n{number // 2}", "a").prefix
            except KeySpaceExistsError:
                return None

        # Why: each name is asked for twice, at both servers; exactly one of them wins.
        prefixes = list(pool.map(make, range(80)))
    assert sorted(prefix for prefix in prefixes if prefix is not None) == [f"{number:02x}" for number in range(1, 41)]
    with open_engine(url) as engine:
        assert KeySpaces(engine).diagnose().is_sound


def test_a_deletion_that_a_stop_cut_short_goes_on_in_the_next_server(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    slow = ("--setting", "keyspaces.sweep-keys-per-second=2000")
    with KeyplanServer(url, *slow, environment=ENVIRONMENT) as server, open_engine(url) as engine:
        with HttpKeySpaces(server.url, token=TOKEN) as registry:
            registry.configure(AT_ONCE)
            registry.create("orders", "shop")
            registry.create("bills", "shop")
            fill(engine, b"\x01", 20_000)
            fill(engine, b"\x02", 10)
            registry.delete("orders")
            until(lambda: count(engine, b"\x01") < 20_000)
        assert server.stop() == 0
        left = count(engine, b"\x01")
    assert 0 < left < 20_000
    with (
        KeyplanServer(url, environment=ENVIRONMENT) as server,
        HttpKeySpaces(server.url, token=TOKEN) as registry,
        open_engine(url) as engine,
    ):
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
            seen = client.get("/keyspaces/orders").json()
            if seen["state"] == "DELETING":
                assert seen["delete_progress"]["deleted_keys"] >= 20_000 - left
            until(lambda: registry.get("orders").state is State.DELETED)
            until(
                lambda: "keyplan_keyspaces_swept_total 1.0" in client.get("/metrics").text
            )  # counted behind its commit
        assert (count(engine, b"\x01"), count(engine, b"\x02")) == (0, 10)
        assert registry.create("next", "shop").prefix == "01"


def test_an_open_handle_sees_what_was_done_over_http(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with (
        KeyplanServer(url, environment=ENVIRONMENT) as server,
        HttpKeySpaces(server.url, token=TOKEN) as registry,
        open_engine(url) as engine,
    ):
        registry.configure(AT_ONCE)
        store = open_key_space(engine, "orders", "shop", create_if_missing=True, registry=registry)
        with store:
            store.engine.commit(Commit((), (Put(b"a", b"1"),)))
            assert registry.usage("orders").keys == 1
            registry.delete("orders")
            with pytest.raises(KeySpaceDeletingError):
                store.engine.commit(Commit((), (Put(b"b", b"2"),)))
        until(lambda: registry.get("orders").state is State.DELETED)


def test_a_registry_on_etcd_is_served_as_well(etcd_server: EtcdServer) -> None:
    with open_engine(etcd_server.url) as engine:
        engine.commit(Commit((), (DeleteRange(KeyRange(b"\x00", None)),)))  # the server is shared with other tests
        with (
            KeyplanServer(etcd_server.url, environment=ENVIRONMENT) as server,
            HttpKeySpaces(server.url, token=TOKEN) as registry,
        ):
            registry.configure(AT_ONCE)
            made = registry.create("orders", "shop")
            fill(engine, made.raw_prefix, 100)
            assert registry.usage("orders").keys == 100
            with pytest.raises(KeySpaceExistsError):
                registry.create("orders", "shop")
            registry.delete("orders")
            until(lambda: registry.get("orders").state is State.DELETED)
            assert count(engine, made.raw_prefix) == 0
            assert registry.verify_audit().is_whole
