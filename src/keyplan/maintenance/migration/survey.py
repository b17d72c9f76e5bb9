"""Every record that is to be converted, converted once: how many there are, and which cannot be."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from keyplan.codec import MASK
from keyplan.engine import Engine, Entry, KeyRange
from keyplan.errors import CorruptionError, EngineLimitError, KeyplanError, RecordError
from keyplan.jobs import Lookup, read_batches
from keyplan.layout import BoundIndex, shown_key
from keyplan.maintenance.migration.collisions import Claims
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.route import made_key_shown, table_of, units_of
from keyplan.maintenance.migration.sides import Sides, origin_of, several_leases
from keyplan.maintenance.migration.unit_limits import Limits, UnitCheck

__all__ = ["Survey", "survey_index", "survey_table"]

_FAILURES_SHOWN: Final = 5


@dataclass
class Survey:
    """How many records there are to convert, how many cannot be, and why the first of these.

    `dropped`: how many a function makes nothing of; `examples` are the keys of the first. `losers`: how many claim a unique
    entry that another record claims; `claims` are the first.
    """

    records: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    dropped: int = 0
    examples: list[str] = field(default_factory=list)
    losers: int = 0
    claims: list[str] = field(default_factory=list)

    def lose(self, claim: str) -> None:
        """Count a record that claims a unique entry that another one claims, in words."""
        self.losers += 1
        if len(self.claims) < _FAILURES_SHOWN:
            self.claims.append(claim)

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
    takes_standing: bool = False,
    takes_leases: bool = False,
) -> Survey:
    """Convert every record of a route, batch by batch, as the engine would take it.

    Records that the migration has converted where they stand are done, and count no more; with `is_converted` all of them but
    those that were left. A function's new keys are compared with one another and, unless `takes_standing`, with what stands
    there; joined records hang on one lease unless `takes_leases`. `progress` is called with the number of keys of each batch.
    """
    takes = _Takes(takes_standing, takes_leases)
    surveyor = _Surveyor(engine, migration, work, takes, is_converted=is_converted)
    surveyor.look_through(progress)
    return surveyor.found


class _Takes(NamedTuple):
    """What the plan consents to."""

    standing: bool
    leases: bool


class _Surveyor:
    def __init__(self, engine: Engine, migration: bytes, work: TableWork, takes: _Takes, *, is_converted: bool) -> None:
        self._engine, self._migration, self._work, self._route = engine, migration, work, work.route
        self._is_converted, self._takes = is_converted, takes
        self._check = UnitCheck(engine.profile, migration, work)
        self._claims = Claims()
        self.found = Survey()

    def look_through(self, progress: Callable[[int], None]) -> None:
        """Go over all units, and again over the keys that are made, as often as they need."""
        for read, unit, sides in self._units(progress):
            self._claim(unit, self._examined(unit, sides, read))
        for _ in self._claims.further_passes():
            for _, unit, sides in self._units(lambda _: None):
                self._claim(unit, self._made_again(sides))

    def _claim(self, unit: bytes, made: Sequence[Converted]) -> None:
        """Find two units that would get one key, or two records that would get one unique entry."""
        for found in self._claims.collisions(self._route, unit, made):
            shown = made_key_shown(found.raw_key, self._route.sources)
            if found.index_name:
                sources = self._route.sources if self._route.keeps_origins else ()
                both = " and ".join(made_key_shown(raw_key, sources) for raw_key in (found.first, found.second))
                self.found.fail(f"{both} both claim the entry {shown} of {found.index_name}")
            else:
                both = f"{shown_key(found.first)} and {shown_key(found.second)}"
                self.found.fail(f"{both}: the function gives both the key {shown}")

    def _units(self, progress: Callable[[int], None]) -> Iterator[tuple[Lookup, bytes, Sides | None]]:
        """All units, with both sides of them where these can be read."""
        for place, source in enumerate(self._route.sources):
            for batch, snapshot in read_batches(self._engine, KeyRange(*source.keys.range(()))):
                read = Lookup(snapshot, is_near=self._engine.profile.has_local_reads)
                read.add(batch)
                units = list(units_of(self._route, place, batch, read))
                read.fetch(mark_key(self._migration, unit) for unit in units)
                for unit, sides in zip(units, read.each(units, partial(self._read, read=read)), strict=True):
                    yield read, unit, sides
                progress(len(batch))

    def _read(self, unit: bytes, read: Lookup) -> Sides | None:
        """Both sides of a unit, with what stands at the keys that a function makes."""
        try:
            sides = Sides.of(self._migration, self._route, unit, read)
        except UNREADABLE:
            return None
        if self._route.keeps_origins and sides.mark is None:
            read.fetch(one.raw_key for one in self._made_of(sides))
        return sides

    @staticmethod
    def _made_of(sides: Sides) -> Sequence[Converted]:
        try:
            return sides.made
        except UNREADABLE:
            return ()

    def _is_done(self, sides: Sides) -> bool:
        """Whether the records were converted where they stand."""
        return not self._work.is_moving and (sides.mark is not None or self._is_converted)

    def _made_again(self, sides: Sides | None) -> Sequence[Converted]:
        """What is made of a unit that was examined before."""
        if sides is None or self._is_done(sides) or not (self._work.is_moving or self._route.has_other_values):
            return ()
        try:
            return self._check.made_again(sides)
        except (*UNREADABLE, EngineLimitError):
            return ()

    def _examined(self, unit: bytes, sides: Sides | None, read: Lookup) -> Sequence[Converted]:
        """Convert the records of a unit, unless that is done; return what is made of them."""
        work, found = self._work, self.found
        try:
            if sides is None:  # Why: it raises what is wrong with it.
                sides = Sides.of(self._migration, self._route, unit, read)
            if self._is_done(sides):
                return ()
            found.records += not work.is_moving or not sides.stays
            if not (work.is_moving or self._route.has_other_values):
                self._route.likely_keys(unit)
                return ()
            made = self._check.made(sides)
        except (*UNREADABLE, EngineLimitError) as error:
            if work.is_moving or not self._is_new(unit, read):  # Why: else a program of the new layout wrote it.
                found.add(unit, error)
            return ()
        if not made:
            found.drop(unit)
        elif sides.hangs_on_several and not self._takes.leases:
            found.fail(f"{shown_key(unit)}: {several_leases(work.name)}")
        if self._route.keeps_origins and sides.mark is None and not self._takes.standing:
            self._look_there(sides, made, read)
        return made

    def _look_there(self, sides: Sides, made: Sequence[Converted], read: Lookup) -> None:
        """Count a record at whose new key a stranger stands. Why only unmarked ones: else it may be its own copy.

        What was made of another old record is none: that one has gone, or makes something else by now, or both make it, and
        then they are compared.
        """
        for one in made:
            entry = read.get(one.raw_key)
            if entry is None or (entry.value, entry.lease) == (one.raw_value, sides.lease):
                continue
            if origin_of(self._migration, one.raw_key, read) is None:
                shown = made_key_shown(one.raw_key, self._route.sources)
                self.found.fail(f"{shown_key(sides.unit)}: another record stands at its new key {shown}")

    def _is_new(self, unit: bytes, read: Lookup) -> bool:
        entry = read.get(unit)
        try:
            if entry is not None:
                table_of(self._route.targets, unit).form.decode(entry.value)
        except (*UNREADABLE, StopIteration):
            return False
        return self._route.has_other_values


def survey_index(
    engine: Engine, index: BoundIndex, progress: Callable[[int], None] = lambda _: None, *, hides: bool = False
) -> Survey:
    """Make the entries of an index of every record of its table, as the engine would take them. `hides`: shows none of them.

    Records that cannot be read are passed over: no layout's programs can write them again, with the index or without it. Those
    that claim a unique entry that an earlier one claims are counted as losers, the first of them with both keys.
    """
    found = Survey()
    limits = Limits.of(engine.profile)
    claims = Claims()

    def claim(entry: Entry, raw_keys: Iterable[bytes]) -> None:
        for raw_key in raw_keys if index.spec.is_unique else ():
            other = claims.other(raw_key, entry.key)
            if other is not None:
                both = f"{shown_key(other)} and {shown_key(entry.key)}"
                shown = MASK if hides else shown_key(raw_key)
                found.lose(f"{both} both claim the entry {shown} of {index.name}")

    for entry in _records(engine, index, progress):
        found.records += 1
        try:
            raw_keys = _entry_keys(index, entry)
            for raw_key in raw_keys:
                limits.check(raw_key)
            claim(entry, raw_keys)
        except CorruptionError:
            continue
        except (RecordError, EngineLimitError) as error:
            found.add(entry.key, error)
    for _ in claims.further_passes():
        for entry in _records(engine, index, lambda _: None):
            with suppress(CorruptionError, RecordError):
                claim(entry, _entry_keys(index, entry))
    return found


def _records(engine: Engine, index: BoundIndex, progress: Callable[[int], None]) -> Iterator[Entry]:
    for batch, _ in read_batches(engine, KeyRange(*index.table.keys.range(()))):
        yield from (entry for entry in batch if index.table.keys.decode(entry.key) is not None)
        progress(len(batch))


def _entry_keys(index: BoundIndex, entry: Entry) -> list[bytes]:
    table = index.table
    return [raw_key for raw_key, _ in index.entries(table.keys.decode(entry.key), table.form.decode(entry.value))]
