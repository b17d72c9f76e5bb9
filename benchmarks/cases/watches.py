"""From the begin of a commit in one process to its event in another: engine-level watch on one LMDB store."""

from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random
from threading import Event
from time import perf_counter_ns
from typing import Final

import keyplan
from benchmarks.extent import Extent
from benchmarks.inventory import item, item_key
from benchmarks.measure import Result, single
from keyplan.engine import KeyRange

__all__ = ["measure"]

_CHANGES: Final = 300
_PAUSE_SECONDS_MAX: Final = 0.03
_EVENTS_OF_AN_INSERT: Final = 5
_ROOT: Final = b"/inventory/"


def measure(extent: Extent) -> Iterator[Result]:
    """Milliseconds; the clock is the machine's, the same in both processes. The commits come at irregular times."""
    with extent.stands.stand(extent.sizes[0]) as stand:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        watching = context.Process(target=_watch, args=(str(stand.folder), stand.store.revision, theirs))
        watching.start()
        try:
            assert ours.recv() == "watching"
            random, pause = Random(1), Event()  # noqa: S311  # Why: chance must repeat here.
            delays: list[float] = []
            for number in range(stand.size, stand.size + extent.operations(_CHANGES)):
                pause.wait(random.random() * _PAUSE_SECONDS_MAX)
                begun = perf_counter_ns()
                stand.inventory.items.insert(item_key(number), item(number))
                delays.append((ours.recv() - begun) / 1e6)
            ours.send("enough")
        finally:
            watching.join(timeout=10)
            if watching.is_alive():
                watching.terminate()
        yield single("watch", "two processes, after idling", delays, unit="ms", size=stand.size)


def _watch(folder: str, revision: int, pipe: Connection) -> None:
    """The other process: report when each insert was seen."""
    with keyplan.open(f"lmdb:{folder}", durability="none") as store:
        watch = store.engine.watch(KeyRange.of_prefix(_ROOT), after=revision)
        pipe.send("watching")
        while not pipe.poll():
            events = watch.poll(0.5)
            seen = perf_counter_ns()
            for _ in range(len(events) // _EVENTS_OF_AN_INSERT):
                pipe.send(seen)
        watch.close()
