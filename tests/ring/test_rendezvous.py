"""Rendezvous hashing, by the vectors of hepnos.md 2.3: made with the C library, and with the document's byte ranges."""

import pytest

from keyplan.ring import fnv1a_64, lookup3, place

OBJECTS = (0, 1, 2, 0xDEADBEEF, 0x0123456789ABCDEF, 2**64 - 1, 14695981039346656037)


@pytest.mark.parametrize(
    ("databases", "expected"),
    [
        (1, (0, 0, 0, 0, 0, 0, 0)),
        (2, (1, 0, 0, 0, 0, 0, 0)),
        (3, (1, 0, 0, 0, 0, 0, 0)),
        (4, (1, 0, 3, 3, 0, 0, 0)),
        (8, (5, 7, 7, 3, 0, 6, 0)),
        (16, (5, 14, 15, 10, 0, 13, 13)),
    ],
)
def test_objects_are_placed_as_by_the_c_library(databases: int, expected: tuple[int, ...]) -> None:
    assert tuple(place(digest, databases) for digest in OBJECTS) == expected


UUID_HEX = "00112233445566778899aabbccddeeff"
ONE = "0000000000000001"
TWO = "0000000000000002"
NOTHING = "f" * 16

VECTORS = [
    ("aaa", "00616161", 0x2EE3207EFB8C85E0, (0, 1, 1, 1, 1, 13)),
    ("aaa/bbb", "016161612f626262", 0x250F80249A30E62C, (0, 1, 2, 2, 2, 12)),
    ("aaa/bbb/ccc", "026161612f6262622f636363", 0x7C7490E61024D3B7, (0, 1, 1, 1, 7, 7)),
    ("a run", UUID_HEX, 0x52A39B8A741B3EF5, (0, 1, 1, 3, 3, 3)),
    ("a subrun of run 1", UUID_HEX + ONE, 0x050030EB3070EDE2, (0, 1, 1, 1, 1, 13)),
    ("a subrun of run 300", UUID_HEX + "000000000000012c", 0x04FCAFEB306DDCD8, (0, 0, 0, 0, 0, 9)),
    ("an event", UUID_HEX + ONE + TWO, 0xD637F5FCCD4FFABC, (0, 1, 1, 1, 1, 1)),
    ("an event of 300, 0", UUID_HEX + "000000000000012c" + "0" * 16, 0x315BD61A9DA7E7D8, (0, 1, 2, 2, 2, 15)),
    ("a product of run 1", UUID_HEX + ONE + NOTHING, 0x60E994C454C07C9A, (0, 0, 0, 0, 4, 4)),
    ("a product of the data set", UUID_HEX + NOTHING * 2, 0x3167BB40DEF16C25, (0, 0, 0, 0, 6, 14)),
]


@pytest.mark.parametrize(("raw", "digest", "expected"), [vector[1:] for vector in VECTORS], ids=[v[0] for v in VECTORS])
def test_the_document_s_byte_ranges_hash_to_their_vectors(raw: str, digest: int, expected: tuple[int, ...]) -> None:
    assert fnv1a_64(bytes.fromhex(raw)) == digest
    assert tuple(place(digest, databases) for databases in (1, 2, 3, 4, 8, 16)) == expected


def test_the_hash_of_no_bytes_is_fnv_s_offset() -> None:
    assert fnv1a_64(b"") == 14695981039346656037


def test_bytes_above_127_are_taken_as_unsigned() -> None:
    assert fnv1a_64(b"\xff") == (0xCBF29CE484222325 ^ 0xFF) * 0x100000001B3 % 2**64


def test_lookup3_depends_on_both_seeds() -> None:
    assert len({lookup3(7, 0, 0), lookup3(7, 1, 0), lookup3(7, 0, 1)}) == 3


@pytest.mark.slow
def test_a_ninth_database_takes_a_ninth_and_only_for_itself() -> None:
    digests = [fnv1a_64(b"%d" % number) for number in range(4_000)]
    before = [place(digest, 8) for digest in digests]
    after = [place(digest, 9) for digest in digests]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {8}
    assert 0.08 < len(moved) / len(digests) < 0.14
    assert all(400 < before.count(database) < 600 for database in range(8))
