"""The same calls to a real etcd 3.4 and to the gateway, over JSON and over gRPC: the same statuses and answers, but for ids."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from keyplan.engine import MemoryEngine
from tests.server.etcd_v3.json_client import JsonClient, WatchLines, b64
from tests.server.etcd_v3.rpc_client import RpcClient, RpcWatch
from tests.servers.etcd import EtcdServer
from tests.servers.gateways import GatewayServer

pytestmark = pytest.mark.slow

PREFIX = {"key": b64("/p/"), "range_end": b64("/p0")}


def compare(key: str, **wanted: Any) -> dict[str, Any]:
    return {"key": b64(key), **wanted}


def put(key: str, value: str, **more: Any) -> dict[str, Any]:
    return {"request_put": {"key": b64(key), "value": b64(value), **more}}


def delete(key: str, **more: Any) -> dict[str, Any]:
    return {"request_delete_range": {"key": b64(key), **more}}


def nested(*, success: Sequence[dict[str, Any]] = (), failure: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"request_txn": {"success": [*success], "failure": [*failure]}}


def levels(count: int, *, width: int = 1) -> dict[str, Any]:
    """So many transactions, one in the other, each with so many operations."""
    inner: dict[str, Any] = {"success": [put(f"/p/leaf{number}", "1") for number in range(width)]}
    for _ in range(count):
        inner = {"success": [{"request_txn": inner}, *({"request_range": PREFIX} for _ in range(width - 1))]}
    return inner


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("a range of nothing", "/v3/kv/range", PREFIX),
    ("a key that is not there", "/v3/kv/range", {"key": b64("/p/a")}),
    ("a put", "/v3/kv/put", {"key": b64("/p/a"), "value": b64("1")}),
    ("a put that shows what was there", "/v3/kv/put", {"key": b64("/p/a"), "value": b64("2"), "prev_kv": True}),
    ("a put of nothing", "/v3/kv/put", {"key": b64("/p/empty")}),
    ("a put without a key", "/v3/kv/put", {"value": b64("1")}),
    ("a put that keeps the value", "/v3/kv/put", {"key": b64("/p/a"), "ignore_value": True}),
    ("a put that keeps and gives a value", "/v3/kv/put", {"key": b64("/p/a"), "value": b64("3"), "ignore_value": True}),
    ("a put that keeps nothing", "/v3/kv/put", {"key": b64("/p/none"), "ignore_value": True}),
    ("a put on a lease that is not", "/v3/kv/put", {"key": b64("/p/a"), "value": b64("3"), "lease": "99"}),
    ("a get", "/v3/kv/range", {"key": b64("/p/a")}),
    ("a prefix", "/v3/kv/range", PREFIX),
    ("a prefix, serializable", "/v3/kv/range", {**PREFIX, "serializable": True}),
    ("a count", "/v3/kv/range", {**PREFIX, "count_only": True}),
    ("keys only", "/v3/kv/range", {**PREFIX, "keys_only": True}),
    ("a limit", "/v3/kv/range", {**PREFIX, "limit": "1"}),
    ("a limit as a number", "/v3/kv/range", {**PREFIX, "limit": 1}),
    ("from the end", "/v3/kv/range", {**PREFIX, "sort_order": "DESCEND"}),
    ("by modification", "/v3/kv/range", {**PREFIX, "sort_order": "DESCEND", "sort_target": "MOD"}),
    ("by number of the order", "/v3/kv/range", {**PREFIX, "sort_order": 2, "sort_target": 0}),
    ("from a modification on", "/v3/kv/range", {**PREFIX, "min_mod_revision": "4"}),
    ("from a key on", "/v3/kv/range", {"key": b64("/p/b"), "range_end": b64("\x00")}),
    ("a revision to come", "/v3/kv/range", {**PREFIX, "revision": "900"}),
    ("names as JSON has them", "/v3/kv/range", {"key": b64("/p/"), "rangeEnd": b64("/p0"), "countOnly": True}),
    (
        "create when absent",
        "/v3/kv/txn",
        {"compare": [compare("/p/new", target="CREATE", create_revision="0")], "success": [put("/p/new", "1")]},
    ),
    (
        "create when present",
        "/v3/kv/txn",
        {"compare": [compare("/p/new", target="CREATE", create_revision="0")], "success": [put("/p/new", "2")]},
    ),
    (
        "compare a modification, nested",
        "/v3/kv/txn",
        {
            "compare": [compare("/p/new", target="VALUE", value=b64("other"))],
            "success": [put("/p/new", "3")],
            "failure": [
                {
                    "request_txn": {
                        "compare": [compare("/p/new", target="VALUE", value=b64("1"))],
                        "success": [put("/p/new", "4", prev_kv=True)],
                    }
                }
            ],
        },
    ),
    (
        "all four comparisons",
        "/v3/kv/txn",
        {
            "compare": [
                compare("/p/a", target="VERSION", result="GREATER", version="1"),
                compare("/p/a", target="MOD", result="LESS", mod_revision="100"),
                compare("/p/a", target="LEASE", result="EQUAL"),
                compare("/p/a", target="VALUE", result="NOT_EQUAL", value=b64("x")),
                compare("/p/none", target="VERSION", version="0"),
            ],
            "success": [{"request_range": {"key": b64("/p/a")}}, put("/p/t", "1"), {"request_range": PREFIX}],
        },
    ),
    (
        "the value of what is not there",
        "/v3/kv/txn",
        {"compare": [compare("/p/none", target="VALUE", result="NOT_EQUAL", value=b64("x"))]},
    ),
    ("one key twice", "/v3/kv/txn", {"success": [put("/p/x", "1"), put("/p/x", "2")]}),
    (
        "a put into what is deleted",
        "/v3/kv/txn",
        {"success": [{"request_delete_range": PREFIX}, put("/p/zzz", "1")]},
    ),
    (
        "a put of what was not there and is deleted",
        "/v3/kv/txn",
        {"success": [{"request_delete_range": {"key": b64("/p/none")}}, put("/p/none", "1")]},
    ),
    (
        "deletes that overlap, and a look at what is left",
        "/v3/kv/txn",
        {
            "success": [
                {"request_delete_range": {"key": b64("/p/s"), "range_end": b64("/p/v"), "prev_kv": True}},
                {"request_delete_range": {"key": b64("/p/t"), "prev_kv": True}},
                {"request_delete_range": {"key": b64("/p/r"), "range_end": b64("/p/u")}},
                {"request_range": PREFIX},
            ]
        },
    ),
    ("what was deleted, again", "/v3/kv/put", {"key": b64("/p/t"), "value": b64("1")}),
    (
        "a delete in a transaction",
        "/v3/kv/txn",
        {"success": [{"request_delete_range": {"key": b64("/p/t"), "prev_kv": True}}]},
    ),
    ("an empty transaction", "/v3/kv/txn", {}),
    ("one key twice, in the branch that is not taken", "/v3/kv/txn", {"failure": [put("/p/x", "1"), put("/p/x", "2")]}),
    (
        "a put into what is deleted, in the branch that is not taken",
        "/v3/kv/txn",
        {"failure": [put("/p/x", "1"), delete("/p/a", range_end=b64("/p/y")), delete("/p/b", range_end=b64("/p/c"))]},
    ),
    (
        "a put beside what is deleted",
        "/v3/kv/txn",
        {"failure": [delete("/p/a", range_end=b64("/p/x")), put("/p/x", "1")]},
    ),
    (
        "a put behind a deletion without an end",
        "/v3/kv/txn",
        {"failure": [delete("/p/a", range_end=b64("\x00")), put("/q", "1")]},
    ),
    ("one key in both branches", "/v3/kv/txn", {"success": [put("/p/x", "1")], "failure": [put("/p/x", "2")]}),
    (
        "one key in both nested branches",
        "/v3/kv/txn",
        {"success": [nested(success=[put("/p/x", "1")], failure=[put("/p/x", "2")])]},
    ),
    (
        "one key in two nested transactions",
        "/v3/kv/txn",
        {"failure": [nested(success=[put("/p/x", "1")]), nested(failure=[put("/p/x", "2")])]},
    ),
    (
        "one key here and in a nested transaction",
        "/v3/kv/txn",
        {"failure": [put("/p/x", "1"), nested(failure=[put("/p/x", "2")])]},
    ),
    (
        "a nested put into what is deleted",
        "/v3/kv/txn",
        {"failure": [delete("/p/x"), nested(failure=[put("/p/x", "2")])]},
    ),
    (
        "a nested deletion of what is put",
        "/v3/kv/txn",
        {"failure": [nested(failure=[delete("/p/x")]), put("/p/x", "2")]},
    ),
    ("nested deletions that overlap", "/v3/kv/txn", {"success": [delete("/p/x"), nested(success=[delete("/p/x")])]}),
    (
        "a put without a key, in the branch that is not taken",
        "/v3/kv/txn",
        {"failure": [{"request_put": {"value": b64("1")}}]},
    ),
    (
        "a put that keeps and gives a value, in the branch that is not taken",
        "/v3/kv/txn",
        {"failure": [put("/p/x", "1", ignore_value=True)]},
    ),
    ("a range without a key, in the branch that is not taken", "/v3/kv/txn", {"failure": [{"request_range": {}}]}),
    ("a deletion without a key, nested", "/v3/kv/txn", {"failure": [nested(failure=[{"request_delete_range": {}}])]}),
    ("a compare without a key", "/v3/kv/txn", {"compare": [{"target": "VERSION"}], "failure": [put("/p/x", "1")]}),
    ("an operation of no kind, in the branch that is not taken", "/v3/kv/txn", {"failure": [{}]}),
    ("128 operations", "/v3/kv/txn", {"success": [put(f"/p/n{number}", "1") for number in range(128)]}),
    ("129 operations", "/v3/kv/txn", {"failure": [put(f"/p/n{number}", "1") for number in range(129)]}),
    ("two levels that share 128 operations", "/v3/kv/txn", levels(1, width=64)),
    ("two levels with more than 128 operations", "/v3/kv/txn", levels(1, width=65)),
    ("ten levels", "/v3/kv/txn", levels(10)),
    ("a delete", "/v3/kv/deleterange", {"key": b64("/p/empty")}),
    ("a delete of nothing", "/v3/kv/deleterange", {"key": b64("/p/empty")}),
    ("a delete of a prefix", "/v3/kv/deleterange", {**PREFIX, "prev_kv": True}),
    ("the end of a lease that is not", "/v3/lease/revoke", {"ID": "4242"}),
    ("no authentication", "/v3/auth/authenticate", {"name": "a", "password": "b"}),
    ("a compaction to come", "/v3/kv/compaction", {"revision": "900"}),
]


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_ids(part)
            for name, part in value.items()
            if name not in {"cluster_id", "member_id", "raft_term", "raftTerm"}
        }
    return [_without_ids(part) for part in value] if isinstance(value, list | tuple) else value


SPEAKS_GRPC: Final = {"etcd-v3.grpc": "127.0.0.1:0"}

Client = JsonClient | RpcClient


@pytest.fixture(params=["json", "grpc"])
def both(request: pytest.FixtureRequest, own_servers: Callable[[Any], Any]) -> Iterator[tuple[Client, Client]]:
    etcd = own_servers(EtcdServer())
    with MemoryEngine() as engine, GatewayServer(engine, settings=SPEAKS_GRPC) as gateway:
        if request.param == "json":
            with JsonClient(etcd.client_url) as real, JsonClient(gateway.url) as ours:
                yield real, ours
        else:
            with RpcClient(etcd.client_endpoint) as real_rpc, RpcClient(gateway.endpoint) as our_rpc:
                yield real_rpc, our_rpc


def _random_calls(chance: random.Random, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Calls on a few keys. A key is written once in each: one that is written twice, nested, is refused here."""
    keys = [f"/p/{letter}" for letter in "abcdefg"]

    def selection() -> dict[str, Any]:
        first, last = sorted(chance.sample(keys, 2))
        return {"key": b64(first), **({"range_end": b64(last)} if chance.random() < 0.6 else {})}

    def looked() -> dict[str, Any]:
        return {
            **(PREFIX if chance.random() < 0.5 else selection()),
            "limit": str(chance.choice([0, 0, 1, 3])),
            "sort_order": chance.choice(["NONE", "ASCEND", "DESCEND"]),
            "sort_target": chance.choice(["KEY", "VERSION", "MOD", "CREATE", "VALUE"]),
            "keys_only": chance.random() < 0.2,
            "count_only": chance.random() < 0.1,
            "revision": str(chance.choice([0, 0, 0, 100_000])),
        }

    def compared() -> dict[str, Any]:
        target, field = chance.choice([("VERSION", "version"), ("MOD", "mod_revision"), ("CREATE", "create_revision")])
        result = chance.choice(["EQUAL", "GREATER", "LESS", "NOT_EQUAL"])
        return {**selection(), "target": target, "result": result, field: str(chance.randrange(4))}

    def written(free: list[str]) -> dict[str, Any]:
        if not free or chance.random() < 0.3:
            return {"request_range": looked()}
        if chance.random() < 0.3:
            return delete(free.pop(), prev_kv=True)
        return put(free.pop(), str(chance.random()), prev_kv=chance.random() < 0.5)

    def transaction(depth: int, free: list[str]) -> dict[str, Any]:
        branch = [written(free) for _ in range(chance.randrange(4))]
        if depth and chance.random() < 0.4:
            branch.append({"request_txn": transaction(depth - 1, free)})
        other = [{"request_range": looked()}] if chance.random() < 0.5 else []
        return {"compare": [compared() for _ in range(chance.randrange(3))], "success": branch, "failure": other}

    for number in range(count):
        kind = chance.choice(["put", "put", "range", "range", "deleterange", "txn", "txn"])
        if kind == "put":
            body = {"key": b64(chance.choice(keys)), "value": b64(str(number)), "prev_kv": True}
        elif kind == "range":
            body = looked()
        elif kind == "deleterange":
            body = {**selection(), "prev_kv": chance.random() < 0.5}
        else:
            body = transaction(2, chance.sample(keys, len(keys)))
        yield f"call {number}: {kind} {body}", f"/v3/kv/{kind}", body


def test_random_calls_are_answered_as_by_etcd(both: tuple[Client, Client]) -> None:
    real, ours = both
    for title, path, body in _random_calls(random.Random(3), 450):
        expected, found = _without_ids(real.post(path, body)), _without_ids(ours.post(path, body))
        assert found == expected, title


def test_every_call_is_answered_as_by_etcd(both: tuple[Client, Client]) -> None:
    real, ours = both
    differing = {}
    for title, path, body in CALLS:
        expected, found = _without_ids(real.post(path, body)), _without_ids(ours.post(path, body))
        if found != expected:
            differing[title] = (found, expected)
    assert differing == {}


def test_leases_are_answered_as_by_etcd(both: tuple[Client, Client]) -> None:
    def conversation(client: Client) -> list[Any]:
        granted = client.call("/v3/lease/grant", {"TTL": 30})
        lease = granted.pop("ID")
        said = [granted, client.put("/p/leased", "1", lease=lease)]
        (kept,) = client.call("/v3/kv/range", {"key": b64("/p/leased")})["kvs"]
        assert kept.pop("lease") == lease
        (listed,) = client.call("/v3/lease/leases", {})["leases"]
        assert listed == {"ID": lease}
        alive = client.call("/v3/lease/keepalive", {"ID": lease})
        assert alive["result"].pop("ID") == lease
        revoked = client.call("/v3/lease/revoke", {"ID": lease})
        gone = client.call("/v3/lease/keepalive", {"ID": lease})
        assert gone["result"].pop("ID") == lease
        return [*said, kept, alive, revoked, gone, client.call("/v3/kv/range", {"key": b64("/p/leased")})]

    real, ours = both
    assert _without_ids(conversation(ours)) == _without_ids(conversation(real))


def test_a_watch_tells_what_etcd_tells(own_servers: Callable[[Any], Any]) -> None:
    etcd = own_servers(EtcdServer())

    def conversation(url: str, watch: Callable[[dict[str, Any]], WatchLines | RpcWatch]) -> list[Any]:
        with JsonClient(url) as client:
            client.call("/v3/kv/deleterange", PREFIX)
            start = client.put("/p/a", "1")["header"]["revision"]
            client.put("/other", "1")
            with watch({**PREFIX, "start_revision": start, "prev_kv": True}) as watched:
                created = watched.next()["result"]
                client.put("/p/a", "2")
                client.call("/v3/kv/deleterange", {"key": b64("/p/a")})
                client.call("/v3/kv/txn", {"success": [put("/p/b", "1"), put("/p/c", "1")]})
                return [created["created"], watched.events(5)]

    with MemoryEngine() as engine, GatewayServer(engine, settings=SPEAKS_GRPC) as gateway:

        def told(url: str, endpoint: str) -> list[Any]:
            lines = conversation(url, lambda request: WatchLines(url, request))
            return [lines, conversation(url, lambda request: RpcWatch(endpoint, request))]

        assert told(gateway.url, gateway.endpoint) == told(etcd.client_url, etcd.client_endpoint)


def test_a_stream_of_watches_is_answered_as_by_etcd(own_servers: Callable[[Any], Any]) -> None:
    """What is asked of one watch after the other, of those that cannot be begun, and of their ends."""
    etcd = own_servers(EtcdServer())

    def conversation(endpoint: str) -> list[Any]:
        told = []
        with RpcClient(endpoint) as client, RpcWatch(endpoint) as stream:
            client.put("/p/a", "1")
            requests: list[dict[str, Any]] = [
                {"create_request": PREFIX},
                {"create_request": {"key": b64("/p/b")}},
                {"create_request": {"key": b64("/p/c"), "watch_id": "7"}},
                {"create_request": {"key": b64("/p/d"), "watch_id": "7"}},
                {"create_request": {"key": b64("/p/d"), "range_end": b64("/p/a")}},
                {"create_request": {"key": b64("/p/d")}},
                {"cancel_request": {"watch_id": "1"}},
                {"cancel_request": {"watch_id": "99"}},
                {"progress_request": {}},
            ]
            for request in requests:
                stream.ask(**request)
                if request != {"cancel_request": {"watch_id": "99"}}:
                    told.append(stream.next())
            client.put("/p/b", "1")
            told.append(stream.next())
            client.put("/p/c", "1")
            told.append(sorted((stream.next() for _ in range(2)), key=str))
        return told

    with MemoryEngine() as engine, GatewayServer(engine, settings=SPEAKS_GRPC) as gateway:
        assert _without_ids(conversation(gateway.endpoint)) == _without_ids(conversation(etcd.client_endpoint))
