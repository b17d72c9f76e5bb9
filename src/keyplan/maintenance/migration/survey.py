"""Every record that is to be converted, converted once: how many there are, and which cannot be."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from keyplan.engine import Engine, Entry, KeyRange
from keyplan.layout import shown_key
from keyplan.maintenance.check import batch_of
from keyplan.maintenance.migration.marks import mark_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.transform import UNREADABLE

__all__ = ["Survey", "survey_table"]

_FAILURES_SHOWN: Final = 5


@dataclass
class Survey:
    """How many records there are to convert, how many cannot be, and why the first of these."""

    records: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = f", and {self.failed - len(self.failures)} more" if self.failed > len(self.failures) else ""
        return "; ".join(self.failures) + more


def survey_table(
    engine: Engine, migration: bytes, work: TableWork, progress: Callable[[int], None] = lambda _: None
) -> Survey:
    """Convert every record of a table, batch by batch. `progress` is called with the number of keys of each batch.

    Records that the migration has converted where they stand are done, and count no more.
    """
    found = Survey()
    key_range = work.old_range
    while True:
        with engine.snapshot() as snapshot:
            batch = batch_of(snapshot, key_range)
            if not batch:
                return found
            records = [entry for entry in batch if work.converter.old.keys.decode(entry.key) is not None]
            marks = snapshot.get_many([mark_key(migration, entry.key) for entry in records])
        for entry, mark in zip(records, marks, strict=True):
            if not work.is_moving and mark is not None:
                continue
            _examine(work, entry, found)
        progress(len(batch))
        key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)


def _examine(work: TableWork, entry: Entry, found: Survey) -> None:
    try:
        _, new_key = work.converter.new_key(entry.key)
        found.records += not work.is_moving or new_key != entry.key
        if work.is_moving or work.converter.has_other_values:
            work.converter.converted(entry)
    except UNREADABLE as error:
        if not work.is_moving and _is_new(work, entry):
            return  # Why: a program of the new layout wrote it.
        found.failed += 1
        if len(found.failures) < _FAILURES_SHOWN:
            found.failures.append(f"{shown_key(entry.key)}: {error.summary}: {error.facts.get('problem', '')}")


def _is_new(work: TableWork, entry: Entry) -> bool:
    try:
        work.converter.new.form.decode(entry.value)
    except UNREADABLE:
        return False
    return work.converter.has_other_values
