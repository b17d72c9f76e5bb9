"""One place to work in, alone in its process: `python -m benchmarks.places ENGINE PLACE SHARE FOLDER`; prints JSON.

Places are the bare store, a key space in it, and a caller's confined store with and without a fence. Why a process for each:
the interpreter fits its code to what it runs, and two places that take turns undo that for each other, the shorter way most.
"""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from time import thread_time
from typing import Final

import keyplan
from benchmarks.inventory import Inventory, item, item_key
from keyplan.engine import Area, AreaFence, Commit, ConfinedEngine, Engine, KeyRange, Outside, Put, Reach
from keyplan.keyspace import open_key_space
from keyplan.store import Store

__all__ = ["BARE", "OPERATIONS", "PLACES", "main"]

BARE: Final = "bare"
PLACES: Final = (BARE, "key space", "confined", "confined by a fence")
OPERATIONS: Final = ("get", "list", "update", "insert")

_RECORDS: Final = 1_000
_SLICES: Final = {"get": (200, 200), "list": (500, 100), "update": (20, 100), "insert": (20, 100)}
"""Operations of a slice, and slices: the fastest counts, in which nobody came between."""
_KEYS: Final = KeyRange.of_prefix(b"/inventory/")
_FENCE: Final[AreaFence] = (b"fence", b"open")


def main(arguments: list[str]) -> None:
    """Print the seconds of one operation of each kind."""
    engine, place, share, folder = arguments
    url = "memory:" if engine == "memory" else f"lmdb:{folder}?durability=none"
    with keyplan.open(url) as store, _place(store, place) as inventory:
        work = _work(inventory)
        for number in range(_RECORDS):
            inventory.items.insert(item_key(number), item(number))
        best: dict[str, float] = {}
        for name in OPERATIONS:
            operations, slices = _SLICES[name]
            best[name] = min(_seconds(work[name], operations) for _ in range(max(2, round(slices * float(share)))))
        print(json.dumps(best))


@contextmanager
def _place(store: Store, place: str) -> Generator[Inventory, None, None]:
    # Why opened in every case: its session is a lease in the store, which each of them then has.
    with open_key_space(store.engine, "inventory", "benchmarks", create_if_missing=True) as space:
        if place == BARE:
            yield Inventory(store)
        elif place == "key space":
            yield Inventory(space)
        else:
            yield Inventory(Store(_confined(store.engine, None if place == "confined" else _FENCE)))


def _confined(engine: Engine, fence: AreaFence | None) -> Engine:
    engine.commit(Commit((), (Put(*_FENCE),)))
    reach = Reach([Area(_KEYS, can_write=True, fence=fence)])
    return ConfinedEngine(engine, lambda: reach, outside=Outside.REFUSED, closes_inner=False)


def _work(inventory: Inventory) -> dict[str, Callable[[int], None]]:
    keys = [item_key(number * 7 % _RECORDS) for number in range(_RECORDS)]
    records = [item(number * 7 % _RECORDS) for number in range(_RECORDS)]
    numbers = count(_RECORDS)

    def get(operations: int) -> None:
        read = inventory.items.get
        for place in range(operations):
            read(keys[place])

    def list_(operations: int) -> None:
        for _ in inventory.items.list(limit=operations):
            pass

    def update(operations: int) -> None:
        put = inventory.items.put
        for place in range(operations):
            put(keys[place], records[place])

    def insert(operations: int) -> None:
        for _ in range(operations):
            number = next(numbers)
            inventory.items.insert(item_key(number), item(number))

    return {"get": get, "list": list_, "update": update, "insert": insert}


def _seconds(work: Callable[[int], None], operations: int) -> float:
    begun = thread_time()
    work(operations)
    return (thread_time() - begun) / operations


if __name__ == "__main__":
    main(sys.argv[1:])
