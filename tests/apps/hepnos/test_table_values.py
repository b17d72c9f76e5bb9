"""The bytes of rows with text, lists and options: arrays of random types come back, and a plain reader reads the same."""

import struct
from random import Random
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.apps import hepnos
from keyplan.apps.hepnos.column_types import (
    REF_RECORD,
    ColumnType,
    FixedType,
    ListType,
    NothingType,
    NumberType,
    OptionType,
    RecordType,
    RefType,
    TextType,
    column_type,
    wider,
)
from keyplan.apps.hepnos.product_types import TableType
from keyplan.apps.hepnos.table_values import decoded, encoded, type_of_rows
from keyplan.errors import CorruptionError

NUMBERS = ["?", "<i1", "<u2", "<i4", "<u8", "<f4", "<f8", "<c8", "<c16", "<M8[ns]", "<M8[D]", "<m8[us]"]
NAMES = ["pt", "eta", "a:b", "x,y", '"', "{", "list<", "", "ü", "\x00"]
SEEDS = st.integers(0, 2**32)


def random_type(source: Random, depth: int = 3) -> ColumnType:
    """Draw a type; one of a fixed size, or in a record, has values."""
    form = source.randrange(8 if depth else 3)
    if not depth and form == 2:
        return RefType()
    if form == 0:
        return TextType(source.random() < 0.5)
    if form == 1:
        return NumberType(np.dtype(source.choice(NUMBERS)))
    if form == 2:
        return ListType(random_type(source, depth - 1) if source.random() < 0.9 else NothingType())
    if form == 3:
        return FixedType(random_type(source, depth - 1), source.randrange(4))
    if form == 4:
        content = random_type(source, depth - 1)
        return content if isinstance(content, OptionType) else OptionType(content)
    if form == 7:
        return RefType()
    names = [str(at) for at in range(source.randrange(3))] if form == 5 else source.sample(NAMES, source.randrange(4))
    return RecordType(tuple((name, random_type(source, depth - 1)) for name in names), is_tuple=form == 5)


def random_value(source: Random, kind: ColumnType) -> Any:
    """Draw a value as awkward lists it."""
    match kind:
        case NumberType(dtype):
            found = np.frombuffer(source.randbytes(dtype.itemsize), "?" if dtype.kind == "b" else dtype)[0]
            return bool(source.randrange(2)) if dtype.kind == "b" else found
        case TextType(is_bytes):
            text = "".join(source.choices("aé\x00\U0001f600", k=source.randrange(4)))
            return text.encode() if is_bytes else text
        case ListType(content):
            count = 0 if isinstance(content, NothingType) else source.randrange(4)
            return [random_value(source, content) for _ in range(count)]
        case FixedType(content, size):
            return [random_value(source, content) for _ in range(size)]
        case OptionType(content):
            return None if source.random() < 0.4 else random_value(source, content)
        case RecordType(columns, is_tuple):
            values = {name: random_value(source, each) for name, each in columns}
            return tuple(values.values()) if is_tuple else values
        case RefType():
            return hepnos.Ref(source.randbytes(source.randrange(4)), source.choice([None, 0, source.randrange(2**63)]))
        case NothingType():
            raise AssertionError


def random_table(seed: int) -> tuple[ColumnType, list[list[Any]]]:
    """Draw a type of rows, and the rows of some products."""
    source = Random(seed)
    kind = random_type(source)
    return kind, [[random_value(source, kind) for _ in range(source.randrange(4))] for _ in range(source.randrange(4))]


def content_of(kind: ColumnType, values: list[Any]) -> Any:
    """Build awkward's content of values by hand."""
    match kind:
        case NumberType(dtype):
            numbers: Any = np.array(values, dtype)
            return ak.contents.NumpyArray(numbers)
        case TextType(is_bytes):
            return (ak.from_iter([*values, b"" if is_bytes else ""]).layout)[: len(values)]
        case ListType(content):
            offsets = np.cumsum([0, *map(len, values)])
            inner = content_of(content, [each for value in values for each in value])
            return ak.contents.ListOffsetArray(ak.index.Index64(offsets), inner)
        case FixedType(content, size):
            inner = content_of(content, [each for value in values for each in value])
            return ak.contents.RegularArray(inner, size, len(values))
        case OptionType(content):
            present = [value for value in values if value is not None]
            positions = iter(range(len(present)))
            index = np.array([-1 if value is None else next(positions) for value in values], np.int64)
            return ak.contents.IndexedOptionArray(ak.index.Index64(index), content_of(content, present))
        case RecordType(columns, is_tuple):
            keys: list[Any] = [int(name) if is_tuple else name for name, _ in columns]
            contents = [
                content_of(each, [value[key] for value in values]) for key, (_, each) in zip(keys, columns, strict=True)
            ]
            return ak.contents.RecordArray(contents, None if is_tuple else keys, length=len(values))
        case RefType():
            records = content_of(REF_RECORD, [{"raw": value.raw, "index": value.index} for value in values])
            return ak.with_name(ak.Array(records), "Ref").layout
        case NothingType():
            assert not values
            return ak.contents.EmptyArray()


def read_plainly(kind: ColumnType, raw: bytes, at: int, count: int) -> tuple[list[Any], int]:
    """Read so many values as the document says, one by one; return them, and where they end."""
    match kind:
        case NumberType(dtype):
            end = at + count * dtype.itemsize
            return list(np.frombuffer(raw[at:end], dtype)), end
        case TextType(is_bytes):
            lengths = struct.unpack_from(f"<{count}I", raw, at)
            at += 4 * count
            texts = []
            for length in lengths:
                text = raw[at : at + length]
                texts.append(text if is_bytes else text.decode())
                at += length
            return texts, at
        case ListType(content):
            lengths = struct.unpack_from(f"<{count}I", raw, at)
            found, at = read_plainly(content, raw, at + 4 * count, sum(lengths))
            rest = iter(found)
            return [[next(rest) for _ in range(length)] for length in lengths], at
        case FixedType(content, size):
            found, at = read_plainly(content, raw, at, count * size)
            return [found[begin * size : (begin + 1) * size] for begin in range(count)], at
        case OptionType(content):
            flags = raw[at : at + count]
            found, at = read_plainly(content, raw, at + count, sum(flags))
            rest = iter(found)
            return [next(rest) if flag else None for flag in flags], at
        case RecordType(columns, is_tuple):
            columns_found = []
            for _, each in columns:
                found, at = read_plainly(each, raw, at, count)
                columns_found.append(found)
            rows = [tuple(column[row] for column in columns_found) for row in range(count)]
            return rows if is_tuple else [dict(zip([n for n, _ in columns], row, strict=True)) for row in rows], at
        case RefType():
            raws, at = read_plainly(TextType(is_bytes=True), raw, at, count)
            indexes, at = read_plainly(OptionType(NumberType(np.dtype("<i8"))), raw, at, count)
            return [hepnos.Ref(*each) for each in zip(raws, indexes, strict=True)], at
        case NothingType():
            return [], at


def same(one: Any, other: Any) -> bool:
    return repr(plain(one)) == repr(plain(other))


def plain(value: Any) -> Any:
    if isinstance(value, hepnos.Ref):  # which is equal to another of the same product
        return ("ref", value.raw, None if value.index is None else int(value.index))
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if isinstance(value, np.datetime64 | np.timedelta64):
        return (int(value.astype("i8")), value.dtype.name)
    return value.item() if isinstance(value, np.generic) else value


@settings(max_examples=80)
@given(SEEDS)
def test_rows_of_any_type_come_back_and_a_plain_reader_finds_them(seed: int) -> None:
    kind, products = random_table(seed)
    rows = ak.Array(content_of(kind, [row for product in products for row in product]))
    assert column_type(str(kind)) == kind
    assert type_of_rows(rows) == kind
    counts = np.array([len(product) for product in products], np.int64)
    raws = encoded(rows, kind, counts)
    found_counts, found = decoded(kind, raws)
    assert found_counts.tolist() == counts.tolist()
    assert type_of_rows(found) == kind
    assert same(found.to_list(), rows.to_list())
    assert ak.is_valid(found)
    for raw, product in zip(raws, products, strict=True):
        (count,) = struct.unpack_from("<Q", raw)
        plainly, end = read_plainly(kind, raw, 8, count)
        assert end == len(raw)
        assert same(plainly, product)


@settings(max_examples=80)
@given(SEEDS)
def test_damaged_bytes_are_told_or_are_other_rows(seed: int) -> None:
    kind, products = random_table(seed)
    source = Random(seed)
    rows = ak.Array(content_of(kind, [row for product in products for row in product]))
    for raw in encoded(rows, kind, np.array([len(product) for product in products], np.int64)):
        cut = source.randrange(len(raw))
        for damaged in (raw[:cut], raw + b"\x00"):
            with pytest.raises(CorruptionError):
                TableType("t", kind).decode(damaged)
        changed = bytearray(raw)
        changed[source.randrange(len(raw))] ^= source.randrange(1, 256)
        try:
            assert ak.is_valid(TableType("t", kind).decode(bytes(changed)))
        except CorruptionError:
            continue


@pytest.mark.parametrize("name", ["struct{}", "int8[0]", "tuple{nothing[0],struct{}}", "int8", "list<str>"])
@pytest.mark.parametrize("count", [1 << 28, 1 << 47, 1 << 61])
def test_a_count_without_bytes_is_damage(name: str, count: int) -> None:
    kind = column_type(name)
    assert kind is not None
    with pytest.raises(CorruptionError):
        TableType("t", kind).decode_rows([struct.pack("<Q", count), struct.pack("<Q", 0)])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("int32", "float64", "float64"),
        ("int16", "float32", "float32"),
        ("int64", "float64", None),
        ("uint64", "int8", None),
        ("float32", "complex64", "complex64"),
        ("bool", "uint8", "uint8"),
        ("datetime64[s]", "datetime64[ns]", None),
        ("bytes24", "bytes64", "bytes64"),
        ("str96", "str", "str"),
        ("bytes24", "str", None),
        ("list<nothing>", "option<list<int8>>", "option<list<int8>>"),
        ("int8[3]", "int16[3]", "int16[3]"),
        ("int8[3]", "list<int8>", "list<int8>"),
        ("struct{x:int8,y:str}", "struct{x:option<int16>,y:str}", "struct{x:option<int16>,y:str}"),
        ("struct{x:int8}", "struct{y:int8}", None),
        ("str", "int8", None),
    ],
)
def test_the_type_of_two_holds_every_value_of_both(one: str, other: str, expected: str | None) -> None:
    kinds = [column_type(name) for name in (one, other)]
    assert kinds[0] is not None
    assert kinds[1] is not None
    found = {wider(kinds[0], kinds[1]), wider(kinds[1], kinds[0])}
    assert found == {None if expected is None else column_type(expected)}
