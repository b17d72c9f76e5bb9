"""What a gateway must not lose: bytes that are no text, renewals that were acknowledged, the writes beside a damaged record."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, MemoryEngine, Profile, Put, WrappedEngine
from keyplan.server import Access, Caller, Closing, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_v2.answers import KeysFailure
from keyplan.server.etcd_v2.gateway import Gateway
from keyplan.server.etcd_v2.ledger import Ledger, Outcome
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.records import Action, directory_key, event_key, file_key
from keyplan.testing.faults import FakeClock
from tests.servers.gateways import GatewayServer
from tests.servers.patroni import until

BINARY = b"\x00\xff\xfe\xedjpeg\xc3"
ESCAPED = "%00%FF%FE%EDjpeg%C3"
FORM = {"content-type": "application/x-www-form-urlencoded"}
DAMAGED = b"\xc1damaged"


def stored(engine: Engine, key: bytes) -> bytes:
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        assert entry is not None
        return entry.value


def put(engine: Engine, key: bytes, value: bytes) -> None:
    engine.commit(Commit((), (Put(key, value),)))


# ---- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ttl=60&refresh=true", "ttl=60&refresh=true&prevExist=true"])
def test_a_refresh_leaves_a_binary_value_as_it_is(form: str) -> None:
    engine = MemoryEngine()
    put(engine, b"/image", BINARY)
    with GatewayServer(engine) as server:
        answer = httpx.put(f"{server.url}/v2/keys/image", content=form, headers=FORM)
        assert answer.status_code == 200, answer.text
        assert stored(engine, b"/image") == BINARY
        shown = httpx.get(f"{server.url}/v2/keys/image").json()["node"]["value"]
        assert shown == BINARY.decode("utf-8", "replace")


def test_a_key_that_is_no_text_is_refused_and_taken_for_no_other() -> None:
    engine = MemoryEngine()
    with GatewayServer(engine) as server:
        for method in ("PUT", "GET", "DELETE"):
            answer = httpx.request(method, f"{server.url}/v2/keys/%FF", content="value=x", headers=FORM)
            assert (answer.status_code, answer.json()["errorCode"]) == (400, 210)
            assert "UTF-8" in answer.json()["cause"]
        assert httpx.put(f"{server.url}/v2/keys/%C3%A9", data={"value": "x"}).status_code == 201
        assert stored(engine, "/é".encode()) == b"x"


def test_a_value_is_stored_and_compared_byte_by_byte() -> None:
    engine = MemoryEngine()
    with GatewayServer(engine) as server:
        url = f"{server.url}/v2/keys/image"
        assert httpx.put(url, content=f"value={ESCAPED}", headers=FORM).status_code == 201
        assert stored(engine, b"/image") == BINARY
        lossy = httpx.put(url, data={"value": "new", "prevValue": BINARY.decode("utf-8", "replace")})
        assert (lossy.status_code, lossy.json()["errorCode"]) == (412, 101)
        assert stored(engine, b"/image") == BINARY
        exact = httpx.put(url, content=f"value=new&prevValue={ESCAPED}", headers=FORM)
        assert exact.status_code == 200, exact.text
        assert stored(engine, b"/image") == b"new"


# ---- renewals ---------------------------------------------------------------------------------------------------------


class Interrupted(WrappedEngine):
    """Calls `between` once, before the next commit."""

    between: Callable[[], object] | None = None

    def commit(self, commit: Commit) -> int:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super().commit(commit)


def test_a_renewal_that_comes_too_late_is_no_renewal() -> None:
    """The directory's lease ends between the look and the commit: the renewal must not bring back an empty directory."""
    clock = FakeClock()
    memory = MemoryEngine(clock=clock)
    engine = Interrupted(memory)
    ledger = Ledger(engine, clock, history_events=1000)
    ledger.start(lambda _records, _is_waiting: None)
    try:

        def write(operation: Operation) -> Outcome:
            (outcome,) = ledger.run([operation])
            return outcome

        assert isinstance(write(Operation(Action.SET, "/d", is_directory=True, ttl_seconds=10)), Done)
        assert isinstance(write(Operation(Action.SET, "/d/x", "1")), Done)
        clock.advance(10.0)

        def end() -> None:
            clock.advance(0.3)
            put(memory, b"zz", b"1")

        engine.between = end
        renewed = write(Operation(Action.UPDATE, "/d", is_directory=True, ttl_seconds=1000))
        with memory.snapshot() as snapshot:
            left = [entry.key for entry in snapshot.scan(ALL_KEYS) if entry.key in {b"/d/x", directory_key("/d")}]
        assert isinstance(renewed, KeysFailure)
        assert left == [], "an acknowledged renewal keeps both, a refused one keeps neither"
    finally:
        ledger.stop()


# ---- damaged records --------------------------------------------------------------------------------------------------


def running(engine: Engine) -> Gateway:
    access = Access()
    stores = Stores(engine, access)
    context = ServiceContext("etcd-v2", stores, {}, access, Closing(), Workers(), CollectorRegistry())
    return Gateway(context, Ledger(engine, context.clock, history_events=1000), history_events=1000)


async def wrote(gateway: Gateway, path: str, **options: Any) -> str:
    try:
        store = await gateway.store_of(Caller(Role.CLIENT, "local"))
        await asyncio.wait_for(gateway.write(store, Operation(Action.SET, path, "1", **options)), 30)
    except KeysFailure as failure:
        return failure.cause
    return "done"


def test_a_damaged_record_fails_neither_its_own_write_nor_another() -> None:
    engine = MemoryEngine()

    async def story() -> list[str]:
        gateway = running(engine)
        async with gateway.running():
            assert await wrote(gateway, "/first") == "done"
            put(engine, directory_key("/bad"), DAMAGED)
            first = asyncio.create_task(wrote(gateway, "/bad/x"))
            for _ in range(3):
                await asyncio.sleep(0)  # the batch is on its way; what follows waits behind it
            return list(await asyncio.gather(first, *(wrote(gateway, f"/ok{number}") for number in range(3))))

    bad, *others = asyncio.run(story())
    assert [bad, *others] == ["done"] * 4


@pytest.mark.parametrize("key", [file_key("/theirs/k"), directory_key("/theirs")])
def test_a_change_whose_record_is_damaged_is_counted_all_the_same(key: bytes) -> None:
    engine = MemoryEngine()

    async def story() -> str:
        gateway = running(engine)
        async with gateway.running():
            assert await wrote(gateway, "/theirs/k") == "done"
            put(engine, key, DAMAGED)
            put(engine, b"/theirs/k", b"2")
            return await wrote(gateway, "/ok")

    assert asyncio.run(story()) == "done"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_record_of_a_directory_that_is_removed_by_hand_takes_nothing_along(*, is_damaged: bool) -> None:
    engine = MemoryEngine()
    with GatewayServer(engine) as server:
        url = f"{server.url}/v2/keys/d"
        assert httpx.put(f"{url}/f", data={"value": "x"}).status_code == 201
        if is_damaged:
            put(engine, directory_key("/d"), DAMAGED)
        engine.commit(Commit((), (Delete(directory_key("/d")),)))
        assert httpx.put(f"{server.url}/v2/keys/other", data={"value": "y"}).status_code == 201
        assert httpx.get(f"{url}/f").json()["node"]["value"] == "x"
        assert [node["key"] for node in httpx.get(url).json()["node"]["nodes"]] == ["/d/f"]
        assert httpx.delete(f"{url}?recursive=true").status_code == 200
        assert httpx.get(f"{url}/f").status_code == 404


def test_a_damaged_event_hides_no_other() -> None:
    engine = MemoryEngine()

    async def story() -> str:
        gateway = running(engine)
        async with gateway.running():
            assert await wrote(gateway, "/first") == "done"
            put(engine, event_key(4), DAMAGED)
        again = running(engine)
        async with again.running():
            return await wrote(again, "/ok")

    assert asyncio.run(story()) == "done"


def test_whatever_a_batch_fails_with_those_behind_it_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()

    async def story() -> tuple[str, str]:
        gateway = running(engine)
        async with gateway.running():
            assert await wrote(gateway, "/first") == "done"
            with monkeypatch.context() as patched:
                patched.setattr(Ledger, "run", lambda _self, _operations: 1 / 0)
                failed = await wrote(gateway, "/a")
            return failed, await wrote(gateway, "/b")

    failed, done = asyncio.run(story())
    assert "timed out" in failed
    assert done == "done"


class SmallCommits(MemoryEngine):
    """Takes commits of as many operations as etcd."""

    @property
    def profile(self) -> Profile:
        return replace(super().profile, commit_operations_max=128)


@pytest.mark.timeout(60)
def test_a_key_of_more_levels_than_a_commit_takes_stops_nobodys_writes() -> None:
    """Every round used to find that its levels do not fit, without an end."""
    engine, deep = SmallCommits(), b"/x" * 130
    ledger = Ledger(engine, FakeClock(), history_events=1000)
    told: list[str] = []
    ledger.start(lambda counted, _is_waiting: told.extend(record.path for each in counted for record in each.records))
    try:

        def is_written(path: str) -> bool:
            (outcome,) = ledger.run([Operation(Action.SET, path, "1")])
            return isinstance(outcome, Done)

        assert is_written("/a")
        put(engine, deep, b"theirs")
        assert is_written("/b")
        engine.commit(Commit((), (Delete(deep),)))
        assert is_written("/c")
        assert stored(engine, b"/c") == b"1"
        until(lambda: told == ["/a", deep.decode(), "/b", deep.decode(), "/c"], 30, lambda: str(told))
    finally:
        ledger.stop()


# ---- pages of other sites ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_no_page_of_another_site_reads_a_gateway(headers: dict[str, str]) -> None:
    with GatewayServer(MemoryEngine()) as server:
        httpx.put(f"{server.url}/v2/keys/secret", data={"value": "hidden"})
        foreign = httpx.get(f"{server.url}/v2/keys/secret", headers=headers)
        assert (foreign.status_code, "hidden" in foreign.text) == (401, False)
        own = httpx.get(f"{server.url}/v2/keys/secret")
        assert own.json()["node"]["value"] == "hidden"
        for answer in (foreign, own, httpx.options(f"{server.url}/v2/keys/secret", headers=headers)):
            assert "access-control-allow-origin" not in answer.headers
