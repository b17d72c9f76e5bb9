"""A migration tried on stored records before anything is written: what becomes of each, counted, with examples.

Of a record that is refused or lost the key is shown, of one that is converted its change: secrets are masks.
"""

import json
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from keyplan.codec import MASK
from keyplan.engine import Engine, Entry, KeyRange
from keyplan.errors import EngineLimitError, InvalidArgumentError, KeyplanError
from keyplan.jobs import Lookup, read_batches
from keyplan.layout import BoundTable, plain_value, shown_key
from keyplan.maintenance.migration.collisions import Claims
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import mark_key
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.route import made_key_shown, units_of
from keyplan.maintenance.migration.sides import Sides
from keyplan.maintenance.migration.survey import survey_index
from keyplan.maintenance.migration.unit_limits import UnitCheck

__all__ = ["TableTrial", "Trial", "TriedRecord", "try_migration"]

_VALUE_CHARACTERS_MAX: Final = 120
"""Why: an example is to be read on one line."""


@dataclass(frozen=True, slots=True)
class TriedRecord:
    """A record of an example: its key, the keys of what is made of it, and lines: what was changed, or why it is refused."""

    key: str
    new_keys: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass
class TableTrial:
    """What became of the records of a table: how many were tried, and of these, how many of each kind, with examples.

    converted: made into records of the new layout. refused: cannot be. lost: a function makes nothing of it. collided: gets a
    key or a unique entry that another record has. losing: converted, and the new record has no place for a field of it.
    """

    name: str
    tried: int = 0
    converted: int = 0
    refused: int = 0
    lost: int = 0
    collided: int = 0
    losing: int = 0
    examples: dict[str, list[TriedRecord]] = field(default_factory=dict)


@dataclass
class Trial:
    """What became of the records of each table; `dropped` tables with their records, `contested` entries of new indexes."""

    tables: list[TableTrial] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    contested: dict[str, list[str]] = field(default_factory=dict)

    def problems(self, accepts: frozenset[str]) -> int:
        """Return how many records stand in the way: refused, collided, or lost without a consent."""
        count = sum(len(claims) for claims in self.contested.values())
        for table in self.tables:
            lost = 0 if f"none:{table.name}" in accepts else table.lost
            count += table.refused + table.collided + lost
        return count


def try_migration(
    engine: Engine,
    plan: MigrationPlan,
    *,
    sample: int | None = None,
    examples: int = 3,
    progress: Callable[[int], None] = lambda _: None,
) -> Trial:
    """Convert stored records as a plan says, and write nothing.

    sample: how many records of each table, taken at equal distances; all of them without it, indexes that are to be built
    included. examples: how many records of each kind are shown. `progress` is called with the number of records tried.

    Raises InvalidArgumentError for a sample of less than one record.
    """
    if sample is not None and sample < 1:
        raise InvalidArgumentError(argument="sample", problem="at least 1 record of each table")
    trial = Trial()
    done = 0
    for work in plan.tables:
        tester = _Tester(engine, plan, work, sample, examples)
        for _ in tester.steps():
            done += 1
            progress(done)
        trial.tables.append(tester.found)
    with engine.snapshot() as snapshot:
        for name in plan.tables_to_remove:
            trial.dropped[name] = snapshot.count(KeyRange(*plan.old.tables[name].keys.range(())))
    moved = {table.name for work in plan.tables for table in work.route.targets}
    for name in plan.indexes_to_build if sample is None else ():
        index = plan.new.indexes[name]
        if index.table.name not in moved:
            survey = survey_index(engine, index, hides=plan.old.has_secrets)
            if (survey.losers and name not in plan.resolutions) or survey.failed:
                trial.contested[name] = [*survey.claims, *survey.failures]
    return trial


class _Tester:
    """Tries the records of one table."""

    def __init__(self, engine: Engine, plan: MigrationPlan, work: TableWork, sample: int | None, examples: int) -> None:
        self._engine, self._plan, self._route, self._work = engine, plan, work.route, work
        self._sample, self._examples = sample, examples
        self._check = UnitCheck(engine.profile, plan.id, work)
        self._claims = Claims()
        self.found = TableTrial(work.name)

    def steps(self) -> Iterator[None]:
        """Try one record after the other."""
        for unit, read in self._units():
            self._claim(unit, self._tried(unit, read))
            yield
        for _ in self._claims.further_passes():
            for unit, read in self._units():
                self._claim(unit, self._made_again(unit, read))

    def _units(self) -> Iterator[tuple[bytes, Lookup]]:
        for place, source in enumerate(self._route.sources):
            key_range = KeyRange(*source.keys.range(()))
            distance = self._distance(key_range)
            number = 0
            for batch, snapshot in read_batches(self._engine, key_range):
                read = Lookup(snapshot)
                read.add(batch)
                for unit in units_of(self._route, place, batch, read):
                    if number % distance == 0 and (self._sample is None or number // distance < self._sample):
                        read.fetch([mark_key(self._plan.id, unit)])
                        yield unit, read
                    number += 1

    def _distance(self, key_range: KeyRange) -> int:
        if self._sample is None:
            return 1
        with self._engine.snapshot() as snapshot:
            return max(1, snapshot.count(key_range) // self._sample)

    def _tried(self, unit: bytes, read: Lookup) -> Sequence[Converted]:
        found = self.found
        try:
            sides = Sides.of(self._plan.id, self._route, unit, read)
            if self._is_done(sides):
                return ()
            found.tried += 1
            made = self._check.made(sides)
        except (*UNREADABLE, EngineLimitError) as error:
            found.refused += 1
            self._show("refused", TriedRecord(shown_key(unit), lines=(_words(error),)))
            return ()
        if not made:
            found.lost += 1
            self._show("lost", TriedRecord(shown_key(unit)))
            return ()
        found.converted += 1
        self._compare(unit, sides.records, made)
        if self._route.keeps_origins and sides.mark is None:
            self._look_there(unit, sides, made, read)
        return made

    def _is_done(self, sides: Sides) -> bool:
        """Whether the records were converted where they stand."""
        return sides.mark is not None and not self._work.is_moving

    def _made_again(self, unit: bytes, read: Lookup) -> Sequence[Converted]:
        try:
            sides = Sides.of(self._plan.id, self._route, unit, read)
            return () if self._is_done(sides) else self._check.made_again(sides)
        except (*UNREADABLE, EngineLimitError):
            return ()

    def _look_there(self, unit: bytes, sides: Sides, made: Sequence[Converted], read: Lookup) -> None:
        for one in made:
            entry = read.get(one.raw_key)
            if entry is not None and (entry.value, entry.lease) != (one.raw_value, sides.lease):
                self._collide(unit, one.raw_key, "another record stands there")

    def _claim(self, unit: bytes, made: Sequence[Converted]) -> None:
        for found in self._claims.collisions(self._route, unit, made):
            is_made = found.index_name and self._route.keeps_origins
            first = made_key_shown(found.first, self._route.sources) if is_made else shown_key(found.first)
            self._collide(unit, found.raw_key, f"{first} gets it, too")

    def _collide(self, unit: bytes, raw_key: bytes, why: str) -> None:
        self.found.collided += 1
        shown = made_key_shown(raw_key, self._route.sources)
        self._show("collided", TriedRecord(shown_key(unit), (shown,), (why,)))

    def _compare(self, unit: bytes, records: Sequence[Entry | None], made: Sequence[Converted]) -> None:
        """Count a record of which a field has no place any more, and show what becomes of it."""
        before: dict[str, Any] = {}
        for source, entry in zip(self._route.sources, records, strict=True):
            if entry is not None:
                before |= _fields(plain_value(source.form.decode(entry.value)))
        afters = [_fields(plain_value(one.table.form.decode(one.raw_value))) for one in made]
        known = [after.keys() | _field_names(one.table) for one, after in zip(made, afters, strict=True)]
        is_losing = any(name not in names for name in before for names in known) and before.keys() != {""}
        self.found.losing += is_losing
        if len(self.found.examples.get("losing" if is_losing else "converted", ())) < self._examples:
            hides = any(source.form.secrets for source in self._route.sources)
            lines = [line for after in afters for line in _difference(before, after, hides=hides)]
            sources = self._route.sources if self._route.keeps_origins else ()
            shown = tuple(made_key_shown(one.raw_key, sources) for one in made)
            example = TriedRecord(shown_key(unit), shown, tuple(lines))
            self._show("losing" if is_losing else "converted", example)

    def _show(self, kind: str, example: TriedRecord) -> None:
        shown = self.found.examples.setdefault(kind, [])
        if len(shown) < self._examples:
            shown.append(example)


def _words(error: KeyplanError) -> str:
    problem = error.facts.get("problem")
    return f"{error.summary}: {problem}" if problem else error.summary


def _fields(plain: Any) -> dict[str, Any]:
    """A record's fields; a value without fields is one without a name."""
    return plain if isinstance(plain, dict) else {"": plain}


def _field_names(table: BoundTable) -> Set[str]:
    """The fields that records of the table have a place for, as they are stored. Why: a default need not be stored."""
    kind = table.form.value_type
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return frozenset()
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def _difference(before: dict[str, Any], after: dict[str, Any], *, hides: bool) -> Iterator[str]:
    """Yield the lines of what changed. `hides`: old records hold secrets.

    Why new values are masks then: a function may have put a secret anywhere. An old value is one where the new one is: it is to
    be secret from now on.
    """
    for name in (*before, *(name for name in after if name not in before)):
        if name in before and name in after and before[name] == after[name]:
            continue
        if name in before:
            yield f"- {_line(name, MASK if MASK in str(after.get(name)) else before[name])}"
        if name in after:
            yield f"+ {_line(name, MASK if hides else after[name])}"


def _line(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    shown = text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}..."
    return f"{name}: {shown}" if name else shown
