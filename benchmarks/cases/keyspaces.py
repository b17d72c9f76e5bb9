"""What a key space costs, and a caller's reach: the same work in it and in the bare store, on one engine.

A ratio of 1 means that it costs nothing; the aims are a tenth at most, and for reads a twentieth. What waits for nothing is
measured by the time that it computes, each place in processes of its own (`benchmarks.places`), which take turns; what asks a
server, one operation after the other.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import keyplan
from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, item, item_key
from benchmarks.measure import Result, Work, compared, compared_singly, of_rates
from benchmarks.places import BARE, OPERATIONS, PLACES
from benchmarks.stand import Stand
from keyplan.codec import JsonForm
from keyplan.engine import KeyRange
from keyplan.keyspace import open_key_space
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["measure"]

_SIZE_MAX: Final = 10_000
"""Why: a key space adds its few bytes to every key; how many there are changes nothing."""

_DURABLE_COMMITS: Final = 400
_SERVED_GETS: Final = 2_000
_SERVED: Final = 100
"""Records on a server: a get costs the same of any number."""
_AIM: Final = 0.9
_AIM_OF_READS: Final = 0.95
_AIM_OF_CONFINED_WRITES: Final = 0.85


class _Pair(NamedTuple):
    inside: Inventory
    bare: Inventory
    size: int


def measure(extent: Extent) -> Iterator[Result]:
    """Reads and commits that wait for nothing, on LMDB and in memory; gets on servers; commits as they are by default."""
    for engine in ("lmdb", "memory"):
        yield from _in_processes(extent, engine)
    yield from _gets_of_servers(extent)
    size = min(_SIZE_MAX, max(extent.sizes))
    with extent.stands.stand(size, durability="full") as stand, _pair(stand) as pair:
        yield compared(
            "key-space",
            "update, lmdb, durable: key space",
            against="the same in the bare store",
            subject=_update(pair.inside, size),
            comparator=_update(pair.bare, size),
            operations=extent.operations(_DURABLE_COMMITS),
            rounds=extent.rounds,
            size=size,
            aim=_AIM,
        )


def _in_processes(extent: Extent, engine: str) -> Iterator[Result]:
    taken: dict[str, list[dict[str, float]]] = {place: [] for place in PLACES}
    for number in range(extent.amount.processes):
        # Why turned about: whoever is first finds a colder machine.
        for place in (*PLACES[number % len(PLACES) :], *PLACES[: number % len(PLACES)]):
            taken[place].append(_alone(extent, engine, place))
    for place in PLACES[1:]:
        for name in OPERATIONS:
            pairs = [(bare[name], own[name]) for bare, own in zip(taken[BARE], taken[place], strict=True)]
            is_read = name in {"get", "list"}
            yield of_rates(
                "key-space",
                f"{name}, {engine}: {place}",
                against="the same in the bare store",
                rates=[1 / own for _, own in pairs],
                ratios=[bare / own for bare, own in pairs],
                size=None,
                aim=_AIM_OF_READS if is_read else _AIM if place == "key space" else _AIM_OF_CONFINED_WRITES,
            )


def _alone(extent: Extent, engine: str, place: str) -> dict[str, float]:
    """Return the seconds of each operation in a place."""
    with TemporaryDirectory(dir=extent.stands.folder) as folder:
        command = [sys.executable, "-m", "benchmarks.places", engine, place, str(extent.amount.share * 2), folder]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # Why: our own.
    found: dict[str, float] = json.loads(finished.stdout)
    return found


def _gets_of_servers(extent: Extent) -> Iterator[Result]:
    """A get where the look at the fence comes along in the read's own call."""
    with ExitStack() as stack:
        stores: dict[str, Store] = {}
        if why_no_etcd() is None:
            stores["etcd"] = keyplan.open(stack.enter_context(EtcdServer()).url)
        server = None
        if why_no_postgres() is None:
            server = stack.enter_context(PostgresServer())
            stores["PostgreSQL"] = Store(server.opened("keyplan"))
        for name, store in stores.items():
            with store, open_key_space(store.engine, "inventory", "benchmarks", create_if_missing=True) as space:
                yield _gets_of(extent, name, Inventory(space), Inventory(store))
        if server is not None:
            yield _gets_by_hand(extent, server)


def _gets_of(extent: Extent, engine: str, inside: Inventory, bare: Inventory) -> Result:
    for inventory in (inside, bare):
        for number in range(_SERVED):
            inventory.items.insert(item_key(number), item(number))
    key = item_key(_SERVED // 2)
    return compared_singly(
        "key-space",
        f"get, {engine}: key space",
        against="the same in the bare store",
        subject=lambda: inside.items.get(key),
        comparator=lambda: bare.items.get(key),
        operations=extent.operations(_SERVED_GETS),
        rounds=extent.rounds,
        size=_SERVED,
        aim=_AIM_OF_READS,
    )


def _gets_by_hand(extent: Extent, server: PostgresServer) -> Result:
    """The least that a look at a fence costs on PostgreSQL: libpq alone, a key's value with and without another key's."""
    fence, key = b"\x00fence", f"\x01/inventory/items/{item_key(_SERVED // 2)}".encode()
    with server.local() as connection:
        connection.execute(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off"
        )
        connection.execute("CREATE TABLE by_hand (key bytea PRIMARY KEY, value bytea NOT NULL)")
        insert = "INSERT INTO by_hand VALUES (%s, %s)"
        connection.execute(insert, (fence, b"open"))
        for number in range(_SERVED):
            raw_key = f"\x01/inventory/items/{item_key(number)}".encode()
            connection.execute(insert, (raw_key, JsonForm[Any](type(item(1))).encode(item(number))))
        raw = connection.pgconn
        raw.prepare(b"one", b"SELECT value FROM by_hand WHERE key = $1")
        raw.prepare(b"two", b"SELECT key || value FROM by_hand WHERE key = ANY(ARRAY[$1, $2]::bytea[])")

        def get() -> bytes | None:
            return raw.exec_prepared(b"one", (key,), (1,), 1).get_value(0, 0)

        def fenced_get() -> bytes | None:
            found = raw.exec_prepared(b"two", (fence, key), (1, 1), 1)
            one, other = found.get_value(0, 0), found.get_value(1, 0)
            assert one is not None
            assert other is not None
            return other[len(key) :] if one == b"\x00fenceopen" else one[len(key) :]

        assert fenced_get() == get()
        return compared_singly(
            "key-space",
            "get, PostgreSQL by hand: two keys",
            against="one key",
            subject=fenced_get,
            comparator=get,
            operations=extent.operations(_SERVED_GETS),
            rounds=extent.rounds,
            size=_SERVED,
        )


@contextmanager
def _pair(stand: Stand) -> Generator[_Pair, None, None]:
    """A key space in the stand's store, with the same records as the store has beside it."""
    engine = stand.store.engine
    with open_key_space(engine, "inventory", "benchmarks", create_if_missing=True) as store:
        with engine.snapshot() as snapshot:
            pairs = list(snapshot.pairs(KeyRange.of_prefix(b"/inventory/")))
        store.engine.load(pairs)
        yield _Pair(Inventory(store), stand.inventory, stand.size)


def _update(inventory: Inventory, size: int) -> Work:
    chance = Random(size)  # noqa: S311  # Why: the same places in each run.
    keys = [item_key(chance.randrange(size)) for _ in range(min(size, 1_000))]
    put, records = inventory.items.put, [item(int(key[-9:])) for key in keys]

    def work(operations: int) -> None:
        for number in range(operations):
            put(keys[number % len(keys)], records[number % len(keys)])

    return work
