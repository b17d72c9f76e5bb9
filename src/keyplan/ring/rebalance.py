"""Growth of a ring: databases are added behind the others, and the records that are placed on them by now are moved there.

    marked     every database knows that the ring grows; from here on no handle writes, and none opens
    counted    every database knows how many entries it had
    moved      copied to where they belong by now, then deleted where they were: a crash in between leaves both, and the
               next run does it again; what every database has alike is copied to the new ones before
    verified   every key is where it belongs, and there are as many as there were
    settled    every database knows the ring's new number

Each step can be interrupted anywhere, and is then begun again by the next run. Only keys that are placed elsewhere by now are
moved, and rendezvous hashing places them on new databases alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, Guard, KeyAbsent, KeyRange, KeyUnchanged, Put
from keyplan.errors import CommitConflictError, CorruptionError, RingMismatchError
from keyplan.jobs import Progress, Stop, StopCheck, Teller, kept_command
from keyplan.ring.description import OWN_PREFIX, OWN_RANGE, RING_KEY, SHARED_PREFIX, RingDescription
from keyplan.ring.opening import remembered
from keyplan.ring.placement import Placement, read_placement

__all__ = ["Rebalanced", "rebalance"]

_MOVED_KEYS_MAX: Final = 1_000
_MOVED_BYTES_MAX: Final = 1 << 19
"""Why: a batch fits into every engine's commit, etcd's of 1.5 MiB with its delete included."""
_SCANNED_KEYS: Final = 4_096
_STAYING_KEYS_MAX: Final = 64
"""Why: after so many keys of a group that stays, leaping to the next group costs less than reading the rest of this one."""
_CHANGED_MEANWHILE: Final = "another run has changed the ring meanwhile; run it again"


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """What a run has done. `moved` counts the entries that this run copied, `entries` all that the ring holds."""

    databases: int
    moved: int
    entries: int


def rebalance(
    engines: Sequence[Engine],
    *,
    progress: Callable[[Progress], None] | None = None,
    recount: bool = False,
    stop: Stop | None = None,
    command: Sequence[str] = (),
) -> Rebalanced:
    """Grow the ring that the first of these databases are to all of them; continue when that was begun before.

    The engines stay open, and are the caller's. `progress` is called with the number of entries moved so far. A
    ring that has its size already is looked through, and what lies in the wrong database is moved. `recount` takes the number
    of entries that the ring holds for right, whatever it was found to be when the growth began: for a ring that cannot be
    settled since another program wrote to one of its databases meanwhile. When `stop` is set the growth ends
    between two batches, with StoppedError, and goes on when this is called again. `command` are the words behind `keyplan` that
    go on with it then, the store's included: each database tells them to who looks at its jobs.
    Nobody can write to the ring meanwhile: a handle that is open raises RingMismatchError. Raises RingMismatchError when the
    databases are no ring that can grow to these, or when another run has changed it.
    """
    run = _Rebalance(
        engines, Teller(progress), StopCheck(stop, "the growth of the ring"), kept_command(command), recount=recount
    )
    return run.carry_out()


class _Rebalance:
    def __init__(
        self, engines: Sequence[Engine], told: Teller, stops: StopCheck, command: tuple[str, ...], *, recount: bool
    ) -> None:
        self._engines = engines
        self._size = len(engines)
        self._told = told
        self._stops = stops
        self._command = command
        self._recount = recount
        self._moved = 0
        self._growing: list[RingDescription] = []
        """What each database says while the ring grows, once it was counted; nothing else is true of the count."""
        self._fences: list[Guard] = []

    def carry_out(self) -> Rebalanced:
        found = [remembered(engine) for engine in self._engines]
        first = self._first(found)
        self._stops.check()
        placement = read_placement(first.placed, self._size)
        # Why: where one is settled, all was moved and counted before.
        if not any(self._is_settled(description) for description in found):
            self._mark(found, first)
            expected = self._count()
            self._gather(placement, self._growing)
            self._verify(placement, None if self._recount else expected)
        for index in range(self._size):
            self._settle(index)
        if self._is_any_misplaced(placement):
            # Why also in a ring that is settled: what another program has written there lies where nobody looks for it.
            self._gather(placement, [None] * self._size)
            self._verify(placement, None)
        return Rebalanced(self._size, self._moved, sum(map(_entries_in, self._engines)))

    def _first(self, found: Sequence[RingDescription | None]) -> RingDescription:
        """Return the description of database 0, when all of them are one ring that may grow to this size."""
        first = found[0]
        if first is None:
            raise _refused(0, "it is no part of a ring")
        before = first.databases if first.growing_to is not None or first.databases < self._size else None
        for index, description in enumerate(found):
            if description is None:
                if index < first.databases and before is not None:
                    raise _refused(index, "it is no part of the ring that is to grow")
                if _entries_in(self._engines[index]):
                    raise _refused(index, "it holds keys; a database that is added must be empty")
                continue
            if description.ring != first.ring or description.index != index:
                raise _refused(index, "it belongs to another ring, or to another place in it")
            if (description.growing_to or description.databases) > self._size or (
                description.growing_to not in (None, self._size)
            ):
                raise _refused(index, f"the ring has, or grows to, another number of databases than {self._size}")
        return first

    def _is_settled(self, description: RingDescription | None) -> bool:
        return description is not None and description.databases == self._size and description.growing_to is None

    # ---- the steps -----------------------------------------------------------------------------------------------------

    def _mark(self, found: Sequence[RingDescription | None], first: RingDescription) -> None:
        # Why the new ones first: until an old one is marked, the ring can still be opened and written to as it was.
        for index in reversed(range(self._size)):
            description = found[index]
            if description is None or description.growing_to is None:
                marked = msgspec.structs.replace(
                    first, index=index, growing_to=self._size, entries=None, command=self._command or first.command
                )
                self._describe(index, description, marked)

    def _count(self) -> int:
        """Let each database remember how many entries it had when it was marked; return the sum.

        Raises RingMismatchError when another run has settled one: what it holds then is no longer what it had.
        """
        total = 0
        for index, engine in enumerate(self._engines):
            description = self._described(index)
            if description.growing_to != self._size:
                raise _refused(index, _CHANGED_MEANWHILE)
            if description.entries is None:
                counted = msgspec.structs.replace(description, entries=_entries_in(engine))
                self._describe(index, description, counted)
                description = counted
            self._growing.append(description)
            total += description.entries or 0
        return total

    def _gather(self, placement: Placement, expected: Sequence[RingDescription | None]) -> None:
        """Move every key to where it belongs, under the fences of the ring as it is expected; None: as it is now."""
        self._fences = [self._fence(index, description) for index, description in enumerate(expected)]
        self._share()
        for index in range(self._size):
            self._move_from(index, placement)

    def _share(self) -> None:
        """Copy what every database has alike to those that lack it. Why first: it says something of records that are moved."""
        shared: dict[bytes, bytes] = {}
        for engine in self._engines:
            with engine.snapshot() as snapshot:
                shared.update(snapshot.pairs(KeyRange.of_prefix(SHARED_PREFIX)))
        parts = [part for part in _by_bytes(sorted(shared.items())) if part]
        for index, engine in enumerate(self._engines):
            for part in self._stops.each(parts):
                keys, values = [key for key, _ in part], [value for _, value in part]
                engine.put_sorted(keys, values, guards=(self._fences[index],), overwrite=False)

    def _is_any_misplaced(self, placement: Placement) -> bool:
        return any(self._misplaced(index, placement) is not None for index in range(self._size))

    def _move_from(self, index: int, placement: Placement) -> None:
        source = self._engines[index]
        start = b""
        while True:
            self._stops.check()
            leaving: dict[int, list[bytes]] = {}
            with source.snapshot() as snapshot:
                keys = list(snapshot.keys(KeyRange(start, None), limit=_SCANNED_KEYS))
                if not keys:
                    return
                start = self._sort_out(keys, index, placement, leaving)
                batches = [
                    (target, [(key, snapshot.value(key) or b"") for key in batch])
                    for target, own in leaving.items()
                    for batch in _batches(own)
                ]
            for target, pairs in batches:
                for part in self._stops.each(_by_bytes(pairs)):
                    self._move(index, target, part)

    def _sort_out(self, keys: list[bytes], index: int, placement: Placement, leaving: dict[int, list[bytes]]) -> bytes:
        """Put the keys that are placed elsewhere into `leaving`, by database; return where reading goes on."""
        staying = 0
        for key in keys:
            target = index if key.startswith(OWN_PREFIX) else placement.of_key(key)
            if target != index:
                leaving.setdefault(target, []).append(key)
                staying = 0
                continue
            staying += 1
            if staying > _STAYING_KEYS_MAX:
                group = placement.group_of(key)
                if group is not None and group.end is not None and keys[-1] in group:
                    return group.end
        return keys[-1] + b"\x00"

    def _move(self, index: int, target: int, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Copy, and then delete. Each is under the fence of its database: who settled the ring meanwhile stops this run.

        Nothing is overwritten: in a ring that is in use, what stands where it belongs is what its users see.
        """
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        self._engines[target].put_sorted(keys, values, guards=(self._fences[target],), overwrite=False)
        source = self._engines[index]
        at_once = min(len(keys), (source.profile.commit_operations_max or len(keys) + 1) - 1)
        for begin in range(0, len(keys), at_once):
            deletes = tuple(map(Delete, keys[begin : begin + at_once]))
            # Why no epoch: what is moved is read in many snapshots, and only the ring's description must stand.
            source.commit(Commit((self._fences[index],), deletes, ""))
        self._moved += len(keys)
        self._told("moving", self._moved)

    def _verify(self, placement: Placement, expected: int | None) -> None:
        for index in range(self._size):
            key = self._misplaced(index, placement)
            if key is not None:
                self._check_alone()
                raise CorruptionError(raw_key=key.hex(), database=index, problem="the key is not where it belongs")
        actual = sum(map(_entries_in, self._engines))
        if expected is not None and actual != expected:
            self._check_alone()
            problem = (
                f"the ring had {expected} entries and now has {actual}: another program wrote to a database of it; "
                "look at what it wrote, then rebalance with recount"
            )
            raise CorruptionError(raw_key=RING_KEY.hex(), problem=problem)

    def _check_alone(self) -> None:
        """Raise RingMismatchError when another run has settled the ring: its users may have written since then."""
        for index, description in enumerate(self._growing):
            self._fence(index, description)

    def _settle(self, index: int) -> None:
        description = self._described(index)
        if not self._is_settled(description):
            settled = msgspec.structs.replace(
                description, databases=self._size, growing_to=None, entries=None, command=()
            )
            self._describe(index, description, settled)

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _misplaced(self, index: int, placement: Placement) -> bytes | None:
        """Return a key that does not belong into its database, or None."""
        with self._engines[index].snapshot() as snapshot:
            for key in self._stops.each(snapshot.keys(ALL_KEYS)):
                if not key.startswith(OWN_PREFIX) and placement.of_key(key) != index:
                    return key
        return None

    def _describe(self, index: int, before: RingDescription | None, after: RingDescription) -> None:
        engine = self._engines[index]
        guard: Guard = KeyAbsent(RING_KEY) if before is None else self._fence(index, before)
        try:
            engine.commit(Commit((guard,), (Put(RING_KEY, after.encoded()),), ""))
        except CommitConflictError as error:
            raise _refused(index, _CHANGED_MEANWHILE) from error

    def _fence(self, index: int, expected: RingDescription | None = None) -> Guard:
        with self._engines[index].snapshot() as snapshot:
            entry = snapshot.get(RING_KEY)
        if entry is None or (expected is not None and entry.value != expected.encoded()):
            raise _refused(index, _CHANGED_MEANWHILE)
        return KeyUnchanged(RING_KEY, entry.mod_revision)

    def _described(self, index: int) -> RingDescription:
        description = remembered(self._engines[index])
        if description is None:
            raise _refused(index, "its description has gone")
        return description


def _batches(keys: list[bytes]) -> list[list[bytes]]:
    return [keys[begin : begin + _MOVED_KEYS_MAX] for begin in range(0, len(keys), _MOVED_KEYS_MAX)]


def _by_bytes(pairs: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """Cut a batch where its bytes would be too many for one commit of any engine."""
    parts: list[list[tuple[bytes, bytes]]] = [[]]
    size = 0
    for pair in pairs:
        if parts[-1] and size + len(pair[0]) + len(pair[1]) > _MOVED_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(pair)
        size += len(pair[0]) + len(pair[1])
    return parts


def _entries_in(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.count(ALL_KEYS) - snapshot.count(OWN_RANGE)


def _refused(index: int, problem: str) -> RingMismatchError:
    return RingMismatchError(url="ring:", database=index, problem=problem)
