"""Records of which a function makes others, keys included: a `Transform` bound to the tables of two layouts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from keyplan.engine import Entry
from keyplan.errors import InvalidKeyError, InvalidRecordError
from keyplan.layout import BoundLayout, BoundTable
from keyplan.maintenance.migration.functions import Converted, Keyed, Made, Transform, called
from keyplan.maintenance.migration.route import refuse_moved_secrets, stored_entries, table_of
from keyplan.store import IndexEntry, index_entries_of

__all__ = ["MADE_MAX", "Transformer"]

MADE_MAX: Final = 10_000
"""Why: what is made of one key is written by one commit and held in memory. A function that never ends is found out."""


class Transformer:
    """The `Route` of the records that a transform makes others of. The tables that it names are in the layouts."""

    def __init__(
        self, transform: Transform, old: BoundLayout, new: BoundLayout, kept_indexes: Iterable[str] = ()
    ) -> None:
        self.transform = transform
        self.sources = tuple(old.tables[name] for name in transform.of)
        self.targets = tuple(new.tables[name] for name in transform.into)
        self.kept_indexes = frozenset(kept_indexes)

    @property
    def item(self) -> str:
        """The first old table's name."""
        return self.transform.item

    @property
    def keeps_origins(self) -> bool:
        """Whether the store has to say of which unit a record was made: nobody can compute it."""
        return True

    @property
    def has_other_values(self) -> bool:
        """Whether values are written anew: always."""
        return True

    def unit_of(self, raw_key: bytes) -> bytes | None:
        """The raw key that the first source has for the record's key."""
        for table in self.sources:
            key = table.keys.decode(raw_key)
            if key is not None:
                return self.sources[0].keys.encode(self._respelled(key, table, self.sources[0]))
        return None

    def source_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """The raw keys of the unit's records, in the order of the sources."""
        first = self.sources[0]
        key = first.keys.decode(unit)
        return (unit, *(table.keys.encode(self._respelled(key, first, table)) for table in self.sources[1:]))

    def likely_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """Nothing: the function says it."""
        del unit
        return ()

    def stays(self, unit: bytes) -> bool:
        """Whether the unit's record keeps its key: never, the plan sees to it."""
        del unit
        return False

    def origin_of(self, table: BoundTable, key: object) -> bytes:
        """Not to be asked: the store says it."""
        raise InvalidKeyError(template=table.keys.template.source, problem=f"nothing computes the origin of {key!r}")

    def made(self, records: Sequence[Entry | None]) -> tuple[Converted, ...]:
        """What the function makes of a unit's records, by raw key. Raises what is in UNREADABLE."""
        stored = [(table, entry) for table, entry in zip(self.sources, records, strict=True) if entry is not None]
        if not stored:
            return ()
        table, entry = stored[0]
        key = self._respelled(table.keys.decode(entry.key), table, self.sources[0])
        decoded = [
            None if found is None else source.form.decode(found.value)
            for source, found in zip(self.sources, records, strict=True)
        ]
        made = _listed(self.item, self.transform.function, key, *decoded)
        by_key: dict[bytes, Converted] = {}
        for one in made:
            converted = self._converted(one, stored)
            if by_key.setdefault(converted.raw_key, converted) is not converted:
                problem = f"the function {self.transform} makes two records of one key of it"
                raise InvalidRecordError(table=converted.table.name, problem=problem)
        return tuple(by_key[raw_key] for raw_key in sorted(by_key))

    def old_entries(self, records: Sequence[Entry | None]) -> Mapping[bytes, IndexEntry]:
        """The index entries that a unit's old records have, as they are stored."""
        entries: dict[bytes, IndexEntry] = {}
        for table, entry in zip(self.sources, records, strict=True):
            if entry is not None:
                entries |= stored_entries(table, entry)
        return entries

    @property
    def has_inverse(self) -> bool:
        """Whether new records can be taken back."""
        return self.transform.inverse is not None

    def taken_back(self, entry: Entry) -> tuple[Converted, ...]:
        """The old records of which just this new one is made. Raises what is in UNREADABLE."""
        inverse = self.transform.inverse
        assert inverse is not None
        table = table_of(self.targets, entry.key)
        key, record = table.keys.decode(entry.key), table.form.decode(entry.value)
        keyed = _listed(table.name, inverse, key, record)
        made = [_encoded(one, self.sources, str(self.transform)) for one in keyed]
        for one in made:
            refuse_moved_secrets([(table, entry)], one.table, one.key, one.raw_value)
        return tuple(made)

    def _converted(self, one: Keyed, stored: Sequence[tuple[BoundTable, Entry]]) -> Converted:
        made = _encoded(one, self.targets, str(self.transform))
        refuse_moved_secrets(stored, made.table, made.key, made.raw_value)
        return made

    @staticmethod
    def _respelled(key: Any, table: BoundTable, other: BoundTable) -> Any:
        """A key of one source as another one has it: the same fields, by name."""
        if table is other:
            return key
        values = dict(zip(table.keys.template.field_names, table.keys.shape.split(key), strict=True))
        fields = [values[name] for name in other.keys.template.field_names]
        return fields[0] if other.keys.shape.is_scalar else other.keys.shape.make(*fields)


def _listed(table: str, function: Any, *values: Any) -> list[Keyed]:
    """What a function makes. Raises InvalidRecordError when it raises, and when it makes more than one commit could hold."""
    made = called(table, partial(_first_made, function, *values))
    if len(made) > MADE_MAX:
        raise InvalidRecordError(table=table, problem=f"the function makes more than {MADE_MAX} records of one key")
    return made


def _first_made(function: Any, *values: Any) -> list[Keyed]:
    made: Made = function(*values)
    if made is None:
        return []
    # Why not iterable, too: that it is none of ours is said further on.
    if isinstance(made, Keyed) or not isinstance(made, Iterable):
        return [made]
    return list(islice(made, MADE_MAX + 1))


def _encoded(one: object, tables: Sequence[BoundTable], function: str) -> Converted:
    if not isinstance(one, Keyed):
        problem = f"the function {function} gives {type(one).__name__}, and is to give Keyed(key, record)"
        raise InvalidRecordError(table=tables[0].name, problem=problem)
    table = next((table for table in tables if table.name == one.table), None if one.table else tables[0])
    if table is None:
        known = ", ".join(table.name for table in tables)
        problem = f"the function {function} makes a record of {one.table}, and may make some of {known}"
        raise InvalidRecordError(table=one.table, problem=problem)
    raw_key, raw_value = table.keys.encode(one.key), table.form.encode(one.record)
    entries = index_entries_of(table, one.key, one.record) if table.indexes else {}
    return Converted(table, one.key, raw_key, raw_value, entries)
