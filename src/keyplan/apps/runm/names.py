"""Whether every record is found by its name. The original spelled names raw: what is behind a slash there, no list shows.

Lists, look-ups by name and the uniqueness of names rest on that. So who serves or writes out such a store refuses it instead.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from keyplan.apps.runm.deployment import Deployment
from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.errors import CorruptionError, InvalidInputError, RecordError
from keyplan.layout import BoundTable, shown_key
from keyplan.store import index_entries_of

__all__ = ["refuse_unnamed"]

_BATCH: Final = 512
_SHOWN_MAX: Final = 3


def refuse_unnamed(deployment: Deployment) -> None:
    """Raise InvalidInputError when a partition or an object has no name entry, or another record has its name."""
    with deployment.store.engine.snapshot() as snapshot:
        found = [
            shown_key(raw_key)
            for name in ("partitions", "objects")
            for raw_key in _unnamed(deployment.bound.table(name), snapshot)
        ]
    if found:
        shown = ", ".join(found[:_SHOWN_MAX]) + (", ..." if len(found) > _SHOWN_MAX else "")
        problem = (
            f"{len(found)} records are not found by their names ({shown}): lists would leave them out, and their names could "
            "be taken again. Run `keyplan runm migrate --yes`; what it leaves, `keyplan runm verify` names"
        )
        raise InvalidInputError(source="the store", problem=problem)


def _unnamed(table: BoundTable, snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the raw keys of records whose unique entries are not there, or not theirs."""
    entries = iter(snapshot.scan(KeyRange(*table.keys.range(()))))
    while batch := list(islice(entries, _BATCH)):
        due = [(entry.key, raw_key, raw_value) for entry in batch for raw_key, raw_value in _due(table, entry)]
        stored = snapshot.get_many([raw_key for _, raw_key, _ in due])
        unnamed = {
            own
            for (own, _, raw_value), found in zip(due, stored, strict=True)
            if found is None or found.value != raw_value
        }
        yield from sorted(unnamed)


def _due(table: BoundTable, entry: Entry) -> Iterator[tuple[bytes, bytes]]:
    """Yield the unique entries that a record should have; none for one that cannot be read, which `verify` names."""
    key = table.keys.decode(entry.key)
    if key is None:
        return
    try:
        due = index_entries_of(table, key, table.form.decode(entry.value))
    except (CorruptionError, RecordError):
        return
    yield from ((raw_key, one.raw_value) for raw_key, one in due.items() if one.source.spec.is_unique)
