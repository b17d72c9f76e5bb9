"""Every record that is to be converted, converted once: how many there are, and which cannot be."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from keyplan.engine import Engine, Entry, KeyRange
from keyplan.errors import CorruptionError, EngineLimitError, KeyplanError, RecordError
from keyplan.jobs import read_batches
from keyplan.layout import BoundIndex, shown_key
from keyplan.maintenance.migration.marks import mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.transform import UNREADABLE

__all__ = ["Survey", "survey_index", "survey_table"]

_FAILURES_SHOWN: Final = 5


@dataclass
class Survey:
    """How many records there are to convert, how many cannot be, and why the first of these."""

    records: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, entry: Entry, error: KeyplanError) -> None:
        """Count a record that cannot be carried over."""
        self.failed += 1
        if len(self.failures) < _FAILURES_SHOWN:
            self.failures.append(f"{shown_key(entry.key)}: {error.summary}: {error.facts.get('problem', '')}")

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
    """Convert every record of a table, batch by batch, as the engine would take it.

    Records that the migration has converted where they stand are done, and count no more; with `is_converted` all of them but
    those that were left. `progress` is called with the number of keys of each batch.
    """
    found = Survey()
    limits = _Limits.of(engine)
    for batch, snapshot in read_batches(engine, work.old_range):
        records = [entry for entry in batch if work.converter.old.keys.decode(entry.key) is not None]
        marks = snapshot.get_many([mark_key(migration, entry.key) for entry in records])
        for entry, mark in zip(records, marks, strict=True):
            is_done = mark is not None or is_converted
            if work.is_moving or not is_done:
                _examine(work, entry, found, limits)
        progress(len(batch))
    return found


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
                found.add(entry, error)
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


def _examine(work: TableWork, entry: Entry, found: Survey, limits: _Limits) -> None:
    try:
        _, new_key = work.converter.new_key(entry.key)
        found.records += not work.is_moving or new_key != entry.key
        if work.is_moving or work.converter.has_other_values:
            made = work.converter.converted(entry)
            limits.check(made.raw_key, made.raw_value)
            for raw_key in made.index_entries:
                limits.check(raw_key)
    except (*UNREADABLE, EngineLimitError) as error:
        if not work.is_moving and _is_new(work, entry):
            return  # Why: a program of the new layout wrote it.
        found.add(entry, error)


def _is_new(work: TableWork, entry: Entry) -> bool:
    try:
        work.converter.new.form.decode(entry.value)
    except UNREADABLE:
        return False
    return work.converter.has_other_values
