"""HEPnOS behind keyplan's server on loopback: against one LMDB file behind frames by hand, against HTTP, against the files."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from struct import pack
from time import perf_counter
from typing import Any, Final, NamedTuple

import lmdb
import numpy as np

from benchmarks.extent import Extent
from benchmarks.frames_by_hand import KEY_BYTES, ask, pairs_from
from benchmarks.frames_in_flight import AskingByHand
from benchmarks.measure import Result, compared, processor_seconds, single
from keyplan.apps import hepnos
from tests.servers.keyplan_server import KeyplanServer

__all__ = ["measure"]

_BATCH: Final = 4_096
_VALUE: Final = bytes(1_024)
_NO_FRAMES: Final = ("--setting", "hepnos.frames=off")
_IN_FLIGHT: Final = 32
_BULK: Final = 100_000
"""Products that are read at once. Why so many: a core that was idle needs some milliseconds to be as fast as it is."""
_LAST_RUN: Final = 1 << 40
"""Behind all others."""
_QUANTILES: Final = ((50, "half of the loads"), (99, "99 of 100 loads"))


class _Stand(NamedTuple):
    """A data set behind the server, and a connection to the frames by hand. Each round has a run of its own on its side."""

    dataset: hepnos.DataSet
    over_http: hepnos.DataSet
    server: KeyplanServer
    wire: socket.socket
    by_hand: int
    """The process that answers `wire`."""
    runs: Iterator[int]
    runs_by_hand: Iterator[int]


@contextmanager
def _stand(extent: Extent) -> Generator[_Stand, None, None]:
    folder = Path(extent.stands.folder) / "hepnos-server"
    by_hand = folder / "by-hand"
    by_hand.mkdir(parents=True)
    settings = ("--app", "hepnos", "--setting", f"hepnos.store=lmdb:{folder}/store")
    process = subprocess.Popen(  # noqa: S603  # Why: our own module, and our own folder.
        [sys.executable, "-m", "benchmarks.frames_by_hand", str(by_hand)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        with (
            KeyplanServer("memory:", *settings) as server,
            KeyplanServer(
                "memory:", *(f"{one}-http" if "store=" in one else one for one in settings), *_NO_FRAMES
            ) as other,
            hepnos.open(server.url) as store,
            hepnos.open(other.url) as over_http,
        ):
            framed, plain = (each.root.ensure("nova") for each in (store, over_http))
            with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield _Stand(framed, plain, server, wire, process.pid, count(1), count(1))
            process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def measure(extent: Extent) -> Iterator[Result]:
    """Events created 4,096 a request and listed, products of 1 KiB loaded one by one: through a server on this machine."""
    events, loads = extent.operations(200_000), extent.operations(2_000)
    with _stand(extent) as both:
        yield compared(
            "hepnos-server",
            "events, 4,096 a request, durable",
            against="py-lmdb behind frames by hand",
            subject=_create(both),
            comparator=_create_by_hand(both),
            operations=events,
            rounds=extent.rounds,
        )
        yield compared(
            "hepnos-server",
            "events as handles",
            against="the same, tuples",
            subject=lambda _: sum(1 for _ in hepnos.SubRun(both.dataset, (1, 0)).events),
            comparator=lambda _: _tuples_by_hand(both.wire, 1, events),
            operations=events,
            rounds=extent.rounds,
        )
        event = hepnos.Event(both.dataset, (1, 0, 0))
        event.store("p", _VALUE)
        key = _keys(1, 1)[:KEY_BYTES] + b"p#bytes"
        ask(both.wire, b"V", key + _VALUE)
        yield compared(
            "hepnos-server",
            "1 KiB, loaded one by one",
            against="the same, by its key",
            subject=lambda loads: [event.load("p", bytes) for _ in range(loads)],
            comparator=lambda loads: [ask(both.wire, b"G", key) for _ in range(loads)],
            operations=loads,
            rounds=extent.rounds,
        )
        yield from _measure_frames(both, extent)


def _measure_frames(both: _Stand, extent: Extent) -> Iterator[Result]:
    """Loads as frames against loads over HTTP, one by one and many in flight, and all at once against the files."""
    loads = extent.operations(2_000)
    events = {
        name: hepnos.Event(dataset, (1, 0, 0)) for name, dataset in (("HTTP", both.over_http), ("frames", both.dataset))
    }
    for event in events.values():
        event.store("p", _VALUE)

    def one_by_one(name: str) -> Callable[[int], object]:
        return lambda number: [events[name].load("p", bytes) for _ in range(number)]

    yield compared(
        "hepnos-server",
        "1 KiB, loaded one by one",
        against="the same over HTTP",
        subject=one_by_one("frames"),
        comparator=one_by_one("HTTP"),
        operations=loads,
        rounds=extent.rounds,
        aim=5,
    )
    yield from _measure_in_flight(both, extent, one_by_one("HTTP"))
    for name, event in events.items():
        seconds = sorted(_seconds_of(event) for _ in range(loads))
        for percent, what in _QUANTILES:
            at = seconds[len(seconds) * percent // 100] * 1e6
            yield single("hepnos-server", f"{what} over {name}", [at], unit="us")
    yield from _measure_bulk(both, extent)


def _measure_bulk(both: _Stand, extent: Extent) -> Iterator[Result]:
    """Products of 1 KiB all at once, against the files; and what a server by hand reaches of that, which is the bound."""
    # Why all of them in a quick run: fewer are another measurement. One round is the test that everything runs.
    bulk = extent.operations(_BULK) if extent.rounds == 1 else _BULK
    raw = _keys(_LAST_RUN, bulk)
    keys = [raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)]
    for begin in range(0, len(keys), _BATCH):
        ask(both.wire, b"V", b"".join(key + b"p#bytes" + _VALUE for key in keys[begin : begin + _BATCH]))
    folder = Path(extent.stands.folder) / "hepnos-server"
    settings = ("--app", "hepnos", "--setting", f"hepnos.store=lmdb:{folder}/served")
    with (
        # Why a server of its own: the files have done nothing before either.
        KeyplanServer("memory:", *settings) as server,
        hepnos.open(server.url) as store,
        hepnos.open(f"lmdb:{folder}/local") as local,
        _on_cores_apart(both.by_hand, server.process.pid),
    ):
        served, on_disk = (_with_products(each, bulk) for each in (store, local))

        def from_files(_: int) -> int:
            return sum(1 for _ in hepnos.load_products(on_disk, "bulk", bytes))

        yield compared(
            "hepnos-server",
            "1 KiB in bulk, by hand",
            against="keyplan's from the files",
            subject=lambda _: sum(1 for _ in pairs_from(both.wire, keys[0])),
            comparator=from_files,
            operations=bulk,
            rounds=extent.rounds,
        )
        yield compared(
            "hepnos-server",
            "1 KiB, loaded in bulk",
            against="the same from the files",
            subject=lambda _: sum(1 for _ in hepnos.load_products(served, "bulk", bytes)),
            comparator=from_files,
            operations=bulk,
            rounds=extent.rounds,
            aim=0.7,
        )


def _with_products(store: hepnos.DataStore, number: int) -> hepnos.DataSet:
    """Return a data set of so many products of 1 KiB."""
    dataset = store.root.ensure("nova")
    numbers = [np.full(number, 0), np.full(number, 0), np.arange(number)]
    dataset.create_items(*numbers)
    hepnos.store_products(dataset, "bulk", bytes, numbers, [_VALUE] * number)
    return dataset


@contextmanager
def _on_cores_apart(*servers: int) -> Generator[None, None, None]:
    """Hold processes to one core and this one to another, where there are two. Why: a client's is not its server's."""
    cores = sorted(os.sched_getaffinity(0))
    processes = {pid: {cores[-1]} for pid in servers} | {os.getpid(): {cores[0]}}
    try:
        for pid, own in processes.items():
            _hold_to(pid, own)
        yield
    finally:
        for pid in processes:
            _hold_to(pid, set(cores))


def _hold_to(pid: int, cores: set[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def _measure_in_flight(both: _Stand, extent: Extent, over_http: Callable[[int], object]) -> Iterator[Result]:
    """Loads under way at once, against one by one over HTTP and the same by hand; and what each side computes for one."""
    loads, folder = extent.operations(20_000), Path(extent.stands.folder) / "hepnos-server/in-flight"
    what, key = f"1 KiB, {_IN_FLIGHT} in flight", _keys(1, 1)[:KEY_BYTES] + b"p#bytes"
    with (
        asyncio.Runner() as runner,
        _many(runner, both.server.url) as load_many,
        _many_by_hand(runner, folder, key) as ask_many,
    ):

        def load(number: int) -> None:
            runner.run(load_many(number))

        yield compared(
            "hepnos-server",
            what,
            against="one by one over HTTP",
            subject=load,
            comparator=over_http,
            operations=loads,
            comparator_operations=extent.operations(2_000),
            rounds=extent.rounds,
            aim=40,
        )
        yield compared(
            "hepnos-server",
            what,
            against="the same by hand, with asyncio",
            subject=load,
            comparator=lambda number: runner.run(ask_many(number)),
            operations=loads,
            rounds=extent.rounds,
        )
        for name, process in (("client", os.getpid()), ("server", both.server.process.pid)):
            seconds = [processor_seconds(process)]
            for _ in range(extent.rounds):
                load(loads)
                seconds.append(processor_seconds(process))
            figures = [(after - before) / loads * 1e6 for before, after in pairwise(seconds)]
            yield single("hepnos-server", f"{what}: processor of the {name}", figures, unit="us")


@contextmanager
def _many_by_hand(
    runner: asyncio.Runner, folder: Path, key: bytes
) -> Generator[Callable[[int], Coroutine[Any, Any, None]], None, None]:
    """Give what asks a server by hand so often, so many at once, on one connection."""
    folder.mkdir()
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as transaction:
        transaction.put(key, _VALUE)
    process = subprocess.Popen(  # noqa: S603  # Why: our own module, and our own folder.
        [sys.executable, "-m", "benchmarks.frames_in_flight", str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())

        async def connected() -> AskingByHand:
            return (await asyncio.get_running_loop().create_connection(AskingByHand, "127.0.0.1", port))[1]

        client = runner.run(connected())

        async def ask_all(number: int) -> None:
            async def some() -> None:
                for _ in range(max(1, number // _IN_FLIGHT)):
                    await client.ask(key)

            await asyncio.gather(*(some() for _ in range(_IN_FLIGHT)))

        yield ask_all
        client.transport.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def _many(runner: asyncio.Runner, url: str) -> Generator[Callable[[int], Coroutine[Any, Any, None]], None, None]:
    """Give what loads a product so often, so many at once, on one connection."""
    opened = hepnos.aio.open(url)
    store = runner.run(opened.__aenter__())

    async def load(number: int) -> None:
        dataset = await store.root.get("nova")
        assert dataset is not None
        event = hepnos.aio.Event(hepnos.Event(dataset.sync, (1, 0, 0)), dataset.caller)

        async def some() -> None:
            for _ in range(max(1, number // _IN_FLIGHT)):
                await event.load("p", bytes)

        await asyncio.gather(*(some() for _ in range(_IN_FLIGHT)))

    try:
        yield load
    finally:
        runner.run(opened.__aexit__(None, None, None))


def _seconds_of(event: hepnos.Event) -> float:
    begun = perf_counter()
    event.load("p", bytes)
    return perf_counter() - begun


def _create(stand: _Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        numbers = np.arange(operations, dtype=np.uint64)
        hepnos.create_events(stand.dataset, next(stand.runs), 0, numbers, operation_keys=_BATCH)

    return work


def _keys(run: int, events: int) -> bytes:
    matrix = np.zeros((events, 5), ">u8")
    matrix[:, 2] = run
    matrix[:, 4] = np.arange(events)
    return matrix.tobytes()


def _create_by_hand(stand: _Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        raw = _keys(next(stand.runs_by_hand), operations)
        for begin in range(0, len(raw), KEY_BYTES * _BATCH):
            ask(stand.wire, b"P", raw[begin : begin + KEY_BYTES * _BATCH])

    return work


def _tuples_by_hand(wire: socket.socket, run: int, events: int) -> int:
    total, start = 0, _keys(run, 1)[:KEY_BYTES]
    while total < events:
        raw = ask(wire, b"L", pack("<I", _BATCH) + start)
        words = np.frombuffer(raw, ">u8").reshape(-1, 5)[:, 2:].tolist()
        total += len([tuple(numbers) for numbers in words])
        start = raw[-KEY_BYTES:] + b"\0"
    return total
