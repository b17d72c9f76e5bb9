"""Reads at random places of stores of several sizes. Both sides read the same bytes."""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, TypeVar

from benchmarks.extent import Extent
from benchmarks.inventory import ITEMS_A_PROJECT, ItemName, item, item_key
from benchmarks.measure import Result, Work, compared
from benchmarks.stand import Stand

__all__ = ["measure_count", "measure_get", "measure_index", "measure_list", "measure_unique"]

T = TypeVar("T")

_GETS: Final = 20_000
_UNIQUES: Final = 10_000
_LOOK_UPS: Final = 2_000
_LISTED: Final = 100_000
"""Records a round: a list of a small store is repeated, so that a round takes long enough to be measured."""

_Pair = Callable[[Stand], tuple[Work, Work]]


def measure_get(extent: Extent) -> Iterator[Result]:
    """One record by its key, a snapshot for each."""

    def works(stand: Stand) -> tuple[Work, Work]:
        keys = _chosen(stand.size, item_key)
        get, by_hand = stand.inventory.items.get, stand.by_hand.get
        assert get(keys[0]) == by_hand(keys[0]) is not None

        def subject(operations: int) -> None:
            for key in _turns(keys, operations):
                get(key)

        def comparator(operations: int) -> None:
            for key in _turns(keys, operations):
                by_hand(key)

        return subject, comparator

    yield from _reads(extent, "get", _GETS, works, aim=0.35)


def measure_unique(extent: Extent) -> Iterator[Result]:
    """One record by a unique name: the entry, then the record."""

    def works(stand: Stand) -> tuple[Work, Work]:
        names = _chosen(stand.size, lambda number: ItemName(item(number).project, item(number).name))
        one, by_hand = stand.inventory.by_name.one, stand.by_hand.by_name
        assert one(names[0]) == by_hand(*names[0]) is not None

        def subject(operations: int) -> None:
            for name in _turns(names, operations):
                one(name)

        def comparator(operations: int) -> None:
            for project, name in _turns(names, operations):
                by_hand(project, name)

        return subject, comparator

    yield from _reads(extent, "unique", _UNIQUES, works)


def measure_index(extent: Extent) -> Iterator[Result]:
    """The ten records of a project, by the index."""

    def works(stand: Stand) -> tuple[Work, Work]:
        projects = [item(number * ITEMS_A_PROJECT).project for number in _chosen(stand.size // ITEMS_A_PROJECT, int)]
        by_project, by_hand = stand.inventory.by_project.list, stand.by_hand.by_project
        assert list(by_project(projects[0])) == list(by_hand(projects[0])) != []

        def subject(operations: int) -> None:
            for project in _turns(projects, operations):
                list(by_project(project))

        def comparator(operations: int) -> None:
            for project in _turns(projects, operations):
                list(by_hand(project))

        return subject, comparator

    yield from _reads(extent, "index", _LOOK_UPS, works)


def measure_list(extent: Extent) -> Iterator[Result]:
    """All records with their keys, one by one."""

    def works(stand: Stand) -> tuple[Work, Work]:
        return _walking(stand.inventory.items.list, stand.size), _walking(stand.by_hand.list, stand.size)

    yield from _walks(extent, "list", works, aim=0.5)


def measure_count(extent: Extent) -> Iterator[Result]:
    """The number of records; every key is looked at, since keys of others may lie between."""

    def works(stand: Stand) -> tuple[Work, Work]:
        counted, by_hand = stand.inventory.items.count, stand.by_hand.keys
        assert counted() == stand.size == sum(1 for _ in by_hand())

        def subject(operations: int) -> None:
            for _ in range(_times(operations, stand.size)):
                counted()

        return subject, _walking(by_hand, stand.size)

    yield from _walks(extent, "count", works)


def _reads(
    extent: Extent, benchmark: str, operations: int, works: _Pair, *, aim: float | None = None
) -> Iterator[Result]:
    for has_history in (True, False):
        for size in extent.sizes:
            with extent.stands.stand(size, has_history=has_history, is_only_read=True) as stand:
                subject, comparator = works(stand)
                yield compared(
                    benchmark,
                    "history" if has_history else "raw",
                    against="py-lmdb, same bytes",
                    subject=subject,
                    comparator=comparator,
                    operations=extent.operations(operations),
                    rounds=extent.rounds,
                    size=size,
                    aim=aim if has_history else None,
                )


def _walks(extent: Extent, benchmark: str, works: _Pair, *, aim: float | None = None) -> Iterator[Result]:
    """As `_reads`, with one operation for each record, and whole lists."""
    for has_history in (True, False):
        for size in extent.sizes:
            with extent.stands.stand(size, has_history=has_history, is_only_read=True) as stand:
                subject, comparator = works(stand)
                yield compared(
                    benchmark,
                    "history" if has_history else "raw",
                    against="py-lmdb, same bytes",
                    subject=subject,
                    comparator=comparator,
                    operations=size * _times(extent.operations(_LISTED), size),
                    rounds=max(1, extent.rounds // 3) if size > _LISTED else extent.rounds,
                    size=size,
                    aim=aim if has_history else None,
                )


def _walking(make: Callable[[], Iterator[object]], size: int) -> Work:
    def work(operations: int) -> None:
        for _ in range(_times(operations, size)):
            deque(make(), maxlen=0)

    return work


def _times(operations: int, size: int) -> int:
    return max(1, operations // size)


def _chosen(size: int, make: Callable[[int], T]) -> list[T]:
    """A thousand places of a store, the same in every run."""
    random = Random(1)  # noqa: S311  # Why: chance must repeat here.
    return [make(random.randrange(max(1, size))) for _ in range(1_000)]


def _turns(things: list[T], operations: int) -> Iterator[T]:
    done = 0
    while done < operations:
        yield from things[: operations - done]
        done += len(things)
