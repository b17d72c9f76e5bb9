"""What only a gateway over a store has: its engine's history and limits, its tokens, keys that are keyplan's own."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyplan.apps.patroni import Broker
from keyplan.engine import Commit, Engine, MemoryEngine, Put, open_engine
from keyplan.server import Access, Role, Token
from keyplan.store import Store
from tests.server.etcd_v3.json_client import JsonClient, WatchLines, b64
from tests.servers.gateways import GatewayServer

EVERYTHING = {"key": b64("\x00"), "range_end": b64("\x00")}


@pytest.fixture(params=["memory:", "lmdb:"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}" if request.param == "lmdb:" else request.param) as opened:
        yield opened


@pytest.fixture
def server(engine: Engine) -> Iterator[GatewayServer]:
    with GatewayServer(engine) as served:
        yield served


@pytest.fixture
def client(server: GatewayServer) -> Iterator[JsonClient]:
    with JsonClient(server.url) as opened:
        yield opened


def test_typed_records_are_the_clients_keys(engine: Engine, client: JsonClient) -> None:
    broker = Broker(Store(engine))
    client.put("/service/f1/leader", "n1")
    assert broker.leaders.get("f1") == "n1"
    broker.allocations.insert("f1", 33006)
    (kept,) = client.call("/v3/kv/range", {"key": b64("/routing/allocation/f1")})["kvs"]
    assert kept["value"] == b64("33006")


def test_a_watch_begins_in_the_past_and_goes_on_live(engine: Engine, server: GatewayServer, client: JsonClient) -> None:
    start = int(client.put("/w/a", "1")["header"]["revision"])
    engine.commit(Commit((), (Put(b"/w/b", b"2"), Put(b"/elsewhere", b"2"))))
    with WatchLines(server.url, {"key": b64("/w/"), "range_end": b64("/w0"), "start_revision": str(start)}) as watch:
        assert watch.next()["result"]["created"] is True
        assert [event["kv"]["key"] for event in watch.events(2)] == [b64("/w/a"), b64("/w/b")]
        client.call("/v3/kv/deleterange", {"key": b64("/w/a")})
        (event,) = watch.events(1)
        assert (event["type"], event["kv"]["key"]) == ("DELETE", b64("/w/a"))


def test_filters_leave_events_out(server: GatewayServer, client: JsonClient) -> None:
    with WatchLines(server.url, {"key": b64("/w"), "filters": ["NOPUT"]}) as watch:
        watch.next()
        client.put("/w", "1")
        client.call("/v3/kv/deleterange", {"key": b64("/w")})
        assert [event["type"] for event in watch.events(1)] == ["DELETE"]


def test_a_watch_from_before_the_history_is_cancelled() -> None:
    with MemoryEngine(history_revisions_max=5) as engine, GatewayServer(engine) as server:
        for number in range(20):
            engine.commit(Commit((), (Put(b"/w", str(number).encode()),)))
        with engine.snapshot() as snapshot:
            compacted = snapshot.revision - 5
        with WatchLines(server.url, {"key": b64("/w"), "start_revision": "2"}) as watch:
            assert watch.next()["result"]["created"] is True
            cancelled = watch.next()["result"]
            assert (cancelled["canceled"], cancelled["compact_revision"]) == (True, str(compacted))
        # A client goes on there. What was committed at that very revision is history already: only what came after it is told.
        request = {"key": b64("/w"), "start_revision": str(compacted)}
        with WatchLines(server.url, request) as watch:
            watch.next()
            assert len(watch.events(5)) == 5


def test_progress_is_told_to_who_asks(engine: Engine) -> None:
    settings = {"etcd-v3.progress": "0.05"}
    request = {"key": b64("/w"), "progress_notify": True}
    with GatewayServer(engine, settings=settings) as server, WatchLines(server.url, request) as watch:
        watch.next()
        told = watch.next()["result"]
        assert "events" not in told
        assert int(told["header"]["revision"]) >= 1


def test_a_watch_ends_when_the_server_stops() -> None:
    with MemoryEngine() as engine, GatewayServer(engine) as server, WatchLines(server.url, {"key": b64("/w")}) as watch:
        watch.next()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert watch.next() is None
        stopping.join()


def test_keys_that_are_keyplans_own_are_not_written(client: JsonClient) -> None:
    denied = (403, "etcdserver: permission denied")
    for path, body in (
        ("/v3/kv/put", {"key": b64("\x00e2s"), "value": b64("1")}),
        ("/v3/kv/deleterange", {"key": b64("\x00"), "range_end": b64("\x01")}),
        ("/v3/kv/txn", {"success": [{"request_put": {"key": b64("\x00kp"), "value": b64("1")}}]}),
    ):
        status, answer = client.post(path, body)
        assert (status, answer["message"]) == denied


def test_a_lease_is_the_engines_and_its_end_deletes(engine: Engine, client: JsonClient) -> None:
    lease = client.call("/v3/lease/grant", {"TTL": 60})["ID"]
    client.put("/leased", "1", lease=lease)
    assert engine.lease(1.0, resume=int(lease)).keep_alive() == 60
    client.call("/v3/lease/revoke", {"ID": lease})
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"/leased") is None
    assert client.post("/v3/lease/revoke", {"ID": lease})[0] == 404


def test_a_lease_tells_how_long_it_lives_and_what_hangs_on_it(client: JsonClient) -> None:
    lease = client.call("/v3/lease/grant", {"TTL": 60})["ID"]
    client.put("/leased", "1", lease=lease)
    client.put("/free", "1")
    for path in ("/v3/lease/timetolive", "/v3/kv/lease/timetolive"):
        told = client.call(path, {"ID": lease, "keys": True})
        assert 0 < int(told["TTL"]) <= 60
        assert (told["ID"], told["grantedTTL"], told["keys"]) == (lease, "60", [b64("/leased")])
    client.call("/v3/lease/revoke", {"ID": lease})
    gone = client.call("/v3/lease/timetolive", {"ID": lease, "keys": True})
    assert {name: gone[name] for name in gone if name != "header"} == {"ID": lease, "TTL": "-1"}


def test_leases_are_listed_by_their_keys_and_by_who_granted_them(engine: Engine, client: JsonClient) -> None:
    empty, gone = (client.call("/v3/lease/grant", {"TTL": 60})["ID"] for _ in range(2))
    client.call("/v3/lease/revoke", {"ID": gone})
    elsewhere = engine.lease(60.0)
    assert client.call("/v3/lease/leases", {})["leases"] == [{"ID": empty}]
    engine.commit(Commit((), (Put(b"/leased", b"1", elsewhere.id), Put(b"/free", b"1"))))
    for path in ("/v3/lease/leases", "/v3/kv/lease/leases"):
        listed = {one["ID"] for one in client.call(path, {})["leases"]}
        assert listed == {empty, str(elsewhere.id)}


def test_history_is_forgotten_once(client: JsonClient) -> None:
    client.put("/a", "1")
    revision = client.put("/a", "2")["header"]["revision"]
    client.call("/v3/kv/compaction", {"revision": revision})
    for forgotten in (revision, "1", "-1"):
        status, answer = client.post("/v3/kv/compaction", {"revision": forgotten})
        assert (status, answer["code"]) == (400, 11)
        assert answer["message"] == "etcdserver: mvcc: required revision has been compacted"


@pytest.mark.parametrize("body", ["null", '{"key": "YQ=="} junk', '{"key": "YQ=="}{"key": "Yg=="}'])
def test_what_follows_the_first_message_is_not_read(server: GatewayServer, client: JsonClient, body: str) -> None:
    client.put("a", "1")
    answer = httpx.post(server.url + "/v3/kv/range", content=body)
    expected = (400, None) if body == "null" else (200, "1")
    assert (answer.status_code, answer.json().get("count")) == expected


def test_messages_of_a_stream_may_follow_one_another_on_one_line(server: GatewayServer) -> None:
    answer = httpx.post(server.url + "/v3/lease/keepalive", content='{"ID": "71"}{"ID": "72"}\n{"ID": "73"}')
    assert [json.loads(line)["result"]["ID"] for line in answer.text.splitlines()] == ["71", "72", "73"]


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/v3/none", 404, "Not Found\n"),
        ("GET", "/v3/kv/none", 404, "Not Found\n"),
        ("POST", "/v3/kv/range/", 404, "Not Found\n"),
        ("GET", "/v3/kv/range", 405, "Method Not Allowed\n"),
        ("PUT", "/v3/watch", 405, "Method Not Allowed\n"),
        ("OPTIONS", "/v3/kv/range", 200, ""),
    ],
)
def test_what_there_is_not_is_told_in_etcds_words(
    server: GatewayServer, method: str, path: str, status: int, text: str
) -> None:
    answer = httpx.request(method, server.url + path)
    assert (answer.status_code, answer.text) == (status, text)
    assert "access-control-allow-origin" not in answer.headers


def test_a_range_of_an_old_revision_is_refused_rather_than_answered_wrongly(client: JsonClient) -> None:
    revision = client.put("/a", "1")["header"]["revision"]
    client.put("/a", "2")
    status, answer = client.post("/v3/kv/range", {"key": b64("/a"), "revision": revision})
    assert (status, answer["message"]) == (400, "etcdserver: mvcc: required revision has been compacted")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v3/kv/put", "no json"),
        ("/v3/kv/put", "[1]"),
        ("/v3/kv/put", '{"key": 1}'),
        ("/v3/kv/put", '{"key": "?"}'),
        ("/v3/kv/put", '{"key": "YQ==", "lease": "x"}'),
        ("/v3/kv/put", '{"key": "YQ==", "lease": "99999999999999999999"}'),
        ("/v3/kv/range", '{"key": "YQ==", "sort_order": "UP"}'),
        ("/v3/kv/txn", '{"compare": {}}'),
        ("/v3/kv/txn", '{"success": [{}]}'),
        ("/v3/lease/grant", '{"TTL": true}'),
        ("/v3/watch", "{}"),
        ("/v3/watch", '{"create_request": {"key": "YQ==", "filters": "x"}}'),
    ],
)
def test_a_malformed_request_is_refused(server: GatewayServer, path: str, body: str) -> None:
    answer = httpx.post(server.url + path, content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 3)


@pytest.mark.parametrize("path", ["/v3/kv/put", "/v3/lease/keepalive", "/v3/watch"])
def test_a_body_that_is_too_large_is_refused_in_etcds_words(server: GatewayServer, path: str) -> None:
    answer = httpx.post(server.url + path, content=b'{"value": "' + b"A" * (2 << 20) + b'"}')
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert answer.json()["error"] == "etcdserver: request is too large"
    assert answer.headers["connection"] == "close"


def test_a_token_is_asked_for_where_there_are_tokens(engine: Engine) -> None:
    access = Access((Token.of_text(Role.CLIENT, "patroni", "a-token-of-many-characters"),), local_role=None)
    with GatewayServer(engine, access=access) as server, JsonClient(server.url) as nobody:
        status, answer = nobody.post("/v3/kv/range", {"key": b64("/a")})
        assert (status, answer["message"]) == (400, "etcdserver: user name is empty")
        login = {"name": "patroni", "password": "a-token-of-many-characters"}
        token = nobody.call("/v3/auth/authenticate", login)["token"]
        status, answer = nobody.post("/v3/auth/authenticate", {**login, "password": "wrong"})
        assert (status, answer["code"]) == (400, 3)
        for text in ("p\u00e4ssword-of-many-characters", "\ud800", "two\r\nlines-of-many-characters", ""):
            assert nobody.post("/v3/auth/authenticate", {**login, "password": text}) == (status, answer)
        with JsonClient(server.url, token=token) as somebody:
            assert "kvs" not in somebody.call("/v3/kv/range", {"key": b64("/a")})
        with JsonClient(server.url, token="wrong") as stranger:
            assert stranger.post("/v3/kv/range", {"key": b64("/a")})[0] == 401
        assert httpx.get(f"{server.url}/v2/keys/").status_code == 401
        basic = httpx.get(f"{server.url}/v2/keys/", auth=("patroni", "a-token-of-many-characters"))
        assert basic.status_code == 200
