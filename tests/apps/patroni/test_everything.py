"""Issue 9's story with real processes: broker, gateways, cells, Patroni, PostgreSQL, HAProxy; only by what users see."""

import json
import pwd
import signal
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import keyplan
from keyplan.apps.patroni import Broker, Failover
from keyplan.apps.patroni.clusters import members_astray
from keyplan.apps.patroni.node_host import as_user
from keyplan.apps.patroni.processes import Running
from tests.apps.patroni.rotated import (
    assert_a_killed_broker_is_gone_on_for,
    assert_logins_are_rotated,
    assert_the_former_ended,
)
from tests.apps.patroni.up_process import UpProcess, open_to_others, psql, up_process, why_no_up
from tests.docs.markdown import blocks, examples_of
from tests.server.etcd_v3.json_client import JsonClient, b64
from tests.servers.patroni import until

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "patroni-clusters.md"


@pytest.fixture(scope="module")
def everything() -> Iterator[UpProcess]:
    problem = why_no_up()
    if problem is not None:
        pytest.skip(f"needs PostgreSQL clusters: {problem}")
    with up_process(cells=3) as process:
        yield process


def guide_lines() -> tuple[str, str]:
    """What the guide lets its reader type: until something is written, and beside a killed leader."""
    shown = [list(examples_of(block.code)) for block in blocks(GUIDE.read_text()) if block.language == "console"]
    started, asked, killed, *_ = ("\n".join(example.command for example in block) for block in shown)
    assert started.startswith("keyplan patroni up ")
    return asked, killed


def kill(everything: UpProcess, *parts: str) -> None:
    for part in parts:
        everything.part(part).send(signal.SIGKILL)


def leader_of(everything: UpProcess, instance: str) -> str:
    with keyplan.open(everything.ready["store"]) as store:
        return Broker(store).leaders.get(instance) or ""


def follow_members(everything: UpProcess, number: int) -> bool:
    """Whether a cluster has so many members, of which one leads and the others stream from it: none merely runs."""
    with keyplan.open(everything.ready["store"]) as store, store.snapshot() as state:
        broker = Broker(state)
        names = [key.member for key in broker.members.keys("f1")]
        return len(names) == number and not members_astray(broker, "f1", names)


def cell_of(everything: UpProcess, node: str) -> str:
    with keyplan.open(everything.ready["store"]) as store:
        return next(key.cell for key in list(Broker(store).orders.keys()) if key.node == node)


def alive_cells(everything: UpProcess) -> list[str]:
    with keyplan.open(everything.ready["store"]) as store:
        return list(Broker(store).cells.keys())


def cells_of(everything: UpProcess, instance: str) -> list[str]:
    with keyplan.open(everything.ready["store"]) as store:
        return sorted(cell for _, cell in Broker(store).nodes.list(instance))


def processes_of(everything: UpProcess, node: str) -> list[Running]:
    """Patroni and the postmaster of a node, by what its folder says."""
    folder = everything.data / "cells" / cell_of(everything, node) / "nodes" / node
    postmaster = Running.of_pid(int((folder / "home" / "data" / "postmaster.pid").read_text().split()[0]))
    patroni = Running.of_file(folder / "process")
    assert patroni is not None
    assert postmaster is not None
    return [patroni, postmaster]


def has_operation(everything: UpProcess, instance: str) -> bool:
    with keyplan.open(everything.ready["store"]) as store:
        return Broker(store).operations.exists(instance)


def assert_configured_and_restarted(everything: UpProcess, uri: str, leader: str) -> None:
    """A setting that PostgreSQL takes at its start alone, and a restart of all nodes, under which the lead stays."""
    act = "keyplan patroni {} --store lmdb:/srv/clusters/store"
    everything.bash(act.format("configure f1 postgresql.parameters.max_connections=90"))
    everything.bash(act.format("restart f1"))
    assert psql(uri, "show max_connections") == "90"
    assert leader_of(everything, "f1") == leader


def writes(uri: str, number: int) -> bool:
    return psql(uri, f"insert into story values ({number}) on conflict do nothing; select 1") == "1"


def asked_to_switch_over(everything: UpProcess) -> tuple[str, str]:
    """Ask a cluster of two to change its leader, as patronictl does; return who led, and who is to."""
    first = leader_of(everything, "f1")
    until(lambda: follow_members(everything, 2), 60, everything.logs)
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        second = next(key.member for key in broker.members.keys("f1") if key.member != first)
        broker.failovers.put("f1", Failover(leader=first, member=second))
    return first, second


def assert_reads_and_tls(everything: UpProcess, uri: str, reads: str) -> None:
    """The port for reads leads to a replica, where nothing can be written, and PostgreSQL takes nobody without TLS."""
    assert f":{everything.first_read_port}/" in reads
    until(lambda: psql(reads, "select pg_is_in_recovery()") == "t", 60, everything.logs)
    assert "read-only transaction" in psql(reads, "insert into story values (0)")
    assert "SSL connection (protocol: TLS" in psql(uri, r"\conninfo")
    assert "error:" in psql(uri.replace("sslmode=require", "sslmode=disable"), "select 1")
    verified = uri.replace("sslmode=require", f"sslmode=verify-full&sslrootcert={everything.authority.ca}")
    assert psql(verified, "select 1") == "1", "the router leads to who has the certificate"
    assert_certificate_is_replaced(everything, verified)


def assert_certificate_is_replaced(everything: UpProcess, uri: str) -> None:
    """Another certificate takes its place while sessions go on, and no connection is refused meanwhile."""
    authority = everything.authority
    with psycopg.connect(uri) as session:
        authority.issue("server", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n", subject="/CN=the next")
        wanted = ssl.PEM_cert_to_DER_cert(authority.certificate("server").read_text())

        def is_shown() -> bool:
            with psycopg.connect(uri) as fresh:
                fresh.execute("select 1")
            return shown_certificate(everything.first_port) == wanted

        until(is_shown, 60, everything.logs)
        row = session.execute("select 1").fetchone()
        assert row == (1,)


def shown_certificate(port: int) -> bytes | None:
    """The certificate that PostgreSQL shows behind a port: TLS is asked for in its own protocol."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        plain.sendall(struct.pack(">II", 8, 80877103))
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as secured:
            return secured.getpeercert(binary_form=True)


def assert_figures(everything: UpProcess) -> None:
    """One cluster, led, and one router that leads to it."""
    figures = everything.metrics().splitlines()
    assert open_to_others(everything.data) == [], "the store, nodes and their passwords are their owners' alone"
    for expected in ("clusters 1.0", "clusters_without_leader 0.0", "routers 1.0", 'router_ports{state="leading"} 1.0'):
        assert f"keyplan_patroni_{expected}" in figures


def nodes_of(everything: UpProcess, instance: str) -> list[Path]:
    """The folders of the nodes of an instance."""
    with keyplan.open(everything.ready["store"]) as store:
        placed = [(cell, key.node) for key, cell in Broker(store).nodes.list(instance)]
    return [everything.data / "cells" / cell / "nodes" / node for cell, node in placed]


def tokens_of(everything: UpProcess, instance: str) -> set[str]:
    """What nodes of an instance log in to their store with, as their files say."""
    told = [json.loads((folder / "patroni.yml").read_text()) for folder in nodes_of(everything, instance)]
    return {each["etcd3"]["password"] for each in told}


def asked(everything: UpProcess, token: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Ask the gateway as whoever has a token."""
    with JsonClient(everything.ready["gateway"].removesuffix("/v2/keys"), token=token) as client:
        return client.post(f"/v3/{path}", body)


def assert_nodes_are_confined(everything: UpProcess, instance: str) -> None:
    assert_a_node_reaches_its_cluster_alone(everything, instance)
    assert_nodes_are_kept_apart(everything, instance)


def assert_a_node_reaches_its_cluster_alone(everything: UpProcess, instance: str) -> None:
    """What `tests/attacks/test_patroni.py` tries in full, with the token of a real node at the server that it uses."""
    (token,) = tokens_of(everything, instance)
    own = {"key": b64(f"/service/{instance}/"), "range_end": b64(f"/service/{instance}0")}
    status, found = asked(everything, token, "kv/range", own)
    assert (status, "kvs" in found) == (200, True)
    for first, end in (
        ("/service/", "/service0"),
        ("/_broker/", "/_broker0"),
        ("/serviceinstances/", None),
        ("\x00", "\x00"),
    ):
        others = {"key": b64(first), **({"range_end": b64(end)} if end else {})}
        assert asked(everything, token, "kv/range", others)[0] == 403
        assert asked(everything, token, "kv/deleterange", others)[0] == 403
    assert asked(everything, token, "kv/put", {"key": b64("/service/other/leader"), "value": b64("me")})[0] == 403


def assert_nodes_are_kept_apart(everything: UpProcess, instance: str) -> None:
    """Each node has a user of its own, who reads nothing of the other one, and nothing of what all is run with."""
    if not everything.has_instance_users:
        return
    folders = nodes_of(everything, instance)
    users = {path: json.loads((path / "node.json").read_text())["user"] for path in folders}
    assert len({*users.values()} - {"", "postgres"}) == len(folders)
    for path, user in users.items():
        uid = pwd.getpwnam(user).pw_uid
        assert {each.user for each in processes_of(everything, path.name)} == {uid}
        private = [
            everything.data / name
            for name in ("access.toml", "credentials.json", "store/data.mdb", "broker/log", "gateway/log")
        ]
        for other in folders:
            private += [other / "node.json", other / "log"]
            if other != path:
                private += [
                    other / "patroni.yml",
                    other / "server.key",
                    other / "home",
                    other / "home" / "data" / "PG_VERSION",
                ]
        assert [each for each in private if not each.exists()] == []
        assert [each for each in private if may_read(user, each)] == []
        assert [may_read(user, each) for each in (path / "patroni.yml", path / "home")] == [True, True]


def may_read(user: str, path: Path) -> bool:
    """Whether a user can read a file, or list a folder."""
    command = as_user(user, "/bin/ls" if path.is_dir() else "/bin/cat", str(path))
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_known(everything: UpProcess, token: str) -> bool:
    """Whether the gateway knows who has a token."""
    return asked(everything, token, "cluster/member/list", {})[0] == 200


def bound(everything: UpProcess, name: str) -> str:
    """What the story's binding tells its application now."""
    return str(everything.call("GET", "/v2/service_instances/f1/service_bindings/b1")[1]["credentials"][name])


def scaled(everything: UpProcess, service: str, cells: list[str]) -> None:
    """From two nodes to three, by the command, and to two on some cells, by the platform."""
    everything.bash("keyplan patroni scale f1 3 --store lmdb:/srv/clusters/store")
    until(partial(follow_members, everything, 3), 60, everything.logs)
    changed = {"service_id": service, "parameters": {"node-count": 2, "cells": cells}}
    assert everything.call("PATCH", "/v2/service_instances/f1?accepts_incomplete=true", changed)[0] == 202
    assert everything.until_done("f1") == "succeeded"
    until(partial(follow_members, everything, 2), 60, everything.logs)


def assert_nothing_left(everything: UpProcess) -> None:
    """No process, no data, no key, no open port of the instance."""
    assert [line for line in everything.left() if "/nodes/" in line] == []
    assert list(everything.data.glob("cells/*/nodes/*")) == []
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        assert list(broker.members.keys("f1")) == []
        assert broker.leaders.get("f1") is None
        assert not broker.configurations.exists("f1")
        assert list(broker.registrations.keys()) == []
        assert list(broker.orders.keys()) == []
        assert list(broker.reports.keys()) == []
        assert list(broker.allocations.keys()) == []

    def is_closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", everything.first_port)) != 0

    until(is_closed, 60, everything.logs)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_is_provisioned_survives_what_happens_to_it_and_leaves_nothing(everything: UpProcess) -> None:
    asked, killed = guide_lines()
    service = everything.call("GET", "/v2/catalog")[1]["services"][0]
    plan = next(plan["id"] for plan in service["plans"] if plan["name"] == "pair")
    ids = {"service_id": service["id"], "plan_id": plan}
    query = f"service_id={service['id']}&plan_id={plan}"
    instance = "/v2/service_instances/f1"

    # "provision, bind, psql", by the guide's lines; "a broker killed in the middle of a provision", and a gateway: they go on
    with ThreadPoolExecutor(1) as typing:
        printed = typing.submit(everything.bash, asked)
        until(lambda: has_operation(everything, "f1"), 60, everything.logs)
        kill(everything, "broker", "gateway")
        told = printed.result().splitlines()
    assert [line for line in told if line.isupper() or line == "INSERT 0 1"] == ["CREATE TABLE", "INSERT 0 1"]
    assert sorted(line.split("\t")[5] for line in told if "\trunning\t" in line) == ["leader", "replica"]

    # "write through the router"
    assert everything.call("PUT", f"{instance}/service_bindings/b1", ids)[0] == 200
    uri = bound(everything, "uri")
    assert f":{everything.first_port}/" in uri
    assert psql(uri, "create table story (n int primary key); select 1") == "1"
    assert writes(uri, 1)

    # "a rw and ro port" for each instance, and TLS up to PostgreSQL: the router carries what it cannot read
    reads = bound(everything, "read_uri")
    assert_reads_and_tls(everything, uri, reads)

    # Whoever breaks into a node of a cluster reaches that cluster's keys, and no file of another node.
    assert_nodes_are_confined(everything, "f1")

    # Everything that logs in does so anew; what follows, a rewind above all, goes on with it.
    uri, ended = assert_logins_are_rotated(everything, "f1", uri, partial(bound, everything, "uri"))
    reads = bound(everything, "read_uri")
    assert_a_killed_broker_is_gone_on_for(everything, "f1", partial(is_known, everything))

    # No password is on a command line, and the store's URL may hold one.
    assert [line for line in everything.left() if everything.ready["store"] in line] == []

    # "switchover"
    first, second = asked_to_switch_over(everything)
    until(lambda: leader_of(everything, "f1") == second, 60, everything.logs)
    until(lambda: writes(uri, 2), 60, everything.logs)
    until(lambda: follow_members(everything, 2), 60, everything.logs)
    until(lambda: psql(reads, "select pg_is_in_recovery(), count(*) > 0 from story") == "t|t", 60, everything.logs)
    assert_configured_and_restarted(everything, uri, second)
    assert_the_former_ended(everything, ended)

    # "kill -9 of the leader (new leader within the TTL)": with the agent of its cell halted, as if the machine were gone
    agent = everything.part(cell_of(everything, second))
    agent.send(signal.SIGSTOP)
    printed_rows = everything.bash(f"uri='{uri}'\n{killed}")
    assert leader_of(everything, "f1") == first
    assert "(2 rows)" in printed_rows
    assert writes(uri, 3)
    agent.send(signal.SIGCONT)
    until(lambda: len(alive_cells(everything)) == 3, 60, everything.logs)

    # "scale 2 to 3 to 2", while the killed node is still being rewound; the leader's cell is left: another node leads, and all
    # follow it, before its node is removed
    leader = leader_of(everything, "f1")
    others = sorted({"cell1", "cell2", "cell3"} - {cell_of(everything, leader)})
    scaled(everything, service["id"], others)
    assert leader_of(everything, "f1") != leader
    assert cells_of(everything, "f1") == others
    assert psql(uri, "select count(*) from story") == "3"
    assert everything.bash("keyplan patroni doctor --store lmdb:/srv/clusters/store") == "Nothing is wrong.\n"
    assert_figures(everything)

    # "a store restart": everything is stopped, nothing runs; started again, everything is there
    assert everything.tell(signal.SIGTERM) == 0
    assert everything.left() == []
    everything.start()
    until(lambda: writes(uri, 4), 60, everything.logs)
    assert psql(uri, "select count(*) from story") == "4"

    # kill -9 of all that is keyplan's own: clusters and connections go on, and are taken over
    kill(everything, "cell1", "cell2", "cell3", "router")
    assert everything.tell(signal.SIGKILL) == -9
    assert writes(uri, 5)
    before = {name: processes_of(everything, name)[0] for name in (leader_of(everything, "f1"),)}
    everything.start()
    assert {name: processes_of(everything, name)[0] for name in before} == before
    assert writes(uri, 6)

    # The story says "unbind (credentials dead)".
    assert everything.call("DELETE", f"{instance}/service_bindings/b1?{query}")[0] == 200
    assert "error:" in psql(uri, "select 1")

    # The story ends: "deprovision (nothing left: processes, data, keys, port back)".
    assert everything.call("DELETE", f"{instance}?accepts_incomplete=true&{query}")[0] == 202
    assert everything.until_done("f1") in {"succeeded", "410"}
    assert_nothing_left(everything)
    assert everything.tell(signal.SIGTERM) == 0
    assert everything.left() == []
