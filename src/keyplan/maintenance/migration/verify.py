"""Whether what was carried over is there: counts and digests of both sides, each read and computed anew, and index entries."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from keyplan.engine import Engine, Entry, KeyRange
from keyplan.jobs import UNPACED, Lookup, Pace, StopCheck, read_batches
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import digest_of, mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.route import stored_entries, table_of, units_of
from keyplan.maintenance.migration.sides import Sides
from keyplan.maintenance.pair_digest import spelled_pair

__all__ = ["Verification", "verify_table"]


class _Fold:
    """Count and digest of pairs in any order: old and new keys need not sort alike."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, key: bytes, value: bytes) -> None:
        self.count += 1
        self._sum += int.from_bytes(hashlib.sha256(spelled_pair(key, value)).digest(), "big")

    @property
    def digest(self) -> str:
        return (self._sum % (1 << 256)).to_bytes(32, "big").hex()


@dataclass(frozen=True, slots=True)
class Verification:
    """A moved table compared: `expected` from the old records, converted anew; `found` from the new ones as they are stored.

    Each is a count and the sum of the pairs' SHA-256. `ahead` counts records that programs of the new layout have changed
    since they were copied, left out on both sides, `vanished` of them copies that are not there any more; `missing` old records
    whose latest state was not carried over; `entries_missing` index entries of the new records that are not there, name another
    record, or hang on another lease.
    """

    table: str
    expected: tuple[int, str]
    found: tuple[int, str]
    ahead: int
    missing: int
    vanished: int = 0
    entries_missing: int = 0

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
                self._expected.add(one.raw_key, one.raw_value)
            for entry in sides.standing:
                self._found.add(entry.key, entry.value)

    def found(self) -> Verification:
        """Return what was found."""
        sums = (self._expected.count, self._expected.digest), (self._found.count, self._found.digest)
        counts = self._ahead, self._missing, self._vanished, self._entries_missing
        return Verification(self._work.name, *sums, *counts)
