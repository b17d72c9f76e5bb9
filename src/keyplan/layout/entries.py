"""From a record to its index entries, and from an index entry to its record's key: pure functions, compiled for each index.

`entries(key, record)` is what insert, update, delete, check and rebuild all ask.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, get_origin

from keyplan.errors import InvalidRecordError, KeyplanError, LayoutError, RecordError
from keyplan.layout.compile import CompiledKeys
from keyplan.layout.generated import REFUSALS, generated_function, key_expression
from keyplan.layout.spec import Component, IndexSpec, Origin, TableSpec

__all__ = [
    "NOT_OF_CODE",
    "EntryMaker",
    "compile_entries",
    "members",
    "picker",
    "pointer_slice",
    "read_expression",
    "reader_of",
    "refused_by_code",
]

EntryMaker: TypeAlias = Callable[[object, object], tuple[tuple[bytes, bytes], ...]]
"""Raw keys and values of the index entries that a record at a primary key should have, each key once."""

NOT_OF_CODE: Final = (KeyplanError, MemoryError)
"""What passes through as it is: our own errors, and one that says nothing of the record."""

_Getter: TypeAlias = Callable[[object, object], object]


def compile_entries(
    index: IndexSpec,
    keys: CompiledKeys,
    table: TableSpec,
    table_keys: CompiledKeys,
    root: bytes,
    *,
    is_lenient: bool = False,
) -> tuple[EntryMaker, Callable[[bytes, bytes], object | None]]:
    """Return the entry maker of an index, and the function that reads the primary key from an entry (None: it has none).

    A lenient maker leaves out what the index's keys cannot spell; it raises only what a function of the application refuses.
    """
    if index.is_unique:
        pointer, primary_of = _pointers(table, table_keys, root)
    else:
        pointer, primary_of = _no_pointer, _primary_in_key(keys, table)
    if index.function is None and all(component.origin is not Origin.FUNCTION for component in index.components):
        return _declared_entries(index, keys, table, pointer, is_lenient=is_lenient), primary_of
    tuples = _function_tuples(index, table) if index.function is not None else _unknown_tuples(index)
    encode = keys.encode
    is_scalar = index.key.is_scalar

    def entries(key: object, record: object) -> tuple[tuple[bytes, bytes], ...]:
        found = tuples(key, record)
        if not found:
            return ()
        value = pointer(key)
        made: dict[bytes, bytes] = {}
        for fields in found:
            try:
                made[encode(fields[0] if is_scalar else fields)] = value
            except RecordError:
                if not is_lenient:
                    raise
        return tuple(made.items())

    return entries, primary_of


def _no_pointer(_key: object) -> bytes:
    return b""


def pointer_slice(table: TableSpec, table_keys: CompiledKeys, root: bytes) -> slice:
    """Which part of a raw primary key a unique entry holds: its one field's bytes, or the record's key below the root."""
    if table.key.is_scalar:
        return slice(len(encode_prefix(table_keys)), -len(encode_suffix(table_keys)) or None)
    return slice(len(root), None)


def _pointers(
    table: TableSpec, table_keys: CompiledKeys, root: bytes
) -> tuple[Callable[[object], bytes], Callable[[bytes, bytes], object | None]]:
    """How a unique entry's value is made of the primary key, and read; see `pointer_slice`."""
    encode, decode = table_keys.encode, table_keys.decode
    part = pointer_slice(table, table_keys, root)
    before, after = (encode_prefix(table_keys), encode_suffix(table_keys)) if table.key.is_scalar else (root, b"")
    return (lambda key: encode(key)[part]), (lambda _raw, value: decode(before + value + after))


def encode_prefix(keys: CompiledKeys) -> bytes:
    """The literal bytes before the first field."""
    return keys.prefix(())


def encode_suffix(keys: CompiledKeys) -> bytes:
    """The literal bytes after the only field."""
    last = keys.template.parts[-1]
    return getattr(last, "raw", b"")


def _primary_in_key(keys: CompiledKeys, table: TableSpec) -> Callable[[bytes, bytes], object | None]:
    # Invariant: the key of such an entry is a tuple, and the primary key's fields come last in it, in order.
    own = len(keys.template.field_names) - len(table.template.field_names)
    make, is_scalar, decode = table.key.make, table.key.is_scalar, keys.decode

    def primary_of(raw_key: bytes, _value: bytes) -> object | None:
        fields: Any = decode(raw_key)
        if fields is None:
            return None
        return fields[own] if is_scalar else make(*fields[own:])

    return primary_of


# ---- declared entries: one generated function for each index ------------------------------------------------------------


def _declared_entries(
    index: IndexSpec,
    keys: CompiledKeys,
    table: TableSpec,
    pointer: Callable[[object], bytes],
    *,
    is_lenient: bool,
) -> EntryMaker:
    """Why generated: a function for each field and condition takes four times as long, and every write asks every index."""
    scope: dict[str, object] = {"encode": keys.encode, "pointer": pointer, "read": reader_of(table), "items": members}
    names = keys.template.field_names
    lines = []
    for number, condition in enumerate(index.when):
        scope[f"constant{number}"] = condition.constant
        holds = "==" if condition.is_equal else "!="
        lines.append(f"if not {read_expression(table, condition.path)} {holds} constant{number}: return ()")
    own = [
        (f"f_{name}", _component_expression(component, table))
        for name, component in zip(names, index.components, strict=True)
        if component.origin is not Origin.EACH
    ]
    lines += [f"{variable} = {expression}" for variable, expression in own]
    if own:
        lines.append(f"if {' or '.join(f'{variable} is None' for variable, _ in own)}: return ()")
    fan_paths = {component.path for component in index.components if component.origin is Origin.EACH}
    encoded = _encoding_lines(keys, index, scope)
    if is_lenient:
        scope["unfit"] = RecordError
        otherwise = "continue" if fan_paths else "return ()"
        encoded = ["try:", *("    " + line for line in encoded), f"except unfit: {otherwise}"]
    value = "pointer(key)" if index.is_unique else "b''"
    if not fan_paths:
        lines += [*encoded, f"return ((raw, {value}),)"]
    else:
        (path,) = fan_paths  # Invariant: declare.py refuses an index that fans out over two collections.
        lines += [f"value = {value}", "made = {}"]
        lines.append(f"found = {read_expression(table, path)}")
        lines.append("for item in found if found.__class__ is list else items(found):")
        for name, component in zip(names, index.components, strict=True):
            if component.origin is Origin.EACH:
                scope[f"pick_{name}"] = picker(component)
                picked = "item" if component.item is None else f"pick_{name}(item)"
                lines += [f"    f_{name} = {picked}", f"    if f_{name} is None: continue"]
        lines += ["    " + line for line in encoded]
        lines += ["    made[raw] = value", "return tuple(made.items())"]
    body = "\n".join("        " + line for line in lines)
    ends = "    except ours: raise\n    except Exception as error: raise refused(error, key) from error\n"
    scope |= {"ours": NOT_OF_CODE, "refused": partial(refused_by_code, table.name, index.name)}
    return generated_function("entries", f"def entries(key, record):\n    try:\n{body}\n{ends}", scope)


def _encoding_lines(keys: CompiledKeys, index: IndexSpec, scope: dict[str, object]) -> list[str]:
    """Statements that make `raw` of the fields: in place where they are usual, else by the key's own function."""
    fields = ", ".join(f"f_{name}" for name in keys.template.field_names)
    whole = f"encode({fields if index.key.is_scalar else f'({fields},)' if fields else '()'})"
    expression = key_expression(keys.template)
    if expression is None:
        return [f"raw = {whole}"]
    scope.update(expression.names, refusals=REFUSALS)
    return [
        f"try: raw = {expression.raw} if {expression.check} else None",
        "except refusals: raw = None",
        f"if raw is None: raw = {whole}",
    ]


def _component_expression(component: Component, table: TableSpec) -> str:
    if component.origin is Origin.RECORD:
        return read_expression(table, component.path)
    return "key" if table.key.is_scalar else f"key[{table.template.field_names.index(component.path)}]"


def read_expression(table: TableSpec, path: str) -> str:
    """What stands at a path of `record`: an attribute in place where records are sure to have attributes."""
    first, _, rest = path.partition(".")
    kind = table.form.value_type
    if path == "":
        return "record"
    if not isinstance(kind, type) or kind is Any or kind is object or issubclass(kind, Mapping):
        return f"read(record, {path!r})"
    return f"read(record.{first}, {rest!r})" if rest else f"record.{first}"


# ---- entries that a function gives ------------------------------------------------------------------------------------


def _unknown_tuples(index: IndexSpec) -> Callable[[object, object], list[tuple[object, ...]]]:
    def unknown(_key: object, _record: object) -> list[tuple[object, ...]]:
        raise LayoutError(
            index=index.name,
            problem="the index is made by a Python function that a layout description does not carry; use the class",
        )

    return unknown


def _function_tuples(index: IndexSpec, table: TableSpec) -> Callable[[object, object], list[tuple[object, ...]]]:
    function = index.function
    assert function is not None
    read = reader_of(table)
    getters = [_getter(component, table, read) for component in index.components]
    own = [number for number, component in enumerate(index.components) if component.origin is Origin.FUNCTION]

    def called(key: object, record: object) -> list[tuple[object, ...]]:
        try:
            returned = function(key, record)
        except MemoryError:
            raise
        except Exception as error:
            # Why not its text: it may quote the record.
            problem = f"the index's function raised {type(error).__name__}"
            raise InvalidRecordError(
                table=table.name, key=key, index=index.name, function=function_name(function), problem=problem
            ) from error
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


def refused_by_code(table: str, index: str | None, error: Exception, key: object) -> InvalidRecordError:
    """Return the error in the place of one of the application's code. Why not its text: it may quote the record."""
    facts = {} if index is None else {"index": index}
    problem = f"the record's own code raised {type(error).__name__} when its index fields were read"
    return InvalidRecordError(table=table, key=key, **facts, problem=problem)


def function_name(function: Callable[..., object]) -> str:
    """The name by which a function of the application is found in its source."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{name}"


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


def picker(component: Component) -> Callable[[Any], object]:
    """Return how a field's value is taken from an item that is fanned out over."""
    part = component.item
    if part is None:
        return lambda item: item
    if isinstance(part, int):
        return lambda item: item[part]
    return lambda item: item.get(part) if isinstance(item, Mapping) else getattr(item, part)


def members(collection: object) -> Iterable[Any]:
    """The members to fan out over: none of None, pairs of a mapping."""
    if collection is None:
        return ()
    return collection.items() if isinstance(collection, Mapping) else collection  # type: ignore[return-value]


def reader_of(table: TableSpec) -> Callable[[object, str], object]:
    """How a path is read from a record: by attribute, or by item when records are mappings. None anywhere gives None."""
    kind = get_origin(table.form.value_type) or table.form.value_type
    is_mapping = isinstance(kind, type) and issubclass(kind, Mapping)

    def read(record: Any, path: str) -> object:
        if path == "":
            return record
        for name in path.split("."):
            if record is None:
                return None
            record = record.get(name) if is_mapping or isinstance(record, Mapping) else getattr(record, name)
        return record

    return read
