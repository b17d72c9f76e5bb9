"""The gateway of etcd v3, over JSON and gRPC, as two tenants, a cell and an auditor: what one has, no other one reaches."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import grpc
import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Put, open_engine
from keyplan.keyspace import Founding, KeySpaces
from keyplan.server import PolicyAccess
from keyplan.testing.engine_suite import eventually
from tests.keyspace.stores import swept
from tests.server.etcd_v3.json_client import JsonClient, WatchLines, b64
from tests.server.etcd_v3.rpc_client import RpcClient, RpcWatch
from tests.servers.gateways import GatewayServer

DENIED: Final = (403, "etcdserver: permission denied")
STATUSES: Final = {grpc.StatusCode.OK: 200, grpc.StatusCode.PERMISSION_DENIED: 403, grpc.StatusCode.NOT_FOUND: 404}
NAMES: Final = ("ada", "shop", "bank", "cell", "reader", "auditor", "nothing")
TOKENS: Final = {name: f"the-token-of-{name}-0123456789abcdef" for name in NAMES}

# Prefix 01: orders of shop; 02: ledger of bank; outside both: /service/batman/ of the cell.
MINE, THEIRS, CELL, FENCE = "\x01a", "\x02a", "/service/batman/a", "\x00kp\x03orders\x00"
EVERY: Final = {"key": b64("\x00"), "range_end": b64("\x00")}


def principal(name: str, **grants: str) -> str:
    digest = sha256(TOKENS[name].encode()).hexdigest()
    lines = "".join(f'{act} = ["{on}"]\n' for act, on in grants.items())
    return f'[principals.{name}]\ntokens = ["sha256:{digest}"]\n{lines}\n'


POLICY: Final = "".join(
    (
        principal("ada", read="everything", write="everything", administer="everything", audit="everything"),
        principal("shop", read="application:shop", write="application:shop", administer="application:shop"),
        principal("bank", read="application:bank", write="application:bank"),
        principal("cell", read="prefix:/service/batman/", write="prefix:/service/batman/"),
        principal("reader", read="everything"),
        principal("auditor", audit="everything"),
        principal("nothing"),
    )
)


class Where(NamedTuple):
    """Over which engine, and in what the gateway is spoken."""

    engine: str
    front: str


@pytest.fixture(params=[Where("memory:", "json"), Where("lmdb:", "json"), Where("memory:", "grpc")], ids="-".join)
def where(request: pytest.FixtureRequest) -> Where:
    asked: Where = request.param
    return asked


@pytest.fixture
def engine(where: Where, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/store" if where.engine == "lmdb:" else where.engine) as opened:
        yield opened


@pytest.fixture
def registry(engine: Engine) -> KeySpaces:
    registry = KeySpaces(engine, founding=Founding(prefix_codec="uvarint", profile="none"))
    registry.configure({"keyspace-api-enabled": True, "reuse-cooldown-seconds": 0})
    registry.create("orders", "shop")
    registry.create("ledger", "bank")
    keys = (MINE, THEIRS, CELL, "/service/batgirl/a")
    engine.commit(Commit((), tuple(Put(key.encode(), key.encode()) for key in keys)))
    return registry


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(POLICY)
    path.chmod(0o600)
    return path


@pytest.fixture
def server(engine: Engine, registry: KeySpaces, file: Path) -> Iterator[GatewayServer]:
    with GatewayServer(engine, access=PolicyAccess.of_file(file), settings={"etcd-v3.grpc": "127.0.0.1:0"}) as served:
        yield served


class Watched(Protocol):
    """What a watch answers, over whatever front; `next` is None at its end."""

    def next(self) -> Any: ...
    def events(self, count: int) -> list[Any]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...


class Ask:
    """One call by its path below /v3, as somebody."""

    def __init__(self, server: GatewayServer) -> None:
        self.url = server.url

    def __call__(self, name: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with JsonClient(self.url, token=TOKENS[name]) as client:
            status, answer = client.post(f"/v3/{path}", body)
        return (status, answer) if status == 200 else (status, answer["message"])

    def keys(self, name: str, body: dict[str, Any]) -> list[str]:
        status, answer = self(name, "kv/range", body)
        assert status == 200, answer
        return [kv["key"] for kv in answer.get("kvs", [])]

    def watch(self, name: str, request: dict[str, Any]) -> Watched:
        return WatchLines(self.url, request, token=TOKENS[name])


class OneWatch(RpcWatch):
    """A stream of one watch, told as over JSON: it ends with the watch, whatever its status."""

    def __init__(self, endpoint: str, request: dict[str, Any], *, token: str) -> None:
        super().__init__(endpoint, request, token=token)
        self.ask_no_more()

    def next(self) -> Any:
        while isinstance(answer := super().next(), tuple):
            pass
        return answer


class RpcAsk(Ask):
    """The same over gRPC: a status is told as JSON tells it."""

    def __init__(self, server: GatewayServer) -> None:
        super().__init__(server)
        self.endpoint = server.endpoint

    def __call__(self, name: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with RpcClient(self.endpoint, token=TOKENS[name]) as client:
            code, answer = client.post(f"/v3/{path}", body)
        return STATUSES[code], answer

    def watch(self, name: str, request: dict[str, Any]) -> Watched:
        return OneWatch(self.endpoint, request, token=TOKENS[name])


@pytest.fixture
def ask(server: GatewayServer, where: Where) -> Ask:
    return RpcAsk(server) if where.front == "grpc" else Ask(server)


def one(key: str, **more: Any) -> dict[str, Any]:
    return {"key": b64(key), **more}


def transaction(*operations: dict[str, Any], compare: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"compare": compare or [], "success": list(operations), "failure": []}


def state(engine: Engine) -> list[tuple[bytes, bytes]]:
    with engine.snapshot() as snapshot:
        return list(snapshot.pairs(ALL_KEYS))


# ---- everybody has their own ---------------------------------------------------------------------------------------------


def test_each_reads_and_writes_what_is_theirs(ask: Ask, engine: Engine) -> None:
    for name, key, neighbour in (("shop", MINE, "\x01b"), ("bank", THEIRS, "\x02b"), ("cell", CELL, CELL + "b")):
        assert ask.keys(name, one(key)) == [b64(key)]
        assert ask(name, "kv/put", one(neighbour, value=b64("new")))[0] == 200
        assert engine.value(neighbour.encode()) == b"new"
    assert ask.keys("shop", one("\x01", range_end=b64("\x02"))) == [b64(MINE), b64("\x01b")]


def test_who_may_read_everything_sees_all_but_what_is_the_registrys(ask: Ask) -> None:
    shown = ask.keys("reader", EVERY)
    assert shown == [b64(key) for key in (MINE, THEIRS, "/service/batgirl/a", CELL)]
    assert ask("reader", "kv/range", {**EVERY, "count_only": True})[1]["count"] == "4"
    assert ask("reader", "kv/put", one(MINE, value=b64("x"))) == DENIED
    assert ask("reader", "kv/range", one(FENCE)) == DENIED
    # Why not in the list of all: it shows what is of the store's users, whoever asks. Named, it is there for who may have it.
    assert ask.keys("ada", EVERY) == shown
    assert ask.keys("ada", one(FENCE)) == [b64(FENCE)]


# ---- nobody has another's ------------------------------------------------------------------------------------------------

PUT: Final = {"request_put": one(THEIRS, value=b64("stolen"))}
ATTACKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "a key": ("kv/range", one(THEIRS)),
    "a key that is not there": ("kv/range", one("\x02nothing")),
    "a range": ("kv/range", one("\x02", range_end=b64("\x03"))),
    "a range across the border": ("kv/range", one("\x01", range_end=b64("\x03"))),
    "all keys": ("kv/range", EVERY),
    "from a key on": ("kv/range", one(THEIRS, range_end=b64("\x00"))),
    "a count": ("kv/range", {**EVERY, "count_only": True}),
    "a sorted range": ("kv/range", {**EVERY, "sort_target": "VALUE", "limit": 1}),
    "a range by revisions": ("kv/range", {**EVERY, "min_mod_revision": "1"}),
    "the registry": ("kv/range", one("\x00kp", range_end=b64("\x00kq"))),
    "a fence": ("kv/range", one(FENCE)),
    "marks of leases": ("kv/range", one("\x00ac", range_end=b64("\x00ad"))),
    "a put": ("kv/put", one(THEIRS, value=b64("stolen"))),
    "a put that shows what was": ("kv/put", one(THEIRS, value=b64("x"), prev_kv=True)),
    "a put that keeps the value": ("kv/put", one(THEIRS, ignore_value=True)),
    "a put on a fence": ("kv/put", one(FENCE, value=b64("x"))),
    "a key of nobody": ("kv/put", one("/elsewhere", value=b64("x"))),
    "a neighbour of the own prefix": ("kv/put", one("/service/batgirl/a", value=b64("x"))),
    "a deletion": ("kv/deleterange", one(THEIRS)),
    "a deletion of all": ("kv/deleterange", EVERY),
    "a deletion across the border": ("kv/deleterange", one("\x01", range_end=b64("\x03"), prev_kv=True)),
    "a put in a transaction": ("kv/txn", transaction(PUT)),
    "a put in a nested transaction": ("kv/txn", transaction({"request_txn": transaction(PUT)})),
    "a range in a transaction": ("kv/txn", transaction({"request_range": one(THEIRS)})),
    "a guess in a compare": ("kv/txn", transaction(compare=[one(THEIRS, target="VALUE", value=b64(THEIRS))])),
    "a guess whether it is there": ("kv/txn", transaction(compare=[one(THEIRS, target="VERSION", version="0")])),
    "a guess on a range": ("kv/txn", transaction(compare=[{**EVERY, "target": "LEASE", "lease": "0"}])),
}


@pytest.mark.parametrize("name", ["shop", "cell", "auditor", "nothing"])
def test_what_is_anothers_is_refused_and_nothing_is_written(ask: Ask, engine: Engine, name: str) -> None:
    before = state(engine)
    told = {attack: ask(name, path, body) for attack, (path, body) in ATTACKS.items()}
    assert told == dict.fromkeys(ATTACKS, DENIED)
    assert state(engine) == before


def test_a_refusal_of_one_operation_refuses_those_that_are_allowed_with_it(ask: Ask, engine: Engine) -> None:
    own = {"request_put": one(MINE, value=b64("changed"))}
    assert ask("shop", "kv/txn", transaction(own, PUT)) == DENIED
    assert engine.value(MINE.encode()) == MINE.encode()


# ---- leases and history (S8) ---------------------------------------------------------------------------------------------


def test_a_lease_is_its_owners_alone(ask: Ask, engine: Engine) -> None:
    lease = ask("bank", "lease/grant", {"TTL": "60"})[1]["ID"]
    assert ask("bank", "kv/put", one("\x02leased", value=b64("x"), lease=lease))[0] == 200
    missing = (404, "etcdserver: requested lease not found")
    assert ask("shop", "lease/revoke", {"ID": lease}) == missing
    assert ask("shop", "kv/put", one("\x01b", value=b64("x"), lease=lease)) == missing
    assert ask("shop", "lease/timetolive", {"ID": lease, "keys": True})[1]["TTL"] == "-1"
    assert "TTL" not in ask("shop", "lease/keepalive", {"ID": lease})[1]["result"]
    assert engine.value(b"\x02leased") == b"x"
    shown = ask("bank", "lease/timetolive", {"ID": lease, "keys": True})[1]
    assert shown["keys"] == [b64("\x02leased")]
    assert ask("bank", "lease/revoke", {"ID": lease})[0] == 200
    assert engine.value(b"\x02leased") is None


@pytest.mark.parametrize("name", ["reader", "auditor", "nothing"])
def test_who_may_write_nothing_gets_no_lease(ask: Ask, name: str) -> None:
    assert ask(name, "lease/grant", {"TTL": "60"}) == DENIED


def test_who_compacts_forgets_their_own_history_alone(ask: Ask, engine: Engine) -> None:
    start = int(ask("bank", "kv/put", one("\x02b", value=b64("1")))[1]["header"]["revision"])
    now = int(ask("shop", "kv/put", one("\x01b", value=b64("1")))[1]["header"]["revision"])
    assert ask("shop", "kv/compaction", {"revision": str(now)})[0] == 200
    assert ask("nothing", "kv/compaction", {"revision": str(now)}) == DENIED
    with ask.watch("bank", one("\x02", range_end=b64("\x03"), start_revision=str(start))) as watch:
        assert [event["kv"]["key"] for event in watch.events(1)] == [b64("\x02b")]
    with ask.watch("shop", one("\x01", range_end=b64("\x02"), start_revision=str(now - 1))) as watch:
        assert watch.next()["result"]["created"] is True
        assert watch.next()["result"]["compact_revision"] == str(now)


# ---- watches -------------------------------------------------------------------------------------------------------------


WATCHED: Final = (
    one(THEIRS), EVERY, one("\x01", range_end=b64("\x03")), one(FENCE), {**EVERY, "start_revision": "1"},
)  # fmt: skip


@pytest.mark.parametrize("name", ["shop", "cell", "auditor", "nothing"])
def test_a_watch_on_anothers_keys_is_cancelled(ask: Ask, name: str) -> None:
    for request in WATCHED:
        with ask.watch(name, request) as watch:
            told = watch.next()["result"]
            assert (told["created"], told["canceled"]) == (True, True)
            assert told["cancel_reason"] == "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
            assert watch.next() is None


def followers() -> int:
    return sum(thread.name == "keyplan-follower" for thread in threading.enumerate())


def test_who_changes_what_they_may_see_keeps_no_thread_for_each_time(ask: Ask, registry: KeySpaces) -> None:
    before = followers()
    with ExitStack() as stack:
        watches = []
        for number in range(7):
            registry.create(f"more{number}", "shop")
            watches.append(stack.enter_context(ask.watch("shop", one("\x01", range_end=b64("\x02")))))
            assert watches[-1].next()["result"]["created"] is True
        assert [watch.next() for watch in watches[:3]] == [None] * 3, "the oldest have ended"
        eventually(lambda: followers() - before == 4)
        ask("shop", "kv/put", one(MINE, value=b64("new")))
        for watch in watches[3:]:
            assert [event["kv"]["key"] for event in watch.events(1)] == [b64(MINE)]


def test_a_watch_tells_of_the_own_keys_past_and_to_come(ask: Ask, engine: Engine) -> None:
    start = int(ask("shop", "kv/put", one(MINE, value=b64("1")))[1]["header"]["revision"])
    engine.commit(Commit((), (Put(THEIRS.encode(), b"2"), Put(b"\x01z", b"2"))))
    with ask.watch("shop", one("\x01", range_end=b64("\x02"), start_revision=str(start))) as watch:
        assert [event["kv"]["key"] for event in watch.events(2)] == [b64(MINE), b64("\x01z")]
        engine.commit(Commit((), (Put(THEIRS.encode(), b"3"), Put(b"\x01z", b"3"))))
        assert [event["kv"]["key"] for event in watch.events(1)] == [b64("\x01z")]


def test_who_reads_everything_is_told_of_everything_but_the_registry(ask: Ask, registry: KeySpaces) -> None:
    with ask.watch("reader", EVERY) as watch:
        assert watch.next()["result"]["created"] is True
        registry.create("more", "shop")
        ask("shop", "kv/put", one(MINE, value=b64("1")))
        assert [event["kv"]["key"] for event in watch.events(1)] == [b64(MINE)]


# ---- what changes hands (S4) ---------------------------------------------------------------------------------------------


def test_what_is_deleted_and_made_anew_for_another_is_the_others(ask: Ask, engine: Engine, registry: KeySpaces) -> None:
    with ask.watch("shop", one("\x01", range_end=b64("\x02"))) as watch:
        assert watch.next()["result"]["created"] is True
        swept(registry, "orders")
        registry.create("loans", "bank", prefix="01")
        assert ask("bank", "kv/put", one(MINE, value=b64("theirs")))[0] == 200
        assert watch.next()["result"]["canceled"] is True
    for path, body in (("kv/range", one(MINE)), ("kv/put", one(MINE, value=b64("ours")))):
        assert ask("shop", path, body) == DENIED
    assert ask.keys("bank", one(MINE)) == [b64(MINE)]
    with ask.watch("bank", one("\x01", range_end=b64("\x02"), start_revision="1")) as watch:
        assert watch.next()["result"]["created"] is True
        assert "events" not in watch.next()["result"], "what was before is the former owner's"


def test_what_is_made_is_found_at_once_and_what_is_disabled_is_read_alone(ask: Ask, registry: KeySpaces) -> None:
    made = registry.create("carts", "shop").raw_prefix.decode()
    assert ask("shop", "kv/put", one(made + "a", value=b64("1")))[0] == 200
    registry.disable("orders")
    assert ask.keys("shop", one(MINE)) == [b64(MINE)]
    assert ask("shop", "kv/put", one(MINE, value=b64("1"))) == DENIED
    registry.enable("orders")
    assert ask("shop", "kv/put", one(MINE, value=b64("1")))[0] == 200
