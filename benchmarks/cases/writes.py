"""Inserts of a record with four index entries. Both sides refuse taken ids and names, and write the same bytes."""

from collections.abc import Iterator
from typing import Final

from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, Item, item, item_key
from benchmarks.measure import Result, Work, compared
from benchmarks.stand import Stand
from keyplan.store import Transaction

__all__ = ["measure_insert", "measure_insert_durable", "measure_insert_many"]

_INSERTS: Final = 2_000
_DURABLE_INSERTS: Final = 200
_BATCH: Final = 100
_BATCHES: Final = 20
_AIM: Final = 0.7


def measure_insert(extent: Extent) -> Iterator[Result]:
    """One record a transaction, not flushed."""
    for has_history in (True, False):
        for size in extent.sizes:
            with extent.stands.stand(size, has_history=has_history) as stand:
                yield _singly(extent, stand, "insert", has_history=has_history, operations=_INSERTS)


def measure_insert_durable(extent: Extent) -> Iterator[Result]:
    """One record a transaction, flushed."""
    for size in extent.sizes:
        with extent.stands.stand(size, durability="full") as stand:
            yield _singly(extent, stand, "insert-durable", has_history=True, operations=_DURABLE_INSERTS)


def measure_insert_many(extent: Extent) -> Iterator[Result]:
    """A hundred records a transaction, not flushed."""
    for size in extent.sizes:
        with extent.stands.stand(size) as stand:
            subject, comparator = _batches(stand)
            yield compared(
                "insert-many",
                f"history, {_BATCH} a transaction",
                against="py-lmdb, same bytes",
                subject=subject,
                comparator=comparator,
                operations=extent.operations(_BATCHES) * _BATCH,
                rounds=extent.rounds,
                size=size,
                aim=_AIM,
            )


def _singly(extent: Extent, stand: Stand, benchmark: str, *, has_history: bool, operations: int) -> Result:
    insert, by_hand = stand.inventory.items.insert, stand.by_hand.insert
    ours, theirs = _News(stand.size), _News(stand.size)

    def subject(operations: int) -> None:
        for key, record in ours.take(operations):
            insert(key, record)

    def comparator(operations: int) -> None:
        for pair in theirs.take(operations):
            by_hand((pair,))

    return compared(
        benchmark,
        "history" if has_history else "raw",
        against="py-lmdb, same bytes",
        subject=subject,
        comparator=comparator,
        operations=extent.operations(operations),
        rounds=extent.rounds,
        size=stand.size,
        aim=_AIM if has_history else None,
    )


def _batches(stand: Stand) -> tuple[Work, Work]:
    ours, theirs = _News(stand.size), _News(stand.size)

    def subject(operations: int) -> None:
        for _ in range(operations // _BATCH):
            batch = ours.take(_BATCH)

            def insert_all(transaction: Transaction, batch: list[tuple[str, Item]] = batch) -> None:
                items = Inventory(transaction).items
                for key, record in batch:
                    items.insert(key, record)

            stand.store.run(insert_all)

    def comparator(operations: int) -> None:
        for _ in range(operations // _BATCH):
            stand.by_hand.insert(theirs.take(_BATCH))

    return subject, comparator


class _News:
    """Items that are not stored yet, in ascending order."""

    def __init__(self, size: int) -> None:
        self._next = size

    def take(self, count: int) -> list[tuple[str, Item]]:
        first, self._next = self._next, self._next + count
        return [(item_key(number), item(number)) for number in range(first, self._next)]
