"""Keys that stand in values: which parts of a stored value they are, and how they are replaced without touching the rest.

A value that names another entry by its whole key is right below one prefix only. A table says so, `holds_keys=("next",)`, and a
restore below another prefix rewrites it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from keyplan.codec import ElementForm, JsonForm, MsgpackForm, RawForm, TextForm, ValueForm
from keyplan.errors import CorruptionError, LayoutError
from keyplan.layout.spec import EmbeddedKey, TableSpec

__all__ = ["embedded_keys_of", "rewrite_embedded_keys"]

Move = Callable[[bytes], bytes]

_CODECS: Final[dict[str, Any]] = {JsonForm.code: msgspec.json, MsgpackForm.code: msgspec.msgpack}
"""By the form's name, which a form that came with a description has as well."""

_WHOLE: Final = frozenset({RawForm.code, TextForm.code, ElementForm.code})


def embedded_keys_of(paths: Sequence[str], form: ValueForm[Any], item: str) -> tuple[EmbeddedKey, ...]:
    """Return where the keys stand in stored values. A path is an attribute, dotted for nested ones; "" is the whole value.

    An attribute holds one key, as text or bytes, or a list, set or mapping with keys as values; None is no key. Raises
    LayoutError for an attribute that records do not have, and for a form whose values cannot be rewritten in part.
    """
    return tuple(_embedded_key(path, form, item) for path in paths)


def _embedded_key(path: str, form: ValueForm[Any], item: str) -> EmbeddedKey:
    if isinstance(form, RawForm | TextForm | ElementForm) and form.value_type in (str, bytes):
        if path:
            raise LayoutError(item=item, field=path, problem="values without attributes hold a key as a whole: ''")
        return EmbeddedKey(())
    if form.code not in _CODECS:
        raise LayoutError(item=item, field=path, problem=f"keys in values of the form {form.code} cannot be rewritten")
    kind: object = form.value_type
    names: list[str] = []
    for name in path.split(".") if path else ():
        attributes = dict(_attributes(kind))
        if attributes and name not in attributes:
            raise LayoutError(
                item=item, field=path, problem=f"records have no attribute {name!r}", known=sorted(attributes)
            )
        stored_name, kind = attributes.get(name, (name, object))
        names.append(stored_name)
    is_bytes = any(part is bytes for part in _parts(kind))
    return EmbeddedKey(tuple(names), is_base64=is_bytes and form.code == JsonForm.code)


def _attributes(kind: object) -> Iterator[tuple[str, tuple[str, object]]]:
    """Attributes with the names that they are stored under, and their types; nothing where the type does not say."""
    members = [member for member in get_args(kind) if member is not type(None)]
    if get_origin(kind) is not None and not isinstance(kind, type) and len(members) == 1:
        yield from _attributes(members[0])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__struct_config__.array_like:
            raise LayoutError(
                item=kind.__name__, problem="keys in records that are stored as arrays cannot be rewritten"
            )
        yield from ((field.name, (field.encode_name, field.type)) for field in msgspec.structs.fields(kind))
    elif isinstance(kind, type) and hasattr(kind, "__annotations__"):
        yield from ((name, (name, hint)) for name, hint in get_type_hints(kind).items())


def _parts(kind: object) -> Iterator[object]:
    """A type and those inside it: of `list[bytes] | None` also bytes."""
    yield kind
    for inner in get_args(kind):
        yield from _parts(inner)


def rewrite_embedded_keys(table: TableSpec, raw_value: bytes, move: Move) -> bytes:
    """Return the stored value with `move(key)` for each key in it; everything else stays, byte for byte where it can.

    Fields that the record's class does not know are kept. Raises CorruptionError when the value is not of its form, and for a
    form whose values cannot be rewritten.
    """
    for held in table.holds_keys:
        codec = _CODECS.get(table.form.code)
        if codec is None and table.form.code not in _WHOLE:
            problem = f"keys in values of the form {table.form.code} cannot be rewritten"
            raise CorruptionError(problem=problem, table=table.name)
        if codec is None:
            raw_value = move(raw_value)
            table.form.decode(raw_value)
            continue
        try:
            raw_value = _rewritten(raw_value, held.path, held, codec, move)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CorruptionError(problem="the value is not what its form says", table=table.name) from error
    return raw_value


def _rewritten(raw: bytes, path: tuple[str, ...], held: EmbeddedKey, codec: Any, move: Move) -> bytes:
    if not path:
        before = codec.decode(raw)
        after = _moved(before, held, move)
        return raw if after == before else codec.encode(after)
    fields: Any = codec.decode(raw, type=dict[str, msgspec.Raw] | list[msgspec.Raw] | None)
    if isinstance(fields, list):
        parts = [_rewritten(bytes(part), path, held, codec, move) for part in fields]
        is_same = parts == [bytes(part) for part in fields]
        return raw if is_same else codec.encode([msgspec.Raw(part) for part in parts])
    if fields is None or path[0] not in fields:
        return raw
    before = bytes(fields[path[0]])
    after = _rewritten(before, path[1:], held, codec, move)
    return raw if after == before else codec.encode({**fields, path[0]: msgspec.Raw(after)})


def _moved(value: object, held: EmbeddedKey, move: Move) -> object:
    match value:
        case bytes():
            return move(value)
        case str():
            if held.is_base64:
                return msgspec.to_builtins(move(msgspec.convert(value, bytes)))
            return _text(move(value.encode()))
        case list():
            return [_moved(part, held, move) for part in value]
        case dict():
            return {name: _moved(part, held, move) for name, part in value.items()}
        case _:
            return value


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(
            problem="a key that is kept as text would be none below a prefix that is not UTF-8"
        ) from error
