"""Whether what was carried over is there: counts and digests of both sides, each read and computed anew."""

import hashlib
from dataclasses import dataclass

from keyplan.engine import Engine
from keyplan.jobs import Lookup, StopCheck, read_batches
from keyplan.maintenance.migration.marks import Mark, decoded, digest_of, mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.transform import UNREADABLE
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
    whose latest state was not carried over.
    """

    table: str
    expected: tuple[int, str]
    found: tuple[int, str]
    ahead: int
    missing: int
    vanished: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether every old record has its copy, or a successor of it."""
        return self.expected == self.found and not self.missing


def verify_table(engine: Engine, migration: bytes, work: TableWork, stops: StopCheck) -> Verification:
    """Compare the old records of a moved table with the new ones, batch by batch, each batch in one snapshot.

    Raises StoppedError.
    """
    expected, found = _Fold(), _Fold()
    ahead = missing = vanished = 0
    converter = work.converter
    for batch, snapshot in stops.each(read_batches(engine, work.old_range)):
        read = Lookup(snapshot)
        records = [entry for entry in batch if converter.old.keys.decode(entry.key) is not None]
        read.fetch(mark_key(migration, entry.key) for entry in records)
        for entry in records:
            try:
                made = converter.converted(entry)
            except UNREADABLE:
                missing += 1
                continue
            if made.raw_key == entry.key:
                continue  # Why: it kept its key, and was not copied.
            place = read.get(mark_key(migration, entry.key))
            mark: Mark | None = None if place is None else decoded(place)
            new = read.get(made.raw_key)
            if mark is None or mark.old != digest_of(entry):
                missing += 1
            elif digest_of(new) != mark.new:
                ahead += 1
                vanished += new is None
            else:
                assert new is not None
                expected.add(made.raw_key, made.raw_value)
                found.add(new.key, new.value)
    sums = (expected.count, expected.digest), (found.count, found.digest)
    return Verification(work.name, *sums, ahead, missing, vanished)
