"""The v2 keys API as somebody sees it who is granted a part of the store: a cell of Patroni's, beside others."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Commit, Engine, MemoryEngine, Put, WrappedEngine, open_engine
from keyplan.errors import LeaseNotFoundError
from keyplan.server import Caller, PolicyAccess, Role, Stores
from keyplan.server.etcd_v2.answers import Code, KeysFailure
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.reach import with_books
from keyplan.server.etcd_v2.records import Action, directory_key
from keyplan.testing.faults import FakeClock
from tests.attacks.world import BANK, SHOP, TOKENS, World, policy_of
from tests.keyspace.stores import swept
from tests.servers.gateways import GatewayServer

SECONDS_MAX: Final = 45.0
DENIED: Final = {
    "errorCode": 110,
    "message": "The request requires user authentication",
    "cause": "Insufficient credentials",
    "index": 0,
}
GRANTS: Final = {
    "ada": dict.fromkeys(("read", "write", "administer"), "everything"),
    "cell": dict.fromkeys(("read", "write"), "prefix:/service/batman/"),
    "shop": dict.fromkeys(("read", "write"), "prefix:/service/robin/"),
    "reader": {"read": "prefix:/service/batman/"},
}


class Keys:
    """The keys as somebody."""

    def __init__(self, url: str, who: str) -> None:
        headers = {"authorization": f"Bearer {TOKENS[who]}"}
        self._http = httpx.Client(base_url=url + "/v2/keys", headers=headers, timeout=SECONDS_MAX)

    def ask(self, method: str, key: str, **form: str) -> tuple[int, Any]:
        query = {} if method in {"PUT", "POST"} else form
        answer = self._http.request(method, key, params=query, data=form if not query else None)
        return answer.status_code, answer.json() if answer.content else None

    @contextmanager
    def streamed(self, key: str, query: dict[str, str]) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on."""
        with self._http.stream("GET", key, params=query) as answer:
            yield answer.iter_lines()

    def put(self, key: str, value: str = "1", **form: str) -> int:
        status, answer = self.ask("PUT", key, value=value, **form)
        assert status in {200, 201}, answer
        index: int = answer["node"]["modifiedIndex"]
        return index

    def shown(self, key: str) -> list[str]:
        """The keys that a recursive listing shows."""
        status, answer = self.ask("GET", key, recursive="true")
        assert status == 200, answer
        return list(_keys(answer["node"]))

    def close(self) -> None:
        self._http.close()


def _keys(node: dict[str, Any]) -> Iterator[str]:
    for child in node.get("nodes", ()):
        yield child["key"]
        yield from _keys(child)


@pytest.fixture(params=["memory:", "lmdb:"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/store" if request.param == "lmdb:" else request.param) as opened:
        yield opened


@pytest.fixture
def server(engine: Engine, tmp_path: Path) -> Iterator[GatewayServer]:
    file = tmp_path / "access.toml"
    file.write_text(policy_of(GRANTS))
    file.chmod(0o600)
    with GatewayServer(engine, access=PolicyAccess.of_file(file)) as served:
        yield served


class Clients:
    def __init__(self, url: str) -> None:
        self.ada, self.cell, self.shop, self.reader = (Keys(url, who) for who in GRANTS)


@pytest.fixture
def clients(server: GatewayServer) -> Iterator[Clients]:
    made = Clients(server.url)
    made.ada.put("/service/robin/leader", "r1")
    yield made
    for one in vars(made).values():
        one.close()


# ---- reading and listing -------------------------------------------------------------------------------------------------


def test_a_cell_finds_its_own_beside_others(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    clients.cell.put("/service/batman/members/b1", "up")
    own = ["/service/batman/leader", "/service/batman/members", "/service/batman/members/b1"]
    assert clients.cell.shown("/service/batman") == own
    assert clients.cell.shown("/service") == ["/service/batman", *own]
    assert clients.cell.shown("/") == ["/service", "/service/batman", *own]
    assert clients.reader.shown("/service/batman/") == own
    assert "/service/robin/leader" in clients.ada.shown("/")
    assert clients.cell.ask("GET", "/service/batman/leader")[1]["node"]["value"] == "b1"


@pytest.mark.parametrize("path", ["/service/robin/leader", "/service/robin", "/service/batman2", "/elsewhere"])
def test_what_lies_outside_is_refused_in_etcds_words(clients: Clients, path: str) -> None:
    for method, form in (
        ("GET", {}),
        ("GET", {"recursive": "true"}),
        ("GET", {"wait": "true"}),
        ("PUT", {"value": "x"}),
        ("PUT", {"value": "x", "prevExist": "true"}),
        ("PUT", {"value": "x", "prevIndex": "1"}),
        ("PUT", {"dir": "true", "ttl": "1"}),
        ("POST", {"value": "x"}),
        ("DELETE", {}),
        ("DELETE", {"recursive": "true"}),
    ):
        assert clients.cell.ask(method, path, **form) == (401, DENIED), (method, form)
    assert clients.ada.ask("GET", "/service/robin/leader")[1]["node"]["value"] == "r1"


def test_what_is_above_is_seen_and_not_touched(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader")
    for method, form in (
        ("PUT", {"value": "x"}),
        ("PUT", {"dir": "true"}),
        ("PUT", {"dir": "true", "prevExist": "true", "ttl": "1"}),
        ("POST", {"value": "x"}),
        ("DELETE", {"dir": "true"}),
        ("DELETE", {"recursive": "true"}),
    ):
        assert clients.cell.ask(method, "/service", **form) == (401, DENIED), (method, form)
    assert clients.cell.ask("GET", "/service")[0] == 200


def test_a_file_in_the_place_of_the_own_directory_is_anothers(clients: Clients) -> None:
    clients.ada.put("/service/batman", "a file")
    assert clients.cell.ask("GET", "/service/batman")[0] == 404
    assert clients.cell.ask("PUT", "/service/batman", value="x") == (401, DENIED)
    assert clients.ada.ask("GET", "/service/batman")[1]["node"]["value"] == "a file"


# ---- writing -------------------------------------------------------------------------------------------------------------


def test_all_kinds_of_writes_are_done_in_the_own_part(clients: Clients) -> None:
    cell = clients.cell
    index = cell.put("/service/batman/leader", "b1", prevExist="false", ttl="100")
    assert cell.ask("PUT", "/service/batman/leader", value="x", prevExist="false")[0] == 412
    assert cell.ask("PUT", "/service/batman/leader", value="b2", prevIndex=str(index))[0] == 200
    assert cell.ask("PUT", "/service/batman/leader", value="b3", prevValue="b1")[0] == 412
    assert cell.ask("PUT", "/service/batman/leader", refresh="true", ttl="50", prevExist="true")[0] == 200
    first, second = (cell.ask("POST", "/service/batman/queue", value=value)[1]["node"]["key"] for value in "12")
    assert [first, second] == cell.shown("/service/batman/queue")
    assert cell.ask("DELETE", "/service/batman/queue", dir="true")[0] == 403
    assert cell.ask("DELETE", "/service/batman/queue", recursive="true")[0] == 200
    assert cell.ask("DELETE", "/service/batman/leader", prevValue="b2")[0] == 200


def test_a_cell_is_removed_by_its_own_principal(clients: Clients) -> None:
    clients.cell.put("/service/batman/members/b1")
    assert clients.cell.ask("DELETE", "/service/batman", recursive="true")[0] == 200
    assert clients.cell.ask("GET", "/service/batman")[0] == 404
    assert clients.ada.shown("/service") == ["/service/robin", "/service/robin/leader"]


def test_who_may_read_writes_nothing(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    for method, form in (("PUT", {"value": "x", "prevValue": "guess"}), ("DELETE", {}), ("POST", {"value": "x"})):
        assert clients.reader.ask(method, "/service/batman/leader", **form) == (401, DENIED)


def test_an_own_directory_ends_with_its_time_and_takes_its_own_alone(clients: Clients) -> None:
    clients.cell.ask("PUT", "/service/batman/short", dir="true", ttl="1")
    index = clients.cell.put("/service/batman/short/x")
    waited = clients.cell.ask("GET", "/service/batman", wait="true", recursive="true", waitIndex=str(index + 1))
    assert waited[1]["action"] == "expire"
    assert clients.cell.ask("GET", "/service/batman/short")[0] == 404
    assert clients.shop.ask("GET", "/service/robin/leader")[0] == 200


def test_what_others_changed_is_counted_before_an_own_write(clients: Clients, engine: Engine) -> None:
    before = clients.cell.put("/service/batman/leader", "b1")
    engine.commit(Commit((), (Put(b"/service/batman/leader", b"by another program"), Put(b"/service/robin/x", b"1"))))
    status, answer = clients.cell.ask("PUT", "/service/batman/leader", value="b2")
    assert (status, answer["prevNode"]["value"]) == (200, "by another program")
    assert answer["node"]["modifiedIndex"] == before + 3, "two changes of others have numbers of their own"
    told = clients.cell.ask("GET", "/service/batman/leader", wait="true", waitIndex=str(before + 1))[1]
    assert (told["action"], told["node"]["value"]) == ("update", "by another program")


# ---- waiting -------------------------------------------------------------------------------------------------------------


def test_a_wait_is_told_of_the_own_events_alone(clients: Clients) -> None:
    index = clients.cell.put("/service/batman/leader", "b1")
    for number in range(150):  # Why so many: more than a stream may leave unread.
        clients.shop.put("/service/robin/leader", str(number))
    own = clients.cell.put("/service/batman/leader", "b2")
    for path in ("/", "/service", "/service/batman"):
        told = clients.cell.ask("GET", path, wait="true", recursive="true", waitIndex=str(index + 1))[1]
        assert (told["node"]["value"], told["node"]["modifiedIndex"]) == ("b2", own)


def test_a_wait_that_has_begun_passes_over_others_events(clients: Clients, server: GatewayServer) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    told: list[Any] = []
    waiting = threading.Thread(
        target=lambda: told.append(clients.cell.ask("GET", "/", wait="true", recursive="true")[1])
    )
    waiting.start()
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {TOKENS['ada']}"}) as http:
        while http.get("/v2/stats/store").json()["watchers"] != 1:
            pass
    clients.shop.put("/service/robin/leader", "r2")
    assert not told
    clients.cell.put("/service/batman/leader", "b2")
    waiting.join(SECONDS_MAX)
    assert told[0]["node"]["value"] == "b2"


def test_who_waits_is_told_that_all_that_is_above_has_gone(clients: Clients) -> None:
    index = clients.cell.put("/service/batman/leader", "b1")
    assert clients.ada.ask("DELETE", "/service", recursive="true")[0] == 200
    told = clients.cell.ask("GET", "/service/batman/leader", wait="true", waitIndex=str(index + 1))[1]
    assert (told["action"], told["node"]["key"]) == ("delete", "/service")
    assert "robin" not in str(told)


# ---- what changes hands --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    """What the leases of the world's store go by."""
    return FakeClock()


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock) -> Iterator[World]:
    with MemoryEngine(clock=clock) as memory:
        yield World(memory, tmp_path / "world.toml")


@contextmanager
def serving(world: World) -> Iterator[dict[str, Keys]]:
    with GatewayServer(world.engine, access=PolicyAccess.of_file(world.file)) as served:
        keys = {name: Keys(served.url, name) for name in ("ada", "bank", "shop")}
        yield keys
        for one in keys.values():
            one.close()


def given_to_the_shop(world: World) -> None:
    swept(world.registry, BANK.keyspace)
    world.adopt(BANK, name="loans", application=SHOP.application)


def is_gone(engine: Engine, lease: int) -> bool:
    try:
        engine.lease(1, resume=lease)
    except LeaseNotFoundError:
        return True
    return False


def test_directories_of_a_former_owner_are_not_there_and_their_times_end_nothing(
    world: World, clock: FakeClock
) -> None:
    with serving(world) as keys:
        bank, shop = keys["bank"], keys["shop"]
        for path, form in (("/bank/hidden7f3a-dir", {}), ("/bank/short", {"ttl": "600"}), ("/bank/short/deep", {})):
            assert bank.ask("PUT", path, dir="true", **form)[0] == 201
        assert bank.ask("PUT", "/bank", dir="true", prevExist="true", ttl="600")[0] == 200
        leases = [lease_of(world.engine, path) for path in ("/bank", "/bank/short")]
        given_to_the_shop(world)
        shop.put("/bank/short/x", "of the shop")
        clock.advance(1_000)
        assert all(is_gone(world.engine, lease) for lease in leases)
        keys["ada"].put("/other")
        shop.put("/bank/y")
        assert shop.shown("/bank") == ["/bank/short", "/bank/short/x", "/bank/y"]
        assert "ttl" not in str(shop.ask("GET", "/bank", recursive="true"))


def lease_of(engine: Engine, path: str) -> int:
    with engine.snapshot() as state:
        entry = state.get(directory_key(path))
    assert entry is not None
    assert entry.lease
    return entry.lease


def test_what_a_former_owner_lost_is_counted_late_and_takes_nothing_of_the_next_one_along(world: World) -> None:
    with serving(world) as keys:
        for path, form in (("/bank/short", {"ttl": "600"}), ("/bank/long", {})):
            assert keys["bank"].ask("PUT", path, dir="true", **form)[0] == 201
    given_to_the_shop(world)
    world.put({"/bank/short/x": "1", "/bank/long/x": "2"})
    with serving(world) as keys:
        shown = ["/bank/long", "/bank/long/x", "/bank/short", "/bank/short/x"]
        assert keys["shop"].shown("/bank") == shown
        for path in ("/bank/short/x", "/bank/long/x"):
            assert keys["shop"].ask("DELETE", path)[0] == 200
        # What the shop has not made is there as long as something is in it.
        assert keys["shop"].ask("GET", "/bank/long")[0] == 404


def test_a_stream_of_the_next_owner_begins_behind_the_events_of_the_former_one(world: World) -> None:
    with serving(world) as keys:
        for number in range(150):  # Why so many: more than a stream may leave unread.
            keys["bank"].put("/bank/known", str(number))
        given_to_the_shop(world)
        keys["shop"].put("/bank/known", "of the shop")
        wait = {"wait": "true", "stream": "true", "recursive": "true", "waitIndex": "1"}
        with keys["shop"].streamed("/bank", wait) as lines:
            event = json.loads(next(lines))
    assert (event["action"], event["node"]["value"]) == ("set", "of the shop")
    assert "prevNode" not in event


def test_what_is_written_after_the_end_of_a_directory_is_kept(world: World, clock: FakeClock) -> None:
    with serving(world) as keys:
        assert keys["ada"].ask("PUT", "/d", dir="true", ttl="600")[0] == 201
        for name in ("a", "c", "e"):
            keys["ada"].put(f"/d/{name}")
        lease = lease_of(world.engine, "/d")
    clock.advance(1_000)
    assert is_gone(world.engine, lease)
    world.put({"/d/b": "new", "/d/c": "anew", "/d/f/g": "new"})
    with serving(world) as keys:
        assert keys["ada"].shown("/d") == ["/d/b", "/d/c", "/d/f", "/d/f/g"]


# ---- what the gateway tells of itself ----------------------------------------------------------------------------------


def test_how_much_all_ask_is_told_to_whom_that_is_granted(server: GatewayServer) -> None:
    def status(who: str, path: str) -> int:
        headers = {"authorization": f"Bearer {TOKENS[who]}"}
        return httpx.get(f"{server.url}/v2/{path}", headers=headers, timeout=SECONDS_MAX).status_code

    for path in ("machines", "members", "members/leader", "stats/self", "stats/leader"):
        assert status("cell", path) == 200, path
    assert [status(who, "stats/store") for who in ("ada", "cell", "reader")] == [200, 401, 401]


# ---- what stands behind the answers --------------------------------------------------------------------------------------


def test_an_operation_outside_that_nobody_looked_at_is_refused_by_the_store_itself(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(policy_of(GRANTS))
    file.chmod(0o600)
    ledger = Ledger(engine, SYSTEM_CLOCK, history_events=1000)
    access = PolicyAccess.of_file(file)
    store = Stores(engine, access).with_books(with_books, ledger.leases).of(Caller(Role.CLIENT, "cell"))
    ledger.start(lambda _records, _is_waiting: None)
    try:
        ledger.run([Operation(Action.SET, "/service/robin/leader", "r1"), Operation(Action.SET, "/x/y", "1")])
        with engine.snapshot() as snapshot:
            before = list(snapshot.pairs(ALL_KEYS))
        outside = [
            Operation(Action.SET, "/service/robin/leader", "stolen"),
            Operation(Action.SET, "/service/new", "stolen", ttl_seconds=5),
            Operation(Action.CREATE, "/service", is_unique=True),
            Operation(Action.UPDATE, "/service", is_directory=True, ttl_seconds=1),
            Operation(Action.DELETE, "/service", is_recursive=True),
            Operation(Action.DELETE, "/x", is_recursive=True),
            Operation(Action.SET, "/x", is_directory=True, ttl_seconds=1),
        ]
        refused = [outcome for operation in outside for outcome in ledger.run([operation], store)]
        assert all(isinstance(one, KeysFailure) for one in refused), refused
        with engine.snapshot() as snapshot:
            assert list(snapshot.pairs(ALL_KEYS)) == before
        own = Operation(Action.SET, "/service/batman/leader", "b1", ttl_seconds=5)
        (done, stolen) = ledger.run([own, outside[0]], store)
        assert isinstance(done, Done)
        assert isinstance(stolen, KeysFailure)
        assert stolen.code is Code.UNAUTHORIZED
    finally:
        ledger.stop()


class _SlowCommits(WrappedEngine):
    """An engine whose commits of a key wait until somebody lets them."""

    def __init__(self, inner: Engine, key: bytes) -> None:
        super().__init__(inner)
        self._key = key
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def commit(self, commit: Commit) -> int:
        if any(isinstance(one, Put) and one.key == self._key for one in commit.mutations):
            self.begun.set()
            self.goes_on.wait()
        return super().commit(commit)


def test_who_loses_everything_while_their_write_waits_has_not_written(tmp_path: Path) -> None:
    everything = dict.fromkeys(("read", "write", "administer"), "everything")
    file = tmp_path / "access.toml"
    file.write_text(policy_of({"ada": everything, "cell": everything}))
    file.chmod(0o600)
    told: list[tuple[int, Any]] = []
    with MemoryEngine() as memory:
        engine = _SlowCommits(memory, b"/first")
        with GatewayServer(engine, access=PolicyAccess.of_file(file)) as server:
            ada, cell, third = Keys(server.url, "ada"), Keys(server.url, "cell"), Keys(server.url, "cell")
            ada.put("/there")
            first = threading.Thread(target=lambda: ada.put("/first"))
            second = threading.Thread(target=lambda: told.append(cell.ask("PUT", "/second", value="stolen")))
            first.start()
            engine.begun.wait()
            second.start()
            while "keyplan_etcd_v2_operations_pending 1.0" not in _figures(server.url):
                pass
            file.write_text(policy_of({"ada": everything, "cell": {}}))
            while third.ask("GET", "/there")[0] != 401:
                pass  # A server looks at its file once in a second.
            engine.goes_on.set()
            first.join()
            second.join()
            for one in (ada, cell, third):
                one.close()
        assert told == [(401, DENIED)]
        assert (memory.value(b"/first"), memory.value(b"/second")) == (b"1", None)


def _figures(url: str) -> str:
    return httpx.get(f"{url}/metrics", headers={"authorization": f"Bearer {TOKENS['ada']}"}, timeout=SECONDS_MAX).text
