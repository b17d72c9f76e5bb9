"""A layout with its root's bytes known: everything that a store needs, compiled, and nothing that it may not know.

`bind_layout` turns a LayoutSpec and the values of its root's parameters into a BoundLayout; keys and entries are absolute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from keyplan.codec import SecretCipher, ValueForm
from keyplan.errors import CorruptionError, InvalidKeyError, UnknownNameError
from keyplan.layout.compile import CompiledKeys, compile_keys
from keyplan.layout.describe import layout_fingerprint
from keyplan.layout.entries import EntryMaker, compile_entries, pointer_slice
from keyplan.layout.meaning import Meaning, MeaningFinder
from keyplan.layout.record_encoder import RecordEncoder, compile_record_encoder
from keyplan.layout.sealing import TableSeal
from keyplan.layout.spec import CounterSpec, IndexSpec, ItemSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Template

__all__ = ["BoundCounter", "BoundIndex", "BoundLayout", "BoundTable", "IndexEntry", "bind_layout"]


@dataclass(frozen=True, eq=False)
class BoundTable:
    """A table with absolute keys. `indexes` are those that point at it, in the order declared; `cipher` seals its secrets."""

    spec: TableSpec
    keys: CompiledKeys
    form: ValueForm[Any]
    cipher: SecretCipher | None = None
    indexes: "tuple[BoundIndex, ...]" = field(default=(), init=False, repr=False)
    layout: "BoundLayout" = field(init=False, repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def seal(self) -> TableSeal | None:
        """How its secrets are written and opened; None for a table without secrets, whose values the form alone knows."""
        return self.sealed_by(self.cipher)

    def sealed_by(self, cipher: SecretCipher | None) -> TableSeal | None:
        """Return how its secrets are opened with these keys, whatever keys the table has itself; None without secrets."""
        if not self.form.secrets:
            return None
        named = self.layout.spec.sealed_as
        return TableSeal(named, self.name, self.keys, self.form, cipher, is_sealed=self.spec.is_sealed)

    @cached_property
    def encoded_record(self) -> "RecordEncoder[IndexEntry]":
        """The function of a key and a record that gives all bytes of the record; see keyplan.layout.record_encoder. Pure."""
        pointed = pointer_slice(self.spec, self.keys, self.layout.root)
        return compile_record_encoder(self.spec, self.keys, self.form, self.indexes, pointed, IndexEntry, self.seal)


@dataclass(frozen=True, eq=False)
class BoundIndex:
    """An index with absolute keys.

    `entries(key, record)` gives the raw keys and values of the entries that the record at a primary key should have; a pure
    function. For a unique index, `keys` are its whole keys; otherwise the primary key's fields come last in them.
    `primary_of(raw_key, raw_value)` is the primary key that an entry names, None when it names none.
    """

    spec: IndexSpec
    keys: CompiledKeys
    table: BoundTable
    entries: EntryMaker
    primary_of: Callable[[bytes, bytes], object | None]

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def possible_entries(self) -> EntryMaker:
        """`entries` for a record of another program: without those of items that the index refuses. Raises RecordError."""
        return compile_entries(
            self.spec, self.keys, self.table.spec, self.table.keys, self.table.layout.root, is_lenient=True
        )[0]

    def primary_key(self, raw_key: bytes, raw_value: bytes) -> object:
        """Return the primary key that an index entry points at. Raises CorruptionError when the entry does not decode."""
        key = self.primary_of(raw_key, raw_value)
        if key is None:
            raise CorruptionError(
                raw_key=raw_key.hex(), index=self.name, problem="the index entry does not name a primary key"
            )
        return key


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """An index entry that a record should have: its index and its raw value."""

    source: BoundIndex
    raw_value: bytes


@dataclass(frozen=True, eq=False)
class BoundCounter:
    """A counter with its absolute key. An absent counter stands at `start`."""

    spec: CounterSpec
    raw_key: bytes
    is_text: bool
    layout: "BoundLayout" = field(init=False, repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def start(self) -> int:
        return self.spec.start

    def encode(self, number: int) -> bytes:
        """The stored value of a counter whose next number is `number`."""
        return str(number).encode() if self.is_text else number.to_bytes(8, "big")

    def decode(self, raw: bytes) -> int:
        """Return the next number. Raises CorruptionError."""
        is_well_formed = raw.isdigit() and len(raw) <= 20 if self.is_text else len(raw) == 8
        if not is_well_formed:
            raise CorruptionError(
                raw_key=self.raw_key.hex(), counter=self.name, problem="the counter's value is not a number"
            )
        return int(raw) if self.is_text else int.from_bytes(raw, "big")


@dataclass(frozen=True, eq=False)
class BoundLayout:
    """A layout with its root's bytes known."""

    spec: LayoutSpec
    root: bytes
    tables: Mapping[str, BoundTable]
    indexes: Mapping[str, BoundIndex]
    counters: Mapping[str, BoundCounter]
    _finder: MeaningFinder

    @property
    def name(self) -> str:
        return self.spec.name

    def meaning(self, raw_key: bytes) -> Meaning:
        """Say what a raw key is. Never fails: what no template spells is unknown, with the nearest template."""
        return self._finder.find(raw_key)

    def meanings(self, raw_key: bytes) -> tuple[Meaning, ...]:
        """Return every record, index entry or counter that the key can be read as: more than one where lint finds L1."""
        return tuple(self._finder.all_meanings(raw_key))

    def table(self, name: str) -> BoundTable:
        """Return the table of that name. Raises UnknownNameError."""
        try:
            return self.tables[name]
        except KeyError:
            raise UnknownNameError(kind="table", name=name, known=list(self.tables), layout=self.name) from None

    @cached_property
    def has_secrets(self) -> bool:
        """True when records of one of its tables hold secrets."""
        return self.spec.has_secrets

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when the layout's bytes could: for page tokens and stored notes of the layout."""
        return layout_fingerprint(self.spec, self.root)


def bind_layout(
    spec: LayoutSpec, parameters: Mapping[str, object] | None = None, *, cipher: SecretCipher | None = None
) -> BoundLayout:
    """Compile `spec` under a root whose parameters have the given values (defaults for the others).

    `cipher` has the keys that secrets are sealed with; without one they are written in clear.
    Raises InvalidKeyError for a missing, unknown or unfit parameter.
    """
    root = _root_bytes(spec, parameters or {})
    root_template = spec.root.bound({**spec.parameters, **(parameters or {})})
    tables = {
        name: BoundTable(table, compile_keys(table.template.prefixed(root_template), table.key), table.form, cipher)
        for name, table in spec.tables.items()
    }
    indexes = {name: _bound_index(index, root_template, root, tables) for name, index in spec.indexes.items()}
    for table in tables.values():
        own = tuple(index for index in indexes.values() if index.table is table)
        object.__setattr__(table, "indexes", own)  # Why: table and index refer to each other; set once, here.
    counters = {
        name: BoundCounter(counter, root + counter.template.literal_bytes, spec.is_text)
        for name, counter in spec.counters.items()
    }
    compiled = {name: table.keys for name, table in tables.items()} | {
        name: index.keys for name, index in indexes.items()
    }
    items: dict[str, ItemSpec] = {item.name: item for item in spec.items}
    layout = BoundLayout(
        spec, root, tables, indexes, counters, MeaningFinder(spec.name, root, items, compiled, counters)
    )
    for part in (*tables.values(), *counters.values()):
        object.__setattr__(part, "layout", layout)  # Why: as above.
    return layout


def _root_bytes(spec: LayoutSpec, parameters: Mapping[str, object]) -> bytes:
    known = set(spec.root.field_names)
    for name in parameters:
        if name not in known:
            raise InvalidKeyError(layout=spec.name, problem=f"the root has no parameter {name!r}", known=sorted(known))
    values = {**spec.parameters, **parameters}
    missing = known - set(values)
    if missing:
        raise InvalidKeyError(layout=spec.name, problem="the root's parameter has no value", parameter=min(missing))
    return spec.root.bound(values).literal_bytes


def _bound_index(
    index: IndexSpec, root_template: Template, root: bytes, tables: Mapping[str, BoundTable]
) -> BoundIndex:
    table = tables[index.of]
    keys = compile_keys(index.template.prefixed(root_template), index.key)
    entries, primary_of = compile_entries(index, keys, table.spec, table.keys, root)
    return BoundIndex(index, keys, table, entries, primary_of)
