"""The types of products: a stable name, which is part of the product's key, and the bytes of its values.

    float32, int64, bool, ...             a numpy scalar: little-endian, as many bytes as it has
    struct{x:float32,hits:uint16[3]}      a structured scalar: its fields packed one after the other; [3]: so many in a row,
                                          [2][3] of them rows; a field may be a struct, and bytes24 is text of 3 bytes
    vector<T>                             u64 count, then the elements; T one of the above
    table<T>                              rows with text, lists or options in them: see `table_values.py`
    str, vector<str>                      u64 length and UTF-8 bytes; u64 count and such strings
    bytes, json                           as they are; JSON
    module:Name, vector<module:Name>      a dataclass or msgspec Struct, or its registered name: msgpack
    ref, vector<ref>                      a reference to a product, by itself; a column of them: `column_types.py`

Numbers are little-endian. These are the bytes of the C++ program for plain data, vectors of it, strings and vectors of strings;
`cxx_type` gives them the names that the C++ program gives them.
"""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec
import numpy as np

from keyplan.apps.hepnos.column_types import (
    ColumnType,
    FixedType,
    column_type,
    dtype_name,
    dtype_named,
    packed_dtype,
    without_fixed_text,
)
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.product_types import (
    ProductType,
    RowsType,
    ScalarType,
    TableType,
    VectorType,
    is_of_package,
    values_module,
)

__all__ = [
    "CXX_STRING",
    "CXX_STRING_VECTOR",
    "ProductType",
    "cxx_type",
    "product_type",
    "register_type",
    "rows_type",
    "type_named",
    "type_of_value",
    "vector",
]

_COUNT: Final = struct.Struct("<Q")


class _Strings(ProductType):
    """Text, or any number of texts."""

    def __init__(self, name: str, *, is_many: bool) -> None:
        super().__init__(name)
        self._is_many = is_many

    @property
    def is_vector(self) -> bool:
        return self._is_many

    def encode(self, value: Any) -> bytes:
        texts = list(value) if self._is_many and isinstance(value, Sequence) and not isinstance(value, str) else [value]
        if not all(isinstance(text, str) for text in texts) or (self._is_many and isinstance(value, str)):
            raise self.refuse("it is not text")
        try:
            raws = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            raise self.refuse("a lone surrogate is no text") from error
        body = b"".join(_COUNT.pack(len(raw)) + raw for raw in raws)
        return _COUNT.pack(len(raws)) + body if self._is_many else body

    def decode(self, raw: bytes) -> Any:
        try:
            position = _COUNT.size if self._is_many else 0
            count = _COUNT.unpack_from(raw)[0] if self._is_many else 1
            texts: list[str] = []
            while len(texts) < count:
                end = position + _COUNT.size + _COUNT.unpack_from(raw, position)[0]
                if end > len(raw):
                    raise self.damaged("it ends within a string")
                texts.append(raw[position + _COUNT.size : end].decode())
                position = end
        except (ValueError, OverflowError) as error:
            raise self.damaged("it is not text") from error
        except struct.error as error:
            raise self.damaged("it ends within a length") from error
        if position != len(raw):
            raise self.damaged("bytes are left over")
        return texts if self._is_many else texts[0]


class _Bytes(ProductType):
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.refuse("it is not bytes")
        return bytes(value)

    def decode(self, raw: bytes) -> bytes:
        return raw


class _Serialized(ProductType):
    """Values that msgspec knows: as JSON when `kind` is None, else a class, or a list of it, as msgpack."""

    def __init__(self, name: str, kind: Any, *, is_many: bool = False) -> None:
        super().__init__(name)
        self._kind = kind
        self._is_many = is_many
        target = Any if kind is None else list[kind] if is_many else kind
        format_of = msgspec.json if kind is None else msgspec.msgpack
        self._write: Callable[[Any], bytes] = format_of.Encoder(enc_hook=self._refuse_part).encode
        self._read = msgspec.json.Decoder(target) if kind is None else msgspec.msgpack.Decoder(target)

    @property
    def is_vector(self) -> bool:
        return self._is_many

    def encode(self, value: Any) -> bytes:
        items = value if self._is_many else (value,)
        if self._kind is not None and not all(isinstance(item, self._kind) for item in items):
            raise self.refuse("it is not of this class")
        try:
            raw = self._write(value)
        except TypeMismatchError:
            raise
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise self.refuse("it cannot be serialized") from error
        # Trap: msgspec writes null for a float that JSON does not have. Why "null" first: looking through a value costs more.
        if self._kind is None and b"null" in raw and not _is_finite(msgspec.to_builtins(value)):
            raise self.refuse("JSON has no infinite numbers, and none that are not a number")
        return raw

    def _refuse_part(self, part: Any) -> Any:
        """Say what there is in a value that cannot be serialized, and what to give in its place."""
        problem = f"it has a {type(part).__qualname__}, which cannot be serialized"
        if is_of_package(part, "awkward"):
            problem += ": give a reference's `ref`, or what `to_list()` returns"
        elif isinstance(part, np.ndarray | np.generic):
            problem += ": give what `tolist()` returns"
        raise self.refuse(problem)

    def decode(self, raw: bytes) -> Any:
        try:
            return self._read.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.damaged("it does not fit its class") from error


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, chain(value.keys(), value.values())))
    return all(map(_is_finite, value)) if isinstance(value, list | tuple) else True


# ---- names and types ------------------------------------------------------------------------------------------------------

_STR: Final = _Strings("str", is_many=False)
_STR_VECTOR: Final = _Strings("vector<str>", is_many=True)
_BYTES: Final = _Bytes("bytes")
_JSON: Final = _Serialized("json", None)
_BUILTIN: Final[dict[str, ProductType]] = {kind.name: kind for kind in (_STR, _STR_VECTOR, _BYTES, _JSON)}
_PYTHON: Final[dict[type, ProductType]] = {str: _STR, bytes: _BYTES, dict: _JSON}

_CXX_STRING_NAME: Final = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
CXX_STRING: Final = _STR.renamed(_CXX_STRING_NAME)
"""What the C++ program stores a std::string as."""
CXX_STRING_VECTOR: Final = _STR_VECTOR.renamed(f"std::vector<{_CXX_STRING_NAME}, std::allocator<{_CXX_STRING_NAME} > >")
"""What the C++ program stores a std::vector<std::string> as."""


class _Registry:
    """The classes and structured types that programs have given names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}
        self.name_of: dict[Any, str] = {}

    def add(self, name: str, kind: Any) -> None:
        if not name or any(character in name for character in "#<>{},") or self.by_name.get(name, kind) != kind:
            raise TypeMismatchError(type=name, problem="the name is taken, or cannot be the name of a type")
        self.by_name[name] = kind
        self.name_of[kind] = name


_registry: Final = _Registry()
_resolved: Final[dict[type | str, ProductType]] = {}


def register_type(name: str, kind: type | np.dtype[Any]) -> None:
    """Give a class or a structured numpy type a name of its own, which stays when the module moves. The same in every process.

    Raises TypeMismatchError when the name belongs to another type.
    """
    _registry.add(name, _little(kind) if isinstance(kind, np.dtype) else kind)
    _resolved.clear()


def vector(element: Any) -> ProductType:
    """Return the type of vectors of something: `vector("f4")`, `vector(Hit)`, `vector(str)`."""
    if element is str:
        return _STR_VECTOR
    if _is_class(element):
        return _Serialized(f"vector<{_class_name(element)}>", element, is_many=True)
    dtype = _dtype(element)
    return VectorType(f"vector<{_dtype_name(dtype)}>", dtype)


def product_type(given: Any) -> ProductType:
    """Return the type that is meant: a ProductType itself, a numpy type, str, bytes, dict for JSON, a class, or a type's name.

    Raises TypeMismatchError.
    """
    if not isinstance(given, type | str):
        return given if isinstance(given, ProductType) else _resolved_now(given)
    # Why kept: a type is asked for with every product that is loaded.
    known = _resolved.get(given)
    if known is None:
        known = _resolved[given] = _resolved_now(given)
    return known


def _resolved_now(given: Any) -> ProductType:
    if isinstance(given, type) and given in _PYTHON:
        return _PYTHON[given]
    if _is_class(given):
        return _Serialized(_class_name(given), given)
    if isinstance(given, str) and (known := _named(given)) is not None:
        return known
    dtype = _dtype(given)
    return ScalarType(_dtype_name(dtype), dtype)


def type_named(name: str) -> ProductType:
    """Return the type of a stored name. Raises TypeMismatchError for a class that was not registered here."""
    known = _named(name)
    if known is None:
        raise TypeMismatchError(type=name, problem="no type of this name is known here: register it, or give the type")
    return known


def type_of_value(value: Any) -> ProductType:
    """Return the type that a value is stored as when none is given. Raises TypeMismatchError for what has none."""
    if isinstance(value, np.ndarray):
        return vector(value.dtype) if value.ndim else product_type(value.dtype)
    if isinstance(value, np.generic):
        return product_type(value.dtype)
    if isinstance(value, bool | int | float):
        return product_type(np.dtype(type(value)))
    if is_of_package(value, "awkward"):
        if not hasattr(value, "ndim"):
            problem = "one record of an array is no product: give a list of it, or a reference's `ref`"
            raise TypeMismatchError(type=str(value.type), problem=problem)
        return rows_type(values_module().type_of_rows(value))
    if isinstance(value, list | tuple) and value:
        return _type_of_list(value)
    if isinstance(value, bytearray | memoryview):
        return _BYTES
    if type(value) in _PYTHON:
        return _PYTHON[type(value)]
    if _is_class(type(value)):
        return product_type(type(value))
    return _JSON


def _type_of_list(values: Sequence[Any]) -> ProductType:
    kinds = set(map(type, values))
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if kind in {float, bool}:
        return vector(kind)
    if all(isinstance(item, str) for item in values):
        return _STR_VECTOR
    return vector(kind) if kind is not None and _is_class(kind) else _JSON


def cxx_type(name: str, element: Any) -> ProductType:
    """Return the type of plain data that the C++ program stores as `name`; a name of std::vector makes it a vector.

    The numpy type must have the padding of the C++ struct: `np.dtype([...], align=True)`.
    """
    dtype = _little(np.dtype(element))
    return VectorType(name, dtype) if name.startswith("std::vector<") else ScalarType(name, dtype)


def _named(name: str) -> ProductType | None:
    if name in _BUILTIN:
        return _BUILTIN[name]
    inner = name[len("vector<") : -1] if name.startswith("vector<") and name.endswith(">") else None
    base = name if inner is None else inner
    if base in _registry.by_name:
        kind = _registry.by_name[base]
        return product_type(kind) if inner is None else vector(kind)
    if name.startswith("table<") and name.endswith(">"):
        row = column_type(name[len("table<") : -1])
        found = None if row is None else rows_type(row)
        # Why compared: rows of plain data are a vector, and have one name.
        return found if found is not None and found.name == name else None
    dtype = dtype_named(base)
    if dtype is None:
        return None
    return ScalarType(name, dtype) if inner is None else VectorType(name, dtype)


def _is_class(given: object) -> bool:
    return isinstance(given, type) and (issubclass(given, msgspec.Struct) or dataclasses.is_dataclass(given))


def _class_name(kind: type) -> str:
    name = _registry.name_of.get(kind) or f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in name:
        raise TypeMismatchError(type=name, problem="a class of a function has no stable name: register one")
    return name


def rows_type(row: ColumnType, name: str | None = None) -> RowsType:
    """Return the type of products that are rows of a type: a vector where they are plain data, else a table.

    `name` stands in the place of the row type's own, as `Muon@5d2a91c0` does, whose columns a note on the data set has.
    """
    dtype = packed_dtype(row)
    if dtype is None or isinstance(row, FixedType):
        if without_fixed_text(row) != row:
            problem = "text of a fixed size stands in rows of fixed sizes alone; take str or bytes"
            raise TypeMismatchError(type=str(row), problem=problem)
        return TableType(f"table<{row if name is None else name}>", row)
    return VectorType(f"vector<{row if name is None else name}>", dtype)


def _dtype(given: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError) as error:
        raise TypeMismatchError(type=repr(given), problem="it is no type of a product") from error
    return _little(dtype)


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # Why also hasobject: a struct's object would be stored as its address.
    if dtype.hasobject or (dtype.kind == "V" and dtype.names is None) or not dtype.itemsize:
        raise TypeMismatchError(type=dtype.name, problem="such elements have no fixed bytes that C++ shares")
    return dtype.newbyteorder("<")


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return _registry.name_of.get(dtype) or dtype_name(dtype)
