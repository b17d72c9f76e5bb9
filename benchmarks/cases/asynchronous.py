"""The asynchronous twin: what awaiting costs on LMDB against the synchronous store, and on etcd against bare grpc.aio."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, count
from typing import Any, Final

import grpc.aio

import keyplan.aio
from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, Item, item, item_key
from benchmarks.measure import Result, Work, compared
from keyplan.engine import Commit, EngineUrl, MemoryEngine, RecordingEngine
from keyplan.engine.etcd import channel_options, options_of
from keyplan.engine.etcd.transactions import transaction_of
from keyplan.engine.etcd.transport import RANGE, TRANSACTION
from keyplan.protobuf import ETCD
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd

__all__ = ["measure_etcd", "measure_lmdb"]

_GETS: Final = 20_000
_GETS_IN_THREADS: Final = 4_000
_INSERTS: Final = 2_000
_CALLS: Final = 2_000
_REQUESTS_AT_ONCE: Final = 20_000
"""Why: more than a benchmark sends, so that none is made while it is measured."""
_IN_FLIGHT: Final = 64
_AIM_ETCD: Final = 0.85

Act = Callable[[], Awaitable[object]]


def _alone(runner: asyncio.Runner, act: Act) -> Work:
    async def repeated(operations: int) -> None:
        for _ in range(operations):
            await act()

    return lambda operations: runner.run(repeated(operations))


def _in_flight(runner: asyncio.Runner, act: Act, tasks: int) -> Work:
    if tasks == 1:
        return _alone(runner, act)

    async def repeated(operations: int) -> None:
        async def part() -> None:
            for _ in range(max(1, operations // tasks)):
                await act()

        await asyncio.gather(*(part() for _ in range(tasks)))

    return lambda operations: runner.run(repeated(operations))


def _repeated(act: Callable[[], object]) -> Work:
    def work(operations: int) -> None:
        for _ in range(operations):
            act()

    return work


def _insertion(insert: Callable[[str, Item], Any], numbers: Iterator[int]) -> Callable[[], Any]:
    def act() -> Any:
        number = next(numbers)
        return insert(item_key(number), item(number))

    return act


async def _opened(url: str, *, inline_reads: bool = False) -> keyplan.aio.Store:
    return await keyplan.aio.open(url, inline_reads=inline_reads)


def measure_lmdb(extent: Extent) -> Iterator[Result]:
    """A get on the loop, in a thread of ours, and by run_in_executor; inserts alone and 64 in flight."""
    with ExitStack() as stack:
        stand = stack.enter_context(extent.stands.stand(extent.sizes[0]))
        runner = stack.enter_context(asyncio.Runner())
        plain, key = stand.inventory.items, item_key(1)
        url = f"lmdb:{stand.folder}?durability=none"
        threads = runner.run(_opened(url))
        inline = runner.run(_opened(url, inline_reads=True))
        stack.callback(lambda: runner.run(threads.close()))
        stack.callback(lambda: runner.run(inline.close()))
        get = partial(Inventory(threads).items.get, key)
        get_inline = partial(Inventory(inline).items.get, key)

        async def by_executor() -> object:
            return await asyncio.get_running_loop().run_in_executor(None, plain.get, key)

        sync_get, measured = _repeated(partial(plain.get, key)), partial(_measured, extent, stand.size)
        yield measured("get, inline_reads", "keyplan", _alone(runner, get_inline), sync_get, _GETS)
        yield measured("get, in a thread", "keyplan", _alone(runner, get), sync_get, _GETS_IN_THREADS)
        executor = _alone(runner, by_executor)
        yield measured("get, in a thread", "run_in_executor", _alone(runner, get), executor, _GETS_IN_THREADS)
        ours, theirs = count(stand.size), count(10_000_000)
        for tasks in (1, _IN_FLIGHT):
            insert = _in_flight(runner, _insertion(Inventory(threads).items.insert, ours), tasks)
            by_hand = _repeated(_insertion(plain.insert, theirs))
            yield measured(f"insert, {tasks} in flight", "keyplan, one thread", insert, by_hand, _INSERTS)


def _measured(extent: Extent, size: int, variant: str, against: str, subject: Work, other: Work, number: int) -> Result:
    return compared(
        "aio",
        f"lmdb, {variant}",
        against=against,
        subject=subject,
        comparator=other,
        operations=max(_IN_FLIGHT, extent.operations(number)),
        rounds=extent.rounds,
        size=size,
    )


def measure_etcd(extent: Extent) -> Iterator[Result]:
    """A get, and an insert of a record with four index entries, against grpc.aio that is handed the very bytes."""
    problem = why_no_etcd()
    if problem is not None:
        sys.stderr.write(f"aio-etcd is left out: {problem}\n")
        return
    with ExitStack() as stack:
        server = stack.enter_context(EtcdServer())
        runner = stack.enter_context(asyncio.Runner())
        store = runner.run(_opened(server.url))
        stack.callback(lambda: runner.run(store.close()))
        bare = runner.run(_bare(server.url))
        stack.callback(lambda: runner.run(bare.close()))
        items = Inventory(store).items
        runner.run(items.insert(item_key(1), item(1)))
        read = ETCD.classes.RangeRequest(key=f"/inventory/items/{item_key(1)}".encode()).SerializeToString()
        ours, theirs = count(1_000), _requests(5_000_000)
        theirs = chain((next(theirs),), theirs)
        for tasks in (1, _IN_FLIGHT):
            works: dict[str, tuple[Act, Act]] = {
                "get": (partial(items.get, item_key(1)), partial(bare.send, RANGE.path, read)),
                "insert": (_insertion(items.insert, ours), lambda: bare.send(TRANSACTION.path, next(theirs))),
            }
            for name, (subject, other) in works.items():
                yield compared(
                    "aio-etcd",
                    f"{name}, {tasks} in flight",
                    against="grpc.aio, same bytes",
                    subject=_in_flight(runner, subject, tasks),
                    comparator=_in_flight(runner, other, tasks),
                    operations=max(_IN_FLIGHT, extent.operations(_CALLS)),
                    rounds=extent.rounds,
                    aim=_AIM_ETCD,
                )


class _Bare:
    """Calls of grpc.aio that are handed bytes and give back bytes."""

    def __init__(self, url: str) -> None:
        options = options_of(EngineUrl.parse(url))
        self._channel = grpc.aio.insecure_channel(options.endpoints[0], channel_options(options))
        self._calls: dict[str, Callable[..., Awaitable[bytes]]] = {
            path: self._channel.unary_unary(path, None, None) for path in (RANGE.path, TRANSACTION.path)
        }

    async def send(self, path: str, request: bytes) -> bytes:
        return await self._calls[path](request, timeout=10, metadata=(("hasleader", "true"),))

    async def close(self) -> None:
        await self._channel.close(None)


async def _bare(url: str) -> _Bare:
    return _Bare(url)


def _requests(number: int) -> Iterator[bytes]:
    """The requests of keyplan's inserts, some hundred made at once."""
    while True:
        engine = RecordingEngine(MemoryEngine())
        with Store(engine) as store:
            for place in range(number, number + _REQUESTS_AT_ONCE):
                Inventory(store).items.insert(item_key(place), item(place))
        number += _REQUESTS_AT_ONCE
        commits = [call.arguments[0] for call in engine.calls if call.method == "commit"]
        yield from [transaction_of(commit).SerializeToString() for commit in commits if isinstance(commit, Commit)]
