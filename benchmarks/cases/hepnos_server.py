"""HEPnOS behind keyplan's server on loopback, against one LMDB file behind frames by hand: what HTTP and the rest add."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from struct import pack
from typing import Final, NamedTuple

import numpy as np

from benchmarks.extent import Extent
from benchmarks.frames_by_hand import KEY_BYTES, ask
from benchmarks.measure import Result, compared
from keyplan.apps import hepnos
from tests.servers.keyplan_server import KeyplanServer

__all__ = ["measure"]

_BATCH: Final = 4_096
_VALUE: Final = bytes(1_024)


class _Stand(NamedTuple):
    """A data set behind the server, and a connection to the frames by hand. Each round has a run of its own on its side."""

    dataset: hepnos.DataSet
    wire: socket.socket
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
        with KeyplanServer("memory:", *settings) as server, hepnos.open(server.url) as store:
            with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield _Stand(store.root.ensure("nova"), wire, count(1), count(1))
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
