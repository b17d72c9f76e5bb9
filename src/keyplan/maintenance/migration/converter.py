"""Records whose key fields stay: what a stored record of the old layout is in the new one. Pure."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from keyplan.codec import POSITIONAL_NAMES
from keyplan.engine import Entry
from keyplan.errors import InvalidKeyError, InvalidRecordError
from keyplan.layout import BoundTable
from keyplan.maintenance.migration.functions import Conversion, Converted, called
from keyplan.maintenance.migration.route import refuse_moved_secrets, stored_entries
from keyplan.store import IndexEntry, index_entries_of

__all__ = ["Converter"]


class Converter:
    """The `Route` of one table's records, each of which becomes one.

    `labels`: new field names with the old ones of the same field.

    `kept_indexes`: old indexes of the table whose entries the new layout has as well. `keeps_keys`: raw keys stay, though the
    fields may have other types.
    """

    def __init__(
        self,
        old: BoundTable,
        new: BoundTable,
        labels: Mapping[str, str],
        *,
        has_other_values: bool,
        conversion: Conversion | None,
        kept_indexes: Collection[str] = (),
        keeps_keys: bool = False,
    ) -> None:
        self.old, self.new = old, new
        names = old.keys.template.field_names
        self._places = [names.index(labels[name]) for name in new.keys.template.field_names]
        self._old_places = [self._places.index(place) for place in range(len(names))]
        self.has_other_values = has_other_values or conversion is not None
        self._conversion = conversion
        self.kept_indexes = frozenset(kept_indexes)
        self._keeps_keys = keeps_keys
        self._is_positional = any(
            POSITIONAL_NAMES in str(form.describe().get("schema")) for form in (old.form, new.form)
        )

    def new_key(self, raw_key: bytes) -> tuple[object, bytes]:
        """Return the new key of the record at an old raw key, and its bytes. Raises InvalidKeyError when it has none."""
        if self._keeps_keys:
            key = self.new.keys.decode(raw_key)
            if key is None:
                raise InvalidKeyError(template=self.new.keys.template.source, problem="no key of the new layout")
            return key, raw_key
        shape = self.new.keys.shape
        values = self.old.keys.shape.split(self.old.keys.decode(raw_key))
        fields = [values[place] for place in self._places]
        key = fields[0] if shape.is_scalar else shape.make(*fields)
        return key, self.new.keys.encode(key)

    def old_key(self, key: object) -> bytes:
        """Return the old raw key of the record at a new key. Raises InvalidKeyError when it has none."""
        shape = self.old.keys.shape
        values = self.new.keys.shape.split(key)
        fields = [values[place] for place in self._old_places]
        return self.old.keys.encode(fields[0] if shape.is_scalar else shape.make(*fields))

    # ---- as a route --------------------------------------------------------------------------------------------------------

    @property
    def item(self) -> str:
        """The table's name in the new layout."""
        return self.new.name

    @property
    def sources(self) -> tuple[BoundTable, ...]:
        """The old table."""
        return (self.old,)

    @property
    def targets(self) -> tuple[BoundTable, ...]:
        """The new table."""
        return (self.new,)

    @property
    def keeps_origins(self) -> bool:
        """Whether the store has to say of which unit a record was made: it can be computed."""
        return False

    def unit_of(self, raw_key: bytes) -> bytes | None:
        """The unit of a record: itself."""
        return None if self.old.keys.decode(raw_key) is None else raw_key

    def source_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """The record's own key."""
        return (unit,)

    def likely_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """The new key. Raises InvalidKeyError when the record has none."""
        return (self.new_key(unit)[1],)

    def stays(self, unit: bytes) -> bool:
        """Whether the record keeps its key. Raises InvalidKeyError when it has none."""
        return self.new_key(unit)[1] == unit

    def origin_of(self, table: BoundTable, key: object) -> bytes:
        """The old raw key of the record at a new key. Raises InvalidKeyError when it has none."""
        assert table is self.new
        return self.old_key(key)

    def made(self, records: Sequence[Entry | None]) -> tuple[Converted, ...]:
        """The record in the new layout. Raises what is in UNREADABLE."""
        (entry,) = records
        return () if entry is None else (self.converted(entry),)

    def old_entries(self, records: Sequence[Entry | None]) -> Mapping[bytes, IndexEntry]:
        """The index entries that the old record has, as it is stored; none when it cannot be read."""
        (entry,) = records
        return {} if entry is None else stored_entries(self.old, entry)

    @property
    def has_inverse(self) -> bool:
        """Whether new records can be taken back: without a function, each is tried."""
        return self._conversion is None or self._conversion.inverse is not None

    def taken_back(self, entry: Entry) -> tuple[Converted, ...]:
        """The old record of which this new one is made. Raises what is in UNREADABLE."""
        key = self.new.keys.decode(entry.key)
        raw_key = self.old_key(key)
        record = self._old_record(entry.value)
        raw_value = self.old.form.encode(record) if self.has_other_values else entry.value
        old_key = self.old.keys.decode(raw_key)
        refuse_moved_secrets([(self.new, entry)], self.old, old_key, raw_value)
        entries = index_entries_of(self.old, old_key, record) if self.old.indexes else {}
        return (Converted(self.old, old_key, raw_key, raw_value, entries),)

    def _old_record(self, raw_value: bytes) -> Any:
        if not self.has_other_values:
            return self.old.form.decode(raw_value)
        record = self.new.form.decode(raw_value)
        if self._conversion is not None:
            assert self._conversion.inverse is not None
            return called(self.old.name, partial(self._conversion.inverse, record))
        return self._as(self.old, record)

    # ---- one record --------------------------------------------------------------------------------------------------------

    def converted(self, entry: Entry) -> Converted:
        """Return the record in the new layout. Raises what is in UNREADABLE, and what the conversion raises."""
        key, raw_key = self.new_key(entry.key)
        record = self._record(entry.value)
        raw_value = self.new.form.encode(record) if self.has_other_values else entry.value
        refuse_moved_secrets([(self.old, entry)], self.new, key, raw_value)
        entries = index_entries_of(self.new, key, record) if self.new.indexes else {}
        return Converted(self.new, key, raw_key, raw_value, entries)

    def _record(self, raw_value: bytes) -> Any:
        if not self.has_other_values:
            # Why: the bytes stay, and the new type reads them.
            return self.new.form.decode(raw_value)
        record = self.old.form.decode(raw_value)
        if self._conversion is not None:
            return called(self.new.name, partial(self._conversion.function, record))
        return self._as(self.new, record)

    def _as(self, table: BoundTable, record: Any) -> Any:
        """The record as one of another type, where the types say how."""
        kind = table.form.value_type
        try:
            if kind is Any or isinstance(record, kind):
                return record
        except TypeError:
            pass  # Why: a type such as dict[str, int] is no class to compare with.
        try:
            if self._is_positional:
                return self._by_names(table, record)
            return msgspec.convert(msgspec.to_builtins(record), kind)
        except (msgspec.ValidationError, TypeError) as error:
            problem = f"the type of {table.name} does not take the record as it is: name a function that converts it"
            raise InvalidRecordError(table=table.name, problem=problem) from error

    @staticmethod
    def _by_names(table: BoundTable, record: Any) -> Any:
        """The record by its fields' names. Why: what is stored as an array would be carried over by its places."""
        if isinstance(record, list | dict):
            problem = "records are stored as arrays: name the class of the old layout, or a function that converts them"
            raise InvalidRecordError(table=table.name, problem=problem)
        return msgspec.convert(record, table.form.value_type, from_attributes=True)
