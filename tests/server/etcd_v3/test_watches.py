"""Watches of the v3 gateway: what they have missed, what they do not read, where they stand, and what they never show."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import Commit, Engine, MemoryEngine, Mutation, Put
from keyplan.errors import EngineUnavailableError, HistoryCompactedError
from keyplan.server import Access, Caller, CallerStore, Closing, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watching import Selection, Watches
from tests.server.etcd_v3.json_client import JsonClient, WatchLines, b64
from tests.servers.gateways import GatewayServer

NUL = b64encode(b"\0").decode()
EVERYTHING = {"key": NUL, "range_end": NUL}
MIB = 1 << 20


def do(engine: Engine, *mutations: Mutation) -> int:
    return engine.commit(Commit((), mutations))


def run(engine: Engine, story: Callable[[Watches, CallerStore], Awaitable[None]]) -> None:
    """Run a story of watches on a store, without HTTP."""

    async def with_watches() -> None:
        access = Access()
        context = ServiceContext(
            "etcd-v3", Stores(engine, access), {}, access, Closing(), Workers(), CollectorRegistry()
        )
        watches = Watches(context)
        await story(watches, await context.store_of(Caller(Role.CLIENT, "local")))
        await watches.close()

    asyncio.run(with_watches())


def selection(key: bytes, **fields: Any) -> Selection:
    return Selection(RECORDS.WatchCreateRequest(key=key, **fields))


def test_a_notice_of_progress_tells_where_the_store_stands() -> None:
    """Who begins again at a revision that others left behind is told that it has been compacted."""
    with (
        MemoryEngine() as engine,
        GatewayServer(engine, settings={"etcd-v3.progress": "0.2"}) as server,
        WatchLines(server.url, {"key": b64("w"), "progress_notify": True}) as watch,
    ):
        assert "created" in watch.next()["result"]
        reached = max([do(engine, Put(b"other", b"%d" % number)) for number in range(5)])
        told = 0
        while told < reached:
            notice = watch.next()["result"]
            assert "events" not in notice
            told = int(notice["header"]["revision"])
        assert told == reached


def test_a_long_past_comes_in_parts_each_event_once_while_others_write() -> None:
    with MemoryEngine() as engine, GatewayServer(engine) as server:
        for number in range(4_000):
            do(engine, Put(b"w" if number % 2 else b"other", b"%d" % number))
        stop = threading.Event()

        def write() -> None:
            for number in range(4_000, 12_000):
                do(engine, Put(b"w" if number % 2 else b"other", b"%d" % number))
            stop.set()

        writing = threading.Thread(target=write)
        writing.start()
        with WatchLines(server.url, {"key": b64("w"), "start_revision": 2}) as watch:
            assert "created" in watch.next()["result"]
            found: list[str] = []
            lines = 0
            while len(found) < 6_000:
                events = watch.next()["result"]["events"]
                found += [event["kv"]["value"] for event in events]
                lines += 1
        writing.join()
        assert stop.is_set()
        assert found == [b64(str(number)) for number in range(1, 12_000, 2)]
        assert lines > 2, "one line of all of it would be as long as the history"


def test_a_watch_that_is_not_read_ends_and_keeps_no_memory() -> None:
    engine = MemoryEngine()

    async def story(watches: Watches, store: CallerStore) -> None:
        _, slow, _ = await watches.open(store, selection(b"large"))
        _, other, _ = await watches.open(store, selection(b"small"))
        for number in range(40):
            do(engine, Put(b"large", b"%d" % number * MIB), Put(b"unwatched", b"x" * MIB))
        do(engine, Put(b"small", b"last"))
        batch = await other.next_batch(45)
        assert batch is not None, "what others do not read ends nobody else's"
        assert [event.kv.value for event in batch[0]] == [b"last"]
        assert await slow.next_batch(45) is None
        assert isinstance(slow.error, EngineUnavailableError)

    run(engine, story)


def test_one_event_that_is_larger_than_what_may_wait_is_told() -> None:
    engine = MemoryEngine()

    async def story(watches: Watches, store: CallerStore) -> None:
        _, stream, _ = await watches.open(store, selection(b"large"))
        do(engine, Put(b"large", b"x" * (40 * MIB)))
        batch = await stream.next_batch(45)
        assert batch is not None
        assert len(batch[0]) == 1

    run(engine, story)


def test_a_past_that_is_forgotten_while_it_is_read_is_told_so() -> None:
    engine = MemoryEngine()
    revision = max([do(engine, Put(b"w", b"%d" % number)) for number in range(3_000)])

    async def story(watches: Watches, store: CallerStore) -> None:
        _, stream, _ = await watches.open(store, selection(b"w", start_revision=2))
        first = await stream.next_batch(45)
        assert first is not None
        assert first[1] < revision
        engine.compact(revision - 1)
        batch: object = first
        while batch is not None:
            batch = await stream.next_batch(45)
        assert isinstance(stream.error, HistoryCompactedError)

    run(engine, story)


@pytest.mark.parametrize("start", [1, 3, 4, 9])
def test_a_watch_from_any_revision_misses_nothing_of_what_comes(start: int) -> None:
    engine = MemoryEngine()
    for number in range(1, 4):
        assert do(engine, Put(b"w", b"%d" % number)) == number

    async def story(watches: Watches, store: CallerStore) -> None:
        _, stream, now = await watches.open(store, selection(b"w", start_revision=start))
        assert now == 3
        for number in range(4, 12):
            do(engine, Put(b"w", b"%d" % number))
        told: list[bytes] = []
        while not told or told[-1] != b"11":
            batch = await stream.next_batch(45)
            assert batch is not None
            told += [event.kv.value for event in batch[0]]
        assert told == [b"%d" % number for number in range(start, 12)]

    run(engine, story)


def test_a_watch_says_its_number_and_one_on_nothing_is_refused() -> None:
    with MemoryEngine() as engine, GatewayServer(engine) as server:
        with WatchLines(server.url, {"key": b64("w"), "watch_id": 7}) as watch:
            assert watch.next()["result"]["watch_id"] == "7"
            do(engine, Put(b"w", b"1"))
            assert watch.next()["result"]["watch_id"] == "7"
        with WatchLines(server.url, {"key": b64("w"), "range_end": b64("a")}) as watch:
            refusal = watch.next()["result"]
            assert (refusal["watch_id"], refusal["canceled"]) == ("-1", True)
            assert refusal["cancel_reason"] == "mvcc: watcher range is empty"
            assert watch.next() is None
        with WatchLines(server.url, {"range_end": NUL}) as watch:
            assert "created" in watch.next()["result"]
            do(engine, Put(b"w", b"2"))
            assert watch.events(1)[0]["kv"]["value"] == b64("2")


def test_who_asks_for_everything_sees_and_removes_nothing_of_keyplans_own() -> None:
    with (
        MemoryEngine() as engine,
        GatewayServer(engine) as server,
        JsonClient(server.url) as client,
        WatchLines(server.url, EVERYTHING) as watch,
    ):
        assert "created" in watch.next()["result"]
        httpx.put(f"{server.url}/v2/keys/x", data={"value": "1"})
        client.call("/v3/kv/put", {"key": b64encode(b"\x01").decode(), "value": b64("2")})
        assert [event["kv"]["value"] for event in watch.events(2)] == [b64("1"), b64("2")]
        assert len(client.call("/v3/kv/range", EVERYTHING)["kvs"]) == 2
        assert client.call("/v3/kv/range", {**EVERYTHING, "count_only": True})["count"] == "2"
        both = {"compare": [{**EVERYTHING, "target": "VERSION", "version": "1"}], "success": []}
        assert client.call("/v3/kv/txn", both)["succeeded"]
        status, _ = client.post("/v3/kv/deleterange", {"key": NUL, "range_end": b64encode(b"\x01").decode()})
        assert status == 403
        assert client.call("/v3/kv/deleterange", EVERYTHING)["deleted"] == "2"
        assert httpx.put(f"{server.url}/v2/keys/y", data={"value": "1"}).status_code == 201
