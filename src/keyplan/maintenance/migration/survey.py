"""Every record that is to be converted, converted once: how many there are, and which cannot be."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from keyplan.engine import Engine, KeyRange
from keyplan.errors import CorruptionError, EngineLimitError, KeyplanError, RecordError
from keyplan.jobs import Lookup, read_batches
from keyplan.layout import BoundIndex, shown_key
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.route import table_of, units_of
from keyplan.maintenance.migration.sides import Sides

__all__ = ["Survey", "survey_index", "survey_table"]

_FAILURES_SHOWN: Final = 5

_KEYS_COMPARED: Final = 1 << 20
"""Why: so many keys' digests are held in memory at once, some 100 MB; a larger table is gone through several times."""


@dataclass
class Survey:
    """How many records there are to convert, how many cannot be, and why the first of these.

    `dropped`: how many a function makes nothing of; `examples` are the keys of the first.
    """

    records: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    dropped: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, raw_key: bytes, error: KeyplanError) -> None:
        """Count a record that cannot be carried over."""
        self.fail(f"{shown_key(raw_key)}: {error.summary}: {error.facts.get('problem', '')}")

    def fail(self, failure: str) -> None:
        """Count a record that cannot be carried over, in words."""
        self.failed += 1
        if len(self.failures) < _FAILURES_SHOWN:
            self.failures.append(failure)

    def drop(self, raw_key: bytes) -> None:
        """Count a record of which nothing is made."""
        self.dropped += 1
        if len(self.examples) < _FAILURES_SHOWN:
            self.examples.append(shown_key(raw_key))

    def __str__(self) -> str:
        more = f", and {self.failed - len(self.failures)} more" if self.failed > len(self.failures) else ""
        return "; ".join(self.failures) + more


def survey_table(
    engine: Engine,
    migration: bytes,
    work: TableWork,
    progress: Callable[[int], None] = lambda _: None,
    *,
    is_converted: bool = False,
) -> Survey:
    """Convert every record of a route, batch by batch, as the engine would take it.

    Records that the migration has converted where they stand are done, and count no more; with `is_converted` all of them but
    those that were left. A function's new keys are compared with one another and with what stands there. `progress` is called
    with the number of keys of each batch.
    """
    surveyor = _Surveyor(engine, migration, work, is_converted=is_converted)
    surveyor.look_through(progress)
    return surveyor.found


class _Surveyor:
    def __init__(self, engine: Engine, migration: bytes, work: TableWork, *, is_converted: bool) -> None:
        self._engine, self._migration, self._work, self._route = engine, migration, work, work.route
        self._is_converted = is_converted
        self._limits = _Limits.of(engine)
        self._made = 0
        self.found = Survey()

    def look_through(self, progress: Callable[[int], None]) -> None:
        """Go over all units, and again over the keys that a function makes, as often as they need."""
        first: dict[bytes, bytes] = {}
        for read, unit in self._units(progress):
            for one in self._examined(unit, read):
                self._made += 1
                if self._route.keeps_origins and len(first) < _KEYS_COMPARED:
                    self._compare(one, unit, first)
        passes = -(-self._made // _KEYS_COMPARED) if self._route.keeps_origins else 1
        for number in range(passes if passes > 1 else 0):
            self._look_again(number, passes)

    def _look_again(self, number: int, passes: int) -> None:
        """Compare those of the keys whose digests are this pass's."""
        first: dict[bytes, bytes] = {}
        for read, unit in self._units(lambda _: None):
            for one in self._made_of(unit, read):
                if _digest_of(one.raw_key)[0] * passes >> 8 == number:
                    self._compare(one, unit, first)

    def _compare(self, one: Converted, unit: bytes, first: dict[bytes, bytes]) -> None:
        digest = _digest_of(one.raw_key)
        other = first.setdefault(digest, unit)
        if other != unit:
            both = f"{shown_key(other)} and {shown_key(unit)}"
            self.found.fail(f"{both}: the function gives both the key {shown_key(one.raw_key)}")

    def _units(self, progress: Callable[[int], None]) -> Iterator[tuple[Lookup, bytes]]:
        for place, source in enumerate(self._route.sources):
            for batch, snapshot in read_batches(self._engine, KeyRange(*source.keys.range(()))):
                read = Lookup(snapshot)
                read.add(batch)
                units = list(units_of(self._route, place, batch, read))
                read.fetch(mark_key(self._migration, unit) for unit in units)
                for unit in units:
                    yield read, unit
                progress(len(batch))

    def _made_of(self, unit: bytes, read: Lookup) -> Sequence[Converted]:
        try:
            return self._route.made(Sides.of(self._migration, self._route, unit, read).records)
        except UNREADABLE:
            return ()

    def _examined(self, unit: bytes, read: Lookup) -> Sequence[Converted]:
        """Convert the records of a unit, unless that is done; return what is made of them."""
        work, found = self._work, self.found
        try:
            sides = Sides.of(self._migration, self._route, unit, read)
            if not work.is_moving and (sides.mark is not None or self._is_converted):
                return ()
            found.records += not work.is_moving or not self._route.stays(unit)
            if not (work.is_moving or self._route.has_other_values):
                self._route.likely_keys(unit)
                return ()
            made = self._route.made(sides.records)
            for one in made:
                self._limits.check(one.raw_key, one.raw_value)
                for raw_key in one.index_entries:
                    self._limits.check(raw_key)
        except (*UNREADABLE, EngineLimitError) as error:
            if work.is_moving or not self._is_new(unit, read):  # Why: else a program of the new layout wrote it.
                found.add(unit, error)
            return ()
        if not made:
            found.drop(unit)
        if self._route.keeps_origins and sides.mark is None:
            self._look_there(sides, made, read)
        return made

    def _look_there(self, sides: Sides, made: Sequence[Converted], read: Lookup) -> None:
        """Count a record at whose new key another one stands. Why only unmarked ones: else it may be its own copy."""
        for one in made:
            entry = read.get(one.raw_key)
            if entry is not None and (entry.value, entry.lease) != (one.raw_value, sides.lease):
                self.found.fail(
                    f"{shown_key(sides.unit)}: another record stands at its new key {shown_key(one.raw_key)}"
                )

    def _is_new(self, unit: bytes, read: Lookup) -> bool:
        entry = read.get(unit)
        try:
            if entry is not None:
                table_of(self._route.targets, unit).form.decode(entry.value)
        except (*UNREADABLE, StopIteration):
            return False
        return self._route.has_other_values


def survey_index(engine: Engine, index: BoundIndex, progress: Callable[[int], None] = lambda _: None) -> Survey:
    """Make the entries of an index of every record of its table, as the engine would take them.

    Records that cannot be read are passed over: no layout's programs can write them again, with the index or without it.
    """
    found = Survey()
    limits = _Limits.of(engine)
    table = index.table
    for batch, _ in read_batches(engine, KeyRange(*table.keys.range(()))):
        for entry in batch:
            key = table.keys.decode(entry.key)
            if key is None:
                continue
            found.records += 1
            try:
                for raw_key, _value in index.entries(key, table.form.decode(entry.value)):
                    limits.check(raw_key)
            except CorruptionError:
                continue
            except (RecordError, EngineLimitError) as error:
                found.add(entry.key, error)
        progress(len(batch))
    return found


class _Limits(NamedTuple):
    """What the engine takes."""

    key_bytes_max: int | None
    value_bytes_max: int | None

    @classmethod
    def of(cls, engine: Engine) -> Self:
        return cls(engine.profile.key_bytes_max, engine.profile.value_bytes_max)

    def check(self, raw_key: bytes, raw_value: bytes = b"") -> None:
        for name, size, most in (
            ("key_bytes_max", len(raw_key), self.key_bytes_max),
            ("value_bytes_max", len(raw_value), self.value_bytes_max),
        ):
            if most is not None and size > most:
                raise EngineLimitError(limit=name, allowed=most, actual=size, problem=f"{size} bytes, {most} fit")


def _digest_of(raw_key: bytes) -> bytes:
    """What stands for a key in memory: two of ten million are alike with a chance below one in a million millions."""
    return hashlib.sha256(raw_key).digest()[:16]
