"""An engine over several engines: each key is kept in the database that the placement says, and lists are merged in order.

What is atomic is one database. A commit that concerns two is refused before anything is written. Every write carries a guard
on the ring's description in its database, so that a handle from before a rebalance writes nothing after it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from typing import Final

from keyplan.engine import (
    NO_LEASE,
    Capability,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    Fences,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Lease,
    Lineage,
    Mutation,
    Profile,
    Put,
    RangeEmpty,
    Snapshot,
    Watch,
    admit_commit,
    failures_of,
    parts_of,
    put_absent,
    put_existing,
)
from keyplan.errors import (
    CommitConflictError,
    EngineUnavailableError,
    InvalidInputError,
    RingMismatchError,
    SplitCommitError,
    UnsupportedByEngineError,
)
from keyplan.ring.description import OWN_PREFIX, OWN_RANGE, RING_KEY, ring_id
from keyplan.ring.placement import Placement

__all__ = ["RingEngine"]

_LOAD_ENTRIES: Final = 10_000
"""Why: a load is divided among the databases in batches of this size, which is also an engine's own."""

_LOAD_BYTES: Final = 16 << 20
"""Why: a commit of a load is held in memory, and others wait while it is written."""

_EPOCHS_BETWEEN: Final = "|"
"""What no database's epoch has in it."""

_CLAIMED: Final = frozenset({Capability.DURABLE, Capability.SHARED})
"""Why no others: revisions, and with them watches and leases, are those of one database; they have no order between two."""


class RingEngine(Engine):
    """The databases of a ring as one engine. `descriptions` are the bytes that each has at RING_KEY.

    Reads of one snapshot see, of each database, the state at the moment that the snapshot was taken. The engine owns the
    databases: closing one closes the others.
    """

    def __init__(self, databases: Sequence[Engine], placement: Placement, descriptions: Sequence[bytes]) -> None:
        assert len(databases) == placement.databases == len(descriptions)
        self.databases: tuple[Engine, ...] = tuple(databases)
        self.placement: Placement = placement
        self._descriptions = tuple(descriptions)
        self._fences = tuple(_fence(engine, raw) for engine, raw in zip(databases, descriptions, strict=True))
        self._read_fences: tuple[Fences, ...] = tuple(((RING_KEY, raw),) for raw in descriptions)
        self._profile = _joined([engine.profile for engine in databases])
        self._is_closed = False

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        """Return the ring, and an epoch that changes with that of any of its databases."""
        self._check_open()
        lineages = repr([tuple(engine.lineage()) for engine in self.databases])
        return Lineage(ring_id(self._descriptions[0]), hashlib.blake2b(lineages.encode(), digest_size=8).hexdigest())

    def database_of(self, raw_key: bytes) -> int:
        """Return the number of the database that keeps a key."""
        return self.placement.of_key(raw_key)

    def seen_through(self, view: Callable[[Engine], Engine]) -> "RingEngine":
        """Return the same ring whose databases are reached through a view of each, which has to show the description."""
        return RingEngine([view(engine) for engine in self.databases], self.placement, self._descriptions)

    def fence(self, database: int) -> Guard:
        """Return the guard that every write to a database carries: that the ring is as it was when it was opened."""
        return self._fences[database]

    def open_snapshot(self, database: int) -> Snapshot:
        """Return a snapshot of one database, for a caller that knows where its keys are.

        Raises RingMismatchError when the ring has changed since it was opened.
        """
        snapshot = self.databases[database].snapshot()
        if snapshot.value(RING_KEY) != self._descriptions[database]:
            snapshot.close()
            raise _changed(database)
        return snapshot

    def value(self, key: bytes) -> bytes | None:
        return self.value_in(self.placement.of_key(key), key)

    def value_in(self, database: int, key: bytes) -> bytes | None:
        """Return the value at a key of one database. Raises RingMismatchError as `open_snapshot` does."""
        is_unchanged, value = self.databases[database].fenced_value(key, self._read_fences[database])
        if not is_unchanged:
            raise _changed(database)
        return value

    def snapshot(self) -> Snapshot:
        self._check_open()
        with ExitStack() as stack:
            parts = [stack.enter_context(self.open_snapshot(number)) for number in range(len(self.databases))]
            stack.pop_all()
        return _RingSnapshot(parts, self.placement, self._profile.name)

    def commit(self, commit: Commit) -> int:
        """Apply a commit whose guards and mutations all concern one database. Returns 0: a ring has no revisions.

        Raises SplitCommitError, before anything is written, when they concern two.
        """
        self._check_open()
        admit_commit(self._profile, commit)
        places: dict[int, bytes] = {}
        for guard in commit.guards:
            self._note(places, guard)
        for mutation in commit.mutations:
            self._note(places, mutation)
        if len(places) > 1:
            raise SplitCommitError(databases=sorted(places), raw_keys=[places[at].hex() for at in sorted(places)])
        if not places:
            return 0
        (database,) = places
        mutations = tuple(part for mutation in commit.mutations for part in _beside_own(mutation))
        guards = tuple(part for guard in commit.guards for part in _without_own(guard))
        epoch = commit.epoch.split(_EPOCHS_BETWEEN)[database] if commit.epoch else ""
        self.commit_in(database, Commit(guards, mutations, epoch))
        return 0

    def commit_in(self, database: int, commit: Commit) -> None:
        """Apply a commit that is known to concern one database, and whose epoch is that database's own."""
        fence = self._fences[database]
        with _telling(database, fence):
            whole = Commit((*commit.guards, fence), commit.mutations, commit.epoch)
            self.databases[database].commit(whole)

    def _note(self, places: dict[int, bytes], part: Guard | Mutation) -> None:
        """Note the databases that a guard or a mutation concerns, with a key of each."""
        if isinstance(part, KeyAbsent | KeyUnchanged | Put | Delete):
            places.setdefault(self.placement.of_key(part.key), part.key)
            return
        only = self.placement.of_range(part.range)
        for database in range(len(self.databases)) if only is None else (only,):
            places.setdefault(database, part.range.start)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        """Write keys in ascending order: in each database what belongs there, at least one commit for each.

        Raises SplitCommitError, before anything is written, when there are guards, and keys in another database than theirs.
        """
        self._check_open()
        shares: defaultdict[int, tuple[list[bytes], list[bytes]]] = defaultdict(lambda: ([], []))
        if values is not None and len(values) != len(keys):
            raise InvalidInputError(source="put_sorted", problem=f"{len(keys)} keys and {len(values)} values")
        for number, key in enumerate(keys):
            own_keys, own_values = shares[self.placement.of_key(key)]
            own_keys.append(key)
            if values is not None:
                own_values.append(values[number])
        places: dict[int, bytes] = {database: share[0][0] for database, share in shares.items()}
        if guards:
            for guard in guards:
                self._note(places, guard)
            if len(places) > 1:
                raise SplitCommitError(databases=sorted(places), raw_keys=[places[at].hex() for at in sorted(places)])
        return sum(
            self.put_sorted_in(database, own_keys, None if values is None else own_values, guards, overwrite=overwrite)
            for database, (own_keys, own_values) in sorted(shares.items())
        )

    def put_sorted_in(
        self,
        database: int,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        guards: Sequence[Guard] = (),
        *,
        overwrite: bool = True,
    ) -> int:
        """Write keys that are known to belong to one database; see `Engine.put_sorted`."""
        fence = self._fences[database]
        with _telling(database, fence):
            return self.databases[database].put_sorted(keys, values, guards=(*guards, fence), overwrite=overwrite)

    def put_existing_in(self, database: int, keys: Sequence[bytes], values: Sequence[bytes] | None = None) -> int:
        """Write those keys of one database that exist there; see `put_existing`."""
        fence = self._fences[database]
        with _telling(database, fence):
            return put_existing(self.databases[database], keys, values, guards=(fence,))

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._check_open()
        loaded = 0
        previous = b""
        pairs = iter(entries)
        while batch := list(islice(pairs, _LOAD_ENTRIES)):
            shares: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
            for pair in batch:
                if pair[0] <= previous:
                    raise InvalidInputError(source="load", problem="keys must ascend", raw_key=pair[0].hex())
                previous = pair[0]
                shares[self.placement.of_key(pair[0])].append(pair)
            for database, share in sorted(shares.items()):
                loaded += self._load_into(database, share)
        return loaded

    def _load_into(self, database: int, share: list[tuple[bytes, bytes]]) -> int:
        """Load into one database, under its fence.

        Why not by its own `load`: that takes no guards, and a rebalance that came between a look at the ring and the load would
        not know of the keys.
        """
        engine, fence = self.databases[database], self._fences[database]
        with self.open_snapshot(database) as seen:  # Why: a ring that has changed is told before anything is sent.
            epoch = seen.epoch
        with _telling(database, fence):
            parts = parts_of(
                share,
                pairs_max=self._profile.commit_operations_max or len(share),
                bytes_max=self._profile.commit_bytes_max or _LOAD_BYTES,
            )
            for part in parts:
                put_absent(engine.commit, part, guards=(fence,), epoch=epoch)
        return len(share)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._check_open()
        raise self._unsupported(Capability.WATCH)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self._check_open()
        raise self._unsupported(Capability.LEASES)

    def compact(self, revision: int) -> None:
        self._check_open()
        raise self._unsupported(Capability.REVISIONS)

    def close(self) -> None:
        self._is_closed = True
        for engine in self.databases:
            engine.close()

    def _unsupported(self, capability: Capability) -> UnsupportedByEngineError:
        return UnsupportedByEngineError(engine=self._profile.name, capability=capability.value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineUnavailableError(engine=self._profile.name, problem="the engine was closed")


# ---- reading ------------------------------------------------------------------------------------------------------------


class _RingSnapshot(Snapshot):
    """A snapshot of each database. Entries lose their revisions, which say nothing about those of another database."""

    def __init__(self, parts: Sequence[Snapshot], placement: Placement, engine_name: str) -> None:
        self._parts = tuple(parts)
        self._placement = placement
        self._engine_name = engine_name
        self._is_closed = False

    @property
    def revision(self) -> int:
        return 0

    @property
    def epoch(self) -> str:
        epochs = [part.epoch for part in self._parts]
        return _EPOCHS_BETWEEN.join(epochs) if any(epochs) else ""

    def get(self, key: bytes) -> Entry | None:
        entry = self._part_of(key).get(key)
        return None if entry is None else _without_history(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._check_open()
        shares: defaultdict[int, list[int]] = defaultdict(list)
        for at, key in enumerate(keys):
            shares[self._placement.of_key(key)].append(at)
        found: list[Entry | None] = [None] * len(keys)
        for database, share in shares.items():
            for at, entry in zip(share, self._parts[database].get_many([keys[at] for at in share]), strict=True):
                found[at] = None if entry is None else _without_history(entry)
        return found

    def value(self, key: bytes) -> bytes | None:
        return self._part_of(key).value(key)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        found = merge(
            *(
                part.scan(key_range, limit=_with_room(limit, key_range), reverse=reverse, keys_only=keys_only)
                for part in self._parts_of(key_range)
            ),
            reverse=reverse,
        )
        if _has_own(key_range):
            found = (entry for entry in found if not entry.key.startswith(OWN_PREFIX))
        return map(_bare if keys_only else _without_history, islice(found, limit))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        room = _with_room(limit, key_range)
        parts = [part.keys(key_range, limit=room, reverse=reverse) for part in self._parts_of(key_range)]
        found: Iterator[bytes] = parts[0] if len(parts) == 1 else merge(*parts, reverse=reverse)
        if _has_own(key_range):
            found = (key for key in found if not key.startswith(OWN_PREFIX))
        return islice(found, limit)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        room = _with_room(limit, key_range)
        parts = [part.pairs(key_range, limit=room, reverse=reverse) for part in self._parts_of(key_range)]
        found: Iterator[tuple[bytes, bytes]] = parts[0] if len(parts) == 1 else merge(*parts, reverse=reverse)
        if _has_own(key_range):
            found = (pair for pair in found if not pair[0].startswith(OWN_PREFIX))
        return islice(found, limit)

    def count(self, key_range: KeyRange) -> int:
        self._check_open()
        parts, ranges = self._parts_of(key_range), [key_range]
        if _has_own(key_range):
            ranges = list(_ranges_beside(key_range))
        return sum(part.count(each) for part in parts for each in ranges)

    def close(self) -> None:
        self._is_closed = True
        for part in self._parts:
            part.close()

    def _part_of(self, key: bytes) -> Snapshot:
        self._check_open()
        return self._parts[self._placement.of_key(key)]

    def _parts_of(self, key_range: KeyRange) -> tuple[Snapshot, ...]:
        self._check_open()
        only = self._placement.of_range(key_range)
        return self._parts if only is None else (self._parts[only],)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineUnavailableError(engine=self._engine_name, problem="the snapshot was closed")


def _with_room(limit: int | None, key_range: KeyRange) -> int | None:
    """The limit for one database: any number of the ring's own entries may be among what it finds, and is taken out after."""
    return None if _has_own(key_range) else limit


def _has_own(key_range: KeyRange) -> bool:
    """Tell whether entries of the ring's own may be in a range."""
    end = OWN_RANGE.end
    assert end is not None
    return key_range.start < end and (key_range.end is None or key_range.end > OWN_PREFIX)


def _without_history(entry: Entry) -> Entry:
    return tuple.__new__(Entry, (entry[0], entry[1], 0, entry[3], 0, NO_LEASE))


def _bare(entry: Entry) -> Entry:
    return tuple.__new__(Entry, (entry[0], b"", 0, 0, 0, NO_LEASE))


# ---- writing ------------------------------------------------------------------------------------------------------------


def _fence(engine: Engine, description: bytes) -> KeyUnchanged:
    with engine.snapshot() as snapshot:
        entry = snapshot.get(RING_KEY)
    if entry is None or entry.value != description:
        raise RingMismatchError(url="ring:", problem="the ring was changed while it was opened; open it again")
    return KeyUnchanged(RING_KEY, entry.mod_revision)


def _changed(database: int) -> RingMismatchError:
    return RingMismatchError(
        url="ring:", database=database, problem="the ring was changed since it was opened; open it again"
    )


class _telling:  # noqa: N801  # Why: it reads as a statement, and is made for every commit.
    """Turn a conflict on the fence into the error that says what happened to the ring, and take the fence out of others."""

    __slots__ = ("_database", "_fence")

    def __init__(self, database: int, fence: Guard) -> None:
        self._database = database
        self._fence = fence

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CommitConflictError) and any(each.guard == self._fence for each in failures_of(error)):
            raise _changed(self._database) from error


def _beside_own(mutation: Mutation) -> Iterator[Mutation]:
    """Leave the ring's own entries out of a range that is deleted."""
    if not isinstance(mutation, DeleteRange) or not _has_own(mutation.range):
        yield mutation
        return
    for key_range in _ranges_beside(mutation.range):
        yield DeleteRange(key_range)


def _without_own(guard: Guard) -> Iterator[Guard]:
    """Leave the ring's own entries out of a range that must be empty."""
    if not isinstance(guard, RangeEmpty) or not _has_own(guard.range):
        yield guard
        return
    for key_range in _ranges_beside(guard.range):
        yield RangeEmpty(key_range)


def _ranges_beside(key_range: KeyRange) -> Iterator[KeyRange]:
    end = OWN_RANGE.end
    assert end is not None
    for part in (KeyRange(key_range.start, OWN_PREFIX), KeyRange(max(key_range.start, end), key_range.end)):
        if not part.is_empty:
            yield part


def _joined(profiles: Sequence[Profile]) -> Profile:
    """What all databases can do, and the least of their limits; one operation of a commit is the fence's."""

    def least(limits: Iterable[int | None]) -> int | None:
        return min((limit for limit in limits if limit is not None), default=None)

    operations = least(profile.commit_operations_max for profile in profiles)
    size = least(profile.commit_bytes_max for profile in profiles)
    return Profile(
        name="ring",
        capabilities=frozenset.intersection(_CLAIMED, *(profile.capabilities for profile in profiles)),
        key_bytes_max=least(profile.key_bytes_max for profile in profiles),
        value_bytes_max=least(profile.value_bytes_max for profile in profiles),
        commit_operations_max=None if operations is None else operations - 1,
        commit_bytes_max=None if size is None else size - len(RING_KEY),
        empty_key=all(profile.empty_key for profile in profiles),
    )
