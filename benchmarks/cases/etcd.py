"""The etcd engine on a server of its own: against grpcio that is handed the same bytes, other clients, and LMDB beside it.

What is stored, and how it is guarded, is keyplan's in each comparison with grpcio: the comparator sends the very requests. The
other clients have no transactions of that kind; they get and put. They come with the extra bench, and are left out without it.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import chain, count
from threading import Thread
from time import perf_counter
from typing import Any, Final

import grpc

import keyplan
from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, item, item_key
from benchmarks.measure import Act, Result, Work, compared, in_threads, single
from keyplan.codec import JsonForm
from keyplan.engine import ALL_KEYS, Commit, Engine, EngineUrl, KeyRange, MemoryEngine, Put, RecordingEngine
from keyplan.engine.etcd import channel_options, options_of
from keyplan.engine.etcd.transactions import transaction_of
from keyplan.engine.etcd.transport import RANGE, TRANSACTION
from keyplan.protobuf import ETCD
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd

__all__ = ["measure", "measure_list", "measure_watch"]

_CALLS: Final = 2_000
_LISTED: Final = 200_000
_WATCHED: Final = 400
_REQUESTS_AT_ONCE: Final = 20_000
"""Why: more than a benchmark sends, so that none is made while it is measured."""
_IN_FLIGHT: Final = 64
_AIM: Final = 0.85
_METADATA: Final = (("hasleader", "true"),)
_KEY: Final = b"/put/key"


def measure(extent: Extent) -> Iterator[Result]:
    """A get, a put, and an insert of a record with four index entries, alone and 64 in flight."""
    if _is_left_out():
        return
    with ExitStack() as stack:
        server = stack.enter_context(EtcdServer())
        store = stack.enter_context(keyplan.open(server.url))
        bare = stack.enter_context(_Bare(server.url))
        others = _others(server)
        if others is not None:
            stack.enter_context(others)
        value = JsonForm[Any](type(item(1))).encode(item(1))
        items, engine = Inventory(store).items, store.engine
        items.insert(item_key(1), item(1))
        raw_key = f"/inventory/items/{item_key(1)}".encode()
        read = ETCD.classes.RangeRequest(key=raw_key).SerializeToString()
        written = transaction_of(Commit((), (Put(_KEY, value),))).SerializeToString()
        ours, theirs = count(1_000), _requests(5_000_000)
        theirs = chain((next(theirs),), theirs)

        def insert() -> None:
            number = next(ours)
            items.insert(item_key(number), item(number))

        def put() -> None:
            engine.commit(Commit((), (Put(_KEY, value),)))

        subjects: dict[str, tuple[Act, Act]] = {
            "get": (partial(items.get, item_key(1)), partial(bare.send, RANGE.path, read)),
            "put": (put, partial(bare.send, TRANSACTION.path, written)),
            "insert": (insert, lambda: bare.send(TRANSACTION.path, next(theirs))),
        }
        figures = partial(_compared, extent)
        for tasks in (1, _IN_FLIGHT):
            for name, (subject, other) in subjects.items():
                against = "grpcio, same bytes"
                yield figures(name, tasks, against, in_threads(subject, tasks), in_threads(other, tasks), aim=_AIM)
            if others is None:
                continue
            for name, given in (("get", (raw_key,)), ("put", (_KEY, value))):
                work = in_threads(subjects[name][0], tasks)
                yield figures(name, tasks, "aetcd", work, others.by_aetcd(name, given, tasks))
                yield figures(name, tasks, "etcd3gw", work, in_threads(others.by_gateway(name, given), tasks))
        with extent.stands.stand(extent.sizes[0], durability="full") as stand:
            on_lmdb = stand.inventory.items
            numbers = count(stand.size)

            def insert_on_lmdb() -> None:
                number = next(numbers)
                on_lmdb.insert(item_key(number), item(number))

            yield figures(
                "get",
                1,
                "keyplan on LMDB",
                in_threads(subjects["get"][0], 1),
                in_threads(partial(on_lmdb.get, item_key(1)), 1),
            )
            yield figures("insert", 1, "keyplan on LMDB", in_threads(insert, 1), in_threads(insert_on_lmdb, 1))


def measure_list(extent: Extent) -> Iterator[Result]:
    """All records of a table, as entries of the engine, against one call of grpcio that brings the whole range."""
    if _is_left_out():
        return
    size = min(extent.sizes[-1], 100_000)
    with ExitStack() as stack:
        server = stack.enter_context(EtcdServer())
        engine = stack.enter_context(keyplan.open(server.url)).engine
        bare = stack.enter_context(_Bare(server.url))
        encode = JsonForm[Any](type(item(1))).encode
        engine.load((f"/inventory/items/{item_key(number)}".encode(), encode(item(number))) for number in range(size))
        everything = ETCD.classes.RangeRequest(key=b"\x00", range_end=b"\x00").SerializeToString()
        parse = ETCD.classes.RangeResponse.FromString

        def listed(operations: int) -> None:
            for _ in range(max(1, operations // size)):
                with engine.snapshot() as snapshot:
                    assert sum(1 for _ in snapshot.scan(ALL_KEYS)) == size

        def by_hand(operations: int) -> None:
            for _ in range(max(1, operations // size)):
                answer = parse(bare.send(RANGE.path, everything))
                assert sum(1 for _ in [(pair.key, pair.value, pair.mod_revision) for pair in answer.kvs]) == size

        yield compared(
            "etcd-list",
            f"list of {size}",
            against="grpcio, one call",
            subject=listed,
            comparator=by_hand,
            operations=max(size, extent.operations(_LISTED) // size * size),
            rounds=extent.rounds,
            size=size,
        )


def measure_watch(extent: Extent) -> Iterator[Result]:
    """From a commit's answer to its event, in microseconds; below 0 when the event was there first."""
    if _is_left_out():
        return
    with EtcdServer() as server, keyplan.open(server.url) as store:
        engine: Engine = store.engine
        start = engine.commit(Commit((), (Put(_KEY, b""),)))
        watch = engine.watch(KeyRange.of_key(_KEY), after=start)
        seen: dict[int, float] = {}
        total = extent.operations(_WATCHED)

        def follow() -> None:
            while len(seen) < total:
                for event in watch.poll(1):
                    seen[event.revision] = perf_counter()

        follower = Thread(target=follow)
        follower.start()
        told: dict[int, float] = {}
        for _ in range(total):
            begun = perf_counter()
            told[engine.commit(Commit((), (Put(_KEY, b""),)))] = begun
        follower.join()
        watch.close()
        delays = [(seen[revision] - told[revision]) * 1e6 for revision in told]
        yield single("etcd-watch", "from the beginning of a commit to its event", delays, unit="us")


def _is_left_out() -> bool:
    problem = why_no_etcd()
    if problem is not None:
        sys.stderr.write(f"etcd is left out: {problem}\n")
    return problem is not None


def _compared(
    extent: Extent, name: str, tasks: int, against: str, subject: Work, other: Work, *, aim: float | None = None
) -> Result:
    return compared(
        "etcd",
        f"{name}, {tasks} in flight",
        against=against,
        subject=subject,
        comparator=other,
        operations=max(_IN_FLIGHT, extent.operations(_CALLS)),
        rounds=extent.rounds,
        aim=aim,
    )


class _Bare:
    """Calls of grpcio that are handed bytes and give back bytes."""

    def __init__(self, url: str) -> None:
        options = options_of(EngineUrl.parse(url))
        self._channel = grpc.insecure_channel(options.endpoints[0], channel_options(options))
        self._calls: dict[str, Callable[..., bytes]] = {
            path: self._channel.unary_unary(path, None, None) for path in (RANGE.path, TRANSACTION.path)
        }

    def send(self, path: str, request: bytes) -> bytes:
        return self._calls[path](request, timeout=10, metadata=_METADATA)

    def __enter__(self) -> "_Bare":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def _others(server: EtcdServer) -> "_Others | None":
    try:
        return _Others(server, import_module("aetcd"), import_module("etcd3gw"))
    except ModuleNotFoundError as error:
        sys.stderr.write(f"other clients are left out: {error.name} is not installed (extra bench)\n")
        return None


class _Others:
    """Other clients of etcd: aetcd, which is asynchronous, and etcd3gw, which speaks to the JSON gateway."""

    def __init__(self, server: EtcdServer, aetcd: Any, etcd3gw: Any) -> None:
        self._aetcd = aetcd
        self._host, self._port = "127.0.0.1", server.client_port
        self._gateway: Any = etcd3gw.client(host=self._host, port=self._port, api_path="/v3/")
        self._runner = asyncio.Runner()
        self._client: Any = None

    def __enter__(self) -> "_Others":
        async def opened() -> Any:
            client = self._aetcd.Client(host=self._host, port=self._port)
            await client.connect()
            return client

        self._client = self._runner.run(opened())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()
        self._gateway.session.close()

    def by_aetcd(self, name: str, given: tuple[bytes, ...], tasks: int) -> Work:
        async def repeated(operations: int) -> None:
            act = getattr(self._client, name)
            for _ in range(operations):
                await act(*given)

        async def gathered(operations: int) -> None:
            await asyncio.gather(*(repeated(max(1, operations // tasks)) for _ in range(tasks)))

        return lambda operations: self._runner.run(gathered(operations))

    def by_gateway(self, name: str, given: tuple[bytes, ...]) -> Act:
        return lambda: getattr(self._gateway, name)(*given)


def _requests(number: int) -> Iterator[bytes]:
    """The requests of keyplan's inserts, many made at once."""
    while True:
        engine = RecordingEngine(MemoryEngine())
        with Store(engine) as store:
            for place in range(number, number + _REQUESTS_AT_ONCE):
                Inventory(store).items.insert(item_key(place), item(place))
        number += _REQUESTS_AT_ONCE
        commits = [call.arguments[0] for call in engine.calls if call.method == "commit"]
        yield from [transaction_of(commit).SerializeToString() for commit in commits if isinstance(commit, Commit)]
