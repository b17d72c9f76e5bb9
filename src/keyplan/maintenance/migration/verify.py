"""Whether what was carried over is there: counts and digests of both sides, each read and computed anew, and index entries.

Beside records these are counters, leases, and keys that values hold.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from keyplan.engine import Engine, Entry, KeyRange
from keyplan.jobs import UNPACED, Lookup, Pace, StopCheck, read_batches
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import digest_of, mark_key
from keyplan.maintenance.migration.moved_keys import moved_keys
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.route import stored_entries, table_of, units_of
from keyplan.maintenance.migration.sides import Sides
from keyplan.maintenance.pair_digest import spelled_pair

__all__ = ["Verification", "verify_counters", "verify_held_keys", "verify_table"]


class _Fold:
    """Count and digest of pairs in any order: old and new keys need not sort alike."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, key: bytes, value: bytes, lease: int = 0) -> None:
        self.count += 1
        pair = spelled_pair(key, lease.to_bytes(8, "big", signed=True) + value)
        self._sum += int.from_bytes(hashlib.sha256(pair).digest(), "big")

    @property
    def total(self) -> tuple[int, str]:
        return self.count, self.digest

    @property
    def digest(self) -> str:
        return (self._sum % (1 << 256)).to_bytes(32, "big").hex()


@dataclass(frozen=True, slots=True)
class Verification:
    """What was carried over of an item, compared: `expected` from the old side, `found` as it is stored on the new one.

    Each is a count of `what` there is, and the sum of the SHA-256 of keys, values and leases. Of a moved table these are
    records, the old ones converted anew. Of a moved counter it is its number, ahead when some were drawn since, missing when
    it would go back. Of a table whose values hold keys (`holds_keys`) it is values that name a record at the place that it has
    left: none is expected, and `advice` says which and what to do.

    `ahead` counts records that programs of the new layout have changed since they were copied, left out on both sides,
    `vanished` of them copies that are not there any more; `missing` old records whose latest state was not carried over;
    `entries_missing` index entries of the new records that are not there, name another record, or hang on another lease.
    """

    table: str
    expected: tuple[int, str]
    found: tuple[int, str]
    ahead: int
    missing: int
    vanished: int = 0
    entries_missing: int = 0
    what: str = "records"
    advice: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether every old record has its copy, or a successor of it, with its index entries."""
        return self.expected == self.found and not self.missing and not self.entries_missing


def verify_table(
    engine: Engine, migration: bytes, work: TableWork, stops: StopCheck, pace: Pace = UNPACED
) -> Verification:
    """Compare the old records of a route with the new ones, batch by batch, each batch in one snapshot.

    Raises StoppedError.
    """
    verifier = _Verifier(migration, work)
    rest = partial(pace.spend, 0, stops)
    for place, source in enumerate(work.route.sources):
        for batch, snapshot in stops.each(read_batches(engine, KeyRange(*source.keys.range(())), rest=rest)):
            read = Lookup(snapshot, is_near=engine.profile.has_local_reads)
            read.add(batch)
            units = list(units_of(work.route, place, batch, read))
            read.fetch(mark_key(migration, unit) for unit in units)
            for looked in read.each(units, partial(verifier.look, read=read)):
                verifier.add(looked)
    return verifier.found()


class _Looked(NamedTuple):
    """A unit, what its old records become, and how many index entries the new ones lack."""

    sides: Sides
    made: Sequence[Converted]
    entries_missing: int


class _Verifier:
    def __init__(self, migration: bytes, work: TableWork) -> None:
        self._migration, self._work, self._route = migration, work, work.route
        self._expected, self._found = _Fold(), _Fold()
        self._ahead = self._missing = self._vanished = self._entries_missing = 0

    def look(self, unit: bytes, read: Lookup) -> _Looked | None:
        """Look at one unit; None when it cannot be converted."""
        try:
            sides = Sides.of(self._migration, self._route, unit, read)
            if sides.stays:
                return _Looked(sides, (), 0)
            made = sides.made
        except UNREADABLE:
            return None
        tables = self._route.targets
        entries = [
            Entry(raw_key, one.raw_value, 0, 0, 0, entry.lease)
            for entry in sides.standing
            for raw_key, one in stored_entries(table_of(tables, entry.key), entry).items()
        ]
        read.fetch(entry.key for entry in entries)
        missing = sum(digest_of(read.get(entry.key)) != digest_of(entry) for entry in entries)
        return _Looked(sides, made, missing)

    def add(self, looked: _Looked | None) -> None:
        """Count one unit."""
        if looked is None:
            self._missing += 1
            return
        sides, made, entries_missing = looked
        if sides.stays:
            return  # Why: it kept its key, and was not copied.
        self._entries_missing += entries_missing
        if sides.mark is None or sides.has_old_changed:
            self._missing += 1
        elif sides.has_new_changed:
            self._ahead += 1
            self._vanished += len(sides.standing) < len(sides.copies)
        else:
            for one in made:
                self._expected.add(one.raw_key, one.raw_value, sides.lease)
            for entry in sides.standing:
                self._found.add(entry.key, entry.value, entry.lease)

    def found(self) -> Verification:
        """Return what was found."""
        counts = self._ahead, self._missing, self._vanished, self._entries_missing
        return Verification(self._work.name, self._expected.total, self._found.total, *counts)


def verify_counters(engine: Engine, plan: MigrationPlan) -> list[Verification]:
    """Compare the counters that stand elsewhere in the new layout: none goes back."""
    verified = []
    for old_name, new_name in plan.counters_to_move:
        old, new = plan.old.counters[old_name], plan.new.counters[new_name]
        with engine.snapshot() as snapshot:
            before, after = snapshot.get_many([old.raw_key, new.raw_key])
        expected, found = _Fold(), _Fold()
        number = None if before is None else old.decode(before.value)
        now = None if after is None else new.decode(after.value)
        is_ahead = number is not None and now is not None and now > number
        if number is not None and not is_ahead:
            expected.add(new.raw_key, new.encode(number))
            if now is not None:
                found.add(new.raw_key, new.encode(now))
        is_missing = number is not None and (now is None or now < number)
        sums = expected.total, found.total
        verified.append(Verification(new_name, *sums, int(is_ahead), int(is_missing), what="numbers"))
    return verified


def verify_held_keys(engine: Engine, plan: MigrationPlan, stops: StopCheck) -> list[Verification]:
    """Look for values of the new layout that name a record at the place that it has left, but for those that are consented to.

    Raises StoppedError.
    """
    accepted = {name.removeprefix("keys:") for name in plan.accepts if name.startswith("keys:")}
    places = {table.keys.range(()) for name, table in plan.old.tables.items() if name in accepted}
    decided = {name for name, table in plan.new.tables.items() if name in accepted or table.keys.range(()) in places}
    for work in plan.tables:
        if any(source.name in accepted for source in work.route.sources):
            decided |= {target.name for target in work.route.targets}
    return [
        Verification(
            one.table,
            (0, ""),
            (one.records, ""),
            0,
            0,
            what="values with keys of records that moved",
            advice=f"{', '.join(one.examples)}: write the new keys there, or --accept keys:{one.table}",
        )
        for one in moved_keys(engine, plan.new, plan.tables, decided, lambda _: stops.check())
    ]
