"""The databases of a HEPnOS store: five rings, one of each kind of object. Which there are stands in the data itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol

from keyplan.apps.hepnos.deletions import FencedDatabase
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import checked_mode
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_calls import is_server_url
from keyplan.apps.hepnos.shares import keyspace_in, share_of
from keyplan.engine import (
    Capability,
    Commit,
    Delete,
    Engine,
    EngineUrl,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    ReadOnlyEngine,
    Snapshot,
    open_engine,
)
from keyplan.errors import InvalidInputError, StoreMissingError
from keyplan.ring import RingEngine, database_engine, join_ring, remembered, ring_of

__all__ = ["Address", "Databases", "database_counts", "read_counts"]

_DIGITS_MAX: Final = 9
"""Why: Python reads no number of thousands of digits."""
_KINDS: Final = {kind.value: kind for kind in Kind}
_REMOVED_AT_ONCE: Final = 10_000
"""Why: a flush costs as much as some hundred keys; beyond this nothing is won."""


class Opener(Protocol):
    """Opens one database of a store."""

    def __call__(self, kind: Kind, index: int, *, create: bool) -> Engine:
        """Return it, made where it was not there and `create` says so."""
        ...


@dataclass(frozen=True)
class Address:
    """Where a store is: one URL below which its databases lie, that of a server, or the URLs of each kind's databases in order.

    Another process opens the same store by it. `token` is what a server is asked with.
    """

    url: str = ""
    urls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_readonly: bool = False
    token: str | None = field(default=None, repr=False)

    @property
    def is_server(self) -> bool:
        """True when the databases are those of a server."""
        return is_server_url(self.url)

    def opener(self) -> "Opener":
        """Return what opens each of the databases."""
        if not self.is_server:
            return self.engine
        return self.opener_at(RemoteServer.at(self.url, token=self.token))

    def opener_at(self, server: RemoteServer) -> "Opener":
        """Return what opens each of the databases of a server that is reached already."""

        def of_server(kind: Kind, index: int, *, create: bool) -> Engine:  # noqa: ARG001  # Why: as the other opener.
            database = server.database(kind, index)
            return ReadOnlyEngine(database) if self.is_readonly else database

        return of_server

    def engine(self, kind: Kind, index: int, *, create: bool) -> Engine:
        """Open one database. Raises InvalidInputError for a server, whose databases are opened together."""
        if self.is_server:
            raise InvalidInputError(source=self.url, problem="a server's databases are made and grown where it is")
        for name, urls in self.urls:
            if name == kind.value:
                return self._opened(urls[index], kind, index, create=create)
        return self._opened(self.url, kind, index, create=create)

    def _opened(self, url: str, kind: Kind, index: int, *, create: bool) -> Engine:
        name = f"{kind.value}.{index}"
        own_url, keyspace = keyspace_in(url)
        if keyspace is not None:
            # Why one session: all databases are closed together, and each session is a thread.
            is_first = kind is Kind.DATASET and index == 0
            return share_of(own_url, keyspace, name, create=create, readonly=self.is_readonly, has_session=is_first)
        if self.urls:
            return open_engine(url, create=create, readonly=self.is_readonly)
        return database_engine(_without_history(url), name, create=create, readonly=self.is_readonly)

    def queues(self) -> Engine:
        """Open the database of queues, with a history, so that it can be watched. Raises InvalidInputError: it has no URL."""
        if not self.url or self.is_server:
            problem = "a store that is given by the URLs of its databases has no queues"
            raise InvalidInputError(source="queues", problem=problem)
        url, keyspace = keyspace_in(self.url)
        if keyspace is not None:
            is_new = not self.is_readonly
            return share_of(url, keyspace, "queues.0", create=is_new, readonly=self.is_readonly, has_session=False)
        return database_engine(self.url, "queues.0", create=not self.is_readonly, readonly=self.is_readonly)

    def counts(self) -> dict[str, int]:
        """Return how many databases of each kind the URLs name; empty for a store of one URL."""
        return {name: len(urls) for name, urls in self.urls}


def _without_history(url: str) -> str:
    """Why: a key of HEPnOS is its own record; a header and a log would make it four times as large."""
    parsed = EngineUrl.parse(url)
    if parsed.scheme != "lmdb" or "history" in parsed.options:
        return url
    return f"{url}{'&' if '?' in url else '?'}history=off"


def database_counts(given: Mapping[str, int] | None) -> dict[Kind, int]:
    """Return how many databases of each kind are asked for. Raises InvalidInputError for an unknown kind or no number."""
    counts: dict[Kind, int] = {}
    for name, count in () if given is None else given.items():
        if name not in _KINDS:
            raise InvalidInputError(source="databases", problem=f"there is no kind {name!r}", known=sorted(_KINDS))
        if type(count) is not int or count < 1:
            raise InvalidInputError(source="databases", problem=f"a kind has at least one database, not {count!r}")
        counts[_KINDS[name]] = count
    return counts


def read_counts(parts: Iterable[str], *, source: str = "--databases") -> dict[str, int]:
    """Read KIND=NUMBER, as in events=4; empty parts are passed over. Raises InvalidInputError."""
    counts: dict[str, int] = {}
    for part in filter(None, parts):
        kind, _, number = part.partition("=")
        if not number.isdecimal() or len(number) > _DIGITS_MAX:
            raise InvalidInputError(source=source, problem=f"{part!r} is not KIND=NUMBER, as in events=4")
        counts[kind] = int(number)
    return counts


class Databases:
    """Five open rings. Every write goes through here: one key, or many in order, into a database that is known."""

    def __init__(self, rings: Mapping[Kind, RingEngine], address: Address) -> None:
        self.rings = dict(rings)
        self.places = {kind: ring.placement.of_key for kind, ring in rings.items()}
        """For each kind, what finds a key's database. Why beside `place`: a batch asks for each of millions of keys."""
        self.address = address

    @classmethod
    def open(
        cls,
        address: Address,
        counts: Mapping[Kind, int],
        *,
        create: bool,
        around: Callable[[Engine], Engine] = lambda engine: engine,
        opener: Opener | None = None,
    ) -> "Databases":
        """Open the rings; those not in `counts` as they are, or new with one database. `around` puts an engine around each.

        `opener` opens each in place of the address's own.

        Raises RingMismatchError when the data was written with other numbers, StoreMissingError when there is no store and none
        is to be made.
        """
        given = database_counts(address.counts())
        opened = opener or address.opener()

        def opened_around(kind: Kind, index: int, *, create: bool) -> Engine:
            engine = around(opened(kind, index, create=create))
            # Why not of a server: it has them around its own, and refuses everybody.
            return engine if address.is_server or kind is Kind.DATASET else FencedDatabase(engine)

        with ExitStack() as stack:
            rings = {
                kind: _open_ring(
                    stack, address, opened_around, kind, given.get(kind, counts.get(kind, 0)), create=create
                )
                for kind in Kind
            }
            stack.pop_all()
        return cls(rings, address)

    def has(self, kind: Kind) -> bool:
        """Tell whether there are databases of a kind, for whom these are."""
        return kind in self.rings

    def may_change(
        self, kind: Kind, *, read: Iterable[bytes], written: Iterable[bytes], removed: Iterable[KeyRange]
    ) -> bool:
        """Tell whether those whose databases these are may make such a commit, as far as their grants are known."""
        return True

    @property
    def is_writable(self) -> bool:
        """True when they may write anything at all."""
        return True

    @property
    def is_shared(self) -> bool:
        """True when other processes can open the store as well."""
        return all(ring.profile.claims(Capability.SHARED) for ring in self.rings.values())

    def place(self, kind: Kind, raw_key: bytes) -> int:
        """Return the database of a key among those of its kind."""
        return self.places[kind](raw_key)

    def targets(self, kind: Kind, target: int | None) -> range:
        """Return the numbers of all databases of a kind (None, -1), or of one. Raises InvalidInputError: there is none such."""
        count = len(self.rings[kind].databases)
        if target is None or (type(target) is int and target == -1):  # Why -1: the C++ program's word for all of them.
            return range(count)
        if type(target) is not int or not 0 <= target < count:
            problem = f"there are {count} {kind.value.removesuffix('s')} databases, and no {target}"
            raise InvalidInputError(source="target", problem=problem)
        return range(target, target + 1)

    def shares(self, kind: Kind, raw_keys: Iterable[bytes]) -> dict[int, list[bytes]]:
        """Return the keys of each database, in their order. Fast where keys that are placed alike stand together."""
        placement = self.rings[kind].placement
        if placement.databases == 1:
            return {0: list(raw_keys)}
        found: dict[int, list[bytes]] = {}
        for _, alike in groupby(raw_keys, itemgetter(slice(placement.width))):
            own = list(alike)
            found.setdefault(placement.of_key(own[0]), []).extend(own)
        return found

    def snapshot(self, kind: Kind, database: int) -> Snapshot:
        """Return a snapshot of one database; the caller closes it."""
        return self.rings[kind].open_snapshot(database)

    def value(self, kind: Kind, raw_key: bytes) -> bytes | None:
        """Return the value at a key, or None."""
        return self.rings[kind].value(raw_key)

    def put(
        self,
        kind: Kind,
        database: int,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None,
        *,
        mode: str = "overwrite",
    ) -> int:
        """Write sorted keys into one database; return how many are new.

        Modes: "overwrite"; "new": what exists is left; "exist": only what exists is written. Raises InvalidInputError for
        another.
        """
        ring = self.rings[kind]
        if checked_mode(mode) != "exist":
            return ring.put_sorted_in(database, keys, values, overwrite=mode == "overwrite")
        ring.put_existing_in(database, keys, values)
        return 0

    def remove(self, kind: Kind, raw_key: bytes, *, value: bytes | None = None) -> bool:
        """Remove a key, if it is there and, where `value` is given, has it. Return whether this call removed it.

        Raises CommitConflictError when it changes meanwhile.
        """
        ring, database = self.rings[kind], self.place(kind, raw_key)
        with ring.open_snapshot(database) as snapshot:
            entry = snapshot.get(raw_key)
            epoch = snapshot.epoch
        if entry is None or value not in (None, entry.value):
            return False
        guard = KeyUnchanged(raw_key, entry.mod_revision)
        ring.commit_in(database, Commit((guard,), (Delete(raw_key),), epoch))
        return True

    def remove_many(self, kind: Kind, raw_keys: Iterable[bytes]) -> None:
        """Remove keys, whatever they have by now; one that is not there is no error. A commit has many keys of a database."""
        ring = self.rings[kind]
        limit = ring.profile.commit_operations_max
        # Why two less: fences are part of a commit.
        size = _REMOVED_AT_ONCE if limit is None else max(1, min(_REMOVED_AT_ONCE, limit - 2))
        for database, own in self.shares(kind, raw_keys).items():
            for begin in range(0, len(own), size):
                with ring.open_snapshot(database) as snapshot:
                    epoch = snapshot.epoch
                deletes = tuple(map(Delete, own[begin : begin + size]))
                ring.commit_in(database, Commit((), deletes, epoch))

    def replace(self, kind: Kind, raw_key: bytes, value: bytes, by: bytes) -> bool:
        """Write another value over one, if it is there by now. Return whether this call has.

        Raises CommitConflictError when it changes meanwhile.
        """
        ring, database = self.rings[kind], self.place(kind, raw_key)
        with ring.open_snapshot(database) as snapshot:
            entry = snapshot.get(raw_key)
            epoch = snapshot.epoch
        if entry is None or entry.value != value:
            return False
        guard = KeyUnchanged(raw_key, entry.mod_revision)
        ring.commit_in(database, Commit((guard,), (Put(raw_key, by),), epoch))
        return True

    def put_new(self, kind: Kind, raw_key: bytes, value: bytes, *, beside: tuple[bytes, bytes]) -> bool:
        """Write a key that is not there beside one of the same database that has a value. Return False where that has not.

        Raises CommitConflictError when the key is there, or either changes meanwhile.
        """
        ring, database = self.rings[kind], self.place(kind, raw_key)
        with ring.open_snapshot(database) as snapshot:
            entry = snapshot.get(beside[0])
            epoch = snapshot.epoch
        if entry is None or entry.value != beside[1]:
            return False
        guards: tuple[Guard, ...] = (KeyAbsent(raw_key), KeyUnchanged(beside[0], entry.mod_revision))
        ring.commit_in(database, Commit(guards, (Put(raw_key, value),), epoch))
        return True

    def close(self) -> None:
        """Close all databases. Closing twice is harmless."""
        for ring in self.rings.values():
            ring.close()

    def __iter__(self) -> Iterator[tuple[Kind, int]]:
        """Yield each database as its kind and number."""
        for kind, ring in self.rings.items():
            for number in range(len(ring.databases)):
                yield kind, number


def _open_ring(
    stack: ExitStack, address: Address, opener: Opener, kind: Kind, count: int, *, create: bool
) -> RingEngine:
    try:
        first = stack.enter_context(opener(kind, 0, create=create and not address.is_readonly))
    except StoreMissingError as error:
        raise StoreMissingError(url=address.url, problem=f"there is no HEPnOS store here: no {kind.value}") from error
    known = remembered(first)
    size = count or (1 if known is None else known.databases)
    others = [
        stack.enter_context(opener(kind, index, create=create and not address.is_readonly)) for index in range(1, size)
    ]
    engines = [first, *others]
    is_joined = address.is_readonly and not address.is_server
    return join_ring(engines) if is_joined else ring_of(engines, kind.layout, create=create and not address.is_server)
