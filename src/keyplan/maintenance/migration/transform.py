"""What a stored record of the old layout is in the new one: its raw key, its raw value, its index entries. Pure."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from keyplan.codec import POSITIONAL_NAMES
from keyplan.engine import Entry
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidRecordError, RecordError
from keyplan.layout import BoundTable
from keyplan.store import IndexEntry, index_entries_of

__all__ = ["UNREADABLE", "Conversion", "Converted", "Converter", "described_conversions"]

UNREADABLE = (CorruptionError, RecordError)
"""What a record raises that cannot be carried over."""


@dataclass(frozen=True)
class Conversion:
    """A function from a record of the old layout to one of the new: pure, and the same every time.

    `name` and `version` stand for it in the store: raise the version when its answers change.
    """

    function: Callable[[Any], Any]
    name: str
    version: int = 1

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def described_conversions(conversions: Mapping[str, Conversion]) -> str:
    """The conversions as one text, for the migration's id."""
    return ",".join(f"{table}={conversion}" for table, conversion in sorted(conversions.items()))


class Converted(NamedTuple):
    """A record in the new layout."""

    key: object
    raw_key: bytes
    raw_value: bytes
    index_entries: Mapping[bytes, IndexEntry]


class Converter:
    """Converts the records of one table. `labels`: new field names with the old ones of the same field.

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

    def converted(self, entry: Entry) -> Converted:
        """Return the record in the new layout. Raises what is in UNREADABLE, and what the conversion raises."""
        key, raw_key = self.new_key(entry.key)
        record = self._record(entry.value)
        raw_value = self.new.form.encode(record) if self.has_other_values else entry.value
        self._refuse_moved_secrets(entry, key, raw_value)
        return Converted(key, raw_key, raw_value, index_entries_of(self.new, key, record) if self.new.indexes else {})

    def _refuse_moved_secrets(self, entry: Entry, key: object, raw_value: bytes) -> None:
        """Raise InvalidRecordError for a sealed secret that would come to stand where it does not open."""
        old, new = self.old.seal, self.new.seal
        if new is None:
            return
        places = {} if old is None else old.sealed_places(self.old.keys.decode(entry.key), entry.value)
        for envelope, found in new.sealed_places(key, raw_value).items():
            if places.get(envelope) != found:
                problem = "a sealed secret would come to another table, field or key, for which it was not sealed"
                raise InvalidRecordError(table=self.new.name, problem=problem)

    def stored_entries(self, entry: Entry) -> Mapping[bytes, IndexEntry]:
        """The index entries that a record of the new table has, as it is stored; none when it cannot be read."""
        if not self.new.indexes:
            return {}
        try:
            key = self.new.keys.decode(entry.key)
            return _stored_entries(self.new, key, self.new.form.decode(entry.value))
        except CorruptionError:
            return {}

    def old_entries(self, entry: Entry) -> Mapping[bytes, IndexEntry]:
        """The index entries that a record of the old table has, as it is stored; none when it cannot be read."""
        if not self.old.indexes:
            return {}
        try:
            key = self.old.keys.decode(entry.key)
            return _stored_entries(self.old, key, self.old.form.decode(entry.value))
        except CorruptionError:
            return {}

    def _record(self, raw_value: bytes) -> Any:
        if not self.has_other_values:
            # Why: the bytes stay, and the new type reads them.
            return self.new.form.decode(raw_value)
        record = self.old.form.decode(raw_value)
        if self._conversion is not None:
            try:
                return self._conversion.function(record)
            except Exception as error:
                # Why not its message: it may quote the record.
                problem = f"the function raised {type(error).__name__}"
                raise InvalidRecordError(table=self.new.name, problem=problem) from error
        kind = self.new.form.value_type
        try:
            if kind is Any or isinstance(record, kind):
                return record
        except TypeError:
            pass  # Why: a type such as dict[str, int] is no class to compare with.
        try:
            if self._is_positional:
                return self._by_names(record)
            return msgspec.convert(msgspec.to_builtins(record), kind)
        except (msgspec.ValidationError, TypeError) as error:
            problem = "the new type does not take the record as it is: name a function that converts it"
            raise InvalidRecordError(table=self.new.name, problem=problem) from error

    def _by_names(self, record: Any) -> Any:
        """The record by its fields' names. Why: what is stored as an array would be carried over by its places."""
        if isinstance(record, list | dict):
            problem = "records are stored as arrays: name the class of the old layout, or a function that converts them"
            raise InvalidRecordError(table=self.new.name, problem=problem)
        return msgspec.convert(record, self.new.form.value_type, from_attributes=True)


def _stored_entries(table: BoundTable, key: object, record: object) -> Mapping[bytes, IndexEntry]:
    """The entries that a stored record can have: none of an index that its fields do not fit, as another program left it."""
    index_entries: dict[bytes, IndexEntry] = {}
    for index in table.indexes:
        with suppress(RecordError):
            index_entries.update(
                (raw_key, IndexEntry(index, raw_value)) for raw_key, raw_value in index.entries(key, record)
            )
    return index_entries
