"""Values that hold whole keys of records that a migration gives other keys: they would name what is not there any more."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from keyplan.engine import Engine, KeyRange
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.jobs import batches_of
from keyplan.layout import BoundLayout, BoundTable, rewrite_embedded_keys, shown_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.route import Route

__all__ = ["MovedKeys", "moved_keys"]

_EXAMPLES_MAX: Final = 5


class MovedKeys(NamedTuple):
    """How many records of an old table hold a key of a record that moves; the first of them."""

    table: str
    records: int
    examples: Sequence[str]


def moved_keys(
    engine: Engine,
    old: BoundLayout,
    works: Sequence[TableWork],
    decided: Collection[str],
    progress: Callable[[int], None],
) -> Iterator[MovedKeys]:
    """Look through the tables whose values hold keys (`holds_keys`), and yield those that hold keys of records that move.

    decided: old tables that are left out, because a function writes their values anew.
    """
    routes = [work.route for work in works if work.is_moving]
    for table in old.tables.values() if routes else ():
        if table.spec.holds_keys and table.name not in decided:
            found = _found(engine, table, routes, progress)
            if found.records:
                yield found


def _found(engine: Engine, table: BoundTable, routes: Sequence[Route], progress: Callable[[int], None]) -> MovedKeys:
    records = 0
    examples: list[str] = []
    for batch in batches_of(engine, KeyRange(*table.keys.range(()))):
        for entry in batch:
            if table.keys.decode(entry.key) is not None and _holds_moved_key(table, entry.value, routes):
                records += 1
                if len(examples) < _EXAMPLES_MAX:
                    examples.append(shown_key(entry.key))
        progress(len(batch))
    return MovedKeys(table.name, records, examples)


def _holds_moved_key(table: BoundTable, raw_value: bytes, routes: Sequence[Route]) -> bool:
    held: list[bytes] = []

    def noted(raw_key: bytes) -> bytes:
        held.append(raw_key)
        return raw_key

    try:
        rewrite_embedded_keys(table.spec, raw_value, noted)
    except CorruptionError:
        return False  # Why: a value that cannot be read names nothing, and is told as damaged.
    return any(_moves(route, raw_key) for route in routes for raw_key in held)


def _moves(route: Route, raw_key: bytes) -> bool:
    """Whether a record at the key gets another one, or cannot have one."""
    try:
        unit = route.unit_of(raw_key)
        return unit is not None and not route.stays(unit)
    except InvalidKeyError:
        return True
