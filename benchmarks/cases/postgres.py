"""The PostgreSQL engine on a server of its own: against psycopg as one would write it, same rows; LMDB and etcd beside it.

The hand-written code keeps its connections, prepares its statements, takes the same lock and writes the same history, so that
both sides promise the same. The server's data lie in memory: what is compared is the work, not a disk.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from queue import Empty, LifoQueue
from typing import Any, Final

import psycopg

import keyplan
from benchmarks.extent import Extent
from benchmarks.inventory import Inventory, item, item_key
from benchmarks.measure import Act, Result, Work, compared, in_threads
from keyplan.codec import JsonForm
from keyplan.engine import ALL_KEYS, Commit, MemoryEngine, Put, RecordingEngine
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["measure"]

_CALLS: Final = 1_000
_IN_FLIGHT: Final = 16
_LISTED: Final = 100_000
_KEY: Final = b"/put/key"
_BY_HAND: Final = "psycopg by hand, same rows"

Pairs = list[tuple[bytes, bytes]]


def measure(extent: Extent) -> Iterator[Result]:
    """A get, a put, an insert of a record with four index entries, alone and 16 in flight; a list; a load."""
    problem = why_no_postgres()
    if problem is not None:
        sys.stderr.write(f"postgres is left out: {problem}\n")
        return
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(arguments=["-c", "shared_buffers=128MB"]))
        engine = stack.enter_context(server.opened("keyplan"))
        server.opened("by_hand").close()
        by_hand = stack.enter_context(_ByHand(server))
        store = Store(engine)
        items = Inventory(store).items
        value = JsonForm[Any](type(item(1))).encode(item(1))
        items.insert(item_key(1), item(1))
        by_hand.write(next(_inserted(1, 1)))
        raw_key = f"/inventory/items/{item_key(1)}".encode()
        operations = max(_IN_FLIGHT, extent.operations(_CALLS))
        ours, theirs = count(1_000), _inserted(1_000, 2 * (extent.rounds + 1) * (operations + _IN_FLIGHT))

        def insert() -> None:
            number = next(ours)
            items.insert(item_key(number), item(number))

        subjects: dict[str, tuple[Act, Act]] = {
            "get": (partial(engine.value, raw_key), partial(by_hand.get, raw_key)),
            "put": (
                lambda: engine.commit(Commit((), (Put(_KEY, value),))),
                lambda: by_hand.write([(_KEY, value)]),
            ),
            "insert": (insert, lambda: by_hand.write(next(theirs))),
        }
        for tasks in (1, _IN_FLIGHT):
            for name, (subject, other) in subjects.items():
                yield _compared(extent, name, tasks, _BY_HAND, in_threads(subject, tasks), in_threads(other, tasks))
        yield from _beside(extent, stack, subjects, insert)
        yield from _in_bulk(extent, server)


def _beside(
    extent: Extent, stack: ExitStack, subjects: dict[str, tuple[Act, Act]], insert: Callable[[], None]
) -> Iterator[Result]:
    """The same on keyplan's other engines, each as durable."""
    stores: dict[str, Store] = {}
    stores["keyplan on LMDB"] = stack.enter_context(keyplan.open(f"lmdb:{extent.stands.folder}/beside-postgres.kv"))
    if why_no_etcd() is None:
        stores["keyplan on etcd"] = stack.enter_context(keyplan.open(stack.enter_context(EtcdServer()).url))
    for against, store in stores.items():
        items = Inventory(store).items
        items.insert(item_key(1), item(1))
        raw_key = f"/inventory/items/{item_key(1)}".encode()
        numbers = count(1_000)
        get = in_threads(partial(store.engine.value, raw_key), 1)
        yield _compared(extent, "get", 1, against, in_threads(subjects["get"][0], 1), get)

        def insert_there(items: Any = items, numbers: "count[int]" = numbers) -> None:
            number = next(numbers)
            items.insert(item_key(number), item(number))

        yield _compared(extent, "insert", 1, against, in_threads(insert, 1), in_threads(insert_there, 1))


def _in_bulk(extent: Extent, server: PostgresServer) -> Iterator[Result]:
    """All entries of a store, listed, and loaded; by hand with a server-side cursor and with COPY."""
    size = min(extent.sizes[-1], extent.operations(_LISTED))
    encode = JsonForm[Any](type(item(1))).encode
    pairs = [(f"/bulk/{number:09d}".encode(), encode(item(number))) for number in range(size)]
    with server.opened("bulk") as engine, _ByHand(server) as by_hand:
        engine.load(pairs)

        def listed(_: int) -> None:
            with engine.snapshot() as snapshot:
                assert sum(1 for _ in snapshot.scan(ALL_KEYS)) == size

        def loaded(_: int) -> None:
            server.emptied("bulk")
            assert engine.load(pairs) == size

        figures = partial(compared, "postgres", operations=size, rounds=extent.rounds, size=size)
        yield figures(f"list of {size}", against=_BY_HAND, subject=listed, comparator=lambda _: by_hand.list(size))
        server.opened("by_hand").close()
        yield figures(
            f"load of {size}", against=_BY_HAND, subject=loaded, comparator=lambda _: by_hand.load(server, pairs)
        )


def _compared(extent: Extent, name: str, tasks: int, against: str, subject: Work, other: Work) -> Result:
    return compared(
        "postgres",
        f"{name}, {tasks} in flight",
        against=against,
        subject=subject,
        comparator=other,
        operations=max(_IN_FLIGHT, extent.operations(_CALLS)),
        rounds=extent.rounds,
    )


def _inserted(first: int, amount: int) -> Iterator[Pairs]:
    """What keyplan's inserts of items put, made beforehand."""
    engine = RecordingEngine(MemoryEngine())
    with Store(engine) as store:
        for number in range(first, first + amount):
            Inventory(store).items.insert(item_key(number), item(number))
    commits = [call.arguments[0] for call in engine.calls if call.method == "commit"]
    return iter(
        [
            [(put.key, put.value) for put in commit.mutations if isinstance(put, Put)]
            for commit in commits
            if isinstance(commit, Commit)
        ]
    )


class _ByHand:
    """Plain psycopg on the tables of the store `by_hand`."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._idle: LifoQueue[psycopg.Cursor[Any]] = LifoQueue()

    @contextmanager
    def _cursor(self) -> "Generator[psycopg.Cursor[Any], None, None]":
        """A cursor on a connection that nobody else uses meanwhile."""
        try:
            cursor = self._idle.get_nowait()
        except Empty:
            cursor = self._server.local().cursor(binary=True)
        yield cursor
        self._idle.put(cursor)

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""
        with self._cursor() as cursor:
            row = cursor.execute("SELECT value FROM by_hand.entries WHERE key = %s", (key,), prepare=True).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, pairs: Pairs) -> int:
        """Put pairs at the next revision, with the history that a watch needs, and tell."""
        with self._cursor() as cursor, cursor.connection.transaction():
            cursor.execute("SELECT FROM by_hand.state FOR UPDATE", prepare=True)
            row = cursor.execute("SELECT coalesce(max(revision), 0) + 1 FROM by_hand.history", prepare=True).fetchone()
            assert row is not None
            revision: int = row[0]
            keys = [key for key, _ in pairs]
            found = cursor.execute(
                "SELECT * FROM by_hand.entries WHERE key = ANY(%s)", (keys,), prepare=True
            ).fetchall()
            before = {entry[0]: entry[1:] for entry in found}
            rows = [_row(revision, key, value, before.get(key)) for key, value in pairs]
            cursor.executemany(
                "INSERT INTO by_hand.entries VALUES (%s, %s, %s, %s, %s, 0) ON CONFLICT (key) DO UPDATE SET "
                "value = excluded.value, mod_revision = excluded.mod_revision, version = excluded.version",
                [(key, value, create, revision, version) for _, key, value, create, version, *_ in rows],
            )
            cursor.executemany("INSERT INTO by_hand.history VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", rows)
            cursor.execute("SELECT pg_notify('by_hand', '')", prepare=True)
        return revision

    def list(self, size: int) -> None:
        """Read all of the store `bulk` with a server-side cursor."""
        with (
            self._cursor() as idle,
            idle.connection.transaction(),
            idle.connection.cursor("listed", binary=True) as cursor,
        ):
            cursor.itersize = 10_000
            cursor.execute("SELECT * FROM bulk.entries ORDER BY key")
            assert sum(1 for _ in cursor) == size

    def load(self, server: PostgresServer, pairs: Pairs) -> None:
        """Copy all into the emptied store, in one transaction."""
        server.emptied("by_hand")
        with self._cursor() as cursor, cursor.connection.transaction():
            cursor.execute("SELECT FROM by_hand.state FOR UPDATE")
            with cursor.copy("COPY by_hand.entries FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["bytea", "bytea", "int8", "int8", "int8", "int8"])
                for key, value in pairs:
                    copy.write_row((key, value, 1, 1, 1, 0))
            cursor.execute(
                "INSERT INTO by_hand.history SELECT mod_revision, key, value, create_revision, version, lease "
                "FROM by_hand.entries"
            )
            cursor.execute("SELECT pg_notify('by_hand', '')")

    def __enter__(self) -> "_ByHand":
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().connection.close()


def _row(revision: int, key: bytes, value: bytes, before: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """A row of the history: after, and before."""
    if before is None:
        return (revision, key, value, revision, 1, 0, None, None, None, None, None)
    old, create, mod, version, lease = before
    return (revision, key, value, create, version + 1, 0, old, create, mod, version, lease)
