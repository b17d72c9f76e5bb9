"""From a record to its index entries, and from an index entry to its record's key: pure functions, compiled for each index.

`entries(key, record)` is what insert, update, delete, check and rebuild all ask.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from keyplan.errors import InvalidRecordError, LayoutError
from keyplan.layout.compile import CompiledKeys
from keyplan.layout.spec import Component, Condition, IndexSpec, Origin, TableSpec

__all__ = ["EntryMaker", "compile_entries"]

EntryMaker: TypeAlias = Callable[[object, object], tuple[tuple[bytes, bytes], ...]]
"""Raw keys and values of the index entries that a record at a primary key should have, each key once."""

_Getter: TypeAlias = Callable[[object, object], object]


def compile_entries(
    index: IndexSpec, keys: CompiledKeys, table: TableSpec, table_keys: CompiledKeys, root: bytes
) -> tuple[EntryMaker, Callable[[bytes, bytes], object | None]]:
    """Return the entry maker of an index, and the function that reads the primary key from an entry (None: it has none)."""
    if index.is_unique:
        pointer, primary_of = _pointers(table, table_keys, root)
    else:
        pointer, primary_of = _no_pointer, _primary_in_key(index, keys, table)
    tuples = _tuples(index, table)
    encode = keys.encode
    is_scalar = index.key.is_scalar

    def entries(key: object, record: object) -> tuple[tuple[bytes, bytes], ...]:
        found = tuples(key, record)
        if not found:
            return ()
        value = pointer(key)
        made = {encode(fields[0] if is_scalar else fields): value for fields in found}
        return tuple(made.items())

    return entries, primary_of


def _no_pointer(_key: object) -> bytes:
    return b""


def _pointers(
    table: TableSpec, table_keys: CompiledKeys, root: bytes
) -> tuple[Callable[[object], bytes], Callable[[bytes, bytes], object | None]]:
    """How a unique entry's value names the primary key: its one field's bytes, or the record's key below the root."""
    encode, decode = table_keys.encode, table_keys.decode
    if table.key.is_scalar:
        prefix = encode_prefix(table_keys)
        suffix = encode_suffix(table_keys)
        start, stop = len(prefix), -len(suffix) or None
        return (lambda key: encode(key)[start:stop]), (lambda _raw, value: decode(prefix + value + suffix))
    return (lambda key: encode(key)[len(root) :]), (lambda _raw, value: decode(root + value))


def encode_prefix(keys: CompiledKeys) -> bytes:
    """The literal bytes before the first field."""
    return keys.prefix(())


def encode_suffix(keys: CompiledKeys) -> bytes:
    """The literal bytes after the only field."""
    last = keys.template.parts[-1]
    return getattr(last, "raw", b"")


def _primary_in_key(index: IndexSpec, keys: CompiledKeys, table: TableSpec) -> Callable[[bytes, bytes], object | None]:
    names = keys.template.field_names
    places = [names.index(name) for name in table.template.field_names]
    make, is_scalar, decode = table.key.make, table.key.is_scalar, keys.decode

    def primary_of(raw_key: bytes, _value: bytes) -> object | None:
        fields = decode(raw_key)
        if fields is None:
            return None
        split = index.key.split(fields)
        return split[places[0]] if is_scalar else make(*(split[place] for place in places))

    return primary_of


# ---- the fields of the entries ----------------------------------------------------------------------------------------


def _tuples(index: IndexSpec, table: TableSpec) -> Callable[[object, object], list[tuple[object, ...]]]:
    """The function from primary key and record to the field values of the entries."""
    if index.function is not None:
        return _function_tuples(index, table)
    if all(component.origin is not Origin.FUNCTION for component in index.components):
        return _declared_tuples(index, table)

    def unknown(_key: object, _record: object) -> list[tuple[object, ...]]:
        raise LayoutError(
            index=index.name,
            problem="the index is made by a Python function that a layout description does not carry; use the class",
        )

    return unknown


def _declared_tuples(index: IndexSpec, table: TableSpec) -> Callable[[object, object], list[tuple[object, ...]]]:
    read = _reader_of(table)
    holds = [_condition(condition, read) for condition in index.when]
    getters = [_getter(component, table, read) for component in index.components]
    fan_paths = {component.path for component in index.components if component.origin is Origin.EACH}
    if not fan_paths:

        def single(key: object, record: object) -> list[tuple[object, ...]]:
            if not all(test(record) for test in holds):
                return []
            fields = tuple([get(key, record) for get in getters])
            return [] if None in fields else [fields]

        return single

    (path,) = fan_paths  # Invariant: declare.py refuses an index that fans out over two collections.
    pickers = [
        (number, _picker(component))
        for number, component in enumerate(index.components)
        if component.origin is Origin.EACH
    ]

    def fanned(key: object, record: object) -> list[tuple[object, ...]]:
        if not all(test(record) for test in holds):
            return []
        fields = [get(key, record) for get in getters]
        found: list[tuple[object, ...]] = []
        for item in _items(read(record, path)):
            for number, pick in pickers:
                fields[number] = pick(item)
            if None not in fields:
                found.append(tuple(fields))
        return found

    return fanned


def _function_tuples(index: IndexSpec, table: TableSpec) -> Callable[[object, object], list[tuple[object, ...]]]:
    function = index.function
    assert function is not None
    read = _reader_of(table)
    getters = [_getter(component, table, read) for component in index.components]
    own = [number for number, component in enumerate(index.components) if component.origin is Origin.FUNCTION]

    def called(key: object, record: object) -> list[tuple[object, ...]]:
        returned = function(key, record)
        if returned is None:
            return []
        found = []
        for answer in returned if isinstance(returned, (list, set, frozenset)) else [returned]:
            fields = [get(key, record) for get in getters]
            values = answer if isinstance(answer, tuple) else (answer,)
            if len(values) != len(own):
                raise InvalidRecordError(
                    index=index.name, problem=f"the index's function returned {len(values)} fields, not {len(own)}"
                )
            for number, value in zip(own, values, strict=True):
                fields[number] = value
            if None not in fields:
                found.append(tuple(fields))
        return found

    return called


def _getter(component: Component, table: TableSpec, read: Callable[[object, str], object]) -> _Getter:
    match component.origin:
        case Origin.KEY:
            if table.key.is_scalar:
                return lambda key, _record: key
            place = table.template.field_names.index(component.path)
            return lambda key, _record: key[place]  # type: ignore[index]  # Why: a NamedTuple.
        case Origin.RECORD:
            return lambda _key, record: read(record, component.path)
        case Origin.EACH | Origin.FUNCTION:
            return lambda _key, _record: ""  # Why: a place holder that is filled in for each entry.


def _condition(condition: Condition, read: Callable[[object, str], object]) -> Callable[[object], bool]:
    if condition.is_equal:
        return lambda record: read(record, condition.path) == condition.constant
    return lambda record: read(record, condition.path) != condition.constant


def _picker(component: Component) -> Callable[[Any], object]:
    part = component.item
    if part is None:
        return lambda item: item
    if isinstance(part, int):
        return lambda item: item[part]
    return lambda item: item.get(part) if isinstance(item, Mapping) else getattr(item, part)


def _items(collection: object) -> Iterable[Any]:
    """The members to fan out over: none of None, pairs of a mapping."""
    if collection is None:
        return ()
    return collection.items() if isinstance(collection, Mapping) else collection  # type: ignore[return-value]


def _reader_of(table: TableSpec) -> Callable[[object, str], object]:
    """How a path is read from a record: by attribute, or by item when records are mappings. None anywhere gives None."""
    is_mapping = issubclass(table.form.value_type, Mapping)

    def read(record: Any, path: str) -> object:
        if path == "":
            return record
        for name in path.split("."):
            if record is None:
                return None
            record = record.get(name) if is_mapping or isinstance(record, Mapping) else getattr(record, name)
        return record

    return read
