"""Tuples against FoundationDB's own Python binding, which runs without its C library, and where that binding is wrong."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from keyplan.codec import SingleFloat, TupleElement, Versionstamp
from keyplan.errors import InvalidKeyError
from keyplan.testing.strategies import element_values

# Why by name: the binding has no types. Its tuple layer asks fdb.impl, which needs the C library, only whether a versionstamp
# is a value still to be read.
fdb: Any = import_module("fdb")
oracle: Any = import_module("fdb.tuple")
vars(fdb).setdefault("impl", SimpleNamespace(Value=type("Value", (), {})))

CODEC = TupleElement()
LARGE = 2**64 - 1


def foreign(item: Any) -> Any:
    """Our item in the binding's classes."""
    match item:
        case SingleFloat(value):
            return oracle.SingleFloat(value)
        case Versionstamp(transaction_version, user_version):
            return oracle.Versionstamp(transaction_version, user_version)
        case tuple():
            return tuple(map(foreign, item))
        case _:
            return item


def holds_faulty_integer(item: Any) -> bool:
    if isinstance(item, tuple):
        return any(map(holds_faulty_integer, item))
    return isinstance(item, int) and abs(item) == LARGE


@given(element_values(CODEC))
@settings(max_examples=settings().max_examples * 2)
def test_the_binding_writes_the_same_bytes(value: tuple[Any, ...]) -> None:
    if not holds_faulty_integer(value):
        assert CODEC.encode(value) == oracle.pack(foreign(value))


@given(element_values(CODEC))
@settings(max_examples=settings().max_examples)
def test_the_binding_reads_our_bytes_as_the_same_value(value: tuple[Any, ...]) -> None:
    assert oracle.unpack(CODEC.encode(value)) == foreign(value)


@given(element_values(CODEC), element_values(CODEC))
@settings(max_examples=settings().max_examples * 2)
def test_bytes_sort_as_the_binding_compares_tuples(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    ours = (CODEC.encode(one) > CODEC.encode(other)) - (CODEC.encode(one) < CODEC.encode(other))
    assert ours == oracle.compare(foreign(one), foreign(other))


@pytest.mark.parametrize(
    "number", sorted({sign * (256**size + off) for size in range(10) for off in (-1, 0, 1) for sign in (-1, 1)})
)
def test_integers_around_each_length_step_sort_as_numbers(number: int) -> None:
    assert CODEC.encode((number - 1,)) < CODEC.encode((number,)) < CODEC.encode((number + 1,))
    assert CODEC.decode(CODEC.encode((number,))) == (number,)


@pytest.mark.parametrize(("number", "right"), [(LARGE, "1c" + "ff" * 8), (-LARGE, "0c" + "00" * 8)])
def test_the_largest_integers_of_eight_bytes_have_the_short_form_that_the_binding_misses(
    number: int, right: str
) -> None:
    assert CODEC.encode((number,)).hex() == right
    # The binding reads the right form, and writes another: its fault, which this line would report as mended.
    assert oracle.unpack(bytes.fromhex(right)) == (number,)
    wrong = oracle.pack((number,))
    assert wrong.hex() != right
    with pytest.raises(InvalidKeyError, match="not large"):
        CODEC.decode(wrong)


@pytest.mark.parametrize("raw", [b"\x02abc", b"\x01abc", b"\x02a\x00\xff", b"\x05\x02abc"])
def test_text_without_its_end_is_refused_where_the_binding_makes_one_up(raw: bytes) -> None:
    assert raw[0] == 0x05 or oracle.unpack(raw)
    with pytest.raises(InvalidKeyError, match="without their final zero"):
        CODEC.decode(raw)


@pytest.mark.parametrize("depth", [1, 64])
def test_tuples_nest_up_to_the_bound(depth: int) -> None:
    value: tuple[Any, ...] = ()
    for _ in range(depth):
        value = (value,)
    assert CODEC.encode(value) == b"\x05" * depth + b"\x00" * depth
    assert CODEC.decode(CODEC.encode(value)) == value
    deeper: tuple[Any, ...] = value
    while depth <= 64:
        deeper, depth = (deeper,), depth + 1
    with pytest.raises(InvalidKeyError, match="nested too deep"):
        CODEC.encode(deeper)


@pytest.mark.parametrize("pattern", [b"\x05", b"\x05\x00\xff", b"\x1d\xff"], ids=["open", "null", "large"])
def test_hostile_keys_are_refused_without_exhausting_anything(pattern: bytes) -> None:
    assert not CODEC.language.accepts(pattern * 50_000)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "not a tuple"),
        (([1],), "a type that tuples do not hold"),
        (({},), "a type that tuples do not hold"),
        ((float("nan"),), "NaN"),
        ((2**2040,), "too large"),
        ((-(2**2040),), "too large"),
        (("\ud800",), "surrogate"),
    ],
)
def test_what_a_tuple_cannot_hold_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(InvalidKeyError, match=problem):
        CODEC.encode(value)


def test_the_largest_integers_take_255_bytes() -> None:
    number = 2**2040 - 1
    assert CODEC.encode((number,)) == b"\x1d\xff" + b"\xff" * 255
    assert CODEC.encode((-number,)) == b"\x0b\x00" + b"\x00" * 255
    assert CODEC.decode(CODEC.encode((number, -number))) == (number, -number)


def test_a_single_float_is_rounded_to_32_bits() -> None:
    assert SingleFloat(0.1).value == 0.10000000149011612
    assert CODEC.decode(CODEC.encode((SingleFloat(0.1),))) == (SingleFloat(0.1),)


@pytest.mark.parametrize(("version", "user"), [(b"\x00" * 9, 0), (b"\x00" * 10, 65536), (b"\x00" * 10, -1)])
def test_a_versionstamp_of_the_wrong_size_is_refused(version: bytes, user: int) -> None:
    with pytest.raises(InvalidKeyError, match="versionstamp"):
        Versionstamp(version, user)
