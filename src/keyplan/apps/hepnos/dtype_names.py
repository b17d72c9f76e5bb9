"""The names of numpy's types in the keys of products, and back.

A scalar is called as numpy calls it, `float32`, and a struct `struct{x:float32,y:struct{...}}`. Of its fields, `uint16[2][3]`
is 2 rows of 3, and `bytes24` and `str96` are texts of 3 bytes and of 3 characters.
"""

import re
from typing import Any, Final

import numpy as np

from keyplan.apps.hepnos.errors import TypeMismatchError

__all__ = ["dtype_name", "dtype_named"]

_TEXTS: Final = {"bytes": ("S", 8), "str": ("U", 32)}
_TEXT: Final = re.compile(r"(bytes|str)([1-9]\d{0,8})", re.ASCII)
_DIMENSIONS: Final = re.compile(r"(?P<element>.*?)(?P<sizes>(?:\[\d{1,9}\])+)", re.ASCII | re.DOTALL)
_IN_FIELDS: Final = frozenset("biufcmMSU")
_ALONE: Final = frozenset("biuf")
_FORBIDDEN: Final = frozenset("{},:[]")
_STRUCT: Final = "struct{"


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type. Raises TypeMismatchError for one that has padding, or no name that can be read back."""
    if dtype.subdtype is not None:
        element, sizes = dtype.subdtype
        return dtype_name(element) + "".join(f"[{size}]" for size in sizes)
    if dtype.names is None:
        if dtype.kind not in _IN_FIELDS or not dtype.itemsize:
            raise TypeMismatchError(type=dtype.name, problem="such elements have no fixed bytes that C++ shares")
        return dtype.name
    fields: Any = dtype.fields
    position, parts = 0, list[str]()
    for name in dtype.names:
        field, offset = fields[name][:2]
        if offset != position:
            raise TypeMismatchError(type=dtype.name, problem="it has padding: register a name for it, or pack it")
        if not name or _FORBIDDEN & set(name):
            raise TypeMismatchError(type=dtype.name, problem=f"the name of field {name!r} cannot be part of a type's")
        position += field.itemsize
        parts.append(f"{name}:{dtype_name(field)}")
    if position != dtype.itemsize or not position:
        raise TypeMismatchError(
            type=dtype.name, problem="it has padding, or nothing: register a name for it, or pack it"
        )
    return _STRUCT + ",".join(parts) + "}"


def dtype_named(name: str) -> np.dtype[Any] | None:
    """Return the little-endian type of a name that `dtype_name` gives to what is no field, or None."""
    found = _named(name, depth=0)
    return found if found is not None and (found.names is not None or found.kind in _ALONE) else None


_DEPTH_MAX: Final = 32
"""Why: a name comes from a key, and a reader of it must not be led to the end of its stack."""


def _named(name: str, *, depth: int) -> np.dtype[Any] | None:
    if depth > _DEPTH_MAX:
        return None
    try:
        if name.startswith(_STRUCT) and name.endswith("}"):
            return _struct(name[len(_STRUCT) : -1], depth=depth)
        if depth and (match := _DIMENSIONS.fullmatch(name)) is not None:
            element = _named(match["element"], depth=depth + 1)
            sizes = tuple(int(size) for size in re.findall(r"\d+", match["sizes"]))
            return None if element is None else np.dtype((element, sizes))
        if (text := _TEXT.fullmatch(name)) is not None:
            letter, bits = _TEXTS[text[1]]
            return np.dtype(f"<{letter}{int(text[2]) // bits}") if int(text[2]) % bits == 0 else None
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        return None
    return dtype.newbyteorder("<") if dtype.name == name and dtype.kind in _IN_FIELDS else None


def _struct(body: str, *, depth: int) -> np.dtype[Any] | None:
    fields: list[tuple[str, np.dtype[Any]]] = []
    for part in _parts(body):
        name, colon, kind = part.partition(":")
        dtype = _named(kind, depth=depth + 1)
        if not colon or dtype is None:
            return None
        fields.append((name, dtype))
    return np.dtype(fields)


def _parts(body: str) -> list[str]:
    """Return the fields of a struct: what commas part that stand in no struct within it."""
    parts, depth, begin = list[str](), 0, 0
    for at, character in enumerate(body):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append(body[begin:at])
            begin = at + 1
    return [*parts, body[begin:]]
