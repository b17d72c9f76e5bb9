"""What a key space costs: the same work in a key space and in the bare store, on one engine, in one run.

Both hold the same records. A ratio of 1 means that the key space costs nothing; the aim is that it costs a tenth at most, and
a get a twentieth.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Final, NamedTuple

import keyplan
from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, item, item_key
from benchmarks.measure import Result, Work, compared
from benchmarks.stand import Stand
from keyplan.engine import KeyRange
from keyplan.keyspace import open_key_space
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["measure"]

_SIZE_MAX: Final = 10_000
"""Why: a key space adds its few bytes to every key; how many there are changes nothing."""

_GETS: Final = 20_000
_LISTS: Final = 200_000
_COMMITS: Final = 4_000
_DURABLE_COMMITS: Final = 400
_SERVED_GETS: Final = 2_000
_SERVED: Final = 100
"""Records on a server: a get costs the same of any number."""
_AIM: Final = 0.9
_AIM_OF_GETS: Final = 0.95


class _Pair(NamedTuple):
    inside: Inventory
    bare: Inventory
    size: int


def measure(extent: Extent) -> Iterator[Result]:
    """Gets, whole lists and commits, without waiting for the disk; gets on other engines; commits as they are by default."""
    size = min(_SIZE_MAX, max(extent.sizes))
    with extent.stands.stand(size) as stand, _pair(stand) as pair:
        yield _compared(extent, "get", _GETS, _get(pair.inside, size), _get(pair.bare, size), pair)
        lists = max(size, extent.operations(_LISTS))
        yield _compared(extent, "list", lists, _list(pair.inside), _list(pair.bare), pair)
        yield _compared(extent, "update", _COMMITS, _update(pair.inside, size), _update(pair.bare, size), pair)
        yield _compared(extent, "insert", _COMMITS, _insert(pair.inside, size), _insert(pair.bare, size), pair)
    yield from _gets_elsewhere(extent)
    with extent.stands.stand(size, durability="full") as stand, _pair(stand) as pair:
        inside, bare = _update(pair.inside, size), _update(pair.bare, size)
        yield _compared(extent, "update, durable", _DURABLE_COMMITS, inside, bare, pair)


def _gets_elsewhere(extent: Extent) -> Iterator[Result]:
    """A get on the other engines: in memory, and on servers, where the look at the fence comes along in the read's own call."""
    with ExitStack() as stack:
        stores = {"get, memory": (keyplan.open("memory:"), _GETS)}
        if why_no_etcd() is None:
            stores["get, etcd"] = (keyplan.open(stack.enter_context(EtcdServer()).url), _SERVED_GETS)
        if why_no_postgres() is None:
            stores["get, PostgreSQL"] = (Store(stack.enter_context(PostgresServer()).opened("keyplan")), _SERVED_GETS)
        for variant, (store, operations) in stores.items():
            with store, open_key_space(store.engine, "inventory", "benchmarks", create_if_missing=True) as space:
                pair = _Pair(Inventory(space), Inventory(store), _SERVED)
                for inventory in (pair.inside, pair.bare):
                    for number in range(_SERVED):
                        inventory.items.insert(item_key(number), item(number))
                inside, bare = _get(pair.inside, _SERVED), _get(pair.bare, _SERVED)
                yield _compared(extent, variant, operations, inside, bare, pair)


@contextmanager
def _pair(stand: Stand) -> Generator[_Pair, None, None]:
    """A key space in the stand's store, with the same records as the store has beside it."""
    engine = stand.store.engine
    with open_key_space(engine, "inventory", "benchmarks", create_if_missing=True) as store:
        with engine.snapshot() as snapshot:
            pairs = list(snapshot.pairs(KeyRange.of_prefix(b"/inventory/")))
        store.engine.load(pairs)
        yield _Pair(Inventory(store), stand.inventory, stand.size)


def _compared(extent: Extent, variant: str, operations: int, subject: Work, comparator: Work, pair: _Pair) -> Result:
    return compared(
        "key-space",
        variant,
        against="the same in the bare store",
        subject=subject,
        comparator=comparator,
        operations=extent.operations(operations),
        rounds=extent.rounds,
        size=pair.size,
        aim=_AIM_OF_GETS if variant.startswith("get") else _AIM,
    )


def _keys(size: int) -> list[str]:
    chance = Random(size)  # noqa: S311  # Why: the same places in each run.
    return [item_key(chance.randrange(size)) for _ in range(min(size, 1_000))]


def _get(inventory: Inventory, size: int) -> Work:
    keys, get = _keys(size), inventory.items.get
    assert get(keys[0]) == item(int(keys[0][-9:]))

    def work(operations: int) -> None:
        for number in range(operations):
            get(keys[number % len(keys)])

    return work


def _list(inventory: Inventory) -> Work:
    def work(operations: int) -> None:
        # Why: in whole lists; their number follows from the operations, which are records.
        read = 0
        while read < operations:
            seen = deque(inventory.items.list(limit=operations - read))
            assert seen
            read += len(seen)

    return work


def _update(inventory: Inventory, size: int) -> Work:
    keys, put = _keys(size), inventory.items.put
    records = [item(int(key[-9:])) for key in keys]

    def work(operations: int) -> None:
        for number in range(operations):
            put(keys[number % len(keys)], records[number % len(keys)])

    return work


def _insert(inventory: Inventory, size: int) -> Work:
    numbers = count(10 * size)

    def work(operations: int) -> None:
        for _ in range(operations):
            number = next(numbers)
            inventory.items.insert(item_key(number), item(number))

    return work
