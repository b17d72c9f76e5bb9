"""The token of a cluster's node, as somebody who broke into it has it: its own cluster is reached, and nothing else is.

The nodes' own calls are those that Patroni makes: see `tests/apps/patroni/test_everything.py`, where real nodes make them.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.apps.patroni import (
    Broker,
    Cell,
    Credentials,
    InstanceState,
    NodeKey,
    NodeOrder,
    Operation,
    OrderKey,
    StoreIdentity,
)
from keyplan.apps.patroni.cluster_login import (
    Untold,
    ensure_login,
    new_store_credentials,
    principal_name,
    replace_logins,
)
from keyplan.apps.patroni.logins import LoginKind
from keyplan.apps.patroni.node_config import Gateway, NodePlan, patroni_configuration
from keyplan.apps.patroni.service import build
from keyplan.codec import Secret
from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Commit, Engine, Put, open_engine
from keyplan.server import Access, PolicyAccess, Role, Token, etcd_v2, etcd_v3
from keyplan.store import Store
from tests.apps.patroni.osb_platform import SOLO, Platform
from tests.server.etcd_v3.json_client import JsonClient, WatchLines, b64
from tests.servers.gateways import GatewayServer
from tests.servers.patroni import until

ADA: Final = "the-token-of-ada-0123456789abcdef"
EVERYTHING: Final = (
    'read = ["everything"]\nwrite = ["everything"]\nadminister = ["everything"]\naudit = ["everything"]\n'
)
POLICY: Final = f'[principals.ada]\ntokens = ["sha256:{sha256(ADA.encode()).hexdigest()}"]\n{EVERYTHING}'

BUILDERS: Final = {"patroni-broker": build, "etcd-v2": etcd_v2.build, "etcd-v3": etcd_v3.build}

DENIED: Final = (403, "etcdserver: permission denied")
NOBODY: Final = (401, "etcdserver: invalid auth token")
EVERY: Final = {"key": b64("\x00"), "range_end": b64("\x00")}
# Patroni's mode etcd3 asks for what is below its prefix, which ends where the next cluster's begins.
NOBODY_UNTOLD: Final = Untold([], [])
CLUSTERS: Final = ("f1", "f10", "f2")


@pytest.fixture(params=["memory:", "lmdb:"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/store" if request.param == "lmdb:" else request.param) as opened:
        yield opened


@pytest.fixture
def store(engine: Engine) -> Store:
    """Three clusters with a leader each, and what the broker keeps about them."""
    store = Store(engine)
    broker = Broker(store)
    broker.identities.put("identity", StoreIdentity(id="random"))
    for name in CLUSTERS:
        secret = Credentials(username="postgres", password=Secret(f"super-{name}"))
        login = new_store_credentials(name)
        state = InstanceState(instance_id=name, superuser_credentials=secret, store_credentials=login)
        broker.instances.put(name, state)
        broker.operations.put(name, Operation(id=name, kind="provision", status="success"))
        broker.nodes.put(NodeKey(name, f"{name}-n1"), "cell1")
        broker.orders.put(OrderKey("cell1", f"{name}-n1"), NodeOrder(instance=name, superuser=secret, store=login))
        broker.leaders.put(name, f"leader-of-{name}", lease=store.lease(600, keep_alive=False))
    broker.cells.put("cell1", Cell(), lease=store.lease(600, keep_alive=False))
    return store


@pytest.fixture
def server(engine: Engine, store: Store, tmp_path: Path) -> Iterator[GatewayServer]:
    with GatewayServer(engine, access=access_of(tmp_path), builders=BUILDERS) as served:
        yield served


def access_of(folder: Path) -> PolicyAccess:
    """Ada's access file: no cluster stands in it."""
    file = folder / "access.toml"
    file.write_text(POLICY)
    file.chmod(0o600)
    return PolicyAccess.of_file(file)


def another_token(store: Store, instance: str, *, former_until: float) -> Untold:
    """Give a cluster another token; the one that it has counts until a time."""
    logins = {LoginKind.TOKEN: new_store_credentials(instance)}
    return store.run(
        lambda binding: replace_logins(Broker(binding), instance, logins, now=0.0, former_until=former_until)
    )


def token_of(store: Store, instance: str) -> str:
    return Broker(store).instances.require(instance).store_credentials.password.reveal()


class Node:
    """Somebody with a token."""

    def __init__(self, server: GatewayServer, token: str) -> None:
        self.url, self.token = server.url, token

    def __call__(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with JsonClient(self.url, token=self.token) as client:
            status, answer = client.post(f"/v3/{path}", body)
        return (status, answer) if status == 200 else (status, answer.get("message", ""))

    def keys(self, body: dict[str, Any]) -> list[str]:
        status, answer = self("kv/range", body)
        assert status == 200, answer
        return [kv["key"] for kv in answer.get("kvs", [])]


@pytest.fixture
def node(server: GatewayServer, store: Store) -> Node:
    return Node(server, token_of(store, "f1"))


def one(key: str, **more: Any) -> dict[str, Any]:
    return {"key": b64(key), **more}


def below(prefix: str) -> dict[str, Any]:
    """All keys that begin so, as Patroni asks for them."""
    return {"key": b64(prefix), "range_end": b64(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def put(key: str) -> dict[str, Any]:
    return {"request_put": one(key, value=b64("stolen"))}


def transaction(*operations: dict[str, Any], compare: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"compare": compare or [], "success": list(operations), "failure": []}


def state_of(engine: Engine) -> list[tuple[bytes, bytes]]:
    """All but what the broker's observer notes of clusters, which it does beside every call."""
    with engine.snapshot() as snapshot:
        return [
            pair
            for pair in snapshot.pairs(ALL_KEYS)
            if not pair[0].startswith((b"/_broker/events/", b"/_broker/seen/"))
        ]


def test_a_node_makes_the_calls_of_patroni(node: Node) -> None:
    assert node("auth/authenticate", {"name": "cluster:f1", "password": node.token})[1]["token"] == node.token
    assert node("cluster/member/list", {})[0] == 200
    lease = node("lease/grant", {"TTL": 20})[1]["ID"]
    assert node.keys(below("/service/f1/")) == [b64("/service/f1/leader")]
    with WatchLines(node.url, {**below("/service/f1/"), "filters": []}, token=node.token) as watch:
        assert watch.next()["result"]["created"] is True
        member = one("/service/f1/members/n1", value=b64("{}"), lease=lease)
        assert node("kv/put", member)[0] == 200
        created = {**one("/service/f1/initialize"), "target": "CREATE", "create_revision": "0"}
        begun = transaction({"request_put": one("/service/f1/initialize", value=b64(""))}, compare=[created])
        assert node("kv/txn", begun)[1]["succeeded"] is True
        assert [event["kv"]["key"] for event in watch.events(2)] == [member["key"], created["key"]]
    assert node("lease/keepalive", {"ID": lease})[1]["result"]["TTL"] == "20"
    assert node("kv/deleterange", below("/service/f1/"))[1]["deleted"] == "3"


def test_a_node_makes_the_calls_of_patroni_by_v2(node: Node) -> None:
    """Its password is HTTP's, whose names end at a colon."""
    name = patroni_configuration(plan_of("f1", node.token), home=Path("/h"), programs=Path("/p"))["etcd"]["username"]
    with httpx.Client(base_url=node.url, auth=(name, node.token)) as http:
        assert http.get("/v2/machines").status_code == 200
        begun = http.put("/v2/keys/service/f1/initialize", params={"prevExist": "false"}, data={"value": ""})
        assert begun.status_code == 201
        member = http.put("/v2/keys/service/f1/members/n1", data={"value": "{}", "ttl": "30"})
        assert member.status_code == 201
        listed = http.get("/v2/keys/service/f1/", params={"recursive": "true", "quorum": "true"}).json()["node"]
        assert {each["key"] for each in listed["nodes"]} == {
            f"/service/f1/{name}" for name in ("initialize", "leader", "members")
        }
        taken = http.put("/v2/keys/service/f1/leader", params={"prevValue": "leader-of-f1"}, data={"value": "n1"})
        assert taken.status_code == 200
        seen = {"wait": "true", "waitIndex": str(taken.json()["node"]["modifiedIndex"])}
        assert http.get("/v2/keys/service/f1/leader", params=seen).json()["node"]["value"] == "n1"
        for other in ("f2", "f10"):
            assert http.get(f"/v2/keys/service/{other}/leader").status_code in {401, 403, 404}
            refused = http.put(f"/v2/keys/service/{other}/leader", data={"value": "n1"})
            assert refused.status_code in {401, 403}
        assert http.delete("/v2/keys/service/f1/", params={"recursive": "true"}).status_code == 200


def plan_of(instance: str, token: str) -> NodePlan:
    login = Credentials(username=principal_name(instance), password=Secret(token))
    gateway = Gateway("127.0.0.1:1", mode="etcd", username=login.username, password=login.password)
    return NodePlan(
        instance=instance,
        node="n1",
        port=1,
        rest_port=2,
        superuser=login,
        replication=login,
        rest=login,
        gateway=gateway,
    )


READS: Final[dict[str, dict[str, Any]]] = {
    "another cluster's leader": one("/service/f2/leader"),
    "that of one whose name begins like the own": one("/service/f10/leader"),
    "all below the own prefix, without its slash": below("/service/f1"),
    "another cluster": below("/service/f2/"),
    "all clusters": below("/service/"),
    "the directory of the own cluster": one("/service/f1"),
    "everything": EVERY,
    "from the own leader on": one("/service/f1/leader", range_end=b64("\x00")),
    "the passwords of another's superuser": one("/serviceinstances/f2/state"),
    "those of its own": one("/serviceinstances/f1/state"),
    "orders, with tokens": below("/_broker/orders/"),
    "operations": below("/_broker/operations/"),
    "bindings": below("/_broker/bindings/"),
    "which store it is": one("/_broker/store/identity"),
    "cells": below("/_broker/cells/"),
    "ports": below("/routing/"),
    "the registry of key spaces": one("\x00kp", range_end=b64("\x00kq")),
    "marks of leases": one("\x00ac", range_end=b64("\x00ad")),
}
WRITES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "another's leader": ("kv/put", one("/service/f2/leader", value=b64("me"))),
    "the leader of one that begins like the own": ("kv/put", one("/service/f10/leader", value=b64("me"))),
    "a key without a cluster": ("kv/put", one("/service/f1", value=b64("x"))),
    "an order": ("kv/put", one("/_broker/orders/cell1/mine", value=b64('{"instance":"f2"}'))),
    "a removal": ("kv/put", one("/_broker/orders/cell1/f2-n1", value=b64('{"instance":"f2","remove":true}'))),
    "its own record": ("kv/put", one("/serviceinstances/f1/state", value=b64("{}"))),
    "a port": ("kv/put", one("/routing/allocation/f1", value=b64("33000"))),
    "keys of the registry": ("kv/put", one("\x00kp", value=b64("x"))),
    "everything that there is": ("kv/deleterange", EVERY),
    "all clusters, gone": ("kv/deleterange", below("/service/")),
    "another's leader beside its own": ("kv/txn", transaction(put("/service/f1/leader"), put("/service/f2/leader"))),
    "in a nested transaction": ("kv/txn", transaction({"request_txn": transaction(put("/service/f2/leader"))})),
    "a guess at another's leader": (
        "kv/txn",
        transaction(compare=[one("/service/f2/leader", target="VALUE", value=b64("leader-of-f2"))]),
    ),
    "a guess whether there is another": (
        "kv/txn",
        transaction(compare=[one("/service/f3/leader", target="CREATE", create_revision="0")]),
    ),
}


def test_what_is_anothers_is_neither_read_nor_written(node: Node, engine: Engine) -> None:
    before = state_of(engine)
    assert {what: node("kv/range", body) for what, body in READS.items()} == dict.fromkeys(READS, DENIED)
    counts = {what: node("kv/range", {**body, "count_only": True}) for what, body in READS.items()}
    assert counts == dict.fromkeys(READS, DENIED)
    assert {what: node(path, body) for what, (path, body) in WRITES.items()} == dict.fromkeys(WRITES, DENIED)
    assert state_of(engine) == before


def test_nothing_of_anothers_is_watched(node: Node) -> None:
    for what, body in READS.items():
        with WatchLines(node.url, {**body, "start_revision": "1"}, token=node.token) as watch:
            told = watch.next()["result"]
            assert (told["created"], told["canceled"]) == (True, True), what
            assert watch.next() is None


def test_a_lease_of_another_cluster_is_not_there(node: Node, server: GatewayServer, store: Store) -> None:
    theirs = Node(server, token_of(store, "f2"))
    lease = theirs("lease/grant", {"TTL": 60})[1]["ID"]
    assert theirs("kv/put", one("/service/f2/members/n1", value=b64("x"), lease=lease))[0] == 200
    missing = (404, "etcdserver: requested lease not found")
    for number in (lease, *(str(lease) for lease in range(1, 8))):
        assert node("lease/revoke", {"ID": number}) == missing
        assert "TTL" not in node("lease/keepalive", {"ID": number})[1]["result"]
        assert node("lease/timetolive", {"ID": number, "keys": True})[1]["TTL"] == "-1"
    assert node("kv/put", one("/service/f1/leader", value=b64("x"), lease=lease)) == missing
    assert theirs("lease/timetolive", {"ID": lease, "keys": True})[1]["keys"] == [b64("/service/f2/members/n1")]


def test_history_is_forgotten_for_oneself_alone(node: Node, server: GatewayServer, store: Store) -> None:
    theirs = Node(server, token_of(store, "f2"))
    revision = theirs("kv/put", one("/service/f2/config", value=b64("1")))[1]["header"]["revision"]
    assert node("kv/compaction", {"revision": revision})[0] == 200
    with WatchLines(server.url, {**below("/service/f2/"), "start_revision": revision}, token=theirs.token) as watch:
        assert [event["kv"]["key"] for event in watch.events(1)] == [b64("/service/f2/config")]


@pytest.mark.parametrize(
    "path", ["/v2/keys/service/f2/leader", "/v2/keys/?recursive=true", "/v2/catalog", "/admin/cells"]
)
def test_other_services_of_the_server_show_a_node_nothing_of_others(node: Node, path: str) -> None:
    answer = httpx.get(
        node.url + path, headers={"Authorization": f"Bearer {node.token}", "X-Broker-API-Version": "2.17"}
    )
    assert "leader-of-f2" not in answer.text
    assert "super-" not in answer.text
    assert answer.status_code in {401, 403, 404} or "recursive" in path, answer.text


# ---- how long a token counts ---------------------------------------------------------------------------------------------


def is_known(node: Node) -> bool:
    told = node("cluster/member/list", {})
    # Why also 429: who asks until a token counts has guessed often.
    assert told[0] in {200, 429} or told == NOBODY
    return told[0] == 200


def test_a_token_counts_from_the_commit_that_makes_its_cluster_to_the_one_that_erases_it(
    server: GatewayServer, store: Store
) -> None:
    broker = Broker(store)
    login = new_store_credentials("f3")
    node = Node(server, login.password.reveal())
    assert not is_known(node)
    broker.instances.put("f3", InstanceState(instance_id="f3", store_credentials=login))
    until(lambda: is_known(node), 30, lambda: "the server hears of a new cluster")
    with WatchLines(server.url, below("/service/f3/"), token=node.token) as watch:
        assert watch.next()["result"]["created"] is True
        broker.instances.delete("f3")
        until(lambda: not is_known(node), 30, lambda: "the server hears that it is gone")
        line = watch.next()
        assert line is None or line["result"]["canceled"], "what was watched under the name goes with it"
    # The next one of this name is somebody else's, and has another token.
    again = new_store_credentials("f3")
    broker.instances.put("f3", InstanceState(instance_id="f3", store_credentials=again))
    until(lambda: is_known(Node(server, again.password.reveal())), 30, lambda: "the server hears of the next one")
    assert not is_known(node)


def test_a_token_that_was_replaced_counts_for_as_long_as_is_said(
    server: GatewayServer, store: Store, node: Node
) -> None:
    now = SYSTEM_CLOCK.wall()
    assert another_token(store, "f1", former_until=now + 600) == NOBODY_UNTOLD
    fresh = Node(server, token_of(store, "f1"))
    assert fresh.token != node.token
    until(lambda: is_known(fresh), 30, lambda: "the server hears of the new token")
    assert is_known(node)
    assert another_token(store, "f1", former_until=now) == NOBODY_UNTOLD
    last = Node(server, token_of(store, "f1"))
    until(lambda: is_known(last), 30, lambda: "the server hears of the last token")
    assert (is_known(fresh), is_known(node)) == (False, False)
    orders = Broker(store).orders
    assert orders.require(OrderKey("cell1", "f1-n1")).store.password.reveal() == last.token
    assert orders.require(OrderKey("cell1", "f2-n1")).store.password.reveal() == token_of(store, "f2")


def test_a_damaged_order_keeps_no_token_from_being_replaced_and_a_cell_that_is_away_is_named(store: Store) -> None:
    broker, before = Broker(store), token_of(store, "f1")
    broker.nodes.put(NodeKey("f1", "f1-n2"), "cell2")
    broker.orders.put(OrderKey("cell2", "f1-n2"), NodeOrder(instance="f1"))
    broker.node_intents.put(NodeKey("f1", "f1-n3"), "cell1")
    broker.orders.put(OrderKey("cell1", "f1-n3"), NodeOrder(instance="f1", remove=True))
    store.engine.commit(Commit((), (Put(b"/_broker/orders/cell1/f1-n1", b"{broken"),)))
    assert another_token(store, "f1", former_until=0.0) == Untold(["cell2"], ["f1-n1"])
    assert token_of(store, "f1") != before
    told = broker.orders.require(OrderKey("cell2", "f1-n2"))
    assert told.store.password.reveal() == token_of(store, "f1")
    assert told.superuser.password.reveal() == "super-f1", "an order of a former broker had no users"
    assert broker.orders.require(OrderKey("cell1", "f1-n3")) == NodeOrder(instance="f1", remove=True)


def test_a_cluster_that_was_made_without_a_token_is_given_one_and_its_nodes_are_told(
    server: GatewayServer, store: Store
) -> None:
    """As one of a server that knew no clusters: before it had an access file, or before it knew any."""
    broker = Broker(store)
    broker.nodes.put(NodeKey("old", "old-n1"), "cell1")
    broker.orders.put(OrderKey("cell1", "old-n1"), NodeOrder(instance="old"))
    secret = Credentials(username="postgres", password=Secret("super-old"))
    broker.instances.put("old", InstanceState(instance_id="old", superuser_credentials=secret))
    until(lambda: token_of(store, "old") != "", 30, lambda: "it is given a token")
    order = broker.orders.require(OrderKey("cell1", "old-n1"))
    assert order.store.password.reveal() == token_of(store, "old")
    assert order.superuser.password.reveal() == "super-old"
    until(lambda: is_known_as(Node(server, token_of(store, "old")), "old"), 30, lambda: "and is known by it")
    ensure_login(store, "old", now=0.0)
    assert order == broker.orders.require(OrderKey("cell1", "old-n1")), "once is enough"


def test_clusters_that_were_there_before_the_server_are_known_when_it_answers(
    engine: Engine, store: Store, tmp_path: Path
) -> None:
    with GatewayServer(engine, access=access_of(tmp_path), builders=BUILDERS) as served:
        assert [is_known_as(Node(served, token_of(store, name)), name) for name in CLUSTERS] == [True] * 3


def test_a_cluster_is_made_with_a_token_where_somebody_would_know_it(
    engine: Engine, store: Store, tmp_path: Path
) -> None:
    roles = Access((Token.of_text(Role.ADMIN, "broker", ADA),), local_role=None)
    with GatewayServer(engine, access=roles, builders=BUILDERS) as served:
        assert Platform(served.url, token=ADA).provision("f7", SOLO).status_code == 202
        assert token_of(store, "f7") == ""
    with GatewayServer(engine, access=access_of(tmp_path), builders=BUILDERS) as served:
        assert Platform(served.url, token=ADA).provision("f8", SOLO).status_code == 202
        assert token_of(store, "f8") != ""
        until(lambda: token_of(store, "f7") != "", 30, lambda: "the other one is given one now")


def test_what_cannot_be_read_opens_nothing_and_closes_nothing(
    server: GatewayServer, store: Store, engine: Engine, node: Node
) -> None:
    assert is_known(node)
    for key in ("f1", "f9"):
        with JsonClient(server.url, token=ADA) as client:
            client.put(f"/serviceinstances/{key}/state", json.dumps({"store_credentials": 1}))
    moment = {"store_credentials": {"password": "x" * 40}, "former_store_credentials": {"password": "y" * 40}}
    with JsonClient(server.url, token=ADA) as client:
        client.put("/serviceinstances/f8/state", json.dumps({**moment, "former_store_until": 1e300}))
    other = new_store_credentials("f4")
    Broker(store).instances.put("f4", InstanceState(instance_id="f4", store_credentials=other))
    until(lambda: is_known(Node(server, other.password.reveal())), 30, lambda: "the server goes on to hear of clusters")
    assert is_known(node)


def test_nobody_becomes_an_administrator_by_a_record(server: GatewayServer, store: Store) -> None:
    """Who could write the broker's records would have to know a token to make it a cluster's, and could not widen it."""
    taken = Credentials(username="ada", password=Secret(ADA))
    Broker(store).instances.put("f5", InstanceState(instance_id="f5", store_credentials=taken))
    other = new_store_credentials("f6")
    Broker(store).instances.put("f6", InstanceState(instance_id="f6", store_credentials=other))
    until(lambda: is_known_as(Node(server, other.password.reveal()), "f6"), 30, lambda: "the server hears of f6")
    assert Node(server, ADA)("kv/range", EVERY)[0] == 200, "a token of the access file stays its principal's"
    assert Node(server, other.password.reveal())("kv/range", EVERY) == DENIED


def is_known_as(node: Node, cluster: str) -> bool:
    return node("kv/range", below(f"/service/{cluster}/"))[0] == 200
