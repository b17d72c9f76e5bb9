"""Values that hold whole keys of records that a migration gives other keys: they would name what is not there any more."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from keyplan.engine import Engine, KeyRange, prefix_of
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


class _Moving(NamedTuple):
    """The ways of records that get other keys. `prefix`: what their keys begin with in the whole store.

    Why: a value in a key space names a record by its whole key, and no layout sees the prefix.
    """

    routes: Sequence[Route]
    prefix: bytes

    def has(self, raw_key: bytes) -> bool:
        """Whether a record at the key gets another one, or cannot have one."""
        keys = {raw_key, raw_key.removeprefix(self.prefix)}
        return any(_moves(route, key) for route in self.routes for key in keys)


def moved_keys(
    engine: Engine,
    layout: BoundLayout,
    works: Sequence[TableWork],
    decided: Collection[str],
    progress: Callable[[int], None],
) -> Iterator[MovedKeys]:
    """Look through a layout's tables whose values hold keys (`holds_keys`), and yield those with keys of records that move.

    decided: tables that are left out, because a function writes their values anew, or somebody consented.
    """
    routes = [work.route for work in works if work.is_moving]
    prefix = prefix_of(engine)
    for table in layout.tables.values() if routes else ():
        if table.spec.holds_keys and table.name not in decided:
            found = _found(engine, table, _Moving(routes, prefix), progress)
            if found.records:
                yield found


def _found(engine: Engine, table: BoundTable, moving: _Moving, progress: Callable[[int], None]) -> MovedKeys:
    records = 0
    examples: list[str] = []
    for batch in batches_of(engine, KeyRange(*table.keys.range(()))):
        for entry in batch:
            if table.keys.decode(entry.key) is not None and _holds_moved_key(table, entry.value, moving):
                records += 1
                if len(examples) < _EXAMPLES_MAX:
                    examples.append(shown_key(entry.key))
        progress(len(batch))
    return MovedKeys(table.name, records, examples)


def _holds_moved_key(table: BoundTable, raw_value: bytes, moving: _Moving) -> bool:
    held: list[bytes] = []

    def noted(raw_key: bytes) -> bytes:
        held.append(raw_key)
        return raw_key

    try:
        rewrite_embedded_keys(table.spec, raw_value, noted)
    except CorruptionError:
        return False  # Why: a value that cannot be read names nothing, and is told as damaged.
    return any(moving.has(raw_key) for raw_key in held)


def _moves(route: Route, raw_key: bytes) -> bool:
    try:
        unit = route.unit_of(raw_key)
        return unit is not None and not route.stays(unit)
    except InvalidKeyError:
        return True
