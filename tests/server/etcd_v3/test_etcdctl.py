"""etcd's own client on the gateway's gRPC: everything that it does with keys, leases, watches and members, and its lock."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from keyplan.engine import MemoryEngine
from keyplan.server import Access, Role, Token
from tests.servers.etcd import etcdctl_environment, why_no_etcd
from tests.servers.gateways import GatewayServer

pytestmark = pytest.mark.skipif(why_no_etcd() is not None, reason=str(why_no_etcd()))

SPEAKS = {"etcd-v3.grpc": "127.0.0.1:0"}
TOKEN = "a-token-of-very-many-characters"


class Etcdctl:
    """etcdctl at an endpoint."""

    def __init__(self, endpoint: str, *options: str) -> None:
        self._command = ["etcdctl", f"--endpoints={endpoint}", "--command-timeout=20s", *options]

    def ended(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run it, and return how it ended."""
        command = [*self._command, *arguments]
        return subprocess.run(
            command, input=said, capture_output=True, text=True, check=False, env=etcdctl_environment(), timeout=60
        )

    def __call__(self, *arguments: str, said: str = "") -> str:
        """Run it, and return what it prints."""
        done = self.ended(*arguments, said=said)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run it, and return the JSON that it prints."""
        return json.loads(self(*arguments, "--write-out=json"))

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start it, for its output to be read."""
        return subprocess.Popen(
            [*self._command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=etcdctl_environment(),
        )


@pytest.fixture
def etcdctl() -> Iterator[Etcdctl]:
    with MemoryEngine() as engine, GatewayServer(engine, settings=SPEAKS) as server:
        yield Etcdctl(server.endpoint)


def test_keys_are_written_read_and_deleted(etcdctl: Etcdctl) -> None:
    assert etcdctl("put", "/a/1", "one") == "OK\n"
    assert etcdctl("put", "/a/2", "two", "--prev-kv") == "OK\n"
    assert etcdctl("get", "/a/", "--prefix") == "/a/1\none\n/a/2\ntwo\n"
    assert etcdctl("get", "/a/", "--prefix", "--keys-only", "--order=DESCEND", "--sort-by=KEY") == "/a/2\n\n/a/1\n\n"
    assert etcdctl("get", "", "--from-key", "--limit=1", "--print-value-only") == "one\n"
    said = 'value("/a/1") = "one"\n\nput /a/1 "1"\nget /a/2\n\nput /a/1 "0"\n\n'
    assert etcdctl("txn", said=said).split() == ["SUCCESS", "OK", "/a/2", "two"]
    assert etcdctl("del", "/a/", "--prefix", "--prev-kv") == "2\n/a/1\n1\n/a/2\ntwo\n"
    future = etcdctl.ended("get", "/a/1", "--rev=99")
    assert "required revision is a future revision" in future.stderr
    old = etcdctl.ended("get", "/a/1", "--rev=2")
    assert "required revision has been compacted" in old.stderr


def test_leases_live_end_and_are_listed(etcdctl: Etcdctl) -> None:
    lease = etcdctl("lease", "grant", "60").split()[1]
    etcdctl("put", "/leased", "1", f"--lease={lease}")
    assert etcdctl("lease", "list") == f"found 1 leases\n{lease}\n"
    assert "attached keys([/leased])" in etcdctl("lease", "timetolive", lease, "--keys")
    assert "keepalived with TTL(60)" in etcdctl("lease", "keep-alive", "--once", lease)
    assert f"lease {lease} revoked" in etcdctl("lease", "revoke", lease)
    assert etcdctl("get", "/leased") == ""
    assert etcdctl("lease", "list") == "found 0 leases\n"
    assert "already expired" in etcdctl("lease", "timetolive", lease)
    assert "requested lease not found" in etcdctl.ended("lease", "revoke", lease).stderr


def test_a_watch_follows_a_prefix(etcdctl: Etcdctl) -> None:
    revision = etcdctl.json("put", "/w/0", "0")["header"]["revision"]
    with etcdctl.started("watch", "/w/", "--prefix", f"--rev={revision}") as watching:
        assert watching.stdout is not None
        assert [watching.stdout.readline() for _ in range(3)] == ["PUT\n", "/w/0\n", "0\n"]
        etcdctl("put", "/w/1", "1")
        etcdctl("del", "/w/1")
        told = [watching.stdout.readline() for _ in range(6)]
        assert told == ["PUT\n", "/w/1\n", "1\n", "DELETE\n", "/w/1\n", "\n"]
        watching.send_signal(signal.SIGTERM)


def test_the_gateway_is_a_member_and_well(etcdctl: Etcdctl) -> None:
    (member,) = etcdctl.json("member", "list")["members"]
    (status,) = etcdctl.json("endpoint", "status")
    assert (status["Status"]["leader"], status["Status"]["version"]) == (member["ID"], "3.4.23")
    assert [one["health"] for one in etcdctl.json("endpoint", "health", "--cluster")] == [True]
    assert etcdctl("alarm", "list") == ""
    for refused in (("defrag",), ("move-leader", "1"), ("snapshot", "save", os.devnull)):
        assert etcdctl.ended(*refused).returncode != 0
    assert "is not served here" in etcdctl.ended("user", "list").stderr


def test_one_at_a_time_has_a_lock(etcdctl: Etcdctl) -> None:
    with etcdctl.started("lock", "/lock") as holder:
        assert holder.stdout is not None
        held = holder.stdout.readline().strip()
        with etcdctl.started("lock", "/lock") as waiting:
            assert waiting.stdout is not None
            while len(etcdctl("get", "/lock", "--prefix", "--keys-only").split()) < 2:
                pass
            holder.send_signal(signal.SIGTERM)
            assert held.startswith("/lock/")
            assert waiting.stdout.readline().strip() not in {"", held}
            waiting.send_signal(signal.SIGTERM)
    assert etcdctl("get", "/lock", "--prefix") == ""


def test_a_user_is_a_token() -> None:
    access = Access((Token.of_text(Role.CLIENT, "ada", TOKEN),), local_role=None)
    with MemoryEngine() as engine, GatewayServer(engine, settings=SPEAKS, access=access) as server:
        assert Etcdctl(server.endpoint, f"--user=ada:{TOKEN}")("put", "/a", "1") == "OK\n"
        assert "authentication failed" in Etcdctl(server.endpoint, "--user=ada:wrong").ended("get", "/a").stderr
        assert "user name is empty" in Etcdctl(server.endpoint).ended("get", "/a").stderr
