"""What only a gateway over a store has: other writers, several gateways, restarts, leases, waits without threads."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyplan.apps.patroni import Broker, Member, MemberKey
from keyplan.engine import SYSTEM_CLOCK, Commit, Delete, Engine, MemoryEngine, Put, open_engine
from keyplan.server import Access, Role, Token
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import Operation
from keyplan.server.etcd_v2.records import Action
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine
from tests.server.etcd_v3.json_client import JsonClient, b64
from tests.servers.etcd import EtcdServer
from tests.servers.gateways import GatewayServer


class Client(httpx.Client):
    """A v2 client."""

    def __init__(self, server: GatewayServer) -> None:
        super().__init__(base_url=server.url, timeout=60)

    def node(self, path: str) -> Any:
        answer = self.request("GET", f"/v2/keys{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()["node"]

    def write(self, path: str, **form: str) -> Any:
        answer = self.put(f"/v2/keys{path}", data=form)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    def wait(self, path: str, *, index: int, recursive: bool = False) -> Any:
        query = f"wait=true&waitIndex={index}&recursive={'true' if recursive else 'false'}"
        return self.get(f"/v2/keys{path}?{query}").json()

    def index(self) -> int:
        return int(self.get("/v2/keys/").headers["x-etcd-index"])


@pytest.fixture(params=["memory:", "lmdb:", pytest.param("etcd:", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with ExitStack() as stack:
        url = {"memory:": "memory:", "lmdb:": f"lmdb:{tmp_path}"}.get(request.param)
        if url is None:
            request.getfixturevalue("etcd_program")
            url = stack.enter_context(EtcdServer()).url
        yield stack.enter_context(open_engine(url))


@pytest.fixture
def server(engine: Engine) -> Iterator[GatewayServer]:
    with GatewayServer(engine) as served:
        yield served


@pytest.fixture
def client(server: GatewayServer) -> Iterator[Client]:
    with Client(server) as opened:
        yield opened


def test_a_form_that_is_too_large_is_refused_in_etcds_words(client: Client) -> None:
    answer = client.put("/v2/keys/large", data={"value": "x" * (2 << 20)})
    assert (answer.status_code, answer.json()["errorCode"], answer.json()["cause"]) == (
        400,
        210,
        "http: POST too large",
    )
    assert answer.headers["connection"] == "close"
    assert client.put("/v2/keys/large", data={"value": "x" * (400 << 10)}).status_code == 201


# ---- other writers ----------------------------------------------------------------------------------------------------


def test_typed_records_and_v2_keys_are_the_same(engine: Engine, client: Client) -> None:
    broker = Broker(Store(engine))
    broker.allocations.insert("f1", 33006)
    assert client.node("/routing/allocation/f1")["value"] == "33006"
    client.write("/service/f1/leader", value="n1")
    assert broker.leaders.get("f1") == "n1"
    member = json.dumps({"role": "replica", "state": "running", "conn_url": "postgres://10.0.0.1:5432/postgres"})
    client.write("/service/f1/members/n1", value=member)
    found = broker.members.get(MemberKey("f1", "n1"))
    assert isinstance(found, Member)
    assert found.address == "10.0.0.1:5432"


def test_changes_of_other_writers_are_events_with_numbers_of_their_own(engine: Engine, client: Client) -> None:
    before = client.write("/a/v2", value="1")["node"]["modifiedIndex"]
    engine.commit(Commit((), (Put(b"/a/x", b"1"), Put(b"/a/y", b"1"), Put(b"\x01binary", b"1"))))
    engine.commit(Commit((), (Put(b"/a/x", b"2"),)))
    engine.commit(Commit((), (Delete(b"/a/y"),)))
    events = [client.wait("/a", index=before + number, recursive=True) for number in range(1, 5)]
    told = [(each["action"], each["node"]["key"], each["node"]["modifiedIndex"] - before) for each in events]
    assert told == [("create", "/a/x", 1), ("create", "/a/y", 2), ("update", "/a/x", 3), ("delete", "/a/y", 4)]
    assert client.index() == before + 4
    assert client.node("/a/x") == {"key": "/a/x", "value": "2", "modifiedIndex": before + 3, "createdIndex": before + 1}


def test_a_failure_tells_the_number_of_what_was_counted_with_it(engine: Engine) -> None:
    """A client that waits from there on would be told of what it has seen."""
    ledger = Ledger(engine, SYSTEM_CLOCK, history_events=1000)
    ledger.start(lambda _counted, _is_waiting: None)
    try:
        (first,) = ledger.run([Operation(Action.SET, "/a", "1")])
        engine.commit(Commit((), (Put(b"/b", b"1"),)))
        done, failed = ledger.run([Operation(Action.SET, "/c", "1"), Operation(Action.DELETE, "/none")])
        assert [first.index + 2, first.index + 2] == [done.index, failed.index]
        engine.commit(Commit((), (Put(b"/b", b"2"),)))
        (failed,) = ledger.run([Operation(Action.DELETE, "/none/below")])
        assert failed.index == first.index + 3
    finally:
        ledger.stop()


def test_a_waiting_client_is_told_of_a_change_by_v3(server: GatewayServer, client: Client) -> None:
    index = client.write("/f/leader", value="n1")["node"]["modifiedIndex"]
    with ThreadPoolExecutor(1) as pool, JsonClient(server.url) as v3:
        waiting = pool.submit(client.wait, "/f/leader", index=index + 1)
        v3.put("/f/leader", "n2")
        event = waiting.result(20)
    assert (event["action"], event["node"]["value"], event["prevNode"]["value"]) == ("update", "n2", "n1")


def test_a_compare_is_with_what_another_writer_left(engine: Engine, client: Client) -> None:
    client.write("/k", value="1")
    engine.commit(Commit((), (Put(b"/k", b"2"),)))
    assert client.put("/v2/keys/k?prevValue=1", data={"value": "3"}).json()["cause"] == "[1 != 2]"
    index = client.node("/k")["modifiedIndex"]
    assert client.put(f"/v2/keys/k?prevIndex={index}", data={"value": "3"}).status_code == 200


def test_directories_of_other_writers_are_there_as_long_as_their_keys(engine: Engine, client: Client) -> None:
    engine.commit(Commit((), (Put(b"/v3/deep/key", b"1"), Put(b"/v3//odd", b"1"), Put(b"/v3/bad\xff", b"1"))))
    assert [node["key"] for node in client.node("/v3")["nodes"]] == ["/v3/deep"]
    client.write("/v3/own/key", value="1")
    engine.commit(Commit((), (Delete(b"/v3/deep/key"), Delete(b"/v3/own/key"))))
    assert client.get("/v2/keys/v3/deep").status_code == 404
    assert client.node("/v3/own")["dir"] is True


def test_a_path_that_is_both_is_a_directory(engine: Engine, client: Client) -> None:
    engine.commit(Commit((), (Put(b"/a", b"file"), Put(b"/a/b", b"1"))))
    assert [node["key"] for node in client.node("/a")["nodes"]] == ["/a/b"]
    assert [node["key"] for node in client.node("/?recursive=true")["nodes"]] == ["/a"]


def test_a_listing_with_many_keys_below_shows_each_directory_once(engine: Engine, client: Client) -> None:
    puts = [Put(f"/big/{folder}/{number}".encode(), b"1") for folder in ("a", "a!", "b") for number in range(30)]
    for start in range(0, len(puts), 30):
        engine.commit(Commit((), tuple(puts[start : start + 30])))
    client.write("/big/_hidden/x", value="1")
    client.write("/big/empty", dir="true")
    assert [node["key"] for node in client.node("/big")["nodes"]] == ["/big/a", "/big/a!", "/big/b", "/big/empty"]
    listed = client.node("/big?recursive=true")["nodes"]
    assert [len(node.get("nodes", ())) for node in listed] == [30, 30, 30, 0]


@pytest.mark.parametrize("count", [64, 65, 200])
def test_a_recursive_listing_is_whole_however_long_it_is(count: int) -> None:
    """Short ones are read at once, longer ones in a thread."""
    with MemoryEngine() as own, GatewayServer(own) as served, Client(served) as asking:
        own.commit(Commit((), tuple(Put(f"/l/{number:03d}/k".encode(), b"v") for number in range(count))))
        nodes = asking.get("/v2/keys/l?recursive=true").json()["node"]["nodes"]
        assert [node["nodes"][0]["key"] for node in nodes] == [f"/l/{number:03d}/k" for number in range(count)]


def test_keys_from_before_the_first_request_have_an_index(engine: Engine) -> None:
    engine.commit(Commit((), (Put(b"/old/key", b"1"),)))
    with GatewayServer(engine) as server, Client(server) as client:
        assert client.node("/old/key") == {"key": "/old/key", "value": "1", "modifiedIndex": 3, "createdIndex": 3}
        assert client.write("/new", value="1")["node"]["modifiedIndex"] == 4


# ---- several gateways, restarts ---------------------------------------------------------------------------------------


def test_several_gateways_on_one_store_give_every_number_once(engine: Engine) -> None:
    with GatewayServer(engine) as one, GatewayServer(engine) as other, Client(one) as first, Client(other) as second:
        began = first.index()

        def write(job: tuple[Client, int]) -> int:
            client, number = job
            answer = client.post("/v2/keys/queue", data={"value": str(number)})
            return int(answer.json()["node"]["modifiedIndex"])

        with ThreadPoolExecutor(6) as pool:
            indexes = list(pool.map(write, [(client, number) for number in range(15) for client in (first, second)]))
        assert sorted(indexes) == list(range(began + 1, began + 31))
        assert first.node("/queue?recursive=true") == second.node("/queue?recursive=true")
        seen = [
            second.wait("/queue", index=index, recursive=True)["node"]["modifiedIndex"] for index in sorted(indexes)
        ]
        assert seen == sorted(indexes)


def test_one_of_many_compare_and_swaps_wins_each_round(engine: Engine) -> None:
    with GatewayServer(engine) as one, GatewayServer(engine) as other, Client(one) as first, Client(other) as second:
        first.write("/counter", value="0")

        def add(client: Client) -> None:
            while True:
                value = int(client.node("/counter")["value"])
                form = {"value": str(value + 1)}
                if client.put(f"/v2/keys/counter?prevValue={value}", data=form).status_code == 200:
                    return

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add, [first, second] * 5))
        assert second.node("/counter")["value"] == "10"


def test_a_restart_goes_on_counting_and_counts_what_was_missed(engine: Engine) -> None:
    with GatewayServer(engine) as server, Client(server) as client:
        index = client.write("/a", value="1")["node"]["modifiedIndex"]
        cluster = client.get("/v2/keys/a").headers["x-etcd-cluster-id"]
        term = client.get("/v2/keys/a").headers["x-raft-term"]
    engine.commit(Commit((), (Put(b"/b", b"1"),)))
    with GatewayServer(engine) as server, Client(server) as client:
        assert client.node("/a")["modifiedIndex"] == index
        assert client.node("/b")["modifiedIndex"] == index + 1
        assert client.wait("/a", index=index)["node"]["value"] == "1"
        headers = client.get("/v2/keys/a").headers
        assert (headers["x-etcd-cluster-id"], headers["x-raft-term"]) == (cluster, term)


def test_what_was_missed_for_too_long_is_a_gap_that_clients_are_told_of() -> None:
    with MemoryEngine(history_revisions_max=5) as engine:
        with GatewayServer(engine) as server, Client(server) as client:
            index = client.write("/a", value="1")["node"]["modifiedIndex"]
        for number in range(20):
            engine.commit(Commit((), (Put(b"/b", str(number).encode()),)))
        with GatewayServer(engine) as server, Client(server) as client:
            now = client.index()
            assert now > index + 1_000
            assert client.wait("/a", index=index + 1)["errorCode"] == 401
            assert client.node("/b")["modifiedIndex"] == now
            assert client.write("/c", value="1")["node"]["modifiedIndex"] == now + 1


# ---- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ttl_ends_a_key_and_everybody_learns_of_it(engine: Engine, server: GatewayServer, client: Client) -> None:
    answer = client.write("/t/key", value="1", ttl="1")
    index = answer["node"]["modifiedIndex"]
    assert answer["node"]["ttl"] == 1
    with JsonClient(server.url) as v3:
        (kept,) = v3.call("/v3/kv/range", {"key": b64("/t/key")})["kvs"]
        assert int(kept["lease"]) != 0
    event = client.wait("/t/key", index=index + 1)
    assert (event["action"], event["node"]["modifiedIndex"], event["prevNode"]["value"]) == ("expire", index + 1, "1")
    assert client.get("/v2/keys/t/key").status_code == 404
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"/t/key") is None


@pytest.mark.slow
def test_a_directorys_ttl_ends_all_that_is_in_it_with_one_event(engine: Engine, client: Client) -> None:
    index = client.write("/d", dir="true", ttl="1")["node"]["modifiedIndex"]
    client.write("/d/x/y", value="1")
    engine.commit(Commit((), (Put(b"/d/of/another", b"1"),)))
    event = client.wait("/d/x/y", index=index + 3)
    assert (event["action"], event["node"]["key"], event["node"]["modifiedIndex"]) == ("expire", "/d", index + 3)
    assert client.get("/v2/keys/d").status_code == 404
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"/d/of/another") is None
    assert client.write("/d/new", value="1")["node"]["createdIndex"] == index + 4


@pytest.mark.slow
def test_a_rewritten_key_outlives_its_first_ttl(client: Client) -> None:
    client.write("/kept", value="1", ttl="1")
    client.write("/kept", refresh="true", ttl="60", prevExist="true")
    index = client.write("/gone", value="1", ttl="1")["node"]["modifiedIndex"]
    assert client.wait("/gone", index=index + 1)["action"] == "expire"
    assert client.node("/kept")["ttl"] > 50
    client.write("/kept", value="2", prevExist="true")
    assert "ttl" not in client.node("/kept")


# ---- waits ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_waits_need_no_thread_each() -> None:
    with MemoryEngine() as engine, GatewayServer(engine) as server, Client(server) as client:
        _wait_often(server, client)


def _wait_often(server: GatewayServer, client: Client) -> None:
    index = client.write("/w/key", value="1")["node"]["modifiedIndex"]
    threads = threading.active_count()
    with (
        httpx.Client(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=200)) as many,
        ExitStack() as stack,
    ):
        request = f"/v2/keys/w?wait=true&recursive=true&waitIndex={index + 1}"
        waiting = [stack.enter_context(many.stream("GET", request)) for _ in range(100)]
        assert client.get("/v2/stats/store").json()["watchers"] == 100
        # Why twelve: the server's own threads for blocking calls; there are sixteen at most.
        assert threading.active_count() <= threads + 12
        client.write("/w/key", value="2")
        bodies = {response.read() for response in waiting}
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["node"]["value"] == "2"


def test_a_wait_ends_empty_when_the_server_stops() -> None:
    with MemoryEngine() as engine, GatewayServer(engine) as server, Client(server) as client:
        client.write("/a", value="1")
        with client.stream("GET", "/v2/keys/a?wait=true") as response:
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            assert response.read() == b""
            stopping.join()


def test_a_client_that_goes_leaves_no_waiter(client: Client) -> None:
    client.write("/a", value="1")
    with client.stream("GET", "/v2/keys/a?wait=true&stream=true"):
        assert client.get("/v2/stats/store").json()["watchers"] == 1
    until(lambda: client.get("/v2/stats/store").json()["watchers"] == 0)


def until(is_true: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < give_up_at


# ---- limits and members -----------------------------------------------------------------------------------------------


def test_a_path_too_long_for_the_engine_is_refused_alone(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine, GatewayServer(engine) as server, Client(server) as client:
        jobs = ["/" + "x" * 600, *(f"/k{number}" for number in range(5))]
        with ThreadPoolExecutor(6) as pool:
            statuses = list(pool.map(lambda path: client.put(f"/v2/keys{path}", data={"value": "1"}).status_code, jobs))
        assert statuses == [500, 201, 201, 201, 201, 201]
        failure = client.put(f"/v2/keys{jobs[0]}", data={"value": "1"}).json()
        assert (failure["errorCode"], failure["cause"]) == (300, "etcdserver: request is too large")


def test_members_are_where_the_client_found_them_or_where_they_are_advertised() -> None:
    with MemoryEngine() as engine:
        with GatewayServer(engine) as server, Client(server) as client:
            assert client.get("/v2/machines").text == server.url
            assert client.get("/v2/members").json()["members"][0]["clientURLs"] == [server.url]
            version = client.request("GET", "/version", content=b"{}").json()
            assert (version["etcdserver"], version["etcdcluster"]) == ("3.4.23", "3.4.0")
        settings = {"advertise": "http://a:2379, http://b:2379/"}
        with GatewayServer(engine, settings=settings) as server, Client(server) as client:
            assert client.get("/v2/machines").text == "http://a:2379, http://b:2379"
            ids = {member["id"] for member in client.get("/v2/members").json()["members"]}
            assert len(ids) == 2


def test_health_is_that_of_the_store() -> None:
    with FailingEngine(MemoryEngine()) as engine, GatewayServer(engine) as server:
        assert (httpx.get(f"{server.url}/health").status_code, httpx.get(f"{server.url}/health").text) == (
            200,
            '{"health":"true"}',
        )
        engine.at_step = len(engine.steps) + 1
        ill = httpx.get(f"{server.url}/health")
        assert (ill.status_code, ill.text) == (503, '{"health":"false"}')


def test_who_is_not_known_is_told_so_in_etcds_words(engine: Engine) -> None:
    access = Access((Token.of_text(Role.CLIENT, "confd", "a-token-of-many-characters"),), local_role=None)
    with GatewayServer(engine, access=access) as server:
        refused = httpx.put(f"{server.url}/v2/keys/a", data={"value": "1"})
        assert refused.status_code == 401
        assert refused.json() == {
            "errorCode": 110,
            "message": "The request requires user authentication",
            "cause": "Insufficient credentials",
            "index": 0,
        }
        assert "x-etcd-cluster-id" in refused.headers
        for path in ("machines", "members", "members/leader", "stats/self", "stats/store", "stats/leader"):
            assert httpx.get(f"{server.url}/v2/{path}").status_code == 401
        log_in = ("any", "a-token-of-many-characters")
        assert httpx.get(f"{server.url}/v2/keys/a", auth=log_in).json()["errorCode"] == 100
        assert httpx.get(f"{server.url}/v2/machines", auth=log_in).text == server.url
