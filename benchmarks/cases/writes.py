"""Inserts of a record with four index entries. Both sides refuse taken ids and names, and write the same bytes."""

from collections.abc import Iterator
from itertools import islice
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
            operations = extent.operations(_BATCHES) * _BATCH
            subject, comparator = _batches(stand, operations * (extent.rounds + 1))
            yield compared(
                "insert-many",
                f"history, {_BATCH} a transaction",
                against="py-lmdb, same bytes",
                subject=subject,
                comparator=comparator,
                operations=operations,
                rounds=extent.rounds,
                size=size,
                aim=_AIM,
            )


def _singly(extent: Extent, stand: Stand, benchmark: str, *, has_history: bool, operations: int) -> Result:
    insert, by_hand = stand.inventory.items.insert, stand.by_hand.insert
    operations = extent.operations(operations)
    ours, theirs = (_news(stand.size, operations * (extent.rounds + 1)) for _ in range(2))

    def subject(operations: int) -> None:
        for key, record in islice(ours, operations):
            insert(key, record)

    def comparator(operations: int) -> None:
        for pair in islice(theirs, operations):
            by_hand((pair,))

    return compared(
        benchmark,
        "history" if has_history else "raw",
        against="py-lmdb, same bytes",
        subject=subject,
        comparator=comparator,
        operations=operations,
        rounds=extent.rounds,
        size=stand.size,
        aim=_AIM if has_history else None,
    )


def _batches(stand: Stand, records: int) -> tuple[Work, Work]:
    ours, theirs = _news(stand.size, records), _news(stand.size, records)

    def subject(operations: int) -> None:
        for _ in range(operations // _BATCH):
            stand.store.run(insert_batch)

    def insert_batch(transaction: Transaction) -> None:
        insert = Inventory(transaction).items.insert
        for key, record in islice(ours, _BATCH):
            insert(key, record)

    def comparator(operations: int) -> None:
        for _ in range(operations // _BATCH):
            stand.by_hand.insert(islice(theirs, _BATCH))

    return subject, comparator


def _news(size: int, count: int) -> Iterator[tuple[str, Item]]:
    """Items that are not stored yet, in ascending order. Made beforehand: making them is not what is measured."""
    return iter([(item_key(number), item(number)) for number in range(size, size + count)])
