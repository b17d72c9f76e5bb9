"""What every type of product has, and those of numbers: one value of a numpy type, and any number of them as rows."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.column_types import ColumnType, RecordType, converted, type_of_dtype, unpadded
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = [
    "ProductType",
    "RenamedType",
    "RowsType",
    "ScalarType",
    "TableType",
    "VectorType",
    "is_of_package",
    "values_module",
]

_COUNT: Final = struct.Struct("<Q")


class ProductType(ABC):
    """A type of product. Compared by name: two types of one name store the same bytes."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the stored bytes of a value. Raises TypeMismatchError."""

    @abstractmethod
    def decode(self, raw: bytes) -> Any:
        """Return the value. Raises CorruptionError when these are no bytes of the type: never a value that was not stored."""

    def decode_many(self, raws: Sequence[bytes | None]) -> list[Any]:
        """Return the value of each, None for None."""
        decode = self.decode
        return [None if raw is None else decode(raw) for raw in raws]

    @property
    def is_vector(self) -> bool:
        """True when values have elements, of which a part can be stored."""
        return False

    def renamed(self, name: str) -> "ProductType":
        """Return a type of the same bytes under another name."""
        return RenamedType(name, self)

    def refuse(self, problem: str) -> TypeMismatchError:
        """Return the error for a value that is none of the type."""
        return TypeMismatchError(type=self.name, problem=problem)

    def damaged(self, problem: str) -> CorruptionError:
        """Return the error for bytes that are none of the type."""
        return CorruptionError(type=self.name, problem=problem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProductType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<product type {self.name}>"


class RenamedType(ProductType):
    """A type of the same bytes as another's."""

    def __init__(self, name: str, inner: ProductType) -> None:
        super().__init__(name)
        self.inner = inner

    def encode(self, value: Any) -> bytes:
        return self.inner.encode(value)

    def decode(self, raw: bytes) -> Any:
        return self.inner.decode(raw)

    @property
    def is_vector(self) -> bool:
        return self.inner.is_vector


class ScalarType(ProductType):
    """One value of a numpy type."""

    def __init__(self, name: str, dtype: np.dtype[Any]) -> None:
        super().__init__(name)
        self.dtype = dtype

    def encode(self, value: Any) -> bytes:
        array = _array(self, value, self.dtype)
        if array.ndim:
            raise self.refuse("an array is not one value")
        return array.tobytes()

    def decode(self, raw: bytes) -> Any:
        if len(raw) != self.dtype.itemsize:
            raise self.damaged(f"a value has {self.dtype.itemsize} bytes, not {len(raw)}")
        return np.frombuffer(raw, self.dtype)[0]

    def decode_many(self, raws: Sequence[bytes | None]) -> list[Any]:
        present = [raw for raw in raws if raw is not None]
        # Why at once: making an array for each value costs five times as much as the value.
        if len(present) < len(raws) or set(map(len, present)) != {self.dtype.itemsize}:
            return super().decode_many(raws)
        return list(np.frombuffer(b"".join(present), self.dtype))


class RowsType(ProductType):
    """Any number of rows: what a product of a table is. `row` is the type of one."""

    def __init__(self, name: str, row: ColumnType) -> None:
        super().__init__(name)
        self.row = row

    @property
    def is_vector(self) -> bool:
        return True

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns by name; none when rows are values without names."""
        return dict(self.row.columns) if isinstance(self.row, RecordType) and not self.row.is_tuple else {}

    @abstractmethod
    def renamed_rows(self, name: str) -> "RowsType":
        """Return the type of the same rows under another name."""

    @abstractmethod
    def fitted(self, rows: Any) -> Any:
        """Return rows, of numpy or of awkward, as `encode_rows` takes them. Raises TypeMismatchError."""

    @abstractmethod
    def encode_rows(self, rows: Any, counts: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the bytes of products that have so many of the rows each, one after the other. Raises TypeMismatchError."""

    @abstractmethod
    def decode_rows(
        self, raws: Sequence[bytes], columns: Collection[str] | None = None
    ) -> tuple[npt.NDArray[np.int64], Any]:
        """Return how many rows each product has, and all rows, of the named columns only. Raises CorruptionError."""


class VectorType(RowsType):
    """Any number of values of a numpy type, as an array of one dimension."""

    def __init__(self, name: str, dtype: np.dtype[Any]) -> None:
        super().__init__(name, type_of_dtype(unpadded(dtype)))
        self.dtype = dtype

    def renamed_rows(self, name: str) -> "VectorType":
        return VectorType(name, self.dtype)

    def fitted(self, rows: Any) -> npt.NDArray[Any]:
        given = rows if isinstance(rows, np.ndarray) else values_module().to_packed(rows, self.row)
        if given.dtype == self.dtype:
            return given
        self._check_castable(given.dtype, self.dtype)
        with np.errstate(over="ignore"):
            found = converted(given, self.dtype)
        self._check_held(given, found)
        return found

    def _check_castable(self, given: np.dtype[Any], wanted: np.dtype[Any]) -> None:
        one, other = given.base, wanted.base
        if given.shape != wanted.shape or set(one.names or ()) != set(other.names or ()):
            raise self.refuse(f"its elements are {given.name}")
        ours: Any = one.fields
        theirs: Any = other.fields
        for name in other.names or ():
            self._check_castable(ours[name][0], theirs[name][0])
        if other.names is None and not np.can_cast(one, other, "same_kind"):
            raise self.refuse(f"its elements are {given.name}")

    def _check_held(self, given: npt.NDArray[Any], found: npt.NDArray[Any]) -> None:
        """Trap: to numpy int64 fits int8, nanoseconds fit seconds, and text is cut."""
        for name in found.dtype.names or ():
            self._check_held(given[name], found[name])
        kind = found.dtype.kind
        is_other = kind in "iuSUmM" and not np.array_equal(given, found, equal_nan=kind in "mM")
        if is_other or (kind in "fc" and bool(np.any(np.isinf(found) & np.isfinite(given)))):
            raise self.refuse("a value is out of range")

    def encode_rows(self, rows: Any, counts: npt.NDArray[np.int64]) -> list[bytes]:
        if rows.dtype.names != self.dtype.names:
            raise self.refuse(f"its elements are {rows.dtype.name}")
        body = np.ascontiguousarray(rows, self.dtype).tobytes()
        heads = counts.astype("<u8").tobytes()
        ends = (np.cumsum(counts) * self.dtype.itemsize).tolist()
        return [
            heads[_COUNT.size * at : _COUNT.size * (at + 1)] + body[begin:end]
            for at, (begin, end) in enumerate(pairwise([0, *ends]))
        ]

    def decode_rows(
        self, raws: Sequence[bytes], columns: Collection[str] | None = None
    ) -> tuple[npt.NDArray[np.int64], Any]:
        lengths = np.fromiter(map(len, raws), np.int64, len(raws))
        heads = b"".join([raw[: _COUNT.size] for raw in raws])
        counts = np.frombuffer(heads, "<u8") if len(heads) == _COUNT.size * len(raws) else np.zeros(0, "<u8")
        # Why a quotient: a count of damaged bytes times a size may go beyond any number.
        counted = (lengths - _COUNT.size) // self.dtype.itemsize
        is_whole = len(counts) == len(raws) and np.array_equal(counted * self.dtype.itemsize + _COUNT.size, lengths)
        if not is_whole or not np.array_equal(counts, counted.astype(np.uint64)):
            raise self.damaged("the count of elements does not agree with the length")
        rows = np.frombuffer(b"".join([raw[_COUNT.size :] for raw in raws]), self.dtype)
        if columns is None or self.dtype.names is None:
            return counted, rows
        chosen = [name for name in self.dtype.names if name in columns]
        found = np.empty(len(rows), _chosen_fields(self.dtype, chosen))
        for name in chosen:
            found[name] = rows[name]
        return counted, found

    def encode(self, value: Any) -> bytes:
        if is_of_package(value, "awkward"):
            value = values_module().to_packed(value, self.row)
        array = _array(self, value, self.dtype)
        if array.ndim != 1:
            raise self.refuse(f"a vector has one dimension, not {array.ndim}")
        return _COUNT.pack(len(array)) + array.tobytes()

    def decode(self, raw: bytes) -> Any:
        size = self.dtype.itemsize
        if len(raw) < _COUNT.size or _COUNT.unpack_from(raw)[0] * size != len(raw) - _COUNT.size:
            raise self.damaged("the count of elements does not agree with the length")
        return np.frombuffer(raw, self.dtype, offset=_COUNT.size)


def _chosen_fields(dtype: np.dtype[Any], names: Sequence[str]) -> np.dtype[Any]:
    fields: Any = dtype.fields
    return np.dtype([(name, fields[name][0]) for name in names])


class TableType(RowsType):
    """Any number of rows whose values differ in size: text, lists, options. Values are arrays of awkward."""

    def renamed_rows(self, name: str) -> "TableType":
        return TableType(name, self.row)

    def fitted(self, rows: Any) -> Any:
        return values_module().cast(values_module().from_rows(rows), self.row)

    def encode(self, value: Any) -> bytes:
        try:
            rows = values_module().from_rows(value)
        except (TypeError, ValueError) as error:
            raise self.refuse("they are no rows") from error
        return self.encode_rows(rows, np.array([len(rows)]))[0]

    def encode_rows(self, rows: Any, counts: npt.NDArray[np.int64]) -> list[bytes]:
        return list(values_module().encoded(rows, self.row, counts))

    def decode(self, raw: bytes) -> Any:
        return self.decode_rows([raw])[1]

    def decode_rows(
        self, raws: Sequence[bytes], columns: Collection[str] | None = None
    ) -> tuple[npt.NDArray[np.int64], Any]:
        counts, rows = values_module().decoded(self.row, raws, columns)
        return counts, rows


def is_of_package(value: Any, package: str) -> bool:
    """Tell whether a value is of a class of a package, or of one that is made of it, without importing the package.

    Why of such classes: awkward's behaviours, ours and those of others, make arrays of classes of their own.
    """
    return any(each.__module__.partition(".")[0] == package for each in type(value).__mro__)


def values_module() -> Any:
    """Return the module that knows awkward's arrays. Raises InvalidInputError where awkward is not installed."""
    try:
        return import_module("keyplan.apps.hepnos.table_values")
    except ModuleNotFoundError as error:
        problem = "such values need the package 'awkward', which is not installed: pip install 'keyplan[hepnos-files]'"
        raise InvalidInputError(source="table", problem=problem) from error


def _array(kind: ProductType, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the value as an array of the type's own byte order. Trap: numpy would cut 300 to fit a byte, and 1.5 to 1."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise kind.refuse("some of its elements are masked")
    is_python = not isinstance(value, np.ndarray | np.generic)
    given = _whole_numbers(kind, value, dtype) if is_python and dtype.kind in "iu" else _as_array(kind, value)
    if given.dtype.names != dtype.names:
        raise kind.refuse(f"its elements are {given.dtype.name}")
    if is_python and given.size and given.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if given.min() < limits.min or given.max() > limits.max:
            raise kind.refuse("a number is out of range")
    # Trap: numpy takes a longer text for one of the same kind, and cuts it.
    elif given.size and not np.can_cast(given.dtype, dtype, _casting(dtype) if is_python else "equiv"):
        raise kind.refuse(f"its elements are {given.dtype.name}")
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(given, dtype) if given.ndim else given.astype(dtype)
    if is_python and dtype.kind == "f" and np.any(np.isinf(found) & np.isfinite(given)):
        raise kind.refuse("a number is out of range")
    return found


def _casting(dtype: np.dtype[Any]) -> Literal["safe", "same_kind"]:
    return "safe" if dtype.kind in "SU" else "same_kind"


def _as_array(kind: ProductType, value: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise kind.refuse("its values make no array: they differ in length, or in kind") from error


def _whole_numbers(kind: ProductType, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return numbers of Python as an array. Trap: of 1 and 2**63 together numpy makes floats."""
    given = _as_array(kind, value)
    if given.dtype.kind not in "fO" or not isinstance(value, list | tuple):
        return given
    if not all(type(number) is int for number in value):
        return given
    try:
        return np.array(value, dtype)
    except OverflowError as error:
        raise kind.refuse("a number is out of range") from error
