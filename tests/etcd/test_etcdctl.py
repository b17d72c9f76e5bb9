"""etcdctl and keyplan agree about what is stored: each reads what the other one wrote."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, Event, KeyRange, Put
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, etcdctl_environment, etcdctl_options
from tests.store.layouts import Blade, BladeKey, Site


def listed(server: EtcdServer, *arguments: str) -> list[tuple[bytes, bytes, int, int, int]]:
    """Keys, values, revisions and versions that etcdctl reads."""
    answer = json.loads(server.etcdctl("get", "", "--from-key", "--write-out=json", *arguments))
    return [
        (
            base64.b64decode(pair["key"]),
            base64.b64decode(pair.get("value", "")),
            pair["create_revision"],
            pair["mod_revision"],
            pair["version"],
        )
        for pair in answer.get("kvs", [])
    ]


def test_etcdctl_reads_what_keyplan_wrote(etcd: Engine, etcd_server: EtcdServer) -> None:
    values = {b"a": b"1", b"a\x00": bytes(range(256)), b"\x00": b"", "ä/€".encode(): b"wert", b"\xff\xff": b"x"}
    first = etcd.commit(Commit((), tuple(Put(key, value) for key, value in values.items())))
    second = etcd.commit(Commit((), (Put(b"a", b"2"), Delete(b"\xff\xff"))))
    assert listed(etcd_server) == [
        (b"\x00", b"", first, first, 1),
        (b"a", b"2", first, second, 2),
        (b"a\x00", bytes(range(256)), first, first, 1),
        ("ä/€".encode(), b"wert", first, first, 1),
    ]


def test_keyplan_reads_what_etcdctl_wrote(etcd: Engine, etcd_server: EtcdServer) -> None:
    with etcd.snapshot() as snapshot:
        start = snapshot.revision
    watch = etcd.watch(ALL_KEYS, after=start)
    etcd_server.etcdctl("put", "b/1", "one")
    etcd_server.etcdctl("put", "b/1", "two")
    etcd_server.etcdctl("put", "b0", "a neighbour")
    lease = etcd_server.etcdctl("lease", "grant", "600").split()[1]
    etcd_server.etcdctl("put", "b/2", "leased", f"--lease={lease}")
    etcd_server.etcdctl("del", "b/1")
    with etcd.snapshot() as snapshot:
        (entry,) = snapshot.scan(KeyRange.of_prefix(b"b/"))
    assert entry == (b"b/2", b"leased", start + 4, start + 4, 1, int(lease, 16))
    events: list[Event] = []
    while watch.revision < start + 5:
        events += watch.poll(10)
    watch.close()
    assert [(event.kind.value, event.key, event.previous and event.previous.value) for event in events] == [
        ("created", b"b/1", None),
        ("updated", b"b/1", b"one"),
        ("created", b"b0", None),
        ("created", b"b/2", None),
        ("deleted", b"b/1", b"two"),
    ]
    etcd_server.etcdctl("lease", "revoke", lease)


@contextmanager
def watching(server: EtcdServer, start_revision: int) -> Iterator[IO[str]]:
    """`etcdctl watch` of all keys from a revision on: its output, line by line."""
    command = ["etcdctl", *etcdctl_options(server), "watch", "", "--prefix", f"--rev={start_revision}", "-w", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=etcdctl_environment()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


def test_etcdctl_sees_index_entries_arrive_in_the_revision_of_their_record(
    etcd: Engine, etcd_server: EtcdServer
) -> None:
    store = Store(etcd)
    site = Site(store)
    with etcd.snapshot() as snapshot:
        start = snapshot.revision
    site.blades.insert(BladeKey("r1", "1"), Blade(serial="s1", tags=["x", "y"]))
    site.blades.put(BladeKey("r1", "1"), Blade(serial="s2", tags=["y"]))
    with etcd.snapshot() as snapshot:
        end = snapshot.revision
    assert end == start + 2
    changed: dict[int, set[bytes]] = {}
    with watching(etcd_server, start + 1) as lines:
        while end not in changed:
            for event in json.loads(next(lines))["Events"]:
                pair = event["kv"]
                changed.setdefault(pair["mod_revision"], set()).add(base64.b64decode(pair["key"]))
    store.close()
    record, tag_x, tag_y = b"/site/rack/r1/blades/1", b"/site/by-tag/x/r1/1", b"/site/by-tag/y/r1/1"
    assert changed[start + 1] == {record, b"/site/by-serial/s1", tag_x, tag_y}
    # The unique entry has moved and one tag is gone, in the revision of the record; what stays is not written again.
    assert changed[start + 2] == {record, b"/site/by-serial/s1", b"/site/by-serial/s2", tag_x}
