"""The client library that most Python programs of etcd's v2 days use, python-etcd, on a gateway: all that it can do."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from keyplan.engine import MemoryEngine
from tests.servers.gateways import GatewayServer

etcd = pytest.importorskip("etcd", reason="needs python-etcd: pip install python-etcd")

WAIT_SECONDS_MAX = 60


@pytest.fixture
def client() -> Iterator[Any]:
    with MemoryEngine() as engine, GatewayServer(engine) as server:
        opened = etcd.Client(host="127.0.0.1", port=server.port, allow_reconnect=True, read_timeout=WAIT_SECONDS_MAX)
        yield opened
        opened.http.clear()


def test_keys_are_written_read_renewed_and_deleted(client: Any) -> None:
    made = client.write("/service/f1/leader", "n1", ttl=30, prevExist=False)
    assert (made.action, made.value, made.ttl, made.newKey) == ("create", "n1", 30, True)
    with pytest.raises(etcd.EtcdAlreadyExist):
        client.write("/service/f1/leader", "n2", prevExist=False)
    client.refresh("/service/f1/leader", ttl=50)
    read = client.read("/service/f1/leader")
    assert (read.value, read.ttl) == ("n1", 50)
    assert read.etcd_index == read.modifiedIndex == made.modifiedIndex + 1
    listed = client.read("/service", recursive=True)
    assert [(leaf.key, leaf.value) for leaf in listed.leaves] == [("/service/f1/leader", "n1")]
    read.value = "n3"
    assert client.update(read).value == "n3"
    with pytest.raises(etcd.EtcdCompareFailed):
        client.update(read)
    with pytest.raises(etcd.EtcdNotFile):
        client.delete("/service")
    assert client.delete("/service", recursive=True).action == "delete"
    with pytest.raises(etcd.EtcdKeyNotFound):
        client.read("/service/f1/leader")


def test_a_value_is_swapped_when_it_is_what_was_expected(client: Any) -> None:
    client.write("/port", "33000")
    assert client.test_and_set("/port", "33001", "33000").value == "33001"
    with pytest.raises(etcd.EtcdCompareFailed, match=r"\[33000 != 33001\]"):
        client.test_and_set("/port", "33002", "33000")


def test_appended_keys_keep_their_order(client: Any) -> None:
    keys = [client.write("/queue", value, append=True).key for value in ("a", "b", "c")]
    assert keys == sorted(keys)
    assert all(len(key) == len("/queue/") + 20 for key in keys)
    read = client.read("/queue", recursive=True, sorted=True)
    assert [child.value for child in read.children] == ["a", "b", "c"]


def test_a_watch_tells_of_one_change_and_an_eternal_one_of_all(client: Any) -> None:
    began = client.write("/w/a", "0").modifiedIndex
    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(client.watch, "/w", index=began + 2, recursive=True)
        client.write("/w/a", "1")
        client.write("/w/b", "2")
        told = watching.result(WAIT_SECONDS_MAX)
    assert (told.key, told.value) == ("/w/b", "2")
    events = client.eternal_watch("/w", index=began + 1, recursive=True)
    client.delete("/w/a")
    assert [(event.action, event.key) for event in islice(events, 3)] == [
        ("set", "/w/a"),
        ("set", "/w/b"),
        ("delete", "/w/a"),
    ]


def test_a_lock_is_held_by_one_and_handed_on(client: Any) -> None:
    first, second = etcd.Lock(client, "deploy"), etcd.Lock(client, "deploy")
    assert first.acquire(lock_ttl=60)
    assert not second.acquire(blocking=False, lock_ttl=60)
    with pytest.raises(etcd.EtcdKeyNotFound):
        client.read("/deploy")
    # Of an empty directory, the client's only leaf is the directory: the locks are hidden.
    assert [leaf.key for leaf in client.read("/", recursive=True).leaves] == [None]
    acquired = threading.Event()

    def wait_for_it() -> None:
        if second.acquire(blocking=True, lock_ttl=60, timeout=WAIT_SECONDS_MAX):
            acquired.set()

    waiting = threading.Thread(target=wait_for_it)
    waiting.start()
    first.release()
    assert acquired.wait(WAIT_SECONDS_MAX)
    waiting.join()
    assert second.is_acquired
    assert not first.is_acquired
    second.release()
    assert not second.is_acquired
