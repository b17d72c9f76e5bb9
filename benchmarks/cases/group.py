"""Durable commits of several threads that share flushes, against hand-written code that commits one by one."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from threading import Barrier, Thread
from typing import Final

from benchmarks.extent import Extent
from benchmarks.inventory import Item, item, item_key
from benchmarks.measure import Result, Work, compared

__all__ = ["measure"]

_COMMITS_A_THREAD: Final = {1: 640, 8: 160, 64: 80}
"""Why: starting 64 threads takes as long as a few of their commits, and must not be what is measured."""
_COMMITS_BY_HAND: Final = 320
_AIM: Final = 4.0


def measure(extent: Extent) -> Iterator[Result]:
    """Records with four index entries, each inserted and flushed before its thread goes on."""
    for threads, commits in _COMMITS_A_THREAD.items():
        with extent.stands.stand(extent.sizes[0], durability="full") as stand:
            insert, by_hand = stand.inventory.items.insert, stand.by_hand.insert
            ours, theirs = count(stand.size), count(stand.size)
            insert_next = partial(_insert_next, insert, ours)
            insert_next_by_hand = partial(_insert_next, lambda *pair, by_hand=by_hand: by_hand((pair,)), theirs)
            yield compared(
                "group-commit",
                f"history, {threads} threads",
                against="py-lmdb, one thread",
                subject=_in_threads(insert_next, threads),
                comparator=_repeated(insert_next_by_hand),
                operations=threads * extent.operations(commits),
                comparator_operations=extent.operations(_COMMITS_BY_HAND),
                rounds=extent.rounds,
                size=stand.size,
                aim=_AIM if threads == max(_COMMITS_A_THREAD) else None,
            )


def _insert_next(insert: Callable[[str, Item], object], numbers: Iterator[int]) -> None:
    number = next(numbers)
    insert(item_key(number), item(number))


def _repeated(act: Callable[[], None]) -> Work:
    def work(operations: int) -> None:
        for _ in range(operations):
            act()

    return work


def _in_threads(act: Callable[[], None], threads: int) -> Work:
    def work(operations: int) -> None:
        gate = Barrier(threads)

        def run() -> None:
            gate.wait()
            for _ in range(operations // threads):
                act()

        running = [Thread(target=run) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    return work
