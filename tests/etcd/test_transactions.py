"""A commit as etcd's compare/then/else: bytes that were written down by hand, and what they do on a server."""

import pytest

from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Engine,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.engine.etcd.ranges import etcd_range
from keyplan.engine.etcd.transactions import transaction_of
from keyplan.errors import CommitConflictError

B_KEYS = KeyRange(b"b", b"c")


def hex_of(text: str) -> bytes:
    """Bytes from hex with spaces."""
    return bytes.fromhex(text)


@pytest.mark.parametrize(
    ("guard", "compare", "read"),
    [
        # result and target as numbers, then the key (field 3), the operand (5: create, 6: mod), the end (64: tag 82 04)
        (KeyAbsent(b"a"), "1001 1a0161 2800", "0a0161 4001"),
        (KeyUnchanged(b"a", 7), "1002 1a0161 3007", "0a0161 4001"),
        (KeyUnchanged(b"a", 0), "1002 1a0161 30ffffffffffffffffff01", "0a0161 4001"),
        (RangeEmpty(B_KEYS), "1001 1a0162 2800 820401 63", "0a0162 120163 1801 4001"),
        (RangeEmpty(KeyRange(b"", None)), "1001 1a0100 2800 820401 00", "0a0100 120100 1801 4001"),
        (RangeUnchanged(B_KEYS, 7, ()), "0802 1002 1a0162 3008 820401 63", "0a0162 120163 1801 4001"),
    ],
    ids=["absent", "unchanged", "unchanged since 0", "range empty", "all empty", "range unchanged"],
)
def test_a_guard_is_these_bytes(guard: Guard, compare: str, read: str) -> None:
    request = transaction_of(Commit((guard,)))
    assert [found.SerializeToString(deterministic=True) for found in request.compare] == [hex_of(compare)]
    assert [found.request_range.SerializeToString() for found in request.failure] == [hex_of(read)]
    assert not request.success


def test_an_unchanged_range_is_one_compare_for_newcomers_and_one_for_each_key_that_was_read() -> None:
    request = transaction_of(Commit((RangeUnchanged(B_KEYS, 7, (b"b1", b"b2")),)))
    assert [found.SerializeToString(deterministic=True) for found in request.compare] == [
        hex_of("0802 1002 1a0162 3008 820401 63"),
        hex_of("0801 1001 1a026231 2800"),
        hex_of("0801 1001 1a026232 2800"),
    ]
    assert [found.request_range.limit for found in request.failure] == [3]


@pytest.mark.parametrize(
    ("mutation", "operation"),
    [
        (Put(b"a", b"v"), "1206 0a0161 120176"),
        (Put(b"a", b"", lease=5), "1205 0a0161 1805"),
        (Delete(b"a"), "1a03 0a0161"),
        (DeleteRange(B_KEYS), "1a06 0a0162 120163"),
        (DeleteRange(KeyRange(b"b", None)), "1a06 0a0162 120100"),
    ],
    ids=["put", "put on a lease", "delete", "delete range", "delete to the end"],
)
def test_a_mutation_is_these_bytes(mutation: Mutation, operation: str) -> None:
    request = transaction_of(Commit((), (mutation,)))
    assert [found.SerializeToString(deterministic=True) for found in request.success] == [hex_of(operation)]


@pytest.mark.parametrize(
    ("key_range", "expected"),
    [
        (KeyRange(b"", None), (b"\x00", b"\x00")),
        (KeyRange(b"a", None), (b"a", b"\x00")),
        (KeyRange(b"a", b"b"), (b"a", b"b")),
        (KeyRange(b"a", b"a\x00"), (b"a", b"a\x00")),
        (KeyRange(b"a", b"a"), None),
        (KeyRange(b"b", b"a"), None),
        (KeyRange(b"a", b""), None),
        (KeyRange(b"", b""), None),
        (KeyRange(b"", b"\x00"), None),
        (KeyRange(b"", b"\x00\x00"), (b"\x00", b"\x00\x00")),
    ],
    ids=str,
)
def test_a_range_never_takes_etcds_special_ends_by_accident(
    key_range: KeyRange, expected: tuple[bytes, bytes] | None
) -> None:
    assert etcd_range(key_range) == expected


@pytest.mark.parametrize("newcomer", [b"b", b"b0", b"b15", b"b9", b"b\xff\xff"], ids=bytes.hex)
def test_a_newcomer_anywhere_in_a_range_that_was_read_is_named(etcd: Engine, newcomer: bytes) -> None:
    revision = etcd.commit(Commit((), (Put(b"b1", b""), Put(b"b2", b""))))
    guard = RangeUnchanged(B_KEYS, revision, (b"b1", b"b2"))
    etcd.commit(Commit((guard,), (Put(b"c", b""), Put(b"a", b""))))
    later = etcd.commit(Commit((), (Put(newcomer, b""),)))
    with pytest.raises(CommitConflictError) as caught:
        etcd.commit(Commit((guard,), (Put(b"x", b""),)))
    assert caught.value.facts["failed"] == (FailedGuard(guard, newcomer, later),)


def test_a_delete_in_a_range_that_was_read_is_noticed_although_its_ranged_compare_holds(etcd: Engine) -> None:
    revision = etcd.commit(Commit((), (Put(b"b1", b""), Put(b"b2", b""))))
    guard = RangeUnchanged(B_KEYS, revision, (b"b1", b"b2"))
    etcd.commit(Commit((), (Delete(b"b2"),)))
    with pytest.raises(CommitConflictError) as caught:
        etcd.commit(Commit((guard,), (Put(b"x", b""),)))
    assert caught.value.facts["failed"] == (FailedGuard(guard, b"b2", 0),)
