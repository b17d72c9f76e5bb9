"""The quota of a key space through both gateways of etcd, of its owner, of who is granted a prefix, and of an administrator."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.engine import ALL_KEYS, Engine, MemoryEngine
from keyplan.keyspace import Founding, KeySpaces
from keyplan.server import Access, PolicyAccess
from keyplan.testing.faults import FakeClock
from tests.attacks.world import TOKENS, Grants, policy_of
from tests.server.etcd_v3.json_client import JsonClient, b64
from tests.servers.gateways import GatewayServer

ROOM: Final = 5
PREFIX: Final = "/shop/"
NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"
GRANTS: Final[dict[str, Grants]] = {
    "ada": dict.fromkeys(("read", "write", "administer"), "everything"),
    "shop": dict.fromkeys(("read", "write"), "application:shop"),
    "cell": dict.fromkeys(("read", "write"), "prefix:/"),
}
SECONDS_MAX: Final = 45.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    """A store in which keys below /shop/ are a key space with room for five."""
    with MemoryEngine(clock=clock) as opened:
        registry = KeySpaces(opened, founding=Founding(profile="none", skip_printable=False), clock=clock)
        registry.adopt("orders", "shop", PREFIX.encode().hex(), allow_legacy_prefix=True)
        registry.set_quota("orders", keys=ROOM)
        yield opened


@pytest.fixture(params=["shop", "cell", "ada", "without an access file"])
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(engine: Engine, who: str, clock: FakeClock, tmp_path: Path) -> Iterator[GatewayServer]:
    access = Access()
    if who in GRANTS:
        file = tmp_path / "access.toml"
        file.write_text(policy_of(GRANTS))
        file.chmod(0o600)
        access = PolicyAccess.of_file(file, clock=clock)
    with GatewayServer(engine, access=access, clock=clock) as served:
        yield served


def keys_in(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return sum(key.startswith(PREFIX.encode()) for key in snapshot.keys(ALL_KEYS))


# ---- v3 --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def v3(server: GatewayServer, who: str) -> Iterator[JsonClient]:
    with JsonClient(server.url, token=TOKENS.get(who)) as opened:
        yield opened


def put(name: str, value: str = "x", **more: Any) -> dict[str, Any]:
    return {"key": b64(PREFIX + name), "value": b64(value), **more}


def fill(v3: JsonClient, **more: Any) -> None:
    for at in range(ROOM):
        v3.call("/v3/kv/put", put(str(at), **more))


def is_full(v3: JsonClient, engine: Engine) -> bool:
    """Tell whether one more is refused, in etcd's words, and nothing written; if not, it is taken and removed again."""
    before = keys_in(engine)
    status, answer = v3.post("/v3/kv/put", put("one more"))
    if status == 200:
        v3.call("/v3/kv/deleterange", {"key": b64(PREFIX + "one more")})
        return False
    assert (status, answer) == (429, {"error": NO_SPACE, "message": NO_SPACE, "code": 8})
    assert keys_in(engine) == before
    return True


def test_v3_takes_so_many_keys_and_not_one_more(v3: JsonClient, engine: Engine) -> None:
    taken = [v3.post("/v3/kv/put", put(str(at)))[0] for at in range(ROOM + 3)]
    assert taken == [200] * ROOM + [429] * 3
    fill(v3)
    assert is_full(v3, engine), "overwriting makes no room"


def test_v3_takes_as_many_more_as_are_removed(v3: JsonClient, engine: Engine) -> None:
    for removal in ({"key": b64(PREFIX + "0")}, {"key": b64(PREFIX + "1"), "range_end": b64(PREFIX + "3")}):
        fill(v3)
        assert is_full(v3, engine)
        v3.call("/v3/kv/deleterange", removal)
        assert not is_full(v3, engine)


def test_v3_weighs_a_transaction_whole(v3: JsonClient, engine: Engine) -> None:
    fill(v3)
    removed = {"request_delete_range": {"key": b64(PREFIX + "0")}}
    puts = [{"request_put": put(name)} for name in ("a", "b")]
    status, _ = v3.post("/v3/kv/txn", {"success": [removed, *puts]})
    assert (status, keys_in(engine)) == (429, ROOM)
    v3.call("/v3/kv/txn", {"success": [removed, puts[0]]})
    nested = {"request_txn": {"success": [puts[1]]}}
    status, _ = v3.post("/v3/kv/txn", {"success": [nested]})
    assert (status, keys_in(engine)) == (429, ROOM)


def test_v3_has_room_again_when_a_lease_ends(v3: JsonClient, engine: Engine, clock: FakeClock) -> None:
    lease = v3.call("/v3/lease/grant", {"TTL": 2})["ID"]
    fill(v3, lease=lease)
    assert is_full(v3, engine)
    clock.advance(10.0)
    assert keys_in(engine) == 0
    fill(v3)
    assert is_full(v3, engine)
    v3.call("/v3/kv/deleterange", {"key": b64(PREFIX), "range_end": b64("/shop0")})
    lease = v3.call("/v3/lease/grant", {"TTL": 60})["ID"]
    fill(v3, lease=lease)
    assert is_full(v3, engine)
    v3.call("/v3/lease/revoke", {"ID": lease})
    clock.advance(1.0)  # what others have made room for is found a second after a refusal
    assert not is_full(v3, engine)


# ---- v2 --------------------------------------------------------------------------------------------------------------


class Keys:
    """The v2 keys below /shop."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=f"{url}/v2/keys{PREFIX}", headers=headers, timeout=SECONDS_MAX)

    def put(self, name: str, **form: str) -> int:
        return self._status(self.http.put(name, data={"value": "x", **form}))

    def make(self, directory: str) -> int:
        return self._status(self.http.post(directory, data={"value": "x"}))

    def remove(self, name: str, **query: str) -> int:
        return self._status(self.http.delete(name, params=query))

    def fill(self, below: str = "", **form: str) -> None:
        for at in range(ROOM):
            assert self.put(f"{below}{at}", **form) in {200, 201}

    def is_full(self) -> bool:
        status = self.put("one-more")
        if status == 201:
            assert self.remove("one-more") == 200
        return status == 507

    def _status(self, answer: httpx.Response) -> int:
        if answer.status_code == 500:
            failure = answer.json()
            assert (failure["errorCode"], failure["cause"]) == (300, NO_SPACE)
            return 507
        return answer.status_code


@pytest.fixture
def v2(server: GatewayServer, who: str) -> Iterator[Keys]:
    keys = Keys(server.url, TOKENS.get(who))
    with keys.http:
        yield keys


def test_v2_takes_so_many_keys_and_not_one_more(v2: Keys, engine: Engine) -> None:
    assert [v2.put(str(at)) for at in range(ROOM + 3)] == [201] * ROOM + [507] * 3
    v2.fill()
    assert v2.make("queue") == 507
    assert (v2.is_full(), keys_in(engine)) == (True, ROOM)


def test_v2_counts_keys_and_no_directories(v2: Keys) -> None:
    for at in range(2 * ROOM):
        assert v2.http.put(f"dir{at}", data={"dir": "true"}).status_code == 201
    v2.fill("dir1/")
    assert v2.is_full()


def test_v2_takes_as_many_more_as_are_removed(v2: Keys) -> None:
    v2.fill()
    assert v2.is_full()
    assert v2.remove("0") == 200
    assert not v2.is_full()
    assert v2.put("below/0") == 201
    assert v2.is_full()
    assert v2.remove("below", recursive="true") == 200
    assert not v2.is_full()


def test_v2_has_room_again_when_a_ttl_is_over(v2: Keys, clock: FakeClock, engine: Engine) -> None:
    v2.fill(ttl="5")
    assert v2.is_full()
    clock.advance(10.0)
    assert keys_in(engine) == 0
    v2.fill()
    assert v2.is_full()


def test_v2_has_room_again_when_the_ttl_of_a_directory_is_over(v2: Keys, clock: FakeClock) -> None:
    assert v2.http.put("short", data={"dir": "true", "ttl": "5"}).status_code == 201
    v2.fill("short/")
    assert v2.is_full()
    clock.advance(10.0)
    assert v2.http.get("").status_code == 200  # which counts that the directory has ended
    assert not v2.is_full()


def test_one_who_is_refused_keeps_nobody_else_from_writing(server: GatewayServer, v2: Keys, engine: Engine) -> None:
    """Writes of several clients share a commit."""
    v2.fill()
    with ThreadPoolExecutor(16) as pool:
        inside = [pool.submit(v2.put, f"more{at}") for at in range(24)]
        outside = [pool.submit(v2.put, str(at % ROOM)) for at in range(24)]
    assert {one.result() for one in inside} == {507}
    assert {one.result() for one in outside} == {200}
    assert keys_in(engine) == ROOM
