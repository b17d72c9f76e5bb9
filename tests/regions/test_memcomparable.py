"""The memcomparable encoding: the document's vectors, its order, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.errors import InvalidKeyError
from keyplan.regions import memcomparable, of_memcomparable

# keyspaces.md 4.1, in its order.
VECTORS = [
    (b"", "0000000000000000f7"),
    (bytes.fromhex("010203"), "0102030000000000fa"),
    (bytes.fromhex("01020300"), "0102030000000000fb"),
    (bytes.fromhex("0102030405060708"), "0102030405060708ff0000000000000000f7"),
    (b"foo", "666f6f0000000000fa"),
    (b"abcdefghi", "6162636465666768ff6900000000000000f8"),
    (b"\x01", "0100000000000000f8"),
    (b"\x02", "0200000000000000f8"),
    (b"m", "6d00000000000000f8"),
    (b"n", "6e00000000000000f8"),
    (b"t", "7400000000000000f8"),
    (b"u", "7500000000000000f8"),
    (b"\x7f", "7f00000000000000f8"),
    (b"\x80", "8000000000000000f8"),
    (bytes.fromhex("8001"), "8001000000000000f9"),
    (bytes.fromhex("8002"), "8002000000000000f9"),
    (bytes.fromhex("808001"), "8080010000000000fa"),
    (bytes.fromhex("808002"), "8080020000000000fa"),
    (b"\x01users/0000001", "0175736572732f30ff3030303030310000fd"),
    (bytes.fromhex("78000001"), "7800000100000000fb"),
    (bytes.fromhex("78000002"), "7800000200000000fb"),
    (bytes.fromhex("748000000000000005"), "7480000000000000ff0500000000000000f8"),
    (bytes.fromhex("748000000000000034") + b"_r", "7480000000000000ff345f720000000000fa"),
    (bytes.fromhex("748000000000000234"), "7480000000000002ff3400000000000000f8"),
]


@pytest.mark.parametrize(("raw", "encoded"), VECTORS, ids=[encoded for _, encoded in VECTORS])
def test_each_vector_of_the_document_is_spelled_so_and_read_back(raw: bytes, encoded: str) -> None:
    assert memcomparable(raw).hex() == encoded
    assert of_memcomparable(bytes.fromhex(encoded)) == raw


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_encodings_sort_as_the_bytes_do_and_read_back(one: bytes, other: bytes) -> None:
    assert (memcomparable(one) < memcomparable(other)) == (one < other)
    assert of_memcomparable(memcomparable(one)) == one


@given(st.binary(max_size=40))
def test_whatever_is_read_has_this_one_spelling(encoded: bytes) -> None:
    try:
        raw = of_memcomparable(encoded)
    except InvalidKeyError:
        return
    assert memcomparable(raw) == encoded


@pytest.mark.parametrize(
    "digits",
    [
        "",
        "0102030405060708",
        "0102030000000000f6",  # nine bytes of padding
        "0102030000000001fa",  # padding that is not zero
        "0102030405060708ff",  # a full group at the end
        "0102030000000000fa0000000000000000f7",  # a group after the last
        "72696e64fd436c617374000000000000fa",  # JuiceFS: raw keys where encoded ones should be
    ],
)
def test_bytes_that_no_encoding_is_are_refused(digits: str) -> None:
    with pytest.raises(InvalidKeyError):
        of_memcomparable(bytes.fromhex(digits))
