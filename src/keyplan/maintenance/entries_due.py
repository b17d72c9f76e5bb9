"""Which entries of one index a batch of records lacks, as guarded puts. Nothing is written here."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keyplan.engine import Entry, Guard, KeyAbsent, KeyUnchanged, Put
from keyplan.errors import CorruptionError, RecordError
from keyplan.layout import BoundIndex
from keyplan.maintenance.batches import GuardedPut
from keyplan.maintenance.examine import calls_for, primary_of
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.maintenance.lookup import Lookup

__all__ = ["EntriesDue", "entries_due"]


class EntriesDue(NamedTuple):
    """What to write, no key twice; the unique entries that two records claim; and the records that have no entry."""

    puts: tuple[GuardedPut, ...]
    contested: tuple[Finding, ...]
    unfit: tuple[bytes, ...] = ()


def entries_due(index: BoundIndex, records: Sequence[Entry], read: Lookup, *, key_bytes_max: int | None) -> EntriesDue:
    """Return the entries of `index` that these stored records should have and have not.

    Records that cannot be read, or whose fields do not fit the index or make an entry longer than `key_bytes_max`, have none:
    they are `unfit`, and a check names them. Entries of other tables in `records` are passed over.
    """
    unfit: dict[bytes, None] = {}
    wanted = list(_wanted(index, records, unfit, key_bytes_max))
    read.fetch(raw_key for _, raw_key, _ in wanted)
    puts: dict[bytes, GuardedPut] = {}
    contested: list[Finding] = []
    for record, raw_key, raw_value in wanted:
        found = read.get(raw_key)
        if found is not None and found.value == raw_value and found.lease == record.lease:
            continue
        guards: list[Guard] = [KeyUnchanged(record.key, record.mod_revision)]
        if found is None:
            guards.append(KeyAbsent(raw_key))
        else:
            guards.append(KeyUnchanged(raw_key, found.mod_revision))
        other = _other_record(index, found, raw_value, read)
        if raw_key in puts or isinstance(other, Entry):
            contested.append(Finding(FindingKind.CONTESTED_ENTRY, raw_key, index.name, record.key))
            continue
        if other is not None:
            guards.append(other)
        puts[raw_key] = GuardedPut(Put(raw_key, raw_value, record.lease), tuple(guards))
    return EntriesDue(tuple(puts.values()), tuple(contested), tuple(unfit))


def _wanted(
    index: BoundIndex, records: Sequence[Entry], unfit: dict[bytes, None], key_bytes_max: int | None
) -> Iterator[tuple[Entry, bytes, bytes]]:
    table = index.table
    for record in records:
        key = table.keys.decode(record.key)
        if key is None:
            continue
        try:
            index_entries = index.entries(key, table.form.decode(record.value))
        except (CorruptionError, RecordError):
            unfit[record.key] = None
            continue
        for raw_key, raw_value in index_entries:
            if key_bytes_max is not None and len(raw_key) > key_bytes_max:
                unfit[record.key] = None
            else:
                yield record, raw_key, raw_value


def _other_record(index: BoundIndex, found: Entry | None, raw_value: bytes, read: Lookup) -> Entry | Guard | None:
    """The record that an entry points at and that calls for it; or the guard that there is none; None: nobody is pointed at."""
    if found is None or found.value == raw_value or not index.spec.is_unique:
        return None
    primary = primary_of(index, found)
    if primary is None:
        return None
    key, raw_key = primary
    other = read.get(raw_key)
    if other is None:
        return KeyAbsent(raw_key)
    if calls_for(index, key, other, found.key) is False:
        return KeyUnchanged(raw_key, other.mod_revision)
    return other
